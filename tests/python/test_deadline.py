"""What the scheduler `deadline` expects to reach, in a result and in its explanation."""

import pytest

import skybraid
from skybraid.model.results import Results
from skybraid.show.explain import explain, text

SCENARIO = """
name = "forecast"
duration = "400s"
seed = 3

[path.one]
uplink = {{ rate = "20Mbit/s", delay = "30ms", loss = {{ uniform = "{loss}" }} }}
downlink = {{ rate = "20Mbit/s", delay = "30ms" }}

[path.other]
uplink = {{ rate = "20Mbit/s", delay = "40ms", loss = {{ uniform = "{loss}" }} }}
downlink = {{ rate = "20Mbit/s", delay = "40ms" }}

[flow.telemetry]
from = "vehicle"
traffic = {{ kind = "cbr", rate = "1Mbit/s", packet = "1250B" }}
require = {{ deadline = "100ms", share = "99.999%" }}

[flow.telemetry.transport]
protocol = "udp"
scheduler = {{ name = "deadline", within = "100ms", budget = "100%" }}
"""


def flown(loss: str) -> Results:
    return skybraid.run(skybraid.Scenario(SCENARIO.format(loss=loss), "forecast.toml"), tables=())


# A twentieth is lost on each path, so that copies on both leave 0.25 %; failures are taken to come together.
def test_a_result_says_that_no_plan_reaches_the_share() -> None:
    results = flown("5%")
    forecast = results.flows["telemetry"].forecast
    assert forecast is not None
    assert 0.0025 * 0.8 < 1 - forecast["best"] < 0.0025 * 3.2
    missed = results.flows["telemetry"].sent * (1 - forecast["best"])
    assert 0.5 * missed < forecast["min_misses_so_far"] <= forecast["misses_so_far"] < 2 * missed
    assert forecast["expected"] <= forecast["best"] < forecast["wanted"] == pytest.approx(0.99999)
    words = text(explain(results, "telemetry")[0])
    low, high = forecast["best_interval"]
    assert low < 1 - 0.0025 < high < forecast["wanted"]
    assert "expected by `deadline`: within 100 ms no plan reaches 99.999 %: best 99." in words


def test_a_calm_result_expects_the_share() -> None:
    forecast = flown("0%").flows["telemetry"].forecast
    assert forecast is not None
    assert forecast["expected"] > 0.9999
    assert "no plan" not in forecast["words"]


# Of 400 s no more than 2,000 packets are independent of each other: too few to show 99.999 %.
def test_what_too_few_packets_show_is_not_known_yet() -> None:
    forecast = flown("0%").flows["telemetry"].forecast
    assert forecast is not None
    low, high = forecast["expected_interval"]
    assert low < forecast["wanted"] <= high
    assert "it is not known yet whether 99.999 % are reached" in forecast["words"]

"""Chavali's study where it needs few runs: its files, what its observations read, and some verdicts."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pytest

from skybraid import Scenario, ScenarioError
from skybraid_studies import Study, reproduce
from skybraid_studies.chavali2022 import links, rules
from skybraid_studies.chavali2022 import observations as chavali
from skybraid_studies.engine import theory
from skybraid_studies.engine.claims import Holds
from skybraid_studies.engine.observe import RunData, observations
from skybraid_studies.engine.papers import FOLDER as STUDIES
from skybraid_studies.engine.places import fill

if TYPE_CHECKING:
    from skybraid._core import Run

STUDY = STUDIES / "chavali2022"

MS = 1_000_000


def packet(path: str, direction: str, kind: str, at_ms: float, until_ms: float | None, size: int) -> dict[str, Any]:
    """A row of the table `packets`; a packet without `until_ms` is lost when it enters, as from a full queue."""
    return {
        "path": path,
        "direction": direction,
        "in_ns": round(at_ms * MS),
        "out_ns": round((at_ms if until_ms is None else until_ms) * MS),
        "bytes": size,
        "flow": "stream",
        "kind": kind,
        "cause": "random" if until_ms is None else None,
    }


class Made(RunData):
    """A run whose tables are made by hand."""

    def __init__(self, length_s: float, **tables: list[dict[str, Any]]) -> None:
        super().__init__(cast("Run", SimpleNamespace(simulated_s=length_s)))
        self._made = {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in tables.items()}

    def table(self, name: str) -> pl.DataFrame:
        return self._made[name]


PACKETS = [
    # Two segments and an acknowledgement for both, a lost one, and one whose acknowledgement is repeated.
    packet("lte", "downlink", "data", 0, 10, 1500),
    packet("lte", "downlink", "data", 1, 11, 1500),
    packet("lte", "uplink", "ack", 11, 41, 60),
    packet("lte", "downlink", "data", 100, None, 1500),
    packet("lte", "downlink", "data", 600, 620, 1500),
    packet("lte", "uplink", "ack", 620, 650, 60),
    packet("lte", "uplink", "ack", 621, 660, 60),
    # The other path, and a segment of the other direction.
    packet("satcom", "downlink", "data", 0, 28, 1500),
    packet("satcom", "uplink", "ack", 30, 58, 60),
    packet("lte", "uplink", "data", 5, 35, 100),
]


def test_every_experiment_of_the_thesis_is_there_and_parses() -> None:
    study = Study(STUDY)
    for reading in study.readings:
        experiments = study.experiments(reading)
        assert {f"CHV-E{number:02}" for number in range(1, 39)} <= experiments.keys()
        assert all(one.claims for one in experiments.values())


def test_a_round_trip_is_that_of_the_last_acknowledged_segment() -> None:
    seen = Made(1.0, packets=PACKETS)
    assert chavali.round_trips_ms(seen, "stream", "lte").tolist() == [40.0, 50.0]
    assert chavali.packet_rtt(seen, "stream", "satcom", 1.0) == 58.0
    assert np.isnan(chavali.packet_rtt(seen, "other", "lte", 0.9))


def test_paths_are_counted_by_what_they_were_given_and_what_arrived() -> None:
    seen = Made(1.0, packets=PACKETS)
    known = observations()
    lte = {"flow": "stream", "path": "lte"}
    assert known["chavali.lost"](seen, lte) == 1
    assert known["chavali.lost"](seen, lte | {"from_s": 0.2}) == 0
    assert known["chavali.utilisation"](seen, lte) == pytest.approx(3 * 1500 * 8e-6)
    assert known["chavali.utilisation"](seen, lte | {"from_s": 0.5}) == pytest.approx(1500 * 8e-6 / 0.5)
    both = {"flow": "stream", "paths": ["lte", "satcom"], "window_s": 0.5}
    assert known["chavali.utilisation_peak"](seen, both) == pytest.approx(3 * 1500 * 8e-6 / 0.5)


def messages(*rates_mbps: float) -> list[dict[str, Any]]:
    """Ten messages in each second, of the size that makes a rate."""
    return [
        {
            "flow": "stream",
            "bytes": round(rate * 1e6 / 8 / 10),
            "sent_ns": (1000 * second + 100 * number) * MS,
            "delivered_ns": (1000 * second + 100 * number + 50) * MS,
            "path": "lte",
        }
        for second, rate in enumerate(rates_mbps)
        for number in range(10)
    ]


def test_goodput_must_suffice_in_enough_seconds() -> None:
    seen = Made(10.0, packets=PACKETS, messages=messages(5, 10, 15, *[20] * 7))
    keys = {"flow": "stream", "paths": ["lte", "satcom"]}
    good = observations()["chavali.good_enough"]
    assert good(seen, keys) == 1
    assert good(seen, keys | {"share": 71.0}) == 0
    assert good(seen, keys | {"rtt_ms": 57.0}) == 0
    assert good(seen, keys | {"rtt_ms": 58.0}) == 1
    assert observations()["chavali.ramp"](seen, {"flow": "stream", "window_s": 1.0}) == 3
    assert observations()["chavali.rate"](seen, {"flow": "stream", "from_s": 2, "to_s": 4}) == pytest.approx(17.5)


# Source: RFC 6298's round trip of a path without a queue: both delays, and the time that both packets take.
def test_a_run_round_trip_is_delays_plus_transmission() -> None:
    text = """
duration = "3s"
[path.one]
uplink = { rate = "10Mbit/s", delay = "20ms" }
downlink = { rate = "10Mbit/s", delay = "30ms" }
[flow.stream]
from = "vehicle"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "1250B" }
transport = { protocol = "tcp", ack_every = 1 }
"""
    seen = RunData(Scenario(text).native.run(1, ["packets"]))
    assert chavali.packet_rtt(seen, "stream", "one", 0.5) == pytest.approx(51.1, abs=0.1)


def test_a_place_in_a_value_chooses_a_word() -> None:
    assert fill({"congestion": "{x:lia|olia|balia}"}, x=2.0) == {"congestion": "olia"}
    assert fill("{k:a|b} and {x}", k=1.0) == "a and {x}"
    assert fill("{x:a|b}", k=1.0) == "{x:a|b}"
    for wrong in (0.0, 1.5, 3.0):
        with pytest.raises(ScenarioError, match="expected 1 to 2"):
            fill("{x:a|b}", x=wrong)


# Source: chavali2022, Table 4.1; the mean and the deviation that the mixture has once its weights sum to one.
def test_the_mixtures_distribution_has_its_mean() -> None:
    at_ms = np.linspace(0, 400, 40_001)
    cdf = links.mixture_cdf(at_ms)
    assert cdf[0] == 0
    assert cdf[-1] == pytest.approx(1)
    mean = float(np.trapezoid(1 - cdf, at_ms))
    assert mean == pytest.approx(5.83, abs=0.03)
    spread = float(np.sqrt(2 * np.trapezoid(at_ms * (1 - cdf), at_ms) - mean**2))
    assert spread == pytest.approx(26.6, abs=0.1)


# Source: RFC 6356, section 3: equal paths grow as one NewReno together; OLIA and BALIA do the same.
def test_on_equal_paths_every_coupled_rule_grows_as_one_connection() -> None:
    windows, rtts_s = np.array([20.0, 20.0]), np.array([0.1, 0.1])
    for rule in (rules.lia, rules.olia, rules.balia):
        alone = rule(windows[:1], rtts_s[:1], 0)
        assert alone == pytest.approx(1 / 20)
    assert rules.lia(windows, rtts_s, 0) == pytest.approx(1 / 80)
    assert rules.olia(windows, rtts_s, 0) == pytest.approx(1 / 80)


@pytest.mark.parametrize(
    "name", ["CHV-E03", "CHV-E28", "CHV-E29", "CHV-E30", "CHV-E31", "CHV-E32", "CHV-E34", "CHV-E36"]
)
def test_what_needs_no_long_runs_holds(name: str) -> None:
    (row,) = reproduce("chavali2022", [name], quick=True).rows
    assert row.verdict == Holds.YES, row.why


def test_a_path_alone_with_losses_is_what_the_thesis_found() -> None:
    """LTE alone carries the stream, the satellite alone does not: Fig. 5.7."""
    (row,) = reproduce("chavali2022", ["CHV-E12"], quick=True).rows
    assert row.verdict == Holds.YES, row.why
    assert row.claims[0].ours is not None
    assert row.claims[0].ours >= 70


def test_a_19_mbit_s_satellite_carries_less_goodput() -> None:
    (row,) = reproduce("chavali2022", ["CHV-X08"], quick=True).rows
    assert [claim.verdict for claim in row.claims] == [Holds.NO, Holds.YES]
    assert row.ours == pytest.approx(19 * 1448 / 1500, abs=0.05)
    assert not row.unexplained


def test_the_tables_stand_beside_the_thesis_in_every_permutation() -> None:
    card = reproduce("chavali2022", ["CHV-E21"], quick=True)
    assert len([one for one in card.points if one.theirs is not None]) == 24
    assert card.comparisons["goodput above 19 Mbit/s (Table 5.2)"]["points"] == 24


def test_a_calculation_about_rules_answers_for_each_control() -> None:
    # Source: RFC 5681, section 3.1, and RFC 8312, section 4.5.
    assert [theory.compute("chavali.alone", x, 1) for x in (1, 5, 6)] == pytest.approx([0.5, 0.5, 0.7])

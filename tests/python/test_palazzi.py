"""Palazzi's study where it needs no long runs, and the control that its calculations ask."""

import pytest

from skybraid import ScenarioError
from skybraid._core import Acked, Congestion, Lost, PathBasics
from skybraid_studies import reproduce
from skybraid_studies.engine.claims import Holds
from skybraid_studies.palazzi2007 import observations as westwood


def control(toml: str, window: int) -> Congestion:
    path = PathBasics(segment_bytes=1000, initial_window_bytes=1000 * window, initial_threshold_bytes=1000 * window)
    return Congestion(toml, path)


# Source: RFC 5681, sections 3.1 and 3.2.
def test_a_control_by_itself_grows_and_halves_as_reno_does() -> None:
    reno = control('"reno"', 10)
    for step in range(1, 11):
        reno.on_ack(
            Acked(now_s=step / 100, bytes=1000, delivered_bytes=1000 * step, srtt_s=0.1, in_flight_bytes=10_000)
        )
    assert reno.window_bytes == pytest.approx(11_000, rel=0.01)
    reno.on_loss(Lost(now_s=0.2, in_flight_bytes=10_000))
    assert (reno.window_bytes, reno.threshold_bytes) == (5000, 5000)
    reno.on_timeout(Lost(now_s=1.0, in_flight_bytes=4000))
    assert (reno.window_bytes, reno.threshold_bytes) == (1000, 2000)
    assert reno.pacing_bps is None


@pytest.mark.parametrize(
    "toml", ['"renno"', "reno", '{ name = "westwood", tau = "0s" }', '{ name = "reno", tau = "1s" }']
)
def test_a_control_that_is_none_is_refused(toml: str) -> None:
    with pytest.raises(ScenarioError):
        control(toml, 10)


# Source: palazzi2007 PAL-C6, equation 3 in consistent units: RTT · (1 − pipe / window), RTT of 1 s.
@pytest.mark.parametrize("window", [1.5, 2.0, 4.0])
def test_the_interval_is_read_from_the_estimate_alone(window: float) -> None:
    assert westwood.interval(window, 1) == pytest.approx(1 - 1 / window, rel=0.01)


def test_what_the_paper_says_of_westwood_holds() -> None:
    card = reproduce("palazzi2007", ["PAL-T1", "PAL-T2", "PAL-T3"])
    assert [row.verdict for row in card.rows] == [Holds.YES] * 3
    assert card.runs == 0


def test_a_proxys_cache_of_twice_the_pipe_fills_the_chain() -> None:
    (row,) = reproduce("palazzi2007", ["PAL-T4"]).rows
    assert row.verdict == Holds.YES, row.why

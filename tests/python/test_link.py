"""One direction of a path, a whole array of packets at a time."""

from pathlib import Path

import numpy as np
import pytest

from skybraid import Link, ScenarioError, causes

SATURATED = """
uplink.rate = "12Mbit/s"
uplink.delay = "10ms"
uplink.queue = "unlimited"
downlink.rate = "12Mbit/s"
"""


def test_a_saturated_link_serves_one_packet_after_the_other() -> None:
    times_s = np.zeros(1_000)
    sizes = np.full(1_000, 1_500, dtype=np.uint32)
    arrivals_s, cause = Link(SATURATED).admit(times_s, sizes)
    assert not cause.any()
    assert arrivals_s == pytest.approx(0.010 + 0.001 * np.arange(1, 1_001), abs=1e-8)


def test_a_million_packets_in_one_call_have_causes_of_loss() -> None:
    lossy = SATURATED + '\nuplink.loss = { uniform = "1%" }'
    times_s = np.arange(1_000_000, dtype=np.float64) * 0.002
    sizes = np.full(1_000_000, 1_000, dtype=np.uint32)
    arrivals_s, cause = Link(lossy, seed=5).admit(times_s, sizes)
    lost = np.isnan(arrivals_s)
    assert np.array_equal(lost, cause > 0)
    assert {causes()[code] for code in np.unique(cause[lost])} == {"random"}
    assert lost.mean() == pytest.approx(0.01, abs=4 * np.sqrt(0.01 * 0.99 / 1e6))
    again, _ = Link(lossy, seed=5).admit(times_s, sizes)
    assert np.array_equal(arrivals_s, again, equal_nan=True)


def test_calls_one_after_the_other_are_the_same_as_one_call() -> None:
    times_s = np.arange(2_000, dtype=np.float64) * 0.0005
    sizes = np.full(2_000, 1_500, dtype=np.uint32)
    whole, _ = Link(SATURATED).admit(times_s, sizes)
    link = Link(SATURATED)
    parts = [link.admit(times_s[part], sizes[part])[0] for part in (slice(0, 700), slice(700, 2_000))]
    assert np.array_equal(whole, np.concatenate(parts))


def test_a_preset_is_a_link_too() -> None:
    arrivals_s, _ = Link('preset = "ethernet"', direction="downlink").admit(
        np.array([0.0, 0.1]), np.array([100, 100], dtype=np.uint32)
    )
    assert (arrivals_s > np.array([0.0, 0.1])).all()


@pytest.mark.parametrize(
    ("toml", "direction"), [("uplink.rat = '1Mbit/s'", "uplink"), ("", "uplink"), (SATURATED, "sideways")]
)
def test_a_wrong_link_is_told(toml: str, direction: str) -> None:
    with pytest.raises(ScenarioError):
        Link(toml, direction=direction)


def test_unequal_arrays_and_times_that_are_no_numbers_are_errors() -> None:
    with pytest.raises((ScenarioError, ValueError)):
        Link(SATURATED).admit(np.zeros(2), np.zeros(3, dtype=np.uint32))
    with pytest.raises((ScenarioError, ValueError)):
        Link(SATURATED).admit(np.array([np.nan]), np.array([100], dtype=np.uint32))


def test_a_link_enters_a_measurement_where_its_seed_says(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("".join(f"{second},{second}\n" for second in range(60)), encoding="utf-8")
    toml = 'uplink.rate = "1Gbit/s"\nuplink.delay = { trace = "a.csv", column = "2", unit = "ms", start = "random" }'

    def delays_ms(seed: int) -> list[int]:
        times_s = np.arange(120, dtype=np.float64) + np.float64(0.5)
        link = Link(toml, seed=seed, base=str(tmp_path))
        arrivals_s, _ = link.admit(times_s, np.full(120, 100, dtype=np.uint32))
        return [int(delay) for delay in 1000.0 * (arrivals_s - times_s)]

    found = {seed: delays_ms(seed) for seed in range(10)}
    for delays in found.values():
        assert [(delay - delays[0]) % 60 for delay in delays] == [second % 60 for second in range(120)]
    assert len({delays[0] for delays in found.values()}) > 5
    assert delays_ms(3) == found[3]

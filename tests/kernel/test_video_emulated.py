"""Video in real time: emulated frames have the simulated latency."""

from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest

import skybraid
from marks import needs_emulator
from skybraid.model.results import Results

pytestmark = needs_emulator

SCENARIO = """
duration = "8s"
[path.lte]
uplink = { rate = "20Mbit/s", delay = "45ms", loss = { uniform = "0.1%" } }
downlink = { rate = "30Mbit/s", delay = "30ms" }
[path.starlink]
uplink = { rate = "15Mbit/s", delay = "25ms", loss = { uniform = "0.5%" } }
downlink = { rate = "60Mbit/s", delay = "25ms" }
[flow.video]
from = "vehicle"
traffic = { kind = "video", rate = "5Mbit/s" }
"""

TRANSPORTS = {
    "udp": 'transport = { protocol = "udp", scheduler = "round_robin" }',
    "linux-mptcp": 'transport = { protocol = "mptcp", scheduler = "linux", stack = "kernel" }',
}


SEEDS = (1, 2, 3)
BEGIN_NS = 1_000_000_000
"""The first frame that counts. While windows still grow, frames come late: a twentieth of so short a flight, which
makes a cliff at its 95th percentile."""


def frames(flight: Results) -> pl.DataFrame:
    return flight.tables["frames"].filter(pl.col("captured_ns") >= BEGIN_NS)


def latency_ms(flights: list[Results], share: float) -> float:
    """Returns a latency quantile in ms, as the median over flights."""
    return float(median(np.quantile(frames(flight)["latency_ns"].drop_nulls(), share) for flight in flights)) / 1e6


def shown(flights: list[Results]) -> int:
    return sum(frames(flight)["shown_ns"].count() for flight in flights)


@pytest.mark.parametrize("transport", TRANSPORTS.values(), ids=TRANSPORTS)
def test_frames_reach_the_screen_alike_in_real_and_virtual_time(tmp_path: Path, transport: str) -> None:
    file = tmp_path / "video.toml"
    file.write_text(SCENARIO + transport, encoding="utf-8")
    simulated = [skybraid.run(file, seed=seed, tables=["frames"]) for seed in SEEDS]
    emulated = [skybraid.emulate(file, seed=seed, tables=["frames"]) for seed in SEEDS]
    assert all(results.tables["frames"].height == 240 for results in simulated + emulated)
    for share in (0.5, 0.95, 0.99):
        assert latency_ms(emulated, share) == pytest.approx(latency_ms(simulated, share), rel=0.1), share
    assert shown(emulated) == pytest.approx(shown(simulated), abs=3 * len(SEEDS))


def test_reports_for_rate_control_need_a_transport_that_carries_them(tmp_path: Path) -> None:
    file = tmp_path / "video.toml"
    controlled = SCENARIO.replace('"5Mbit/s"', '"5Mbit/s", rate_control = { kind = "gcc" }')
    file.write_text(controlled + TRANSPORTS["linux-mptcp"], encoding="utf-8")
    with pytest.raises(skybraid.SkybraidError, match="rate_control"):
        skybraid.emulate(file, tables=[])

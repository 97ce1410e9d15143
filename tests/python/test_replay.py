"""Replaying a measured series through its link gives the series back."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import skybraid

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "traces"
SHARED = Path(os.environ.get("SKYBRAID_TRACES", ROOT.parent / "shared" / "traces"))
TESTBED = SHARED / "baltaci2023_inputs"

Array = NDArray[np.float64]

DELAYS = [
    *[(TRACES / "lte_drive_pam2025" / f"{carrier}.csv", "delay [ms]") for carrier in ("atnt", "tmobile", "verizon")],
    (TRACES / "starlink_leocc" / "delay_42min.csv", "delay [ms]"),
    (TRACES / "starlink_fjordlink" / "vessel_8h.csv", "delay [ms]"),
    *[(path, "delay [ms]") for path in sorted((TRACES / "nr5g_cicv5g").glob("*.csv"))],
    *[(TESTBED / f"{name}.csv", "2") for name in ("latency_ul", "satdelay_st", "satdelay_gw")],
]
RATES = [(TESTBED / f"{name}.csv", "2") for name in ("bitrate_ul", "bitrate_dl")]


def pearson(a: Array, b: Array) -> float:
    """Correlation of two equally long series."""
    return float(np.corrcoef(a, b)[0, 1])


def present(path: Path) -> Path:
    """The file, or a skipped test that says which is missing."""
    if not path.exists():
        pytest.skip(f"{path.name} is not here: it is read from the measurement folder, SKYBRAID_TRACES")
    return path


@pytest.mark.parametrize(("path", "column"), DELAYS, ids=lambda value: Path(value).stem)
def test_packets_see_the_delays_of_the_series(path: Path, column: str) -> None:
    trace = skybraid.read_trace(present(path).read_text(), "csv", column, "ms")
    times_s, delays_ns = trace
    toml = f"""
    uplink.rate = "10Gbit/s"
    uplink.reorder = true
    uplink.delay = {{ trace = "{path.name}", column = "{column}", unit = "ms" }}
    """
    link = skybraid.Link(toml, base=str(path.parent))
    sent = times_s + 1e-6
    arrivals, causes = link.admit(sent, np.full(len(sent), 100, np.uint32))
    assert not causes.any()
    assert pearson(arrivals - sent, delays_ns) >= 0.99


@pytest.mark.parametrize(("path", "column"), RATES, ids=lambda value: Path(value).stem)
def test_a_saturated_link_carries_the_rates_of_the_series(path: Path, column: str) -> None:
    _, rates_bps = skybraid.read_trace(present(path).read_text(), "csv", column, "Mbit/s")
    toml = f"""
    uplink.rate = {{ trace = "{path.name}", column = "{column}", unit = "Mbit/s" }}
    uplink.queue = {{ packets = 50 }}
    """
    carried = saturate(skybraid.Link(toml, base=str(path.parent)), len(rates_bps), 60e6)
    assert pearson(carried, rates_bps) >= 0.99
    assert np.allclose(carried.mean(), rates_bps.mean(), rtol=0.01)


def test_a_saturated_link_uses_all_opportunities_of_the_trace() -> None:
    path = TRACES / "starlink_leocc" / "downlink.down"
    times_s, _ = skybraid.read_trace(path.read_text(), "mahimahi", None, None)
    seconds = int(times_s[-1])
    offered = np.histogram(times_s, bins=np.arange(seconds + 1))[0] * 1504 * 8.0
    toml = 'uplink.rate = { opportunities = "downlink.down" }\nuplink.queue = { packets = 50 }'
    carried = saturate(skybraid.Link(toml, base=str(path.parent)), seconds, 200e6)
    assert pearson(carried, offered) >= 0.99


def saturate(link: skybraid.Link, seconds: int, offered_bps: float) -> Array:
    """Bits that arrive in each second when more is offered than the link takes."""
    packets = int(seconds * offered_bps / 12_000)
    sent = np.arange(packets) * 12_000 / offered_bps
    arrivals, _ = link.admit(sent, np.full(packets, 1500, np.uint32))
    return np.histogram(arrivals[np.isfinite(arrivals)], bins=np.arange(seconds + 1))[0] * 12_000.0

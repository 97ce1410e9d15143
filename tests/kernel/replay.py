"""Replays the testbed's inputs in real time and compares measured with configured values.

LTE rates up and down, LTE latency and the LEO round trip of Baltaci et al. (2023), second by second, as Pearson's
correlation; the original testbed reached 0.98, 0.94, 0.71 and 0.88. Needs the measurements (SKYBRAID_TRACES). `make
kernel` runs it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import skybraid

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
INPUTS = Path(os.environ.get("SKYBRAID_TRACES", ROOT.parent / "shared" / "traces")) / "baltaci2023_inputs"

LEAST = 0.98
"""Correlation that every series must reach."""

SCENARIO = """
duration = "{seconds}s"

[path.rate]
uplink.rate = {{ trace = "{inputs}/bitrate_ul.csv", column = "2", unit = "Mbit/s" }}
downlink.rate = {{ trace = "{inputs}/bitrate_dl.csv", column = "2", unit = "Mbit/s" }}
uplink.queue = {{ packets = 50 }}
downlink.queue = {{ packets = 50 }}

[path.latency]
uplink.rate = "100Mbit/s"
uplink.delay = {{ trace = "{inputs}/latency_ul.csv", column = "2", unit = "ms" }}
uplink.reorder = true
downlink.rate = "100Mbit/s"

[path.leo]
uplink.rate = "100Mbit/s"
uplink.delay = {{ trace = "{inputs}/satdelay_st.csv", column = "2", unit = "ms" }}
uplink.reorder = true
downlink.rate = "100Mbit/s"
downlink.delay = {{ trace = "{inputs}/satdelay_gw.csv", column = "2", unit = "ms" }}
downlink.reorder = true

[flow.up]
from = "vehicle"
traffic = {{ kind = "cbr", rate = "60Mbit/s", packet = "1400B" }}
transport = {{ protocol = "udp", paths = ["rate"] }}

[flow.down]
from = "ground"
traffic = {{ kind = "cbr", rate = "60Mbit/s", packet = "1400B" }}
transport = {{ protocol = "udp", paths = ["rate"] }}

[flow.latency]
from = "vehicle"
traffic = {{ kind = "cbr", rate = "80kbit/s", packet = "100B" }}
transport = {{ protocol = "udp", paths = ["latency"] }}

[flow.leo]
from = "vehicle"
traffic = {{ kind = "ping", every = "10ms" }}
transport = {{ protocol = "udp", paths = ["leo"] }}
"""


def series(name: str, unit: str, seconds: int) -> NDArray[np.float64]:
    """Returns a configured series with one value per second, in bit/s or s."""
    _, values = skybraid.read_trace((INPUTS / f"{name}.csv").read_text(encoding="utf-8"), "csv", "2", unit)
    return values[:seconds]


def carried(results: skybraid.Results, direction: str, seconds: int) -> NDArray[np.float64]:
    """Returns the bits delivered over the path `rate` in each second."""
    rows = results.tables["links"].filter((pl.col("path") == "rate") & (pl.col("direction") == direction))
    # A row covers the 100 ms before it.
    second = ((rows["time_ns"] - 1) // 1_000_000_000).clip(0)
    bits = np.zeros(seconds)
    np.add.at(bits, second.to_numpy().clip(0, seconds - 1), rows["delivered_bytes"].to_numpy() * 8.0)
    return bits


def delays(results: skybraid.Results, flow: str, seconds: int) -> NDArray[np.float64]:
    """Returns the mean delay in s of the messages of each second; NaN without arrivals."""
    rows = results.tables["messages"].filter((pl.col("flow") == flow) & pl.col("delivered_ns").is_not_null())
    second = (rows["sent_ns"] // 1_000_000_000).to_numpy()
    delay = (rows["delivered_ns"] - rows["sent_ns"]).to_numpy() / 1e9
    count = np.bincount(second, minlength=seconds)[:seconds]
    total = np.bincount(second, weights=delay, minlength=seconds)[:seconds]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def pearson(measured: NDArray[np.float64], configured: NDArray[np.float64]) -> float:
    """Returns Pearson's correlation over the measured seconds, without the last ones."""
    known = np.isfinite(measured)
    known[-3:] = False
    return float(np.corrcoef(measured[known], configured[known])[0, 1])


def main() -> int:
    """Prints one line per series. Exit code: 0 all correlate, 1 not or skipped."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=300)
    seconds = parser.parse_args().seconds
    if not INPUTS.is_dir():
        sys.stdout.write("skipped: the measurements of baltaci2023_inputs are not here (SKYBRAID_TRACES)\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "replay.toml"
        file.write_text(SCENARIO.format(seconds=seconds, inputs=INPUTS), encoding="utf-8")
        results = skybraid.emulate(file, tables=["links", "messages"])
    st, gw = series("satdelay_st", "ms", seconds), series("satdelay_gw", "ms", seconds)
    pairs = {
        "LTE rate up": (carried(results, "uplink", seconds), series("bitrate_ul", "Mbit/s", seconds)),
        "LTE rate down": (carried(results, "downlink", seconds), series("bitrate_dl", "Mbit/s", seconds)),
        "LTE latency": (delays(results, "latency", seconds), series("latency_ul", "ms", seconds)),
        "LEO round trip": (delays(results, "leo.answer", seconds), st + gw),
    }
    failed = 0
    for name, (measured, configured) in pairs.items():
        found = pearson(measured, configured)
        failed += found < LEAST
        verdict = "holds" if found >= LEAST else "DOES NOT HOLD"
        sys.stdout.write(f"{name:16} Pearson {found:.4f} (at least {LEAST})  {verdict}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The simulator compared with the Linux kernel over the same links, seed by seed.

Each case is a scenario that is simulated and emulated with the same seeds. Printed are the ratio of the median goodputs
(kernel by simulator) and the distance between the distributions of what was measured on the way: smoothed round-trip
times of TCP, one-way delays of datagrams: Kolmogorov and Smirnov's distance, and the mean distance of the quantiles.
Percentiles are the median over the seeds too, so that one second in which the machine stood still decides nothing.
`make kernel` runs all of it, `PYTHONPATH=tests/gateway python tests/kernel/agreement.py --only
cubic-geo --seeds 3` a part.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from scipy.stats import ks_2samp, wasserstein_distance

import skybraid
from stalls import Stalls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

PATHS = {
    # LTE in the air (Baltaci 2023): tens of ms, a deep queue.
    "lte": 'uplink.rate = "20Mbit/s"\nuplink.delay = "45ms"\nuplink.queue = { packets = 350 }\n'
    'downlink.rate = "30Mbit/s"\ndownlink.delay = "30ms"\ndownlink.queue = { packets = 1000 }\n',
    # Starlink: a moderate queue, tens of ms.
    "starlink": 'uplink.rate = "15Mbit/s"\nuplink.delay = "25ms"\nuplink.queue = { packets = 100 }\n'
    'downlink.rate = "60Mbit/s"\ndownlink.delay = "25ms"\ndownlink.queue = { packets = 300 }\n',
    # A geostationary satellite: 275 ms one way.
    "geo": 'uplink.rate = "10Mbit/s"\nuplink.delay = "275ms"\nuplink.queue = { packets = 500 }\n'
    'downlink.rate = "20Mbit/s"\ndownlink.delay = "275ms"\ndownlink.queue = { packets = 1000 }\n',
}
"""Links that are like those of the papers, without what would make short runs differ by chance."""

LOSSY = {name: PATHS[name] + 'uplink.loss = { uniform = "5%" }\n' for name in ("lte", "starlink")}
"""Two links that lose packets, for schedulers that send copies."""

LOSS = {"clean": "0%", "lossy": "0.1%"}
"""Random loss on the uplink."""

PERCENTILES = (0.5, 0.95, 0.99)

_TRIES = 3

STOOD = 0.1
"""The share of a flight's time for which processors may stand still, all together, if its failing is to prove
anything."""

DURATION_S = {"lte": 20, "starlink": 20, "geo": 40}


@dataclass(frozen=True, slots=True)
class Case:
    """Scenario and tolerances of the comparison.

    Attributes:
        name: tells transport, links and loss.
        scenario: its text.
        within: largest deviation of the ratio of median goodputs from 1.
        delays_within: the same of each of `PERCENTILES` of the delays, where they are held too.
    """

    name: str
    scenario: str
    within: float
    delays_within: float | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """Result of a case.

    Attributes:
        case: the case.
        simulated_mbps: goodput of each simulated seed.
        emulated_mbps: goodput of each emulated seed.
        distance: between the distributions of round-trip times or delays, 0 to 1 (Kolmogorov and Smirnov).
        apart: mean distance of their quantiles as a share of the simulator's median (Wasserstein).
        times_ms: `PERCENTILES` of these times, each the median over the seeds: simulator, kernel.
        stood: the share of the time for which the machine stood still, in the worst of the flights that it spoilt.
    """

    case: Case
    simulated_mbps: Sequence[float]
    emulated_mbps: Sequence[float]
    distance: float
    apart: float
    times_ms: tuple[NDArray[np.float64], NDArray[np.float64]]
    stood: float

    @property
    def ratio(self) -> float:
        """Ratio of median goodputs, kernel to simulator."""
        return statistics.median(self.emulated_mbps) / statistics.median(self.simulated_mbps)

    @property
    def holds(self) -> bool:
        """Whether the ratios of goodput and, where required, of delays are within their tolerances."""
        near = abs(self.ratio - 1) <= self.case.within
        if self.case.delays_within is None:
            return near
        delays = np.abs(self.times_ms[1] / self.times_ms[0] - 1)
        return near and bool((delays <= self.case.delays_within).all())


def cases() -> list[Case]:
    """Returns all cases."""
    return [*tcp(), *mptcp(), datagrams(), *own()]


def tcp() -> Iterator[Case]:
    """Yields bulk transfers over Linux TCP."""
    for control, within in (("reno", 0.10), ("cubic", 0.10), ("bbr", 0.15)):
        for path, links in PATHS.items():
            for kind, loss in LOSS.items():
                text = scenario(
                    DURATION_S[path],
                    {path: links + f'uplink.loss = {{ uniform = "{loss}" }}\n'},
                    f'protocol = "tcp", congestion = "{control}", stack = "kernel"',
                )
                yield Case(f"{control}-{path}-{kind}", text, within)


def mptcp() -> Iterator[Case]:
    """Yields bulk transfers over Linux MPTCP with two paths."""
    for control in ("reno", "cubic"):
        paths = {"lte": PATHS["lte"], "starlink": PATHS["starlink"]}
        transport = f'protocol = "mptcp", scheduler = "linux", congestion = "{control}", stack = "kernel"'
        yield Case(f"mptcp-{control}", scenario(20, paths, transport), 0.15)


def datagrams() -> Case:
    """Yields small datagrams duplicated over two lossy paths."""
    paths = {name: PATHS[name] + 'uplink.loss = { uniform = "2%" }\n' for name in ("lte", "starlink")}
    transport = 'protocol = "udp", scheduler = "redundant"'
    traffic = 'kind = "cbr", rate = "1Mbit/s", packet = "125B"'
    return Case("redundant", scenario(10, paths, transport, traffic), 0.01)


def own() -> Iterator[Case]:
    """Yields video over MP-DCCP: the same state machines over simulated links and over UDP sockets."""
    paths = {name: PATHS[name] + 'uplink.loss = { uniform = "0.5%" }\n' for name in ("lte", "starlink")}
    traffic = 'kind = "cbr", rate = "8Mbit/s", packet = "1200B"'
    for scheduler, control, reordering in (
        ("round_robin", "ccid2", "none"),
        ("cheapest_path", "ccid5", "adaptive"),
        ("low_rtt", "ccid5", "fixed"),
        ("redundant", "ccid2", "equalised"),
    ):
        transport = (
            f'protocol = "mp_dccp", scheduler = "{scheduler}", congestion = "{control}", reordering = "{reordering}"'
        )
        text = scenario(20, paths, transport, traffic)
        yield Case(f"own-{scheduler}-{control}", text, 0.05, delays_within=0.05)


def scenario(duration_s: float, paths: dict[str, str], transport: str, traffic: str = 'kind = "bulk"') -> str:
    """Returns the text of a scenario with one flow from the vehicle."""
    tables = "\n".join(f"[path.{name}]\n{links}" for name, links in paths.items())
    return (
        f'duration = "{duration_s:g}s"\n{tables}\n[flow.data]\nfrom = "vehicle"\n'
        f'traffic = {{ {traffic} }}\ntransport = {{ profile = "linux", {transport} }}\n'
    )


def times_ms(results: skybraid.Results) -> NDArray[np.float64]:
    """Returns one-way delays of the messages in ms if they are kept, else smoothed round-trip times."""
    if "messages" not in results.tables:
        return results.tables["subflows"]["srtt_ns"].drop_nulls().to_numpy() / 1e6
    delays = results.tables["messages"].select(pl.col("delivered_ns") - pl.col("sent_ns"))
    return delays.to_series().drop_nulls().to_numpy() / 1e6


def agreement(case: Case, seeds: Sequence[int], folder: Path, parallel: int = 1) -> Agreement:
    """Simulates and emulates a case with each seed.

    A flight on a machine that was too busy for it, as its own report says, is repeated, twice at most.
    """
    file = folder / f"{case.name}.toml"
    file.write_text(case.scenario, encoding="utf-8")
    tables = ["subflows"] if "tcp" in case.scenario else ["messages"]

    def simulate(seed: int) -> skybraid.Results:
        return skybraid.run(file, seed=seed, tables=tables)

    def emulate(seed: int) -> tuple[skybraid.Results, float]:
        for _ in range(_TRIES):
            begin_ns = time.monotonic_ns()
            results = skybraid.emulate(file, seed=seed, tables=tables)
            if not (results.flights[0].emulation or {}).get("doubtful"):
                return results, 0.0
            end_ns = time.monotonic_ns()
        return results, stalls.between_ms(begin_ns, end_ns) * 1e6 / (end_ns - begin_ns)

    simulated = [simulate(seed) for seed in seeds]
    with Stalls() as stalls, ThreadPoolExecutor(parallel) as pool:
        emulated, stood = zip(*pool.map(emulate, seeds), strict=True)
    times = [[times_ms(results) for results in side] for side in (simulated, emulated)]
    both = [np.concatenate(side) for side in times]
    percentiles = [np.median([np.quantile(seed, PERCENTILES) for seed in side], axis=0) for side in times]
    return Agreement(
        case,
        [results.flows["data"].goodput_bps / 1e6 for results in simulated],
        [results.flows["data"].goodput_bps / 1e6 for results in emulated],
        float(ks_2samp(both[0], both[1]).statistic),
        float(wasserstein_distance(both[0], both[1]) / np.median(both[0])),
        (percentiles[0], percentiles[1]),
        max(stood),
    )


def line(found: Agreement) -> str:
    """Formats a line of the table."""
    simulated, emulated = (statistics.median(side) for side in (found.simulated_mbps, found.emulated_mbps))
    verdict = "holds" if found.holds else "DOES NOT HOLD"
    if found.stood > STOOD:
        verdict += f"; the machine stood still for {found.stood:.0%} of the time"
    times = " ".join(f"{value:7.1f}" for pair in zip(*found.times_ms, strict=True) for value in pair)
    return (
        f"{found.case.name:24} {simulated:8.2f} {emulated:8.2f} {found.ratio:6.3f} ±{found.case.within:.2f} "
        f"{found.distance:6.3f} {found.apart:6.1%} {times}  {verdict}"
    )


HEADING = f"{'case':24} {'sim':>8} {'kernel':>8} {'ratio':>6} {'':5} {'KS':>6} {'apart':>6} " + " ".join(
    f"{side:>7}" for percentile in ("p50", "p95", "p99") for side in (percentile, "kernel")
)
"""Above the lines: goodputs in Mbit/s, their ratio and its bound, distances, percentiles of the times in ms."""


def tell(text: str) -> None:
    """Prints a line and flushes it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Prints one line per case. Exit code: 0 all hold, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--parallel", type=int, default=3, help="emulations at once")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    options = parser.parse_args()
    tell(HEADING)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            if options.only in case.name:
                found = agreement(case, range(1, options.seeds + 1), Path(folder), options.parallel)
                tell(line(found))
                failed += not found.holds
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

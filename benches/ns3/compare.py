"""Skybraid and ns-3 over the same chains of links: goodput, and packet-hops per second on one core.

`compare.py speed` takes ten minutes, `compare.py goodput` half an hour on two cores; without a word both run.
Without ns-3 nothing is compared. docs/peers.md says what the figures mean.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import skybraid
from skybraid.model.statistics import median_interval

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "target" / "ns3"
MODULES = ("applications", "internet", "point-to-point", "network", "core")
MISSING = "ns-3 is not installed: nothing is compared. On Debian 12: apt-get install g++ libns3-dev"
MIN_RATIO = 30


@dataclass(frozen=True)
class Case:
    """A scenario with its settings, and the equivalent arguments of geo.cc."""

    name: str
    file: str
    flow: str
    settings: tuple[tuple[str, str], ...]
    ns3: tuple[str, ...]

    @classmethod
    def tcp(cls, name: str, congestion: str, ns3: str) -> Self:
        """Returns a bulk transfer over the geostationary hop with a congestion control."""
        settings = (("flow.bulk.transport.congestion", f'"{congestion}"'),)
        return cls(name, "geo.toml", "bulk", settings, (f"--transport={ns3}",))

    @classmethod
    def udp(cls, name: str, hops: int) -> Self:
        """Returns datagrams at a constant rate over `hops` hops."""
        ns3 = ("--transport=udp", f"--hops={hops}", "--rate=30Mbps", "--delay=50ms", "--loss=0", "--duration=1800")
        return cls(name, f"udp-{hops}.toml", "video", (), ns3)


CASES = (
    Case.udp("UDP, one hop", 1),
    Case.udp("UDP, three hops", 3),
    Case.tcp("TCP New Reno", "reno", "newreno"),
    Case.tcp("TCP CUBIC", "cubic", "cubic"),
    Case.tcp("TCP Westwood+", "westwood_plus", "westwood_plus"),
    Case.tcp("TCP BBR", "bbr", "bbr"),
)


def build() -> Path | None:
    """Builds geo.cc; returns the program, or None without ns-3."""
    compiler = shutil.which("g++")
    probe = [str(compiler), "-fsyntax-only", "-include", "ns3/core-module.h", "-x", "c++", os.devnull]
    if compiler is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        return None
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / "geo"
    libraries = [f"-lns3-{module}" for module in MODULES]
    options = ["-O3", "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, str(HERE / "geo.cc"), "-o", str(program), *libraries], check=True)
    return program


def pin() -> None:
    """Pins this process and its future children to one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def ns3_run(program: Path, case: Case, seed: int) -> dict[str, float]:
    """Returns goodput, packet-hops and processor time of one run of ns-3."""
    command = [str(program), *case.ns3, f"--RngRun={seed}"]
    done = subprocess.run(command, capture_output=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def skybraid_speed(case: Case) -> float:
    """Returns packet-hops per second of processor time of one run."""
    scenario = skybraid.Scenario.load(HERE / case.file, case.settings)
    begun = time.process_time()
    results = skybraid.run(scenario, tables=())
    return results.packet_hops / (time.process_time() - begun)


def speed(program: Path, rounds: int) -> bool:
    """Prints the best rates of both simulators; returns whether a ratio is below its target."""
    pin()
    ours = dict.fromkeys(CASES, 0.0)
    theirs = dict.fromkeys(CASES, 0.0)
    for _ in range(rounds):
        for case in CASES:
            ours[case] = max(ours[case], skybraid_speed(case))
            found = ns3_run(program, case, 1)
            theirs[case] = max(theirs[case], found["packet_hops"] / found["cpu_s"])
    print(f"{'packet-hops/s of one core':<28} {'skybraid':>12} {'ns-3':>12} {'ratio':>8} {'target':>8}")
    for case in CASES:
        ratio = ours[case] / theirs[case]
        print(f"{case.name:<28} {ours[case]:>12.0f} {theirs[case]:>12.0f} {ratio:>8.1f} {MIN_RATIO:>8}")
    return any(ours[case] < MIN_RATIO * theirs[case] for case in CASES)


def goodput(program: Path, seeds: int) -> None:
    """Prints the median goodput of both simulators with intervals, and whether they overlap."""
    numbers = range(1, seeds + 1)
    print(f"{'goodput, Mbit/s':<28} {'skybraid':>24} {'ns-3':>24}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for case in CASES:
            of = numbers if case.file == "geo.toml" else numbers[:1]
            scenario = skybraid.Scenario.load(HERE / case.file, case.settings)
            flights = skybraid.run(scenario, seeds=of).flights
            ours = [flight.flows[case.flow].goodput_bps / 1e6 for flight in flights]
            theirs = [
                found["goodput_mbps"] for found in pool.map(lambda seed, case=case: ns3_run(program, case, seed), of)
            ]
            print(f"{case.name:<28} {formatted(ours):>24} {formatted(theirs):>24}  {verdict(ours, theirs)}")


def formatted(values: list[float]) -> str:
    """Formats the median, and its interval if there are enough values."""
    interval = median_interval(values)
    median = f"{statistics.median(values):.3f}"
    return median if interval is None else f"{median} [{interval.low:.3f}, {interval.high:.3f}]"


def verdict(ours: list[float], theirs: list[float]) -> str:
    """Formats whether the intervals of two medians overlap; empty without intervals."""
    left, right = median_interval(ours), median_interval(theirs)
    if left is None or right is None:
        return ""
    return "overlap" if left.low <= right.high and right.low <= left.high else "apart"


def main(arguments: Iterable[str] | None = None) -> int:
    """Prints the requested comparisons; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["speed", "goodput", []], help="both by default")
    parser.add_argument("--rounds", type=int, default=3, help="of which the best counts for speed")
    parser.add_argument("--seeds", type=int, default=20, help="runs for goodput")
    asked = parser.parse_args(arguments)
    program = build()
    if program is None:
        print(MISSING)
        return 0
    what = asked.what or ["goodput", "speed"]
    if "goodput" in what:
        goodput(program, asked.seeds)
    return int("speed" in what and speed(program, asked.rounds))


if __name__ == "__main__":
    sys.exit(main())

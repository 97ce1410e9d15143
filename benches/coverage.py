"""Coverage of 95 % intervals over links whose true values are known.

    .venv/bin/python benches/coverage.py --write    # the table of docs/statistics.md; a quarter of an hour on 2 cores
    .venv/bin/python benches/coverage.py --quick    # 200 repetitions in place of 1,000, in five minutes

Each line is a link, a share (or percentile, or goodput) that is known beforehand, and a number of runs of a length;
each repetition has seeds of its own. Sets of 100 runs are drawn from the 10,000 runs of the sets of ten. `few` is the
part of the repetitions that saw fewer than five episodes: there 88 % are asked for, elsewhere 93 to 98 %. A median of
twenty steps may be held in up to 99 %: their number is whole, and the next smaller interval holds it in 95.9 %. Flights
of families have their truth from 10,000 other flights. Families and links with rare events have no upper bound: their
intervals reach from what was seen to what other runs make likely. Exits with 1 where a line misses that.
"""

import argparse
import functools
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from skybraid.execute.runs import simulation
from skybraid.model.episodes import FEW, Exposures, KnownRun, RunShare, share_interval
from skybraid.model.requirements import judge
from skybraid.model.scenario import Scenario

PAGE = Path(__file__).parents[1] / "docs" / "statistics.md"
BEGIN, END = "<!-- coverage -->", "<!-- end of coverage -->"

RATE = 10
"""Messages a second."""

FAMILY_FLIGHTS = 10_000
"""Flights that have the truth of a family."""

FAMILY_SEED = 1_000_000
"""Seed of the first of them."""

SERVICE_MS = 153 * 8 / 10e6 * 1e3
"""What a message of 125 bytes with its headers takes to send at 10 Mbit/s."""


@dataclass(frozen=True, slots=True)
class Case:
    """A link with a known truth.

    Attributes:
        name: in words.
        link: its keys.
        outages: its table `[[outages]]`, or nothing.
        metric: "share", "percentile" or "goodput".
        truth: share from 0 to 1, delay in ms, or bit/s.
        deadline_ms: by which a message has to arrive; of a percentile anything.
        target: the quantile of a percentile.
        minutes: of the runs.
        families: presets of which each run draws a flight, one path each, in place of `link`.
        scheduler: of the paths.
    """

    name: str
    link: str
    outages: str
    metric: str
    truth: float
    deadline_ms: float = 300.0
    target: float = 0.5
    minutes: tuple[int, ...] = (5, 30)
    families: tuple[str, ...] = ()
    scheduler: str = "single"

    def paths(self) -> str:
        """Paths of the scenario, as TOML."""
        if self.families:
            return "\n".join(
                f'[path.{name}]\npreset = "{preset}"' for name, preset in zip("ab", self.families, strict=False)
            )
        delay = "" if "delay =" in self.link else 'delay = "20ms"'
        return f'[path.a]\nrate = "10Mbit/s"\n{delay}\n{self.link}'

    def scenario(self, minutes: float) -> Scenario:
        """Returns the scenario for runs of `minutes`."""
        asked = {
            "share": f'deadline = "{self.deadline_ms}ms", share = "50%"',
            "percentile": f'delay = "{self.deadline_ms}ms", percentile = "{100 * self.target}%"',
            "goodput": 'goodput = "1bit/s"',
        }[self.metric]
        outages = f'[[outages]]\npaths = ["a"]\n{self.outages}' if self.outages else ""
        return Scenario(
            f"""
duration = "{60 * minutes:g}s"
{self.paths()}
[flow.control]
from = "ground"
traffic = {{ kind = "cbr", rate = "{RATE}kbit/s", packet = "125B" }}
transport = {{ protocol = "udp", scheduler = "{self.scheduler}" }}
require = {{ {asked} }}
{outages}
""",
            str(PAGE.parent / "coverage.toml"),
        )


def cases() -> Iterator[Case]:
    """Returns all cases."""
    shares = (0.9, 0.99, 0.999, 0.9999, 0.99999)
    for share in shares:
        yield Case(
            f"independent loss, {100 * share:g} %",
            f'loss = {{ uniform = "{100 * (1 - share):g}%" }}',
            "",
            "share",
            share,
        )
    for down_s in (0.1, 1, 30):
        for share in shares:
            up_s = down_s * share / (1 - share)
            table = f'up = "{up_s:.6f}s"\ndown = {{ mean = "{down_s}s" }}'
            yield Case(f"outages of {down_s:g} s, {100 * share:g} %", "", table, "share", share)
    steps = 'reconfiguration = { every = "15s", delay_step = { min = "0ms", max = "100ms" } }'
    for share in shares:
        yield Case(f"steps every 15 s, {100 * share:g} %", steps, "", "share", share, 20 + SERVICE_MS + 100 * share)
    for name, file, deadline_ms, length_s in (
        ("Starlink at sea, 8 h", "starlink_fjordlink/vessel_8h.csv", 25.0, 28980),
        ("LTE from a car, 28 min", "lte_drive_pam2025/verizon.csv", 80.0, 1678),
    ):
        trace = f'trace = "../traces/{file}", column = "delay [ms]", unit = "ms", repeat = true'
        whole = Case(name, f'delay = {{ {trace}, start = "0s" }}', "", "share", 0.0, deadline_ms)
        (seen,) = fly(whole, length_s / 60, range(1))
        link = f'delay = {{ {trace}, start = "random" }}'
        # A run of the whole measurement has nothing left to learn of it.
        minutes = tuple(length_min for length_min in (5, 30) if 120 * length_min < length_s)
        yield Case(f"{name}, {100 * seen.value:.3g} %", link, "", "share", seen.value, deadline_ms, minutes=minutes)
    for families, scheduler in (
        (("lte-drone-rural",), "single"),
        (("starlink-car",), "single"),
        (("5g-road",), "single"),
        (("lte-drone-rural", "starlink-car"), "low_rtt"),
        (("lte-drone-rural", "starlink-car"), "early_warning"),
        (("lte-drone-rural", "starlink-car"), "redundant"),
    ):
        family = Case("", "", "", "share", 0.0, minutes=(5,), families=families, scheduler=scheduler)
        truth = float(
            np.mean([seen.value for seen in fly(family, 5, range(FAMILY_SEED, FAMILY_SEED + FAMILY_FLIGHTS))])
        )
        yield replace(family, name=f"{' and '.join(families)}, {scheduler}, {100 * truth:.4g} %", truth=truth)
    for quantile in (0.5, 0.95):
        truth = 20 + SERVICE_MS + 100 * quantile
        yield Case(f"steps every 15 s, delay of {100 * quantile:g} %", steps, "", "percentile", truth, truth, quantile)
    for down_s in (1, 30):
        table = f'up = "{9 * down_s}s"\ndown = {{ mean = "{down_s}s" }}'
        yield Case(f"outages of {down_s:g} s, goodput", "", table, "goodput", 0.9 * RATE * 1000)


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: its own interval, and its evidence for sets of runs."""

    low: float
    high: float
    episodes: int
    share: RunShare | None
    value: float


def fly(case: Case, minutes: float, seeds: range) -> list[Seen]:
    """Runs a case with each seed."""
    scenario = case.scenario(minutes)
    links = scenario.native.known_links()
    make = simulation(scenario).make
    found = []
    for seed in seeds:
        run, _ = make(seed, [], lambda _: True, None, None)
        (stats,) = run.group_stats()
        share = None
        if case.metric == "share":
            known = KnownRun(links, stats.flow, seed)
            share = RunShare.of_bins(*stats.met_over_time(case.deadline_ms), known, case.deadline_ms)
            seen = share_interval([share])
            found.append(Seen(*seen.interval, seen.episodes, share, seen.estimate))
            continue
        (required,) = scenario.requirements
        judged = judge(required, [stats], stats, links, [seed])
        low = -np.inf if judged.low is None else judged.low
        high = np.inf if judged.high is None else judged.high
        found.append(Seen(low, high, FEW if judged.episodes is None else judged.episodes, None, judged.estimate or 0.0))
    return found


def line(case: Case, what: str, ends: list[tuple[float, float, int]], *, is_probed: bool) -> tuple[str, bool]:
    """Returns a row of the table, and whether its coverage is in the required range."""
    tolerance = 1e-9 + (2e-3 * case.truth if case.metric == "percentile" else 0.0)
    holds = [low - tolerance <= case.truth <= high + tolerance for low, high, _ in ends]
    few = np.mean([episodes < FEW for *_, episodes in ends])
    covered = float(np.mean(holds))
    noise = 2 * np.sqrt(0.95 * 0.05 / len(ends))
    low = 0.88 if few > 0.5 else 0.93 - (0.05 * few)
    twenty_steps = case.metric == "percentile" and what == "1 run of 5 min"
    high = 1.0 if few > 0.1 or is_probed else 0.99 if twenty_steps else 0.98
    good = low - (noise if len(ends) < 1000 else 0) <= covered <= high + (noise if len(ends) < 1000 else 0)
    width = float(np.median([high - low for low, high, _ in ends]))
    shown = f"{width / (1 - case.truth):.2g} p" if case.metric == "share" else f"{width / case.truth:.2g} of it"
    return f"| {case.name} | {what} | {100 * covered:.1f} % | {100 * few:.0f} % | {shown} |", bool(good)


def rows(case: Case, repetitions: int) -> list[tuple[str, bool]]:
    """Returns the rows of a case."""
    single = {
        minutes: fly(case, minutes, range(repetitions * (10 if case.metric == "share" and minutes == 5 else 1)))
        for minutes in case.minutes
    }
    found = [
        line(
            case,
            f"1 run of {minutes} min",
            [(one.low, one.high, one.episodes) for one in seen[:repetitions]],
            is_probed=any(one.share is not None and one.share.exposures != Exposures() for one in seen),
        )
        for minutes, seen in single.items()
    ]
    shares = [one.share for one in single[5] if one.share is not None]
    if shares:
        chance = np.random.default_rng(1)
        tens = [shares[first : first + 10] for first in range(0, len(shares), 10)]
        hundreds = [
            [shares[place] for place in chance.choice(len(shares), 100, replace=False)] for _ in range(repetitions)
        ]
        for what, sets in (("10 runs of 5 min", tens), ("100 runs of 5 min", hundreds)):
            seen = [share_interval(runs) for runs in sets]
            is_probed = any(share.exposures != Exposures() for share in shares)
            found.append(line(case, what, [(*one.interval, one.episodes) for one in seen], is_probed=is_probed))
    return found


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="200 repetitions in place of 1,000")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--write", action="store_true", help="put the table into docs/statistics.md")
    chosen = parser.parse_args()
    wanted = [case for case in cases() if chosen.only in case.name]
    lines = ["| link and truth | runs | contained | few | median width |", "|---|---|---|---|---|"]
    print(*lines, sep="\n")
    missed = 0
    with ProcessPoolExecutor() as pool:
        for found in pool.map(functools.partial(rows, repetitions=200 if chosen.quick else 1000), wanted):
            for text, good in found:
                print(text if good else f"{text} ←", flush=True)
                lines.append(text)
                missed += not good
    if chosen.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text("\n".join([before + BEGIN, *lines, END + after]), encoding="utf-8")
    print(f"{missed} lines are outside the bounds." if missed else "Every line is within the bounds.", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

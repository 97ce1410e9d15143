"""Runs of a scenario: one, or one per seed on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid import _core
from skybraid.execute.pool import Gauge, Progress, Report, on_all_cores
from skybraid.model import algorithms
from skybraid.model import tables as table_files
from skybraid.model.errors import ResultError, ScenarioError, unknown
from skybraid.model.folder import new_folder
from skybraid.model.provenance import MAX_RUNS, essence, provenance, replay_command, seeds_from, utc_now
from skybraid.model.requirements import Requirement, judge, members_of
from skybraid.model.results import Results, write_table
from skybraid.model.scenario import Scenario
from skybraid.model.seeds import distinct, sampled
from skybraid.model.summary import Flight, one_run, over_runs, pooled
from skybraid.video.flows import with_clips

if TYPE_CHECKING:
    import os

    from skybraid._core import FlowStats, KnownLinks, Run

PCAP = "pcap"
"""Folder of the packet captures inside a result."""

MakeRun = Callable[[int, list[str], Report, "Path | None", "Path | None"], "tuple[Run, dict[str, Any] | None]"]
"""Makes a finished run, and what an emulation has to say of itself, from a seed, the tables to keep, what the run tells
its time to, the folder that becomes the result, and a folder for captures."""


SoFar = Callable[[], "Results | None"]
"""Judges the runs that have ended so far; None before one has."""


@dataclass(frozen=True, slots=True)
class Driver:
    """Maker of a scenario's runs.

    Attributes:
        name: "simulation" or "emulation".
        make: makes one.
        duration_s: simulated duration of a run, in s.
        command: the command of the command line that does the same.
        options: further words of that command line.
        keeps: whether a run that is stopped early returns what it has seen so far; others return nothing.
    """

    name: str
    make: MakeRun
    duration_s: float
    command: str = "run"
    options: tuple[str, ...] = ()
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Selection of the tables that are kept of runs.

    Attributes:
        tables: names; None for the default of one run or of several.
        out: folder of the result; None keeps it in memory.
        pcap: also packet captures, below `out`.
    """

    tables: Sequence[str] | None = None
    out: Path | None = None
    pcap: bool = False


def simulation(scenario: Scenario) -> Driver:
    """The simulator: as fast as the machine allows, the same each time."""
    chosen = with_clips(scenario)

    def make(
        seed: int, tables: list[str], report: Report, _folder: Path | None, captures: Path | None
    ) -> tuple[Run, None]:
        with algorithms.refusing_exit("during the run"):
            native = chosen.run(
                seed,
                tables,
                report,
                None if captures is None else str(captures),
                algorithms.registered(algorithms.SCHEDULERS),
                algorithms.registered(algorithms.CONGESTION),
            )
        return native, None

    return Driver("simulation", make, scenario.duration_s)


def run(
    scenario: Scenario | str | os.PathLike[str],
    *,
    seed: int | None = None,
    seeds: Iterable[int] | str | None = None,
    tables: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    pcap: bool = False,
    progress: Progress | None = None,
    watch: Callable[[SoFar], None] | None = None,
) -> Results:
    """Simulates a scenario and judges it.

    Args:
        scenario: a `Scenario`, or the path of its file.
        seed: root of the random streams; the scenario's own if neither this nor `seeds` is given.
        seeds: several seeds, each run once, on all cores; their trials are judged together. Numbers, or a text as on
            the command line: "1..100" or "3,5,8". Traces begin at a place drawn from the seed unless the scenario says
            where; where no seed changes anything, only the first is run.
        tables: which of messages, subflows, links, decisions, packets, frames to keep; by default the first three of a
            single run, with frames where there is video, and none of several. An empty sequence keeps nothing but the
            summary, in little memory.
        out: folder to write the result into, row by row; None keeps it in memory.
        pcap: also write packet captures; needs `out`.
        progress: receives the share that is done.
        watch: of several seeds, given a function before the first run, which judges the runs that have ended so far
            and may be called from any thread; None before one has.

    Raises:
        ScenarioError: the scenario is not correct, or `seed`, `seeds` or `tables` are not, or it names an algorithm
            of one's own that is not registered.
        ResultError: `out` holds something already or cannot be written; no trace of the attempt is left.
        KeyboardInterrupt: Ctrl-C; no trace of the attempt is left.
        Exception: what an algorithm of one's own raised, as it is; no trace of the attempt is left.
    """
    chosen = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    numbers = seeds_of(chosen, seed, seeds)
    if pcap and out is None:
        raise ResultError("pcap: found no result folder, expected `out` to put the captures into")
    notices: tuple[str, ...] = ()
    if len(numbers) > 1:
        chosen, about_traces = sampled(chosen)
        numbers, about_seeds = distinct(chosen, numbers)
        notices = (*about_traces, *about_seeds)
    keep = Keep(tables, None if out is None else Path(out), pcap)
    return run_all(chosen, simulation(chosen), numbers, keep, progress, notices=notices, watch=watch)


def run_all(
    scenario: Scenario,
    driver: Driver,
    seeds: list[int],
    keep: Keep,
    progress: Progress | None = None,
    *,
    notices: tuple[str, ...] = (),
    watch: Callable[[SoFar], None] | None = None,
) -> Results:
    """Makes the runs, judges them, and puts them into a folder if one is named; what `run` and `emulate` share.

    Raises:
        ScenarioError: there is no such table.
        ResultError: `keep.out` holds something already or cannot be written; no trace of the attempt is left.
        KeyboardInterrupt: Ctrl-C, where the driver keeps nothing then; no trace of the attempt is left.
    """
    tables = _tables(keep.tables, several=len(seeds) > 1, video=bool(scenario.native.videos()))
    if keep.out is None:
        return _run_all(scenario, driver, seeds, Keep(tables), progress, notices=notices, watch=watch)
    with new_folder(keep.out) as aside:
        kept = Keep(tables, aside, keep.pcap)
        results = _run_all(scenario, driver, seeds, kept, progress, notices=notices, watch=watch)
        results.write_summary(aside, parquet=keep.tables is None or len(tables) > 0)
    return Results.open(keep.out)


@dataclass(slots=True)
class _Finished:
    """A finished run: its summary's ingredients, and the run itself where it still holds tables."""

    seed: int
    simulated_s: float
    wall_s: float
    packet_hops: int
    flows: list[FlowStats]
    members: list[FlowStats]
    links: list[dict[str, Any]]
    emulation: dict[str, Any] | None
    holder: Run | None


def _run_all(
    scenario: Scenario,
    driver: Driver,
    seeds: list[int],
    keep: Keep,
    progress: Progress | None,
    *,
    notices: tuple[str, ...],
    watch: Callable[[SoFar], None] | None,
) -> Results:
    """Makes the runs and judges them; `keep` names its tables."""
    tables, folder = list(keep.tables or ()), keep.out
    started, clock = utc_now(), time.perf_counter()
    bugs_before, _ = _core.bugs()
    several = len(seeds) > 1
    core = essence(scenario, seeds, driver.name)
    gauge = Gauge(len(seeds), driver.duration_s, keeps=driver.keeps)
    replay = replay_command(scenario, seeds, driver.command, driver.options)
    ended: list[_Finished] = []

    def run_seed(seed: int) -> _Finished:
        gauge.go_on()
        label = seed if several else None
        captures = _captures(folder, label) if keep.pcap and folder is not None else None
        native, emulation = driver.make(seed, tables, gauge.reporter(seed), folder, captures)
        if folder is not None:
            for table in tables:
                batches = table_files.frames(native, table, label, gauge.go_on)
                write_table(folder, table, label, batches, core)
        finished = _Finished(
            native.seed,
            native.simulated_s,
            native.wall_s,
            native.packet_hops,
            native.group_stats(),
            [stats for stats in native.flow_stats() if stats.flow != stats.group],
            native.link_stats(),
            None if emulation is None else emulation | {"interrupted": gauge.landing},
            native if folder is None and tables else None,
        )
        ended.append(finished)
        return finished

    def so_far() -> Results | None:
        runs = list(ended)
        took_s = time.perf_counter() - clock
        return _judge(scenario, runs, provenance(core, replay, started, took_s)) if runs else None

    if watch is not None and several:
        watch(so_far)
    runs = on_all_cores(run_seed, seeds, gauge, progress)
    wall_s = time.perf_counter() - clock if several else runs[0].wall_s
    notices = (*notices, *_about_bugs(bugs_before))
    origin = provenance(core, replay, started, wall_s) | ({"notices": list(notices)} if notices else {})
    results = _judge(scenario, runs, origin)
    for one in runs:
        if one.holder is not None:
            for table in tables:
                results.tables.add_run(table, one.holder, one.seed if several else None)
    return results


def _about_bugs(before: int) -> list[str]:
    """Notice about invariants of the engine that broke since there were `before`."""
    bugs, first = _core.bugs()
    if bugs == before:
        return []
    found = f"{bugs - before} broken invariants in Skybraid, first at {first}"
    return [f"{found}: the result may be wrong; please report it"]


def _captures(folder: Path, seed: int | None) -> Path:
    captures = folder / PCAP if seed is None else folder / PCAP / f"seed-{seed}"
    captures.mkdir(parents=True)
    return captures


def _judge(scenario: Scenario, runs: list[_Finished], origin: dict[str, Any]) -> Results:
    by_flow = _over_runs([one.flows for one in runs])
    by_member = _over_runs([one.members for one in runs])
    links, seeds = scenario.native.known_links(), [one.seed for one in runs]
    # Programs of one's own are carried in place of the flows.
    judged = [requirement for requirement in scenario.requirements if requirement["flow"] in by_flow]
    flights = tuple(
        Flight(
            one.seed,
            one.simulated_s,
            one.packet_hops,
            {stats.flow: one_run(stats) for stats in one.flows},
            tuple(
                _judged(
                    requirement,
                    {stats.flow: [stats] for stats in one.flows},
                    {member.flow: [member] for member in one.members},
                    links,
                    [one.seed],
                )
                for requirement in judged
            ),
            one.links,
            one.emulation,
            {stats.flow: one_run(stats) for stats in one.members},
        )
        for one in runs
    )
    return Results(
        name=scenario.name,
        scenario=scenario.toml(),
        requirements=tuple(_judged(requirement, by_flow, by_member, links, seeds) for requirement in judged),
        flows={name: over_runs(stats) for name, stats in by_flow.items()},
        flights=flights,
        provenance=origin,
    )


def _over_runs(runs: list[list[FlowStats]]) -> dict[str, list[FlowStats]]:
    return {stats.flow: [run[index] for run in runs] for index, stats in enumerate(runs[0])}


def _judged(
    requirement: dict[str, Any],
    by_flow: dict[str, list[FlowStats]],
    by_member: dict[str, list[FlowStats]],
    links: KnownLinks,
    seeds: list[int],
) -> Requirement:
    """A requirement judged over all runs: of the flow, and of each flow that it stands for."""

    def judged(runs: list[FlowStats]) -> Requirement:
        return judge(requirement, runs, pooled(runs), links, seeds)

    together = judged(by_flow[requirement["flow"]])
    single = [(name, judged(runs)) for name, runs in by_member.items() if runs[0].group == requirement["flow"]]
    return replace(together, members=members_of(single)) if single else together


def seeds_of(scenario: Scenario, seed: int | None, seeds: Iterable[int] | str | None) -> list[int]:
    """The seeds to run: those that are given, or the scenario's own.

    Raises:
        ScenarioError: both are given, one twice, none, one that is no seed, or too many.
    """
    if seed is not None and seeds is not None:
        raise ScenarioError("seed, seeds: found both, expected one of them")
    if seeds is not None:
        return seeds_from(seeds, "seeds", MAX_RUNS)
    return seeds_from([scenario.seed if seed is None else seed], "seed")


def _tables(tables: Sequence[str] | None, *, several: bool, video: bool) -> list[str]:
    if tables is None:
        return [] if several else [*table_files.SAMPLED, *(table_files.OF_VIDEO if video else ())]
    if isinstance(tables, str):
        raise ScenarioError(f"tables: found the text {tables!r}, expected a list of names")
    for table in tables:
        if table not in table_files.ALL:
            raise ScenarioError(unknown("tables", table, table_files.ALL, several=True))
    return list(dict.fromkeys(tables))

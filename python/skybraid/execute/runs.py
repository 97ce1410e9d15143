"""Runs of a scenario: one, or one per seed on all cores."""

from __future__ import annotations

import os
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
    """Executes a scenario's runs.

    Attributes:
        name: "simulation" or "emulation".
        make: executes one run.
        duration_s: simulated duration of a run in s.
        command: the equivalent command of the command line.
        options: further words of that command line.
        keeps: whether a run that is stopped early returns its results so far; other runs return nothing.
    """

    name: str
    make: MakeRun
    duration_s: float
    command: str = "run"
    options: tuple[str, ...] = ()
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Selection of the tables to keep.

    Attributes:
        tables: names of tables; None for the default, which depends on the number of runs.
        out: folder of the result; None keeps it in memory.
        pcap: also write packet captures below `out`.
    """

    tables: Sequence[str] | None = None
    out: Path | None = None
    pcap: bool = False


def simulation(scenario: Scenario) -> Driver:
    """Returns the simulator: virtual time, with equal results for equal seeds."""
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
        seed: root of the random streams; by default the scenario's, unless `seeds` is given.
        seeds: several seeds, each run once, on all cores; their trials are judged together. Numbers, or a text as on
            the command line: "1..100" or "3,5,8". Traces begin at a place drawn from the seed, unless the scenario
            defines it. If seeds have no effect, only the first is run.
        tables: tables to keep: messages, subflows, links, decisions, packets, frames. By default, a single run keeps
            the first three, and frames if there is video; several runs keep none. An empty sequence keeps only the
            summary, in little memory.
        out: folder to write the result into, row by row; None keeps it in memory.
        pcap: also write packet captures; needs `out`.
        progress: receives the completed share.
        watch: called before the first of several runs with a function that judges the runs so far. That function may be
            called from any thread and returns None until a run has ended.

    Raises:
        ScenarioError: the scenario, `seed`, `seeds` or `tables` is invalid, or a user-defined algorithm is not
            registered.
        ResultError: `out` is not empty or cannot be written; nothing is left behind.
        KeyboardInterrupt: Ctrl-C; nothing is left behind.
        Exception: an exception of a user-defined algorithm; nothing is left behind.
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
    """Executes and judges runs, and writes them into a folder if one is given; used by `run` and `emulate`.

    Raises:
        ScenarioError: there is no such table.
        ResultError: `keep.out` is not empty or cannot be written; nothing is left behind.
        KeyboardInterrupt: Ctrl-C, unless the driver keeps results so far; nothing is left behind.
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
    """A finished run: the parts of its summary, and the run itself while it holds tables."""

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
    """Executes the runs and judges them."""
    tables, folder = list(keep.tables or ()), keep.out
    started, clock = utc_now(), time.perf_counter()
    bugs_before, _ = _core.bugs()
    several = len(seeds) > 1
    core = essence(scenario, seeds, driver.name)
    gauge = Gauge(len(seeds), driver.duration_s, keeps=driver.keeps)
    replay = replay_command(scenario, seeds, driver.command, driver.options)
    ended: list[_Finished] = []

    def run_seed(seed: int) -> _Finished:
        gauge.raise_if_stopped()
        label = seed if several else None
        captures = _captures(folder, label) if keep.pcap and folder is not None else None
        native, emulation = driver.make(seed, tables, gauge.reporter(seed), folder, captures)
        if folder is not None:
            for table in tables:
                batches = table_files.frames(native, table, label, gauge.raise_if_stopped)
                write_table(folder, table, label, batches, core)
        finished = _Finished(
            native.seed,
            native.simulated_s,
            native.wall_s,
            native.packet_hops,
            native.group_stats(),
            [stats for stats in native.flow_stats() if stats.flow != stats.group],
            native.link_stats(),
            None if emulation is None else emulation | {"interrupted": gauge.ends_early},
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
    """Returns a notice on invariants of the engine that were broken since the count was `before`."""
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
    """Returns a requirement judged over all runs, for the flow and for each member of its group."""

    def judged(runs: list[FlowStats]) -> Requirement:
        return judge(requirement, runs, pooled(runs), links, seeds)

    together = judged(by_flow[requirement["flow"]])
    single = [(name, judged(runs)) for name, runs in by_member.items() if runs[0].group == requirement["flow"]]
    return replace(together, members=members_of(single)) if single else together


def seeds_of(scenario: Scenario, seed: int | None, seeds: Iterable[int] | str | None) -> list[int]:
    """Returns the seeds to run; the scenario's by default.

    Raises:
        ScenarioError: both `seed` and `seeds` are given, or there are none, too many, equal or invalid seeds.
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

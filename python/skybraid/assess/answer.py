"""Ranks every sensible transport over measured flights, and lists the measurements that are missing."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from skybraid.assess.candidates import Candidate, candidates
from skybraid.assess.judging import Judged, Seen, judge_link_passes, judge_passes
from skybraid.execute.compare import name_of_equals
from skybraid.execute.pool import Gauge, on_all_cores
from skybraid.execute.runs import simulation
from skybraid.model.episodes import RunShare
from skybraid.model.errors import ScenarioError
from skybraid.model.formatting import about, percent
from skybraid.model.link_performance import SHARES, Slots, share_of
from skybraid.model.scenario import Scenario
from skybraid.model.statistics import Verdict
from skybraid.traces.flights import DIRECTIONS
from skybraid.traces.replay import DELAY_MS, RATE_MBPS, path_lines, write_flight

if TYPE_CHECKING:
    from skybraid._core import FlowStats
    from skybraid.assess.networks import Network
    from skybraid.assess.wanted import Wanted

FIRST_S = 120.0
"""Part of each flight in s that the first ranking replays."""

FINALISTS = 4
"""Transports of each flow that are run over all measurements."""

SIEVED = 40
"""Transports of each flow that are kept after a first look of `LOOK_S`."""

LOOK_S = 20.0
"""Seconds of one flight, simulated to choose `SIEVED` transports of each flow and to estimate the cost of a run.

With less than `BUDGET_S` of computing time it is shortened in proportion.
"""

BUDGET_S = 40.0
"""Computing time in s that the runs may take by default."""

_FIRST_JOURNEYS = 4
_PASSES = 2
_FIRST_PART = 0.3
"""Share of the computing time that the first ranking may take."""


@dataclass(frozen=True)
class Row:
    """Transports of a flow with identical results.

    Attributes:
        names: names of the transports.
        networks: names of the networks in use.
        judged: judgement over all measurements, or over their first part.
        delay_p50_ms: median one-way delay; median over the runs.
        delay_p99_ms: 99th percentile of the one-way delay; median over the runs.
        is_final: whether all measurements were replayed.
    """

    names: tuple[str, ...]
    networks: tuple[str, ...]
    judged: Judged
    delay_p50_ms: float
    delay_p99_ms: float
    is_final: bool

    @property
    def name(self) -> str:
        """Names of the transports in one: both of two, else the first and their number."""
        return name_of_equals(self.names)

    @property
    def verdict(self) -> Verdict:
        """Verdict; inconclusive if only a part of the measurements was replayed."""
        return self.judged.verdict if self.is_final else Verdict.INCONCLUSIVE

    @property
    def outcome(self) -> str:
        """Verdict in words, or that the transport was not in the final."""
        return str(self.verdict) if self.is_final else "not in the final"

    @property
    def reached(self) -> tuple[float, float, float]:
        """Estimate and both ends of its interval."""
        return self.judged.estimate, self.judged.low, self.judged.high


@dataclass(frozen=True)
class RankedFlow:
    """Transports of a flow, best first."""

    wanted: Wanted
    rows: tuple[Row, ...]

    @property
    def best(self) -> Row:
        """Best transport."""
        return self.rows[0]


@dataclass(frozen=True)
class Answer:
    """Ranked transports of all flows.

    Attributes:
        flows: ranked transports of each flow.
        networks: the measured networks.
        assumed: assumptions, in sentences.
        missing: measurements that would decide more, in sentences.
        wall_s: computing time in s.
    """

    flows: tuple[RankedFlow, ...]
    networks: tuple[Network, ...]
    assumed: tuple[str, ...]
    missing: tuple[str, ...]
    wall_s: float

    @property
    def verdict(self) -> Verdict:
        """Met if every flow has a transport that meets its requirement."""
        verdicts = [flow.best.verdict for flow in self.flows]
        if all(verdict is Verdict.MET for verdict in verdicts):
            return Verdict.MET
        return Verdict.NOT_MET if Verdict.NOT_MET in verdicts else Verdict.INCONCLUSIVE


@dataclass(frozen=True)
class _Job:
    """A run over one flight of each network: `candidate` for one flow, the first choice for all other flows."""

    flow: int
    candidate: Candidate
    pass_number: int
    journey: int
    duration_s: float


Choices: TypeAlias = "Sequence[Sequence[Candidate]]"
"""Transports of each flow."""

Rows: TypeAlias = dict[tuple[int, Candidate], Row]
"""Results by flow and transport."""


def assess(
    networks: Sequence[Network],
    wanted: Sequence[Wanted],
    budget_s: float = BUDGET_S,
    progress: Callable[[float], None] | None = None,
    *,
    choices: Choices | None = None,
    finalists: int = FINALISTS,
) -> Answer:
    """Runs every sensible transport of each flow over the measured flights, and ranks them.

    Args:
        networks: at least one.
        wanted: one requirement for each flow.
        budget_s: computing time in s; if all measurements take longer, a part of each is replayed.
        progress: receives the completed share.
        choices: transports of each flow; by default the sensible ones.
        finalists: number of transports of each flow that are run over all measurements.

    Raises:
        ScenarioError: there is no requirement, or a flow has two.
    """
    if not wanted or not networks:
        raise ScenarioError("assess: found nothing required; expected `--require 'FLOW: SHARE% within TIME'`")
    names = [one.flow for one in wanted]
    if len(set(names)) < len(names):
        raise ScenarioError(f"--require: found two of one flow in {', '.join(names)}; expected one of each flow")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="skybraid-assess-") as name:
        runner = _Runner(list(networks), list(wanted), Path(name), choices)
        rounds = _Rounds(runner, budget_s, progress or (lambda _: None), started)
        looked = rounds.look()
        first = rounds.rank(runner.best(looked, SIEVED))
        final, share = rounds.decide(runner.best(first, finalists))
        assumed = runner.assumed()
    flows = tuple(_ranked(one, flow, final, looked | first) for flow, one in enumerate(wanted))
    if share < 1.0:
        part = f"{percent(float(f'{share:.2g}'))} of each flight was replayed within {budget_s:.0f} s of computing"
        assumed.append(f"{part}; `--budget 10min` replays more")
    missing = _missing(flows, networks)
    return Answer(flows, tuple(networks), tuple(assumed), tuple(missing), time.perf_counter() - started)


def _ranked(wanted: Wanted, flow: int, final: Rows, before: Rows) -> RankedFlow:
    """Returns a flow's transports: those in the final first, then those of earlier rounds."""
    finals = [row for (own, _), row in final.items() if own == flow]
    others = [row for key, row in before.items() if key[0] == flow and key not in final]
    return RankedFlow(wanted, tuple(_merged(sorted(finals, key=_order) + sorted(others, key=_order))))


class _Rounds:
    """Rounds of runs: a look at every transport, a ranking of the promising ones, and the final.

    Args:
        runner: makes the runs.
        budget_s: computing time in s.
        progress: receives the completed share.
        started: start time on the clock of `time.perf_counter`.
    """

    def __init__(self, runner: _Runner, budget_s: float, progress: Callable[[float], None], started: float) -> None:
        self._runner, self._budget_s, self._progress, self._started = runner, budget_s, progress, started
        self._look_s = max(min(LOOK_S * min(budget_s / BUDGET_S, 1.0), runner.longest_s), 1.0)
        self._cost = Cost(0.0, 0.0)
        """That of the last round."""

    def look(self) -> Rows:
        """Runs every transport over a part of one flight."""
        jobs = self._runner.jobs(self._runner.choices, passes=1, journeys=1, duration_s=self._look_s)
        seen, self._cost = self._runner.run(jobs, lambda share: self._progress(0.1 * share))
        return self._runner.rows(self._runner.choices, seen, is_final=False)

    def rank(self, promising: Choices) -> Rows:
        """Runs the promising transports over a part of some flights.

        The part is as long as `_FIRST_PART` of the budget allows, and at least as long as the look.
        """
        runs = max(sum(len(every) for every in promising) * _FIRST_JOURNEYS, 1)
        affordable_s = self._cost.affordable_s(_FIRST_PART * self._budget_s, runs) / runs
        duration_s = min(FIRST_S, max(affordable_s, self._look_s), max(self._runner.longest_s, 1.0))
        jobs = self._runner.jobs(promising, passes=1, journeys=_FIRST_JOURNEYS, duration_s=duration_s)
        seen, self._cost = self._runner.run(jobs, lambda share: self._progress(0.1 + 0.2 * share))
        return self._runner.rows(promising, seen, is_final=False)

    def decide(self, finalists: Choices) -> tuple[Rows, float]:
        """Runs the finalists over all flights; also returns the share of each flight that the budget allowed."""
        longest_s, journeys = self._runner.longest_s, self._runner.max_journeys
        jobs = self._runner.jobs(finalists, passes=_PASSES, journeys=journeys, duration_s=longest_s)
        left_s = max(self._budget_s - self._took_s(), 5.0)
        affordable_s = max(self._cost.affordable_s(left_s, len(jobs)), self._look_s * len(jobs))
        share = min(1.0, affordable_s / (longest_s * len(jobs)))
        jobs = [replace(job, duration_s=longest_s * share) for job in jobs]
        seen, _ = self._runner.run(jobs, lambda done: self._progress(0.3 + 0.7 * done))
        return self._runner.rows(finalists, seen, is_final=True), share

    def _took_s(self) -> float:
        return time.perf_counter() - self._started


@dataclass(frozen=True, slots=True)
class Cost:
    """Computing time of runs, in s."""

    per_run: float
    per_simulated_s: float

    def affordable_s(self, budget_s: float, runs: int) -> float:
        """Returns the simulated time of all `runs` together that `budget_s` of computing time allows."""
        return max(budget_s - self.per_run * runs, 0.0) / max(self.per_simulated_s, 1e-9)


class _Runner:
    """Writes the flights once, builds scenarios and runs them."""

    def __init__(
        self,
        networks: list[Network],
        wanted: list[Wanted],
        folder: Path,
        choices: Choices | None,
    ) -> None:
        self._networks, self._wanted, self._folder = networks, wanted, folder
        names = [network.name for network in networks]
        sensible = [candidates(names, is_video=one.direction == "uplink") for one in wanted]
        self._safe = [every[0] for every in sensible]
        self.choices = sensible if choices is None else [list(every) for every in choices]
        self.longest_s = max(flight.length_s for network in networks for flight in network.flights)
        self.max_journeys = max(len(network.flights) for network in networks)
        for network in networks:
            for number, flight in enumerate(network.flights):
                write_flight(flight, self._file(network, number))

    def best(self, rows: Rows, count: int) -> Choices:
        """Returns the best `count` transports of each flow."""
        ranked = sorted(rows, key=lambda key: _order(rows[key]))
        return [[one for own, one in ranked if own == flow][:count] for flow in range(len(self._wanted))]

    def rows(self, chosen: Choices, seen: dict[_Job, Seen], *, is_final: bool) -> Rows:
        """Returns the results of the chosen transports."""
        pairs = [(flow, candidate) for flow, every in enumerate(chosen) for candidate in every]
        return {(flow, candidate): self._row(flow, candidate, seen, is_final=is_final) for flow, candidate in pairs}

    def jobs(self, chosen: Choices, passes: int, journeys: int, duration_s: float) -> list[_Job]:
        """Returns the runs of the chosen transports over the first `journeys`."""
        return [
            _Job(flow, candidate, number, journey, duration_s)
            for flow, every in enumerate(chosen)
            for candidate in every
            for number in range(passes)
            for journey in range(min(journeys, self._journeys(candidate)))
        ]

    def run(self, jobs: list[_Job], progress: Callable[[float], None]) -> tuple[dict[_Job, Seen], Cost]:
        """Runs all jobs on all cores; also returns their cost."""
        gauge = Gauge(len(jobs), jobs[0].duration_s)
        preparing_s: list[float] = []
        simulating_s: list[float] = []

        def one(job: _Job) -> Seen:
            gauge.raise_if_stopped()
            began = time.perf_counter()
            prepared = simulation(self.scenario(job))
            ready = time.perf_counter()
            native, _ = prepared.make(1 + job.pass_number * 1000 + job.journey, [], gauge.reporter(job), None, None)
            preparing_s.append(ready - began)
            simulating_s.append(time.perf_counter() - ready)
            wanted = self._wanted[job.flow]
            stats = next(stats for stats in native.group_stats() if stats.flow == wanted.flow)
            return _seen(stats, wanted)

        began = time.perf_counter()
        seen = dict(zip(jobs, on_all_cores(one, jobs, gauge, progress), strict=True))
        # Of the time that passed, while several cores worked.
        passed = (time.perf_counter() - began) / (sum(preparing_s) + sum(simulating_s))
        per_simulated_s = passed * sum(simulating_s) / sum(job.duration_s for job in jobs)
        return seen, Cost(passed * sum(preparing_s) / len(jobs), per_simulated_s)

    def scenario(self, job: _Job) -> Scenario:
        """Returns the scenario of a run."""
        lines = [f'duration = "{job.duration_s:.3f}s"\ntraces = "random"\n']
        for at, network in enumerate(self._networks):
            # Networks measured together stay together; others are paired otherwise in each pass.
            shift = 0 if network.together else job.pass_number * at
            number = (job.journey + shift) % len(network.flights)
            text = path_lines(network.flights[number], self._file(network, number), network.name)
            if network.together:
                text = text.replace("repeat = true", f'repeat = true, together = "{network.together}"')
            lines.append(text)
        for flow, wanted in enumerate(self._wanted):
            transport = job.candidate.table if flow == job.flow else self._safe[flow].table
            lines.append(wanted.lines(transport))
        return Scenario("".join(lines), str(self._folder / "assess.toml"))

    def _row(self, flow: int, candidate: Candidate, seen: dict[_Job, Seen], *, is_final: bool) -> Row:
        """Returns the result of a transport."""
        wanted = self._wanted[flow]
        own = {job: one for job, one in seen.items() if job.flow == flow and job.candidate == candidate}
        passes = [
            [one for job, one in own.items() if job.pass_number == number]
            for number in sorted({job.pass_number for job in own})
        ]
        used = [network for network in self._networks if network.name in candidate.networks]
        apart = len(used) > 1 and len({network.together or network.name for network in used}) > 1
        judge = judge_link_passes if wanted.parameters else judge_passes
        judged = judge(wanted, passes, min(network.occasions for network in used), len(used), apart=apart)
        if (wanted.is_video or wanted.metric == "goodput") and any(one.lacks("rate", wanted.direction) for one in used):
            # What was not measured decides nothing.
            judged = replace(judged, verdict=Verdict.INCONCLUSIVE, why="no rate measured", needed_s=None)
        elif any(one.lacks("delay", wanted.direction) for one in used) and wanted.metric != "goodput":
            judged = replace(judged, verdict=Verdict.INCONCLUSIVE, why="no delay measured", needed_s=None)
        medians = [_median([getattr(one, name) for one in own.values()]) for name in ("delay_p50_ms", "delay_p99_ms")]
        return Row((candidate.name,), candidate.networks, judged, medians[0], medians[1], is_final)

    def assumed(self) -> list[str]:
        """Returns the assumptions, in sentences."""
        assumed = [one.words for one in self._wanted]
        for network in self._networks:
            assumed += dict.fromkeys(f"{network.name}: {note}" for flight in network.flights for note in flight.notes)
            assumed += [
                _not_measured(network, f"{direction} {quantity}", has, taken)
                for direction in DIRECTIONS
                for quantity, taken in (("rate", f"{RATE_MBPS:g} Mbit/s"), ("delay", f"{DELAY_MS:g} ms"))
                if (has := network.having(quantity, direction)) < len(network.flights)
            ]
        if len({network.together or network.name for network in self._networks}) > 1:
            assumed.append(
                "networks measured apart: how often they fail together is unknown (seen misses count 3.6 times)"
            )
        return list(dict.fromkeys(assumed))

    def _journeys(self, candidate: Candidate) -> int:
        return max(len(one.flights) for one in self._networks if one.name in candidate.networks)

    def _file(self, network: Network, number: int) -> Path:
        return self._folder / f"{network.name}-{number}.csv"


def _seen(stats: FlowStats, wanted: Wanted) -> Seen:
    share = None
    if wanted.metric == "frames":
        share = RunShare.of_bins(*stats.frames_met_over_time(wanted.within_ms or 0.0))
    elif wanted.metric == "share":
        share = RunShare.of_bins(*stats.met_over_time(wanted.within_ms))
    parameters: tuple[tuple[str, RunShare | None], ...] = ()
    if wanted.parameters:
        slots = Slots(*stats.met_over_time(wanted.within_ms))
        limits = wanted.parameters[0]
        parameters = tuple((metric, share_of({**limits, "metric": metric}, slots)) for metric in SHARES)
    return Seen(share, stats.goodput_bps, stats.delay_quantile(0.5), stats.delay_quantile(0.99), parameters)


def _not_measured(network: Network, what: str, having: int, taken: str) -> str:
    """Returns the assumption for a quantity that only `having` flights have."""
    if having == 0:
        return f"{network.name}: no {what} was measured; {taken} taken"
    some = f"{having} of {len(network.flights)} flights"
    others = "taken in the others (files of one flight have + between)"
    return f"{network.name}: the {what} was measured in {some}; {taken} {others}"


def _median(values: list[float]) -> float:
    known = sorted(value for value in values if math.isfinite(value))
    return known[len(known) // 2] if known else math.nan


def _order(row: Row) -> tuple[int, float, float, float]:
    """Returns the sort key of a row: verdict, estimate, lower end, delay."""
    verdicts = (Verdict.MET, Verdict.INCONCLUSIVE, Verdict.NOT_MET)
    delay = row.delay_p99_ms if math.isfinite(row.delay_p99_ms) else math.inf
    return verdicts.index(row.judged.verdict), -row.judged.estimate, -row.judged.low, delay


def _merged(rows: list[Row]) -> list[Row]:
    """Returns the rows with identical ones merged."""
    found: list[Row] = []
    for row in rows:
        same = next((at for at, one in enumerate(found) if replace(one, names=()) == replace(row, names=())), None)
        if same is None:
            found.append(row)
        else:
            found[same] = replace(found[same], names=(*found[same].names, *row.names))
    return found


def _missing(flows: Sequence[RankedFlow], networks: Sequence[Network]) -> list[str]:
    """Returns the measurements that are missing, the most useful first."""
    needs: list[str] = []
    undecided = [flow for flow in flows if flow.best.verdict is Verdict.INCONCLUSIVE]
    used = [one for one in networks if any(one.name in flow.best.networks for flow in undecided)]
    directions = {
        flow.wanted.direction for flow in undecided if flow.wanted.is_video or flow.wanted.metric == "goodput"
    }
    wanted_flights = max((flow.best.judged.flights_needed or 0 for flow in undecided), default=0)
    for network in used:
        for direction in sorted(directions):
            if network.lacks("rate", direction):
                way = "-c SERVER" if direction == "uplink" else "-c SERVER -R"
                needs.append(
                    f"measure the {direction} rate of {network.name} (on the vehicle: `iperf3 {way} --json -t 600`)"
                )
        if network.lacks("delay", "uplink") or network.lacks("delay", "downlink"):
            needs.append(f"measure the delay of {network.name} (`ping -D -i 0.2 HOST > FILE`)")
        if network.occasions < wanted_flights:
            more = wanted_flights - network.occasions
            flights = "flight" if more == 1 else "flights"
            needs.append(f"measure {more} more {flights} of {network.name}, on other days and routes")
    for flow in undecided:
        needed_s = flow.best.judged.needed_s
        if needed_s is not None:
            needs.append(
                f"{flow.wanted.flow}: about {about(needed_s)} of measurements like these, in all, would decide it"
            )
    if len({one.together or one.name for one in used}) > 1:
        needs.append(f"measure {' and '.join(one.name for one in used)} at the same time, and join them (`trace join`)")
    return needs

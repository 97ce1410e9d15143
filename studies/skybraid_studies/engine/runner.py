"""Runs of experiments: every point once, on all cores, with earlier runs taken from a folder.

A point is a scenario and a seed. Experiments that share points share their runs, those of other studies included; runs
that a folder has kept are not made again, so that what was interrupted goes on where it stopped. A run that fails
takes its series out of its experiment and leaves all others alone.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from skybraid.execute.runs import Gauge, on_all_cores
from skybraid.gateway import playing
from skybraid.model.errors import Interrupted, ScenarioError, SkybraidError
from skybraid_studies.engine import points
from skybraid_studies.engine.claims import Line
from skybraid_studies.engine.measure import Kept, needed, values
from skybraid_studies.engine.points import Calculation, Job, Point

if TYPE_CHECKING:
    from pathlib import Path

    from skybraid.model.scenario import Scenario
    from skybraid_studies.engine.experiment import Experiment, Measure, Runs, Series, Study

POINTS = "points"
"""The folder of finished runs inside an output."""

EMULATED_S, EMULATED_TRANSFER_S = 30.0, 120.0
"""How long an emulated run is at most, and one of a transfer that has to end, unless a study says otherwise."""


class Form(StrEnum):
    """How thoroughly experiments are flown."""

    FULL = "full"
    QUICK = "quick"
    EMULATED = "emulated"
    GATEWAY = "gateway"

    def runs(self, experiment: Experiment) -> Runs:
        """How often and how long an experiment's scenarios are flown."""
        return {Form.FULL: experiment.runs, Form.QUICK: experiment.quick}.get(self, experiment.emulate)

    @property
    def quick(self) -> bool:
        """Whether fewer values of a sweep are taken."""
        return self is not Form.FULL

    @property
    def real_time(self) -> bool:
        """Whether runs take their own time."""
        return self in (Form.EMULATED, Form.GATEWAY)

    @property
    def driver(self) -> str:
        """What makes its runs."""
        return {Form.EMULATED: points.EMULATION, Form.GATEWAY: points.GATEWAY}.get(self, points.SIMULATION)


@dataclass(frozen=True, slots=True)
class Errand:
    """Experiments of one study that must be flown, in a reading of its paper.

    Attributes:
        study: theirs.
        experiments: in the reading.
        reading: its name.
        note: why it is not the one that was asked for, or nothing.
    """

    study: Study
    experiments: Sequence[Experiment]
    reading: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A run or calculation that gave nothing.

    Attributes:
        words: what went wrong.
        replay: the command that does the same again.
    """

    words: str
    replay: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How far it is.

    Attributes:
        share: of the simulated time, 0 to 1.
        done: runs that are there, kept ones included.
        kept: runs that were there before.
        runs: all of them.
        left_s: the wall time that is left, in s, as far as one can tell.
    """

    share: float
    done: int
    kept: int
    runs: int
    left_s: float


Told = Callable[[Tally], None]
"""Is told how far it is, a few times a second."""


@dataclass(frozen=True, slots=True)
class Flown:
    """Experiments of a study as they came out.

    Attributes:
        lines: by experiment, then by series; without those that failed.
        failures: by experiment.
        wall_s: by experiment, the time that its runs took, in s; runs that experiments share count for each.
        notes: by experiment, what an emulation has to say of itself.
        simulated: by experiment, the series that are simulated since gateways cannot fly them.
        runs: how many runs there were.
        kept: how many of them were taken from the folder.
    """

    lines: Mapping[str, Mapping[str, Line]]
    failures: Mapping[str, tuple[Failure, ...]]
    wall_s: Mapping[str, float]
    notes: Mapping[str, tuple[str, ...]]
    simulated: Mapping[str, tuple[str, ...]]
    runs: int
    kept: int


@dataclass(slots=True)
class Plan:
    """All that is needed of several studies, and what of it is there.

    Attributes:
        errands: what was asked for.
        form: how thoroughly.
        jobs: runs and calculations by key.
        of: keys by study, experiment, series, value of the sweep and seed; a calculation's has neither of the last.
        refused: by study, experiment and series, what cannot be flown at all.
        simulated: by the same, why a series is simulated where gateways fly the others.
        done: what is there by key.
        kept: keys of what the folder had.
    """

    errands: Sequence[Errand]
    form: Form
    jobs: dict[str, Job] = field(default_factory=dict)
    of: dict[tuple[str, str, str, float | None, int | None], str] = field(default_factory=dict)
    refused: dict[tuple[str, str, str], Failure] = field(default_factory=dict)
    simulated: dict[tuple[str, str, str], str] = field(default_factory=dict)
    done: dict[str, Kept] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()

    @property
    def missing(self) -> list[Job]:
        """What is still to be done."""
        return [job for key, job in self.jobs.items() if key not in self.done]

    def keys(self, study: Study, experiment: Experiment) -> set[str]:
        """The keys of an experiment's jobs."""
        return {key for (paper, of, *_), key in self.of.items() if (paper, of) == (study.paper, experiment.id)}


def plan(errands: Sequence[Errand], *, form: Form = Form.FULL, folder: Path | None = None) -> Plan:
    """Works out which runs experiments need, and takes from a folder what it has kept of them."""
    found = Plan(errands, form)
    for errand in errands:
        for experiment in errand.experiments:
            for series in _flown_series(experiment):
                try:
                    _add(found, errand, experiment, series)
                except Exception as error:  # noqa: BLE001 whatever is wrong with one, the others go on
                    failure = Failure(_said(error), replay(errand, experiment, form))
                    found.refused[errand.study.paper, experiment.id, series.name] = failure
    if folder is not None:
        points.clean(folder / POINTS)
        kept = {key: points.kept_of(folder / POINTS, job) for key, job in found.jobs.items()}
        found.done = {key: each for key, each in kept.items() if each is not None}
        found.kept = frozenset(found.done)
    return found


def _said(error: Exception) -> str:
    """What went wrong: our own words as they are, others with the kind of error."""
    return str(error) if isinstance(error, SkybraidError) else f"{type(error).__name__}: {error}"


def replay(errand: Errand, experiment: Experiment, form: Form) -> str:
    """The command that flies an experiment again."""
    words = ["skybraid", "reproduce", experiment.id]
    words += {Form.QUICK: ["--quick"], Form.EMULATED: ["--emulate"], Form.GATEWAY: ["--gateway"]}.get(form, [])
    if errand.reading != errand.study.reading:
        words += ["--reading", errand.reading]
    return " ".join(words)


def _add(found: Plan, errand: Errand, experiment: Experiment, series: Series) -> None:
    """Adds what a series needs."""
    runs, at = found.form.runs(experiment), (errand.study.paper, experiment.id, series.name)
    xs = _flown_xs(experiment, found.form)
    if series.measure is None:
        if found.form.real_time and all(each.measure is None for each in experiment.series):
            raise ScenarioError("A calculation has no links to emulate")
        name = series.compute or ""
        key = points.calculation_key(name, xs, runs.seeds)
        again = replay(errand, experiment, found.form)
        found.jobs.setdefault(key, Calculation(key, name, xs, runs.seeds, again))
        found.of[*at, None, None] = key
        return
    for x in xs:
        driver, judged = found.form.driver, ""
        more: list[str] = []
        recording = needed(series.measure, x, runs.checkpoints_s, experiment.times_s, both=bool(series.published))
        scenario = errand.study.scenario(experiment, series, x, errand.reading, quick=found.form.quick)
        if found.form.real_time:
            scenario = _emulated(scenario, experiment, series)
        if found.form is Form.GATEWAY:
            judged = _judged(series.measure, x)
            driver, more = _by_gateways(found, at, scenario, judged)
        keys = points.point_keys(scenario, runs.seeds, driver, *more)
        for seed, key in keys.items():
            again = replay(errand, experiment, found.form)
            point = found.jobs.setdefault(key, Point(key, scenario, seed, driver, judged=judged, again=again))
            if isinstance(point, Point):
                point.recording |= recording
            found.of[*at, x, seed] = key


def _emulated(scenario: Scenario, experiment: Experiment, series: Series) -> Scenario:
    """A scenario as it is emulated: shorter.

    Raises:
        ScenarioError: the emulator cannot fly it.
    """
    scenario.native.needs_two_hosts()
    for kind, name in sorted(scenario.native.custom()):
        raise ScenarioError(f"{kind} {name} is in Python, which flies in the simulator alone")
    if experiment.emulate.duration is not None:
        return scenario.with_("duration", experiment.emulate.duration)
    transfer = series.measure is not None and series.measure.kind == "transfer_time"
    max_s = max(EMULATED_TRANSFER_S if transfer else EMULATED_S, *experiment.times_s, 0.0)
    return scenario if scenario.duration_s <= max_s else scenario.with_("duration", f"{max_s:.12g}s")


def _judged(measure: Measure, x: float) -> str:
    """The flow that a measure looks at."""
    if measure.is_observation:
        _, keys = json.loads(measure.spec(x))
        return str(keys.get("flow", ""))
    return measure.flow


def _by_gateways(found: Plan, at: tuple[str, str, str], scenario: Scenario, judged: str) -> tuple[str, list[str]]:
    """What makes a run where gateways fly: they, or the simulator if they cannot; and what else it depends on."""
    try:
        how = playing.play(scenario, judged)
    except playing.CannotPlayError as error:
        found.simulated[at] = str(error)
        return points.SIMULATION, []
    return points.GATEWAY, [json.dumps([how.words, how.tables, how.paths]), playing.program_digest()]


def _simulated(planned: Plan, errand: Errand, experiment: Experiment) -> list[tuple[str, list[str]]]:
    """Which series of an experiment are simulated since gateways cannot fly them, by the reason."""
    of: dict[str, list[str]] = defaultdict(list)
    for (paper, one, series), reason in planned.simulated.items():
        if (paper, one) == (errand.study.paper, experiment.id):
            of[reason].append(series)
    return list(of.items())


def run_plan(
    planned: Plan, *, folder: Path | None = None, workers: int | None = None, told: Told | None = None
) -> None:
    """Runs the missing jobs of a plan; one that fails is left out, with the reason in `refused`.

    Args:
        planned: the plan; it takes what is done.
        folder: keeps finished runs; they are not made again.
        workers: how many runs at a time; by default one a core.
        told: is told how far it is.

    Raises:
        ResultError: the folder cannot be written.
        KeyboardInterrupt: Ctrl-C; finished runs stay in the folder.
    """
    missing, before, clock = planned.missing, len(planned.done), time.monotonic()
    gauge = Gauge(1, sum(job.length_s for job in missing))
    finished: list[str] = []

    def one(job: Job) -> Kept | Failure:
        gauge.go_on()
        report = gauge.reporter(job.key)
        try:
            kept = job.make(report)
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 whatever a run fails with, the others go on
            gauge.go_on()
            report(job.length_s)
            return Failure(_said(error), job.replay)
        gauge.go_on()
        report(job.length_s)
        if folder is not None:
            points.keep(folder / POINTS, job, kept)
        finished.append(job.key)
        return kept

    def tell(share: float) -> None:
        if told is not None:
            spent_s = time.monotonic() - clock
            left_s = spent_s / share * (1 - share) if share > 0 else float("inf")
            told(Tally(share, before + len(finished), before, len(planned.jobs), left_s))

    if not missing:
        return
    if planned.form.real_time:
        workers = (workers or 1) if planned.form is Form.GATEWAY else 1
    results = on_all_cores(one, missing, gauge, tell, workers)
    failed: dict[str, Failure] = {}
    for job, result in zip(missing, results, strict=True):
        if isinstance(result, Failure):
            failed[job.key] = result
        else:
            planned.done[job.key] = result
    for (paper, experiment, series, *_), key in planned.of.items():
        if key in failed:
            planned.refused.setdefault((paper, experiment, series), failed[key])


def collect(planned: Plan, errand: Errand) -> Flown:
    """Puts a study's runs together."""
    lines: dict[str, dict[str, Line]] = {}
    failures: dict[str, list[Failure]] = defaultdict(list)
    wall_s: dict[str, float] = {}
    notes: dict[str, tuple[str, ...]] = {}
    simulated: dict[str, tuple[str, ...]] = {}
    own: set[str] = set()
    for experiment in errand.experiments:
        lines[experiment.id] = {}
        for series in _flown_series(experiment):
            at = (errand.study.paper, experiment.id, series.name)
            failure = planned.refused.get(at)
            if failure is None:
                try:
                    lines[experiment.id][series.name] = _line(planned, errand, experiment, series)
                    continue
                except Exception as error:  # noqa: BLE001 what was kept may lack what a measure wants
                    failure = Failure(f"{series.name}: {_said(error)}", replay(errand, experiment, planned.form))
            failures[experiment.id].append(failure)
        keys = planned.keys(errand.study, experiment)
        own |= {key for key in keys if isinstance(planned.jobs[key], Point)}
        wall_s[experiment.id] = sum(float(planned.done[key]["wall_s"]) for key in keys if key in planned.done)
        notes[experiment.id] = (
            *_notes([planned.done[key] for key in sorted(keys) if key in planned.done]),
            *(
                f"simulated, since {reason}: {'; '.join(names)}"
                for reason, names in _simulated(planned, errand, experiment)
            ),
        )
        simulated[experiment.id] = tuple(name for _, names in _simulated(planned, errand, experiment) for name in names)
    failed = {name: tuple(each) for name, each in failures.items()}
    return Flown(lines, failed, wall_s, notes, simulated, len(own), len(own & planned.kept))


def _notes(kept: Sequence[Kept]) -> tuple[str, ...]:
    """Whose code carried which flow of an emulation, and what makes its numbers doubtful."""
    told = [each["emulation"] for each in kept if "emulation" in each]
    flown = [each["gateway"] for each in kept if "gateway" in each]
    stacks: dict[str, set[str]] = defaultdict(set)
    for one in told:
        for flow, stack in (one["stacks"] or {}).items():
            stacks[stack].add(flow)
    carried = [f"{', '.join(sorted(flows))} over {stack}" for stack, flows in sorted(stacks.items())]
    carried += sorted({one["words"] for one in flown})
    doubts = sorted({str(one["doubtful"]) for one in [*told, *flown] if one["doubtful"]})
    return (*carried, *(f"the numbers are doubtful: {doubt}" for doubt in doubts))


def _flown_series(experiment: Experiment) -> tuple[Series, ...]:
    return () if experiment.lacks else experiment.series


def _flown_xs(experiment: Experiment, form: Form) -> tuple[float, ...]:
    return experiment.sweep.quick if form.quick else experiment.sweep.values


def _line(planned: Plan, errand: Errand, experiment: Experiment, series: Series) -> Line:
    runs, at = planned.form.runs(experiment), (errand.study.paper, experiment.id, series.name)
    xs = _flown_xs(experiment, planned.form)
    order = sorted(range(len(xs)), key=lambda index: xs[index])
    rows, counted = [], []
    if series.measure is None:
        table = planned.done[planned.of[*at, None, None]]["values"]
        rows = [[float(row[index]) for index in order] for row in table]
        return Line(series.name, tuple(sorted(xs)), np.array(rows), series.published, series.k)
    for seed in runs.seeds:
        row: list[float] = []
        row_counted: list[float] = []
        for x in sorted(xs):
            key = planned.of[*at, x, seed]
            point = planned.jobs[key]
            if not isinstance(point, Point):
                raise TypeError(key)
            read = (point.recording, runs.checkpoints_s, experiment.times_s)
            row += values(series.measure, x, planned.done[key], *read)
            if series.measure.kind == "goodput" and series.published:
                measure = replace(series.measure, estimator="last_byte")
                row_counted += values(measure, x, planned.done[key], *read)
        rows.append(row)
        counted.append(row_counted)
    return Line(
        series.name,
        experiment.times_s or tuple(sorted(xs)),
        np.array(rows),
        series.published,
        series.k,
        np.array(counted) if counted[0] else None,
    )

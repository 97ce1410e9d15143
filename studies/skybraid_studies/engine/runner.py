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
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from skybraid.execute.pool import Gauge, finished
from skybraid.gateway import playing
from skybraid.model.errors import Interrupted, ScenarioError, SkybraidError
from skybraid.model.heavy import np
from skybraid_studies.engine import points
from skybraid_studies.engine.claims import Line
from skybraid_studies.engine.measure import Kept, needed, values
from skybraid_studies.engine.observe import observations
from skybraid_studies.engine.points import Calculation, Job, Point, Points

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from skybraid.model.scenario import Scenario
    from skybraid_studies.engine.experiment import Experiment, Measure, Runs, Series, Study

_NEARLY = 0.999

EMULATED_S, EMULATED_TRANSFER_S = 30.0, 120.0
"""Maximum duration of an emulated run, and of one whose transfer has to end, unless a study says otherwise."""


class Form(StrEnum):
    """Form of the runs: the studies' own seeds and durations, fewer, or real time."""

    FULL = "full"
    QUICK = "quick"
    EMULATED = "emulated"
    GATEWAY = "gateway"

    def runs(self, experiment: Experiment) -> Runs:
        """Returns the seeds and duration of an experiment's runs."""
        return {Form.FULL: experiment.runs, Form.QUICK: experiment.quick}.get(self, experiment.emulate)

    @property
    def quick(self) -> bool:
        """Whether fewer values of a sweep are taken."""
        return self is not Form.FULL

    @property
    def real_time(self) -> bool:
        """Whether runs are made in real time."""
        return self in (Form.EMULATED, Form.GATEWAY)

    @property
    def driver(self) -> str:
        """Driver of its runs."""
        return {Form.EMULATED: points.EMULATION, Form.GATEWAY: points.GATEWAY}.get(self, points.SIMULATION)


@dataclass(frozen=True, slots=True)
class Selection:
    """Experiments of one study that must be run, in a reading of its paper.

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
    """A run or calculation that failed.

    Attributes:
        words: what went wrong.
        replay: the command that does the same again.
    """

    words: str
    replay: str


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """Progress of a plan.

    Attributes:
        share: of the simulated time, 0 to 1.
        done: runs that are there, kept ones included.
        kept: runs that were there before.
        runs: all of them.
        left_s: estimate of the wall time that is left, in s.
    """

    share: float
    done: int
    kept: int
    runs: int
    left_s: float


ReportProgress = Callable[[PlanProgress], None]
"""Called with the progress, a few times a second."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Results of a study's experiments, before claims are judged.

    Attributes:
        lines: by experiment, then by series; without those that failed.
        failures: by experiment.
        wall_s: by experiment, the time that its runs took, in s; runs that experiments share count for each.
        notes: by experiment, what an emulation has to say of itself.
        simulated: by experiment, the series that are simulated since gateways cannot play them.
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
    """Runs and calculations that several studies need, and those that are done.

    Attributes:
        selections: what was asked for.
        form: how thoroughly.
        jobs: runs and calculations by key.
        of: keys by study, experiment, series, value of the sweep and seed; a calculation's has neither of the last.
        refused: by study, experiment and series, what cannot be run.
        simulated: by the same, why a series is simulated where gateways play the others.
        done: what is there by key.
        kept: keys of what the folder had.
    """

    selections: Sequence[Selection]
    form: Form
    jobs: dict[str, Job] = field(default_factory=dict)
    of: dict[tuple[str, str, str, float | None, int | None], str] = field(default_factory=dict)
    refused: dict[tuple[str, str, str], Failure] = field(default_factory=dict)
    simulated: dict[tuple[str, str, str], str] = field(default_factory=dict)
    done: dict[str, Kept] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()

    @property
    def missing(self) -> list[Job]:
        """Jobs that are not done."""
        return [job for key, job in self.jobs.items() if key not in self.done]

    def keys(self, study: Study, experiment: Experiment) -> set[str]:
        """Returns the keys of an experiment's jobs."""
        return {key for (paper, of, *_), key in self.of.items() if (paper, of) == (study.paper, experiment.id)}


def plan(selections: Sequence[Selection], *, form: Form = Form.FULL, folder: Path | None = None) -> Plan:
    """Plans the runs that experiments need, and loads those that a folder has kept."""
    found = Plan(selections, form)
    for selection in selections:
        for experiment in selection.experiments:
            for series in _run_series(experiment):
                try:
                    _add(found, selection, experiment, series)
                except Exception as error:  # noqa: BLE001 whatever is wrong with one, the others go on
                    failure = Failure(_message(error), replay(selection, experiment, form))
                    found.refused[selection.study.paper, experiment.id, series.name] = failure
    if folder is not None:
        found.done = Points(folder).found(found.jobs)
        found.kept = frozenset(found.done)
    return found


def _message(error: Exception) -> str:
    """Returns an error's words: those of Skybraid as they are, others with the type of the error."""
    return str(error) if isinstance(error, SkybraidError) else f"{type(error).__name__}: {error}"


def replay(selection: Selection, experiment: Experiment, form: Form) -> str:
    """Returns the command that repeats an experiment."""
    words = ["skybraid", "reproduce", experiment.id]
    words += {Form.QUICK: ["--quick"], Form.EMULATED: ["--emulate"], Form.GATEWAY: ["--gateway"]}.get(form, [])
    if selection.reading != selection.study.reading:
        words += ["--reading", selection.reading]
    return " ".join(words)


def _add(found: Plan, selection: Selection, experiment: Experiment, series: Series) -> None:
    """Adds the jobs of a series."""
    runs, at = found.form.runs(experiment), (selection.study.paper, experiment.id, series.name)
    xs = _run_xs(experiment, found.form)
    if series.measure is None:
        if found.form.real_time and all(each.measure is None for each in experiment.series):
            raise ScenarioError("A calculation has no links to emulate")
        name = series.compute or ""
        key = points.calculation_key(name, xs, runs.seeds)
        again = replay(selection, experiment, found.form)
        found.jobs.setdefault(key, Calculation(key, name, xs, runs.seeds, again))
        found.of[*at, None, None] = key
        return
    for x in xs:
        driver, judged = found.form.driver, ""
        more: list[str] = []
        recording = needed(series.measure, x, runs.checkpoints_s, experiment.times_s, both=bool(series.published))
        scenario = selection.study.scenario(experiment, series, x, selection.reading, quick=found.form.quick)
        if found.form.real_time:
            scenario = _emulated(scenario, experiment, series)
        if found.form is Form.GATEWAY:
            judged = _judged(series.measure, x)
            driver, more = _by_gateways(found, at, scenario, judged)
        keys = points.point_keys(scenario, runs.seeds, driver, *more)
        for seed, key in keys.items():
            again = replay(selection, experiment, found.form)
            point = found.jobs.setdefault(key, Point(key, scenario, seed, driver, judged=judged, again=again))
            if isinstance(point, Point):
                point.recording |= recording
            found.of[*at, x, seed] = key


def _emulated(scenario: Scenario, experiment: Experiment, series: Series) -> Scenario:
    """Returns a scenario for the emulator: shorter.

    Raises:
        ScenarioError: the emulator cannot run it.
    """
    scenario.native.needs_two_hosts()
    for kind, name in sorted(scenario.native.custom()):
        raise ScenarioError(f"{kind} {name} is in Python, which runs in the simulator alone")
    if experiment.emulate.duration is not None:
        return scenario.with_("duration", experiment.emulate.duration)
    transfer = series.measure is not None and series.measure.kind == "transfer_time"
    max_s = max(EMULATED_TRANSFER_S if transfer else EMULATED_S, *experiment.times_s, 0.0)
    return scenario if scenario.duration_s <= max_s else scenario.with_("duration", f"{max_s:.12g}s")


def _judged(measure: Measure, x: float) -> str:
    """Returns the flow of a measure."""
    if measure.is_observation:
        _, keys = json.loads(measure.spec(x))
        return str(keys.get("flow", ""))
    return measure.flow


def _by_gateways(found: Plan, at: tuple[str, str, str], scenario: Scenario, judged: str) -> tuple[str, list[str]]:
    """Returns the driver of a run for gateways, the simulator if they cannot play it, and its other inputs."""
    try:
        how = playing.play(scenario, judged)
    except playing.CannotPlayError as error:
        found.simulated[at] = str(error)
        return points.SIMULATION, []
    return points.GATEWAY, [json.dumps([how.words, how.tables, how.paths]), playing.program_digest()]


def _simulated(planned: Plan, selection: Selection, experiment: Experiment) -> list[tuple[str, list[str]]]:
    """Returns the series of an experiment that gateways cannot play and that are simulated, by the reason."""
    of: dict[str, list[str]] = defaultdict(list)
    for (paper, one, series), reason in planned.simulated.items():
        if (paper, one) == (selection.study.paper, experiment.id):
            of[reason].append(series)
    return list(of.items())


def run_plan(
    planned: Plan,
    *,
    folder: Path | None = None,
    workers: int | None = None,
    report_progress: ReportProgress | None = None,
) -> None:
    """Runs the missing jobs of a plan; one that fails is left out, with the reason in `refused`.

    Args:
        planned: the plan; it takes what is done.
        folder: keeps finished runs; they are not made again.
        workers: how many runs at a time; by default one a core.
        report_progress: called a few times a second.

    Raises:
        ResultError: the folder cannot be written.
        KeyboardInterrupt: Ctrl-C; finished runs stay in the folder.
    """
    missing, before, clock = planned.missing, len(planned.done), time.monotonic()
    gauge = Gauge(1, sum(job.length_s for job in missing))
    failed: dict[str, Failure] = {}

    def one(job: Job) -> tuple[Job, Kept | Failure]:
        gauge.raise_if_stopped()
        report = gauge.reporter(job.key)
        try:
            return job, job.make(report)
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 whatever a run fails with, the others go on
            return job, Failure(_message(error), job.replay)
        finally:
            report(job.length_s)

    def tell(share: float) -> None:
        if report_progress is not None:
            spent_s = time.monotonic() - clock
            left_s = spent_s / share * (1 - share) if share > 0 else float("inf")
            report_progress(PlanProgress(share, len(planned.done), before, len(planned.jobs), left_s))

    if not missing:
        return
    if planned.form.real_time:
        workers = (workers or 1) if planned.form is Form.GATEWAY else 1
    batches = finished(one, iter(missing), gauge.stop, workers)
    with nullcontext() if folder is None else Points(folder) as store, closing(batches):
        for batch in batches:
            for job, result in batch:
                if isinstance(result, Failure):
                    failed[job.key] = result
                    continue
                planned.done[job.key] = result
                if store is not None:
                    store.add(job, result)
            tell(min(gauge.share(), _NEARLY))
    tell(1.0)
    for (paper, experiment, series, *_), key in planned.of.items():
        if key in failed:
            planned.refused.setdefault((paper, experiment, series), failed[key])


def collect(planned: Plan, selection: Selection) -> Collected:
    """Returns a study's runs by experiment and series."""
    lines: dict[str, dict[str, Line]] = {}
    failures: dict[str, list[Failure]] = defaultdict(list)
    wall_s: dict[str, float] = {}
    notes: dict[str, tuple[str, ...]] = {}
    simulated: dict[str, tuple[str, ...]] = {}
    own: set[str] = set()
    for experiment in selection.experiments:
        lines[experiment.id] = {}
        for series in _run_series(experiment):
            at = (selection.study.paper, experiment.id, series.name)
            failure = planned.refused.get(at)
            if failure is None:
                try:
                    lines[experiment.id][series.name] = _line(planned, selection, experiment, series)
                    continue
                except Exception as error:  # noqa: BLE001 what was kept may lack what a measure wants
                    failure = Failure(f"{series.name}: {_message(error)}", replay(selection, experiment, planned.form))
            failures[experiment.id].append(failure)
        keys = planned.keys(selection.study, experiment)
        own |= {key for key in keys if isinstance(planned.jobs[key], Point)}
        wall_s[experiment.id] = sum(float(planned.done[key]["wall_s"]) for key in keys if key in planned.done)
        notes[experiment.id] = (
            *_notes([planned.done[key] for key in sorted(keys) if key in planned.done]),
            *(
                f"simulated, since {reason}: {'; '.join(names)}"
                for reason, names in _simulated(planned, selection, experiment)
            ),
        )
        simulated[experiment.id] = tuple(
            name for _, names in _simulated(planned, selection, experiment) for name in names
        )
    failed = {name: tuple(each) for name, each in failures.items()}
    return Collected(lines, failed, wall_s, notes, simulated, len(own), len(own & planned.kept))


def _notes(kept: Sequence[Kept]) -> tuple[str, ...]:
    """Returns remarks on real-time runs: the stack of each flow, and why numbers are doubtful."""
    emulations = [each["emulation"] for each in kept if "emulation" in each]
    played = [each["gateway"] for each in kept if "gateway" in each]
    stacks: dict[str, set[str]] = defaultdict(set)
    for one in emulations:
        for flow, stack in (one["stacks"] or {}).items():
            stacks[stack].add(flow)
    carried = [f"{', '.join(sorted(flows))} over {stack}" for stack, flows in sorted(stacks.items())]
    carried += sorted({one["words"] for one in played})
    doubts = sorted({str(one["doubtful"]) for one in [*emulations, *played] if one["doubtful"]})
    return (*carried, *(f"the numbers are doubtful: {doubt}" for doubt in doubts))


def _run_series(experiment: Experiment) -> tuple[Series, ...]:
    return () if experiment.lacks else experiment.series


def _run_xs(experiment: Experiment, form: Form) -> tuple[float, ...]:
    return experiment.sweep.quick if form.quick else experiment.sweep.values


def _line(planned: Plan, selection: Selection, experiment: Experiment, series: Series) -> Line:
    runs, at = planned.form.runs(experiment), (selection.study.paper, experiment.id, series.name)
    xs = _run_xs(experiment, planned.form)
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
    absent = observations()[series.measure.kind].absent if series.measure.is_observation else ""
    return Line(
        series.name,
        experiment.times_s or tuple(sorted(xs)),
        _pooled(np.array(rows), series, leaves_out=bool(absent)),
        series.published,
        series.k,
        np.array(counted) if counted[0] else None,
        absent,
    )


def _pooled(values: NDArray[np.float64], series: Series, *, leaves_out: bool) -> NDArray[np.float64]:
    """Returns the values of runs by row, or of so many runs each the largest or smallest; fewer runs make one value.

    With `leaves_out`, runs without a value count only where none of the others has one.
    """
    size = series.largest_of or series.smallest_of
    if not size:
        return values
    groups = max(len(values) // size, 1)
    largest, smallest = (np.fmax, np.fmin) if leaves_out else (np.maximum, np.minimum)
    pick: np.ufunc = largest if series.largest_of else smallest
    return np.array([pick.reduce(group, axis=0) for group in np.array_split(values[: groups * size], groups)])

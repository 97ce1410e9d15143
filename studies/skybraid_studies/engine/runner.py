"""Runs of experiments: every point once, on all cores, reusing earlier runs of a folder.

A point is a scenario and a seed. Experiments that share points share their runs, also between studies. Stored runs of a
folder are reused, so that an interrupted plan can be resumed. A failed run removes its series from its experiment and
affects no other.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
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
    from numpy.typing import NDArray

    from skybraid.model.scenario import Scenario
    from skybraid_studies.engine.experiment import Experiment, Measure, Runs, Series, Study

_NEARLY = 0.999

EMULATED_S, EMULATED_TRANSFER_S = 30.0, 120.0
"""Maximum duration of an emulated run in s, and of one whose transfer must complete, unless a study sets another."""


class Form(StrEnum):
    """Form of the runs: the studies' seeds and durations, a reduced set, or real time."""

    FULL = "full"
    QUICK = "quick"
    EMULATED = "emulated"
    GATEWAY = "gateway"

    def runs(self, experiment: Experiment) -> Runs:
        """Returns the seeds and duration of an experiment's runs."""
        return {Form.FULL: experiment.runs, Form.QUICK: experiment.quick}.get(self, experiment.emulate)

    @property
    def quick(self) -> bool:
        """Whether a sweep uses fewer values."""
        return self is not Form.FULL

    @property
    def real_time(self) -> bool:
        """Whether runs are in real time."""
        return self in (Form.EMULATED, Form.GATEWAY)

    @property
    def driver(self) -> str:
        """Driver of the runs."""
        return {Form.EMULATED: points.EMULATION, Form.GATEWAY: points.GATEWAY}.get(self, points.SIMULATION)


@dataclass(frozen=True, slots=True)
class Selection:
    """Experiments of one study to run, in a reading of its paper.

    Attributes:
        study: study of the experiments.
        experiments: experiments in the reading.
        reading: name of the reading.
        note: reason for not using the requested reading, or empty.
    """

    study: Study
    experiments: Sequence[Experiment]
    reading: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """Run or calculation that failed.

    Attributes:
        words: error message.
        replay: command that repeats it.
    """

    words: str
    replay: str


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """Progress of a plan.

    Attributes:
        share: completed share of the simulated time, 0 to 1.
        done: number of finished runs, stored ones included.
        kept: number of stored runs.
        runs: total number of runs.
        left_s: estimated remaining wall-clock time in s.
    """

    share: float
    done: int
    kept: int
    runs: int
    left_s: float


ReportProgress = Callable[[PlanProgress], None]
"""Callback with the progress, a few times per second."""


@dataclass(frozen=True, slots=True)
class Collected:
    """Results of a study's experiments, before claims are judged.

    Attributes:
        lines: values by experiment and series, without failed ones.
        failures: failures by experiment.
        wall_s: time of the runs in s by experiment; shared runs count for each.
        notes: remarks on real-time runs by experiment.
        simulated: series by experiment that are simulated since gateways do not support them.
        runs: number of runs.
        kept: number of runs taken from the folder.
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
    """Required runs and calculations of several studies, and their results.

    Attributes:
        selections: experiments to run, by study.
        form: form of the runs.
        jobs: runs and calculations by key.
        of: keys by study, experiment, series, value of the sweep and seed; calculations lack the last two.
        refused: failures by study, experiment and series.
        simulated: reason why a series is simulated instead of run by gateways, by study, experiment and series.
        done: results by key.
        kept: keys of stored results.
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
        """Returns the jobs without a result."""
        return [job for key, job in self.jobs.items() if key not in self.done]

    def keys(self, study: Study, experiment: Experiment) -> set[str]:
        """Returns the keys of an experiment's jobs."""
        return {key for (paper, of, *_), key in self.of.items() if (paper, of) == (study.paper, experiment.id)}


def plan(selections: Sequence[Selection], *, form: Form = Form.FULL, folder: Path | None = None) -> Plan:
    """Plans the runs required by experiments, and loads stored results of a folder."""
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
    """Returns the message of an error, with its type unless it is an error of Skybraid."""
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
    """Returns a shortened scenario for the emulator.

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
    """Returns the flow of a measure, which must run over gateways."""
    if measure.is_observation:
        _, keys = json.loads(measure.spec(x))
        return str(keys.get("flow", ""))
    return measure.flow


def _by_gateways(found: Plan, at: tuple[str, str, str], scenario: Scenario, judged: str) -> tuple[str, list[str]]:
    """Returns the driver of a run for gateways (the simulator if they do not support it), and its other inputs."""
    try:
        how = playing.play(scenario, judged)
    except playing.CannotPlayError as error:
        found.simulated[at] = str(error)
        return points.SIMULATION, []
    return points.GATEWAY, [json.dumps([how.words, how.tables, how.paths]), playing.program_digest()]


def _simulated(planned: Plan, selection: Selection, experiment: Experiment) -> list[tuple[str, list[str]]]:
    """Returns the simulated series of an experiment that gateways do not support, grouped by reason."""
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
    """Runs the missing jobs of a plan; failed ones are left out, with the reason in `refused`.

    Args:
        planned: plan, to which results are added.
        folder: folder of finished runs, which are reused.
        workers: number of parallel runs; default: one per core.
        report_progress: callback, a few times per second.

    Raises:
        ResultError: the folder cannot be written.
        KeyboardInterrupt: Ctrl-C; finished runs remain in the folder.
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
    """Returns the results of a study's runs by experiment and series."""
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
    """Returns remarks on real-time runs: the stack of each flow, and reasons to doubt the numbers."""
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
    """Returns the values of runs by row, or the largest or smallest of each group of runs; an incomplete group counts.

    With `leaves_out`, runs without a value count only if all of their group lack one.
    """
    size = series.largest_of or series.smallest_of
    if not size:
        return values
    groups = max(len(values) // size, 1)
    largest, smallest = (np.fmax, np.fmin) if leaves_out else (np.maximum, np.minimum)
    pick: np.ufunc = largest if series.largest_of else smallest
    return np.array([pick.reduce(group, axis=0) for group in np.array_split(values[: groups * size], groups)])

"""Flying experiments: every point once, on all cores, with what was flown before taken from a folder.

A point is a scenario and a seed. Experiments that share points share their runs; runs that a folder has kept are not
made again, so that a study that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

import skybraid.studies.westwood  # noqa: F401 registers its calculations
from skybraid import _core
from skybraid.campaign import Gauge, on_all_cores
from skybraid.folder import write_whole
from skybraid.studies import theory
from skybraid.studies.claims import Line
from skybraid.studies.measure import Kept, Recording, needed, values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from skybraid.campaign import Progress
    from skybraid.scenario import Scenario
    from skybraid.studies.experiment import Experiment, Series, Study

POINTS = "points"
"""The folder of finished runs inside a study's output."""


@dataclass(frozen=True, slots=True)
class Flown:
    """Experiments as they came out.

    Attributes:
        lines: by experiment, then by series.
        wall_s: by experiment, the time that its runs took, in s; runs that experiments share count for each.
        runs: how many runs there were.
        kept: how many of them were taken from the folder.
    """

    lines: Mapping[str, Mapping[str, Line]]
    wall_s: Mapping[str, float]
    runs: int
    kept: int


@dataclass(slots=True)
class _Point:
    """A run that is needed."""

    key: str
    scenario: Scenario
    seed: int
    recording: Recording = field(default_factory=Recording)


def fly(
    study: Study,
    experiments: Sequence[Experiment],
    *,
    reading: str,
    quick: bool = False,
    folder: Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Flown:
    """Flies experiments of a study.

    Args:
        study: whose they are.
        experiments: in the reading.
        reading: its name.
        quick: fewer values and seeds, shorter runs.
        folder: keeps finished runs; they are not made again.
        workers: how many runs at a time; by default one a core.
        progress: told how far it is.

    Raises:
        ScenarioError: a point's scenario is not correct.
        ResultError: the folder cannot be written.
        KeyboardInterrupt: Ctrl-C; finished runs stay in the folder.
    """
    points: dict[str, _Point] = {}
    plan: dict[tuple[str, str, float, int], str] = {}
    for experiment in experiments:
        runs = experiment.quick if quick else experiment.runs
        for series in experiment.series:
            if series.measure is None:
                continue
            for x in _flown_xs(experiment, quick=quick):
                recording = needed(
                    series.measure, x, runs.checkpoints_s, experiment.times_s, both=bool(series.published)
                )
                scenario = study.scenario(experiment, series, x, reading, quick=quick)
                for seed in runs.seeds:
                    key = _key(scenario, seed)
                    point = points.setdefault(key, _Point(key, scenario, seed))
                    point.recording |= recording
                    plan[experiment.id, series.name, x, seed] = key
    done = {key: kept for key, point in points.items() if (kept := _kept(folder, point)) is not None}
    missing = [point for key, point in points.items() if key not in done]
    gauge = Gauge(1, sum(point.scenario.duration_s for point in missing))

    def one(point: _Point) -> Kept:
        gauge.go_on()
        run = point.scenario.native.run(point.seed, point.recording.tables, gauge.reporter(point.key))
        kept = point.recording.take(run) | {"recording": asdict(point.recording)}
        if folder is not None:
            write_whole(folder / POINTS / f"{point.key}.json", json.dumps(kept).encode())
        return kept

    if missing:
        flown = on_all_cores(one, missing, gauge, progress, workers)
        done |= {point.key: kept for point, kept in zip(missing, flown, strict=True)}
    lines: dict[str, dict[str, Line]] = {}
    wall_s: dict[str, float] = {}
    for experiment in experiments:
        lines[experiment.id] = {
            series.name: _line(experiment, series, plan, points, done, quick=quick) for series in experiment.series
        }
        own = {key for (of, *_), key in plan.items() if of == experiment.id}
        wall_s[experiment.id] = sum(float(done[key]["wall_s"]) for key in own)
    return Flown(lines, wall_s, len(points), len(points) - len(missing))


def _flown_xs(experiment: Experiment, *, quick: bool) -> tuple[float, ...]:
    return experiment.sweep.quick if quick else experiment.sweep.values


def _key(scenario: Scenario, seed: int) -> str:
    """A name for a run: the same for what gives the same numbers."""
    of = [_core.__version__, scenario.toml(), scenario.inputs(), seed]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:24]


def _kept(folder: Path | None, point: _Point) -> Kept | None:
    """A run that the folder has kept, with all that is needed of it."""
    if folder is None:
        return None
    try:
        kept: Kept = json.loads((folder / POINTS / f"{point.key}.json").read_text(encoding="utf-8"))
        was = kept["recording"]
        recording = Recording(
            tuple(was["checkpoints_s"]), was["receivers"], was["last"], tuple(was["times_s"]), tuple(was["observed"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not recording.covers(point.recording):
        return None
    point.recording = recording
    return kept


def _line(
    experiment: Experiment,
    series: Series,
    plan: Mapping[tuple[str, str, float, int], str],
    points: Mapping[str, _Point],
    done: Mapping[str, Kept],
    *,
    quick: bool,
) -> Line:
    runs = experiment.quick if quick else experiment.runs
    flown_xs = sorted(_flown_xs(experiment, quick=quick))
    rows, counted = [], []
    for seed in runs.seeds:
        row: list[float] = []
        row_counted: list[float] = []
        for x in flown_xs:
            if series.measure is None:
                row.append(theory.compute(series.compute or "", x, seed))
                continue
            key = plan[experiment.id, series.name, x, seed]
            recording = points[key].recording
            row += values(series.measure, x, done[key], recording, runs.checkpoints_s, experiment.times_s)
            if series.measure.kind == "goodput" and series.published:
                measure = replace(series.measure, estimator="last_byte")
                row_counted += values(measure, x, done[key], recording, runs.checkpoints_s, experiment.times_s)
        rows.append(row)
        counted.append(row_counted)
    return Line(
        series.name,
        experiment.times_s or tuple(flown_xs),
        np.array(rows),
        series.published,
        series.k,
        np.array(counted) if counted[0] else None,
    )

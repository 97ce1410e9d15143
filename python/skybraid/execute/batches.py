"""Batches of runs, in threads of this process; `dask.py` makes them on other machines."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from skybraid.execute.pool import cores, finished
from skybraid.execute.rows import Outcome, digest_of, outcome_of
from skybraid.execute.runs import simulation
from skybraid.model.errors import Interrupted, ScenarioError
from skybraid.model.scenario import Scenario

if TYPE_CHECKING:
    from skybraid._core import KnownLinks
    from skybraid.execute.axes import Point

Job = tuple[int, int]
"""A run to make: the position of its point, and its seed."""

_KEPT_SCENARIOS = 8
_MAX_BATCH = 500


@dataclass(frozen=True, slots=True)
class Base:
    """Common part of all runs of a campaign; it is sent to other machines.

    Attributes:
        text: the scenario.
        file: its file name, for errors and for relative names of trace files.
        overrides: keys replaced at every point.
        plugins: Python files with user-defined algorithms, each with its text.
    """

    text: str
    file: str
    overrides: tuple[tuple[str, str], ...] = ()
    plugins: tuple[tuple[str, str], ...] = ()

    def scenario(self, point: Point, like: Scenario | None = None) -> Scenario:
        """Returns the scenario of a point; `like` is the scenario of another point whose loaded traces are reused.

        Raises:
            ScenarioError: the scenario is invalid.
        """
        return Scenario(self.text, self.file, (*self.overrides, *point.sets), like=like)


@dataclass(frozen=True, slots=True)
class Batch:
    """Runs that are executed one after the other.

    Attributes:
        jobs: the runs.
        points: points of the runs, each with the digest of its inputs when the campaign was planned.
    """

    jobs: tuple[Job, ...]
    points: Mapping[int, tuple[Point, str]]


class Executor(Protocol):
    """Executor of runs, on this machine or on others."""

    @property
    def target_s(self) -> float:
        """Target duration of a batch, in s."""
        ...

    def outcomes(self, base: Base, batches: Iterator[Batch]) -> Iterator[Sequence[Outcome]]:
        """Iterates over the outcomes of batches, in any order; sometimes yields none, to give the caller a turn."""
        ...


@dataclass(frozen=True, slots=True)
class _Prepared:
    scenario: Scenario
    deadlines_ms: Mapping[str, float]
    frames_within_ms: Mapping[str, float]
    requirements: Sequence[Mapping[str, Any]]
    links: KnownLinks


_prepared: OrderedDict[tuple[str, str], _Prepared] = OrderedDict()
_preparing = threading.Lock()


def _prepare(base: Base, point: Point, digest: str) -> _Prepared:
    """Returns the scenario of a point; it is parsed once for all seeds."""
    with _preparing:
        known = _prepared.get((base.file, digest))
        if known is not None:
            _prepared.move_to_end((base.file, digest))
            return known
        like = next((one.scenario for one in _prepared.values() if one.scenario.file == base.file), None)
    scenario = _planned(base, point, digest, like)
    asked = (scenario.deadlines_ms, scenario.frames_within_ms, scenario.requirements)
    made = _Prepared(scenario, *asked, scenario.native.known_links())
    with _preparing:
        _prepared[base.file, digest] = made
        while len(_prepared) > _KEPT_SCENARIOS:
            _prepared.popitem(last=False)
    return made


def _planned(base: Base, point: Point, digest: str, like: Scenario | None) -> Scenario:
    """Returns the scenario of a point; fails if its inputs have changed since the campaign was planned."""
    if like is not None:
        # Its traces may be those of an earlier campaign.
        with contextlib.suppress(ScenarioError):
            scenario = base.scenario(point, like)
            if digest_of(scenario) == digest:
                return scenario
    scenario = base.scenario(point)
    if digest_of(scenario) != digest:
        raise ScenarioError(
            f"{base.file}: its files, algorithms or version are others here and now than when the campaign was planned"
        )
    return scenario


def run_batch(base: Base, batch: Batch, continues: Callable[[float], bool] = lambda _: True) -> list[Outcome]:
    """Executes the runs of a batch; a failed run is reported in its outcome and does not stop the others.

    Raises:
        Interrupted: `continues` returned false.
    """
    outcomes = []
    for place, seed in batch.jobs:
        if not continues(0.0):
            raise Interrupted("stopped before the end")
        point, digest = batch.points[place]
        clock = time.perf_counter()
        try:
            prepared = _prepare(base, point, digest)
            run, _ = simulation(prepared.scenario).make(seed, [], continues, None, None)
            wall_s = time.perf_counter() - clock
            asked = (prepared.deadlines_ms, prepared.frames_within_ms, prepared.requirements, prepared.links)
            outcomes.append(outcome_of(run, place, wall_s, *asked))
        except (Interrupted, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 an algorithm of one's own may raise anything
            words = f"{type(error).__name__}: {error}"
            outcomes.append(Outcome(place, seed, words, time.perf_counter() - clock, 0.0))
    return outcomes


class Pace:
    """Divides runs into batches of about equal duration, by the duration of recent runs."""

    def __init__(self, target_s: float) -> None:
        self._target_s = target_s
        self._run_s: float | None = None

    def saw(self, outcomes: Sequence[Outcome]) -> None:
        """Records the durations of completed runs."""
        if outcomes:
            mean_s = sum(outcome.wall_s for outcome in outcomes) / len(outcomes)
            self._run_s = mean_s if self._run_s is None else 0.8 * self._run_s + 0.2 * mean_s

    @property
    def size(self) -> int:
        """Returns the number of runs in the next batch."""
        if self._run_s is None:
            return 1
        return max(1, min(_MAX_BATCH, int(self._target_s / max(self._run_s, 1e-6))))

    def batches(self, jobs: Iterator[Job], points: Sequence[Point], digests: Sequence[str]) -> Iterator[Batch]:
        """Yields batches of jobs, each sized when it is requested."""
        while taken := tuple(islice(jobs, self.size)):
            yield Batch(taken, {place: (points[place], digests[place]) for place, _ in taken})


class Threads:
    """Executes runs in threads of this process; the simulator releases Python's lock, so all cores are used.

    Args:
        workers: number of threads; one per core by default.
    """

    target_s = 0.02

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ScenarioError(f"workers: found {workers}, expected 1 or more")
        self.workers = workers or cores()

    def outcomes(self, base: Base, batches: Iterator[Batch]) -> Iterator[Sequence[Outcome]]:
        """Iterates over the outcomes of batches, with at most two per worker in progress."""
        stop = threading.Event()

        def continues(_simulated_s: float) -> bool:
            return not stop.is_set()

        ended = finished(lambda batch: run_batch(base, batch, continues), batches, stop.set, self.workers)
        with contextlib.closing(ended):
            for done in ended:
                yield [outcome for outcomes in done for outcome in outcomes]

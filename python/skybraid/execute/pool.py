"""Worker threads that execute the runs of results, comparisons, campaigns and studies.

The engine releases Python's lock while it runs, so threads use all cores.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

from skybraid.execute.interruption import deferred
from skybraid.model.errors import Interrupted

Progress = Callable[[float], None]
"""Called with the share of the simulated time that is done, 0 to 1, a few times a second."""

Report = Callable[[float], bool]
"""Called with a run's own time in s; returns whether to go on."""

_POLL_S = 0.1
_AHEAD = 2
_NEARLY = 0.999

_Job = TypeVar("_Job")
_Done = TypeVar("_Done")


def cores() -> int:
    """Returns the number of workers by default: one per core."""
    return os.cpu_count() or 1


def finished(
    work: Callable[[_Job], _Done],
    jobs: Iterator[_Job],
    stop: Callable[[], None],
    workers: int | None = None,
    keep_results: Callable[[], bool] = lambda: False,
) -> Generator[list[_Done]]:
    """Runs jobs in worker threads and yields lists of results as jobs end, in any order.

    Yields an empty list from time to time, so that the caller gets a turn. At most two jobs per worker are in progress,
    so `jobs` may be a generator. Ctrl-C is handled in the caller's thread.

    Args:
        work: runs a job; its exceptions are raised here.
        jobs: jobs to run.
        stop: asks running jobs to end; called when the generator ends for any reason.
        workers: number of threads; one per core by default.
        keep_results: called at Ctrl-C; returns whether the jobs end by themselves, so their results are awaited.
    """
    threads = workers or cores()
    pending: set[Future[_Done]] = set()
    with ThreadPoolExecutor(threads, thread_name_prefix="skybraid") as pool:
        try:
            while True:
                done: set[Future[_Done]] = set()
                try:
                    with deferred():
                        room = max(_AHEAD * threads - len(pending), 0)
                        pending.update(pool.submit(work, job) for job in islice(jobs, room))
                        if not pending:
                            return
                        done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                except KeyboardInterrupt:
                    if not keep_results():
                        raise
                yield [future.result() for future in done]
        finally:
            stop()
            pool.shutdown(wait=False, cancel_futures=True)


class Gauge:
    """Progress of runs, and their interruption.

    Args:
        runs: number of runs.
        duration_s: simulated duration of each run in s.
        keeps: whether the first interruption ends the runs early and keeps their results so far.
    """

    def __init__(self, runs: int, duration_s: float, *, keeps: bool = False) -> None:
        self._whole_s = max(runs * duration_s, 1e-9)
        self._done_s: dict[Hashable, float] = {}
        self._stop = threading.Event()
        self._early = threading.Event()
        self._keeps = keeps

    def raise_if_stopped(self) -> None:
        """Raises `Interrupted` if the runs were asked to stop."""
        if self._stop.is_set():
            raise Interrupted("stopped before the end; no result was written")

    def stop(self) -> None:
        """Asks all runs to stop without a result."""
        self._stop.set()

    def end_early(self) -> bool:
        """Asks all runs to end early with their results so far; returns whether they will."""
        keeps = self._keeps and not self._early.is_set()
        self._early.set()
        return keeps

    @property
    def ends_early(self) -> bool:
        """Whether the runs were asked to end early."""
        return self._early.is_set()

    def reporter(self, run: Hashable) -> Report:
        """Returns a callback for a run: takes its simulated time in s and returns whether to continue."""

        def report(simulated_s: float) -> bool:
            self._done_s[run] = simulated_s
            return not (self._stop.is_set() or self._early.is_set())

        return report

    def share(self) -> float:
        """Completed share of the simulated time, 0 to 1."""
        return min(sum(list(self._done_s.values())) / self._whole_s, 1.0)


def on_all_cores(
    work: Callable[[_Job], _Done],
    jobs: Sequence[_Job],
    gauge: Gauge,
    progress: Progress | None,
    workers: int | None = None,
) -> list[_Done]:
    """Runs each job in worker threads, one per core by default, and returns the results in the order of the jobs.

    Progress reaches 1 only after the last job has ended, since a run at its end still has results to write.
    """
    results: dict[int, _Done] = {}
    numbered = iter(enumerate(jobs))
    batches = finished(lambda job: (job[0], work(job[1])), numbered, gauge.stop, workers, gauge.end_early)
    with contextlib.closing(batches):
        while len(results) < len(jobs):
            try:
                results.update(_next(batches))
                if progress is not None:
                    whole = len(results) == len(jobs)
                    progress(1.0 if whole and not gauge.ends_early else min(gauge.share(), 1.0 if whole else _NEARLY))
            except KeyboardInterrupt:
                if not gauge.end_early():
                    raise
    return [results[number] for number in range(len(jobs))]


def _next(batches: Iterator[list[_Done]]) -> list[_Done]:
    """Returns the next batch; raises `KeyboardInterrupt` if Ctrl-C has ended the generator."""
    found = next(batches, None)
    if found is None:
        raise KeyboardInterrupt
    return found

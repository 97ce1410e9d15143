"""Sweeps: execute the missing runs of a campaign and write them into its dataset part by part."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skybraid.execute.batches import Executor, Pace, Threads
from skybraid.execute.campaign import Campaign, Manifest, replay_line
from skybraid.execute.dask import Dask
from skybraid.execute.plan import Plan, grown, plan
from skybraid.execute.rows import FAILED, RUNS, Buffer, key_of, schemas
from skybraid.execute.store import Cadence, Lock, Store
from skybraid.execute.until import budget as budget_of
from skybraid.execute.until import question, run_until
from skybraid.model.errors import ResultError, ScenarioError
from skybraid.model.folder import campaign_folder
from skybraid.model.heavy import np, pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.execute.batches import Job
    from skybraid.model.scenario import Overrides, Scenario

_MAX_ROWS = 20_000


@dataclass(slots=True)
class Status:
    """Progress of a campaign.

    Attributes:
        total: number of runs wanted so far, cached ones included.
        cached: number of runs that the dataset already had.
        done: number of runs completed now.
        failed: number of runs failed now.
        left_s: estimated remaining time in s; None before the first run.
        url: folder of the campaign.
    """

    total: int = 0
    cached: int = 0
    done: int = 0
    failed: int = 0
    left_s: float | None = None
    url: str = ""

    @property
    def share(self) -> float:
        """Completed share of the runs, 0 to 1."""
        return (self.cached + self.done + self.failed) / self.total if self.total else 1.0


class Running:
    """A campaign in progress, under its lock.

    Args:
        store: destination.
        planned: plan of the runs.
        executor: executor of the runs.
        progress: receives the completed share a few times per second.
    """

    def __init__(
        self, store: Store, planned: Plan, executor: Executor, progress: Callable[[Status], None] | None, lock: Lock
    ) -> None:
        self.store, self.plan, self.status = store, planned, Status(url=store.url)
        manifest = planned.manifest
        self.campaign = Campaign(store.url, manifest, store)
        self._executor, self._progress, self._lock = executor, progress, lock
        labels = manifest.points[0].labels
        self._buffer = Buffer(schemas(manifest.columns, labels, manifest.paths), manifest.paths)
        self._pace = Pace(executor.target_s)
        self._there = self._seeds_there()
        self._cadence = Cadence()

    def run(self, jobs: Callable[[], Iterator[Job]], until: float | None = None) -> None:
        """Executes the runs that are missing.

        Args:
            jobs: returns an iterator over all runs; called several times.
            until: time on the monotonic clock after which no further run is started.

        Raises:
            ResultError: a part cannot be written; earlier parts are kept.
            KeyboardInterrupt: Ctrl-C; completed runs are kept.
        """
        missing, wanted = 0, 0
        for job in jobs():
            wanted += 1
            missing += not self.has(job)
        self.status.total += wanted
        self.status.cached += wanted - missing
        self._report(missing)
        manifest = self.plan.manifest
        left = (job for job in jobs() if not self.has(job) and (until is None or time.monotonic() < until))
        outcomes = self._executor.outcomes(manifest.base, self._pace.batches(left, manifest.points, manifest.digests))
        made = 0
        began = time.monotonic()
        try:
            with contextlib.closing(outcomes) as batches:  # type: ignore[type-var]
                for batch in batches:
                    for outcome in batch:
                        point = manifest.points[outcome.point]
                        key = key_of(manifest.digests[outcome.point], outcome.seed)
                        replay = replay_line(manifest.base, point, outcome.seed)
                        self._buffer.add(outcome, key, point, replay)
                        if outcome.error is None:
                            self.status.done += 1
                        else:
                            self.status.failed += 1
                    made += len(batch)
                    self._pace.saw(batch)
                    if made:
                        self.status.left_s = (time.monotonic() - began) / made * (missing - made)
                    self._report(missing - made)
                    self._flush_if_due()
                    self._lock.beat()
        finally:
            self.flush()
            self._there = self._seeds_there()

    def has(self, job: Job) -> bool:
        """Whether the dataset had a run when this round began."""
        point, seed = job
        seeds = self._there.get(point)
        if seeds is None:
            return False
        place = int(seeds.searchsorted(np.uint64(seed)))
        return place < len(seeds) and int(seeds[place]) == seed

    def flush(self) -> None:
        """Writes the buffered rows as a part."""
        if self._buffer.runs:
            self.store.write_part(self._buffer.take())
        self._cadence.on_written()

    def _flush_if_due(self) -> None:
        if self._cadence.is_due or self._buffer.rows >= _MAX_ROWS:
            self.flush()

    def _seeds_there(self) -> dict[int, NDArray[np.uint64]]:
        """Returns the sorted seeds of the dataset's runs, by point (eight bytes per run)."""
        found = self.campaign.scan(RUNS).group_by("point").agg("seed").collect()
        return {point: seeds.sort().to_numpy() for point, seeds in zip(found["point"], found["seed"], strict=True)}

    def _report(self, left: int) -> None:
        if left == 0:
            self.status.left_s = 0.0
        if self._progress is not None:
            self._progress(self.status)


@contextlib.contextmanager
def started(
    planned: Plan,
    out: str | os.PathLike[str] | None,
    executor: Executor,
    *,
    retry: bool = False,
    progress: Callable[[Status], None] | None = None,
    note: Callable[[str], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Running]:
    """Locks a campaign's folder, removes leftovers, sets damaged parts aside and writes the manifest.

    Raises:
        ResultError: the folder has another campaign or is locked by another process, or cannot be written.
    """
    store = Store.at(_default_url(planned) if out is None else out, options)
    _refuse_others(store)
    with Lock(store) as lock:
        there = Manifest.of(store)
        full = planned if there is None else grown(planned, there, store.url)
        if there is not None:
            for words in store.set_damaged_aside():
                if note is not None:
                    note(words)
            store.sweep_up()
        if there is None or there != full.manifest:
            store.write_manifest(full.manifest.to_dict())
        if retry:
            _forget_failed(Campaign(store.url, full.manifest, store), store)
        yield Running(store, full, executor, progress, lock)


def sweep(
    scenario: Scenario | str | os.PathLike[str],
    *,
    seeds: Iterable[int] | str | None = None,
    vary: Mapping[str, object] | None = None,
    overrides: Overrides = (),
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on: str | None = None,
    plugins: Sequence[str | os.PathLike[str]] = (),
    retry: bool = False,
    until: str | None = None,
    budget: str | int | None = None,
    progress: Callable[[Status], None] | None = None,
    note: Callable[[str], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Campaign:
    """Runs every point of a scenario's `[sweep]` with every seed; runs in the folder are not repeated.

    Args:
        scenario: a `Scenario`, or the path of its file.
        seeds: seeds that replace those of the sweep; if seeds have no effect, only the first is run.
        vary: further axes: keys with a list of values, a range (a table, as in the file), or "all" for all registered
            names.
        overrides: keys replaced at every point (key, TOML value).
        out: folder, or a URL of fsspec; by default a folder below `runs/`.
        workers: number of parallel runs on this machine; one per core by default.
        on: machines that execute the runs, `dask://HOST:PORT`; this machine by default.
        plugins: Python files with user-defined algorithms.
        retry: whether failed runs are repeated.
        until: question to be decided at each point, such as "control.share >= 99.999% ± shown"; seeds are added until
            it is (`execute.until`). The returned campaign has its `answers`.
        budget: maximum number of runs, or a time such as "30min"; 10 000 runs by default. Needs `until`.
        progress: receives the completed share.
        note: receives notes for the user, such as names that `all` leaves out.
        storage_options: fsspec's options for `out`.

    Raises:
        ScenarioError: the sweep, a point or the question is invalid; nothing was run.
        ResultError: the folder has another campaign, is locked by another process, or cannot be written.
        KeyboardInterrupt: Ctrl-C; completed runs are kept, and the same call continues from there.
    """
    asked = None if until is None else question(until)
    limit = budget_of(None if budget is None else str(budget))
    if asked is None and budget is not None:
        raise ScenarioError("--budget: found it without --until, expected both")
    planned = plan(
        scenario, seeds=seeds, vary=vary, overrides=overrides, plugins=plugins, several=None if asked is None else True
    )
    if asked is not None:
        asked.check(planned.flows, planned.videos)
    for words in planned.notes if note is not None else ():
        note(words)  # type: ignore[misc]
    executor = executor_of(on, workers)
    with started(planned, out, executor, retry=retry, progress=progress, note=note, options=storage_options) as running:
        if asked is not None:
            answers = tuple(run_until(running, asked, limit))
            return replace(running.campaign, answers=answers, notices=planned.notes)
        full = running.plan
        running.run(lambda: ((point, seed) for point in full.wanted for seed in full.seeds_of(point)))
        return replace(running.campaign, notices=planned.notes)


def executor_of(on: str | None, workers: int | None) -> Executor:
    """Returns the executor of the runs.

    Raises:
        ResultError: `on` is not `dask://HOST:PORT`, or no scheduler answers.
    """
    if on is None:
        return Threads(workers)
    if workers is not None:
        raise ResultError(f"--workers: found it with --on {on}, expected it for this machine alone")
    return Dask(on)


def _default_url(planned: Plan) -> str:
    """Returns a folder below `runs` for this campaign: its earlier folder or a new one."""

    def fits(folder: str) -> bool:
        store = Store.at(folder)
        try:
            _refuse_others(store)
            there = Manifest.of(store)
            if there is not None:
                grown(planned, there, folder)
        except ResultError:
            return False
        return True

    return str(campaign_folder(planned.manifest.name, fits))


def _refuse_others(store: Store) -> None:
    """Raises if a folder has anything but a campaign."""
    if store.local:
        place = store.place("")
        if os.path.islink(place.rstrip("/")) and not os.path.exists(place):  # noqa: PTH110, PTH114 the path is fsspec's
            raise ResultError(f"{store.url}: found a symbolic link to nothing, expected a folder for the campaign")
        if os.path.exists(place) and not os.path.isdir(place):  # noqa: PTH110, PTH112 the path is fsspec's
            raise ResultError(f"{store.url}: found a file, expected a folder for the campaign")
    if store.manifest() is None and not store.is_empty():
        raise ResultError(
            f"{store.url}: found files in it that are no campaign's, expected a new folder or a campaign's; "
            "nothing was changed"
        )


def _forget_failed(campaign: Campaign, store: Store) -> None:
    """Removes failed runs from the tables, so that they are repeated."""
    for name in store.parts():
        part = store.read_part(RUNS, name, campaign.schemas[RUNS])
        kept = part.filter(pl.col("status") != FAILED)
        if kept.is_empty():
            store.remove_part(name)
        elif len(kept) < len(part):
            store.write_part({RUNS: kept}, name)

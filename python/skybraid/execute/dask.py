"""Runs on other machines, through a Dask scheduler: `--on dask://HOST:PORT`.

A batch of runs is sent as text, keys and seeds, and returned as rows; only this process writes the dataset. A batch
that was lost with its worker is repeated by another worker. Its rows are written once, when they have been returned.
"""

from __future__ import annotations

import importlib
import os
import queue
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from skybraid.execute.batches import Base, Batch, run_batch
from skybraid.execute.rows import Outcome
from skybraid.model import algorithms
from skybraid.model.errors import ResultError

_CONNECT_S = 10.0
_POLL_S = 0.2
_AHEAD = 3
"""Batches a core that are under way, so that none waits for the next."""

_ATTEMPTS = 3
"""How often a batch whose workers die is sent out again, after as many attempts of the scheduler each."""

_NO_WORKER_S = 60.0


class Dask:
    """Executes runs on the workers of a Dask scheduler.

    Args:
        url: `dask://HOST:PORT`.

    Raises:
        ResultError: the URL has another form, Dask is not installed, or no scheduler answers.
    """

    target_s = 1.0

    def __init__(self, url: str) -> None:
        found = re.fullmatch(r"dask://([^/]+:\d+)/?", url)
        if found is None:
            raise ResultError(f"--on: found {url}, expected dask://HOST:PORT")
        try:
            self._distributed = importlib.import_module("distributed")
        except ImportError as error:
            raise ResultError(f"--on: {url} needs the package distributed; install skybraid[cluster]") from error
        self.url = url
        try:
            self._client = self._distributed.Client(f"tcp://{found[1]}", timeout=_CONNECT_S, set_as_default=False)
        except (OSError, NotYet) as error:
            raise ResultError(f"--on: {url}: no Dask scheduler answers: {error}") from error

    def outcomes(self, base: Base, batches: Iterator[Batch]) -> Iterator[Sequence[Outcome]]:
        """Iterates over the outcomes of batches, with a few per core in progress."""
        shipped = replace(base, file=str(Path(base.file).resolve()))
        pending: dict[Any, tuple[Batch, int]] = {}
        numbers = count()
        session = os.urandom(6).hex()
        last_sign = time.monotonic()
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def submit(batch: Batch, attempt: int) -> None:
            key = f"skybraid-{session}-{next(numbers)}"
            future = self._client.submit(run_there, shipped, batch, key=key, pure=False)
            pending[future] = (batch, attempt)
            future.add_done_callback(ended.put)

        try:
            while True:
                cores = sum(self._client.nthreads().values())
                for batch in islice(batches, max(_AHEAD * max(cores, 1) - len(pending), 0)):
                    submit(batch, 1)
                if not pending:
                    return
                done = _drained(ended)
                outcomes: list[Outcome] = []
                for future in done:
                    if future not in pending:
                        continue
                    batch, attempt = pending.pop(future)
                    outcomes += self._taken(future, batch, attempt, submit)
                if done or cores:
                    last_sign = time.monotonic()
                elif time.monotonic() - last_sign > _NO_WORKER_S:
                    raise ResultError(f"--on: {self.url}: found no worker for {_NO_WORKER_S:g} s, expected one or more")
                yield outcomes
        finally:
            self._client.cancel(list(pending))
            self._client.close()

    def _taken(self, future: Any, batch: Batch, attempt: int, submit: Any) -> Sequence[Outcome]:  # noqa: ANN401
        """Returns the rows of a batch that has ended; a batch that was lost with its worker is submitted again."""
        if future.status == "finished":
            rows: Sequence[Outcome] = future.result()
            return rows
        if attempt < _ATTEMPTS:
            submit(batch, attempt + 1)
            return ()
        error = future.exception() if future.status == "error" else None
        words = f"lost with its workers: {type(error).__name__}: {error}"
        return [Outcome(point, seed, words, 0.0, 0.0) for point, seed in batch.jobs]


def _drained(ended: queue.SimpleQueue[Any]) -> list[Any]:
    """Returns the futures that have ended; waits a short time for the first."""
    found = []
    try:
        found.append(ended.get(timeout=_POLL_S))
        while True:
            found.append(ended.get_nowait())
    except queue.Empty:
        return found


def run_there(base: Base, batch: Batch) -> list[Outcome]:
    """Executes a batch on a worker, which must have the scenario's trace files at the same paths."""
    for file, text in base.plugins:
        _load(file, text)
    return run_batch(base, batch)


_loaded: set[str] = set()


def _load(file: str, text: str) -> None:
    """Registers the algorithms of a plugin from its text."""
    if text in _loaded:
        return
    folder = Path(tempfile.mkdtemp(prefix="skybraid-"))
    place = folder / Path(file).name
    place.write_text(text, encoding="utf-8")
    algorithms.load(place)
    _loaded.add(text)

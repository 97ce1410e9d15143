"""When the machine stood still: a host that gives its time to others delays whatever runs at that moment.

On each processor a program that goes before all others sleeps a millisecond at a time. What it oversleeps, nothing
could run there; no gateway can be late for it, nor can one that is late be excused by it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from typing import IO, TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

STEP_S = 0.001

MIN_NS = 2_000_000
"""What is overslept by less is no stall: a timer and a switch of programs take some of it."""


class StallError(Exception):
    """The machine stood still too often for a verdict."""


class Stalls:
    """Watches the processors while its block is active; times are those of the monotonic clock."""

    def __init__(self) -> None:
        self._logs: list[IO[bytes]] = []
        self._watchers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for processor in sorted(os.sched_getaffinity(0)):
            log = tempfile.TemporaryFile()
            self._logs.append(log)
            self._watchers.append(subprocess.Popen([sys.executable, __file__, str(processor)], stdout=log))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stops watching and drops the recorded stalls."""
        for watcher in self._watchers:
            watcher.kill()
            watcher.wait()
        for log in self._logs:
            log.close()

    def seen(self) -> NDArray[np.int64]:
        """Returns the stalls so far, sorted by start: an array of shape (stalls, 2), start and end in ns."""
        words: list[bytes] = []
        for log in self._logs:
            # The watcher writes at the place where its descriptor and this one's stand; a look moves neither.
            text = os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0)
            words += text[: text.rfind(b"\n") + 1].split()
        found = np.array(words, dtype=np.int64).reshape(-1, 2)
        return found[np.argsort(found[:, 0])]

    def between_ms(self, begin_ns: int, end_ns: int) -> float:
        """Returns the total duration of stalls between two instants in ms."""
        seen = self.seen()
        within = np.minimum(seen[:, 1], end_ns) - np.maximum(seen[:, 0], begin_ns)
        return float(within[within > 0].sum()) / 1e6


def spared(seen: NDArray[np.int64], begins_ns: NDArray[np.int64], length_ns: int) -> NDArray[np.bool_]:
    """Returns which periods of `length_ns`, by their starts, are free of stalls."""
    ends_ns = np.sort(seen[:, 1])
    # The number of stalls that began before such a time ended, less those that were over before it began.
    begun = np.searchsorted(seen[:, 0], begins_ns + length_ns, side="left")
    over = np.searchsorted(ends_ns, begins_ns, side="right")
    return np.asarray(begun == over)


def watch(processor: int) -> None:
    """Prints one line per stall, its start and end, while the parent process lives."""
    parent = os.getppid()
    os.sched_setaffinity(0, [processor])
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    step_ns = round(STEP_S * 1e9)
    while os.getppid() == parent:
        before_ns = time.monotonic_ns()
        time.sleep(STEP_S)
        now_ns = time.monotonic_ns()
        if now_ns - before_ns - step_ns > MIN_NS:
            os.write(1, b"%d %d\n" % (before_ns, now_ns))


if __name__ == "__main__":
    watch(int(sys.argv[1]))

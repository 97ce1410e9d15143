"""Handles SIGTERM like Ctrl-C: a terminated command cleans up, says so, and has its own exit code."""

import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_terminated = threading.Event()
_last_s = -math.inf
_SAME_S = 0.5
"""SIGTERM twice within this time is one: a process group gets it, and the sandbox passes it on."""


def catch_sigterm() -> None:
    """Makes SIGTERM interrupt this process like Ctrl-C, unless its parent ignores the signal."""
    if sys.platform != "win32" and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _interrupt)


def was_terminated() -> bool:
    """Whether SIGTERM arrived."""
    return _terminated.is_set()


@contextmanager
def deferred() -> Iterator[None]:
    """Context manager that defers Ctrl-C and SIGTERM to its end.

    An exception raised by a signal while a lock is being acquired would leave it locked for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}

    for number in ours:
        signal.signal(number, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    for signal_number, frame in arrived:
        ours[signal.Signals(signal_number)](signal_number, frame)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _last_s
    _terminated.set()
    before_s, _last_s = _last_s, time.monotonic()
    if _last_s - before_s > _SAME_S:
        raise KeyboardInterrupt

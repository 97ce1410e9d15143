"""SIGTERM as Ctrl-C: a command that is terminated cleans up and says so, with an exit code of its own."""

import math
import signal
import sys
import threading
import time
from types import FrameType

_terminated = threading.Event()
_last_s = -math.inf
_SAME_S = 0.5
"""SIGTERM twice within this time is one: a process group gets it, and the sandbox passes it on."""


def catch_sigterm() -> None:
    """Has SIGTERM interrupt this process as Ctrl-C does, unless its parent has it ignored."""
    if sys.platform != "win32" and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _interrupt)


def was_terminated() -> bool:
    """Whether SIGTERM arrived."""
    return _terminated.is_set()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _last_s
    _terminated.set()
    before_s, _last_s = _last_s, time.monotonic()
    if _last_s - before_s > _SAME_S:
        raise KeyboardInterrupt

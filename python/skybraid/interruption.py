"""SIGTERM as Ctrl-C: a command that is terminated cleans up and says so, with an exit code of its own."""

import signal
import sys
import threading
from types import FrameType

_terminated = threading.Event()


def catch_sigterm() -> None:
    """Has SIGTERM interrupt this process as Ctrl-C does, unless its parent has it ignored."""
    if sys.platform != "win32" and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, _interrupt)


def was_terminated() -> bool:
    """Whether SIGTERM arrived."""
    return _terminated.is_set()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    _terminated.set()
    raise KeyboardInterrupt

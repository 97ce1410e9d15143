"""Ctrl-C and SIGTERM while locks are being taken."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from skybraid.execute.interruption import deferred


@pytest.fixture(autouse=True)
def handlers_of_a_terminal() -> Iterator[None]:
    """Those of a program in the foreground: in a background process Ctrl-C may be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_until_the_end_of_what_it_must_not_break() -> None:
    reached = []

    def interrupted() -> None:
        with deferred():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_while_the_command_is_imported_ends_it_quietly() -> None:
    words = """import os, signal
from skybraid import __main__
__main__.import_module = lambda name: os.kill(os.getpid(), signal.SIGINT)
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_without_a_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with deferred():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before

"""The types of the native module are those that it has."""

import subprocess
import sys


def test_the_stub_of_the_native_module_matches_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "skybraid._core"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout

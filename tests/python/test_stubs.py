"""The types of the native module are those that it has."""

import subprocess
import sys
from pathlib import Path

WITHOUT_THE_PACKAGE = "[mypy]\n[mypy-skybraid]\nfollow_imports = skip\n"
"""The module is read alone: the package around it, with all that it imports, takes six times as long."""


def test_the_stub_of_the_native_module_matches_it(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text(WITHOUT_THE_PACKAGE, encoding="utf-8")
    stubtest = [sys.executable, "-m", "mypy.stubtest", "skybraid._core", "--mypy-config-file", str(config)]
    done = subprocess.run(stubtest, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout

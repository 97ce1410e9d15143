"""The random search of `make search`, on its first scenarios."""

import subprocess
import sys
from pathlib import Path

SEARCH = Path(__file__).parents[2] / "benches" / "search.py"


def test_no_verdict_of_the_first_scenarios_is_refuted() -> None:
    found = subprocess.run(
        [sys.executable, SEARCH, "--scenarios", "5"], capture_output=True, text=True, check=False, timeout=600
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "0 findings in 5 scenarios." in found.stdout

"""The systemd unit, as systemd itself reads it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "packaging" / "skybraid-gateway@.service"

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def analyze(*words: str | Path) -> str:
    """Returns the output of systemd-analyze, including warnings."""
    done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    # A program that exists stands for the gateway's, which need not be installed here.
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/skybraid-node", "/bin/true")
    unit.write_text(text, encoding="utf-8")
    # systemd also reads the machine's own units, whose faults are not this one's.
    assert [line for line in analyze("verify", unit).splitlines() if unit.name in line] == []


def test_the_unit_exposes_little(tmp_path: Path) -> None:
    shown = analyze("security", "--offline=true", UNIT)
    if "nknown option" in shown or "unrecognized option" in shown:
        pytest.skip("this systemd cannot judge a unit that is not loaded")
    found = re.search(r"exposure level .*: ([\d.]+) ", shown)
    assert found is not None, shown
    # systemd calls up to 4.9 OK.
    assert float(found[1]) < 3

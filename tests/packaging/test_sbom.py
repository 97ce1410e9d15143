"""The bill of materials: complete, with the sources' checksums."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "has", "lacks"), [("skybraid", "numpy", "clap"), ("skybraid-node", "snow", "pyo3")])
def test_a_bill_names_all_parts_with_their_checksums(name: str, has: str, lacks: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "packaging/build_sbom.py", tmp_path], check=True)
    bill = json.loads((tmp_path / f"{name}.cdx.json").read_text())
    parts = {part["bom-ref"]: part for part in bill["components"]}
    names = {part["name"] for part in parts.values()}
    assert has in names
    assert lacks not in names
    assert "proptest" not in names
    for ref, part in parts.items():
        ours = part["name"].startswith("skybraid-")
        assert ref.startswith("pkg:pypi/") or ("hashes" in part) != ours, ref
    refs = {*parts, bill["metadata"]["component"]["bom-ref"]}
    assert {entry["ref"] for entry in bill["dependencies"]} <= refs
    assert {ref for entry in bill["dependencies"] for ref in entry["dependsOn"]} <= refs

"""Writes what a package consists of as CycloneDX: its Rust crates, and of the wheel the Python packages it asks for."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def crates(package: str, target: str) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, list[str]]]:
    """Returns a package of the workspace, all crates that it is linked from, and who uses whom.

    Args:
        package: its name.
        target: the system it is built for, as Rust calls it.
    """
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    packages = {one["id"]: one for one in metadata["packages"]}
    uses = {
        node["id"]: sorted(
            dep["pkg"] for dep in node["deps"] if any(kind["kind"] in (None, "build") for kind in dep["dep_kinds"])
        )
        for node in metadata["resolve"]["nodes"]
    }
    (root,) = (one["id"] for one in metadata["packages"] if one["name"] == package)
    linked, waiting = {root}, [root]
    while waiting:
        new = [one for one in uses[waiting.pop()] if one not in linked]
        linked.update(new)
        waiting += new
    names = {one: purl(packages[one]) for one in linked}
    below = {names[one]: [names[each] for each in uses[one]] for one in linked}
    found = [packages[one] for one in linked - {root}]
    return packages[root], sorted(found, key=lambda one: (one["name"], one["version"])), below


def purl(crate: dict[str, Any]) -> str:
    """Returns a crate's package URL."""
    return f"pkg:cargo/{crate['name']}@{crate['version']}"


def component(crate: dict[str, Any], checksums: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Describes a crate: name, version, licence, and the checksum of its source where it is not ours."""
    name, version = crate["name"], crate["version"]
    found = {"type": "library", "bom-ref": purl(crate), "name": name, "version": version, "purl": purl(crate)}
    if crate["license"]:
        found["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
    if checksum := checksums.get((name, version)):
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return found


def python_packages() -> list[dict[str, Any]]:
    """Describes the packages that the wheel asks for, with their bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    for requirement in project["dependencies"]:
        name, bounds = re.fullmatch(r"([\w.-]+)(.*)", requirement.partition(";")[0].strip()).groups()  # type: ignore[union-attr]
        ref = f"pkg:pypi/{name.lower()}"
        found.append({"type": "library", "bom-ref": ref, "name": name, "version": bounds, "purl": ref})
    return found


def bill(package: str, target: str, *, python: bool) -> dict[str, Any]:
    """Returns the bill of materials of a package; equal inputs give equal bytes."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock if "checksum" in one}
    root, linked, below = crates(package, target)
    wanted = python_packages() if python else []
    below[purl(root)] = sorted([*below[purl(root)], *(one["bom-ref"] for one in wanted)])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root, checksums) | {"type": "application"}},
        "components": [component(one, checksums) for one in linked] + wanted,
        "dependencies": [{"ref": ref, "dependsOn": uses} for ref, uses in sorted(below.items())],
    }


def main() -> None:
    """Writes `OUT/NAME.cdx.json` of the wheel and of the gateway."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, package, target, python in (
        ("skybraid", "skybraid-python", "x86_64-unknown-linux-gnu", True),
        ("skybraid-node", "skybraid-node", "x86_64-unknown-linux-musl", False),
    ):
        text = json.dumps(bill(package, target, python=python), indent=1)
        (out / f"{name}.cdx.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

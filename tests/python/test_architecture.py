"""The laws that the compiler does not hold: who may use whom, and how long a file may grow."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

PURE = ("units", "track", "orbit", "link", "transport", "traffic", "host", "gateway", "sim")

MAY_USE = {
    "units": set[str](),
    "track": {"units"},
    "orbit": {"units", "track"},
    "link": {"units"},
    "transport": {"units"},
    "traffic": {"units"},
    "host": {"units", "link", "transport", "traffic"},
    "gateway": {"units", "transport", "traffic", "link"},
    "sim": {"host", "units", "link", "transport", "traffic"},
    "scenario": {"host", "gateway", "units", "track", "orbit", "link", "transport", "traffic"},
    "runtime": {"scenario", "gateway", "host", "units", "track", "orbit", "link", "transport", "traffic"},
    "node": {"runtime", "scenario", "gateway", "transport", "units"},
    "python": {
        "scenario",
        "sim",
        "runtime",
        "host",
        "units",
        "track",
        "orbit",
        "link",
        "transport",
        "traffic",
    },
}
"""Which rooms each room may use."""

USES = {
    "units": "libm rand_core rand_pcg serde thiserror",
    "track": "units libm roxmltree serde thiserror",
    "orbit": "units track libm serde serde_json sgp4 thiserror",
    "link": "units libm serde thiserror",
    "transport": "units libm serde thiserror",
    "traffic": "units libm serde thiserror",
    "host": "units link transport traffic serde",
    "gateway": "units transport traffic curve25519-dalek serde snow thiserror",
    "sim": "units link transport host",
    "scenario": "units track orbit link transport traffic host gateway serde serde_path_to_error sha2 strsim thiserror "
    "toml_edit",
    "runtime": "units link transport traffic host gateway scenario etherparse httparse libc netlink-packet-core "
    "netlink-packet-generic netlink-packet-route netlink-sys nix pcap-file serde serde_json socket2 thiserror",
    "node": "gateway transport scenario runtime clap nix serde_json thiserror",
    "python": "units orbit link transport traffic host sim scenario runtime numpy pyo3",
}
"""What each room uses, word for word, so that none gains a dependency unnoticed."""

LONGEST = 620
"""Lines after which a file wants a new room."""


@pytest.fixture(scope="module")
def packages() -> dict[str, dict[str, Any]]:
    """Every crate of the workspace by its short name, as cargo describes it."""
    if shutil.which("cargo") is None:
        pytest.skip("the dependency graph is read with cargo, which is not installed")
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    described = json.loads(told)
    members = set(described["workspace_members"])
    return {room(package["name"]): package for package in described["packages"] if package["id"] in members}


def room(crate: str) -> str:
    return crate.removeprefix("skybraid-")


def used(package: dict[str, Any], *kinds: str | None) -> set[str]:
    """Names of a crate's dependencies of some kinds: None (normal), "build" or "dev"."""
    return {room(dependency["name"]) for dependency in package["dependencies"] if dependency["kind"] in kinds}


def sources(*patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(ROOT.glob(pattern))


def test_every_room_uses_exactly_what_its_line_says(packages: dict[str, dict[str, Any]]) -> None:
    found = {name: used(package, None) for name, package in packages.items() if name != "bench"}
    assert found == {name: set(words.split()) for name, words in USES.items()}


def test_no_room_uses_another_that_the_design_does_not_allow(packages: dict[str, dict[str, Any]]) -> None:
    for name, allowed in MAY_USE.items():
        assert used(packages[name], None, "build", "dev") & packages.keys() <= allowed, name


def test_no_room_runs_code_while_it_is_built(packages: dict[str, dict[str, Any]]) -> None:
    assert {name: used(package, "build") for name, package in packages.items() if used(package, "build")} == {}


@pytest.mark.parametrize("name", PURE)
def test_a_pure_room_keeps_the_system_and_unsafe_code_out(name: str) -> None:
    text = (ROOT / "crates" / name / "src" / "lib.rs").read_text(encoding="utf-8")
    code = [line for line in text.splitlines() if line and not line.startswith("//!")]
    assert code[:2] == ["#![no_std]", "#![forbid(unsafe_code)]"]
    for file in sources(f"crates/{name}/src/**/*.rs"):
        assert "extern crate std" not in file.read_text(encoding="utf-8"), file


def test_no_file_is_longer_than_a_room() -> None:
    lengths = {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines())
        for file in sources("crates/**/*.rs", "python/**/*.py", "python/**/*.pyi")
    }
    assert lengths
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST}
    assert too_long == {}


def test_a_lint_is_switched_off_only_with_a_reason() -> None:
    bare = re.compile(r"#!?\[(?:allow|expect)\((?![^\]]*reason\s*=)[^\]]*\]")
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in sources("crates/*/src/**/*.rs")
        for match in bare.finditer(file.read_text(encoding="utf-8"))
    ]
    assert found == []

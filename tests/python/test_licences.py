"""What is linked comes from crates.io under licences that deny.toml allows; `make audit` also asks for advisories."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]["allow"])


def allows(expression: str) -> bool:
    """Whether an SPDX expression can be met with the allowed licences; the old `/` stands for OR."""
    text = re.sub(r"\(([^()]*)\)", lambda inner: "MIT" if allows(inner[1]) else "none", expression.replace("/", " OR "))
    return any(all(one.strip() in ALLOWED for one in either.split(" AND ")) for either in text.split(" OR "))


@pytest.fixture(scope="module")
def crates() -> list[dict[str, Any]]:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)["packages"]
    return [package for package in packages if package["source"] is not None]


def test_every_crate_has_a_licence_that_is_allowed(crates: list[dict[str, Any]]) -> None:
    assert len(crates) > 100
    assert [crate["name"] for crate in crates if not allows(crate["license"] or "none")] == []


def test_every_crate_comes_from_the_registry(crates: list[dict[str, Any]]) -> None:
    assert {crate["source"] for crate in crates} == {"registry+https://github.com/rust-lang/crates.io-index"}


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT/Apache-2.0", True),
        ("GPL-3.0 OR MIT", True),
        ("Apache-2.0 AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", True),
        ("(MIT AND GPL-3.0) OR AGPL-3.0", False),
    ],
)
def test_an_expression_is_read_as_spdx_says(expression: str, allowed: bool) -> None:
    assert allows(expression) is allowed

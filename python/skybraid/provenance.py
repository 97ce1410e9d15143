"""Where a result comes from: enough to fly it again and to notice when something differs."""

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from skybraid import _core, algorithms
from skybraid.errors import ScenarioError
from skybraid.scenario import Scenario

PACKAGES = ("bokeh", "fsspec", "jinja2", "matplotlib", "numpy", "polars", "rich", "scipy", "tomli-w", "typer")
"""Python packages that Skybraid stands on."""


def essence(scenario: Scenario, seeds: Sequence[int], driver: str = "simulation") -> dict[str, Any]:
    """What determines the tables, and nothing else: equal essence of a simulation, equal tables.

    Args:
        scenario: what is flown.
        seeds: how often.
        driver: "simulation" or "emulation"; the latter's tables differ each time, as real time and real programs do.
    """
    return {
        "version": _core.__version__,
        "driver": driver,
        "scenario": {"name": scenario.name, "sha256": hashlib.sha256(scenario.toml().encode()).hexdigest()},
        "seeds": list(seeds),
        "inputs": [
            {"file": file, "sha256": digest} for file, digest in [*scenario.inputs(), *algorithms.inputs(scenario)]
        ],
    }


def provenance(essence_: dict[str, Any], replay: str, started: datetime, wall_s: float) -> dict[str, Any]:
    """The essence together with the circumstances: programs, machine, wall time."""
    return essence_ | {
        "replay": replay,
        "circumstances": {
            "started": started.isoformat(timespec="seconds"),
            "wall_s": wall_s,
            "python": platform.python_version(),
            "packages": {name: package_version(name) for name in PACKAGES},
            "system": platform.platform(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        },
    }


def replay_command(scenario: Scenario, seeds: Sequence[int], command: str = "run", options: Sequence[str] = ()) -> str:
    """The command line that flies the same again, from the folder where it was given.

    Args:
        scenario: what is flown.
        seeds: how often.
        command: "run" or "emulate".
        options: further words of the command line.
    """
    words = ["skybraid", command, scenario.file]
    if len(seeds) == 1:
        words += ["--seed", str(seeds[0])]
    else:
        words += ["--seeds", seeds_text(seeds)]
    for key, value in scenario.overrides:
        words += ["--set", f"{key}={value}"]
    for file, _ in algorithms.inputs(scenario):
        words += ["--plugin", file]
    return shlex.join([*words, *options])


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as the command line takes them: "7", "1..100" or "3,5,8"."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(str(seed) for seed in seeds)


def seeds_from(text: str, where: str = "--seeds") -> list[int]:
    """Seeds as the command line takes them: "1..100", "3,5,8" or "7".

    Raises:
        ScenarioError: it is none of these; `where` stands before what is wrong.
    """
    first, dots, last = text.partition("..")
    try:
        numbers = list(range(int(first), int(last) + 1)) if dots else [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ScenarioError(f"{where}: found {text}, expected a range such as 1..100 or a list such as 3,5,8")
    return numbers


def package_version(name: str) -> str | None:
    """The installed version of a Python package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def footer(essence_: dict[str, Any]) -> dict[str, str]:
    """The essence as it stands in the footer of each Parquet file."""
    return {"skybraid": json.dumps(essence_, sort_keys=True)}


def utc_now() -> datetime:
    """The wall clock's time, which goes into the circumstances alone."""
    return datetime.now(UTC)

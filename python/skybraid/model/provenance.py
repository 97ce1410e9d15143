"""Provenance of a result: enough to run it again and to detect differences."""

import hashlib
import json
import os
import platform
import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NoReturn

from skybraid import _core
from skybraid.model import algorithms
from skybraid.model.errors import ScenarioError
from skybraid.model.heavy import metadata
from skybraid.model.scenario import Scenario

MAX_SEEDS = 1_000_000
"""Maximum number of seeds of a campaign's points."""

MAX_RUNS = 100_000
"""Maximum number of runs that one result holds; it is judged in memory."""

PACKAGES = ("fsspec", "numpy", "polars", "rich", "tomli-w", "typer")
"""Python packages that Skybraid depends on; those that draw change no table."""


def essence(scenario: Scenario, seeds: Sequence[int], driver: str = "simulation") -> dict[str, Any]:
    """Inputs that determine the tables: simulations with equal essence have equal tables.

    Args:
        scenario: the scenario that is run.
        seeds: number of seeds.
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
    """Essence plus circumstances: programs, machine, wall time."""
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
    """Command line that repeats the run, relative to the folder where it was given.

    Args:
        scenario: the scenario that is run.
        seeds: number of seeds.
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
    """Formats seeds for the command line: "7", "1..100" or "3,5,8"."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}..{seeds[-1]}"
    return ",".join(str(seed) for seed in seeds)


def seeds_from(seeds: str | Iterable[int], where: str = "--seeds", max_seeds: int = MAX_SEEDS) -> list[int]:
    """Parses seeds such as "1..100", "3,5,8" or "7"; numbers pass through.

    Args:
        seeds: the text or the numbers.
        where: stands before what is wrong.
        max_seeds: maximum number; a range is not expanded before this is checked.

    Raises:
        ScenarioError: no seeds, one twice, one that is no seed, or too many.
    """
    numbers = _range_or_list(seeds, where) if isinstance(seeds, str) else seeds
    try:
        chosen = list(islice(iter(numbers), max_seeds + 1))
    except TypeError:
        words = f"{where}: found {numbers!r}, expected whole numbers, or a text such as 1..100"
        raise ScenarioError(words) from None
    if len(chosen) > max_seeds:
        found = str(numbers[-1] - numbers[0] + 1) if isinstance(numbers, range) else f"more than {max_seeds}"
        _refuse_many(where, found, max_seeds)
    if not chosen:
        raise ScenarioError(f"{where}: found none, expected at least one")
    seen: set[int] = set()
    for number in chosen:
        if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number < 2**64:
            raise ScenarioError(f"{where}: found {number!r}, expected whole numbers from 0 to 2^64 − 1")
        if number in seen:
            raise ScenarioError(f"{where}: found one twice, {number}; expected each once")
        seen.add(number)
    return [int(number) for number in chosen]


def _range_or_list(text: str, where: str) -> range | list[int]:
    found = re.fullmatch(r"\s*(\d{1,20})\s*\.\.\s*(\d{1,20})\s*", text, re.ASCII)
    if found is not None and int(found[1]) <= int(found[2]):
        return range(int(found[1]), int(found[2]) + 1)
    if re.fullmatch(r"\s*\d{1,20}\s*(,\s*\d{1,20}\s*)*", text, re.ASCII):
        return [int(number) for number in text.split(",")]
    words = "expected a range such as 1..100 or a list such as 3,5,8"
    raise ScenarioError(f"{where}: found {text or 'nothing'}, {words}")


def _refuse_many(where: str, found: str, max_seeds: int) -> NoReturn:
    advice = "run fewer: a requirement's verdict says how many more runs would decide it"
    if max_seeds < MAX_SEEDS:
        advice = "`skybraid sweep` runs more, into a dataset that grows on disk, and `--until` stops it in time"
    raise ScenarioError(f"{where}: found {found} runs, expected at most {max_seeds}; {advice}")


def package_version(name: str) -> str | None:
    """Installed version of a Python package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def footer(essence_: dict[str, Any]) -> dict[str, str]:
    """Essence stored in the footer of each Parquet file."""
    return {"skybraid": json.dumps(essence_, sort_keys=True)}


def utc_now() -> datetime:
    """Wall-clock time, used in the circumstances only."""
    return datetime.now(UTC)

"""Command `doctor`: checks the machine and shows fixes."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from skybraid import _core
from skybraid.cli.options import NOT_MET, AsJson, print_json
from skybraid.model.provenance import PACKAGES, package_version

_ENOUGH_MEMORY_MB = 1024
_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check.

    Attributes:
        name: what was looked at.
        needed_for: "run" (simulation, tables, report), "emulate" (real time, with the kernel) or "some of emulate".
        present: whether it is there.
        found: what is there.
        fix: the line that fixes it, empty where nothing is missing.
    """

    name: str
    needed_for: str
    present: bool
    found: str
    fix: str = ""


def examine() -> list[Check]:
    """Checks Python, its packages, cores, memory and kernel features; changes nothing."""
    return [_python(), _native(), *map(_package, PACKAGES), _cores(), _memory(), *_kernel()]


def conclusions(checks: list[Check]) -> list[str]:
    """Sentences on which commands work here, and what the others lack."""

    def lacks(*needed_for: str) -> str:
        return ", ".join(check.name for check in checks if not check.present and check.needed_for in needed_for)

    found = [
        ("`skybraid run` (simulation)", lacks("run"), ""),
        ("`skybraid emulate`, `shell`, `link` (real time)", lacks("run", "emulate"), lacks("some of emulate")),
    ]
    return [
        f"{commands}: {f'lacks {missing}' if missing else 'works' + (f', but without {partly}' if partly else '')}"
        for commands, missing, partly in found
    ]


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    return Check(
        "Python",
        "run",
        sys.version_info >= _PYTHON,
        found,
        "" if sys.version_info >= _PYTHON else "install Python 3.11 or later",
    )


def _native() -> Check:
    return Check("native module", "run", present=True, found=_core.__version__)


def _package(name: str) -> Check:
    version = package_version(name)
    fix = "" if version else f"python -m pip install -c constraints.txt {name}"
    return Check(f"package {name}", "run", version is not None, version or "not found", fix)


def _cores() -> Check:
    return Check("cores", "run", present=True, found=str(os.cpu_count() or 1))


def _memory() -> Check:
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        available_mb = int(fields["MemAvailable"].split()[0]) // 1024
    except (OSError, KeyError, ValueError):
        return Check("memory", "run", present=True, found="unknown on this system")
    enough = available_mb >= _ENOUGH_MEMORY_MB
    fix = "" if enough else "skybraid run --summary SCENARIO needs under 100 MB"
    return Check("memory", "run", enough, f"{available_mb} MB available", fix)


def _kernel() -> list[Check]:
    return [
        Check(
            str(capability["name"]),
            "emulate" if capability["needed"] else "some of emulate",
            bool(capability["present"]),
            str(capability["found"]),
            str(capability["fix"]),
        )
        for capability in _core.capabilities()
    ]


def doctor(as_json: AsJson = False) -> None:
    """Check this machine and show how to fix what is missing.

    Exit code: 0 if `skybraid run` works, 1 if it does not.

    Example: skybraid doctor
    """
    checks = examine()
    if as_json:
        fields = ("name", "needed_for", "present", "found", "fix")
        print_json({"checks": [{field: getattr(check, field) for field in fields} for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            typer.echo(f"{'ok     ' if check.present else 'missing'}  {check.name:{width}}  {check.found}")
            if check.fix:
                typer.echo(f"         {'':{width}}  fix: {check.fix}")
        for line in conclusions(checks):
            typer.echo(line)
    if not all(check.present for check in checks if check.needed_for == "run"):
        raise typer.Exit(NOT_MET)

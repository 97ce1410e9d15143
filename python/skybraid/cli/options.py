"""Options and exit codes shared by commands, and the loading of plugins."""

from __future__ import annotations

import contextlib
import json
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from skybraid.cli.late import algorithms
from skybraid.model.errors import ScenarioError, SkybraidError
from skybraid.model.folder import check_new_file

MET, NOT_MET, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Seed = Annotated[int | None, typer.Option(help="Random seed (overrides the scenario).")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Replace a key of the scenario; may be repeated.", metavar="KEY=VALUE"),
]
Out = Annotated[Path | None, typer.Option(help="New folder for the result; by default one below runs/.", metavar="DIR")]
Kept = Annotated[
    str | None,
    typer.Option("--tables", help="Tables to keep: messages,subflows,links,decisions,packets,frames.", metavar="A,B"),
]
Pcap = Annotated[bool, typer.Option("--pcap", help="Also write packet captures for Wireshark.")]
Report = Annotated[bool, typer.Option("--report", help="Also write the report into the result.")]
Page = Annotated[Path | None, typer.Option(help="Also write a page that shows the answer.", metavar="FILE.html")]
Live = Annotated[
    bool, typer.Option("--live", help="Serve a page on this machine that fills as it runs; its address is printed.")
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="Python file with your own algorithms; may be repeated.", metavar="FILE"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

JSON_SCHEMA = 1
"""Version of what `--json` prints, its key `schema`: new keys may come without a new number."""

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class Group(TyperGroup):
    """Commands below a word."""

    def get_help_option(self, ctx: Any) -> Any:  # noqa: ANN401 typer's types of these are private
        """Returns the option --help, off unless given: typer imports pydantic to read None as a bool."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


def assignment(text: str) -> tuple[str, str]:
    """Splits the key and value of a `--set`."""
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise ScenarioError(f"--set: found {text}, expected KEY=VALUE, for example path.lte.uplink.rate=5Mbit/s")
    return key.strip(), value.strip()


def print_json(value: dict[str, Any]) -> None:
    """Prints one JSON object, with the version of its form."""
    typer.echo(json.dumps({"schema": JSON_SCHEMA, **value}, ensure_ascii=False, allow_nan=False))


def print_result(value: dict[str, Any], text: object, *, as_json: bool, quiet: bool = False) -> None:
    """Prints what a command found or wrote: as JSON, as text, or nothing."""
    if as_json:
        print_json(value)
    elif not quiet:
        typer.echo(text)


def new_file(path: Path) -> None:
    """Raises if an option names a file that cannot be written, or that exists already."""
    check_new_file(path)
    if path.exists():
        raise ScenarioError(f"{path}: exists already; expected a new file")


def renamed(old: Path | None, new: Path | None, old_name: str, new_name: str) -> Path | None:
    """Returns the value of an option that has a new name, and says so if the old one was given."""
    if old is None:
        return new
    if new is not None:
        raise ScenarioError(f"{old_name}: found it and {new_name}, expected one of them")
    typer.echo(f"note: {old_name} is called {new_name} now", err=True)
    return old


def listed(text: str | None, option: str) -> list[str] | None:
    """Splits an option's comma-separated names, at least one."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ScenarioError(f"{option}: found nothing, expected names with commas between")
    return names


def seconds(option: str, text: str | None) -> float | None:
    """Parses a duration such as "60s", in s."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|h)\s*", text)
    if found is None or float(found[1]) == 0:
        raise ScenarioError(f"{option}: found {text}, expected a time above zero with its unit, for example 60s")
    return float(found[1]) * _UNITS_S[found[2]]


def load_plugins(plugins: list[Path] | None) -> None:
    """Loads files with user-defined algorithms; attributes their exceptions to them."""
    for file in plugins or []:
        try:
            algorithms.load(file)
        except SkybraidError:
            raise
        except Exception as error:  # noqa: BLE001 the file may raise anything
            _blame(error, [file])


def _blame(error: Exception, plugins: list[Path]) -> NoReturn:
    """Exits with the error of a user-defined algorithm: its location, then the frames of its file."""
    trace = traceback.TracebackException.from_exception(error)
    files = {str(file.resolve()) for file in plugins}
    own = next((place for place, frame in enumerate(trace.stack) if frame.filename in files), None)
    if own is not None:
        trace.stack = traceback.StackSummary.from_list(trace.stack[own:])
        last = [frame for frame in trace.stack if frame.filename in files][-1]
        words = f"{Path(last.filename).name}:{last.lineno}: {type(error).__name__}: {error}"
        typer.echo(f"error: {words}", err=True)
    elif isinstance(error, SyntaxError):
        trace.stack = traceback.StackSummary()
        typer.echo(f"error: {Path(error.filename or plugins[0]).name}:{error.lineno or 1}: {error.msg}", err=True)
    typer.echo("".join(trace.format()).rstrip(), err=True)
    raise typer.Exit(BAD_INPUT) from error


@contextlib.contextmanager
def blaming(plugins: list[Path] | None) -> Iterator[None]:
    """Attributes an exception from a user-defined algorithm to that algorithm."""
    try:
        yield
    except (SkybraidError, OSError, MemoryError):
        raise
    except Exception as error:
        if plugins:
            _blame(error, plugins)
        raise

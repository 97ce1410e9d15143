"""Command `list`: algorithms, links and traffic that a scenario may name."""

import shutil
import sys
import textwrap
from typing import Annotated, Any

import typer

from skybraid._core import registry
from skybraid.cli.options import AsJson, Plugins, load_plugins, print_json
from skybraid.model import algorithms
from skybraid.model.errors import ScenarioError, unknown

KINDS = ("schedulers", "congestion", "protocols", "reordering", "links", "traffic", "rate_control", "requirements")


def list_(
    kind: Annotated[
        str | None, typer.Argument(help=", ".join(KINDS) + "; by default the names of all.", metavar="KIND")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="Show one entry; for links, every parameter with its source.", metavar="NAME")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List what a scenario may name, with units, defaults and sources.

    Example: skybraid list links starlink
    """
    load_plugins(plugin)
    if kind is None:
        entries = {kind: _entries(kind) for kind in KINDS}
        if as_json:
            print_json(entries)
            return
        for listed, named in entries.items():
            typer.echo(f"{listed}: {', '.join(entry['name'] for entry in named)}")
        return
    if kind not in KINDS:
        raise ScenarioError(unknown("list", kind, KINDS))
    known = _entries(kind)
    chosen = [entry for entry in known if name in (None, entry["name"])]
    if not chosen:
        raise ScenarioError(unknown(f"list {kind}", str(name), [entry["name"] for entry in known]))
    if as_json:
        print_json({kind: chosen} if name is None else chosen[0])
        return
    typer.echo("\n\n".join(_entry(entry, whole=name is not None) for entry in chosen))
    if kind == "links" and name is None:
        typer.echo("\nEvery number of one with its source: skybraid list links NAME")


def _entries(kind: str) -> list[dict[str, Any]]:
    return registry(kind) + algorithms.entries(kind)


def _entry(entry: dict[str, Any], *, whole: bool) -> str:
    title = f"{entry['name']}: {entry['summary']}"
    if "text" in entry:
        return f"{_wrapped(title)}\n\n{entry['text'].rstrip()}" if whole else _wrapped(title)
    lines = [title, f"    source: {entry['source']}"]
    for parameter in entry["parameters"]:
        unit = f" [{parameter['unit']}]" if parameter["unit"] else ""
        summary = f": {parameter['summary']}" if parameter["summary"] else ""
        lines.append(f"    {parameter['name']}{unit} = {parameter['default']}{summary}")
    if entry["linux"]:
        lines.append(f'    with compat = "linux": {entry["linux"]}')
    return "\n".join(map(_wrapped, lines))


def _wrapped(line: str) -> str:
    """Wraps a line to the terminal's width; returns it unchanged if the output is not a terminal."""
    if not sys.stdout.isatty():
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, shutil.get_terminal_size().columns, subsequent_indent=indent)

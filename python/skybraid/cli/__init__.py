"""Command `skybraid`: a table of commands, each in its own file, imported on use.

Other distributions add commands through entry points of the group `skybraid.commands`, each the `Entry` of a command.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from skybraid._core import __version__
from skybraid.cli.manual import EXAMPLE, UNWRAPPED, Command, described
from skybraid.cli.options import BAD_INPUT, INTERRUPTED, TERMINATED, Group, print_json
from skybraid.execute import interruption
from skybraid.model.errors import MissingExtraError, SkybraidError

VERSION = f"skybraid {__version__}"

OF_THE_GATEWAY = ("gateway", "keygen", "status")
"""Commands of `skybraid-node` that are looked for here."""

GROUP = "skybraid.commands"
"""Group of entry points through which other distributions add commands."""


class Entry(NamedTuple):
    """Command: its location as `module:name`, the first sentence of its help, and its settings."""

    place: str
    help: str
    settings: dict[str, Any] | None = None


COMMANDS = {
    "emulate": Entry("skybraid.cli.emulate:emulate", "Run a scenario in real time over real sockets and judge it."),
    "shell": Entry("skybraid.cli.emulate:shell", "Open a shell in the vehicle, over a scenario's links."),
    "link": Entry("skybraid.cli.emulate:link", "Run a program behind one link.", {"allow_interspersed_args": False}),
    "orbit": Entry(
        "skybraid.cli.orbit:orbit",
        "Show which satellite serves a terminal over time, with its elevation and delay.",
    ),
    "report": Entry(
        "skybraid.cli.report:report",
        "Write the report of a result, a campaign, a comparison or a flight's gateway logs as one HTML file.",
    ),
    "plot": Entry(
        "skybraid.cli.plot:plot",
        "Draw figures of a result or a campaign for print: distributions, paths over time, heat maps and more.",
    ),
    "sweep": Entry(
        "skybraid.cli.sweep:sweep",
        "Run a scenario over many points and seeds into one dataset; finished runs are not repeated.",
    ),
    "network": Entry(
        "skybraid.cli.network:network", "Show the nodes and links of a scenario and the route of each subflow."
    ),
    "run": Entry("skybraid.cli.run:run", "Simulate a scenario and judge it."),
    "compare": Entry(
        "skybraid.cli.compare:compare",
        "Rank schedulers and congestion controls over a scenario or measured flights, or compare two scenarios.",
    ),
    "explain": Entry(
        "skybraid.cli.explain:explain",
        "Explain why requirements were missed, what would change the verdict, and how the paths were used.",
    ),
    "list": Entry("skybraid.cli.list:list_", "List what a scenario may name, with units, defaults and sources."),
    "new": Entry("skybraid.cli.new:new", "Write a commented scenario or an algorithm as a starting point."),
    "check-plugin": Entry("skybraid.cli.check_plugin:check_plugin", "Test your own algorithms in random situations."),
    "completion": Entry(
        "skybraid.cli.completion:completion_command", "Print the completion of commands and options for a shell."
    ),
    "schema": Entry(
        "skybraid.cli.schema:schema",
        "Print the JSON Schema of scenario or gateway files, for completion and checks in editors.",
    ),
    "doctor": Entry("skybraid.cli.doctor:doctor", "Check this machine and show how to fix what is missing."),
    "clean": Entry(
        "skybraid.cli.clean:clean",
        "Remove leftovers of interrupted runs: unfinished results, control sockets without an emulation.",
    ),
    "assess": Entry(
        "skybraid.cli.assess:assess_command",
        "Rank transports over measured flights; report which ones are good enough and what to measure next.",
    ),
    "judge": Entry(
        "skybraid.cli.judge:judge",
        "Judge the required link performance of a stored result or of the logs of both gateways.",
    ),
    "fit": Entry(
        "skybraid.cli.fit:fit",
        "Fit a link of random processes to measurements, and compare the fit with held-out measurements.",
    ),
    "trace": Entry("skybraid.cli.trace:app", "Describe, draw, convert, import and join traces."),
    "ctl": Entry("skybraid.cli.ctl:app", "Watch a running emulation, cut its paths, change its links."),
    "video": Entry(
        "skybraid.cli.video:app", "Encode clips, send and receive them as RTP, and judge the pictures of a run."
    ),
    "probe": Entry(
        "skybraid.cli.probe:app", "Measure a network from its ends: round trips, connections, web pages, QUIC."
    ),
}


GROUPS = {
    "Simulate and judge": ("new", "run", "explain", "compare", "sweep", "assess"),
    "Look at results": ("report", "plot", "judge"),
    "Links, routes and measurements": ("list", "trace", "fit", "network", "orbit"),
    "Real time": ("emulate", "shell", "link", "ctl", "probe", "video"),
    "This machine": ("doctor", "clean", "check-plugin", "schema", "completion"),
}
"""Sections of the help; commands of other distributions have one of their own."""


@cache
def added() -> dict[str, Entry]:
    """Returns the commands that installed distributions add, by name.

    Reads the files of PyPA's "Entry points specification" itself: importlib.metadata imports a reader of mail for
    them, a sixth of what `--help` takes.
    """
    found: dict[str, str] = {}
    for file in (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt")):
        points = file.read_text(encoding="utf-8").partition(f"[{GROUP}]\n")[2].partition("\n[")[0]
        for line in points.splitlines():
            name, is_point, place = (part.strip() for part in line.partition("="))
            if is_point and name not in COMMANDS:
                found.setdefault(name, place)
    return {name: _object(found[name]) for name in sorted(found)}


def _object(place: str) -> Any:  # noqa: ANN401 an entry of the table, or a command
    """Returns what `module:name` stands for."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


class Commands(Group):
    """Group of all commands, imported lazily."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 typer's types of these are private
        """Returns the names of all commands, in the order of the help."""
        return [*super().list_commands(ctx), *added()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 the same
        """Returns a command's line in the list of commands, or None if it is unknown."""
        known = super().get_command(ctx, cmd_name)
        return _alone(cmd_name, _listed, help=added()[cmd_name].help) if not known and cmd_name in added() else known

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 the same
        """Writes all commands with their whole help, by sections."""
        others = {"Published studies": tuple(added())} if added() else {}
        for title, names in (GROUPS | others).items():
            with formatter.section(title):
                formatter.write_dl([(name, self.get_command(ctx, name).help) for name in names])

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 the same
        """Runs a command; what is missing is named with its help and the command's example."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if not error.message:  # of a missing parameter alone
                command = "" if error.ctx is None else error.ctx.command.help or ""
                example = command.rpartition(EXAMPLE)[2].strip()
                error.message = f"{getattr(error.param, 'help', '')}\n{EXAMPLE}{example}"
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 typer's types of these are private
        """Finds a command and imports it; `help` and `help NAME` print what `--help` prints."""
        if args[0] == "help":
            if len(args) == 1:
                typer.echo(ctx.get_help())
                ctx.exit()
            args = [*args[1:], "--help"]
        if args[0] in OF_THE_GATEWAY:
            raise SkybraidError(
                f"{args[0]}: found a command of the gateway, a program of its own; expected `skybraid-node {args[0]}` "
                "(docs/gateway.md)"
            )
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else imported(name), rest


def imported(name: str) -> Any:  # noqa: ANN401 the same
    """Returns a command of the table, ready to run."""
    entry = COMMANDS.get(name) or added()[name]
    found = _object(entry.place)
    if isinstance(found, typer.Typer):
        return _unbroken(typer.main.get_command(found))
    return _unbroken(_alone(name, found, context_settings=entry.settings))


def _unbroken(command: Any) -> Any:  # noqa: ANN401 the same
    """Keeps examples on one line, so that they can be copied, and the sentences of subcommands whole."""
    text, found, example = (command.help or "").rpartition(f"\n\n{EXAMPLE}")
    if found:
        command.help = f"{text}\n\n{UNWRAPPED}{EXAMPLE}{' '.join(example.split())}"
    command.short_help = described(command, command.name).summary
    for each in getattr(command, "commands", {}).values():
        _unbroken(each)
    return command


def _alone(name: str, function: Callable[..., None], **settings: Any) -> Any:  # noqa: ANN401 the same
    """Returns a function as a command without subcommands."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name=name, **settings)(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=Commands,
    help="Simulates a remotely piloted flight over several networks and says whether the connection is good enough.\n\n"
    "Example: skybraid new first && skybraid run first.toml --report",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[  # noqa: ARG001 `main` looks for it
        bool, typer.Option("--verbose", help="Also print the traceback of an error.")
    ] = False,
) -> None:
    if version:
        typer.echo(VERSION)
        raise typer.Exit


def _listed() -> None:
    """Placeholder of a command in the list of commands."""


for _name, _entry in COMMANDS.items():
    app.command(name=_name, help=_entry.help)(_listed)


def _open_closed_streams() -> None:
    """Opens the null device for each standard stream that is closed, so that no file takes its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115, PTH123


def _let_all_characters_pass() -> None:
    """Replaces characters that a terminal lacks; pipes and files of Windows, which have its code page, become UTF-8."""
    encoding = "utf-8" if sys.platform == "win32" else None
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors=stream.errors if stream is sys.stdin else "replace")


def _keep_freed_memory() -> None:
    """Lets polars keep freed memory for 2 s, in which most of it is used again.

    Otherwise the kernel clears new pages for it, which takes a tenth of a report's time.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:2000,muzzy_decay_ms:-1")


def main() -> None:
    """Runs the command line and exits with its code; reports errors in plain words."""
    interruption.catch_sigterm()
    _open_closed_streams()
    _let_all_characters_pass()
    _keep_freed_memory()
    try:
        if sys.argv[1:] == ["--version"]:  # typer needs 0.1 s to read it
            typer.echo(VERSION)
            return
        # See no-color.org.
        app(prog_name="skybraid", color=False if os.environ.get("NO_COLOR") else None)
    except SystemExit as leaving:
        if _broken_off(leaving):
            typer.echo("interrupted: nothing was written, earlier results are as they were", err=True)
        if leaving.code == INTERRUPTED and interruption.was_terminated():
            sys.exit(TERMINATED)
        usage: Any = leaving.__context__
        if leaving.code == BAD_INPUT and hasattr(usage, "format_message") and _wants_json():
            _print_error(usage.format_message())
        raise
    except SkybraidError as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        _refuse(str(MissingExtraError.of(error)))
    except OSError as error:
        if _is_of_output(error):
            if isinstance(error, BrokenPipeError):
                sys.exit(1)
            typer.echo(f"error: standard output: {error.strerror or error}", err=True)
            sys.exit(BAD_INPUT)
        where = f"{error.filename}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}")
    except MemoryError:
        _refuse("not enough memory; `skybraid run --summary` needs least")
    except Exception as error:
        # Of a table that was overwritten inside; importing polars for its classes would delay every command.
        if type(error).__module__ != "polars.exceptions":
            raise
        _refuse(f"a table cannot be read: {str(error).partition(chr(10))[0]}")


def _broken_off(leaving: SystemExit) -> bool:
    """Whether Ctrl-C ended a command, rather than the command's own exit code."""
    cause = getattr(leaving.__context__, "__cause__", None)
    return leaving.code == INTERRUPTED and isinstance(cause, KeyboardInterrupt)


def description() -> Command:
    """Describes the command line with all commands, for manual pages and completions."""
    root = typer.main.get_command(app)
    names = [*(name for section in GROUPS.values() for name in section), *added()]
    whole = described(root, "skybraid")
    return replace(whole, commands=tuple(map(_described, names)))


def _described(name: str) -> Command:
    try:
        return described(imported(name), f"skybraid {name}")
    except ModuleNotFoundError as error:
        MissingExtraError.of(error)
        # What draws is not installed: the command has a name and a sentence.
        return Command(f"skybraid {name}", (COMMANDS | added())[name].help)


def _wants_json() -> bool:
    return "--json" in sys.argv[1:]


def _print_error(words: str) -> None:
    with suppress(OSError):
        print_json({"error": words, "exit": BAD_INPUT})


def _is_of_output(error: OSError) -> bool:
    """Whether standard output could not be written, for example since its disk is full."""
    return traceback.extract_tb(error.__traceback__)[-1].name == typer.echo.__name__


def _refuse(words: str) -> NoReturn:
    if "--verbose" in sys.argv[1:]:
        traceback.print_exc()
    typer.echo(f"error: {words}", err=True)
    if _wants_json():
        _print_error(words)
    sys.exit(BAD_INPUT)

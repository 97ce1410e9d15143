"""The command `skybraid`: a table of commands, each in a file of its own that is imported when it is asked for."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from skybraid._core import __version__
from skybraid.cli.options import BAD_INPUT, INTERRUPTED, TERMINATED
from skybraid.execute import interruption
from skybraid.model.errors import SkybraidError

VERSION = f"skybraid {__version__}"


class Entry(NamedTuple):
    """A command: where it is, as `module:name`, the beginning of its help, and its settings."""

    place: str
    help: str
    settings: dict[str, Any] | None = None


COMMANDS = {
    "emulate": Entry("skybraid.cli.emulate:emulate", "Fly a scenario in real time over real sockets and judge it."),
    "shell": Entry("skybraid.cli.emulate:shell", "Open a shell in the vehicle, over a scenario's links."),
    "link": Entry("skybraid.cli.emulate:link", "Run a program behind one link.", {"allow_interspersed_args": False}),
    "orbit": Entry(
        "skybraid.cli.orbit:orbit",
        "Tell which satellite serves a terminal when, from what elevation and with what delay.",
    ),
    "report": Entry(
        "skybraid.cli.report:report",
        "Write the report of a result, of a campaign or of a flight's gateways, one HTML file.",
    ),
    "plot": Entry(
        "skybraid.cli.plot:plot",
        "Draw a result or a campaign for print: distributions, paths over time, heat maps and more.",
    ),
    "reproduce": Entry(
        "skybraid.studies.command:reproduce",
        "Fly the experiments of published studies again and say which of their findings hold.",
    ),
    "sweep": Entry(
        "skybraid.cli.sweep:sweep",
        "Fly a scenario over many points and seeds into one dataset; what is there already is not run again.",
    ),
    "import-lines": Entry(
        "skybraid.cli.import_lines:import_lines", "Turn scenario lines of Chavali's testbed into scenarios."
    ),
    "network": Entry(
        "skybraid.cli.network:network", "Show the nodes and links of a scenario and the way that each subflow takes."
    ),
    "run": Entry("skybraid.cli.run:run", "Simulate a scenario and judge it."),
    "compare": Entry(
        "skybraid.cli.compare:compare",
        "Run a scenario with every scheduler and congestion control, or compare two scenarios seed by seed.",
    ),
    "explain": Entry(
        "skybraid.cli.explain:explain",
        "Explain requirements that are not met, by causes and by runs that try changes; then the use of the paths.",
    ),
    "list": Entry("skybraid.cli.list:list_", "List what a scenario may name, with units, defaults and sources."),
    "new": Entry("skybraid.cli.new:new", "Write a commented scenario to start from."),
    "check-plugin": Entry(
        "skybraid.cli.check_plugin:check_plugin", "Run algorithms of your own through random situations."
    ),
    "doctor": Entry("skybraid.cli.doctor:doctor", "Check this machine and show how to fix what is missing."),
    "clean": Entry(
        "skybraid.cli.clean:clean",
        "Remove leftovers of interrupted runs: unfinished results, control sockets without an emulation.",
    ),
    "assess": Entry(
        "skybraid.cli.assess:assess_command",
        "Run every sensible transport over measurements, rank them, and say which would do and what to measure.",
    ),
    "fit": Entry(
        "skybraid.cli.fit:fit",
        "Fit a link of processes to measurements, and compare the fit with measurements that it did not see.",
    ),
    "trace": Entry("skybraid.cli.trace:app", "Describe, draw, convert, import and join traces."),
    "ctl": Entry("skybraid.cli.ctl:app", "Watch a running emulation, cut its paths, change its links."),
    "video": Entry("skybraid.cli.video:app", "Clips, their encoding, camera and screen, time codes."),
    "probe": Entry(
        "skybraid.cli.probe:app", "Measure a network from its ends: round trips, connections, web pages, QUIC."
    ),
}


class Commands(TyperGroup):
    """The group of all commands: a line of help for each, and the command itself once it is asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 typer's types of these are private
        """Finds the command that is asked for, and imports it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else imported(name), rest


def imported(name: str) -> Any:  # noqa: ANN401 the same
    """Returns a command of the table, ready to run."""
    entry = COMMANDS[name]
    module, _, attribute = entry.place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name=name, context_settings=entry.settings)(found)
        found = alone
    return typer.main.get_command(found)


app = typer.Typer(
    cls=Commands,
    help="Simulates a remotely piloted flight over several networks and says whether the connection is good enough.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(VERSION)
        raise typer.Exit


def _listed() -> None:
    """Stands for a command in the list of all."""


for _name, _entry in COMMANDS.items():
    app.command(name=_name, help=_entry.help)(_listed)


def main() -> None:
    """Runs the command line and leaves with its exit code; errors are reported in plain words."""
    interruption.catch_sigterm()
    if sys.argv[1:] == ["--version"]:  # typer needs 0.1 s to read it
        typer.echo(VERSION)
        return
    try:
        app(prog_name="skybraid")
    except SystemExit as leaving:
        if _broken_off(leaving):
            typer.echo("interrupted: nothing was written, earlier results are as they were", err=True)
        if leaving.code == INTERRUPTED and interruption.was_terminated():
            sys.exit(TERMINATED)
        raise
    except SkybraidError as error:
        _refuse(str(error))
    except OSError as error:
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
    """Whether Ctrl-C ended a command, rather than a command that itself leaves with that code."""
    cause = getattr(leaving.__context__, "__cause__", None)
    return leaving.code == INTERRUPTED and isinstance(cause, KeyboardInterrupt)


def _refuse(words: str) -> NoReturn:
    typer.echo(f"error: {words}", err=True)
    sys.exit(BAD_INPUT)

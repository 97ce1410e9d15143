"""The command that flies published studies again: `reproduce`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 the command's parameters are read at run time
from typing import Annotated

import typer

from skybraid.folder import RUNS
from skybraid.options import AsJson, Quiet  # noqa: TC001 the same

OUT = RUNS / "reproduce"
"""Where finished runs and scorecards go unless told otherwise."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(name="reproduce")(_reproduce)


def _reproduce(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies and experiments, such as palazzi2007 or PED-E09; by default all.", metavar="[PAPER] [ID]..."
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick/--full", help="A quick look: fewer values and seeds, shorter runs; or the studies' own."),
    ] = False,
    emulate: Annotated[
        bool,
        typer.Option("--emulate", help="Fly emulations in real time under this machine's kernel: short, few seeds."),
    ] = False,
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Fly in real time with two gateways, skybraid-node, over emulated links.")
    ] = False,
    max_time: Annotated[
        str, typer.Option(help="In real time: take no longer; fewer seeds, then fewer experiments.", metavar="TIME")
    ] = "30min",
    reading: Annotated[
        str | None, typer.Option(help="How to read what the paper leaves open: text, repo.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Keep finished runs, scorecards and figures here; what is kept is not flown again.", metavar="DIR"
        ),
    ] = OUT,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; by default one a core.", metavar="N", min=1)
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--studies", help="Where studies lie, instead of scenarios/studies.", metavar="DIR")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fly the experiments of published studies again and say which of their findings hold.

    Exit code: 0 if every claim that does not hold is explained, 1 if one is not, a run failed or an experiment has no
    file, 2 bad input or no emulator here, 130 interrupted; finished runs are kept.
    """
    # Studies take memory and time that other commands have no use for.
    from skybraid.studies import command

    asked = command.Asked(
        words=tuple(words or ()),
        quick=quick,
        emulate=emulate,
        gateway=gateway,
        max_time=max_time,
        reading=reading,
        out=out,
        workers=workers,
        folder=folder,
        as_json=as_json,
        quiet=quiet,
    )
    raise typer.Exit(command.list_experiments(asked) if list_ else command.reproduce(asked))

"""Command `check-plugin`: tests user-defined algorithms in random situations."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import MET, NOT_MET, Quiet, load_plugins
from skybraid.model import algorithms


def check_plugin(
    file: Annotated[Path, typer.Argument(help="A Python file with algorithms of your own.", metavar="FILE")],
    quiet: Quiet = False,
) -> None:
    """Run algorithms of your own through random situations. Exit code: 0 all keep to their interface, 1 not.

    Example: skybraid check-plugin mine.py
    """
    load_plugins([file])
    failed = False
    for class_ in algorithms.load(file):
        try:
            algorithms.check(class_)
        except algorithms.AlgorithmError as error:
            failed = True
            typer.echo(f"error: {error}", err=True)
        else:
            if not quiet:
                typer.echo(f"{algorithms.name_of(class_)}: keeps to its interface")
    raise typer.Exit(NOT_MET if failed else MET)

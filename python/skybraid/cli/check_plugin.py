"""Command `check-plugin`: tests user-defined algorithms in random situations."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import MET, NOT_MET, AsJson, Quiet, load_plugins, print_json
from skybraid.model import algorithms


def check_plugin(
    file: Annotated[Path, typer.Argument(help="Python file with your own algorithms.", metavar="FILE")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Test your own algorithms in random situations. Exit code: 0 all follow the interface, 1 not.

    Example: skybraid check-plugin mine.py
    """
    load_plugins([file])
    found: dict[str, str | None] = {}
    for class_ in algorithms.load(file):
        name = algorithms.name_of(class_)
        try:
            algorithms.check(class_)
        except algorithms.AlgorithmError as error:
            found[name] = str(error)
            typer.echo(f"error: {error}", err=True)
        else:
            found[name] = None
            if not quiet and not as_json:
                typer.echo(f"{name}: keeps to its interface")
    if as_json:
        print_json({"algorithms": [{"name": name, "error": error} for name, error in found.items()]})
    raise typer.Exit(NOT_MET if any(found.values()) else MET)

"""Command `new`: writes a commented scenario to start from."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import Quiet
from skybraid.model.errors import ResultError
from skybraid.model.folder import write_whole


def new(
    name: Annotated[str, typer.Argument(help="Name of the scenario, or the path of its file.", metavar="NAME")],
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario to start from."""
    path = Path(name) if name.endswith(".toml") else Path(f"{name}.toml")
    if path.exists():
        raise ResultError(f"{path}: found a file, expected a new name; nothing was changed")
    template = Path(__file__).with_name("new.toml")
    title = path.stem.replace("-", " ").replace("_", " ")
    title = json.dumps(title[:1].upper() + title[1:], ensure_ascii=False)[1:-1]
    text = template.read_text(encoding="utf-8").replace("@NAME@", title).replace("@FILE@", str(path))
    write_whole(path, text.encode())
    if not quiet:
        typer.echo(path)
        typer.echo(f"run it with: skybraid run {shlex.quote(str(path))}", err=True)

"""Command `clean`: removes leftovers of killed runs."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import AsJson, Quiet, print_result
from skybraid.execute import control
from skybraid.model.errors import ResultError
from skybraid.model.folder import RUNS, remove_left_over


def clean(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of results; by default runs/ and the current one.", metavar="FOLDER")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Remove leftovers of interrupted runs: unfinished results, control sockets without an emulation.

    Files that a running process writes are kept.

    Example: skybraid clean runs
    """
    folders = [RUNS, Path()] if folder is None else [folder]
    if folder is not None and not folder.is_dir():
        raise ResultError(f"{folder}: found no folder, expected one with results")
    found = [*control.sweep(), *(path for one in folders for path in remove_left_over(one))]
    text = "\n".join(f"removed {path}" for path in found) or "nothing is left over"
    print_result({"removed": [str(path) for path in found]}, text, as_json=as_json, quiet=quiet)

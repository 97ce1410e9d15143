"""Command `import-lines`: converts scenario lines of Chavali's testbed."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import AsJson, Quiet, print_result
from skybraid.model.folder import new_folder
from skybraid_studies.chavali2022.lines import LineError, read_lines


def import_lines(
    file: Annotated[str, typer.Argument(help="Scenario lines, a file or - for standard input.", metavar="FILE")],
    out: Annotated[Path, typer.Option(help="New folder for the scenarios.", metavar="DIR")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Convert scenario lines of Chavali's testbed to scenarios. A line is, for example, -N 5 -O LEO -r MP -S blest.

    Example: skybraid import-lines lines.txt --out lines
    """
    texts = read_lines(sys.stdin.read() if file == "-" else _text_of(file), "standard input" if file == "-" else file)
    with new_folder(out) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    written = [str(out / name) for name in texts]
    print_result({"scenarios": written}, "\n".join(written), as_json=as_json, quiet=quiet)


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise LineError(f"{file}: cannot read the lines: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LineError(f"{file}: byte {error.start} is not UTF-8, expected scenario lines") from error

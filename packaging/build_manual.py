"""Writes the manual pages and completions of `skybraid` into a folder: man/man1, completions."""

from __future__ import annotations

import sys
from pathlib import Path

from skybraid import cli
from skybraid.cli.manual import SHELLS, completion, man_page


def main() -> None:
    """Writes all files."""
    folder = Path(sys.argv[1])
    command = cli.description()
    pages = folder / "man" / "man1"
    shells = folder / "completions"
    for each in (pages, shells):
        each.mkdir(parents=True, exist_ok=True)
    for one in command.all():
        page = man_page(one, cli.VERSION)
        (pages / f"{one.name.replace(' ', '-')}.1").write_text(page, encoding="utf-8")
    for shell in SHELLS:
        (shells / f"skybraid.{shell}").write_text(completion(command, shell), encoding="utf-8")


if __name__ == "__main__":
    main()

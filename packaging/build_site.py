"""Writes the source of the documentation site: docs/, the commands, the Python API, and a page that runs scenarios."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import skybraid
from skybraid import cli
from skybraid.model.schema import file_schema
from skybraid.show.palette import COLOURS, DARK_COLOURS

if TYPE_CHECKING:
    from skybraid.cli.manual import Command

ROOT = Path(__file__).resolve().parents[1]

OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./\.\./|\.\./(?!\w+\.md)|studies/(?!testbed)|traces/|examples|ARCHITECTURE|CONTRIBUTING)[^)]*\)"
)
"""Links to files of the repository that are no pages."""

TRACES = ("lte_drive_pam2025", "nr5g_cicv5g", "starlink_fjordlink")
"""Folders of traces that the page which runs scenarios has, with their licences."""

FIRST = "two-networks"
"""Starting point that this page opens with."""


def page(text: str) -> str:
    """Returns a page without links that lead out of the site."""
    return OUTSIDE.sub(r"\1", text)


def home() -> str:
    """Returns the first page: the README, seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return page(text.replace("](docs/", "]("))


def commands() -> str:
    """Returns the page of all commands, from their help."""
    lines = ["# Commands", "", "Written from the help of each command; `skybraid COMMAND --help` prints the same.", ""]
    for command in cli.description().all()[1:]:
        lines += section(command)
    return "\n".join(lines)


def section(command: Command) -> list[str]:
    """Returns the section of a command."""
    level = "#" * min(command.name.count(" ") + 1, 4)
    usage = " ".join(
        [command.name, *(["[OPTIONS]"] if command.options else []), *(a.names[0] for a in command.arguments)]
    )
    lines = [f"{level} {command.name}", "", "```", usage + (" COMMAND …" if command.commands else ""), "```", ""]
    lines += [line for paragraph in command.paragraphs for line in (paragraph, "")]
    lines += ["```sh", command.example, "```", ""] if command.example else []
    entries = [*command.arguments, *command.options]
    lines += ["| option | meaning |", "|---|---|"] if entries else []
    for entry in entries:
        names = ", ".join(f"`{name}`" for name in entry.names) + (f" `{cell(entry.value)}`" if entry.value else "")
        lines.append(f"| {names} | {cell(entry.help)} |")
    return [*lines, ""]


def cell(text: str) -> str:
    """Escapes a text for a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def python() -> str:
    """Returns the page of the Python API: the package's description, then each public name."""
    lines = ["# Python", "", inspect.cleandoc(str(skybraid.__doc__)), ""]
    for module, names in skybraid._NAMES.items():
        if module != "_core":
            lines += [f"::: skybraid.{module}.{name}\n" for name in names.split()]
    lines += ["## Of the native module", ""]
    for name in skybraid._NAMES["_core"].split():
        words = inspect.getdoc(getattr(skybraid, name)) or ""
        lines += [
            f"### {name}",
            "",
            words if not isinstance(getattr(skybraid, name), str) else "Version of Skybraid.",
            "",
        ]
    return "\n".join(lines)


def try_it(folder: Path, module: Path) -> None:
    """Writes the page that runs scenarios, with the module, the starting points and small traces.

    Args:
        folder: of the pages.
        module: the simulator as WebAssembly.
    """
    place = folder / "try"
    shutil.copytree(ROOT / "packaging" / "try", place, ignore=shutil.ignore_patterns("*.md", "*.toml"))
    shutil.copy(ROOT / "packaging" / "try" / "try.md", folder)
    shutil.copy(module, place / "skybraid.wasm")
    for name in TRACES:
        shutil.copytree(ROOT / "traces" / name, place / name)
    starts = [*(ROOT / "python/skybraid/cli/starts").glob("*.toml"), ROOT / "packaging/try/measured.toml"]
    texts = {file.stem: file.read_text(encoding="utf-8") for file in starts}
    filled = {name: text.replace("@NAME@", name).replace("@FILE@", f"{name}.toml") for name, text in texts.items()}
    data = {
        "starts": {name: filled[name] for name in (FIRST, *sorted(filled.keys() - {FIRST}))},
        "traces": sorted(file.relative_to(place).as_posix() for file in place.glob("*/*.csv")),
        "light": COLOURS,
        "dark": DARK_COLOURS,
        "schema": file_schema("scenario"),
    }
    (place / "data.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def main() -> None:
    """Writes the folder anew."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for file in (folder / "docs").rglob("*.md"):
        file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in (("index", home()), ("commands", commands()), ("python", python())):
        (folder / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    try_it(folder / "docs", target / "wasm32-unknown-unknown" / "web" / "skybraid_web.wasm")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    source = (ROOT / "python").as_posix()
    (folder / "mkdocs.yml").write_text(settings.replace("paths: [python]", f"paths: [{source}]"), encoding="utf-8")


if __name__ == "__main__":
    main()

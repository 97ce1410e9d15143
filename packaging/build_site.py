"""Writes the source of the documentation site.

docs/, the commands, the API of Python and of Rust, the notebooks with their outputs, a gallery of figures, and a page
that runs scenarios.
"""

from __future__ import annotations

import base64
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbclient import NotebookClient

import skybraid
from skybraid import cli
from skybraid.model.schema import file_schema
from skybraid.show.palette import COLOURS, DARK_COLOURS

if TYPE_CHECKING:
    from skybraid.cli.manual import Command

ROOT = Path(__file__).resolve().parents[1]

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./\.\./|\.\./(?!\w+\.md)|studies/(?!testbed)|traces/|examples)[^)]*\)")
"""Links to files of the repository that are no pages."""

TRACES = ("lte_drive_pam2025", "nr5g_cicv5g", "starlink_fjordlink")
"""Folders of traces that the page which runs scenarios has, with their licences."""

FIRST = "two-networks"
"""Starting point that this page opens with."""

ENGINE = "units statistics track orbit link transport traffic host sim gateway scenario io emulator"
"""Crates that the site documents, lowest first; the others are programs and glue."""


def linked(text: str) -> str:
    """Returns a text whose names of documents lead to their pages."""
    return re.sub(r"`?docs/(\w+)\.md`?", r"[\1](\1.md)", text)


def page(text: str) -> str:
    """Returns a page without links that lead out of the site."""
    return OUTSIDE.sub(r"\1", text)


def of_root(name: str) -> str:
    """Returns a document of the repository's root, with its links and their names as docs/ sees them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\[docs/(\w+)\.md\]", r"[\1]", text)
    text = text.replace("](docs/", "](").replace("](examples)", "](first-flight.md)")
    return page(
        re.sub(r"\]\((ARCHITECTURE|CONTRIBUTING|RELEASING)\.md\)", lambda found: f"]({found[1].lower()}.md)", text)
    )


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


def python() -> dict[str, str]:
    """Returns the pages of the Python API: the package with its public names, and each public module."""
    modules = skybraid._MODULES
    lines = [
        "# Python",
        "",
        inspect.cleandoc(str(skybraid.__doc__)),
        "",
        "## Modules",
        "",
        "| module | what |",
        "|---|---|",
    ]
    for name in modules:
        about = inspect.cleandoc(str(getattr(skybraid, name).__doc__)).splitlines()[0]
        lines.append(f"| [`skybraid.{name}`](python/{name}.md) | {cell(about)} |")
    lines = [linked("\n".join(lines)), ""]
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
    return {"python": "\n".join(lines)} | {
        f"python/{name}": f"# skybraid.{name}\n\n::: skybraid.{module}\n    options:\n      show_root_heading: false\n"
        for name, module in modules.items()
    }


def python_nav() -> list[str]:
    """Returns the entries of the Python API in the site's navigation."""
    entries = [("skybraid", "python.md"), *((f"skybraid.{name}", f"python/{name}.md") for name in skybraid._MODULES)]
    return [f"          - {title}: {file}" for title, file in entries]


def gallery(folder: Path) -> str:
    """Returns the page of figures, each drawn now by the command that it shows.

    Args:
        folder: of the pages; the figures go into a folder below it.
    """
    page = tomllib.loads((ROOT / "packaging" / "gallery.toml").read_text(encoding="utf-8"))
    work, figures = folder.parent / "gallery", folder / "gallery"
    figures.mkdir()
    work.mkdir()
    for name in ("scenarios", "traces"):
        (work / name).symlink_to(ROOT / name)
    lines = ["# Gallery", "", page["text"], "", "```sh", *page["runs"], "```", ""]
    for line in page["runs"]:
        shell(line, work)
    for figure in page["figure"]:
        shell(figure["command"], work)
        (file,) = (word for word in shlex.split(figure["command"]) if word.endswith(".svg"))
        shutil.copy(work / file, figures)
        lines += [f"## {figure['title']}", "", figure["text"], "", "```sh", figure["command"], "```", ""]
        lines += [f"![{figure['title']}](gallery/{file})", ""]
    shutil.rmtree(work)
    return "\n".join(lines)


def shell(line: str, folder: Path) -> None:
    """Runs a line of `skybraid` in a folder; a requirement that is not met is no error."""
    command = [str(Path(sys.executable).with_name("skybraid")), *shlex.split(line)[1:]]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{line}\n{done.stderr}")


def notebook(file: Path, folder: Path) -> str:
    """Returns the page of a notebook that is run now, and writes the notebook with its outputs next to it.

    Args:
        file: the notebook.
        folder: of the pages; figures go into a folder below it.
    """
    book = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": file.parent}}).execute()
    nbformat.write(book, folder / file.name)  # type: ignore[no-untyped-call]
    place = folder / "notebooks"
    place.mkdir(exist_ok=True)
    lines: list[str] = []
    for number, cell in enumerate(book.cells):
        if cell.cell_type == "markdown":
            lines += [linked(cell.source), ""]
            continue
        lines += ["```python", cell.source, "```", ""]
        for output in cell.outputs:
            lines += shown(output, place / f"{file.stem}-{number}.png")
    lines.insert(1, f"\n[This notebook with its outputs]({file.name})\n")
    return "\n".join(lines)


def shown(output: Any, figure: Path) -> list[str]:  # noqa: ANN401 a notebook's own dictionary
    """Returns the lines of one output of a cell: its figure, its table or its text."""
    data = output.get("data", {})
    if output.output_type == "error" or output.get("name") == "stderr":
        return []
    if "image/png" in data:
        figure.write_bytes(base64.b64decode(data["image/png"]))
        return [f"![]({figure.parent.name}/{figure.name})", ""]
    if "text/html" in data:
        # A style sheet inside would reach the whole page.
        table = re.sub(r"<style>.*?</style>", "", data["text/html"], flags=re.DOTALL)
        table = re.sub(r"<table[^>]*>", "<table>", table)
        return ['<div class="output">', *(line.strip() for line in table.splitlines() if line.strip()), "</div>", ""]
    return ["```text", str(output.get("text") or data.get("text/plain", "")).rstrip(), "```", ""]


def rust(folder: Path, built: Path) -> str:
    """Returns the page of the crates, and copies their documentation.

    Args:
        folder: of the pages.
        built: what `cargo doc` has built.
    """
    lines = ["# Rust", "", "The engine's crates, lowest first ([architecture](architecture.md) has their graph).", ""]
    lines += ["| crate | what |", "|---|---|"]
    place = folder / "rust"
    shutil.copytree(built, place, ignore=shutil.ignore_patterns("*.lock", "src-files.js"))
    for name in ENGINE.split():
        about = tomllib.loads((ROOT / "crates" / name / "Cargo.toml").read_text(encoding="utf-8"))["package"]
        lines.append(
            f"| [`{about['name']}`](rust/{about['name'].replace('-', '_')}/index.html) | {about['description']} |"
        )
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
    pages = folder / "docs"
    shutil.copy(ROOT / "packaging" / "site.css", pages)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    written = {
        "index": of_root("README.md"),
        **{name.lower(): of_root(f"{name}.md") for name in ("ARCHITECTURE", "CONTRIBUTING", "RELEASING")},
        "commands": commands(),
        **python(),
        "rust": rust(pages, target / "doc"),
        "gallery": gallery(pages),
        **{file.stem: notebook(file, pages) for file in sorted((ROOT / "examples").glob("*.ipynb"))},
    }
    (pages / "python").mkdir()
    for name, text in written.items():
        (pages / f"{name}.md").write_text(text, encoding="utf-8")
    try_it(pages, target / "wasm32-unknown-unknown" / "web" / "skybraid_web.wasm")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    source = (ROOT / "python").as_posix()
    settings = settings.replace("      - Python: python.md\n", "\n".join(["      - Python:", *python_nav(), ""]))
    (folder / "mkdocs.yml").write_text(settings.replace("paths: [python]", f"paths: [{source}]"), encoding="utf-8")


if __name__ == "__main__":
    main()

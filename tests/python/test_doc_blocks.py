"""Code blocks of the documents: the commands take their command lines, and the examples run."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skybraid
from conftest import emulator_lacks
from skybraid import cli
from skybraid.cli.manual import Command

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

PLACEHOLDERS = re.compile(r"(?:^|\s)\[|\w\|\w|…")
"""What only a synopsis has: options in brackets, alternatives."""

PROGRAM = re.compile(r"^(?:\$ )?(?:sudo (?:-u \w+ )?)?(?:\.venv/bin/)?skybraid ")

FLIGHT = """
duration = "2s"
[path.lte]
uplink = { rate = "9Mbit/s", loss = { uniform = "2%" } }
downlink.rate = "9Mbit/s"
[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "2Mbit/s", packet = "1200B" }
transport.protocol = "mptcp"
require = { deadline = "100ms", share = "90%" }
"""


def blocks(file: Path, *languages: str) -> list[str]:
    """The blocks of a document in these languages."""
    return [text for language, text in FENCE.findall(file.read_text(encoding="utf-8")) if language in languages]


def commands(file: Path) -> Iterator[str]:
    """The lines of a document that call `skybraid`; continued lines are one."""
    for block in blocks(file, "", "sh", "console"):
        for line in re.sub(r"\\\n\s*", "", block).replace("\n   ", " ").splitlines():
            if PROGRAM.match(line):
                yield PROGRAM.sub("", line)


def words(line: str) -> list[str]:
    """The arguments of the first command of a shell's line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found: list[str] = []
    for word in lexer:
        if set(word) <= set("();<>|&") or (word == "…"):
            break
        found.append(word)
    return found


def command_of(arguments: list[str]) -> tuple[Command, list[str]]:
    """The command that a line names, with its own arguments."""
    found = cli.description()
    while arguments:
        below = {one.name.split()[-1]: one for one in found.commands}
        if arguments[0] not in below:
            break
        found, arguments = below[arguments[0]], arguments[1:]
    assert not found.commands, f"skybraid {' '.join(arguments)}: no such command"
    return found, arguments


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_every_command_line_of_a_document_is_one(file: Path) -> None:
    for line in commands(file):
        if PLACEHOLDERS.search(line):
            named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", line))
            command, _ = command_of(line.split())
            assert named <= {name for option in command.options for name in option.names}, line
            continue
        arguments = words(line)
        _, own = command_of(list(arguments))
        depth = len(arguments) - len(own)
        parsed: Any = cli.imported(arguments[0])
        for name in arguments[1:depth]:
            parsed = parsed.get_command(None, name)
        parsed.make_context(arguments[depth - 1], own)


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the examples in Python read."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "flight.toml").write_text(FLIGHT, encoding="utf-8")
    shutil.copytree(ROOT / "scenarios", folder / "scenarios")
    (folder / "traces").symlink_to(ROOT / "traces")
    for name in ("remote-piloting.toml", "video.toml"):
        file = folder / "scenarios" / name
        text = file.read_text(encoding="utf-8")
        file.write_text(re.sub(r'^duration = "\w+"', 'duration = "5s"', text, flags=re.MULTILINE), encoding="utf-8")
    scenario = skybraid.Scenario(FLIGHT, "flight.toml")
    skybraid.run(scenario, seed=7, out=folder / "runs/two-constant-paths-7")
    skybraid.sweep(
        scenario,
        vary={"flow.video.transport.scheduler": ["low_rtt", "blest"]},
        seeds=range(1, 3),
        out=folder / "schedulers",
    )
    return folder


@pytest.mark.parametrize(
    "name",
    ["README.md", *(f"docs/{name}.md" for name in ("compare", "emulate", "report", "studies", "tables", "video"))],
)
def test_the_examples_in_python_run(name: str, flights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "docs/emulate.md" and (lacking := emulator_lacks()):
        pytest.skip(lacking)
    monkeypatch.chdir(flights)
    found = blocks(ROOT / name, "python")
    assert found
    names: dict[str, Any] = {}
    for block in found:
        exec(compile(block, name, "exec"), names)


def test_the_tutorial_works_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines but the length of the flights, which is cut."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    tutorial = ROOT / "docs/drive-log.md"
    for block in blocks(tutorial, "console"):
        for line in re.findall(r"^\$ (.*)", block, re.MULTILINE):
            done = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment, check=False)
            assert done.returncode in (0, 1), (line, done.stderr)
            if line.startswith("skybraid trace stats"):
                assert done.stdout in block
            if line.startswith("skybraid new"):
                file = Path("mine.toml")
                text, cut = re.subn(
                    '^duration = "30min"', 'duration = "5s"', file.read_text(encoding="utf-8"), flags=re.MULTILINE
                )
                assert cut == 1
                file.write_text(text, encoding="utf-8")
    assert Path("runs/mine-1-8/report.html").exists()

"""Counts words that hide the meaning, in comments, help and docs.

    python tests/words.py [--list] [PATH ...]

Reads the comments of Rust files, the comments and strings of documentation of Python files, and Markdown. Code,
quotations in backticks and code blocks are left out. The words are those of tests/words.txt. Exits with 1 if there
are more than one in 10,000 words.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 1 / 10_000
SOURCES = ("crates", "python", "tests", "benches", "fuzz", "examples", "docs", "packaging", "studies", "*.md")
SKIPPED = {"target", "node_modules", "__pycache__"}

_CODE = re.compile(r"```.*?```|``.*?``|`[^`\n]*`|https?://\S+", re.DOTALL)
_RUST_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|(//[^\n]*)', re.DOTALL)


def rust_prose(text: str) -> str:
    """Comments of a Rust file."""
    comments = (match.group(1) or "" for match in _RUST_COMMENT.finditer(text))
    return "\n".join(comment.lstrip("/! ") for comment in comments if comment)


def python_prose(text: str) -> str:
    """Comments, docstrings and `help=` texts of a Python file."""
    found = [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.append(str(node.value.value))
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description", "epilog"):
            parts = (part for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            found.extend(str(part.value) for part in parts)
    return "\n".join(found)


def prose_of(path: Path) -> str:
    """What a person reads in a file, without code."""
    text = path.read_text(encoding="utf-8")
    readers = {".rs": rust_prose, ".py": python_prose, ".pyi": python_prose}
    return _CODE.sub(" ", readers.get(path.suffix, str)(text))


def files(patterns: list[str]) -> Iterator[Path]:
    """Files with prose under some paths of the repository."""
    for pattern in patterns:
        for start in sorted(ROOT.glob(pattern)):
            inside = start.rglob("*") if start.is_dir() else [start]
            for path in sorted(inside):
                if path.suffix in (".rs", ".py", ".pyi", ".md") and not SKIPPED & set(path.parts):
                    yield path


def words_to_avoid() -> list[tuple[re.Pattern[str], str]]:
    """Patterns of tests/words.txt, each with what to write instead."""
    lines = (ROOT / "tests/words.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return [(re.compile(rf"\b(?:{word})\b", re.IGNORECASE), better) for word, better in pairs]


def main() -> int:
    """Prints the count; returns the exit code."""
    parser = argparse.ArgumentParser(description="Count words that hide the meaning.")
    parser.add_argument("paths", nargs="*", help="files or folders of the repository (default: all)")
    parser.add_argument("--list", action="store_true", help="print every place")
    options = parser.parse_args()
    avoided = words_to_avoid()
    total, hits, by_folder = 0, Counter[str](), Counter[str]()
    for path in files(options.paths or list(SOURCES)):
        if path.name == "words.txt":
            continue
        prose = prose_of(path)
        total += len(prose.split())
        name = path.relative_to(ROOT)
        for pattern, better in avoided:
            for match in pattern.finditer(prose):
                hits[match.group().lower()] += 1
                by_folder["/".join(name.parts[:2])] += 1
                if options.list:
                    begin = max(0, match.start() - 40)
                    around = " ".join(prose[begin : match.end() + 40].split())
                    print(f"{name}: …{around}…  ({better})")
    found, allowed = hits.total(), int(total * BUDGET)
    print(f"{found} in {total:,} words; at most {allowed} allowed (tests/words.txt)")
    if found > allowed:
        print("  ".join(f"{word} {count}" for word, count in hits.most_common(20)))
        print("  ".join(f"{folder} {count}" for folder, count in by_folder.most_common(20)))
    return int(found > allowed)


if __name__ == "__main__":
    sys.exit(main())

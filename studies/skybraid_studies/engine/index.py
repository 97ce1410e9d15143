"""Index of the papers' experiments, those without a file included.

`index.toml` is next to the studies' folders:

    [palazzi2007]
    PAL-E02 = { type = "simulation", line = "Fig. 5 throughput over 230 s" }
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from skybraid.model.errors import ScenarioError
from skybraid.model.keys import Keys

INDEX = "index.toml"
"""File name of the index."""

TYPES = ("simulation", "emulation", "theory", "validation")
"""Types of experiments in papers; an emulation may use real devices."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Experiment of a paper.

    Attributes:
        id: id such as "PED-E09".
        paper: name of the study.
        type: one of `TYPES`.
        line: summary in one line.
    """

    id: str
    paper: str
    type: str
    line: str


def entries(folder: Path) -> dict[str, Entry]:
    """Returns the index of a folder of studies by id, in the order of the file; empty without a file.

    Raises:
        ScenarioError: the file is invalid.
    """
    file = folder / INDEX
    try:
        papers = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ScenarioError(f"{file}: cannot read the file: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: {error}") from error
    found: dict[str, Entry] = {}
    for paper, experiments in papers.items():
        for name, table in Keys({paper: experiments}, str(file)).table(paper).rest().items():
            keys = Keys({name: table}, f"{file}: {paper}").table(name)
            kind = keys.take("type", str)
            if kind not in TYPES:
                keys.refuse("type", kind, f"one of {', '.join(TYPES)}")
            if name in found:
                keys.refuse(name, "it twice", "each id once")
            found[name] = Entry(name, paper, kind, keys.take("line", str))
            keys.done()
    return found

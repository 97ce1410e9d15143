"""Scorecard as one self-contained HTML page, for screen, phone or paper."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import skybraid
from skybraid.model.folder import write_whole
from skybraid.model.provenance import utc_now
from skybraid.show.report.page import templates
from skybraid.show.report.svg import inlined
from skybraid_studies.engine.claims import Holds, Role
from skybraid_studies.engine.experiment import NEEDS
from skybraid_studies.engine.scorecard import number

if TYPE_CHECKING:
    from skybraid_studies.engine.scorecard import Row

PAGE = "index.html"
"""File name of the page."""

KINDS = (
    ("claims", Role.FINDING, False),
    ("experiments", Role.FINDING, True),
    ("fits", Role.FIT, False),
    ("checks of the product against itself", Role.CHECK, False),
)
"""Counts of the first line: words, role, and whether experiments or claims are counted."""

VERDICTS = (*map(str, Holds), *(f"needs {each}" for each in reversed(NEEDS)))
"""Verdicts in the order of tables."""


def lead(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Returns name, number that hold, and total of claims, experiments, fits and checks."""
    found = []
    for words, role, experiments in KINDS:
        if experiments:
            verdicts = [row.verdict for row in rows if row.role is role and row.claims and not row.further]
        else:
            verdicts = [claim.verdict for row in rows for claim in row.claims if claim.role == role]
        if verdicts:
            found.append((words, sum(verdict == Holds.YES for verdict in verdicts), len(verdicts)))
    return found


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """Returns the number of rows by verdict."""
    return {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}


def write(rows: Sequence[Row], titles: Mapping[str, str], path: Path) -> Path:
    """Writes the page, replacing an earlier one.

    Args:
        rows: rows in their order.
        titles: titles of the papers by study.
        path: file to write.

    Raises:
        ResultError: the file cannot be written.
    """
    write_whole(path, html(rows, titles, path.parent).encode())
    return path


def html(rows: Sequence[Row], titles: Mapping[str, str], folder: Path) -> str:
    """Renders the page with the figures of the rows; links are relative to `folder`."""
    environment = templates("skybraid_studies.engine")
    environment.filters["number"] = number
    loader = environment.loader
    papers = list(dict.fromkeys(row.paper for row in rows))
    return environment.get_template("scorecard.html.j2").render(
        rows=rows,
        quick=any(row.quick and row.driver == "simulation" for row in rows),
        emulated=any(row.driver != "simulation" for row in rows),
        counts=list(counts(rows).items()),
        lead=lead(rows),
        papers=[
            (paper, titles.get(paper, ""), list(counts([row for row in rows if row.paper == paper]).values()))
            for paper in papers
        ],
        choices=[
            ("paper", papers),
            ("verdict", [verdict for verdict, found in counts(rows).items() if found]),
            ("type", sorted({row.type for row in rows if row.type})),
        ],
        figures={row.id: _drawing(row) for row in rows},
        links={row.id: os.path.relpath(row.figure_file, folder) if row.figure_file else "" for row in rows},
        colours=skybraid.plots.COLOURS,
        dark_colours=skybraid.plots.DARK_COLOURS,
        style=loader.get_source(environment, "scorecard.css")[0] if loader else "",
        script=loader.get_source(environment, "scorecard.js")[0] if loader else "",
        version=skybraid.__version__,
        made=utc_now().isoformat(timespec="minutes"),
    )


def _drawing(row: Row) -> str:
    """Renders a row's figure as an HTML element; empty without a figure."""
    if not row.figure_file:
        return ""
    try:
        text = Path(row.figure_file).read_text(encoding="utf-8")
    except OSError:
        return ""
    # Identifiers are unique to the figure; the page needs no paper background.
    return inlined(text).replace("fill: #ffffff", "fill: none").replace("</script", "<\\/script")

"""HTML page: its template, charts, tables and static figures."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from skybraid.model.formatting import about, clock, count, microseconds, milliseconds, percent, rate, readable, span
from skybraid.show.palette import COLOURS, DARK_COLOURS
from skybraid.show.report.charts import DARK
from skybraid.show.report.models import library
from skybraid.show.words import ended, split

if TYPE_CHECKING:
    from skybraid.show.report.charts import Charts


@dataclass(frozen=True, slots=True)
class Cell:
    """Table cell: its text and its sort key."""

    text: str
    order: float | None = None

    @classmethod
    def number(cls, value: float | None, text: str | None = None) -> Self:
        """Formats a number, by default with up to four digits; a dash for None."""
        if value is None or not math.isfinite(value):
            return cls("–")
        return cls(readable(value) if text is None else text, value)


@dataclass(frozen=True, slots=True)
class Table:
    """Sortable, filterable table.

    Attributes:
        name: identifier on the page.
        heads: headings of the columns.
        rows: cells of each row, and the command that repeats its run.
        replay: whether the commands are shown.
    """

    name: str
    heads: list[str]
    rows: list[tuple[list[Cell], str]]
    replay: bool


def templates(package: str = "skybraid.show") -> Environment:
    """Returns a package's template environment; undefined names are errors."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def fragment(template: str, **context: object) -> str:
    """Renders a fragment of a page, without charts."""
    return _environment().get_template(template).render(**context, elements={})


def _environment() -> Environment:
    environment = templates()
    environment.filters |= {
        "about": about,
        "clock": clock,
        "count": count,
        "ended": ended,
        "microseconds": microseconds,
        "ms": _delay,
        "percent": percent,
        "rate": rate,
        "span": span,
        "split": split,
        "ticked": _ticked,
        "unbroken": _unbroken,
    }
    return environment


def page(template: str, charts: Charts, **context: object) -> str:
    """Renders a template as a self-contained page.

    Args:
        template: name of the template in `skybraid/show/templates`.
        charts: charts of the page.
        context: variables of the template.
    """
    environment = _environment()
    script, elements = charts.embedded()
    loader = environment.loader
    assert loader is not None
    css, js = (Markup(loader.get_source(environment, name)[0]) for name in ("page.css", "page.js"))
    return environment.get_template(template).render(
        **context,
        css=css,
        script=js,
        library=Markup(library()) if elements else "",
        drawing=Markup(script),
        elements=elements,
        dark=Markup(json.dumps(DARK)),
        colours=COLOURS,
        dark_colours=DARK_COLOURS,
    )


def _delay(delay_ms: float | None) -> str:
    return "–" if delay_ms is None else milliseconds(delay_ms)


def _unbroken(text: str) -> str:
    """Replaces spaces inside numbers and before units by non-breaking ones."""
    return re.sub(r"(?<=\d) (?=\d{3}|%|m?s\b|min\b|h\b|[kMG]?bit/s)", "\u00a0", text)


def _ticked(text: str) -> Markup:
    """Marks text between backticks as code."""
    parts = _unbroken(text).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 and place < len(parts) - 1 else part
        for place, part in enumerate(parts)
    )

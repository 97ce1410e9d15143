"""HTML page: its template, charts, tables and static figures."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from skybraid.model.requirements import count, microseconds, milliseconds, percent, rate, span
from skybraid.show.plots.style import COLOURS, DARK_COLOURS, INK, SECOND_INK, STYLE
from skybraid.show.report.charts import DARK, library
from skybraid.show.words import ended, split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from skybraid.show.report.charts import Charts


@dataclass(frozen=True, slots=True)
class Cell:
    """Table cell: its text and its sort key."""

    text: str
    order: float | None = None

    @classmethod
    def number(cls, value: float | None, text: str | None = None) -> Self:
        """Formats a number, by default with four digits; a dash for None."""
        if value is None or not math.isfinite(value):
            return cls("–")
        return cls(f"{value:.4g}" if text is None else text, value)


@dataclass(frozen=True, slots=True)
class Table:
    """Sortable, filterable table.

    Attributes:
        name: its identifier on the page.
        heads: of the columns.
        rows: the cells of each row, and the command that repeats its run.
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


def page(template: str, charts: Charts, **context: object) -> str:
    """Renders a template as a self-contained page.

    Args:
        template: its name in `skybraid/show/templates`.
        charts: what the page draws.
        context: what the template names.
    """
    environment = templates()
    environment.filters |= {
        "count": count,
        "ended": ended,
        "microseconds": microseconds,
        "ms": _delay,
        "percent": percent,
        "rate": rate,
        "span": span,
        "split": split,
        "unbroken": _unbroken,
    }
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


def inline_svg(figure: Figure, salt: str) -> str:
    """Renders a figure as an inline SVG element that uses the page's colours.

    Args:
        figure: what to draw.
        salt: keeps the identifiers of several drawings on one page apart.
    """
    file = io.StringIO()
    with mpl.rc_context(STYLE | {"svg.hashsalt": salt}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return inlined(file.getvalue())


def inlined(text: str) -> str:
    """Converts an SVG file to an inline element that uses the page's colours."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', text, count=1)
    text = text.replace("'DejaVu Sans'", "system-ui").replace(INK, "currentColor")
    for index, colour in enumerate(COLOURS):
        text = text.replace(colour.lower(), f"var(--series-{index})")
    text = text.replace(SECOND_INK, "var(--second)")
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), text)
    return re.sub(r"\n\s*", "\n", text)


def _delay(delay_ms: float | None) -> str:
    return "–" if delay_ms is None else milliseconds(delay_ms)


def _unbroken(text: str) -> str:
    """Replaces spaces inside numbers and before units by non-breaking ones."""
    return re.sub(r"(?<=\d) (?=\d{3}|%|m?s\b|min\b|h\b|[kMG]?bit/s)", "\u00a0", text)

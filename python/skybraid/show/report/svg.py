"""Matplotlib figures as inline SVG in the colours of a page."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import matplotlib as mpl

from skybraid.show.palette import COLOURS, INK, SECOND_INK
from skybraid.show.plots.style import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def inline_svg(figure: Figure, salt: str) -> str:
    """Renders a figure as an inline SVG element that uses the page's colours.

    Args:
        figure: figure to render.
        salt: seed of the identifiers, distinct for each drawing of a page.
    """
    file = io.StringIO()
    with mpl.rc_context(STYLE | {"svg.hashsalt": salt}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return inlined(file.getvalue())


def inlined(text: str) -> str:
    """Converts the text of an SVG file to an inline element that uses the page's colours."""
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

"""Style of figures on paper: fonts, sizes, files. For colours and markers see `skybraid.show.palette`."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from skybraid.model.errors import ResultError
from skybraid.model.folder import write_whole
from skybraid.show.palette import ALGORITHMS as ALGORITHMS
from skybraid.show.palette import COLOURS as COLOURS
from skybraid.show.palette import DARK_COLOURS as DARK_COLOURS
from skybraid.show.palette import DOWN as DOWN
from skybraid.show.palette import FORMATS as FORMATS
from skybraid.show.palette import HALTED as HALTED
from skybraid.show.palette import INK as INK
from skybraid.show.palette import LINE_STYLES as LINE_STYLES
from skybraid.show.palette import MARKERS as MARKERS
from skybraid.show.palette import SECOND_INK as SECOND_INK
from skybraid.show.palette import Look as Look
from skybraid.show.palette import flow_colour as flow_colour
from skybraid.show.palette import look as look
from skybraid.show.palette import looks as looks
from skybraid.show.palette import marker as marker
from skybraid.show.palette import path_colour as path_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 6.0
"""Width of a figure in inches: readable on a phone, not too large on a desktop."""

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.alpha": 0.35,
    "grid.color": SECOND_INK,
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.1,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 8,
    "xtick.minor.pad": 5.0,
    "ytick.color": INK,
    "ytick.labelsize": 8,
}

MM_PER_IN = 25.4
_NARROW_MM = 125.0
_NARROW_COLUMN_MM = 100.0
"""Width in mm below which a title and a legend do not fit next to each other above a plot."""
_LONG = 20
_PLACES: dict[str, dict[str, Any]] = {
    "above left": {"loc": "lower left", "bbox_to_anchor": (0, 1)},
    "above right": {"loc": "lower right", "bbox_to_anchor": (1, 1)},
    "beside": {"loc": "upper left", "bbox_to_anchor": (1, 1)},
}
_MIN_MM, _MAX_MM = 20.0, 1000.0


def millimetres(option: str, text: str | float) -> float:
    """Parses a length such as "88mm" or "18cm"; returns mm. A bare number is in mm.

    Raises:
        ResultError: the text is no length, or the length is out of range.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(mm|cm|in)?\s*", str(text))
    length_mm = float(found[1]) * {"cm": 10.0, "in": MM_PER_IN}.get(found[2], 1.0) if found else 0.0
    if not _MIN_MM <= length_mm <= _MAX_MM:
        raise ResultError(f"{option}: found {text}, expected a length from 20mm to 1000mm, for example 88mm")
    return length_mm


def resize(figure: Figure, width_mm: float | None, height_mm: float | None) -> None:
    """Sets a figure's size on paper; None keeps the width or height."""
    width_in, height_in = figure.get_size_inches()
    if width_mm is not None:
        width_in = width_mm / MM_PER_IN
    if height_mm is not None:
        height_in = height_mm / MM_PER_IN
    figure.set_size_inches(width_in, height_in)
    is_narrow = width_in * MM_PER_IN < _NARROW_MM
    if is_narrow:
        _narrow_legends(figure)
    for axes in figure.axes:
        spec = axes.get_subplotspec()
        if spec is not None and width_in * MM_PER_IN < _NARROW_COLUMN_MM * spec.get_gridspec().ncols:
            _raise_title(axes, 2 if is_narrow else 4)


def _raise_title(axes: Axes, columns: int) -> None:
    """Moves a title above the legend next to it, which has `columns` columns."""
    title, drawn = axes.get_title(loc="left"), axes.get_legend()
    if title and drawn is not None and drawn.get_label() == "above right":
        lines = -(-len(drawn.get_texts()) // columns)
        size = float(drawn.get_texts()[0].get_fontsize())
        with mpl.rc_context(STYLE):
            axes.set_title(title, loc="left", pad=8 + 1.6 * size * lines)


def _narrow_legends(figure: Figure) -> None:
    with mpl.rc_context(STYLE | {"legend.fontsize": 7, "legend.handlelength": 1.4}):
        for axes in figure.axes:
            drawn = axes.get_legend()
            if drawn is not None and drawn.get_label() in _PLACES:
                longest = max((len(text.get_text()) for text in drawn.get_texts()), default=0)
                place = str(drawn.get_label())
                legend(axes, place if place != "beside" else "above left", 1 if longest > _LONG else 2)


def encode(figure: Figure, file_format: str, salt: str = "figure", dpi: float = 300) -> bytes:
    """Encodes a figure: fonts embedded in PDF, text kept as text in SVG; reproducible bytes.

    Args:
        figure: figure to encode.
        file_format: one of `FORMATS`.
        salt: seed of the identifiers within an SVG.
        dpi: pixels per inch of a PNG.
    """
    file = io.BytesIO()
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format)
    with mpl.rc_context(STYLE | {"svg.hashsalt": salt}):
        figure.savefig(file, format=file_format, dpi=dpi, metadata=dated, facecolor="white")
    return file.getvalue()


def save(figure: Figure, path: str | os.PathLike[str], *, width: str | None = None, height: str | None = None) -> Path:
    """Writes a figure in the format of the file's suffix: .pdf, .svg or .png.

    Args:
        figure: figure of a function of `skybraid.plots`.
        path: file to write.
        width: width on paper, for example "88mm" (one column) or "180mm" (two); default: as drawn.
        height: height on paper; default: as drawn.

    Raises:
        ResultError: the suffix is another one, a length is invalid, or the file cannot be written.
    """
    file = Path(path)
    file_format = file.suffix.removeprefix(".")
    if file_format not in FORMATS:
        raise ResultError(f"--out: found {file}, expected a name in .svg, .pdf or .png; `compare` writes .tex")
    resize(
        figure,
        None if width is None else millimetres("--width", width),
        None if height is None else millimetres("--height", height),
    )
    write_whole(file, encode(figure, file_format, salt=file.stem))
    return file


def legend(axes: Axes, place: str, columns: int, title: str | None = None) -> None:
    """Places a legend where it covers no data.

    Args:
        axes: axes of the legend.
        place: "above left", "above right" or "beside".
        columns: number of columns.
        title: title above the legend.
    """
    drawn = axes.legend(**_PLACES[place], ncols=columns, borderaxespad=0.2, title=title)
    # `_narrow_legends` finds it by this name.
    drawn.set_label(place)

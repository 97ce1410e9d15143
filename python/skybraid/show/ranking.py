"""Figure of a ranking: the result of each entry with its interval and target."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from skybraid.show.plots.style import COLOURS, MM_PER_IN, SECOND_INK, STYLE, WIDTH_IN

_METRICS = {
    "share": (100.0, "messages in time, %"),
    "frames": (100.0, "frames shown in time, %"),
    "continuity": (100.0, "continuity, %"),
    "availability": (100.0, "availability, %"),
    "goodput": (1e-6, "goodput, Mbit/s"),
    "percentile": (1.0, "delay, ms"),
    "expiration": (1.0, "delay, ms"),
}
_LINE_IN, _MORE_IN, _REST_IN = 0.26, 0.11, 0.9
"""Height in inches of a bar's line, of each further line of its name, and of the margins."""
_LETTERS_PER_IN = 7
"""Characters per inch of figure width in a line of a name."""


class Bar(NamedTuple):
    """Bar of the figure.

    Attributes:
        name: name of the entry.
        estimate: estimate in the unit of the metric; None draws nothing.
        low: lower end of its interval; None: unbounded.
        high: upper end of its interval; None: unbounded.
    """

    name: str
    estimate: float | None
    low: float | None
    high: float | None


def intervals(
    bars: Sequence[Bar], metric: str, flow: str, target: float | None, width_mm: float | None = None
) -> Figure:
    """Draws estimates with intervals, the first on top.

    Args:
        bars: one or more bars.
        metric: metric of a requirement.
        flow: flow of the requirement.
        target: target in the unit of the metric; None: no requirement.
        width_mm: width on paper in mm; None: default.
    """
    scale, label = _METRICS.get(metric, (1.0, metric))
    width_in = WIDTH_IN if width_mm is None else width_mm / MM_PER_IN
    names = [textwrap.wrap(bar.name, max(int(_LETTERS_PER_IN * width_in), 12)) for bar in bars]
    line_in = _LINE_IN + _MORE_IN * (max(map(len, names)) - 1)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_in, _REST_IN + line_in * len(bars)), layout="constrained")
        axes = figure.subplots()
        known = [
            scale * value
            for bar in bars
            for value in (bar.estimate, bar.low, bar.high, target)
            if value is not None and math.isfinite(value)
        ]
        least, most = min(known, default=0.0), max(known, default=1.0)
        for at, bar in enumerate(bars):
            if bar.estimate is None:
                continue
            low = least if bar.low is None else scale * bar.low
            high = most if bar.high is None or not math.isfinite(bar.high) else scale * bar.high
            axes.plot([low, high], [at, at], color=COLOURS[2], linewidth=3, solid_capstyle="butt")
            axes.plot([scale * bar.estimate], [at], "o", color=COLOURS[2], markersize=4)
        if target is not None:
            axes.axvline(scale * target, color=SECOND_INK, linestyle="--", linewidth=1)
        axes.set_yticks(range(len(bars)), ["\n".join(lines) for lines in names], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel(f"{flow}: {label}")
    return figure

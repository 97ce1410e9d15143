"""Interactive charts of a page, linked in time, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from skybraid.model.statistics import mean_interval
from skybraid.show.palette import COLOURS, DARK_COLOURS, INK, MARKERS, SECOND_INK, Look, path_colour
from skybraid.show.report.models import Field, Figure, Model, Range, Renderer, Source, Value, document

if TYPE_CHECKING:
    import polars as pl

DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot"}
"""Line styles of `skybraid.plots` by their names in a browser."""

SHAPES = dict(
    zip(MARKERS, ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "star"), strict=True)
)
"""Markers of `skybraid.plots` by their names in a browser."""

DARK = dict(zip(COLOURS, DARK_COLOURS, strict=True)) | {INK: "#e6e9ee", SECOND_INK: "#a7b0bd"}
"""Colour on a dark page, by colour on a light page."""

_SWATCH, _NARROW, _WIDE, _ROW = 5, 46, 140, 22
"""Width of a legend's sample in characters, characters per line on a phone and on a wide page, and height of a line in
pixels.
"""

_SECONDS_UP_TO = 120.0
"""Length in s up to which a time axis is in seconds."""

_CLOCK = """
const whole = Math.floor(value + 1e-6), left = Math.round((value - whole) * 1000);
const two = (number) => String(number).padStart(2, "0");
const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
const shown = hours ? `${hours}:${two(minutes)}` : `${minutes}`;
return `${shown}:${two(whole % 60)}` + (left > 0 ? `.${String(left).padStart(3, "0").replace(/0+$/, "")}` : "");
"""
"""JavaScript that formats `value` in s as 12:34, or 1:12:34."""

_LOG_TICKS = """
const { start, end } = cb_data.range;
const low = Math.min(start, end), high = Math.max(start, end);
const powers = [];
for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; power++) powers.push(10 ** power);
const within = (mantissas) => powers.flatMap((power) => mantissas.map((one) => one * power))
  .filter((tick) => tick >= low && tick <= high);
for (const mantissas of [[1], [1, 3], [1, 2, 5]]) {
  const ticks = within(mantissas);
  if (ticks.length >= 4) return ticks;
}
const step = [1, 2, 5, 10].map((one) => one * 10 ** Math.floor(Math.log10((high - low) / 5)))
  .find((one) => (high - low) / one <= 6);
const ticks = [];
for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
return within([1, 2, 5]).length >= 3 ? within([1, 2, 5]) : ticks;
"""
"""JavaScript that chooses ticks of a logarithmic axis: powers of ten if they suffice, else even steps within one."""

_FONT = "system-ui, sans-serif"

_AXIS: dict[str, Any] = {
    "axis_line_color": INK,
    "major_tick_line_color": INK,
    "minor_tick_line_color": None,
    "axis_label_text_color": INK,
    "major_label_text_color": INK,
    "axis_label_text_font_style": "normal",
    "axis_label_text_font": _FONT,
    "major_label_text_font": _FONT,
    "axis_label_text_font_size": "12px",
    "major_label_text_font_size": "11px",
}

_FRAME: dict[str, Any] = {
    "sizing_mode": "stretch_width",
    "title": None,
    "background_fill_color": None,
    "border_fill_color": None,
    "outline_line_color": None,
    "min_border": 4,
    "min_border_left": 62,
    "min_border_right": 16,
}

_NO_MINOR: dict[str, Any] = {"num_minor_ticks": 0}

BAND = 0.3
"""Opacity of the band between minimum and maximum."""


@dataclass(slots=True)
class Charts:
    """Charts of one page, by name, in one document so that they can share ranges."""

    figures: dict[str, Figure] = field(default_factory=dict)

    def add(self, name: str, chart: Figure) -> str:
        """Adds a chart; returns its name."""
        chart.update(name=name)
        self.figures[name] = chart
        return name

    def embedded(self) -> tuple[str, dict[str, str]]:
        """Returns the charts as JSON for the page's script, and the element id of each; reproducible."""
        text, elements = document(self.figures)
        # A name must not end the script.
        return text.replace("<", "\\u003c"), elements


class Clock:
    """Time axis shared by charts: one range, and one cursor line.

    Args:
        length_s: end of the axis in s.
    """

    def __init__(self, length_s: float) -> None:
        end_s = length_s or 1.0
        self.range = Model("Range1d", start=0, end=end_s, bounds=[0, end_s], min_interval=0.05, name="clock")
        self.pointer = Model("Span", dimension="height", line_color=SECOND_INK, line_width=1, line_dash="dotted")
        self._in_seconds = length_s <= _SECONDS_UP_TO
        tenths, clock = (
            Model("AdaptiveTicker", mantissas=mantissas, base=base, min_interval=low, max_interval=high, **_NO_MINOR)
            for mantissas, base, low, high in (([1, 2, 5], 10, 0.001, 0.5), ([1, 2, 5, 10, 15, 30], 60, 1, None))
        )
        self._ticker = Model("CompositeTicker", tickers=[tenths, clock])
        self._formatter = Model("CustomJSTickFormatter", code=f"const value = tick; {_CLOCK}")

    def mark(self, drawn: Figure) -> None:
        """Formats a chart's ticks in seconds, or in minutes and seconds for longer runs."""
        if self._in_seconds:
            drawn.x_axis.update(axis_label="time, s")
        else:
            drawn.x_axis.update(axis_label="time, min:s", ticker=self._ticker, formatter=self._formatter)


def chart(
    *,
    y_label: str,
    x_label: str = "time, s",
    clock: Clock | None = None,
    height: int = 190,
    logarithmic: str = "",
    x_range: Range = None,
    y_range: Range = None,
    **options: object,
) -> Figure:
    """Creates an empty chart with its tools: drag to zoom, wheel with Ctrl, pan, reset, save.

    Args:
        y_label: label of the y axis, with its unit.
        x_label: label of the x axis, with its unit.
        clock: shared time axis.
        height: height in pixels.
        logarithmic: logarithmic axes: "x", "y" or "xy".
        x_range: range of the x axis without a clock.
        y_range: range of the y axis.
        options: further attributes of the chart.
    """
    dimensions = "both" if clock is None else "width"
    zoom = Model("BoxZoomTool", dimensions=dimensions)
    wheel = Model("WheelZoomTool", dimensions=dimensions, modifiers={"ctrl": True})
    tools = [zoom, Model("PanTool", dimensions=dimensions), wheel, Model("ResetTool"), Model("SaveTool")]
    if clock is not None:
        tools.append(Model("CrosshairTool", overlay=clock.pointer, dimensions="height", visible=False))
        x_range = clock.range
    elif x_range is None and "x" not in logarithmic:
        x_range = Model("DataRange1d", range_padding=0.06)
    ranges = {"x_range": x_range, "y_range": y_range}
    drawn = Figure(**ranges, height=height, logarithmic=logarithmic, tools=tools, **_FRAME | options)
    drawn.toolbar.update(logo=None, autohide=True, active_drag=zoom, active_scroll=wheel)
    for axis, label in ((drawn.x_axis, x_label), (drawn.y_axis, y_label)):
        axis.update(axis_label=label or None, **_AXIS)
        if axis.kind != "CategoricalAxis" and (clock is None or axis is drawn.y_axis):
            axis.update(formatter=plain("tick"))
        if axis.kind == "LogAxis":
            axis.update(ticker=Model("CustomJSTicker", major_code=_LOG_TICKS))
    for grid in drawn.grids:
        grid.update(grid_line_color=SECOND_INK, grid_line_alpha=0.25)
    if clock is not None:
        clock.mark(drawn)
    return drawn


def from_zero(drawn: Figure) -> None:
    """Makes the y axis start at zero and fit the visible data."""
    drawn.update(y_range=Model("DataRange1d", start=0, only_visible=True, range_padding=0.1))


def hover(
    drawn: Figure,
    renderers: Sequence[Any],
    tooltips: Sequence[tuple[str, str]],
    *,
    mode: Literal["mouse", "vline"] = "vline",
) -> None:
    """Shows values under the pointer; by default those at its time."""
    tips = [(head, text.replace("@time_s{0.0} s", "@time_s{custom}")) for head, text in tooltips]
    tool = Model("HoverTool", renderers=list(renderers), tooltips=tips, mode=mode, line_policy="nearest")
    if tips != list(tooltips):
        tool.update(formatters={"@time_s": Model("CustomJSHover", code=_CLOCK)})
    drawn.tools.append(tool)


def legend(drawn: Figure, entries: Iterable[tuple[str, Sequence[Any]]], *, columns: int = 4) -> None:
    """Adds a legend above the chart whose entries toggle their series."""
    named = list(entries)
    items = [Model("LegendItem", label=Value(label), renderers=list(renderers)) for label, renderers in named]
    if not items:
        return
    wide = min(columns, len(items), _WIDE // max(len(label) + _SWATCH for label, _ in named))
    if sum(len(label) + _SWATCH for label, _ in named[:columns]) > _NARROW:
        columns = min(columns, 2)
    rows = -(-len(items) // columns)
    # A legend takes its space from the chart's frame.
    drawn.grow(_ROW * (rows - 1))
    look: dict[str, Any] = {
        "items": items,
        "ncols": min(columns, len(items)),
        "tags": [max(wide, 1)],
        "orientation": "horizontal",
        "click_policy": "hide",
        "background_fill_color": None,
        "border_line_color": None,
        "label_text_color": INK,
        "label_text_font": "system-ui, sans-serif",
        "label_text_font_size": "11px",
        "padding": 0,
        "margin": 2,
        "spacing": 8,
        "glyph_width": 16,
        "glyph_height": 14,
    }
    drawn.add_layout(Model("Legend", **look), "above")


def glyph(drawn: Figure, data: Source, kind: str, *, name: str | None = None, **look: object) -> Renderer:
    """Draws a glyph.

    Args:
        drawn: chart.
        data: source of the columns.
        kind: kind of glyph.
        name: name shown under the pointer.
        look: properties of the glyph; coordinates name columns.
    """
    renderer = Renderer(data, kind, look)
    if name is not None:
        renderer.update(name=name)
    drawn.renderers.append(renderer)
    return renderer


def dots(
    drawn: Figure,
    data: Source,
    x: str,
    y: str,
    *,
    colour: str,
    shape: str = "circle",
    size: float | Field = 8,
    filled: bool = True,
    name: str | None = None,
    **look: object,
) -> Renderer:
    """Draws markers of one colour, filled or not; `x` and `y` name columns."""
    look |= {"line_color": colour, "fill_color": colour if filled else None}
    return glyph(drawn, data, "Scatter", name=name, x=x, y=y, marker=shape, size=size, **look)


def shade(drawn: Figure, spans: Sequence[tuple[float, float]], colour: str) -> Renderer:
    """Shades spans of time; each is at least one pixel wide."""
    data = Source({"x0": [begin for begin, _ in spans], "x1": [end for _, end in spans]})
    return glyph(
        drawn, data, "VStrip", x0="x0", x1="x1", fill_color=colour, fill_alpha=0.3, line_color=colour, line_alpha=0.3
    )


def source(frame: pl.DataFrame, scales: Mapping[str, float] | None = None) -> Source:
    """Converts a frame for the page, with 32-bit numbers and times in ms resolution.

    Args:
        frame: frame with columns of numbers.
        scales: factors by prefix of the column name.
    """
    columns: dict[str, Any] = {}
    for name in frame.columns:
        factor = next((factor for start, factor in (scales or {}).items() if name.startswith(start)), 1.0)
        values = frame[name].cast(float).to_numpy() * factor
        columns[name] = values.astype(np.float32)
    return Source(columns)


def band(drawn: Figure, data: Source, name: str, colour: str, *, dash: str = "solid") -> list[Renderer]:
    """Draws a series as a line of means in a band from minimum to maximum; returns the line first."""
    low, high, mean = (np.asarray(data.data[f"{name}_{part}"]) for part in ("low", "high", "mean"))
    parts: list[Renderer] = []
    if not np.array_equal(low, high, equal_nan=True):
        ends = {"y1": f"{name}_low", "y2": f"{name}_high"}
        parts.append(glyph(drawn, data, "VArea", x="time_s", **ends, fill_color=colour, fill_alpha=BAND))
    elif np.array_equal(mean, low, equal_nan=True):
        # Minimum and maximum equal the mean, so only the line is sent.
        del data.data[f"{name}_low"], data.data[f"{name}_high"]
    look: dict[str, Any] = {"line_color": colour, "line_width": 1.3, "line_dash": dash}
    return [glyph(drawn, data, "Line", x="time_s", y=f"{name}_mean", name=name, **look), *parts]


def steps(drawn: Figure, data: Source, x: str, y: str, colour: str, name: str) -> tuple[Renderer, Renderer]:
    """Draws a step series, with an invisible line for the pointer, since steps have no hover."""
    shown = glyph(drawn, data, "Step", x=x, y=y, mode="after", line_color=colour, line_width=1.4)
    unseen = glyph(drawn, data, "Line", x=x, y=y, line_color=colour, line_alpha=0, line_width=6, name=name)
    return shown, unseen


def stacked_shares(
    drawn: Figure,
    paths: Sequence[str],
    times_s: np.ndarray,
    percents: np.ndarray,
    step_mode: Literal["before", "after"],
) -> None:
    """Stacks the shares of the paths as step areas, with their legend.

    Args:
        drawn: chart with an axis from 0 to 100.
        paths: names of the paths, in the order of their colours.
        times_s: times of the steps in s; shape (steps,).
        percents: share of each path in each step in %; shape (paths, steps).
        step_mode: side of its time on which a step is drawn.
    """
    upper = np.cumsum(percents, axis=0)
    columns = {"time_s": times_s}
    for index, own in enumerate(percents):
        columns |= {f"from_{index}": upper[index] - own, f"to_{index}": upper[index], f"share_{index}": own}
    data = Source({name: values.astype(np.float32) for name, values in columns.items()})
    entries = []
    for index, path in enumerate(paths):
        ends = {"y1": f"from_{index}", "y2": f"to_{index}"}
        look: dict[str, Any] = {"fill_color": path_colour(index), "fill_alpha": 0.85}
        entries.append((path, [glyph(drawn, data, "VAreaStep", x="time_s", step_mode=step_mode, **ends, **look)]))
    # Areas have no hover, so an invisible line provides it.
    unseen = glyph(drawn, data, "Line", x="time_s", y=f"to_{len(paths) - 1}", line_alpha=0)
    tips = [("time", "@time_s{0.0} s"), *((path, f"@share_{i}{{0.0}} %") for i, path in enumerate(paths))]
    hover(drawn, [unseen], tips)
    legend(drawn, entries)


def nested(across: Sequence[float], up: Sequence[float]) -> list[int]:
    """Returns marker sizes such that all markers at the same place are visible: the first is the largest."""
    places = [(float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in zip(across, up, strict=True)]
    left = {place: places.count(place) for place in places}
    sizes = []
    for place in places:
        left[place] -= 1
        sizes.append(9 + 5 * min(left[place], 4))
    return sizes


EACH = "_each"
"""Suffix of a column with the values of all runs of a mark."""

MAX_CROSSES = 40
"""Maximum number of marks with intervals; more would hide one another."""


def mean_marks(
    drawn: Figure,
    data: Source,
    look: Look,
    each: tuple[Sequence[Sequence[float]], Sequence[Sequence[float]]] | None,
) -> list[Renderer]:
    """Draws marks of means at `delay` and `up` with their `size`; returns them first, then their intervals.

    Args:
        drawn: chart.
        data: columns of the marks.
        look: marker and colour.
        each: values of all runs for `crosses`; None: no intervals.
    """
    shape, size = SHAPES[look.marker], Field("size")
    mark = dots(drawn, data, "delay", "up", colour=look.colour, shape=shape, size=size, fill_alpha=0.55)
    return [mark, *(crosses(drawn, *each, look.colour) if each is not None else [])]


def crosses(
    drawn: Figure, across: Sequence[Sequence[float]], up: Sequence[Sequence[float]], colour: str
) -> list[Renderer]:
    """Draws the 95 % intervals of both means of each mark as a cross; a mark of a single run has none.

    Args:
        drawn: chart.
        across: x values of the runs of each mark; the axis may be logarithmic.
        up: y values of the runs of each mark.
        colour: colour of the marks.
    """
    xs: list[list[float]] = []
    ys: list[list[float]] = []
    for one, other in zip(across, up, strict=True):
        horizontal, vertical = mean_interval(one), mean_interval(other)
        if horizontal is None or vertical is None:
            continue
        x, y = math.fsum(one) / len(one), math.fsum(other) / len(other)
        # An interval that includes zero has no lower end on a logarithmic scale.
        xs += [[max(horizontal.low, min(one) / 2), horizontal.high], [x, x]]
        ys += [[y, y], [max(vertical.low, 0.0), vertical.high]]
    if not xs:
        return []
    return [
        glyph(drawn, Source({"xs": xs, "ys": ys}), "MultiLine", xs="xs", ys="ys", line_color=colour, line_alpha=0.5)
    ]


def nines(drawn: Figure, shares: Sequence[float]) -> None:
    """Formats ticks of a logarithmic share as percent."""
    drawn.y_axis.update(ticker=Model("FixedTicker", ticks=list(shares)), formatter=plain("100 * tick", " %"))


def plain(value: str, unit: str = "") -> Model:
    """Returns a formatter of plain numbers: 0.002, 45, 15.7 k, 3 M."""
    return Model(
        "CustomJSTickFormatter",
        code=f"const value = {value}; const size = Math.abs(value); "
        "const [factor, prefix] = size >= 1e6 ? [1e-6, ' M'] : size >= 1e4 ? [1e-3, ' k'] : [1, '']; "
        "const shown = Number((value * factor).toPrecision(6)); "
        "return shown.toLocaleString('en', {useGrouping: false, maximumFractionDigits: 8}) + prefix + "
        f"'{unit}';",
    )

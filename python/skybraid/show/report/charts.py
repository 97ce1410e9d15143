"""Interactive charts of a page, linked in time, in light and dark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.models import (
    AdaptiveTicker,
    BoxZoomTool,
    ColumnDataSource,
    CompositeTicker,
    CrosshairTool,
    CustomJSHover,
    CustomJSTicker,
    CustomJSTickFormatter,
    DataRange1d,
    FixedTicker,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    SaveTool,
    WheelZoomTool,
)
from bokeh.models.annotations import Legend, LegendItem, Span
from bokeh.models.axes import CategoricalAxis, LogAxis
from bokeh.models.glyphs import Line, Step, VArea, VStrip
from bokeh.plotting import figure
from bokeh.resources import Resources

from skybraid.show.palette import COLOURS, DARK_COLOURS, INK, MARKERS, SECOND_INK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl
    from bokeh.model import Model
    from bokeh.models.glyph import Glyph
    from bokeh.models.renderers import GlyphRenderer

DASHES = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "dashdot"}
"""The lines of `skybraid.plots` by their names in a browser."""

SHAPES = dict(
    zip(MARKERS, ("circle", "square", "triangle", "diamond", "inverted_triangle", "plus", "star"), strict=True)
)
"""The markers of `skybraid.plots` by their names in a browser."""

DARK = dict(zip(COLOURS, DARK_COLOURS, strict=True)) | {INK: "#e6e9ee", SECOND_INK: "#a7b0bd"}
"""What stands for each colour on a dark page."""

_SWATCH, _NARROW, _ROW = 5, 46, 22
"""Letters that a legend's sample takes, and that a phone shows in a line; height of a legend's line in pixels."""

_SECONDS_UP_TO = 120.0
"""Length in s up to which a time axis counts seconds."""

_CLOCK = """
const whole = Math.floor(value + 1e-6), left = Math.round((value - whole) * 1000);
const two = (number) => String(number).padStart(2, "0");
const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
const shown = hours ? `${hours}:${two(minutes)}` : `${minutes}`;
return `${shown}:${two(whole % 60)}` + (left > 0 ? `.${String(left).padStart(3, "0").replace(/0+$/, "")}` : "");
"""
"""JavaScript that shows `value` in s as 12:34, or 1:12:34."""

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
"""JavaScript that chooses ticks of a logarithmic axis: powers of ten where they suffice, even steps within one."""

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

BAND = 0.3
"""Opacity of the band between the least and the greatest value."""


@dataclass(slots=True)
class Charts:
    """Charts of one page, by name, in one document so that they can share ranges."""

    figures: dict[str, Model] = field(default_factory=dict)

    def add(self, name: str, chart: Model) -> str:
        """Adds a chart; returns its name."""
        chart.name = name
        self.figures[name] = chart
        return name

    def embedded(self) -> tuple[str, dict[str, str]]:
        """Returns the charts as JSON for the page's script, and each chart's element id; reproducible."""
        document = Document()
        with document.models.freeze():
            for chart_ in self.figures.values():
                document.add_root(chart_)
        told = document.to_json(deferred=False)
        # Identifiers count on over all charts of a process.
        numbers: dict[str, str] = {}
        told_anew = _renumbered(told, numbers)
        elements = {name: f"chart-{name}" for name in self.figures}
        roots = {numbers[one.id]: elements[name] for name, one in self.figures.items()}
        items = [{"docid": "report", "roots": roots, "root_ids": list(roots)}]
        text = serialize_json({"documents": {"report": told_anew}, "items": items})
        # Whatever a name holds, it does not end the script.
        return text.replace("<", "\\u003c"), elements


def _renumbered(value: object, numbers: dict[str, str]) -> object:
    """Renumbers a document's models in order, so that its bytes are reproducible."""
    match value:
        case dict():
            return {
                key: numbers.setdefault(part, f"m{len(numbers)}")
                if key == "id" and isinstance(part, str)
                else _renumbered(part, numbers)
                for key, part in value.items()
            }
        case list() | tuple():
            return [_renumbered(part, numbers) for part in value]
        case _:
            return value


def library() -> str:
    """Script of the drawing library."""
    return "\n".join(Resources(mode="inline", components=["bokeh"], minified=True).js_raw)


class Clock:
    """Time axis shared by charts: one range, and one cursor line.

    Args:
        length_s: where it ends.
    """

    def __init__(self, length_s: float) -> None:
        self.range = Range1d(start=0, end=length_s or 1.0, bounds=(0, length_s or 1.0), min_interval=0.05, name="clock")
        self.pointer = Span(dimension="height", line_color=SECOND_INK, line_width=1, line_dash="dotted")
        self._in_seconds = length_s <= _SECONDS_UP_TO
        tenths = AdaptiveTicker(mantissas=[1, 2, 5], base=10, min_interval=0.001, max_interval=0.5, num_minor_ticks=0)
        clock = AdaptiveTicker(mantissas=[1, 2, 5, 10, 15, 30], base=60, min_interval=1, num_minor_ticks=0)
        self._ticker = CompositeTicker(tickers=[tenths, clock])
        self._formatter = CustomJSTickFormatter(code=f"const value = tick; {_CLOCK}")

    def mark(self, drawn: figure) -> None:
        """Gives a chart ticks in seconds, or in minutes and seconds for longer runs."""
        if self._in_seconds:
            drawn.xaxis.axis_label = "time, s"
            return
        drawn.xaxis.axis_label = "time, min:s"
        axis = drawn.xaxis[0]
        axis.ticker, axis.formatter = self._ticker, self._formatter


def chart(
    *,
    y_label: str,
    x_label: str = "time, s",
    clock: Clock | None = None,
    height: int = 190,
    **options: object,
) -> figure:
    """Creates an empty chart with its tools: drag to zoom, wheel with Ctrl, pan, reset, save.

    Args:
        y_label: what is up, with its unit.
        x_label: what is across, with its unit.
        clock: the time axis that it shares.
        height: in pixels.
        options: of Bokeh's `figure`.
    """
    dimensions: Literal["both", "width"] = "both" if clock is None else "width"
    zoom, wheel = BoxZoomTool(dimensions=dimensions), WheelZoomTool(dimensions=dimensions, modifiers={"ctrl": True})
    pan = PanTool(dimensions=dimensions)
    tools = [zoom, pan, wheel, ResetTool(), SaveTool()]
    if clock is not None:
        tools.append(CrosshairTool(overlay=clock.pointer, dimensions="height", visible=False))
        options |= {"x_range": clock.range}
    elif "x_axis_type" not in options and "x_range" not in options:
        options |= {"x_range": DataRange1d(range_padding=0.06)}
    settings: dict[str, Any] = {
        "height": height,
        "sizing_mode": "stretch_width",
        "title": None,
        "tools": tools,
        "active_drag": zoom,
        "active_scroll": wheel,
        "x_axis_label": x_label,
        "y_axis_label": y_label,
        "background_fill_color": None,
        "border_fill_color": None,
        "outline_line_color": None,
        "min_border": 4,
        "min_border_left": 62,
        "min_border_right": 16,
    }
    drawn = figure(**settings | options)
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True
    for axis in drawn.axis:
        axis.update(**_AXIS)
        if clock is None and not isinstance(axis, CategoricalAxis):
            axis.update(formatter=plain("tick"))
        if isinstance(axis, LogAxis):
            axis.update(ticker=CustomJSTicker(major_code=_LOG_TICKS))
    for grid in drawn.grid:
        grid.update(grid_line_color=SECOND_INK, grid_line_alpha=0.25)
    if clock is not None:
        clock.mark(drawn)
        if not isinstance(drawn.yaxis[0], CategoricalAxis):
            drawn.yaxis[0].update(formatter=plain("tick"))
    return drawn


def from_zero(drawn: figure) -> None:
    """Makes the y axis start at zero and fit the visible data."""
    drawn.y_range = DataRange1d(start=0, only_visible=True, range_padding=0.1)


def hover(
    drawn: figure,
    renderers: Sequence[Any],
    tooltips: Sequence[tuple[str, str]],
    *,
    mode: Literal["mouse", "vline"] = "vline",
) -> None:
    """Shows values under the pointer; by default those at its time."""
    tips = [(head, text.replace("@time_s{0.0} s", "@time_s{custom}")) for head, text in tooltips]
    tool = HoverTool(renderers=list(renderers), tooltips=tips, mode=mode, line_policy="nearest")
    if tips != list(tooltips):
        tool.formatters = {"@time_s": CustomJSHover(code=_CLOCK)}
    drawn.add_tools(tool)


def legend(drawn: figure, entries: Iterable[tuple[str, Sequence[Any]]], *, columns: int = 4) -> None:
    """Adds a legend above the chart whose entries toggle their series."""
    named = list(entries)
    items = [LegendItem(label=label, renderers=list(renderers)) for label, renderers in named]
    if not items:
        return
    if sum(len(label) + _SWATCH for label, _ in named[:columns]) > _NARROW:
        columns = min(columns, 2)
    rows = -(-len(items) // columns)
    # A legend takes its place from the chart's frame.
    drawn.height = (drawn.height or 0) + _ROW * (rows - 1)
    look: dict[str, Any] = {
        "items": items,
        "ncols": min(columns, len(items)),
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
    drawn.add_layout(Legend(**look), "above")


def glyph(drawn: figure, data: ColumnDataSource, shape: Glyph, *, name: str | None = None) -> GlyphRenderer[Any]:
    """Draws a glyph; unlike the figure's own methods it makes no copies for selections, which no chart has."""
    renderer = drawn.add_glyph(data, shape)
    renderer.name = name
    return renderer


def shade(drawn: figure, spans: Sequence[tuple[float, float]], colour: str) -> GlyphRenderer[Any]:
    """Shades spans of time; each is at least one pixel wide."""
    source = ColumnDataSource({"x0": [begin for begin, _ in spans], "x1": [end for _, end in spans]})
    strip = VStrip(x0="x0", x1="x1", fill_color=colour, fill_alpha=0.3, line_color=colour, line_alpha=0.3)
    return glyph(drawn, source, strip)


def source(frame: pl.DataFrame, scales: Mapping[str, float] | None = None) -> ColumnDataSource:
    """Converts a frame for the page: 32-bit numbers, times to the millisecond.

    Args:
        frame: columns of numbers.
        scales: factors of the columns whose name begins with a key.
    """
    columns: dict[str, Any] = {}
    for name in frame.columns:
        factor = next((factor for start, factor in (scales or {}).items() if name.startswith(start)), 1.0)
        values = frame[name].cast(float).to_numpy() * factor
        columns[name] = values.astype(np.float32)
    return ColumnDataSource(columns)


def band(
    drawn: figure, data: ColumnDataSource, name: str, colour: str, *, dash: str = "solid", width: float = 1.3
) -> list[Any]:
    """Draws a series as a line of means in a band from minimum to maximum; returns the line first."""
    low, high, mean = (np.asarray(data.data[f"{name}_{part}"]) for part in ("low", "high", "mean"))
    parts: list[Any] = []
    if not np.array_equal(low, high, equal_nan=True):
        area = VArea(x="time_s", y1=f"{name}_low", y2=f"{name}_high", fill_color=colour, fill_alpha=BAND)
        parts.append(glyph(drawn, data, area))
    elif np.array_equal(mean, low, equal_nan=True):
        # The line alone tells it all: its ends need not be sent.
        data.data = {key: value for key, value in data.data.items() if key not in (f"{name}_low", f"{name}_high")}
    line = Line(x="time_s", y=f"{name}_mean", line_color=colour, line_width=width, line_dash=dash)
    return [glyph(drawn, data, line, name=name), *parts]


def steps(drawn: figure, data: ColumnDataSource, x: str, y: str, colour: str, name: str) -> tuple[Any, Any]:
    """Draws a series in steps, with an invisible line for the pointer, since steps have no hover."""
    shown = glyph(drawn, data, Step(x=x, y=y, mode="after", line_color=colour, line_width=1.4))
    return shown, glyph(drawn, data, Line(x=x, y=y, line_color=colour, line_alpha=0, line_width=6), name=name)


def nested(across: Sequence[float], up: Sequence[float], size: int = 9) -> list[int]:
    """Sizes of markers, so that those at one place are all seen: the first is the largest."""
    places = [(float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in zip(across, up, strict=True)]
    left = {place: places.count(place) for place in places}
    sizes = []
    for place in places:
        left[place] -= 1
        sizes.append(size + 5 * min(left[place], 4))
    return sizes


def nines(drawn: figure, shares: Sequence[float]) -> None:
    """Formats ticks of a logarithmic share as percent."""
    drawn.yaxis.ticker = FixedTicker(ticks=list(shares))
    drawn.yaxis.formatter = plain("100 * tick", " %")


def plain(value: str, unit: str = "") -> CustomJSTickFormatter:
    """Formats ticks as people read them: 0.002, 45, 15.7 k, 3 M."""
    return CustomJSTickFormatter(
        code=f"const value = {value}; const size = Math.abs(value); "
        "const [factor, prefix] = size >= 1e6 ? [1e-6, ' M'] : size >= 1e4 ? [1e-3, ' k'] : [1, '']; "
        "const shown = Number((value * factor).toPrecision(6)); "
        "return shown.toLocaleString('en', {useGrouping: false, maximumFractionDigits: 8}) + prefix + "
        f"'{unit}';"
    )

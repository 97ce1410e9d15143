"""Charts that compare the points of a campaign."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import polars as pl

from skybraid.model.formatting import milliseconds, percent, readable
from skybraid.model.heavy import palettes
from skybraid.show.palette import INK, Look, looks
from skybraid.show.plots.runs import Choice, Metric, NothingToDrawError, Runs, heat_axes, heat_values, metric, short
from skybraid.show.report.charts import EACH, MAX_CROSSES, Charts, chart, glyph, hover, legend, mean_marks, nested
from skybraid.show.report.flight import Drawing
from skybraid.show.report.models import Field, Figure, Model, Source

VIDEO_COLUMNS = (
    "frames_in_time",
    "frame_rate",
    "worst_frame_rate",
    "freezes_per_minute",
    "frame_latency_p50_ms",
    "frame_latency_p99_ms",
)
"""Columns of the campaign's table of flows that are shown for a video."""

MAX_FLOWS = 6
"""Maximum number of flows drawn."""

_HEAT = ("within_deadline", "goodput_bps", "delay_p50_ms", "delay_p99_ms", "delay_p99.9_ms", *VIDEO_COLUMNS)
_MAX_CELLS = 2500


@dataclass(frozen=True, slots=True)
class Option:
    """One of several selectable charts: its label and the chart."""

    name: str
    drawing: Drawing


def heat_maps(runs: Runs, charts: Charts) -> list[Option]:
    """Draws heat maps of each flow and metric over the two axes with the most values."""
    try:
        across, up = heat_axes(runs, Choice())
    except NothingToDrawError:
        return []
    columns, lines = runs.values(across), runs.values(up)
    if len(columns) * len(lines) > _MAX_CELLS or min(len(columns), len(lines)) < 2:
        return []
    names = short(runs.axes)
    pooled = [names[axis] for axis in runs.axes if axis not in (across, up)]
    found: list[Option] = []
    for flow in runs.flows[:MAX_FLOWS]:
        rows = runs.of_flow(flow)
        for column in _HEAT:
            if column not in rows.columns or not rows[column].count():
                continue
            measure = metric(column)
            values = heat_values(rows, across, up, measure)
            drawn = _heat_map(values, columns, lines, (names[across], names[up]), measure)
            caption = f"{flow}: {measure.label}, the median over the runs of each cell"
            caption += f"; {', '.join(pooled)} pooled." if pooled else "."
            shown = charts.add(f"heat-{len(found)}", drawn)
            found.append(Option(f"{flow}: {measure.label}", Drawing(f"{flow}: {measure.label}", caption, shown)))
    return found


def _heat_map(
    values: dict[tuple[str, str], float], columns: list[str], lines: list[str], names: tuple[str, str], measure: Metric
) -> Figure:
    drawn = chart(
        x_label=names[0],
        y_label=names[1],
        height=140 + 26 * len(lines),
        x_range=Model("FactorRange", factors=columns),
        y_range=Model("FactorRange", factors=lines),
    )
    cells = sorted(values)
    numbers = [values[cell] for cell in cells]
    low, high = (min(numbers), max(numbers)) if numbers else (0.0, 1.0)
    mapper = Model("LinearColorMapper", palette=palettes.Cividis256, low=low, high=high if high > low else low + 1)
    data = Source(
        {
            "x": [cell[0] for cell in cells],
            "y": [cell[1] for cell in cells],
            "value": numbers,
            "text": [_shown(number, measure) for number in numbers],
            "ink": ["#ffffff" if number < (low + high) / 2 else "#000000" for number in numbers],
        }
    )
    fill = Field("value", mapper)
    rects = glyph(drawn, data, "Rect", x="x", y="y", width=1, height=1, fill_color=fill, line_color=None)
    if len(columns) <= 12:
        glyph(
            drawn,
            data,
            "Text",
            x="x",
            y="y",
            text="text",
            text_color=Field("ink"),
            text_align="center",
            text_baseline="middle",
            text_font_size="11px",
        )
    bar: dict[str, Any] = {
        "color_mapper": mapper,
        "ticker": Model("BasicTicker", desired_num_ticks=5),
        "background_fill_color": None,
        "major_label_text_color": INK,
        "major_tick_line_color": None,
        "bar_line_color": None,
        "width": 10,
    }
    drawn.add_layout(Model("ColorBar", **bar), "right")
    for grid in drawn.grids:
        grid.update(visible=False)
    slant = 0.0 if max(map(len, columns)) * len(columns) < 40 else math.pi / 6
    drawn.x_axis.update(major_label_orientation=slant)
    tips = [(names[0], "@x"), (names[1], "@y"), (measure.label, "@text")]
    hover(drawn, [rects], tips, mode="mouse")
    return drawn


def _shown(value: float, measure: Metric) -> str:
    return milliseconds(value) if measure.column.endswith("_ms") else readable(float(f"{value:.3g}"))


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """Pair of metrics, one to maximise and one to minimise.

    Attributes:
        title: description of both.
        up: column to maximise, described by `metric`.
        share: column of the share in time.
        delays: prefix of the columns of delay percentiles; the 95th is minimised.
    """

    title: str
    up: str
    share: str
    delays: str

    def column(self, percentile: str) -> str:
        """Returns the column of a delay percentile."""
        return f"{self.delays}_{percentile}_ms"


TRADEOFFS = (
    Tradeoff("goodput against delay", "goodput_bps", "within_deadline", "delay"),
    Tradeoff("undamaged frames against their latency", "frames_in_time", "frames_in_time", "frame_latency"),
)


def tradeoffs(runs: Runs, charts: Charts) -> list[Option]:
    """Draws goodput against delay, one mark per point, for each flow; for video also undamaged frames and latency."""
    found: list[Option] = []
    names = short(runs.axes)
    for flow, one in product(runs.flows[:MAX_FLOWS], TRADEOFFS):
        rows = runs.of_flow(flow)
        across, up = metric(one.column("p95")), metric(one.up)
        numbers = list(dict.fromkeys([one.up, one.share, *map(one.column, ("p50", "p95", "p99"))]))
        means = (
            rows.group_by("point", *runs.axes, maintain_order=True)
            .agg(pl.col(numbers).mean(), pl.col(numbers).drop_nulls().name.suffix(EACH), pl.len().alias("runs"))
            .drop_nulls([up.column, across.column])
        )
        if not means.height:
            continue
        drawn = chart(x_label=across.label, y_label=up.label, height=360, logarithmic="x")
        entries, marks = [], []
        axis = runs.main_axis()
        if axis is not None:
            means = means.sort(pl.col(axis).cast(pl.Enum(runs.values(axis))))
        scaled = means[up.column] * up.scale
        sizes = nested(means[across.column].to_list(), scaled.to_list())
        means = means.with_columns(pl.Series("size", sizes))
        crossed = means.height <= MAX_CROSSES
        for label, look, part in _groups(runs, means):
            each = part[across.column + EACH].to_list(), (part[up.column + EACH] * up.scale).to_list()
            drawings = mean_marks(drawn, _points_source(part, runs, one), look, each if crossed else None)
            entries.append((label, drawings))
            marks.append(drawings[0])
        axes = [(names[axis], f"@axis_{number}") for number, axis in enumerate(runs.axes)]
        tips = [
            *axes,
            (up.label, "@up{0.000}"),
            ("p50, p95, p99", "@median{0.0}, @delay{0.0}, @tail{0.0} ms"),
            ("in time", "@within"),
            ("runs", "@runs"),
        ]
        hover(drawn, marks, tips, mode="mouse")
        legend(drawn, entries, columns=5)
        shown = charts.add(f"tradeoff-{len(found)}", drawn)
        intervals = ", with their 95 % intervals" if crossed else ""
        caption = f"Means over the runs of each point{intervals}; up and left is better."
        found.append(Option(f"{flow}: {one.title}", Drawing(f"{flow}: {one.title}", caption, shown)))
    return found


def _groups(runs: Runs, rows: pl.DataFrame) -> Iterator[tuple[str, Look, pl.DataFrame]]:
    axis = runs.main_axis()
    if axis is None:
        yield runs.name, looks("flow", [runs.name])[runs.name], rows
        return
    for value, look in looks(axis, runs.values(axis)).items():
        part = rows.filter(pl.col(axis) == value)
        if part.height:
            yield value, look, part


def _points_source(part: pl.DataFrame, runs: Runs, one: Tradeoff) -> Source:
    shares = [None if share is None else float(share) for share in part[one.share]]
    columns: dict[str, Any] = {
        "delay": part[one.column("p95")].to_numpy(),
        "up": part[one.up].to_numpy() * metric(one.up).scale,
        "median": part[one.column("p50")].to_numpy(),
        "tail": part[one.column("p99")].to_numpy(),
        "within": ["–" if share is None else percent(share) for share in shares],
        "runs": part["runs"].to_list(),
        "size": part["size"].to_list(),
    }
    return Source(columns | {f"axis_{n}": part[axis].to_list() for n, axis in enumerate(runs.axes)})

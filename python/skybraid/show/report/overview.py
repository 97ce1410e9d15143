"""Overview of a run over time: delays with their misses, traffic by path, and the worst moments."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from skybraid.model.errors import MissingTableError
from skybraid.model.formatting import clock as at
from skybraid.model.formatting import count, milliseconds, span
from skybraid.show.explain import median_delays
from skybraid.show.palette import COLOURS, DOWN, HALTED, INK, SECOND_INK, path_colour
from skybraid.show.report.cards import URGENT
from skybraid.show.report.charts import BAND, Charts, Clock, chart, dots, glyph, hover, legend, shade
from skybraid.show.report.conditions import Conditions
from skybraid.show.report.flight import MAX_PATHS, Drawing, flow_names, limit, shares
from skybraid.show.report.models import Figure, Model, Source
from skybraid.show.series import DIRECTIONS, binned, delays, duration_s, first_seed, halts, outages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.model.results import Results

MAX_DELAYS = 6
"""Maximum number of flows drawn; those with a requirement come first."""

MAX_MOMENTS = 4
"""Maximum number of moments listed per flow."""

_COLUMNS = 900
"""Points of a series over the whole run, about the width of a chart in pixels."""

_APART_S = 1.0
"""Minimum time in s between misses of a flow that are different moments."""

_MISS = COLOURS[3]


@dataclass(frozen=True, slots=True)
class Moment:
    """Time span in which messages missed their deadline, or were slowest.

    Attributes:
        begin_s: sending time of the first message in s.
        end_s: sending time of the last message in s.
        flow: name of the flow.
        what: description of the misses.
        paths: unusual conditions of each path and of the sender, may be empty; None if no links were recorded.
        view: span in s that charts show for this moment.
    """

    begin_s: float
    end_s: float
    flow: str
    what: str
    paths: tuple[str, ...] | None
    view: tuple[float, float]

    @property
    def when(self) -> str:
        """Time span, formatted like the axes."""
        begin, end = at(self.begin_s), at(self.end_s)
        return begin if begin == end else f"{begin} to {end}"


@dataclass(frozen=True, slots=True)
class Overview:
    """Charts and worst moments.

    Attributes:
        drawings: charts.
        moments: worst moments of each flow, worst first.
        missed: whether the moments are misses; else no message missed a deadline, and they are the longest delays.
        medians: median delays of all runs, see `median_delays`; None if messages were not kept.
    """

    drawings: list[Drawing]
    moments: list[Moment]
    missed: bool = False
    medians: pl.DataFrame | None = None


Spans = list[tuple[float, float]]

Dark = dict[tuple[str, str], tuple[Spans, Spans]]
"""Times down and times without service in s, by path and direction."""


def overview(results: Results, charts: Charts, clock: Clock) -> Overview:
    """Draws the first run."""
    if not results.flows:
        return Overview([], [])
    try:
        every = results.tables.scan("messages")
    except MissingTableError as error:
        return Overview([Drawing("Delay and misses", "", missing=str(error))], [])
    messages = first_seed(every)
    dark = dark_spans(results)
    width_ns = max(round(duration_s(results) * 1e9) // _COLUMNS, 1)
    rows = delays(messages)
    deadlines = {name: deadline(results, name) for name in flow_names(results)}
    in_bins = (
        binned(rows, "sent_ns", width_ns)
        .group_by("flow", "path", "bin")
        .agg(
            pl.len(),
            pl.col("delay_ns").min().alias("low"),
            pl.col("delay_ns").median().alias("median"),
            pl.col("delay_ns").max().alias("high"),
        )
    )
    # One pass over the messages.
    bins, missed, medians = pl.collect_all(
        [in_bins, misses(results, rows, deadlines), median_delays(delays(every))], engine="streaming"
    )
    bins = bins.with_columns(
        pl.col("flow", "path").cast(pl.String),
        pl.col("low", "median", "high") / 1e6,
        (pl.col("bin") * width_ns * 1e-9).alias("time_s"),
    ).sort("bin")
    missed = missed.with_columns(pl.col("flow", "path").cast(pl.String)).sort("flow", "sent_ns")
    names = _chosen(results, set(bins["flow"].unique()))
    sides = _sides(results)
    drawings = []
    for number, name in enumerate(names):
        own = bins.filter(pl.col("flow") == name)
        direction = sides.get(name)
        seen = {key: spans for key, spans in dark.items() if direction in (None, key[1])}
        late = missed.filter(pl.col("flow") == name)
        drawn = _delays(results, clock, own, late, deadlines[name], seen)
        shown = charts.add(f"delay-{number}", drawn)
        drawings.append(Drawing(f"{name}: delay", _caption(deadlines[name]) if number == 0 else "", shown))
    if any(spans for pair in dark.values() for spans in pair):
        shown = charts.add("outages", _lanes(clock, dark))
        drawings.append(Drawing("Outages of the paths", "", shown))
    for number, name in enumerate(names):
        shown = charts.add(f"share-{number}", shares(results, clock, bins.filter(pl.col("flow") == name), width_ns))
        drawings.append(Drawing(f"{name}: messages by path", "", shown))
    found = _moments(results, names, missed) if missed.height else _slowest(results, bins, width_ns)
    times = [_times_ns(one, deadlines[one.flow]) for one in found]
    conditions = Conditions.of(results, messages, times)
    moments = [
        replace(one, paths=conditions.at(one.flow, sides.get(one.flow), *span_ns))
        for one, span_ns in zip(found, times, strict=True)
    ]
    return Overview(drawings, moments, missed=bool(missed.height), medians=medians)


def _caption(deadline_ms: float | None) -> str:
    text = (
        "One-way delay by send time: the median of each path that delivered first, in a band from the fastest to the "
    )
    text += "slowest message. "
    if deadline_ms is not None:
        text += "The dashed line is the deadline; a triangle marks the worst late message of a moment, a cross at the "
        text += "top messages that never arrived. "
    return text + "Shaded: the path was down or without service."


def _chosen(results: Results, found: set[str]) -> list[str]:
    """Returns the flows to draw: those with a requirement first, unmet ones before others."""
    urgent = [one.flow for one in sorted(results.requirements, key=lambda one: URGENT.index(one.verdict))]
    names = dict.fromkeys([*urgent, *flow_names(results)])
    return [name for name in names if name in found][:MAX_DELAYS]


def deadline(results: Results, name: str) -> float | None:
    """Returns the shortest deadline in ms of a flow's messages; None without one."""
    wanted = [
        one.deadline_ms
        for one in results.requirements
        if one.flow == name and one.metric in ("share", "percentile") and one.deadline_ms
    ]
    return min(wanted, default=None)


def _sides(results: Results) -> dict[str, str]:
    """Returns the direction of each flow of a scenario with paths."""
    try:
        table = tomllib.loads(results.scenario).get("flow", {})
    except tomllib.TOMLDecodeError:
        return {}
    found = {name: flow.get("from") for name, flow in table.items() if isinstance(flow, dict)}
    sides = {"vehicle": "uplink", "ground": "downlink"}
    return {name: sides[side] for name, side in found.items() if side in sides}


def dark_spans(results: Results) -> Dark:
    """Returns times down and without service of each direction of each path, in s; empty without the table `links`."""
    if "links" not in list(results.tables):
        return {}
    links = first_seed(results.tables.scan("links")).select("time_ns", "path", "direction", "up", "rate_bps")
    rows = links.with_columns(pl.col("path", "direction").cast(pl.String)).collect(engine="streaming")
    parts = rows.partition_by("path", "direction", as_dict=True)
    keys = [(path, direction) for path in results.paths[:MAX_PATHS] for direction in DIRECTIONS]
    return {key: (outages(parts[key].lazy()), halts(parts[key].lazy())) for key in keys if key in parts}


def misses(results: Results, rows: pl.LazyFrame, deadlines: dict[str, float | None]) -> pl.LazyFrame:
    """Returns the messages that were due within the run and arrived late or never.

    Args:
        results: result.
        rows: messages of the result: `flow`, `path`, `sent_ns`, `delay_ns`.
        deadlines: deadlines in ms by flow; flows without one miss nothing.
    """
    end_ns = round(duration_s(results) * 1e9)
    late = pl.lit(value=False)
    for name, limit_ms in deadlines.items():
        if limit_ms is not None:
            limit_ns = round(limit_ms * 1e6)
            missed = pl.col("delay_ns").is_null() | (pl.col("delay_ns") > limit_ns)
            late = late | (missed & (pl.col("sent_ns") + limit_ns <= end_ns) & (pl.col("flow") == name))
    return rows.filter(late)


def _delays(
    results: Results,
    clock: Clock,
    bins: pl.DataFrame,
    late: pl.DataFrame,
    deadline_ms: float | None,
    dark: Dark,
) -> Figure:
    arrived = bins.filter(pl.col("path").is_not_null(), pl.col("high").is_not_null())
    numbers = [float(value) for value in (*arrived["low"], *arrived["high"]) if value and value > 0]
    numbers += [deadline_ms] if deadline_ms else []
    low, high = (min(numbers), max(numbers)) if numbers else (1.0, 10.0)
    top = high * 2.2
    drawn = chart(
        y_label="one-way delay, ms",
        clock=clock,
        logarithmic="y",
        height=240,
        y_range=(low / 1.3, top * 1.25),
    )
    entries: list[tuple[str, list[Any]]] = []
    for index, path in enumerate(results.paths):
        spans = [piece for key, pair in dark.items() if key[0] == path for part in pair for piece in part]
        if spans:
            entries.append((f"{path} out", [shade(drawn, spans, path_colour(index))]))
    whole = arrived.group_by("time_s", maintain_order=True).agg(pl.col("low").min(), pl.col("high").max())
    band = Source({name: _compact(whole[name]) for name in whole.columns})
    area = glyph(drawn, band, "VArea", x="time_s", y1="low", y2="high", fill_color=SECOND_INK, fill_alpha=BAND)
    entries.append(("fastest to slowest", [area]))
    lines = []
    for index, path in enumerate(results.paths):
        own = arrived.filter(pl.col("path") == path)
        if not own.height:
            continue
        columns = ("time_s", "low", "median", "high", "len")
        data = Source({name: _compact(own[name]) for name in columns})
        line = glyph(
            drawn, data, "Line", x="time_s", y="median", name=path, line_color=path_colour(index), line_width=1.4
        )
        lines.append(line)
        entries.append((f"by {path}", [line]))
    marks = []
    if deadline_ms is not None:
        drawn.add_layout(limit(deadline_ms, INK))
        marks = _marks(drawn, late, duration_s(results), top, entries)
    tips = [
        ("by $name", "@median{0.0} ms in the median, @low{0.0} to @high{0.0} ms"),
        ("messages", "@len{0}"),
        ("time", "@time_s{0.0} s"),
    ]
    hover(drawn, lines, tips)
    if marks:
        hover(drawn, marks, [("missed", "@what"), ("time", "@time_s{0.0} s")], mode="mouse")
    legend(drawn, entries, columns=6)
    return drawn


def _marks(
    drawn: Figure, late: pl.DataFrame, length_s: float, top: float, entries: list[tuple[str, list[Any]]]
) -> list[Any]:
    """Marks the worst late message of each pixel, and lost messages at the top."""
    if not late.height:
        return []
    width_ns = max(round(length_s * 1e9) // (_COLUMNS // 3), 1)
    cells = late.with_columns((pl.col("sent_ns") // width_ns).alias("cell"))
    marks = []
    worst = (
        cells.filter(pl.col("delay_ns").is_not_null())
        .group_by("cell")
        .agg(
            pl.col("sent_ns").sort_by("delay_ns").last() * 1e-9,
            pl.col("delay_ns").max() / 1e6,
            pl.len(),
        )
        .sort("cell")
    )
    lost = (
        cells.filter(pl.col("delay_ns").is_null()).group_by("cell").agg(pl.col("sent_ns").min() * 1e-9, pl.len())
    ).sort("cell")
    for rows, words, shape in ((worst, "late", "triangle"), (lost, "never arrived", "x")):
        if not rows.height:
            continue
        delays = rows["delay_ns"] if "delay_ns" in rows.columns else pl.Series([top] * rows.height)
        what = [
            f"{count(number)} {words}" + (f", up to {milliseconds(delay_ms)}" if words == "late" else "")
            for number, delay_ms in zip(rows["len"], delays, strict=True)
        ]
        data = Source({"time_s": _compact(rows["sent_ns"]), "y": _compact(delays), "what": what})
        filled = shape != "x"
        mark = dots(drawn, data, "time_s", "y", colour=_MISS, shape=shape, size=7, filled=filled, line_width=1.6)
        marks.append(mark)
        entries.append((words, [mark]))
    return marks


def _compact(values: pl.Series) -> NDArray[np.float32]:
    return values.cast(pl.Float64).to_numpy().astype(np.float32)


def _lanes(clock: Clock, dark: Dark) -> Figure:
    """Draws a lane for each direction of each path, with its times down and without service."""
    lanes = [f"{path} {direction}" for path, direction in dark]
    rows = Model("FactorRange", factors=lanes[::-1])
    drawn = chart(y_label="", clock=clock, height=70 + 22 * len(lanes), y_range=rows)
    entries: list[tuple[str, list[Any]]] = []
    bars = []
    for kind, (words, colour) in enumerate((("down", DOWN), ("no service", HALTED))):
        pieces = [(f"{key[0]} {key[1]}", begin, end) for key, pair in dark.items() for begin, end in pair[kind]]
        if not pieces:
            continue
        data = Source(
            {
                "lane": [lane for lane, _, _ in pieces],
                "left": [begin for _, begin, _ in pieces],
                "right": [end for _, _, end in pieces],
                "what": [f"{words} for {span(end - begin)} from {at(begin)}" for _, begin, end in pieces],
            }
        )
        bar = glyph(
            drawn, data, "HBar", y="lane", left="left", right="right", height=0.7, fill_color=colour, line_color=colour
        )
        bars.append(bar)
        entries.append((words, [bar]))
    hover(drawn, bars, [("@lane", "@what")], mode="mouse")
    legend(drawn, entries)
    return drawn


def _moments(results: Results, names: list[str], missed: pl.DataFrame) -> list[Moment]:
    """Groups each flow's misses into moments, those with the most misses first."""
    length_s = duration_s(results)
    gap_ns = round(max(_APART_S, length_s / 600) * 1e9)
    grouped = (
        missed.with_columns(
            (pl.col("sent_ns").diff() > gap_ns).fill_null(value=False).cum_sum().over("flow").alias("no")
        )
        .group_by("flow", "no", maintain_order=True)
        .agg(
            pl.col("sent_ns").min().alias("begin"),
            pl.col("sent_ns").max().alias("end"),
            pl.col("delay_ns").max().alias("worst"),
            pl.col("delay_ns").null_count().alias("lost"),
            pl.len().alias("misses"),
        )
        .sort("misses", "begin", descending=[True, False])
    )
    found = []
    for name in names:
        for row in grouped.filter(pl.col("flow") == name).head(MAX_MOMENTS).iter_rows(named=True):
            late = row["misses"] - row["lost"]
            parts = [f"{count(late)} late, up to {milliseconds(row['worst'] / 1e6)}"] if late else []
            parts += [f"{count(row['lost'])} never arrived"] if row["lost"] else []
            found.append(_moment(row["begin"] * 1e-9, row["end"] * 1e-9, name, "; ".join(parts), length_s))
    return found


def _slowest(results: Results, bins: pl.DataFrame, width_ns: int) -> list[Moment]:
    """Returns the slowest messages of each flow, for runs without missed deadlines."""
    worst = bins.filter(pl.col("high").is_not_null()).sort("high", descending=True).group_by("flow").head(1)
    return [
        _moment(
            row["time_s"],
            row["time_s"] + width_ns * 1e-9,
            row["flow"],
            f"slowest message, {milliseconds(row['high'])}",
            duration_s(results),
        )
        for row in worst.sort("high", descending=True).head(MAX_MOMENTS).to_dicts()
    ]


def _moment(begin_s: float, end_s: float, flow: str, description: str, length_s: float) -> Moment:
    margin_s = max(2.0, (end_s - begin_s) * 0.75)
    view = (max(begin_s - margin_s, 0.0), min(end_s + margin_s, length_s))
    return Moment(begin_s, end_s, flow, description, None, view)


def _times_ns(moment: Moment, deadline_ms: float | None) -> tuple[int, int]:
    """Returns the sending time of the first message of a moment and the deadline of its last one."""
    return round(moment.begin_s * 1e9), round(moment.end_s * 1e9 + (deadline_ms or 0.0) * 1e6)

"""Figures of a result, drawn with matplotlib and without a display.

Every function takes `Results` and gives a `matplotlib.figure.Figure`. Colours are those of Okabe and Ito, which people
with colour-blindness tell apart; a path or flow keeps its colour and marker through all figures of a result. Long
series are drawn as their mean with the band from the least to the greatest value of each pixel column, so that nothing
short is hidden and the file stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from skybraid.errors import MissingTableError
from skybraid.requirements import percent
from skybraid.statistics import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from skybraid.results import Results

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#999999")
"""Okabe and Ito's palette; black is left to the text and yellow out, since it fades on white."""

LINE_STYLES = ("-", "--", ":", "-.")
"""Several subflows on one path share its colour and differ in these."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

PIXEL_COLUMNS = 480
"""Points of a drawn series over the whole time axis."""

INK = "#010203"
"""Colour of text and axes: black to the eye, and the one that a page may replace by its own."""

SECOND_INK = "#6b7280"
"""Colour of what stands behind the main line; readable on white and on black."""

WIDTH_IN = 6.0
"""Width of a figure in inches: its text stays readable on a phone and does not shout on a desk."""

DOWN, HALTED = COLOURS[3], COLOURS[5]
"""Colours of the times when a link was down, and when it was up but served nothing."""

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
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 8,
    "xtick.minor.pad": 5.0,
    "ytick.color": INK,
    "ytick.labelsize": 8,
}

_EDGE = 0.8
"""Width of a shaded span's edge, in points: it keeps a span visible that is narrower than a pixel."""

_DIRECTIONS = ("uplink", "downlink")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure: its title, and the function that draws it."""

    title: str
    draw: Callable[[Results], Figure]


def delay(results: Results) -> Figure:
    """Share of the messages of each flow that have not arrived after a delay, on logarithmic axes down to the last one.

    Lost messages never arrive, so a curve ends at their share. A dashed line marks a required delay, and a marker the
    share that may be missing then: the requirement wants the curve to pass below it. It is filled where that is met.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 4.2))
        axes = figure.add_subplot()
        for index, (name, flow) in enumerate(results.flows.items()):
            decided = flow.delivered + flow.lost
            if not flow.delay_tail:
                continue
            missing = [(share_ * flow.delivered + flow.lost) / decided for _, share_ in flow.delay_tail]
            delays_ms = [delay_ms for delay_ms, _ in flow.delay_tail]
            axes.plot(delays_ms, missing, color=_flow_colour(index), label=name, drawstyle="steps-post")
            for requirement in results.requirements:
                if requirement.flow == name and requirement.deadline_ms is not None:
                    allowed = 1 - requirement.target
                    wanted = f"{percent(requirement.target)} within {requirement.deadline_ms:g} ms"
                    if requirement.metric == "percentile":
                        allowed = (allowed * flow.delivered + flow.lost) / decided
                    axes.axvline(requirement.deadline_ms, color=_flow_colour(index), linestyle="--", linewidth=0.8)
                    axes.plot(
                        requirement.deadline_ms,
                        allowed,
                        marker=_marker(index),
                        color=_flow_colour(index),
                        linestyle="none",
                        fillstyle="full" if requirement.verdict is Verdict.MET else "none",
                        label=f"{name}: {wanted}, {requirement.verdict}",
                    )
        axes.set(xscale="log", yscale="log", xlabel="one-way delay, ms", ylabel="share not yet arrived")
        _plain_ticks(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        return figure


def timeline(results: Results, paths: Sequence[str] | None = None) -> Figure:
    """Each path over time, one column a path: capacity and load of both directions, delay, queue and loss.

    Times when the path was down are shaded, and so are those when it was up but served nothing.

    Raises:
        MissingTableError: the result has no `links` table, or no such path.
    """
    chosen = list(results.paths if paths is None else paths)
    for path in chosen:
        if path not in results.paths:
            raise MissingTableError(f"path: found {path}, expected one of {', '.join(results.paths)}")
    links = first_seed(results.tables.scan("links"))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN * max(len(chosen), 1), 8.4))
        labels = ("uplink, Mbit/s", "downlink, Mbit/s", "delay, ms", "queue, kB", "loss, %")
        grid = figure.subplots(len(labels), max(len(chosen), 1), sharex=True, sharey="row", squeeze=False)
        for column, path in enumerate(chosen):
            axes = [row[column] for row in grid]
            _timeline_column(axes, links.filter(pl.col("path") == path), results.paths.index(path))
            _time_axis(axes, results)
            if len(chosen) > 1:
                axes[0].set_title(path)
        for row, label in zip(grid, labels, strict=True):
            row[0].set_ylabel(label)
            # A limit that is set stops the scaling, so every column must have been drawn.
            row[0].set_ylim(bottom=0)
        figure.align_ylabels()
        return figure


def share(results: Results) -> Figure:
    """Which path brought the messages of each flow first, over time.

    Raises:
        MissingTableError: the result has no `messages` table.
    """
    arrived = first_seed(results.tables.scan("messages")).filter(pl.col("delivered_ns").is_not_null())
    with mpl.rc_context(STYLE):
        figure, grid = _rows(len(results.flows), height=1.9)
        for axes, name in zip(grid, results.flows, strict=True):
            counted = (
                _binned(arrived.filter(pl.col("flow") == name), "delivered_ns", _bin_ns(results))
                .group_by("bin", "path")
                .agg(pl.len().alias("messages"))
                .with_columns(share=pl.col("messages") / pl.col("messages").sum().over("bin"))
                .collect(engine="streaming")
            )
            bins = counted.select(pl.col("bin").unique().sort())
            layers = [
                bins.join(counted.filter(pl.col("path") == path), on="bin", how="left")
                .select(pl.col("share").fill_null(0.0))
                .to_series()
                .to_numpy()
                for path in results.paths
            ]
            if bins.height and layers:
                # The last bin needs an end to reach to.
                edges_s = [*_seconds(bins["bin"], _bin_ns(results)), _duration_s(results)]
                ended = [[*layer * 100, layer[-1] * 100] for layer in layers]
                colours = [_path_colour(index) for index in range(len(results.paths))]
                axes.stackplot(edges_s, ended, labels=results.paths, colors=colours, linewidth=0, step="post")
            axes.set(ylim=(0, 100), ylabel="messages, %")
            axes.set_title(name)
        _finish(grid, results, legend=True)
        return figure


def goodput(results: Results) -> Figure:
    """Application data that arrived, over time, for each flow.

    Raises:
        MissingTableError: the result has no `messages` table.
    """
    bin_ns = _bin_ns(results)
    arrived = first_seed(results.tables.scan("messages")).filter(pl.col("delivered_ns").is_not_null())
    carried = (
        _binned(arrived, "delivered_ns", bin_ns)
        .group_by("flow", "bin")
        .agg(pl.col("bytes").cast(pl.Int64).sum())
        .sort("bin")
        .collect(engine="streaming")
    )
    with mpl.rc_context(STYLE):
        figure, grid = _rows(len(results.flows), height=1.9)
        for index, (axes, name) in enumerate(zip(grid, results.flows, strict=True)):
            one = carried.filter(pl.col("flow") == name)
            if one.height:
                every = pl.DataFrame({"bin": pl.int_range(0, _bins(results), eager=True)})
                bits = every.join(one, on="bin", how="left")["bytes"].fill_null(0) * 8
                rates = (bits / (bin_ns * 1e-9) / 1e6).to_numpy()
                edges_s = np.append(_seconds(every["bin"], bin_ns), _bins(results) * bin_ns * 1e-9)
                axes.stairs(rates, edges_s, color=_flow_colour(index), baseline=None, linewidth=1.1)
            for requirement in results.requirements:
                if requirement.flow == name and requirement.metric == "goodput":
                    axes.axhline(requirement.target / 1e6, color=_flow_colour(index), linestyle="--", linewidth=0.8)
            axes.set(ylabel="goodput, Mbit/s")
            axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
            axes.set_title(name)
        _finish(grid, results, legend=False)
        return figure


def queue(results: Results) -> Figure:
    """What waits in the queue of each link, over time.

    Raises:
        MissingTableError: the result has no `links` table.
    """
    links = first_seed(results.tables.scan("links"))
    with mpl.rc_context(STYLE):
        figure, grid = _rows(len(_DIRECTIONS), height=2.1)
        for axes, direction in zip(grid, _DIRECTIONS, strict=True):
            for index, path in enumerate(results.paths):
                one = links.filter((pl.col("path") == path) & (pl.col("direction") == direction))
                _draw(axes, _envelope(one, pl.col("queue_bytes") / 1e3), _path_colour(index), label=path)
            axes.set(ylabel="queue, kB")
            axes.set_ylim(bottom=0)
            axes.set_title(direction)
        _finish(grid, results, legend=True)
        return figure


def window(results: Results) -> Figure:
    """Congestion window and smoothed round-trip time of each subflow, over time.

    Raises:
        MissingTableError: the result has no `subflows` table.
    """
    subflows = first_seed(results.tables.scan("subflows")).with_columns(pl.col("flow", "side", "path").cast(pl.String))
    senders = subflows.select("flow", "side").unique().sort("flow", "side").collect(engine="streaming").rows()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.6 * max(len(senders), 1)))
        grid = figure.subplots(2 * max(len(senders), 1), 1, sharex=True, squeeze=False)[:, 0]
        for (flow, side), upper, lower in zip(senders, grid[0::2], grid[1::2], strict=False):
            own = subflows.filter((pl.col("flow") == flow) & (pl.col("side") == side))
            for index, path in enumerate(results.paths):
                on_path = own.filter(pl.col("path") == path)
                for one, label, style in _each_subflow(on_path, path):
                    _draw(
                        upper, _envelope(one, pl.col("cwnd_bytes") / 1e3), _path_colour(index), label=label, style=style
                    )
                    _draw(lower, _envelope(one, pl.col("srtt_ns") / 1e6), _path_colour(index), label=label, style=style)
            upper.set(ylabel="window, kB")
            lower.set(ylabel="smoothed RTT, ms")
            upper.set_title(f"{flow}, sent by the {side}")
            for axes in (upper, lower):
                axes.set_ylim(bottom=0)
        _finish(list(grid), results, legend=True)
        figure.align_ylabels()
        return figure


def _each_subflow(on_path: pl.LazyFrame, path: str) -> Iterator[tuple[pl.LazyFrame, str, str]]:
    """The rows, label and line style of each subflow on a path; one that is alone goes by the path's name."""
    numbers = on_path.select(pl.col("subflow").unique().sort()).collect(engine="streaming")["subflow"].to_list()
    for place, number in enumerate(numbers):
        label = path if len(numbers) == 1 else f"{path}, subflow {place + 1}"
        yield on_path.filter(pl.col("subflow") == number), label, LINE_STYLES[place % len(LINE_STYLES)]


KINDS = {
    "delay": Kind("One-way delay", delay),
    "timeline": Kind("Paths over time", timeline),
    "share": Kind("Path shares", share),
    "goodput": Kind("Goodput", goodput),
    "queue": Kind("Queues", queue),
    "window": Kind("Windows", window),
}
"""Every kind of figure by its name on the command line."""


def outages(links: pl.LazyFrame) -> list[tuple[float, float]]:
    """Spans in s during which a link direction was down, from the samples of that one direction."""
    return _spans(links, ~pl.col("up"))


def halts(links: pl.LazyFrame) -> list[tuple[float, float]]:
    """Spans in s during which a link direction was up but had no rate, as in a handover or a gap of its trace.

    The samples see only those that last until one of them, so most halts shorter than the samples' step are missing.
    """
    return _spans(links, pl.col("up") & (pl.col("rate_bps") == 0))


def _spans(links: pl.LazyFrame, condition: pl.Expr) -> list[tuple[float, float]]:
    samples = links.sort("time_ns").select("time_ns", holds=condition).collect(engine="streaming")
    if samples.height < 2:
        return []
    step_s = float(samples["time_ns"][1] - samples["time_ns"][0]) * 1e-9
    spans: list[tuple[float, float]] = []
    runs = samples.with_columns(run=pl.col("holds").rle_id()).group_by("run", maintain_order=True)
    for _, rows in runs:
        if rows["holds"][0]:
            spans.append((rows["time_ns"][0] * 1e-9, rows["time_ns"][-1] * 1e-9 + step_s))
    return spans


def _timeline_column(axes: Sequence[Axes], links: pl.LazyFrame, index: int) -> None:
    delay_, queue_, loss = axes[2:]
    colours = (_path_colour(index), SECOND_INK)
    for direction, style, colour, rate in zip(_DIRECTIONS, ("-", "--"), colours, axes, strict=False):
        one = links.filter(pl.col("direction") == direction)
        load = _envelope(one, pl.col("delivered_bytes") * 8 / _sample_step_s(one) / 1e6)
        rate.fill_between(load["time_s"], load["mean"], color=colour, alpha=0.6, linewidth=0, label="load")
        _draw(rate, _envelope(one, pl.col("rate_bps") / 1e6), colour, label="capacity")
        _draw(delay_, _envelope(one, pl.col("delay_ns") / 1e6), colour, label=direction, style=style)
        _draw(queue_, _envelope(one, pl.col("queue_bytes") / 1e3), colour, label=direction, style=style)
        _draw(loss, _envelope(one, pl.col("loss") * 100), colour, label=direction, style=style)
        for spans, shade, name in ((outages(one), DOWN, "down"), (halts(one), HALTED, "no service")):
            for number, span in enumerate(spans):
                rate.axvspan(*span, color=shade, alpha=0.35, lw=_EDGE, label=None if number else name)
                for part in axes[2:]:
                    part.axvspan(*span, color=shade, alpha=0.2, lw=_EDGE)
    for part in (axes[0], axes[1], delay_):
        _legend(part, columns=4)


def _sample_step_s(links: pl.LazyFrame) -> float:
    times = links.select(pl.col("time_ns").head(2)).collect(engine="streaming")["time_ns"]
    return float(times[1] - times[0]) * 1e-9 if len(times) > 1 else 0.1


def first_seed(table: pl.LazyFrame) -> pl.LazyFrame:
    """One run's rows: a figure over time shows the first of several."""
    if "seed" not in table.collect_schema():
        return table
    return table.filter(pl.col("seed") == pl.col("seed").first()).drop("seed")


def _envelope(table: pl.LazyFrame, value: pl.Expr) -> pl.DataFrame:
    """Time in s with least, mean and greatest value of each pixel column."""
    times = pl.col("time_ns")
    column = (times - times.min()) * PIXEL_COLUMNS // (times.max() - times.min() + 1)
    return (
        table.select("time_ns", value.alias("value"), column.alias("column"))
        .group_by("column")
        .agg(
            (times.min() * 1e-9).alias("time_s"),
            pl.col("value").min().alias("low"),
            pl.col("value").mean().alias("mean"),
            pl.col("value").max().alias("high"),
        )
        .sort("column")
        .collect(engine="streaming")
    )


def _draw(axes: Axes, series: pl.DataFrame, colour: str, *, label: str, style: str = "-", band: bool = True) -> None:
    if series.height == 0:
        return
    times_s = series["time_s"].to_numpy()
    if band:
        low, high = series["low"].to_numpy(), series["high"].to_numpy()
        axes.fill_between(times_s, low, high, color=colour, alpha=0.35, linewidth=0)
    axes.plot(times_s, series["mean"].to_numpy(), color=colour, linestyle=style, label=label)


def _bin_ns(results: Results) -> int:
    """Width of a time bin: whole seconds where the flight is long, never less than 100 ms."""
    flight_s = max((flight.simulated_s for flight in results.flights), default=0.0)
    width_s = flight_s / PIXEL_COLUMNS
    return int(-(-width_s // 1) * 1e9) if width_s > 1 else 1_000_000_000 if flight_s > 30 else 100_000_000


def _bins(results: Results) -> int:
    return int(results.flights[0].simulated_s * 1e9 // _bin_ns(results)) if results.flights else 0


def _binned(table: pl.LazyFrame, time: str, bin_ns: int) -> pl.LazyFrame:
    return table.with_columns((pl.col(time) // bin_ns).alias("bin"))


def _seconds(bins: pl.Series, bin_ns: int) -> NDArray[np.float64]:
    return (bins * (bin_ns * 1e-9)).to_numpy()


def _rows(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDTH_IN, max(rows, 1) * height + 0.4))
    return figure, list(figure.subplots(max(rows, 1), 1, sharex=True, squeeze=False)[:, 0])[:rows]


def _duration_s(results: Results) -> float:
    return results.flights[0].simulated_s if results.flights else 0.0


def _finish(grid: Sequence[Axes], results: Results, *, legend: bool) -> None:
    _time_axis(grid, results)
    if grid and legend and grid[0].get_legend_handles_labels()[0]:
        _legend(grid[0], columns=4)


def _time_axis(column: Sequence[Axes], results: Results) -> None:
    """The whole flight on each axes of a column, with ticks at whole minutes where it is long."""
    for axes in column:
        axes.set_xlim(0, _duration_s(results) or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 3, 6, 10]))
    if column:
        column[-1].set_xlabel("time, s")


def _legend(axes: Axes, columns: int) -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2)


def _plain_ticks(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    low, high = axes.get_xlim()
    named = "235" if high < 30 * low else "25" if high < 300 * low else "3" if high < 3000 * low else ""
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if named and f"{value:e}"[0] in named else "")
    axes.yaxis.set_major_formatter(lambda value, _: percent(min(max(value, 0.0), 1.0)))


def _path_colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _flow_colour(index: int) -> str:
    return COLOURS[(index + 3) % len(COLOURS)]


def _marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]

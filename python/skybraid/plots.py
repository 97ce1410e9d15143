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
import polars as pl
from matplotlib.figure import Figure

from skybraid.errors import MissingTableError
from skybraid.requirements import percent
from skybraid.statistics import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from skybraid.results import Results

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#999999")
"""Okabe and Ito's palette; black is left to the text and yellow out, since it fades on white."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

PIXEL_COLUMNS = 480
"""Points of a drawn series over the whole time axis."""

INK = "#010203"
"""Colour of text and axes: black to the eye, and the one that a page may replace by its own."""

SECOND_INK = "#6b7280"
"""Colour of what stands behind the main line; readable on white and on black."""

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
    "ytick.color": INK,
    "ytick.labelsize": 8,
}

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
        figure = Figure(figsize=(7, 4.2))
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
                        label=f"{name}: {percent(requirement.target)} within {requirement.deadline_ms:g} ms",
                    )
        axes.set(xscale="log", yscale="log", xlabel="one-way delay, ms", ylabel="share not yet arrived")
        _plain_ticks(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        return figure


def timeline(results: Results, paths: Sequence[str] | None = None) -> Figure:
    """Each path over time, one column a path: rate and load, delay, queue and loss, with outages shaded.

    Raises:
        MissingTableError: the result has no `links` table, or no such path.
    """
    chosen = list(results.paths if paths is None else paths)
    for path in chosen:
        if path not in results.paths:
            raise MissingTableError(f"path: found {path}, expected one of {', '.join(results.paths)}")
    links = first_seed(results.tables.scan("links"))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7 * max(len(chosen), 1), 7.2))
        grid = figure.subplots(4, max(len(chosen), 1), sharex=True, sharey="row", squeeze=False)
        for column, path in enumerate(chosen):
            axes = [row[column] for row in grid]
            _timeline_column(axes, links.filter(pl.col("path") == path), results.paths.index(path))
            axes[0].set_title(path)
            axes[-1].set_xlabel("time, s")
        for row, label in zip(grid, ("rate, Mbit/s", "one-way delay, ms", "queue, kB", "loss, %"), strict=True):
            row[0].set_ylabel(label)
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
                times_s = _seconds(bins["bin"], _bin_ns(results))
                colours = [_path_colour(index) for index in range(len(results.paths))]
                axes.stackplot(times_s, layers, labels=results.paths, colors=colours, linewidth=0, step="post")
            axes.set(ylim=(0, 1), ylabel="share of messages")
            axes.set_title(name)
        _finish(grid, legend=True)
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
                axes.plot(
                    _seconds(every["bin"], bin_ns),
                    (bits / (bin_ns * 1e-9) / 1e6).to_numpy(),
                    color=_flow_colour(index),
                    drawstyle="steps-post",
                )
            for requirement in results.requirements:
                if requirement.flow == name and requirement.metric == "goodput":
                    axes.axhline(requirement.target / 1e6, color=_flow_colour(index), linestyle="--", linewidth=0.8)
            axes.set(ylabel="Mbit/s")
            axes.set_ylim(bottom=0)
            axes.set_title(name)
        _finish(grid, legend=False)
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
        _finish(grid, legend=True)
        return figure


def window(results: Results) -> Figure:
    """Congestion window and smoothed round-trip time of each subflow, over time.

    Raises:
        MissingTableError: the result has no `subflows` table.
    """
    subflows = first_seed(results.tables.scan("subflows")).with_columns(pl.col("flow", "side", "path").cast(pl.String))
    senders = subflows.select("flow", "side").unique().sort("flow", "side").collect(engine="streaming").rows()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 3.4 * max(len(senders), 1)))
        grid = figure.subplots(2 * max(len(senders), 1), 1, sharex=True, squeeze=False)[:, 0]
        for (flow, side), upper, lower in zip(senders, grid[0::2], grid[1::2], strict=False):
            for index, path in enumerate(results.paths):
                one = subflows.filter((pl.col("flow") == flow) & (pl.col("side") == side) & (pl.col("path") == path))
                _draw(upper, _envelope(one, pl.col("cwnd_bytes") / 1e3), _path_colour(index), label=path)
                _draw(lower, _envelope(one, pl.col("srtt_ns") / 1e6), _path_colour(index), label=path)
            upper.set(ylabel="window, kB")
            lower.set(ylabel="smoothed RTT, ms")
            upper.set_title(f"{flow}, sent by the {side}")
        _finish(list(grid), legend=True)
        return figure


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
    samples = links.sort("time_ns").select("time_ns", "up").collect(engine="streaming")
    if samples.height < 2:
        return []
    step_s = float(samples["time_ns"][1] - samples["time_ns"][0]) * 1e-9
    spans: list[tuple[float, float]] = []
    runs = samples.with_columns(run=pl.col("up").rle_id()).group_by("run", maintain_order=True)
    for _, rows in runs:
        if not rows["up"][0]:
            spans.append((rows["time_ns"][0] * 1e-9, rows["time_ns"][-1] * 1e-9 + step_s))
    return spans


def _timeline_column(axes: Sequence[Axes], links: pl.LazyFrame, index: int) -> None:
    rate, delay_, queue_, loss = axes
    for direction, style, colour in zip(_DIRECTIONS, ("-", "-"), (_path_colour(index), SECOND_INK), strict=True):
        one = links.filter(pl.col("direction") == direction)
        step_s = _sample_step_s(one)
        load = pl.col("delivered_bytes") * 8 / step_s / 1e6
        _draw(rate, _envelope(one, pl.col("rate_bps") / 1e6), colour, label=f"{direction} rate", style=style)
        _draw(rate, _envelope(one, load), colour, label=f"{direction} load", style=":", band=False)
        _draw(delay_, _envelope(one, pl.col("delay_ns") / 1e6), colour, label=direction, style=style)
        _draw(queue_, _envelope(one, pl.col("queue_bytes") / 1e3), colour, label=direction, style=style)
        _draw(loss, _envelope(one, pl.col("loss") * 100), colour, label=direction, style=style)
        for begin_s, end_s in outages(one):
            for part in axes:
                part.axvspan(begin_s, end_s, color="#D55E00", alpha=0.18, linewidth=0)
    for part in axes:
        part.set_ylim(bottom=0)
        part.margins(x=0)
    _legend(rate, columns=2)


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
        axes.fill_between(times_s, low, high, color=colour, alpha=0.25, linewidth=0)
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
    figure = Figure(figsize=(7, max(rows, 1) * height + 0.4))
    return figure, list(figure.subplots(max(rows, 1), 1, sharex=True, squeeze=False)[:, 0])[:rows]


def _finish(grid: Sequence[Axes], *, legend: bool) -> None:
    for axes in grid:
        axes.margins(x=0)
    if grid:
        grid[-1].set_xlabel("time, s")
        if legend and grid[0].get_legend_handles_labels()[0]:
            _legend(grid[0], columns=4)


def _legend(axes: Axes, columns: int) -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2)


def _plain_ticks(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    few = axes.get_xlim()[1] < 30 * axes.get_xlim()[0]
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if few and f"{value:e}"[0] in "235" else "")
    axes.yaxis.set_major_formatter(lambda value, _: percent(min(max(value, 0.0), 1.0)))


def _path_colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _flow_colour(index: int) -> str:
    return COLOURS[(index + 3) % len(COLOURS)]


def _marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]

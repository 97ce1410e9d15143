"""Figures of a single result, as functions from `Results` to `matplotlib.figure.Figure`.

A path or flow has the same colour and marker in all figures of a result. Long series are drawn as their mean in the
band from minimum to maximum of each pixel column, so that short events remain visible and files small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from skybraid.model.errors import MissingTableError
from skybraid.model.formatting import percent
from skybraid.model.statistics import Verdict
from skybraid.show.plots.style import (
    DOWN,
    HALTED,
    INK,
    LINE_STYLES,
    SECOND_INK,
    STYLE,
    WIDTH_IN,
    flow_colour,
    legend,
    marker,
    path_colour,
)
from skybraid.show.series import (
    DIRECTIONS,
    bin_ns,
    binned,
    bins,
    duration_s,
    envelope,
    first_seed,
    flows_of,
    halts,
    not_arrived,
    outages,
    sample_step_s,
    wanted,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from skybraid.model.results import Results

_EDGE = 0.8
"""Edge width of a shaded span in points, so that spans narrower than a pixel remain visible."""

_BOX = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of a box: whiskers, edges and median."""


def ecdf(results: Results, flow: str | None = None) -> Figure:
    """Draws the distribution of one-way delay per flow; a curve ends at the share delivered.

    Raises:
        ResultError: there is no such flow.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.6))
        axes = figure.add_subplot()
        places = list(results.flows)
        for name in flows_of(results, flow):
            delays_ms, missing = not_arrived(results, name)
            if delays_ms:
                arrived = [100 * (1 - share) for share in missing]
                colour = flow_colour(places.index(name))
                axes.plot(delays_ms, arrived, color=colour, label=name, drawstyle="steps-post")
        axes.set(xscale="log", ylim=(0, 101), xlabel="one-way delay, ms", ylabel="messages arrived, %")
        plain_delays(axes)
        if axes.get_legend_handles_labels()[0]:
            legend(axes, "above left", 2)
        return figure


def ccdf(results: Results, flow: str | None = None) -> Figure:
    """Draws the complementary distribution of one-way delay per flow, on logarithmic axes.

    A curve ends at the share of lost messages. A dashed line marks a required delay, and a marker the permitted share
    of later messages: the requirement is met if the curve passes below it. The marker is filled if it is met.

    Raises:
        ResultError: there is no such flow.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 4.2))
        axes = figure.add_subplot()
        places = list(results.flows)
        for name in flows_of(results, flow):
            delays_ms, missing = not_arrived(results, name)
            if not delays_ms:
                continue
            index = places.index(name)
            axes.plot(delays_ms, missing, color=flow_colour(index), label=name, drawstyle="steps-post")
            for deadline_ms, allowed, words, verdict in wanted(results, name):
                axes.axvline(deadline_ms, color=flow_colour(index), linestyle="--", linewidth=0.8)
                axes.plot(
                    deadline_ms,
                    allowed,
                    marker=marker(index),
                    color=flow_colour(index),
                    linestyle="none",
                    fillstyle="full" if verdict is Verdict.MET else "none",
                    label=f"{name}: {words}, {verdict}",
                )
        axes.set(xscale="log", yscale="log", xlabel="one-way delay, ms", ylabel="share not yet arrived")
        plain_ticks(axes)
        if axes.get_legend_handles_labels()[0]:
            legend(axes, "above left", 2)
        return figure


def box(results: Results, flow: str | None = None) -> Figure:
    """Draws box plots of each flow's one-way delay, by the path that delivered the message first.

    A box reaches from the first to the third quartile with the median in it, its whiskers from the 5th percentile to
    the 95th.

    Raises:
        MissingTableError: the result has no `messages` table.
        ResultError: there is no such flow.
    """
    names = flows_of(results, flow)
    delay_ms = (pl.col("delivered_ns") - pl.col("sent_ns")) / 1e6
    arrived = results.tables.scan("messages").filter(pl.col("delivered_ns").is_not_null())
    quantiles = (
        arrived.group_by(pl.col("flow", "path").cast(pl.String))
        .agg(*(delay_ms.quantile(q, "nearest").alias(str(q)) for q in _BOX))
        .collect(engine="streaming")
    )
    with mpl.rc_context(STYLE):
        figure, grid = stacked(len(names), height=0.6 + 0.35 * len(results.paths))
        for axes, name in zip(grid, names, strict=True):
            rows = {row["path"]: row for row in quantiles.filter(pl.col("flow") == name).to_dicts()}
            shown = [path for path in reversed(results.paths) if path in rows]
            stats = [
                dict(zip(("whislo", "q1", "med", "q3", "whishi"), (rows[path][str(q)] for q in _BOX), strict=True))
                | {"label": path, "fliers": []}
                for path in shown
            ]
            if stats:
                drawn = axes.bxp(stats, orientation="horizontal", patch_artist=True, showfliers=False, widths=0.6)
                for path, patch, median in zip(shown, drawn["boxes"], drawn["medians"], strict=True):
                    patch.set(facecolor=path_colour(results.paths.index(path)), alpha=0.6)
                    median.set(color=INK, linewidth=1.4)
            axes.set_title(name)
            axes.set_xscale("log")
        if grid:
            # The limits of the shared axis are known once all boxes are drawn.
            plain_delays(grid[-1])
            grid[-1].set_xlabel("one-way delay, ms")
        return figure


def timeline(results: Results, paths: Sequence[str] | None = None) -> Figure:
    """Draws a column per path over time: capacity and load of both directions, delay, queue and loss.

    Times when the path was down, or up without service, are shaded.

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
            time_axis(axes, results)
            if len(chosen) > 1:
                axes[0].set_title(path)
        for row, label in zip(grid, labels, strict=True):
            row[0].set_ylabel(label)
            # Setting limits stops autoscaling, so every column must be drawn first.
            row[0].set_ylim(bottom=0)
        figure.align_ylabels()
        return figure


def shares(results: Results, flow: str | None = None) -> Figure:
    """Draws the share of each flow's messages delivered first by each path, over time.

    Raises:
        MissingTableError: the result has no `messages` table.
    """
    arrived = first_seed(results.tables.scan("messages")).filter(pl.col("delivered_ns").is_not_null())
    with mpl.rc_context(STYLE):
        names = flows_of(results, flow)
        figure, grid = stacked(len(names), height=1.9)
        for axes, name in zip(grid, names, strict=True):
            counted = (
                binned(arrived.filter(pl.col("flow") == name), "delivered_ns", bin_ns(results))
                .group_by("bin", "path")
                .agg(pl.len().alias("messages"))
                .with_columns(share=pl.col("messages") / pl.col("messages").sum().over("bin"))
                .collect(engine="streaming")
            )
            found = counted.select(pl.col("bin").unique().sort())
            layers = [
                found.join(counted.filter(pl.col("path") == path), on="bin", how="left")
                .select(pl.col("share").fill_null(0.0))
                .to_series()
                .to_numpy()
                for path in results.paths
            ]
            if found.height and layers:
                # The last bin needs an end point.
                edges_s = [*_seconds(found["bin"], bin_ns(results)), duration_s(results)]
                ended = [[*layer * 100, layer[-1] * 100] for layer in layers]
                colours = [path_colour(index) for index in range(len(results.paths))]
                axes.stackplot(edges_s, ended, labels=results.paths, colors=colours, linewidth=0, step="post")
            axes.set(ylim=(0, 100), ylabel="messages, %")
            axes.set_title(name)
        _finish(grid, results, shown=True)
        return figure


def goodput(results: Results, flow: str | None = None) -> Figure:
    """Draws delivered application data over time, per flow.

    Raises:
        MissingTableError: the result has no `messages` table.
    """
    width_ns = bin_ns(results)
    arrived = first_seed(results.tables.scan("messages")).filter(pl.col("delivered_ns").is_not_null())
    carried = (
        binned(arrived, "delivered_ns", width_ns)
        .group_by("flow", "bin")
        .agg(pl.col("bytes").cast(pl.Int64).sum())
        .sort("bin")
        .collect(engine="streaming")
    )
    with mpl.rc_context(STYLE):
        names, places = flows_of(results, flow), list(results.flows)
        figure, grid = stacked(len(names), height=1.9)
        for axes, name in zip(grid, names, strict=True):
            index = places.index(name)
            one = carried.filter(pl.col("flow") == name)
            if one.height:
                every = pl.DataFrame({"bin": pl.int_range(0, bins(results), eager=True)})
                bits = every.join(one, on="bin", how="left")["bytes"].fill_null(0) * 8
                rates = (bits / (width_ns * 1e-9) / 1e6).to_numpy()
                edges_s = np.append(_seconds(every["bin"], width_ns), bins(results) * width_ns * 1e-9)
                axes.stairs(rates, edges_s, color=flow_colour(index), baseline=None, linewidth=1.1)
            for requirement in results.requirements:
                if requirement.flow == name and requirement.metric == "goodput":
                    axes.axhline(requirement.target / 1e6, color=flow_colour(index), linestyle="--", linewidth=0.8)
            axes.set(ylabel="goodput, Mbit/s")
            axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
            axes.set_title(name)
        _finish(grid, results, shown=False)
        return figure


def queue(results: Results) -> Figure:
    """Draws the queue of each link over time.

    Raises:
        MissingTableError: the result has no `links` table.
    """
    links = first_seed(results.tables.scan("links"))
    with mpl.rc_context(STYLE):
        figure, grid = stacked(len(DIRECTIONS), height=2.1)
        for axes, direction in zip(grid, DIRECTIONS, strict=True):
            for index, path in enumerate(results.paths):
                one = links.filter((pl.col("path") == path) & (pl.col("direction") == direction))
                _draw(axes, _series(one, pl.col("queue_bytes") / 1e3), path_colour(index), label=path)
            axes.set(ylabel="queue, kB")
            axes.set_ylim(bottom=0)
            axes.set_title(direction)
        _finish(grid, results, shown=True)
        return figure


def window(results: Results, flow: str | None = None) -> Figure:
    """Draws congestion window and smoothed round-trip time of each subflow, over time.

    Raises:
        MissingTableError: the result has no `subflows` table.
    """
    subflows = first_seed(results.tables.scan("subflows")).with_columns(pl.col("flow", "side", "path").cast(pl.String))
    names = flows_of(results, flow)
    every = subflows.select("flow", "side").unique().sort("flow", "side").collect(engine="streaming").rows()
    senders = [(name, side) for name, side in every if name in names]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 3.6 * max(len(senders), 1)))
        grid = figure.subplots(2 * max(len(senders), 1), 1, sharex=True, squeeze=False)[:, 0]
        for (name, side), upper, lower in zip(senders, grid[0::2], grid[1::2], strict=False):
            own = subflows.filter((pl.col("flow") == name) & (pl.col("side") == side))
            for index, path in enumerate(results.paths):
                on_path = own.filter(pl.col("path") == path)
                for one, label, style in _each_subflow(on_path, path):
                    _draw(upper, _series(one, pl.col("cwnd_bytes") / 1e3), path_colour(index), label=label, style=style)
                    _draw(lower, _series(one, pl.col("srtt_ns") / 1e6), path_colour(index), label=label, style=style)
            upper.set(ylabel="window, kB")
            lower.set(ylabel="smoothed RTT, ms")
            upper.set_title(f"{name}, sent by the {side}")
            for axes in (upper, lower):
                axes.set_ylim(bottom=0)
        _finish(list(grid), results, shown=True)
        figure.align_ylabels()
        return figure


def _each_subflow(on_path: pl.LazyFrame, path: str) -> Iterator[tuple[pl.LazyFrame, str, str]]:
    """Yields rows, label and line style of each subflow on a path; a single subflow has the path's name."""
    numbers = on_path.select(pl.col("subflow").unique().sort()).collect(engine="streaming")["subflow"].to_list()
    for place, number in enumerate(numbers):
        label = path if len(numbers) == 1 else f"{path}, subflow {place + 1}"
        yield on_path.filter(pl.col("subflow") == number), label, LINE_STYLES[place % len(LINE_STYLES)]


def _timeline_column(axes: Sequence[Axes], links: pl.LazyFrame, index: int) -> None:
    delay_, queue_, loss = axes[2:]
    colours = (path_colour(index), SECOND_INK)
    for direction, style, colour, rate in zip(DIRECTIONS, ("-", "--"), colours, axes, strict=False):
        one = links.filter(pl.col("direction") == direction)
        load = _series(one, pl.col("delivered_bytes") * 8 / sample_step_s(one) / 1e6)
        rate.fill_between(load["time_s"], load["mean"], color=colour, alpha=0.6, linewidth=0, label="load")
        _draw(rate, _series(one, pl.col("rate_bps") / 1e6), colour, label="capacity")
        _draw(delay_, _series(one, pl.col("delay_ns") / 1e6), colour, label=direction, style=style)
        _draw(queue_, _series(one, pl.col("queue_bytes") / 1e3), colour, label=direction, style=style)
        _draw(loss, _series(one, pl.col("loss") * 100), colour, label=direction, style=style)
        for spans, shade, name in ((outages(one), DOWN, "down"), (halts(one), HALTED, "no service")):
            for number, span in enumerate(spans):
                rate.axvspan(*span, color=shade, alpha=0.35, lw=_EDGE, label=None if number else name)
                for part in axes[2:]:
                    part.axvspan(*span, color=shade, alpha=0.2, lw=_EDGE)
    for part in (axes[0], axes[1], delay_):
        legend(part, "above right", 4)


def _series(table: pl.LazyFrame, value: pl.Expr) -> pl.DataFrame:
    found = envelope(table, {"value": value})
    return found.rename({name: name.removeprefix("value_") for name in found.columns})


def _draw(axes: Axes, series: pl.DataFrame, colour: str, *, label: str, style: str = "-") -> None:
    if series.height == 0:
        return
    times_s = series["time_s"].to_numpy()
    low, high = series["low"].to_numpy(), series["high"].to_numpy()
    axes.fill_between(times_s, low, high, color=colour, alpha=0.35, linewidth=0)
    axes.plot(times_s, series["mean"].to_numpy(), color=colour, linestyle=style, label=label)


def _seconds(numbers: pl.Series, width_ns: int) -> NDArray[np.float64]:
    return (numbers * (width_ns * 1e-9)).to_numpy()


def stacked(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """Creates a figure with vertically stacked axes that share the x axis."""
    figure = Figure(figsize=(WIDTH_IN, max(rows, 1) * height + 0.4))
    return figure, list(figure.subplots(max(rows, 1), 1, sharex=True, squeeze=False)[:, 0])[:rows]


def _finish(grid: Sequence[Axes], results: Results, *, shown: bool) -> None:
    time_axis(grid, results)
    if grid and shown and grid[0].get_legend_handles_labels()[0]:
        legend(grid[0], "above right", 4)


def time_axis(column: Sequence[Axes], results: Results) -> None:
    """Sets the x axis to the whole flight, with ticks at whole minutes if it is long."""
    for axes in column:
        axes.set_xlim(0, duration_s(results) or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 3, 6, 10]))
    if column:
        column[-1].set_xlabel("time, s")


def plain_ticks(axes: Axes) -> None:
    """Formats logarithmic axes: plain numbers on x, percent on y."""
    plain_delays(axes)
    axes.yaxis.set_major_formatter(lambda value, _: percent(min(max(value, 0.0), 1.0)))


def plain_delays(axes: Axes) -> None:
    """Formats a logarithmic x axis with plain numbers, also between powers of ten if it spans few."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    low, high = axes.get_xlim()
    named = "235" if high < 30 * low else "25" if high < 300 * low else "3" if high < 3000 * low else ""
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if named and f"{value:e}"[0] in named else "")

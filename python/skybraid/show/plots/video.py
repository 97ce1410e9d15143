"""Figures of a result's videos, from the table `frames`, and series shared with the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from skybraid.model.formatting import percent
from skybraid.model.statistics import Verdict
from skybraid.show.frames import drawn_videos, frames_of, freezes, latencies, not_shown, rates, required
from skybraid.show.plots.result import plain_ticks, stacked, time_axis
from skybraid.show.plots.style import HALTED, SECOND_INK, STYLE, WIDTH_IN, flow_colour, legend, marker
from skybraid.show.series import PIXEL_COLUMNS, duration_s

if TYPE_CHECKING:
    from skybraid.model.results import Results


def frame_latency(results: Results, flow: str | None = None) -> Figure:
    """Draws the frame latency of each video over time, and its complementary distribution.

    Top: median over time in the band from minimum to maximum. Bottom: share of frames not shown undamaged (dashed: not
    shown at all) after a latency. A dashed line marks the required latency, a marker the permitted share of later
    frames.

    Raises:
        MissingTableError: the result has no `frames` table.
        ResultError: there is no such flow.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, 5.0))
        over_time, tail = figure.subplots(2, 1)
        end_s = duration_s(results)
        for index, name, frames in _each(results, flow):
            colour = flow_colour(index)
            series = latencies(frames, max(int(end_s * 1e9) // PIXEL_COLUMNS, 1))
            times_s = series["time_s"].to_numpy()
            low, middle, high = (series[f"latency_{part}"].cast(pl.Float64) for part in ("low", "mean", "high"))
            over_time.fill_between(times_s, low.to_numpy(), high.to_numpy(), color=colour, alpha=0.35, linewidth=0)
            over_time.plot(times_s, middle.to_numpy(), color=colour, label=name)
            wanted = required(results, name)
            within_ms = max((one.deadline_ms or 0.0 for one in wanted), default=0.0)
            for intact, style, label in ((True, "-", name), (False, ":", f"{name}: not shown at all")):
                latency_ms, missing = not_shown(frames, end_s, within_ms, intact=intact)
                tail.plot(latency_ms, missing, color=colour, linestyle=style, drawstyle="steps-post", label=label)
            for one in wanted:
                for axes, line in ((over_time, "axhline"), (tail, "axvline")):
                    getattr(axes, line)(one.deadline_ms, color=colour, linestyle="--", linewidth=0.8)
                tail.plot(
                    one.deadline_ms,
                    1 - one.target,
                    marker=marker(index),
                    color=colour,
                    linestyle="none",
                    fillstyle="full" if one.verdict is Verdict.MET else "none",
                    label=f"{name}: {percent(one.target)} within {one.deadline_ms:g} ms, {one.verdict}",
                )
        over_time.set(ylabel="latency, ms")
        over_time.set_ylim(bottom=0)
        time_axis([over_time], results)
        tail.set(xscale="log", yscale="log", xlabel="latency, ms", ylabel="not shown undamaged")
        plain_ticks(tail)
        if tail.get_legend_handles_labels()[0]:
            legend(tail, "above left", 2)
        return figure


def frame_rate(results: Results, flow: str | None = None) -> Figure:
    """Draws the frames shown per second of each video, with freezes shaded and required rates dashed.

    Raises:
        MissingTableError: the result has no `frames` table.
        ResultError: there is no such flow.
    """
    drawn = list(_each(results, flow))
    with mpl.rc_context(STYLE):
        figure, grid = stacked(len(drawn), height=1.9)
        for axes, (index, name, frames) in zip(grid, drawn, strict=False):
            colour = flow_colour(index)
            series = rates(frames, duration_s(results), PIXEL_COLUMNS)
            # The last second needs an end point.
            times_s = np.append(series["time_s"].to_numpy(), duration_s(results))
            parts = (series[f"rate_{part}"].to_numpy() for part in ("low", "mean", "high"))
            low, mean, high = (np.append(part, part[-1:] if len(part) else 0.0) for part in parts)
            axes.fill_between(times_s, low, high, color=colour, alpha=0.35, linewidth=0, step="post")
            axes.plot(times_s, mean, color=colour, drawstyle="steps-post", label="frames shown in a second")
            for number, span in enumerate(freezes(frames, duration_s(results))):
                axes.axvspan(*span, color=HALTED, alpha=0.35, lw=0.8, label=None if number else "freeze")
            for one in results.requirements:
                if one.flow == name and one.metric in ("frame_rate", "worst_frame_rate"):
                    shade = colour if one.metric == "frame_rate" else SECOND_INK
                    axes.axhline(one.target, color=shade, linestyle="--", linewidth=0.8)
            axes.set(ylabel="frames/s")
            axes.set_title(name)
            axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        time_axis(grid, results)
        if drawn:
            legend(grid[0], "above right", 2)
        return figure


def _each(results: Results, flow: str | None) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """Yields index of the flow, name and frames of each single video."""
    places = list(results.flows)
    for number, name in enumerate(drawn_videos(results, flow)):
        index = places.index(name) if name in places else len(places) + number
        yield index, name, frames_of(results, name)

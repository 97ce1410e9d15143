"""Figures for papers, drawn with matplotlib and without a display.

    figure = plots.draw(skybraid.open_results("runs/first-1"), "ccdf", flow="control")
    plots.save(figure, "tail.pdf", width="88mm")

`draw` returns a `matplotlib.figure.Figure` of a result or a campaign; `KINDS` lists the kinds of figure available for
each. For colours and markers see `skybraid.plots.style`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.model.errors import ResultError, unknown
from skybraid.model.results import Results
from skybraid.show.plots import runs as _runs
from skybraid.show.plots.orbit import passes
from skybraid.show.plots.result import box, ccdf, ecdf, goodput, queue, shares, timeline, window
from skybraid.show.plots.runs import NothingToDrawError, Runs
from skybraid.show.plots.style import (
    COLOURS,
    DARK_COLOURS,
    DOWN,
    FORMATS,
    HALTED,
    INK,
    LINE_STYLES,
    MARKERS,
    SECOND_INK,
    STYLE,
    WIDTH_IN,
    Look,
    encode,
    looks,
    save,
)
from skybraid.show.plots.video import frame_latency, frame_rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from skybraid.execute.campaign import Campaign

__all__ = [
    "COLOURS",
    "DARK_COLOURS",
    "DOWN",
    "FORMATS",
    "HALTED",
    "INK",
    "KINDS",
    "LINE_STYLES",
    "MARKERS",
    "SECOND_INK",
    "STYLE",
    "WIDTH_IN",
    "Kind",
    "Look",
    "NothingToDrawError",
    "Runs",
    "box",
    "ccdf",
    "draw",
    "ecdf",
    "encode",
    "frame_latency",
    "frame_rate",
    "goodput",
    "kinds_of",
    "looks",
    "passes",
    "queue",
    "save",
    "shares",
    "timeline",
    "window",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of figure: its title, and its drawing functions for one result and for many runs (None if not available)."""

    title: str
    of_result: Callable[[Results, str | None], Figure] | None
    of_runs: Callable[[Runs, _runs.Choice], Figure] | None


KINDS = {
    "ecdf": Kind("Distribution of one-way delays, or of a metric over runs", ecdf, _runs.ecdf),
    "ccdf": Kind("Share of messages that took longer than a delay: its tail", ccdf, _runs.ccdf),
    "box": Kind("Boxes of delays by path, or of a metric over runs", box, _runs.box),
    "timeline": Kind(
        "Each path over time: capacity, load, delay, queue and loss", lambda results, _: timeline(results), None
    ),
    "shares": Kind("Share of messages or packets by path", shares, _runs.shares),
    "goodput": Kind("Goodput over time", goodput, None),
    "queue": Kind("Queue of each link over time", lambda results, _: queue(results), None),
    "window": Kind("Congestion window and round trip of each subflow over time", window, None),
    "frames": Kind("Frames of a video shown in time", None, _runs.frames),
    "frame_latency": Kind("Latency of a video's frames", frame_latency, _runs.frame_latency),
    "frame_rate": Kind("Frame rate of a video", frame_rate, _runs.frame_rate),
    "heatmap": Kind("A metric over two axes", None, _runs.heatmap),
    "tradeoff": Kind("Goodput against delay", None, _runs.tradeoff),
}
"""Kinds of figure by their names on the command line."""

OF_VIDEO = ("frames", "frame_latency", "frame_rate")
"""Kinds of figure of a video flow."""


def draw(
    source: Results | Campaign | Runs,
    kind: str,
    *,
    flow: str | None = None,
    x: str | None = None,
    y: str | None = None,
    by: str | None = None,
) -> Figure:
    """Draws a result or a campaign.

    Args:
        source: `Results`, `Campaign` or `Runs`.
        kind: key of `KINDS`.
        flow: flow to draw; default: all flows of a result, or the first suitable flow of a campaign.
        x: campaign axis along x; two axes separated by a comma for a heat map.
        y: column of the flows' table to draw, such as `goodput_bps` or `delay_p99_ms`.
        by: axis shown as colour and marker.

    Raises:
        MissingTableError: the result lacks a required table.
        ResultError: no such kind, flow, axis or column, or the kind is not available for the source.
    """
    if kind not in KINDS:
        raise ResultError(unknown("--kind", kind, KINDS))
    chosen = KINDS[kind]
    if kind in OF_VIDEO and kind not in kinds_of(source):
        found = f"--kind: found {kind}, which takes a flow that is video"
        raise ResultError(f"{found}, expected one of {', '.join(kinds_of(source))}")
    if isinstance(source, Results) and chosen.of_result is not None:
        for option, value in (("--x", x), ("--y", y), ("--by", by)):
            if value is not None:
                raise ResultError(f"{option}: found {value}, but --kind {kind} of a single result has no such choice")
        return chosen.of_result(source, flow)
    if chosen.of_runs is None:
        raise ResultError(unknown("--kind", kind, kinds_of(source)))
    return chosen.of_runs(Runs.of(source), _runs.Choice(flow, x, y, by))


def kinds_of(source: Results | Campaign | Runs) -> list[str]:
    """Returns the kinds of figure available for a result or a campaign.

    Comparisons of runs need several runs, and kinds of frames need video.
    """
    single = isinstance(source, Results)
    several = not isinstance(source, Results) or len(source.seeds) > 1
    if isinstance(source, Results):
        video = any(flow.video is not None for flow in source.flows.values())
    else:
        video = bool(Runs.of(source).videos)
    return [
        name
        for name, kind in KINDS.items()
        if (video or name not in OF_VIDEO)
        and (
            (single and kind.of_result is not None)
            or (several and kind.of_runs is not None and not (single and name == "heatmap"))
        )
    ]

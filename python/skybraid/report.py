"""The report: one HTML file that needs nothing else, for a screen, a phone or paper."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined

from skybraid import plots
from skybraid.errors import MissingTableError
from skybraid.folder import write_whole
from skybraid.options import ended, split
from skybraid.requirements import count, headline, microseconds, milliseconds, percent, rate, span
from skybraid.summary import PERCENTILES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure

    from skybraid.results import Results
    from skybraid.summary import FlowSummary

DARK_COLOURS = ("#4BA3E3", "#F0B840", "#2FC596", "#FF8A4C", "#7CC8F2", "#E39BC4", "#B5B5B5")
"""`plots.COLOURS` on a dark page, each a little lighter, so that thin lines and pale bands can be seen."""

CAUSES = ("queue", "random", "burst", "handover", "outage", "mtu")
"""Causes of a lost packet, in the order of the tables."""


@dataclass(frozen=True, slots=True)
class PathStory:
    """What one direction of a path did, over the first run.

    Attributes:
        path: the path's name.
        direction: "uplink" (from the vehicle) or "downlink".
        rate_bps: mean rate of the link in bit/s.
        delay_ms: median one-way delay of the link in ms, without its queue.
        delay_p95_ms: its 95th percentile.
        outages: how many times the link was down, at the 100 ms resolution of the samples.
        longest_outage_s: the longest of these in s.
        down: share of the time down, 0 to 1.
        halted: share of the samples that found the link up but without service, 0 to 1.
    """

    path: str
    direction: str
    rate_bps: float
    delay_ms: float
    delay_p95_ms: float
    outages: int
    longest_outage_s: float
    down: float
    halted: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure for the page: what it shows, in words, and the drawing, or why there is none."""

    title: str
    caption: str
    svg: str = ""
    missing: str = ""


def write_report(results: Results, path: Path) -> Path:
    """Writes the report of a result to `path`, replacing an earlier report there.

    Raises:
        ResultError: the file cannot be written.
    """
    write_whole(path, html(results).encode())
    return path


def html(results: Results) -> str:
    """The report as HTML."""
    environment = Environment(
        loader=PackageLoader("skybraid"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "ended": ended,
        "microseconds": microseconds,
        "ms": _delay,
        "percent": percent,
        "rate": rate,
        "span": span,
        "split": split,
        "unbroken": _unbroken,
    }
    return environment.get_template("report.html.j2").render(
        results=results,
        emulation=results.flights[0].emulation,
        doubts=doubts(results),
        notes=(results.flights[0].emulation or {}).get("notes", ()),
        headline=headline(results.requirements) if results.flows else "Programs over the links.",
        percentiles=list(PERCENTILES),
        causes=CAUSES,
        colours=plots.COLOURS,
        dark_colours=DARK_COLOURS,
        links=results.links(),
        stories=path_stories(results),
        gaps=longest_gaps(results),
        waits={name: waits(flow) for name, flow in results.flows.items()},
        delay=_drawing(results, "delay", _DELAY) if results.flows else None,
        paths=[_path_drawing(results, path) for path in results.paths],
        others=[
            _drawing(results, kind, caption) for kind, caption in _OVER_TIME.items() if results.flows or kind == "queue"
        ],
    )


def doubts(results: Results) -> str:
    """Why the numbers of an emulation are not to be trusted, or nothing."""
    return str((results.flights[0].emulation or {}).get("doubtful") or "")


_ENVELOPE = "Lines are means, bands span least and greatest."

_DELAY = (
    "Share of each flow's messages that have not arrived after a delay. A curve ends at the share that was "
    "lost; it must pass below the marker of its requirement."
)

_OVER_TIME = {
    "share": "Which path brought each message first.",
    "goodput": "Application data that arrived. A dashed line marks a required goodput, if any.",
    "queue": f"What waits in the queue of each link. {_ENVELOPE}",
    "window": f"Congestion window and smoothed round-trip time of each subflow. {_ENVELOPE}",
}


def path_stories(results: Results) -> list[PathStory]:
    """What each direction of each path did, or nothing where the `links` table was not kept."""
    if "links" not in list(results.tables):
        return []
    links = plots.first_seed(results.tables.scan("links"))
    stories = []
    for path in results.paths:
        for direction in ("uplink", "downlink"):
            one = links.filter((pl.col("path") == path) & (pl.col("direction") == direction))
            row = one.select(
                pl.col("rate_bps").mean(),
                (pl.col("delay_ns").median() / 1e6).alias("delay_ms"),
                (pl.col("delay_ns").quantile(0.95, "nearest") / 1e6).alias("delay_p95_ms"),
                (~pl.col("up")).mean().alias("down"),
                (pl.col("up") & (pl.col("rate_bps") == 0)).mean().alias("halted"),
            ).collect(engine="streaming")
            if row["down"][0] is None:
                continue
            spans = plots.outages(one)
            stories.append(
                PathStory(
                    path,
                    direction,
                    row["rate_bps"][0],
                    row["delay_ms"][0],
                    row["delay_p95_ms"][0],
                    len(spans),
                    max((end_s - begin_s for begin_s, end_s in spans), default=0.0),
                    row["down"][0],
                    row["halted"][0],
                )
            )
    return stories


def longest_gaps(results: Results) -> dict[str, float]:
    """The longest time in s between two arrivals of each flow, where the `messages` table was kept."""
    if "messages" not in list(results.tables):
        return {}
    arrivals = plots.first_seed(results.tables.scan("messages")).filter(pl.col("delivered_ns").is_not_null())
    gaps: dict[str, float] = {}
    for name in results.flows:
        times_ns = (
            arrivals.filter(pl.col("flow") == name).select("delivered_ns").collect(engine="streaming").to_series()
        )
        longest_ns = times_ns.sort().diff().max()
        if isinstance(longest_ns, int):
            gaps[name] = longest_ns * 1e-9
    return gaps


def waits(flow: FlowSummary) -> list[str]:
    """What kept a flow's messages waiting at its ends, in words; only what happened.

    Head-of-line blocking, the peer's receive window, chunks sent again on another path, messages refused.
    """
    told = []
    if flow.held_messages:
        told.append(
            f"{percent(flow.held_messages / max(flow.delivered, 1))} of the messages that arrived had waited for "
            f"something before them that was missing, {span(flow.held_total_s / flow.held_messages)} on average and "
            f"{span(flow.held_longest_s)} at most"
        )
    if flow.holding_s > 0:
        told.append(f"the receiver held data of one path until that of another came for {span(flow.holding_s)} in all")
    if flow.window_blocked_times:
        told.append(
            f"the peer's receive window kept back data for which a path had room {_times(flow.window_blocked_times)}, "
            f"{span(flow.window_blocked_s)} in all"
        )
    if flow.opportunistic_retransmissions:
        told.append(f"{_chunks(flow.opportunistic_retransmissions)} sent again on a faster path because of that")
    if flow.reinjections:
        told.append(f"{_chunks(flow.reinjections)} sent again on another path because their own failed")
    if flow.refused:
        told.append(f"{count(flow.refused)} of the lost messages were never sent, for want of room or time")
    return told


def _times(number: int) -> str:
    return "once" if number == 1 else f"{count(number)} times"


def _chunks(number: int) -> str:
    return "1 chunk of data was" if number == 1 else f"{count(number)} chunks of data were"


def _drawing(results: Results, kind: str, caption: str) -> Drawing:
    return _try_to_draw(plots.KINDS[kind].title, caption, kind, lambda: plots.KINDS[kind].draw(results))


def _path_drawing(results: Results, path: str) -> Drawing:
    caption = (
        f"{path} over time: capacity of each direction and the load it carried, propagation delay, queue, and the loss "
        f"that a packet meets. {_ENVELOPE} Shaded: down, or no service (up, but a handover, a reconfiguration or a gap "
        "of the trace stopped it; those that fall between two samples, which are 100 ms apart, are not seen)."
    )
    return _try_to_draw(path, caption, f"timeline-{path}", lambda: plots.timeline(results, [path]))


def _try_to_draw(title: str, caption: str, salt: str, draw: Callable[[], Figure]) -> Drawing:
    try:
        figure = draw()
    except MissingTableError as error:
        return Drawing(title, caption, missing=str(error))
    return Drawing(title, caption, svg=inline_svg(figure, salt))


def inline_svg(figure: Figure, salt: str) -> str:
    """A figure as an SVG element that takes its ink and colours from the page and names no address.

    Args:
        figure: what to draw.
        salt: keeps the identifiers of several drawings on one page apart.
    """
    file = io.StringIO()
    with mpl.rc_context(plots.STYLE | {"svg.hashsalt": salt}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return inlined(file.getvalue())


def inlined(text: str) -> str:
    """The text of an SVG file of ours as an element that takes its ink and colours from the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', text, count=1)
    text = text.replace("'DejaVu Sans'", "system-ui").replace(plots.INK, "currentColor")
    for index, colour in enumerate(plots.COLOURS):
        text = text.replace(colour.lower(), f"var(--series-{index})")
    text = text.replace(plots.SECOND_INK, "var(--second)")
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), text)
    return re.sub(r"\n\s*", "\n", text)


def _delay(delay_ms: float | None) -> str:
    return "–" if delay_ms is None else milliseconds(delay_ms)


def _unbroken(text: str) -> str:
    """Keeps a number together with its unit and its thousands at the end of a line."""
    return re.sub(r"(?<=\d) (?=\d{3}|%|m?s\b|min\b|h\b|[kMG]?bit/s)", "\u00a0", text)

"""Video section of a report: frames shown, frame rate, and latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from skybraid.model.errors import MissingTableError
from skybraid.model.formatting import count, milliseconds, percent
from skybraid.show.frames import (
    camera_rate,
    drawn_videos,
    frames_of,
    freezes,
    latencies,
    not_shown,
    rates,
    required,
    videos_of,
)
from skybraid.show.palette import HALTED, SECOND_INK, flow_colour
from skybraid.show.report.charts import (
    Charts,
    Clock,
    band,
    chart,
    from_zero,
    glyph,
    hover,
    legend,
    nines,
    shade,
    source,
    steps,
)
from skybraid.show.report.flight import MAX_FLOWS, Drawing, limit, requirement_mark
from skybraid.show.report.models import Source
from skybraid.show.series import duration_s

if TYPE_CHECKING:
    import polars as pl

    from skybraid.model.results import Results

FRAMES = ("frames taken", "whole", "shown undamaged", "shown")
TIMES = ("frame rate, 1/s", "in the worst second", "freezes, 1/min", "latency p50", "p95", "p99", "most")
"""Headings of the two tables of videos."""

_MAX_POINTS = 1000
_MIN_BIN_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Section:
    """Video section: tables, each with a head and rows by flow, and charts."""

    tables: list[tuple[tuple[str, ...], dict[str, list[str]]]]
    drawings: list[Drawing]


def section(results: Results, charts: Charts, clock: Clock) -> Section | None:
    """Builds the video section of a result; None without video flows."""
    names = videos_of(results)
    if not names:
        return None
    videos = {name: flow.video for name, flow in results.flows.items() if flow.video is not None}
    tables = [
        (FRAMES, {name: _frames(video) for name, video in videos.items()}),
        (TIMES, {name: _times(video) for name, video in videos.items()}),
    ]
    try:
        drawn = drawn_videos(results)[:MAX_FLOWS]
    except MissingTableError as error:
        return Section(tables, [Drawing("Frames over time", "", missing=str(error))])
    frames = {name: frames_of(results, name) for name in drawn}
    drawings = [
        drawing
        for number, name in enumerate(drawn)
        for drawing in (
            _frame_rate(results, charts, clock, name, frames[name], number),
            _latency(results, charts, clock, name, frames[name], number),
        )
    ]
    tail = _tail(results, charts, frames)
    return Section(tables, [*drawings, *([tail] if tail else [])])


def _frames(video: dict[str, Any]) -> list[str]:
    frames = video["frames"]

    def share(name: str) -> str:
        number = video[name]
        return f"{count(number)} ({percent(number / frames)})" if frames else "–"

    return [count(frames), *(share(name) for name in ("complete", "intact", "shown"))]


def _times(video: dict[str, Any]) -> list[str]:
    latency = video["latency_ms"]

    def number(value: float | None, digits: str) -> str:
        return "–" if value is None else format(value, digits)

    return [
        number(video["frame_rate"], ".3g"),
        number(video["worst_frame_rate"], "g"),
        number(video["freezes_per_minute"], ".3g"),
        *("–" if latency[name] is None else milliseconds(latency[name]) for name in ("p50", "p95", "p99", "max")),
    ]


def _colour(results: Results, name: str, number: int) -> str:
    places = list(results.flows)
    return flow_colour(places.index(name) if name in places else len(places) + number)


def _frame_rate(
    results: Results, charts: Charts, clock: Clock, name: str, frames: pl.DataFrame, number: int
) -> Drawing:
    shown = rates(frames, duration_s(results), _MAX_POINTS)
    camera = camera_rate(frames)
    highest = shown["rate_high"].max()
    top = 1.15 * max(camera, float(highest) if isinstance(highest, int | float) else 0.0, 1.0)
    drawn = chart(y_label="frames/s", clock=clock, y_range=(0, top))
    colour = _colour(results, name, number)
    parts = band(drawn, source(shown), "rate", colour)
    entries: list[tuple[str, list[Any]]] = [("shown in a second", parts)]
    if camera:
        full = Source({"time_s": [0.0, duration_s(results)], "rate": [camera, camera]})
        line = glyph(drawn, full, "Line", x="time_s", y="rate", line_color=SECOND_INK, line_dash="dotted")
        entries.append((f"camera, {camera:g}/s", [line]))
    still = freezes(frames, duration_s(results))
    if still:
        entries.append(("freeze", [shade(drawn, still, HALTED)]))
    for one in results.requirements:
        if one.flow == name and one.metric in ("frame_rate", "worst_frame_rate"):
            drawn.add_layout(limit(one.target, colour if one.metric == "frame_rate" else SECOND_INK))
    hover(drawn, [parts[0]], [("", "@rate_mean{0.[0]} frames/s"), ("time", "@time_s{0.0} s")])
    legend(drawn, entries)
    caption = (
        "Frames shown in each second, from the first that was. Shaded: the picture stood still. Dashed lines mark "
        "required rates, if any: the mean, and grey that of the worst second."
    )
    return Drawing(f"{name}: frame rate", caption, charts.add(f"frame-rate-{number}", drawn))


def _latency(results: Results, charts: Charts, clock: Clock, name: str, frames: pl.DataFrame, number: int) -> Drawing:
    drawn = chart(y_label="latency, ms", clock=clock, height=220)
    from_zero(drawn)
    colour = _colour(results, name, number)
    width_ns = max(round(duration_s(results) * 1e9) // (_MAX_POINTS // 2), _MIN_BIN_NS)
    parts = band(drawn, source(latencies(frames, width_ns)), "latency", colour)
    for one in required(results, name):
        drawn.add_layout(limit(one.deadline_ms or 0.0, colour))
    seen = ""
    if "latency_low" in parts[0].source.data:
        seen = ", @latency_low{0.0} to @latency_high{0.0} ms"
    tips = [
        ("", f"@latency_mean{{0.0}} ms in the median{seen}"),
        ("damaged, not shown", "@damaged{0}, @missing{0}"),
        ("time", "@time_s{0.0} s"),
    ]
    hover(drawn, [parts[0]], tips)
    caption = (
        "From the camera to the screen, by capture time: median, minimum and maximum of the frames "
        "that were shown, damaged or not. A dashed line marks the latency that is required, if any."
    )
    return Drawing(f"{name}: latency", caption, charts.add(f"frame-latency-{number}", drawn))


def _tail(results: Results, charts: Charts, frames: dict[str, pl.DataFrame]) -> Drawing | None:
    end_s = duration_s(results)
    curves = {}
    for name, rows in frames.items():
        within_ms = max((one.deadline_ms or 0.0 for one in required(results, name)), default=0.0)
        for intact in (True, False):
            curve = not_shown(rows, end_s, within_ms, intact=intact)
            if len(curve[0]):
                curves[name, intact] = curve
    if not curves:
        return None
    lowest = 10.0 ** np.floor(np.log10(min(float(missing.min()) for _, missing in curves.values())))
    drawn = chart(
        x_label="latency, ms",
        y_label="not yet shown",
        height=320,
        logarithmic="xy",
        y_range=(lowest, 1.3),
    )
    nines(drawn, [10.0**power for power in range(round(np.log10(lowest)), 1)])
    entries: list[tuple[str, list[Any]]] = []
    lines: list[Any] = []
    places = list(frames)
    for (name, intact), (latency_ms, missing) in curves.items():
        colour = _colour(results, name, places.index(name))
        data = {"latency_ms": latency_ms.astype(np.float32), "missing": missing.astype(np.float32)}
        words = name if intact else f"{name}, damaged or not"
        table = Source(data | {"shown": [percent(float(1 - share)) for share in missing]})
        shown, line = steps(drawn, table, "latency_ms", "missing", colour, words)
        shown.glyph.update(line_dash=[] if intact else [2, 3])
        lines.append(line)
        entries.append((words, [shown]))
    for name in frames:
        for one in required(results, name):
            place = places.index(name)
            colour = _colour(results, name, place)
            within_ms = one.deadline_ms or 0.0
            mark = requirement_mark(drawn, within_ms, max(1 - one.target, lowest), place, colour, one.verdict)
            words = f"{name}: {percent(one.target)} within {within_ms:g} ms, {one.verdict}"
            entries.append((words, [mark]))
    hover(drawn, lines, [("", "$name: @shown shown within @latency_ms{0.0} ms")], mode="mouse")
    legend(drawn, entries, columns=2)
    caption = (
        "Share of the first flight's frames that were not shown undamaged after a latency; dotted, not shown at all. A "
        "curve ends at the share that never was; the former must pass below the marker of its requirement."
    )
    return Drawing("Latency of frames", caption, charts.add("frame-tail", drawn))

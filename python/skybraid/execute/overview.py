"""Overview of a campaign, as a frame and as text: one row per point and flow, over all seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skybraid.execute.compare import RATE_TITLES, aligned, frames_title, rate_cells
from skybraid.execute.rows import FLOWS
from skybraid.model.episodes import SPREAD, RunShare, share_interval
from skybraid.model.formatting import count, percent, percent_range
from skybraid.model.heavy import pl
from skybraid.model.measures import MEASURES
from skybraid.model.statistics import mean_interval, median_interval

if TYPE_CHECKING:
    from skybraid.execute.campaign import Campaign
    from skybraid.model.measures import Counted, Measure

MAX_LINES = 200
"""Maximum points that are reported line by line."""

_LISTED = tuple(one for one in MEASURES if one.listed)
_INTERVAL = ("low", "high")


def summary(campaign: Campaign) -> pl.DataFrame:
    """Summarises each flow at each point, over all seeds.

    Returns:
        One row for each point and flow: `point`, the axes' columns, `flow`, `runs`, `failed`; `deadline_ms`, `met`,
        `trials`, `within_deadline` (0 to 1) with its 95 % interval (`low`, `high`), the `episodes` of its misses, and
        the independent unit (`method`: "blocks" or "runs", see `episodes.share_interval`);
        `goodput_bps`, the mean over the runs, with Student's interval (`goodput_low`, `goodput_high`);
        `delay_p50_ms` and `delay_p99_ms`, the medians over the runs of their percentiles, with distribution-free
        intervals (`delay_p50_low` …) from six runs on. The same of a video's frames, null of other flows:
        `frames_within_ms`, `frames_met`, `frames_due`, `frames_in_time`, `frames_low`, `frames_high`,
        `frames_episodes`, `frames_method`; the medians `frame_latency_p50_ms`, `_p95_ms` and
        `_p99_ms`, and the means `frame_rate`, `worst_frame_rate` and `freezes_per_minute`, each with its interval
        (`frame_rate_low` …). A point all of whose runs failed has one row with `flow` null.
    """
    times = [one.counted.within_ms for one in _LISTED if one.counted]
    lists = [name for one in _LISTED for name in (_columns(one.counted) if one.counted else [one.column])]
    grouped = (
        campaign.scan(FLOWS)
        .sort("point", "seed")
        .group_by("point", "flow", maintain_order=True)
        .agg(*(pl.col(name).first() for name in times), *(pl.col(name) for name in lists))
        .collect()
    )
    by_point: dict[int, list[dict[str, Any]]] = {}
    for row in grouped.iter_rows(named=True):
        by_point.setdefault(row["point"], []).append(row)
    rows = [
        point | _flow(row)
        for point in campaign.points().iter_rows(named=True)
        for row in by_point.get(point["point"], [{}])
    ]
    types: dict[str, Any] = {"flow": pl.String()}
    for one in _LISTED:
        if one.counted:
            names = (one.counted.within_ms, one.column, *_share_ends(one))
            types |= dict.fromkeys((one.counted.met, one.counted.trials, f"{_prefix(one)}episodes"), pl.UInt64())
            types |= {f"{_prefix(one)}method": pl.String()}
        else:
            names = (one.column, *_ends(one))
        types |= dict.fromkeys(names, pl.Float64())
    named = ["point", *campaign.columns, "flow", "done", "failed"]
    frame = pl.DataFrame(rows, schema=campaign.points().schema | types, orient="row")
    return frame.select(*named, *(name for name in frame.columns if name not in named)).rename({"done": "runs"})


def _columns(counted: Counted) -> list[str]:
    return [counted.met, counted.trials, *(f"{counted.misses}{name}" for name in SPREAD)]


def _prefix(share: Measure) -> str:
    return "frames_" if share.video else ""


def _share_ends(share: Measure) -> list[str]:
    return [f"{_prefix(share)}{end}" for end in _INTERVAL]


def _ends(number: Measure) -> tuple[str, str]:
    stem = number.column
    for unit in ("_bps", "_ms", "_per_minute"):
        stem = stem.removesuffix(unit)
    return f"{stem}_low", f"{stem}_high"


def _flow(row: Mapping[str, Any]) -> dict[str, Any]:
    cells = {"flow": row["flow"]} if row else {}
    for one in _LISTED if row else ():
        cells |= _share(row, one, one.counted) if one.counted else _number(row, one)
    return cells


def _share(row: Mapping[str, Any], one: Measure, counted: Counted) -> dict[str, Any]:
    names = _columns(counted)
    runs = [dict(zip(names, values, strict=True)) for values in zip(*(row[name] for name in names), strict=True)]
    known = [run for row in runs if (run := RunShare.of_row(row, counted.met, counted.trials, counted.misses))]
    if not known:
        return {}
    share = share_interval(known)
    return {
        counted.within_ms: row[counted.within_ms],
        counted.met: share.trials - share.missed,
        counted.trials: share.trials,
        one.column: share.estimate if share.trials else None,
        f"{_prefix(one)}episodes": share.episodes,
        f"{_prefix(one)}method": share.method,
        **dict(zip(_share_ends(one), share.interval, strict=True)),
    }


def _number(row: Mapping[str, Any], one: Measure) -> dict[str, Any]:
    values = [value for value in row[one.column] if value is not None]
    middle, interval = (statistics.fmean, mean_interval) if one.mean else (statistics.median, median_interval)
    ends = interval(values) or (None, None)
    return {one.column: middle(values) if values else None, **dict(zip(_ends(one), ends, strict=True))}


def text(frame: pl.DataFrame, columns: Sequence[str]) -> str:
    """Formats a campaign's summary: one line per point, flows next to each other; frames instead of messages for video.

    Args:
        frame: result of `summary`.
        columns: columns of the axes.
    """
    points: dict[int, list[dict[str, Any]]] = {}
    for row in frame.iter_rows(named=True):
        points.setdefault(row["point"], []).append(row)
    flows: dict[str, dict[str, Any]] = {}
    for row in frame.iter_rows(named=True):
        if row["flow"] is not None and (row["flow"] not in flows or flows[row["flow"]]["frames_due"] is None):
            flows[row["flow"]] = row
    any_failed = bool((frame["failed"] > 0).any())
    shown = [_short(column, columns) for column in columns] + ["runs"] + (["failed"] if any_failed else [])
    titles = {flow: _titles(row) for flow, row in flows.items()}
    lines = [shown + [title for of_flow in titles.values() for title in of_flow]]
    for rows in list(points.values())[:MAX_LINES]:
        first = rows[0]
        cells = [_label(first[column]) for column in columns] + [str(first["runs"])]
        cells += [str(first["failed"])] if any_failed else []
        by_flow = {row["flow"]: row for row in rows}
        for flow, like in flows.items():
            cells += _cells(by_flow.get(flow), video=_is_video(like))
        lines.append(cells)
    groups = {flow: len(of_flow) for flow, of_flow in titles.items()}
    text = aligned(lines, len(shown), groups, max(len(columns) - 1, 0))
    more = len(points) - MAX_LINES
    return text if more <= 0 else f"{text}\n… and {more} more points"


def _is_video(row: Mapping[str, Any]) -> bool:
    return row["frames_due"] is not None


def _titles(row: Mapping[str, Any]) -> list[str]:
    video = _is_video(row)
    if video:
        within = frames_title(row["frames_within_ms"])
    else:
        within = "arrived" if row["deadline_ms"] is None else f"in {row['deadline_ms']:g} ms"
    return [within, "95 % interval", "episodes", "p50 ms", "p99 ms", *(RATE_TITLES if video else ()), "Mbit/s"]


def _cells(row: Mapping[str, Any] | None, *, video: bool) -> list[str]:
    if row is None:
        return ["–"] * (6 + (len(RATE_TITLES) if video else 0))
    share, delay, begin = ("frames_in_time", "frame_latency", "frames_") if video else ("within_deadline", "delay", "")
    low, high, episodes = (row[f"{begin}{name}"] for name in (*_INTERVAL, "episodes"))
    known = row[share] is not None
    cells = [percent(row[share]), percent_range(low, high), count(episodes)] if known else ["–"] * 3
    delays = [row[f"{delay}_{percentile}_ms"] for percentile in ("p50", "p99")]
    cells += ["–" if delay_ms is None else f"{delay_ms:.1f}" for delay_ms in delays]
    return [*cells, *(rate_cells(row) if video else ()), f"{row['goodput_bps'] / 1e6:.3f}"]


def _short(column: str, columns: Sequence[str]) -> str:
    """Returns the shortest end of a key that no other key shares."""
    parts = column.split(".")
    for length in range(1, len(parts)):
        tail = ".".join(parts[-length:])
        if sum(other == tail or other.endswith(f".{tail}") for other in columns) == 1:
            return tail
    return column


def _label(label: object) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label).lower() if isinstance(label, bool) else str(label)

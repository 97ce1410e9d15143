"""A campaign in a frame and in a table to read: a row a point and flow, over all its seeds."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from skybraid.campaigns.rows import FLOWS
from skybraid.compare import aligned
from skybraid.requirements import percent, percent_range
from skybraid.statistics import mean_interval, median_interval, pooled_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from skybraid.campaigns.dataset import Campaign

MOST_LINES = 200
"""Points that are told line by line."""

_TOLD_DELAYS = ("delay_p50_ms", "delay_p99_ms")


def summary(campaign: Campaign) -> pl.DataFrame:
    """What each flow did at each point, over all seeds.

    Returns:
        A row for each point and flow: `point`, the axes' columns, `flow`, `runs`, `failed`; `deadline_ms`, `met`,
        `trials`, `within_deadline` (0 to 1) with its 95 % intervals, by messages (`low`, `high`) and by flights
        (`flights_low`, `flights_high`, null with one run; `method`, as of `statistics.pooled_share`);
        `goodput_bps`, the mean over the runs, with Student's interval (`goodput_low`, `goodput_high`);
        `delay_p50_ms` and `delay_p99_ms`, the medians over the runs of their percentiles, with distribution-free
        intervals (`delay_p50_low` …) from six runs on. A point all of whose runs failed has one row with `flow` null.
    """
    import polars as pl

    told = ("met", "trials", "goodput_bps", *_TOLD_DELAYS)
    grouped = (
        campaign.scan(FLOWS)
        .sort("point", "seed")
        .group_by("point", "flow", maintain_order=True)
        .agg(pl.col("deadline_ms").first(), *(pl.col(name) for name in told))
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
    real = ("deadline_ms", "within_deadline", "low", "high", "flights_low", "flights_high")
    numbers = [*real, "goodput_bps", "goodput_low", "goodput_high"]
    numbers += [name for delay in _TOLD_DELAYS for name in (delay, *_ends(delay))]
    types: dict[str, Any] = {"flow": pl.String(), "method": pl.String(), "met": pl.UInt64(), "trials": pl.UInt64()}
    schema = campaign.points().schema | types | dict.fromkeys(numbers, pl.Float64())
    named = ["point", *campaign.columns, "flow", "done", "failed"]
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.select(*named, *(name for name in frame.columns if name not in named)).rename({"done": "runs"})


def _ends(delay: str) -> tuple[str, str]:
    stem = delay.removesuffix("_ms")
    return f"{stem}_low", f"{stem}_high"


def _flow(row: Mapping[str, Any]) -> dict[str, Any]:
    if not row:
        return {}
    share = pooled_share(row["met"], row["trials"])
    several = len(row["met"]) > 1
    goodput = mean_interval(row["goodput_bps"])
    told: dict[str, Any] = {
        "flow": row["flow"],
        "deadline_ms": row["deadline_ms"],
        "met": share.met,
        "trials": share.trials,
        "within_deadline": share.estimate if share.trials else None,
        "low": share.messages.low,
        "high": share.messages.high,
        "flights_low": share.flights.low if several else None,
        "flights_high": share.flights.high if several else None,
        "method": share.method if several else None,
        "goodput_bps": statistics.fmean(row["goodput_bps"]),
        "goodput_low": None if goodput is None else goodput.low,
        "goodput_high": None if goodput is None else goodput.high,
    }
    for delay in _TOLD_DELAYS:
        values = [value for value in row[delay] if value is not None]
        interval = median_interval(values)
        low, high = _ends(delay)
        told[delay] = statistics.median(values) if values else None
        told[low], told[high] = interval or (None, None)
    return told


def text(frame: pl.DataFrame, columns: Sequence[str]) -> str:
    """A campaign's summary as a table to read: a line a point, its flows beside one another.

    Args:
        frame: as `summary` gave it.
        columns: those of the axes.
    """
    points: dict[int, list[dict[str, Any]]] = {}
    for row in frame.iter_rows(named=True):
        points.setdefault(row["point"], []).append(row)
    flows: dict[str, float | None] = {}
    for row in frame.iter_rows(named=True):
        if row["flow"] is not None:
            flows.setdefault(row["flow"], row["deadline_ms"])
    several = bool((frame["runs"] > 1).any())
    any_failed = bool((frame["failed"] > 0).any())
    shown = [_short(column, columns) for column in columns] + ["runs"] + (["failed"] if any_failed else [])
    titles = {flow: _titles(deadline_ms, several=several) for flow, deadline_ms in flows.items()}
    lines = [shown + [title for of_flow in titles.values() for title in of_flow]]
    for rows in list(points.values())[:MOST_LINES]:
        first = rows[0]
        cells = [_label(first[column]) for column in columns] + [str(first["runs"])]
        cells += [str(first["failed"])] if any_failed else []
        by_flow = {row["flow"]: row for row in rows}
        for flow in flows:
            cells += _cells(by_flow.get(flow), several=several)
        lines.append(cells)
    groups = {flow: len(of_flow) for flow, of_flow in titles.items()}
    told = aligned(lines, len(shown), groups, max(len(columns) - 1, 0))
    more = len(points) - MOST_LINES
    return told if more <= 0 else f"{told}\n… and {more} more points"


def _titles(deadline_ms: float | None, *, several: bool) -> list[str]:
    within = "arrived" if deadline_ms is None else f"in {deadline_ms:g} ms"
    intervals = ["95 % by messages", "by flights"] if several else ["95 % by messages"]
    return [within, *intervals, "p50 ms", "p99 ms", "Mbit/s"]


def _cells(row: Mapping[str, Any] | None, *, several: bool) -> list[str]:
    if row is None:
        return ["–"] * (6 if several else 5)
    share = row["within_deadline"]
    known = share is not None
    cells = [percent(share) if known else "–", percent_range(row["low"], row["high"]) if known else "–"]
    if several:
        cells.append(
            percent_range(row["flights_low"], row["flights_high"]) if known and row["flights_low"] is not None else "–"
        )
    cells += ["–" if row[delay] is None else f"{row[delay]:.1f}" for delay in _TOLD_DELAYS]
    return [*cells, f"{row['goodput_bps'] / 1e6:.3f}"]


def _short(column: str, columns: Sequence[str]) -> str:
    """The last parts of a key that tell it from the others."""
    parts = column.split(".")
    for length in range(1, len(parts)):
        tail = ".".join(parts[-length:])
        if sum(other == tail or other.endswith(f".{tail}") for other in columns) == 1:
            return tail
    return column


def _label(label: object) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label).lower() if isinstance(label, bool) else str(label)

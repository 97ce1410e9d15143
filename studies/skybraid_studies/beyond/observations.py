"""Observations of our own study beyond the papers: counts of what came in time, and what it cost."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import polars as pl

from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, Seen, observation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _in_time(seen: Seen, flow: str, limit_ms: float, from_s: float) -> tuple[int, int]:
    """Messages written from `from_s` on that arrived within `limit_ms`, and all that had the time to."""
    limit_ns = limit_ms / MS_PER_NS
    written = seen.messages(flow, from_s).filter(pl.col("sent_ns") + limit_ns <= seen.length_s * NS_PER_S)
    return int((written["delivered_ns"] - written["sent_ns"] <= limit_ns).sum()), len(written)


@observation("beyond.met", "messages")
def met(seen: Seen, flow: str, limit_ms: float, from_s: float = 0.0) -> float:
    """Messages written from `from_s` on that arrived within `limit_ms`."""
    return float(_in_time(seen, flow, limit_ms, from_s)[0])


@observation("beyond.decided", "messages")
def decided(seen: Seen, flow: str, limit_ms: float, from_s: float = 0.0) -> float:
    """Messages written from `from_s` on that had at least `limit_ms` to arrive."""
    return float(_in_time(seen, flow, limit_ms, from_s)[1])


@observation("beyond.late", "messages")
def late(seen: Seen, flow: str, limit_ms: float, from_s: float = 0.0) -> float:
    """Share in % of the messages written from `from_s` on that were lost or took longer than `limit_ms`."""
    met_, all_ = _in_time(seen, flow, limit_ms, from_s)
    return 100 * (all_ - met_) / all_ if all_ else math.nan


@observation("beyond.goodput")
def goodput(seen: Seen, flow: str) -> float:
    """Goodput in Mbit/s."""
    return seen.flows[flow].goodput_bps / 1e6


@observation("beyond.delay")
def delay(seen: Seen, flow: str, q: float) -> float:
    """One-way delay in ms that a share `q` of the messages that arrived does not exceed."""
    return seen.flows[flow].delay_quantile(q)


@observation("beyond.paid", "packets")
def paid(seen: Seen, flow: str) -> float:
    """Bytes that the links were given for a flow, both ways and with all headers, for each byte that arrived."""
    given = seen.table("packets").filter(pl.col("flow") == flow)["bytes"].sum()
    arrived = seen.flows[flow].bytes_delivered
    return float(given) / arrived if arrived else math.nan


def survey(points: Sequence[Mapping[str, str]]) -> str:
    """The late shares of every configuration, rows of `beside.csv`, as a document's table with a line a scheduler."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for point in points:
        name, _, kind = point["series"].partition(", ")
        if kind == "late":
            protocol, scheduler, _control, way = name.split()
            found.setdefault((protocol, scheduler), {}).setdefault(way, []).append(float(point["ours"]))
    lines = ["| protocol | scheduler | control down | control up |", "|---|---|---|---|"]
    for (protocol, scheduler), ways in found.items():
        cells = [
            f"{min(shares):.2g} · {statistics.median(shares):.2g} · {max(shares):.2g}"
            for shares in (ways["down"], ways["up"])
        ]
        lines.append(f"| {protocol} | `{scheduler}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"

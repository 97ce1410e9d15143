"""Observations of this study beyond the papers: messages in time, and their cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import polars as pl

from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, RunData, observation


def _in_time(run: RunData, flow: str, limit_ms: float, from_s: float) -> tuple[int, int]:
    """Returns the number of messages written from `from_s` on that arrived within `limit_ms`, and that of all due."""
    limit_ns = limit_ms / MS_PER_NS
    written = run.messages(flow, from_s).filter(pl.col("sent_ns") + limit_ns <= run.length_s * NS_PER_S)
    return int((written["delivered_ns"] - written["sent_ns"] <= limit_ns).sum()), len(written)


@observation("beyond.met", "messages")
def met(run: RunData, flow: str, limit_ms: float, from_s: float = 0.0) -> float:
    """Returns the number of messages written from `from_s` on that arrived within `limit_ms`."""
    return float(_in_time(run, flow, limit_ms, from_s)[0])


@observation("beyond.decided", "messages")
def decided(run: RunData, flow: str, limit_ms: float, from_s: float = 0.0) -> float:
    """Returns the number of messages written from `from_s` on with at least `limit_ms` until the end of the run."""
    return float(_in_time(run, flow, limit_ms, from_s)[1])


@observation("beyond.late", "messages")
def late(run: RunData, flow: str, limit_ms: float, from_s: float = 0.0) -> float:
    """Returns the share in % of messages written from `from_s` on that were lost or took longer than `limit_ms`."""
    met_, all_ = _in_time(run, flow, limit_ms, from_s)
    return 100 * (all_ - met_) / all_ if all_ else math.nan


@observation("beyond.goodput")
def goodput(run: RunData, flow: str) -> float:
    """Returns the goodput in Mbit/s."""
    return run.flows[flow].goodput_bps / 1e6


@observation("beyond.delay")
def delay(run: RunData, flow: str, q: float) -> float:
    """Returns the quantile `q` of the one-way delay of delivered messages, in ms."""
    return run.flows[flow].delay_quantile(q)


@observation("beyond.paid", "packets")
def paid(run: RunData, flow: str) -> float:
    """Returns the overhead: bytes offered to the links for a flow, both ways with all headers, per byte delivered."""
    given = run.table("packets").filter(pl.col("flow") == flow)["bytes"].sum()
    arrived = run.flows[flow].bytes_delivered
    return float(given) / arrived if arrived else math.nan


def survey(points: Sequence[Mapping[str, str]]) -> str:
    """Formats the late shares of every configuration, from rows of `beside.csv`, as a Markdown table by scheduler."""
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

"""Observations of our own study beyond the papers: counts of what came in time, and what it cost."""

from __future__ import annotations

import math

import polars as pl

from skybraid.studies.observe import Seen, observation


@observation("beyond.met")
def met(seen: Seen, flow: str, limit_ms: float) -> float:
    """Messages that arrived within `limit_ms`; the flow has to require this deadline."""
    return float(seen.flows[flow].met(limit_ms)[0])


@observation("beyond.decided")
def decided(seen: Seen, flow: str, limit_ms: float) -> float:
    """Messages of which it is known whether they arrived within `limit_ms`."""
    return float(seen.flows[flow].met(limit_ms)[1])


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

"""Observations of the study of Chavali (2022): round trips packet by packet, what paths carry, who is good enough."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import skybraid_studies.chavali2022.links
import skybraid_studies.chavali2022.rules  # noqa: F401 both register calculations
from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, arrived_delays_ms, observation, quantile, windows_bps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid_studies.engine.observe import Seen

ENOUGH_MBPS = 19.0
"""The goodput that the thesis asks for, of 20 Mbit/s (section 5.1)."""


def sent(seen: Seen, flow: str, path: str) -> pl.DataFrame:
    """The packets with a flow's data that went onto a path, in the direction of most of its data."""
    data = seen.table("packets").filter(pl.col("flow") == flow, pl.col("kind") == "data")
    by_direction = data.group_by("direction").agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    if by_direction.is_empty():
        return data
    return data.filter(pl.col("path") == path, pl.col("direction") == by_direction["direction"][0])


def arrived(packets: pl.DataFrame) -> pl.DataFrame:
    """The packets that arrived: `out_ns` of a lost one is the time of its loss."""
    return packets.filter(pl.col("out_ns").is_not_null(), pl.col("cause").is_null())


def round_trips_ms(seen: Seen, flow: str, path: str) -> NDArray[np.float64]:
    """Round-trip times in ms of a subflow's packets, as a capture at the sender shows them.

    A sample for each acknowledgement that answers new data: from when the last packet that had arrived before it left
    was sent to when it came back. This is what tshark calls `tcp.analysis.ack_rtt`, except where a hole is filled.
    """
    data = sent(seen, flow, path)
    if data.is_empty():
        return np.array([])
    there = arrived(data).select("in_ns", arrived="out_ns").sort("arrived")
    acks = seen.table("packets").filter(
        pl.col("flow") == flow,
        pl.col("path") == path,
        pl.col("direction") != data["direction"][0],
        pl.col("kind") == "ack",
    )
    back = arrived(acks).select("out_ns", left="in_ns").sort("left")
    both = back.join_asof(there, left_on="left", right_on="arrived").drop_nulls("in_ns")
    both = both.unique(subset="in_ns", keep="first", maintain_order=True)
    return (both["out_ns"] - both["in_ns"]).cast(pl.Float64).to_numpy() * MS_PER_NS


@observation("chavali.packet_rtt", "packets", absent="path never used")
def packet_rtt(seen: Seen, flow: str, path: str, q: float) -> float:
    """Round-trip time in ms that a share `q` of a subflow's samples does not exceed, one for each acknowledgement."""
    return quantile(round_trips_ms(seen, flow, path), q)


@observation("chavali.rate", "messages")
def rate(seen: Seen, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Goodput in Mbit/s of what arrived from `from_s` to `to_s`."""
    until_s = min(to_s, seen.length_s)
    arrived = seen.messages(flow).filter(pl.col("delivered_ns").is_between(from_s * NS_PER_S, until_s * NS_PER_S))
    return 8e-6 * float(arrived["bytes"].sum()) / (until_s - from_s)


@observation("chavali.rate_of", "messages")
def rate_of(seen: Seen, flow: str, mbps: float) -> float:
    """Goodput in % of `mbps`, counted from the first arrival to the last."""
    arrived = seen.messages(flow).drop_nulls("delivered_ns").sort("delivered_ns")
    span_s = int(arrived["delivered_ns"][-1] - arrived["delivered_ns"][0]) / NS_PER_S
    return 100 * 8e-6 * float(arrived["bytes"][1:].sum()) / span_s / mbps


@observation("chavali.utilisation", "packets")
def utilisation(seen: Seen, flow: str, path: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Mbit/s of packets with data, copies and repetitions too, that arrived over a path from `from_s` to `to_s`."""
    until_s = min(to_s, seen.length_s)
    within = pl.col("out_ns").is_between(from_s * NS_PER_S, until_s * NS_PER_S)
    return 8e-6 * float(arrived(sent(seen, flow, path)).filter(within)["bytes"].sum()) / (until_s - from_s)


@observation("chavali.utilisation_peak", "packets")
def utilisation_peak(seen: Seen, flow: str, paths: list[str], window_s: float = 1.0, to_s: float = math.inf) -> float:
    """The same of several paths together, in the window in which it is most."""
    until_s = min(to_s, seen.length_s)
    edges = np.arange(round(until_s / window_s) + 1) * (window_s * NS_PER_S)
    total = np.zeros(len(edges) - 1)
    for path in paths:
        rows = arrived(sent(seen, flow, path))
        total += np.histogram(rows["out_ns"].to_numpy(), edges, weights=rows["bytes"].to_numpy())[0]
    return float(total.max()) * 8e-6 / window_s


@observation("chavali.lost", "packets")
def lost(seen: Seen, flow: str, path: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Packets with data that a path lost, of those that it was given from `from_s` to `to_s`."""
    given = sent(seen, flow, path).filter(pl.col("in_ns") >= from_s * NS_PER_S)
    if math.isfinite(to_s):
        given = given.filter(pl.col("in_ns") < to_s * NS_PER_S)
    return float(given["cause"].drop_nulls().len())


@observation("chavali.ramp", "messages")
def ramp(seen: Seen, flow: str, share: float = 0.9, window_s: float = 0.5) -> float:
    """When, in s, the goodput first reached a share of its median over the run's last third; infinite if never."""
    found = windows_bps(seen, flow, window_s)
    settled = float(np.median(found[-len(found) // 3 :]))
    reached = np.nonzero(found >= share * settled)[0]
    return float(reached[0]) * window_s if settled > 0 and reached.size else math.inf


@observation("chavali.good_enough", "messages", "packets")
def good_enough(
    seen: Seen,
    flow: str,
    paths: list[str],
    share: float = 70.0,
    rtt_ms: float = 500.0,
    above_mbps: float = ENOUGH_MBPS,
) -> float:
    """1 if more than `above_mbps` arrived in `share` % of the seconds and each round trip took `rtt_ms` at most."""
    enough = 100 * float(np.mean(windows_bps(seen, flow, 1.0) > above_mbps * 1e6)) >= share
    return float(enough and not any((round_trips_ms(seen, flow, path) > rtt_ms).any() for path in paths))


@observation("chavali.excess_delay", "messages")
def excess_delay(seen: Seen, flow: str, ms: float) -> float:
    """Mean one-way delay in ms beyond `ms`; of a ping's answer, the round trip's."""
    return float(arrived_delays_ms(seen.messages(flow)).mean()) - ms


@observation("chavali.delay_sd", "messages")
def delay_sd(seen: Seen, flow: str) -> float:
    """Standard deviation of the one-way delay in ms; of a ping's answer, the round trip's."""
    return float(arrived_delays_ms(seen.messages(flow)).std(ddof=1))


@observation("chavali.window_blocked")
def window_blocked(seen: Seen, flow: str) -> float:
    """Time in s during which the peer's receive window kept back data that a path had room for."""
    return seen.flows[flow].window_blocked_s

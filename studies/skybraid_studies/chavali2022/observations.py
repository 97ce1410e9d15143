"""Observations of the study of Chavali (2022): round trips per packet, path utilisation, and required performance."""

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

    from skybraid_studies.engine.observe import RunData

ENOUGH_MBPS = 19.0
"""Goodput in Mbit/s required by the thesis, of 20 Mbit/s (section 5.1)."""


def sent(run: RunData, flow: str, path: str) -> pl.DataFrame:
    """Returns a flow's data packets on a path, in its main direction."""
    data = run.table("packets").filter(pl.col("flow") == flow, pl.col("kind") == "data")
    by_direction = data.group_by("direction").agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    if by_direction.is_empty():
        return data
    return data.filter(pl.col("path") == path, pl.col("direction") == by_direction["direction"][0])


def arrived(packets: pl.DataFrame) -> pl.DataFrame:
    """Returns the packets that arrived: for a lost one, `out_ns` is the time of its loss."""
    return packets.filter(pl.col("out_ns").is_not_null(), pl.col("cause").is_null())


def round_trips_ms(run: RunData, flow: str, path: str) -> NDArray[np.float64]:
    """Returns round-trip times in ms of a subflow's packets, as in a capture at the sender.

    Each acknowledgement of new data gives one sample: the time since the last packet received before it was sent. This
    is tshark's `tcp.analysis.ack_rtt`, except if a hole is closed.
    """
    data = sent(run, flow, path)
    if data.is_empty():
        return np.array([])
    there = arrived(data).select("in_ns", arrived="out_ns").sort("arrived")
    acks = run.table("packets").filter(
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
def packet_rtt(run: RunData, flow: str, path: str, q: float) -> float:
    """Returns the quantile `q` of a subflow's round-trip times in ms, one sample per acknowledgement."""
    return quantile(round_trips_ms(run, flow, path), q)


@observation("chavali.rate", "messages")
def rate(run: RunData, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Returns the goodput in Mbit/s from `from_s` to `to_s`."""
    until_s = min(to_s, run.length_s)
    arrived = run.messages(flow).filter(pl.col("delivered_ns").is_between(from_s * NS_PER_S, until_s * NS_PER_S))
    return 8e-6 * float(arrived["bytes"].sum()) / (until_s - from_s)


@observation("chavali.rate_of", "messages")
def rate_of(run: RunData, flow: str, mbps: float) -> float:
    """Returns the goodput in % of `mbps`, from the first arrival to the last."""
    arrived = run.messages(flow).drop_nulls("delivered_ns").sort("delivered_ns")
    span_s = int(arrived["delivered_ns"][-1] - arrived["delivered_ns"][0]) / NS_PER_S
    return 100 * 8e-6 * float(arrived["bytes"][1:].sum()) / span_s / mbps


@observation("chavali.utilisation", "packets")
def utilisation(run: RunData, flow: str, path: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Returns the rate in Mbit/s of data packets, copies included, that arrived over a path from `from_s` to `to_s`."""
    until_s = min(to_s, run.length_s)
    within = pl.col("out_ns").is_between(from_s * NS_PER_S, until_s * NS_PER_S)
    return 8e-6 * float(arrived(sent(run, flow, path)).filter(within)["bytes"].sum()) / (until_s - from_s)


@observation("chavali.utilisation_peak", "packets")
def utilisation_peak(run: RunData, flow: str, paths: list[str], window_s: float = 1.0, to_s: float = math.inf) -> float:
    """Returns the maximum over windows of the summed rate of data packets over several paths, in Mbit/s."""
    until_s = min(to_s, run.length_s)
    edges = np.arange(round(until_s / window_s) + 1) * (window_s * NS_PER_S)
    total = np.zeros(len(edges) - 1)
    for path in paths:
        rows = arrived(sent(run, flow, path))
        total += np.histogram(rows["out_ns"].to_numpy(), edges, weights=rows["bytes"].to_numpy())[0]
    return float(total.max()) * 8e-6 / window_s


@observation("chavali.lost", "packets")
def lost(run: RunData, flow: str, path: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Returns the number of data packets lost on a path, of those sent from `from_s` to `to_s`."""
    given = sent(run, flow, path).filter(pl.col("in_ns") >= from_s * NS_PER_S)
    if math.isfinite(to_s):
        given = given.filter(pl.col("in_ns") < to_s * NS_PER_S)
    return float(given["cause"].drop_nulls().len())


@observation("chavali.ramp", "messages")
def ramp(run: RunData, flow: str, share: float = 0.9, window_s: float = 0.5) -> float:
    """Returns the time in s at which goodput first reached a share of the last third's median; infinite if never."""
    found = windows_bps(run, flow, window_s)
    settled = float(np.median(found[-len(found) // 3 :]))
    reached = np.nonzero(found >= share * settled)[0]
    return float(reached[0]) * window_s if settled > 0 and reached.size else math.inf


@observation("chavali.good_enough", "messages", "packets")
def good_enough(
    run: RunData,
    flow: str,
    paths: list[str],
    share: float = 70.0,
    rtt_ms: float = 500.0,
    above_mbps: float = ENOUGH_MBPS,
) -> float:
    """Returns 1 if goodput exceeded `above_mbps` in `share` % of the seconds and no round trip `rtt_ms`, else 0."""
    enough = 100 * float(np.mean(windows_bps(run, flow, 1.0) > above_mbps * 1e6)) >= share
    return float(enough and not any((round_trips_ms(run, flow, path) > rtt_ms).any() for path in paths))


@observation("chavali.excess_delay", "messages")
def excess_delay(run: RunData, flow: str, ms: float) -> float:
    """Returns the mean one-way delay in ms beyond `ms`; of a ping's reply, the round trip's."""
    return float(arrived_delays_ms(run.messages(flow)).mean()) - ms


@observation("chavali.delay_sd", "messages")
def delay_sd(run: RunData, flow: str) -> float:
    """Returns the standard deviation of the one-way delay in ms; of a ping's reply, the round trip's."""
    return float(arrived_delays_ms(run.messages(flow)).std(ddof=1))


@observation("chavali.window_blocked")
def window_blocked(run: RunData, flow: str) -> float:
    """Returns the time in s in which only the peer's receive window prevented sending on an available path."""
    return run.flows[flow].window_blocked_s

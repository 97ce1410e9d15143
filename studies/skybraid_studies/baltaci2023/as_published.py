"""Metrics computed from packets as in the article's evaluation (docs/studies/testbed.md).

They are named `baltaci.…` and complement the usual metrics: the article takes the maximum round trip of each second
instead of one per acknowledgement, and repeated acknowledgements instead of retransmissions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, RunData, observation, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Times = NDArray[np.int64]

_REPEATED_S = 0.2
"""Age in s from which on an acknowledgement of data counts as a repetition (the authors' script)."""

_NEVER = np.iinfo(np.int64).max


def _data(run: RunData, flow: str, path: str = "") -> pl.DataFrame:
    """Returns a flow's data packets in its main direction in sending order, optionally of one path."""
    rows = run.table("packets").filter(pl.col("flow") == flow, pl.col("kind") == "data")
    most = rows.group_by("direction").agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    if most.is_empty():
        return rows
    rows = rows.filter(pl.col("direction") == most["direction"][0])
    return (rows.filter(pl.col("path") == path) if path else rows).sort("in_ns")


def _acks(run: RunData, flow: str, path: str = "") -> pl.DataFrame:
    """Returns a flow's acknowledgements in sending order, optionally of one path."""
    rows = run.table("packets").filter(pl.col("flow") == flow, pl.col("kind") == "ack")
    return (rows.filter(pl.col("path") == path) if path else rows).sort("in_ns")


def _whole_seconds(run: RunData) -> int:
    return int(run.length_s + 1e-9)


# Round trips.


def ack_rtts(run: RunData, flow: str, path: str) -> tuple[Times, Array]:
    """Returns arrival times in ns and round-trip times in ms of a subflow's acknowledgements, computed like tshark.

    A sample is the time since the newest segment that an acknowledgement covers was sent. While a hole is open,
    acknowledgements are duplicates and give no sample; the one that closes it covers all data received meanwhile, so a
    loss appears as a second round trip. Packets have no sequence numbers here. The retransmission that closes the hole
    is assumed to be the first packet sent after three later ones have been acknowledged, or after the first of them
    plus a quarter of the minimum round trip (RFC 8985); after the last packet of a burst it is the next packet on the
    path.
    """
    data, acks = _data(run, flow, path), _acks(run, flow, path).drop_nulls("out_ns").filter(pl.col("cause").is_null())
    there = data.filter(pl.col("cause").is_null()).drop_nulls("out_ns")
    if there.is_empty() or acks.is_empty():
        return np.empty(0, np.int64), np.empty(0)
    sent, arrived = there["in_ns"].to_numpy(), there["out_ns"].to_numpy()
    left, back = acks["in_ns"].to_numpy(), acks["out_ns"].to_numpy()
    newest = np.searchsorted(arrived, left, side="right") - 1
    fresh = np.diff(newest, prepend=-1) > 0
    newest, left, back = newest[fresh], left[fresh], back[fresh]
    total = (back - sent[newest]).astype(np.float64)
    wait = int(np.quantile(total, 0.05) / 4)
    keep = np.ones(len(left), dtype=bool)
    every = data["in_ns"].to_numpy()
    for lost_at in data.filter(pl.col("cause").is_not_null())["in_ns"].to_numpy():
        later = int(np.searchsorted(sent, lost_at, side="right"))
        if later >= len(sent):
            continue
        opened = arrived[later]
        first = int(np.searchsorted(left, opened))
        known = back[first] + wait if first < len(back) else _NEVER
        third = int(np.searchsorted(left, arrived[later + 2])) if later + 2 < len(arrived) else len(back)
        known = min(known, back[third] if third < len(back) else _NEVER)
        again = int(np.searchsorted(every, known))
        filled = int(np.searchsorted(sent, every[again])) if again < len(every) else len(sent)
        end = arrived[filled] if filled < len(sent) else _NEVER
        inside = (left >= opened) & (left < end) if end == _NEVER else slice(first, int(np.searchsorted(left, end)))
        keep[inside] = False
        place = int(np.searchsorted(left, end))
        # Data covered by the retransmission were sent before it; packets of its own frame arrive simultaneously and are
        # newer.
        if place < len(left) and newest[place] >= filled > later:
            total[place] = back[place] - sent[filled - 1]
    return back[keep], total[keep] * MS_PER_NS


def max_of_seconds(run: RunData, flow: str, path: str) -> Array:
    """Returns the maximum round-trip time in ms of each second, 0 in seconds without a sample."""
    at_ns, found = ack_rtts(run, flow, path)
    many = _whole_seconds(run)
    largest = np.zeros(many)
    seconds = at_ns // NS_PER_S
    np.maximum.at(largest, seconds[seconds < many], found[seconds < many])
    return largest


@observation("baltaci.second_rtt_quantile", "packets")
def second_rtt_quantile(run: RunData, flow: str, path: str, q: float) -> float:
    """Returns the quantile `q` over the seconds of the maximum round-trip time, in ms."""
    return quantile(max_of_seconds(run, flow, path), q)


@observation("baltaci.second_rtt_mean", "packets")
def second_rtt_mean(run: RunData, flow: str, path: str) -> float:
    """Returns the mean over the seconds with samples of the maximum round-trip time, in ms."""
    found = max_of_seconds(run, flow, path)
    return float(found[found > 0].mean()) if (found > 0).any() else math.nan


@observation("baltaci.ack_rtt_quantile", "packets")
def ack_rtt_quantile(run: RunData, flow: str, path: str, q: float) -> float:
    """Returns the quantile `q` of the round-trip times of a subflow's acknowledgements, in ms."""
    return quantile(ack_rtts(run, flow, path)[1], q)


def _first_sent(run: RunData, flow: str) -> tuple[Times, NDArray[np.intp], pl.DataFrame]:
    """Returns the first sending times of units in ns, the unit of each delivered message (-1: none), and messages."""
    messages = run.messages(flow).drop_nulls("delivered_ns").sort("id")
    decided = run.table("decisions").filter(pl.col("flow") == flow, pl.col("paths") > 0).sort("time_ns")
    units = decided["message"].to_numpy().astype(np.int64)
    first = units > np.maximum.accumulate(np.concatenate((np.array([-1]), units[:-1])))
    place = np.searchsorted(units[first], messages["id"].to_numpy().astype(np.int64), side="right") - 1
    return decided["time_ns"].to_numpy()[first], place, messages


def mapping_rtts(run: RunData, flow: str) -> tuple[Times, Array]:
    """Returns first sending times of a flow's messages in ns, and times in ms until their data are acknowledged.

    A message is sent with the unit that contains its end. It is acknowledged by the first arriving acknowledgement, on
    any subflow, of those sent after its delivery in order.
    """
    begun, place, messages = _first_sent(run, flow)
    acks = _acks(run, flow).drop_nulls("out_ns").filter(pl.col("cause").is_null())
    if messages.is_empty() or not begun.size or acks.is_empty():
        return np.empty(0, np.int64), np.empty(0)
    soonest = np.minimum.accumulate(acks["out_ns"].to_numpy()[::-1])[::-1]
    covered = np.searchsorted(acks["in_ns"].to_numpy(), messages["delivered_ns"].to_numpy())
    known = (place >= 0) & (covered < len(soonest))
    sent = begun[place[known]]
    return sent, (soonest[covered[known]] - sent).astype(np.float64) * MS_PER_NS


@observation("baltaci.mapping_rtt_mean", "messages", "decisions", "packets")
def mapping_rtt_mean(run: RunData, flow: str) -> float:
    """Returns the mean time in ms from first sending to the acknowledgement of the data, see `mapping_rtts`."""
    found = mapping_rtts(run, flow)[1]
    return float(found.mean()) if found.size else math.nan


@observation("baltaci.mapping_rtt_quantile", "messages", "decisions", "packets")
def mapping_rtt_quantile(run: RunData, flow: str, q: float) -> float:
    """Returns the quantile `q` of these times in ms, see `mapping_rtts`."""
    return quantile(mapping_rtts(run, flow)[1], q)


@observation("baltaci.mapping_rtt_peak", "messages", "decisions", "packets")
def mapping_rtt_peak(run: RunData, flow: str) -> float:
    """Returns the maximum of these times in ms, see `mapping_rtts`."""
    found = mapping_rtts(run, flow)[1]
    return float(found.max()) if found.size else math.nan


@observation("baltaci.mapping_rtt_share", "messages", "decisions", "packets")
def mapping_rtt_share(run: RunData, flow: str, above_ms: float) -> float:
    """Returns the share of these times in % that exceed `above_ms`, see `mapping_rtts`."""
    found = mapping_rtts(run, flow)[1]
    return 100 * float(np.mean(found > above_ms)) if found.size else math.nan


# Retransmissions.


def _by_second(run: RunData, at_ns: Times) -> Array:
    many = _whole_seconds(run)
    seconds = at_ns // NS_PER_S
    return np.bincount(seconds[seconds < many], minlength=many).astype(np.float64)


def resent_of_frames(run: RunData, flow: str, path: str) -> Array:
    """Returns the share of a subflow's packets in both directions that it sent again, in % for each second."""
    rows = run.subflows(flow, path)
    many = _whole_seconds(run)
    seconds = (rows["time_ns"].to_numpy() - 1) // NS_PER_S
    inside = (seconds >= 0) & (seconds < many)
    again = np.bincount(seconds[inside], rows["retransmitted"].to_numpy()[inside].astype(float), minlength=many)
    frames = sum(_by_second(run, table(run, flow, path)["in_ns"].to_numpy()) for table in (_data, _acks))
    return 100 * np.divide(again, frames, out=np.zeros(many), where=frames > 0)


@observation("baltaci.resent_quantile", "subflows", "packets")
def resent_quantile(run: RunData, flow: str, path: str, q: float) -> float:
    """Returns the quantile `q` over the seconds of the packets sent again, in %, see `resent_of_frames`."""
    return quantile(resent_of_frames(run, flow, path), q)


@observation("baltaci.resent_time", "subflows", "packets")
def resent_time(run: RunData, flow: str, path: str) -> float:
    """Returns the share of the seconds in % in which a subflow sent packets again."""
    return 100 * float(np.mean(resent_of_frames(run, flow, path) > 0))


def repeated_rows(run: RunData, flow: str) -> Array:
    """Returns the share of a flow's data and acknowledgement packets that are old acknowledgements, in % per second.

    The article calls this MPTCP's retransmissions: an acknowledgement counts if its data sequence number was first
    acknowledged more than 200 ms before. It does not show that any data were sent again.
    """
    acks = _acks(run, flow)["in_ns"].to_numpy()
    delivered = np.sort(run.messages(flow)["delivered_ns"].drop_nulls().to_numpy())
    covered = np.searchsorted(delivered, acks, side="right")
    _, first, which = np.unique(covered, return_index=True, return_inverse=True)
    repeated = acks[acks - acks[first][which] > _REPEATED_S * NS_PER_S]
    rows = _by_second(run, acks) + _by_second(run, _data(run, flow)["in_ns"].to_numpy())
    return 100 * np.divide(_by_second(run, repeated), rows, out=np.zeros(len(rows)), where=rows > 0)


@observation("baltaci.repeated_quantile", "messages", "packets")
def repeated_quantile(run: RunData, flow: str, q: float) -> float:
    """Returns the quantile `q` over the seconds in %, see `repeated_rows`."""
    return quantile(repeated_rows(run, flow), q)


@observation("baltaci.repeated_mean", "messages", "packets")
def repeated_mean(run: RunData, flow: str) -> float:
    """Returns the mean over the seconds in %, see `repeated_rows`."""
    return float(repeated_rows(run, flow).mean())


@observation("baltaci.repeated_time", "messages", "packets")
def repeated_time(run: RunData, flow: str) -> float:
    """Returns the share of the seconds in % with an old acknowledgement, see `repeated_rows`."""
    return 100 * float(np.mean(repeated_rows(run, flow) > 0))


@observation("baltaci.ack_rows", "packets")
def ack_rows(run: RunData, flow: str) -> float:
    """Returns the share of acknowledgements in % of a flow's packets with data or acknowledgements."""
    acks, data = len(_acks(run, flow)), len(_data(run, flow))
    return 100 * acks / (acks + data) if acks + data else math.nan


# One-way delays.


def mapping_delays_ms(run: RunData, flow: str) -> Array:
    """Returns the times in ms from first sending to complete arrival of each delivered message.

    They exclude reordering delay, since the authors match the packets of captures at both ends.
    """
    begun, place, messages = _first_sent(run, flow)
    arrived = messages["delivered_ns"].to_numpy() - 1000 * messages["held_us"].to_numpy().astype(np.int64)
    known = place >= 0
    found: Array = (arrived[known] - begun[place[known]]).astype(np.float64) * MS_PER_NS
    return found


@observation("baltaci.mapping_delay_mean", "messages", "decisions")
def mapping_delay_mean(run: RunData, flow: str) -> float:
    """Returns the mean one-way delay in ms since first sending, see `mapping_delays_ms`."""
    found = mapping_delays_ms(run, flow)
    return float(found.mean()) if found.size else math.nan


@observation("baltaci.mapping_delay_count", "messages", "decisions")
def mapping_delay_count(run: RunData, flow: str, above_ms: float) -> float:
    """Returns the number of messages whose one-way delay since first sending exceeds `above_ms`."""
    return float(np.sum(mapping_delays_ms(run, flow) > above_ms))


@observation("baltaci.mapping_late_share", "messages", "decisions")
def mapping_late_share(run: RunData, flow: str, limit_ms: float) -> float:
    """Returns the share of delivered messages in % that arrive more than `limit_ms` after first sending."""
    found = mapping_delays_ms(run, flow)
    return 100 * float(np.mean(found > limit_ms)) if found.size else math.nan

"""Observables as the article's evaluation computed them (docs/studies/testbed.md), from packets.

They are named `baltaci.…` and are next to the measures that an engineer would take: the largest round trip of each
second for that of each acknowledgement, rows of acknowledgements for retransmissions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, Seen, observation, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Times = NDArray[np.int64]

_REPEATED_S = 0.2
"""An acknowledgement of data that was first seen this long ago counts as a repetition (the authors' script)."""

_NEVER = np.iinfo(np.int64).max


def _data(seen: Seen, flow: str, path: str = "") -> pl.DataFrame:
    """Packets with a flow's data in the direction of most of them, of one path if named, in the order of sending."""
    rows = seen.table("packets").filter(pl.col("flow") == flow, pl.col("kind") == "data")
    most = rows.group_by("direction").agg(pl.col("bytes").sum()).sort("bytes", descending=True)
    if most.is_empty():
        return rows
    rows = rows.filter(pl.col("direction") == most["direction"][0])
    return (rows.filter(pl.col("path") == path) if path else rows).sort("in_ns")


def _acks(seen: Seen, flow: str, path: str = "") -> pl.DataFrame:
    """A flow's acknowledgements in the order of sending, of one path if named."""
    rows = seen.table("packets").filter(pl.col("flow") == flow, pl.col("kind") == "ack")
    return (rows.filter(pl.col("path") == path) if path else rows).sort("in_ns")


def _whole_seconds(seen: Seen) -> int:
    return int(seen.length_s + 1e-9)


# Round trips.


def ack_rtts(seen: Seen, flow: str, path: str) -> tuple[Times, Array]:
    """When a subflow's acknowledgements came back, in ns, and their round-trip times in ms, as tshark computes them.

    A sample is the time from the sending of the newest segment that an acknowledgement covers. While a hole is open
    acknowledgements are repetitions and give none; the one that fills it covers all that has arrived behind it, so
    a loss shows as a second round trip. Packets have no sequence numbers here, so the hole is taken to end with the
    first packet that is sent after three later ones have been acknowledged, or after the first of them and a quarter
    of the shortest round trip (RFC 8985), or, after the last one of a burst, with the next packet on the path.
    """
    data, acks = _data(seen, flow, path), _acks(seen, flow, path).drop_nulls("out_ns").filter(pl.col("cause").is_null())
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
        # What the repetition uncovers was sent before it. Packets of its frame arrive at the same moment and are newer.
        if place < len(left) and newest[place] >= filled > later:
            total[place] = back[place] - sent[filled - 1]
    return back[keep], total[keep] * MS_PER_NS


def largest_of_seconds(seen: Seen, flow: str, path: str) -> Array:
    """The largest round-trip time in ms of each second, 0 in seconds without a sample."""
    at_ns, found = ack_rtts(seen, flow, path)
    many = _whole_seconds(seen)
    largest = np.zeros(many)
    seconds = at_ns // NS_PER_S
    np.maximum.at(largest, seconds[seconds < many], found[seconds < many])
    return largest


@observation("baltaci.second_rtt_quantile", "packets")
def second_rtt_quantile(seen: Seen, flow: str, path: str, q: float) -> float:
    """Largest round-trip time of a second, in ms, that a share `q` of the seconds does not exceed."""
    return quantile(largest_of_seconds(seen, flow, path), q)


@observation("baltaci.second_rtt_mean", "packets")
def second_rtt_mean(seen: Seen, flow: str, path: str) -> float:
    """Mean over the seconds of the largest round-trip time in ms, of those with a sample."""
    found = largest_of_seconds(seen, flow, path)
    return float(found[found > 0].mean()) if (found > 0).any() else math.nan


@observation("baltaci.ack_rtt_quantile", "packets")
def ack_rtt_quantile(seen: Seen, flow: str, path: str, q: float) -> float:
    """Round-trip time in ms that a share `q` of a subflow's acknowledgements does not exceed."""
    return quantile(ack_rtts(seen, flow, path)[1], q)


def _first_sent(seen: Seen, flow: str) -> tuple[Times, NDArray[np.intp], pl.DataFrame]:
    """First sendings of units in ns, the unit of each message that arrived (-1 for none), and those messages."""
    messages = seen.messages(flow).drop_nulls("delivered_ns").sort("id")
    decided = seen.table("decisions").filter(pl.col("flow") == flow, pl.col("paths") > 0).sort("time_ns")
    units = decided["message"].to_numpy().astype(np.int64)
    first = units > np.maximum.accumulate(np.concatenate((np.array([-1]), units[:-1])))
    place = np.searchsorted(units[first], messages["id"].to_numpy().astype(np.int64), side="right") - 1
    return decided["time_ns"].to_numpy()[first], place, messages


def mapping_rtts(seen: Seen, flow: str) -> tuple[Times, Array]:
    """When a flow's messages were first sent, in ns, and the time in ms until the first acknowledgement of their data.

    A message is sent with the unit that has its end. Its data are acknowledged by the first acknowledgement on any
    subflow that arrives of those that leave once it has been delivered in order.
    """
    begun, place, messages = _first_sent(seen, flow)
    acks = _acks(seen, flow).drop_nulls("out_ns").filter(pl.col("cause").is_null())
    if messages.is_empty() or not begun.size or acks.is_empty():
        return np.empty(0, np.int64), np.empty(0)
    soonest = np.minimum.accumulate(acks["out_ns"].to_numpy()[::-1])[::-1]
    covered = np.searchsorted(acks["in_ns"].to_numpy(), messages["delivered_ns"].to_numpy())
    known = (place >= 0) & (covered < len(soonest))
    sent = begun[place[known]]
    return sent, (soonest[covered[known]] - sent).astype(np.float64) * MS_PER_NS


@observation("baltaci.mapping_rtt_mean", "messages", "decisions", "packets")
def mapping_rtt_mean(seen: Seen, flow: str) -> float:
    """Mean time in ms from first sending to the acknowledgement of the data."""
    found = mapping_rtts(seen, flow)[1]
    return float(found.mean()) if found.size else math.nan


@observation("baltaci.mapping_rtt_quantile", "messages", "decisions", "packets")
def mapping_rtt_quantile(seen: Seen, flow: str, q: float) -> float:
    """What a share `q` of these times does not exceed, in ms."""
    return quantile(mapping_rtts(seen, flow)[1], q)


@observation("baltaci.mapping_rtt_peak", "messages", "decisions", "packets")
def mapping_rtt_peak(seen: Seen, flow: str) -> float:
    """The largest of these times in ms."""
    found = mapping_rtts(seen, flow)[1]
    return float(found.max()) if found.size else math.nan


@observation("baltaci.mapping_rtt_share", "messages", "decisions", "packets")
def mapping_rtt_share(seen: Seen, flow: str, above_ms: float) -> float:
    """Share of these times, in %, above `above_ms`."""
    found = mapping_rtts(seen, flow)[1]
    return 100 * float(np.mean(found > above_ms)) if found.size else math.nan


# Retransmissions.


def _by_second(seen: Seen, at_ns: Times) -> Array:
    many = _whole_seconds(seen)
    seconds = at_ns // NS_PER_S
    return np.bincount(seconds[seconds < many], minlength=many).astype(np.float64)


def resent_of_frames(seen: Seen, flow: str, path: str) -> Array:
    """For each second what a subflow sent again, in % of its packets both ways, acknowledgements included."""
    rows = seen.subflows(flow, path)
    many = _whole_seconds(seen)
    seconds = (rows["time_ns"].to_numpy() - 1) // NS_PER_S
    inside = (seconds >= 0) & (seconds < many)
    again = np.bincount(seconds[inside], rows["retransmitted"].to_numpy()[inside].astype(float), minlength=many)
    frames = sum(_by_second(seen, table(seen, flow, path)["in_ns"].to_numpy()) for table in (_data, _acks))
    return 100 * np.divide(again, frames, out=np.zeros(many), where=frames > 0)


@observation("baltaci.resent_quantile", "subflows", "packets")
def resent_quantile(seen: Seen, flow: str, path: str, q: float) -> float:
    """What a share `q` of the seconds does not exceed, in % of a subflow's packets both ways."""
    return quantile(resent_of_frames(seen, flow, path), q)


@observation("baltaci.resent_time", "subflows", "packets")
def resent_time(seen: Seen, flow: str, path: str) -> float:
    """Share of the seconds, in %, in which a subflow sent something again."""
    return 100 * float(np.mean(resent_of_frames(seen, flow, path) > 0))


def repeated_rows(seen: Seen, flow: str) -> Array:
    """For each second the acknowledgements that repeat an old one, in % of all its rows of data and acknowledgements.

    This is what the article calls MPTCP's retransmissions: an acknowledgement counts if data of the connection were
    first acknowledged as far more than 200 ms before. Nothing in it was sent again.
    """
    acks = _acks(seen, flow)["in_ns"].to_numpy()
    delivered = np.sort(seen.messages(flow)["delivered_ns"].drop_nulls().to_numpy())
    covered = np.searchsorted(delivered, acks, side="right")
    _, first, which = np.unique(covered, return_index=True, return_inverse=True)
    repeated = acks[acks - acks[first][which] > _REPEATED_S * NS_PER_S]
    rows = _by_second(seen, acks) + _by_second(seen, _data(seen, flow)["in_ns"].to_numpy())
    return 100 * np.divide(_by_second(seen, repeated), rows, out=np.zeros(len(rows)), where=rows > 0)


@observation("baltaci.repeated_quantile", "messages", "packets")
def repeated_quantile(seen: Seen, flow: str, q: float) -> float:
    """What a share `q` of the seconds does not exceed, see `repeated_rows`."""
    return quantile(repeated_rows(seen, flow), q)


@observation("baltaci.repeated_mean", "messages", "packets")
def repeated_mean(seen: Seen, flow: str) -> float:
    """Mean over the seconds, see `repeated_rows`."""
    return float(repeated_rows(seen, flow).mean())


@observation("baltaci.repeated_time", "messages", "packets")
def repeated_time(seen: Seen, flow: str) -> float:
    """Share of the seconds, in %, with such a row."""
    return 100 * float(np.mean(repeated_rows(seen, flow) > 0))


@observation("baltaci.ack_rows", "packets")
def ack_rows(seen: Seen, flow: str) -> float:
    """Acknowledgements in % of a flow's packets with data and acknowledgements."""
    acks, data = len(_acks(seen, flow)), len(_data(seen, flow))
    return 100 * acks / (acks + data) if acks + data else math.nan


# One-way delays.


def mapping_delays_ms(seen: Seen, flow: str) -> Array:
    """Times in ms from the first sending of each message that arrived to its complete arrival.

    The wait for order is not in it: the authors match the rows of captures at both ends.
    """
    begun, place, messages = _first_sent(seen, flow)
    arrived = messages["delivered_ns"].to_numpy() - 1000 * messages["held_us"].to_numpy().astype(np.int64)
    known = place >= 0
    found: Array = (arrived[known] - begun[place[known]]).astype(np.float64) * MS_PER_NS
    return found


@observation("baltaci.mapping_delay_mean", "messages", "decisions")
def mapping_delay_mean(seen: Seen, flow: str) -> float:
    """Mean one-way delay in ms from first sending on, see `mapping_delays_ms`."""
    found = mapping_delays_ms(seen, flow)
    return float(found.mean()) if found.size else math.nan


@observation("baltaci.mapping_delay_count", "messages", "decisions")
def mapping_delay_count(seen: Seen, flow: str, above_ms: float) -> float:
    """Number of messages whose one-way delay from first sending on is above `above_ms`."""
    return float(np.sum(mapping_delays_ms(seen, flow) > above_ms))


@observation("baltaci.mapping_late_share", "messages", "decisions")
def mapping_late_share(seen: Seen, flow: str, limit_ms: float) -> float:
    """Share of the messages that arrived, in %, later than `limit_ms` after their first sending."""
    found = mapping_delays_ms(seen, flow)
    return 100 * float(np.mean(found > limit_ms)) if found.size else math.nan

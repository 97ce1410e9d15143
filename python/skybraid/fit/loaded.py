"""Delays measured under one's own load, separated into those of the link and those of its queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS, Flight

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

BASE_S = 10.0
"""Time in s within which a queue is assumed to run empty: the window of BBR's minimum round-trip time (Cardwell et al.
2016).
"""

FULL = 0.99
"""Quantile of the queued bytes that is taken for the queue's limit; higher values are errors of the rate."""


def without_load(flights: Sequence[Flight]) -> tuple[list[Flight], dict[str, float]]:
    """Returns flights with the delay of packets that find an empty queue, and the limit of each queue in bytes.

    The base is the minimum delay within `BASE_S` before and after; any excess is queueing. The queueing of a round trip
    is assigned to the direction whose rate was measured.
    """
    idle, waited = [], {direction: [np.zeros(0)] for direction in DIRECTIONS}
    for flight in flights:
        columns = []
        loads = {way: rate for way in DIRECTIONS if (rate := flight.values("rate", way)) is not None}
        for column in flight.columns:
            if column.quantity != "delay":
                columns.append(column)
                continue
            base_ms = _base(flight.times_s, column.values)
            columns.append(replace(column, values=np.where(np.isfinite(column.values), base_ms, column.values)))
            over_ms = np.where(np.isfinite(column.values), column.values - base_ms, 0.0)
            ways = [column.direction] if column.direction else list(loads)
            for way in (way for way in ways if way in loads):
                halves = 1 if column.direction else 2 / len(ways)
                waited[way].append(halves * over_ms * 1e-3 * loads[way] * 1e6 / 8)
        idle.append(replace(flight, columns=tuple(columns)))
    every = {way: np.concatenate(parts) for way, parts in waited.items()}
    return idle, {way: float(np.quantile(own, FULL)) for way, own in every.items() if own.size}


def _base(times_s: Floats, delay_ms: Floats) -> Floats:
    """Returns the minimum delay around each row, in ms; shape (n,)."""
    known = np.where(np.isfinite(delay_ms), delay_ms, np.inf)
    starts = np.searchsorted(times_s, times_s - BASE_S)
    ends = np.searchsorted(times_s, times_s + BASE_S, side="right")
    return np.array([known[start:end].min() for start, end in zip(starts, ends, strict=True)])

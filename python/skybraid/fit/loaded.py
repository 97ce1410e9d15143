"""Delays measured under a load of one's own: what is the link's, and what waited in its queue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS, Flight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skybraid.traces.measurement import Floats

BASE_S = 10.0
"""Time in s within which a queue is taken to run empty: that of BBR's smallest round trip (Cardwell et al. 2016)."""

FULL = 0.99
"""Quantile of the bytes that waited which is taken for the queue's limit: the highest ones are the rate's error."""


def without_load(flights: Sequence[Flight]) -> tuple[list[Flight], dict[str, float]]:
    """Returns flights with the delay of a packet that finds an empty queue, and the bytes that each queue holds.

    The base is the smallest delay within `BASE_S` before and after; what is above it waited. A round trip waits in the
    direction whose rate was measured, so the whole of it is that direction's.
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
    """Returns the smallest delay around each row, in ms; shape (n,)."""
    known = np.where(np.isfinite(delay_ms), delay_ms, np.inf)
    starts = np.searchsorted(times_s, times_s - BASE_S)
    ends = np.searchsorted(times_s, times_s + BASE_S, side="right")
    return np.array([known[start:end].min() for start, end in zip(starts, ends, strict=True)])

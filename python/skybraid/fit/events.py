"""Events in a series of probes: outages, stalls, and single losses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS

if TYPE_CHECKING:
    from skybraid.traces.flights import Flight
    from skybraid.traces.measurement import Floats

MIN_OUTAGE_S = 0.5
"""Minimum time in s without a reply that is an outage; in shorter times packets are lost."""

MIN_STALL_STEPS, MIN_STALL_S = 3, 0.15
"""Minimum number of probes, and minimum time in s, of a stall: replies arrive together, each probe's delay shorter by
as much as it was sent later.
"""

_SLOPE = 0.25
"""Tolerance of a fall's slope, as a share of the time between the probes."""

DOWN_MBPS = 0.01
"""Rate in Mbit/s below which a link is down."""


class Events(NamedTuple):
    """Events found in a series of probes.

    Attributes:
        outages: starts and lengths in s; shape (n, 2).
        stalls: starts and lengths in s; shape (n, 2).
        lost: probes lost outside outages.
        probes: probes outside outages.
        calm: delays, NaN in outages and stalls and for lost probes.
    """

    outages: Floats
    stalls: Floats
    lost: int
    probes: int
    calm: Floats

    def of(self, kind: str) -> Floats:
        """Returns `outages` or `stalls`."""
        return self.outages if kind == "outages" else self.stalls


def events_of(flight: Flight) -> Events | None:
    """Returns the events of a flight, from the delay with most of them; None if no probe was measured."""
    found = [own for direction in DIRECTIONS if (own := delay_events(flight, direction)) is not None]
    if not found:
        of_rates, of_losses = rate_events(flight), _loss_events(flight)
        if of_rates is None or of_losses is None:
            return of_losses if of_rates is None else of_rates
        return of_losses._replace(stalls=of_rates.stalls)
    return max(found, key=lambda own: own.lost + float(own.outages[:, 1].sum()))


def delay_events(flight: Flight, direction: str) -> Events | None:
    """Returns the events of the delays of a direction; None if they were not measured."""
    delay_ms = flight.values("delay", direction)
    if delay_ms is None:
        return None
    is_of_both = delay_ms is flight.values("delay", "uplink") and delay_ms is flight.values("delay", "downlink")
    find = find_round_trip_events if is_of_both else find_events
    return find(flight.times_s, delay_ms, flight.length_s)


def _loss_events(flight: Flight) -> Events | None:
    """Returns the times in which a direction lost all packets, for a flight without delays; None without losses."""
    losses = flight.each_way("loss")
    if not losses:
        return None
    all_lost = np.any([loss >= 100 for loss in losses], axis=0)
    return find_events(flight.times_s, np.where(all_lost, math.inf, 0.0), flight.length_s)


def rate_events(flight: Flight) -> Events | None:
    """Returns the times of zero rate as stalls, for a flight without delays; None without rates.

    A rate of zero does not show whether waiting packets are lost: as in a replay, they are kept. Single samples shorter
    than `MIN_OUTAGE_S` stay in the distribution of the rate.
    """
    rates = flight.each_way("rate")
    if not rates:
        return None
    down = np.all([rate < DOWN_MBPS for rate in rates], axis=0)
    found = find_events(flight.times_s, np.where(down, math.inf, 0.0), flight.length_s, min_samples=1)
    # Rates do not show lost packets.
    return found._replace(outages=found.stalls, stalls=found.outages, lost=0, probes=0)


def find_round_trip_events(times_s: Floats, half_ms: Floats, length_s: float) -> Events:
    """Finds events in halves of round trips, or in one-way delays of no direction, whichever gives more stalls.

    A probe waits for the end of a stall once per round trip, so the round trip falls with slope -1, not its half.
    """
    round_trips, halves = (find_events(times_s, factor * half_ms, length_s) for factor in (2, 1))
    if halves.stalls[:, 1].sum() > round_trips.stalls[:, 1].sum():
        return halves
    return round_trips._replace(calm=round_trips.calm / 2)


def find_events(times_s: Floats, delay_ms: Floats, length_s: float, min_samples: int = 2) -> Events:
    """Finds outages (runs of lost probes) and stalls (delays that fall with slope -1).

    Args:
        times_s: sending time of each probe in s, shape (n,).
        delay_ms: delays in ms, shape (n,); infinity: lost; NaN: not measured.
        length_s: end of the last probe's interval, in s.
        min_samples: minimum number of consecutive lost probes of an outage; a single one does not show the time until
            the next.
    """
    ends_s = np.append(times_s[1:], length_s)
    lost = np.isinf(delay_ms)
    calm = np.where(np.isfinite(delay_ms), delay_ms, np.nan)
    outages = []
    is_out = np.zeros(len(times_s), dtype=np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], lost, [False]]).astype(int)))
    for first, after in zip(edges[::2], edges[1::2], strict=True):
        lasts_s = float(ends_s[after - 1] - times_s[first])
        if lasts_s >= MIN_OUTAGE_S and after - first >= min_samples:
            outages.append((float(times_s[first]), lasts_s))
            is_out[first:after] = True
    stalls, is_stalled = _stalls(times_s, calm)
    calm = np.where(is_stalled, np.nan, calm)
    probes = ~is_out & ~np.isnan(delay_ms)
    return Events(
        np.array(outages).reshape(-1, 2),
        np.array(stalls).reshape(-1, 2),
        int((lost & ~is_out).sum()),
        int(probes.sum()),
        calm,
    )


def _stalls(
    times_s: Floats, delay_ms: Floats
) -> tuple[list[tuple[float, float]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    stalled = np.zeros(len(times_s), dtype=np.bool_)
    if len(times_s) <= MIN_STALL_STEPS:
        return [], stalled
    steps_ms = 1e3 * np.diff(times_s)
    usual_ms = float(np.median(steps_ms))
    min_steps = min(MIN_STALL_STEPS, math.ceil(1e3 * MIN_STALL_S / usual_ms))
    with np.errstate(invalid="ignore"):
        falls = np.abs(np.diff(delay_ms) + steps_ms) <= _SLOPE * steps_ms
    base_ms = float(np.nanmedian(delay_ms)) if np.isfinite(delay_ms).any() else 0.0
    found: list[tuple[float, float]] = []
    last = 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], falls, [False]]).astype(int)))
    for first, after in zip(edges[::2], edges[1::2], strict=True):
        if found and first < last:
            continue
        # If the delay has not returned to its usual value, only the further rise is a new stall.
        since = delay_ms[last : first + 1]
        height_ms = float(delay_ms[first]) - max(base_ms, float(np.nanmin(since)) if found else base_ms)
        if after - first >= min_steps and height_ms >= min_steps * usual_ms:
            found.append((float(times_s[first]), height_ms * 1e-3))
            last = max(after, _end_of_fall(times_s, delay_ms, int(first), base_ms))
            stalled[first : last + 1] = delay_ms[first : last + 1] > base_ms
    return found, stalled


def _end_of_fall(times_s: Floats, delay_ms: Floats, first: int, base_ms: float) -> int:
    """Returns the last probe of a fall of the delay: single steps may deviate from the slope, the total may not."""
    end = int(np.searchsorted(times_s, times_s[first] + (delay_ms[first] - base_ms) * 1e-3))
    since_ms = 1e3 * (times_s[first + 1 : end] - times_s[first])
    with np.errstate(invalid="ignore"):
        off = np.abs(delay_ms[first + 1 : end] - delay_ms[first] + since_ms) > _SLOPE * since_ms
    return first + (int(np.argmax(off)) if off.any() else len(off))

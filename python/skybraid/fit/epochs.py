"""Starlink's epochs: every 15 s a terminal may be assigned another satellite, and the delay steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from skybraid.model.heavy import np

if TYPE_CHECKING:
    from skybraid.traces.flights import Flight
    from skybraid.traces.measurement import Floats

EVERY_S = 15.0
"""Length of an epoch in s (Tanveer et al., HotNets 2023)."""

_OTHERS_S = (13.0, 14.0, 16.0, 17.0)
"""Control periods in s that no network has; steps at these are chance."""

_AHEAD = 1.5
"""Ratio by which steps at epoch boundaries must exceed those at any control period."""

_MIN_S = 300.0
"""Minimum length in s for detecting epochs: twenty of them."""

_MAX_S = 7200.0
_BIN_S = 0.5
_SIDE_S = 2.0
_MIN_SIDE_ROWS = 3
_LEVEL = 0.2
"""Quantile of an epoch's delays that is its level; higher delays contain waiting."""

_DATED_S = 1e8
"""Clock value in s from which on a clock counts from 1970."""


def find_phases(flights: Sequence[Flight]) -> list[float | None]:
    """Returns the phase in s, past a multiple of 15 s, at which the delay of each flight steps; None: no steps.

    Flights with dates are analysed together: boundaries are the same everywhere.
    """
    rows = [_delays(flight) for flight in flights]
    if all(flight.clock[0] > _DATED_S for flight in flights):
        return [_phase(rows)] * len(flights)
    return [_phase([own]) for own in rows]


def without_steps(flight: Flight, phase_s: float) -> tuple[Flight, Floats]:
    """Returns a flight without the steps of its delay, and the height of each epoch above the lowest, in ms."""
    number = np.floor((flight.clock - phase_s) / EVERY_S)
    _, epoch = np.unique(number, return_inverse=True)
    columns, steps_ms = [], np.array([0.0])
    for column in flight.columns:
        known = np.isfinite(column.values)
        if column.quantity != "delay" or not known.any():
            columns.append(column)
            continue
        levels_ms = np.full(int(epoch.max()) + 1, math.nan)
        for at in np.unique(epoch[known]):
            delays_ms = column.values[known & (epoch == at)]
            if len(delays_ms) >= _MIN_SIDE_ROWS:
                levels_ms[at] = np.quantile(delays_ms, _LEVEL)
        if np.isnan(levels_ms).all():
            columns.append(column)
            continue
        steps_ms = levels_ms[np.isfinite(levels_ms)] - np.nanmin(levels_ms)
        above_ms = np.nan_to_num(levels_ms, nan=float(np.nanmedian(levels_ms))) - np.nanmin(levels_ms)
        columns.append(replace(column, values=np.maximum(column.values - above_ms[epoch], 0.0)))
    return replace(flight, columns=tuple(columns)), steps_ms


def _delays(flight: Flight) -> tuple[Floats, Floats]:
    """Returns clock in s and delay in ms of received probes; empty if the rows are too far apart."""
    delay_ms = next((one.values for one in flight.columns if one.quantity == "delay"), None)
    if delay_ms is None or _MIN_SIDE_ROWS * flight.interval_s > 2 * _SIDE_S:
        return np.zeros(0), np.zeros(0)
    known = np.isfinite(delay_ms)
    clock_s = flight.clock[known]
    known_ms = delay_ms[known]
    early = clock_s < clock_s[0] + _MAX_S if clock_s.size else known[:0]
    return clock_s[early], known_ms[early]


def _phase(rows: Sequence[tuple[Floats, Floats]]) -> float | None:
    if math.fsum(float(clock_s[-1] - clock_s[0]) for clock_s, _ in rows if clock_s.size) < _MIN_S:
        return None
    jumps = [_jumps(*own) for own in rows if own[0].size]
    times_s, sizes_ms = (np.concatenate(parts) for parts in zip(*jumps, strict=True))
    profile_ms = _profile(times_s, sizes_ms, EVERY_S)
    elsewhere = max(_prominence(_profile(times_s, sizes_ms, period_s)) for period_s in _OTHERS_S)
    if _prominence(profile_ms) < _AHEAD * elsewhere:
        return None
    return float(np.argmax(profile_ms) * _BIN_S)


def _jumps(clock_s: Floats, delay_ms: Floats) -> tuple[Floats, Floats]:
    """Returns times in s and the absolute difference in ms between the median delays after and before each."""
    side_s = max(_SIDE_S, _MIN_SIDE_ROWS * float(np.median(np.diff(clock_s)))) if len(clock_s) > 1 else _SIDE_S
    times_s = np.arange(math.ceil(clock_s[0]) + side_s, clock_s[-1] - side_s, _BIN_S)
    starts, middles, ends = (np.searchsorted(clock_s, times_s + by_s) for by_s in (-side_s, 0.0, side_s))
    full = (middles - starts >= _MIN_SIDE_ROWS) & (ends - middles >= _MIN_SIDE_ROWS)
    sizes_ms = [
        abs(float(np.median(delay_ms[middle:end]) - np.median(delay_ms[start:middle])))
        for start, middle, end in zip(starts[full], middles[full], ends[full], strict=True)
    ]
    return times_s[full], np.array(sizes_ms)


def _profile(times_s: Floats, sizes_ms: Floats, period_s: float) -> Floats:
    """Returns the median jump by phase, in bins of `_BIN_S`; 0 in empty bins."""
    bins = ((times_s % period_s) / _BIN_S).astype(int)
    return np.array(
        [np.median(sizes_ms[bins == at]) if (bins == at).any() else 0.0 for at in range(int(period_s / _BIN_S))]
    )


def _prominence(profile: Floats) -> float:
    mean = float(profile.mean())
    return float(profile.max()) / mean if mean > 0 else 1.0

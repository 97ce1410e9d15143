"""Flights drawn from a fitted link, and resampled from blocks of measured flights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skybraid.fit.epochs import EVERY_S
from skybraid.model.heavy import np
from skybraid.traces.flights import Flight
from skybraid.traces.measurement import Column

if TYPE_CHECKING:
    from skybraid.fit.durations import Exponentials, Quantiles
    from skybraid.fit.link import FittedFlight, FittedLink
    from skybraid.traces.measurement import Floats

BLOCK_S = 30.0
"""Length in s of the blocks by which measured flights are resampled."""


def draw_flight(link: FittedLink, length_s: float, random: np.random.Generator) -> Flight:
    """Returns a flight drawn from the processes of a link, with rates in Mbit/s and delays in ms."""
    chosen = link.flights[int(random.integers(len(link.flights)))]
    # A flight without any service has no processes.
    processes = link.flights[len(link.flights) // 2].processes | chosen.processes
    step_s = min((process.step_s for process in processes.values()), default=1.0)
    count = max(round(length_s / step_s), 1)
    times_s = np.arange(count, dtype=np.float64) * step_s
    factors = {name: math.exp(random.standard_normal() * math.log(sd)) for name, sd in link.spread.items()}
    outages_per_s, stalls_per_s = (
        rate and rate * factors.get(name, 1.0)
        for rate, name in ((chosen.outages_per_s, "outage"), (chosen.stalls_per_s, "stall"))
    )
    out_s = _intervals(outages_per_s, link.outage_gaps, link.outage_length, chosen.outage_scale, length_s, random)
    stalls_s = _intervals(stalls_per_s, link.stall_gaps, link.stall_length, chosen.stall_scale, length_s, random)
    is_out = _inside(times_s, out_s)
    waits_ms = _waits_ms(times_s, stalls_s)
    steps_ms = _steps_ms(chosen, times_s, random)
    common = {quantity: random.standard_normal((2, count)) for quantity in ("rate", "delay")}
    columns = []
    for key, process in processes.items():
        direction, _, quantity = key.partition(".")
        each = max(round(process.step_s / step_s), 1)
        if quantity == "rate":
            factor = math.exp(random.standard_normal() * math.log(link.spread.get("rate", 1.0)))
            values = np.repeat(process.sample(-(-count // each), random, factor, common[quantity]), each)[:count]
            columns.append(Column("rate", "Mbit/s", np.where(is_out | (waits_ms > 0), 0.0, values), direction))
        else:
            values = np.repeat(
                process.sample(-(-count // each), random, factors.get("jitter", 1.0), common[quantity]), each
            )[:count]
            values = values + process.plus * (factors.get("delay", 1.0) - 1) + steps_ms
            # Both halves of a round trip share its wait.
            values = values + waits_ms * (0.5 if process.both_ways == 1 else 1.0)
            # Packets do not overtake one another.
            values = np.maximum.accumulate(1e3 * times_s + values) - 1e3 * times_s
            columns.append(Column("delay", "ms", np.where(is_out, math.inf, values), direction))
    if chosen.loss is not None:
        shares = {way: min(100 * loss * factors.get("loss", 1.0), 100.0) for way, loss in chosen.losses().items()}
        columns += [Column("loss", "%", np.where(is_out, 100.0, share), way) for way, share in shares.items()]
    if not columns:
        # A flight without any service has no other values.
        columns.append(Column("loss", "%", np.where(is_out | (waits_ms > 0), 100.0, 0.0), ""))
    return Flight(chosen.name, times_s, tuple(columns), count * step_s)


def resample_flight(flights: Sequence[Flight], length_s: float, random: np.random.Generator) -> Flight:
    """Returns a flight resampled in blocks from one of the measured flights (circular block bootstrap)."""
    chosen = flights[int(random.integers(len(flights)))]
    step_s = max(float(np.median(np.diff(chosen.times_s))) if len(chosen.times_s) > 1 else 1.0, 1e-3)
    count, own = max(round(length_s / step_s), 1), max(int(chosen.length_s / step_s), 1)
    block = max(round(BLOCK_S / step_s), 1)
    starts = random.integers(own, size=-(-count // block))
    places = (starts[:, None] + np.arange(block)).ravel()[:count] % own
    columns = []
    for column in chosen.columns:
        values = chosen.grid(column.quantity, column.direction, step_s)
        assert values is not None
        columns.append(Column(column.quantity, column.unit, values[places], column.direction))
    return Flight(chosen.name, np.arange(count, dtype=np.float64) * step_s, tuple(columns), count * step_s)


def _steps_ms(flight: FittedFlight, times_s: Floats, random: np.random.Generator) -> Floats:
    """Returns the delay added by the epoch of each time, in ms; the first epoch starts at a random phase."""
    if flight.steps_ms is None:
        return np.zeros(len(times_s))
    epochs = ((times_s + random.uniform(0, EVERY_S)) // EVERY_S).astype(int)
    probabilities, values = np.array(flight.steps_ms).T
    found: Floats = np.interp(random.random(int(epochs.max()) + 1), probabilities, values)[epochs]
    return found


def _intervals(
    rate_per_s: float | None,
    gaps: Exponentials | None,
    length: Quantiles | None,
    scale: float,
    length_s: float,
    random: np.random.Generator,
) -> Floats:
    """Returns starts and ends of events in s, shape (n, 2)."""
    if not rate_per_s or gaps is None or length is None:
        return np.zeros((0, 2))
    expected = int(rate_per_s * length_s)
    between_s = gaps.sample(2 * expected + 20, random) / (rate_per_s * gaps.mean_s)
    starts_s = np.cumsum(between_s)
    starts_s = starts_s[starts_s < length_s]
    return np.stack([starts_s, starts_s + scale * length.sample(len(starts_s), random)], axis=1)


def _inside(times_s: Floats, spans_s: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    inside = np.zeros(len(times_s), dtype=np.bool_)
    for start_s, end_s in spans_s:
        inside |= (times_s >= start_s) & (times_s < end_s)
    return inside


def _waits_ms(times_s: Floats, spans_s: Floats) -> Floats:
    """Returns the time until the end of the stall for a packet sent at each time, in ms; 0 outside stalls."""
    waits_ms = np.zeros(len(times_s))
    for start_s, end_s in spans_s:
        rows = (times_s >= start_s) & (times_s < end_s)
        waits_ms[rows] = np.maximum(waits_ms[rows], 1e3 * (end_s - times_s[rows]))
    return waits_ms

"""Link fitted to flights, and its TOML preset for scenarios."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skybraid.fit.durations import Exponentials, Quantiles, fit_durations, fit_intervals
from skybraid.fit.epochs import EVERY_S, find_phases, without_steps
from skybraid.fit.events import (
    DOWN_MBPS,
    Events,
    delay_events,
    events_of,
    rate_events,
)
from skybraid.fit.loaded import BASE_S, without_load
from skybraid.fit.priors import RARE_EVERY_S, RARE_LENGTHS, RARE_PRIOR, STALL_EVERY_S, STALL_PRIOR
from skybraid.fit.process import Memory, Process, fit_memory, normal_scores, quantile_table
from skybraid.fit.spread import SHORT_S, spread_of
from skybraid.model.formatting import about
from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS, Flight
from skybraid.traces.formats.source import Source, number_of
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

MIN_STEP_S = 0.1
"""Minimum time in s for which a fitted value holds."""

CONSTANT_SHARE = 0.01
"""Maximum relative difference of rates that count as constant: the capacity of every network varies more."""

MIN_OWN_STEPS = 300
"""Minimum number of values for fitting a memory to a single flight; flights differ in it too."""

WINDOW_S = 600.0
"""Length in s of the windows into which long flights are cut: a network changes along a route."""

MIN_WINDOW_ROWS = 20
"""Minimum number of rows of a window, for sparse measurements."""

MAX_WINDOWS = 60
"""Maximum number of flights written; of more, an even selection from the worst to the best."""

LENGTHS_OF_ALL = 2
"""Weight of the lengths of all flights' events, as a number of events, next to those of one flight."""

FEW_FLIGHTS = 5
"""Number of flights below which the spread between flights is uncertain."""


@dataclass(frozen=True)
class FittedFlight:
    """Characteristics of one flight.

    Attributes:
        name: source files.
        processes: processes in Mbit/s and ms by scenario key, such as "uplink.rate" or "downlink.delay".
        loss: share of packets lost in each direction outside outages, 0 to 1; None: not measured.
        outages_per_s: rate of outages in 1/s; None: not measured.
        stalls_per_s: rate of stalls in 1/s; None: not measured.
        badness: share of the time with less than 10 Mbit/s, a delay over 300 ms, or no path.
        outage_scale: ratio of the lengths of its outages to those of all flights.
        stall_scale: ratio of the lengths of its stalls to those of all flights.
        is_dark: whether the link was down most of the time.
        event_direction: the only direction with losses and stalls; None: both.
        loss_direction: the only direction whose loss was measured; None: `loss` applies to both.
        steps_ms: distribution of the delay that an epoch of 15 s adds in both directions; None: no epochs were found.
    """

    name: str
    processes: dict[str, Process]
    loss: float | None
    outages_per_s: float | None
    stalls_per_s: float | None
    badness: float
    outage_scale: float = 1.0
    stall_scale: float = 1.0
    is_dark: bool = False
    event_direction: str | None = None
    loss_direction: str | None = None
    steps_ms: tuple[tuple[float, float], ...] | None = None

    def losses(self) -> dict[str, float]:
        """Returns the share of packets lost in each direction, 0 to 1; empty if it was not measured.

        Zero is written too, since a flight inherits missing values from the link.
        """
        if self.loss is None:
            return {}
        if self.loss_direction is not None:
            return {self.loss_direction: self.loss}
        if self.event_direction is None:
            return dict.fromkeys(DIRECTIONS, self.loss)
        return {way: 1 - (1 - self.loss) ** 2 if way == self.event_direction else 0.0 for way in DIRECTIONS}


@dataclass(frozen=True)
class FittedLink:
    """Link of fitted processes, and the flights of the population.

    Attributes:
        flights: from the worst to the best.
        outage_length: distribution of outage lengths; None: no outages.
        outage_gaps: distribution of the time between outages, over all flights.
        stall_length: distribution of stall lengths; None: no stalls.
        stall_gaps: distribution of the time between stalls.
        handover_gaps: distribution of the time between handovers; None: not measured.
        handover_length: distribution of handover execution times; None: not measured.
        spread: geometric standard deviations between flights of "rate", "delay", "jitter", "loss", "outage", "stall".
        unknown: sentences on parameters that the data cannot determine.
        queue_bytes: queue limit of each direction in bytes; empty: not measured under load.
        phase_s: start of the first Starlink epoch, in s from 0 to 15; None: no epochs.
    """

    flights: tuple[FittedFlight, ...]
    outage_length: Quantiles | None = None
    outage_gaps: Exponentials | None = None
    stall_length: Quantiles | None = None
    stall_gaps: Exponentials | None = None
    handover_gaps: Exponentials | None = None
    handover_length: Quantiles | None = None
    spread: dict[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    phase_s: float | None = None
    queue_bytes: dict[str, float] = field(default_factory=dict)

    @property
    def windows(self) -> int:
        """Returns the number of fitted windows; a window may be written for several directions."""
        return len({flight.name for flight in self.flights})

    def toml(self, source: str = "") -> str:
        """Returns the text of the file that `preset = "link.toml"` names."""
        lines = [
            f"# Fitted by `skybraid fit`{f' to {source}' if source else ''}.",
            *(f"# {one}" for one in self.unknown),
        ]
        typical = self.flights[len(self.flights) // 2]
        lines += ["", *self._table(typical, "")]
        if self.handover_gaps is not None and self.handover_length is not None:
            lines.append(
                f"handover = {{ interval = {self.handover_gaps.toml()}, interruption = {self.handover_length.toml()} }}"
            )
        lines += [f'{way}.queue = {{ bytes = "{size:.0f}B" }}' for way, size in self.queue_bytes.items() if size >= 1]
        if self.phase_s is not None:
            lines += [
                f'reconfiguration.every = "{EVERY_S:g}s"',
                f'reconfiguration.phase = "{self.phase_s:g}s"',
            ]
        if self.spread:
            for flight in self.flights:
                lines += ["", "[[flight]]", f"name = {_quoted(flight.name)}", *self._table(flight, "")]
        if self.spread:
            lines += ["", "[spread]", *(f"{name} = {value:.4g}" for name, value in self.spread.items())]
        return "\n".join(lines) + "\n"

    def _table(self, flight: FittedFlight, prefix: str) -> list[str]:
        lines = [f"{prefix}{key} = {_process(process, key)}" for key, process in flight.processes.items()]
        lines += [
            f'{direction}.loss = {{ uniform = "{100 * loss:.4g}%" }}' for direction, loss in flight.losses().items()
        ]
        if flight.steps_ms is not None:
            pairs = ", ".join(f'[{p:g}, "{value:.5g}ms"]' for p, value in flight.steps_ms)
            lines.append(f"reconfiguration.delay_step = {{ quantiles = [{pairs}] }}")
        way = f', direction = "{flight.event_direction}"' if flight.event_direction else ""
        for name, rate, gaps, length, scale, more in (
            ("outage", flight.outages_per_s, self.outage_gaps, self.outage_length, flight.outage_scale, ""),
            ("stall", flight.stalls_per_s, self.stall_gaps, self.stall_length, flight.stall_scale, way),
        ):
            if rate and gaps is not None and length is not None:
                own = gaps.scaled(1 / (rate * gaps.mean_s))
                lines.append(f"{name} = {{ interval = {own.toml()}, length = {length.scaled(scale).toml()}{more} }}")
        return lines


@dataclass(frozen=True)
class Handovers:
    """Handovers of a flight: start times and execution times in s; shape (n,) each."""

    times_s: Floats
    lengths_s: Floats


def fit_link(flights: Sequence[Flight], handovers: Sequence[Handovers] = (), *, is_loaded: bool = False) -> FittedLink:
    """Fits a link to flights, each with its own distributions; long flights are cut into windows.

    Args:
        flights: one or more flights.
        handovers: handovers of flights over the same network.
        is_loaded: whether delays were measured under a load that fills the link, so that they contain its queue.

    Raises:
        TraceError: no quantity of a link was measured.
    """
    if not flights:
        raise TraceError("found no flight; expected one at least")
    for flight in flights:
        if not _probed_ways(flight) and not flight.has("rate"):
            columns = ", ".join(sorted({f"`{column.name}`" for column in flight.columns}))
            expected = "rate, delay or loss of uplink, downlink or both (--as 'NAME=downlink rate [Mbit/s]')"
            raise TraceError(f"{flight.name}: found {columns}; expected {expected} of one network")
    unknown = tuple(_unknown(flights, handovers, is_loaded=is_loaded))
    journeys = len(flights)
    flights, queue_bytes = without_load(flights) if is_loaded else (list(flights), {})
    phases = find_phases(flights)
    known = [phase for phase in phases if phase is not None]
    parts = [(own, phase) for flight, phase in zip(flights, phases, strict=True) for own in windows([flight])]
    level = [(own, None) if phase is None else without_steps(own, phase) for own, phase in parts]
    flights = [own for own, _ in level]
    steps = [None if found is None else quantile_table(found) for _, found in level]
    memories = _memories(flights)
    both_ways = {quantity: _direction_correlation(flights, quantity, memories) for quantity in ("rate", "delay")}
    events = [events_of(flight) for flight in flights]
    pooled = {name: _pooled(events, flights, name) for name in ("outages", "stalls")}
    fitted = [
        replace(_fitted(flight, memories, both_ways, own, pooled), steps_ms=step)
        for flight, own, step in zip(flights, events, steps, strict=True)
    ]
    fitted.sort(key=lambda flight: -flight.badness)
    outages, stalls = _laws(pooled["outages"]), _laws(pooled["stalls"])
    gaps, lengths = _handover_laws(handovers)
    written = [fitted[int(at)] for at in np.linspace(0, len(fitted) - 1, min(len(fitted), MAX_WINDOWS))]
    if both_ways["delay"] == 1 and any(flight.loss or flight.stalls_per_s for flight in written):
        written = _by_direction(written)
    return FittedLink(
        tuple(written),
        outages[1],
        outages[0],
        stalls[1],
        stalls[0],
        gaps,
        lengths,
        spread_of(fitted, flights, events, journeys),
        unknown,
        known[0] if known else None,
        queue_bytes,
    )


def read_handovers(path: Path) -> list[Handovers]:
    """Reads handovers from CSV with the columns `start [s]`, `duration [ms]` and, for several flights, `flight`.

    Raises:
        TraceError: a column is missing, or a cell is no number.
    """
    source = Source(path)
    rows = [(at, row) for at, row in enumerate(csv.reader(source.lines), start=1) if row and not row[0].startswith("#")]
    heads = rows[0][1] if rows else []
    if not {"start [s]", "duration [ms]"} <= set(heads):
        source.fail(1, f"`{','.join(heads)}`", "columns `start [s]` and `duration [ms]`")
    of_flight: dict[str, list[tuple[float, float]]] = {}
    for number, row in rows[1:]:
        if len(row) != len(heads):
            source.fail(number, f"{len(row)} cells", f"{len(heads)}")
        cells = dict(zip(heads, row, strict=True))
        start_s = number_of(source, number, cells["start [s]"], "a time in s")
        took_ms = number_of(source, number, cells["duration [ms]"], "a duration in ms")
        of_flight.setdefault(cells.get("flight", ""), []).append((start_s, took_ms * 1e-3))
    tables = [np.array(sorted(pairs)).T for pairs in of_flight.values()]
    return [Handovers(times_s, lengths_s) for times_s, lengths_s in tables]


def windows(flights: Sequence[Flight], length_s: float = WINDOW_S) -> list[Flight]:
    """Cuts flights into pieces of about `length_s` and at least `MIN_WINDOW_ROWS` rows; short flights are unchanged."""
    found: list[Flight] = []
    for flight in flights:
        count = max(round(flight.length_s / max(length_s, MIN_WINDOW_ROWS * flight.interval_s)), 1)
        each_s = flight.length_s / count
        for at in range(count):
            own = flight if count == 1 else flight.part(at * each_s, (at + 1) * each_s)
            found.append(own if count == 1 else replace(own, name=f"{flight.name}, window {at + 1}"))
    return found


def step_of(flight: Flight) -> float:
    """Returns the time in s for which a fitted value holds."""
    return max(round(flight.interval_s, 3), MIN_STEP_S)


def _memories(flights: Sequence[Flight]) -> dict[str, tuple[Memory, float]]:
    """Returns memory and step of each process, fitted over all flights that measured it."""
    found: dict[str, tuple[Memory, float]] = {}
    for quantity in ("rate", "delay"):
        for direction in DIRECTIONS:
            having = [flight for flight in flights if flight.values(quantity, direction) is not None]
            if not having:
                continue
            step_s = max(step_of(flight) for flight in having)
            series = [_calm(flight, quantity, direction, step_s) for flight in having]
            found[f"{direction}.{quantity}"] = (fit_memory(series, step_s), step_s)
    return found


def _direction_correlation(
    flights: Sequence[Flight], quantity: str, memories: dict[str, tuple[Memory, float]]
) -> float:
    """Returns the correlation of both directions' normal scores, 0 to 1; 0 if it was not measured.

    Halves of round trips are equal in both directions.
    """
    products, squares = 0.0, 0.0
    for flight in flights:
        ways = [flight.values(quantity, direction) for direction in DIRECTIONS]
        if ways[0] is None or ways[1] is None:
            continue
        if ways[0] is ways[1]:
            if quantity == "delay":
                return 1.0
            continue
        step_s = max(memories[f"{direction}.{quantity}"][1] for direction in DIRECTIONS)
        up, down = (normal_scores(_calm(flight, quantity, direction, step_s)) for direction in DIRECTIONS)
        known = np.isfinite(up) & np.isfinite(down)
        products += float(up[known] @ down[known])
        squares += float((up[known] @ up[known] + down[known] @ down[known]) / 2)
    return min(max(products / squares, 0.0), 1.0) if squares > 0 else 0.0


def _calm(flight: Flight, quantity: str, direction: str, step_s: float) -> Floats:
    """Returns values at even times; NaN if not measured, lost or stalled."""
    if quantity == "rate":
        values = flight.grid(quantity, direction, step_s)
        events = None if flight.has("delay") else rate_events(flight)
        if events is not None and values is not None:
            starts_s = np.arange(len(values)) * step_s
            values = values.copy()
            for start_s, lasts_s in events.stalls:
                values[(starts_s >= start_s - 1e-9) & (starts_s < start_s + lasts_s - 1e-9)] = np.nan
    else:
        events = delay_events(flight, direction)
        assert events is not None
        calm = events.calm
        times_s = np.arange(max(int(flight.length_s / step_s + 1e-9), 1)) * step_s
        values = calm[np.clip(np.searchsorted(flight.times_s, times_s + 1e-9, side="right") - 1, 0, None)]
    assert values is not None
    return values


class _Pooled(NamedTuple):
    """Outages or stalls of all flights together.

    Attributes:
        per_s: rate of events in 1/s; None: the measurements cannot show such events.
        lengths_s: lengths divided by the scale of their flight, which multiplies them again when drawn; shape (n,).
        usual_s: geometric mean of the measured lengths.
        gaps_s: times between consecutive starts.
        span_s: total time of the flights included.
        is_rare: whether the events are times without service, for which a prior is used if none was seen.
    """

    per_s: float | None
    lengths_s: Floats
    usual_s: float
    gaps_s: Floats
    span_s: float
    is_rare: bool

    def is_dark(self, flight: Flight, events_s: Floats) -> bool:
        """Whether a flight is dark by events of this kind, which then are not pooled."""
        return self.is_rare and _is_dark(flight, events_s)


def _scale(lengths_s: Floats, usual_s: float, weight: int) -> float:
    """Returns the ratio of geometric means, shrunk to 1 by `weight` events of the usual length."""
    if len(lengths_s) == 0:
        return 1.0
    return math.exp((float(np.log(lengths_s).mean()) - math.log(usual_s)) * len(lengths_s) / (len(lengths_s) + weight))


def _is_dark(flight: Flight, events_s: Floats) -> bool:
    """Whether a flight is down most of the time: then the place is the cause, not the network's rare events."""
    return 2 * float(events_s[:, 1].sum()) > flight.measured_s


def _pooled(events: Sequence[Events | None], flights: Sequence[Flight], name: str) -> _Pooled:
    """Pools one kind of events of all flights.

    Half an event in half the mean time between those of other networks is added, since unseen events may exist.
    """
    # Lost service shows as stalls in rates, and as outages in probes and losses. Assumed events are outages, since no
    # measurement shows that waiting packets are kept.
    has_probes = any(flight.has("delay") or flight.has("loss") for flight in flights)
    rates_only = not has_probes and any(len(own.stalls) for own in events if own is not None)
    is_rare = name == ("stalls" if rates_only else "outages")
    probed = [(own.of(name), flight) for own, flight in zip(events, flights, strict=True) if own is not None]
    lit = [(rows, flight) for rows, flight in probed if not (is_rare and _is_dark(flight, rows))]
    measured = [rows[:, 1] for rows, _ in lit]
    measured_s = np.concatenate([np.zeros(0), *measured])
    if measured_s.size == 0:
        measured_s = np.array([value for _, value in RARE_LENGTHS.table])
    usual_s = math.exp(float(np.log(measured_s).mean()))
    lengths_s = np.concatenate(
        [np.zeros(0), *(flight_s / _scale(flight_s, usual_s, LENGTHS_OF_ALL) for flight_s in measured)]
    )
    gaps_s = np.concatenate([np.zeros(0), *(np.diff(rows[:, 0]) for rows, _ in lit)])
    span_s = math.fsum(flight.measured_s for _, flight in lit)
    per_s = None
    is_stall = name == "stalls" and any(flight.has("delay") for flight in flights)
    if probed and (is_rare or is_stall):
        per_s = (len(lengths_s) + 0.5) / (span_s + 0.5 * (RARE_EVERY_S if is_rare else STALL_EVERY_S))
    elif len(lengths_s):
        per_s = len(lengths_s) / span_s
    return _Pooled(per_s, lengths_s, usual_s, gaps_s[gaps_s > 0], span_s, is_rare)


def _by_direction(flights: Sequence[FittedFlight]) -> list[FittedFlight]:
    """Returns flights with losses and stalls in both directions, or in one of them: round trips cannot show which.

    Few flights are written in all three variants; the middle entry of the list has both directions.
    """
    if 3 * len(flights) <= MAX_WINDOWS:
        ways = (None, "downlink", "uplink") if len(flights) % 2 == 0 else ("downlink", None, "uplink")
        return [replace(flight, event_direction=way) for flight in flights for way in ways]
    middle = len(flights) // 2
    ways = (None, "downlink", "uplink")
    return [replace(flight, event_direction=ways[(at - middle) % 3]) for at, flight in enumerate(flights)]


def _fitted(
    flight: Flight,
    memories: dict[str, tuple[Memory, float]],
    both_ways: dict[str, float],
    events: Events | None,
    pooled: dict[str, _Pooled],
) -> FittedFlight:
    processes: dict[str, Process] = {}
    bad = np.zeros(max(int(flight.length_s), 1), dtype=np.bool_)
    for key, (memory, step_s) in memories.items():
        direction, _, quantity = key.partition(".")
        if flight.values(quantity, direction) is None:
            continue
        values = _calm(flight, quantity, direction, step_s)
        known = values[np.isfinite(values)]
        if known.size == 0 or (quantity == "rate" and known.max() <= 0):
            continue
        plus = float(known.min()) if quantity == "delay" else 0.0
        memory_of_flight = fit_memory([values], step_s) if known.size >= MIN_OWN_STEPS else memory
        processes[key] = Process(quantile_table(values - plus), memory_of_flight, step_s, plus, both_ways[quantity])
        seconds = flight.grid(quantity, direction, 1.0)
        assert seconds is not None
        with np.errstate(invalid="ignore"):
            is_bad = seconds < 10 if quantity == "rate" else seconds > 300
        bad[: len(is_bad)] |= is_bad[: len(bad)]
    loss = None
    ways = _probed_ways(flight)
    if events is not None and events.probes:
        loss = events.lost / events.probes
        if len(ways) > 1:
            # A probe is lost in either direction.
            loss = 1 - math.sqrt(1 - loss)
    partly = [one[one < 100] for one in flight.each_way("loss") if (one < 100).any()]
    if partly:
        # Times without any packet are outages; the loss share counts other times.
        loss = (loss or 0.0) + float(np.mean([one.mean() for one in partly])) / 100
    outages_per_s, outage_scale = _event_rate(flight, events and events.outages, pooled["outages"])
    stalls_per_s, stall_scale = _event_rate(flight, events and events.stalls, pooled["stalls"])
    return FittedFlight(
        flight.name,
        processes,
        loss,
        outages_per_s,
        stalls_per_s,
        float(bad.mean()),
        outage_scale,
        stall_scale,
        events is not None and any(one.is_dark(flight, events.of(name)) for name, one in pooled.items()),
        loss_direction=ways[0] if len(ways) == 1 else None,
    )


def _probed_ways(flight: Flight) -> list[str]:
    """Returns the directions whose losses a flight measured."""
    return [one for one in DIRECTIONS if any(flight.values(name, one) is not None for name in ("delay", "loss"))]


def _event_rate(flight: Flight, rows_s: Floats | None, pooled: _Pooled) -> tuple[float | None, float]:
    """Returns the rate of a flight's events in 1/s, and the ratio of their lengths to those of all flights."""
    if rows_s is None or pooled.per_s is None:
        return None, 1.0
    lengths_s = rows_s[:, 1]
    count, is_dark = len(lengths_s), pooled.is_dark(flight, rows_s)
    # Half an event at the population's rate keeps a short flight without events from a rate of zero.
    per_s = (count + 0.5) / (flight.measured_s + 0.5 / pooled.per_s)
    if is_dark:
        # The rate is that of the time in which the link is up.
        per_s = count / (flight.measured_s - float(lengths_s.sum()) + step_of(flight))
    return per_s, _scale(lengths_s, pooled.usual_s, 0 if is_dark else LENGTHS_OF_ALL)


def _laws(pooled: _Pooled) -> tuple[Exponentials | None, Quantiles | None]:
    if pooled.per_s is None:
        return None, None
    prior = RARE_PRIOR if pooled.is_rare else STALL_PRIOR
    if pooled.lengths_s.size == 0:
        lengths = RARE_LENGTHS if pooled.is_rare else fit_durations(pooled.lengths_s, prior)
        return Exponentials((1.0,), (1 / pooled.per_s,)), lengths
    return fit_intervals(pooled.gaps_s, pooled.span_s), fit_durations(pooled.lengths_s, prior)


def _handover_laws(handovers: Sequence[Handovers]) -> tuple[Exponentials | None, Quantiles | None]:
    if not handovers:
        return None, None
    gaps = np.concatenate([np.diff(one.times_s) for one in handovers])
    lengths = np.concatenate([one.lengths_s for one in handovers])
    if gaps.size == 0:
        return None, None
    return fit_intervals(gaps[gaps > 0], float(gaps.sum()) * (len(gaps) + 1) / len(gaps)), fit_durations(lengths)


def _unknown(flights: Sequence[Flight], handovers: Sequence[Handovers], *, is_loaded: bool) -> list[str]:
    """Returns sentences on what the data cannot determine."""
    events = [(flight, own) for flight in flights if (own := events_of(flight)) is not None]
    sentences = [*_unknown_of_flights(flights), *_unknown_of_rates(flights)]
    probed = {way for flight in flights for way in _probed_ways(flight)}
    if len(probed) == 1:
        (unprobed,) = set(DIRECTIONS) - probed
        sentences.append(f"No {unprobed} loss was measured: give one ({unprobed}.loss), or it is taken as none.")
    if any(flight.has("delay") for flight in flights):
        sentences += _unknown_of_losses(flights, events)
        if is_loaded:
            sentences.append(
                f"Under load, what is above the smallest delay within {BASE_S:g} s is taken for the queue: the link's "
                "own jitter, and a queue that never ran empty, are unknown."
            )
        elif any(flight.has("rate") and flight.has("delay") for flight in flights):
            sentences.append("If delays were measured under load, they include the queue: --loaded removes it.")
    else:
        more = "" if probed else "; loss is unknown"
        sentences.append(f"No delay was measured: give one (uplink.delay, downlink.delay){more}.")
        if not any(len(own.outages) + len(own.stalls) for _, own in events):
            sentences.append(
                "No time without service was seen: rare ones are assumed, as of carriers in cars, which lose packets."
            )
    directed = {column.direction for flight in flights for column in flight.columns if column.quantity == "delay"}
    if directed == {""}:
        sentences.append(
            "Round trips are not split by direction: each direction gets half, and both vary together. Losses and "
            "stalls are in both directions in a third of the runs, only down in a third, only up in a third."
        )
    if not handovers:
        sentences.append("No handovers were given: those of the measured link are in its delays and rates.")
    return sentences


def _unknown_of_flights(flights: Sequence[Flight]) -> Iterator[str]:
    """Yields sentences on what too few or too short flights cannot determine."""
    if len(flights) == 1:
        yield "One flight: how flights differ is unknown; [spread] of the file assumes what other flights show."
    elif len(flights) < FEW_FLIGHTS:
        yield f"{len(flights)} flights: how flights differ is little known."
    shortest_s = min(flight.length_s for flight in flights)
    if shortest_s < SHORT_S:
        yield (
            f"A flight of {about(shortest_s)}: changes slower than {about(shortest_s / 10)} are unknown; those of "
            "other networks are assumed."
        )


def _unknown_of_rates(flights: Sequence[Flight]) -> Iterator[str]:
    """Yields sentences on directions without a measured rate, or whose rate may not be the link's."""
    measured = {
        direction: [own for flight in flights if (own := flight.values("rate", direction)) is not None]
        for direction in DIRECTIONS
    }
    for direction, rates in measured.items():
        if not rates:
            yield f"No {direction} rate was measured: give one ({direction}.rate), or goodput is unknown."
    for direction, rates in measured.items():
        known = np.concatenate([one[one > DOWN_MBPS] for one in rates]) if rates else np.zeros(0)
        if known.size > 1 and float(known.max() - known.min()) <= CONSTANT_SHARE * float(known.max()):
            yield f"The {direction} rate never changes: it may be the sender's rate, not the link's capacity."


def _unknown_of_losses(flights: Sequence[Flight], events: Sequence[tuple[Flight, Events]]) -> Iterator[str]:
    """Yields sentences on losses, outages and stalls that were not seen although delays were measured."""
    probed_s = math.fsum(flight.measured_s for flight, _ in events)
    lost = sum(own.lost + len(own.outages) for _, own in events)
    if lost == 0 and not any((one > 0).any() for flight in flights for one in flight.each_way("loss")):
        yield "No probe was lost (or losses were not recorded): loss is unknown, not zero."
    if not any(len(own.outages) for _, own in events):
        rarer = f"those rarer than one in {about(probed_s / 3)} are assumed, as of carriers in cars"
        yield f"No outage in {about(probed_s)}: {rarer}."
    if not any(len(own.stalls) for _, own in events):
        yield f"No stall in {about(probed_s)}: rarer ones are assumed, as of carriers in cars."


def _process(process: Process, key: str) -> str:
    unit = "Mbit/s" if key.endswith("rate") else "ms"
    pairs = ", ".join(f'[{p:g}, "{value:.5g}{unit}"]' for p, value in process.table)
    plus = f'plus = "{process.plus:.5g}ms", ' if unit == "ms" else ""
    memory = process.memory
    ways = f", both_ways = {process.both_ways:.3g}" if process.both_ways > 0 else ""
    times = f'slow = "{memory.slow_s:.4g}s", fast = "{1e3 * memory.fast_s:.4g}ms", slow_share = {memory.slow_share:.4g}'
    return f'{{ process = [{pairs}], {plus}{times}, step = "{1e3 * process.step_s:g}ms"{ways} }}'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

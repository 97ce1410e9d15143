"""Flights: measurements of one network on one journey, possibly by several tools at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.formats import Options, Source, pcap
from skybraid.traces.importing import load
from skybraid.traces.measurement import (
    NETWORK,
    Column,
    Imported,
    MeasuredTrack,
    Measurement,
    gaps_of,
    spans_of,
    with_derived,
)
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.traces.measurement import Floats

    Flags = NDArray[np.bool_]

DIRECTIONS = ("uplink", "downlink")
"""Directions, from the vehicle and to it."""

_MICRO = 6

_PAUSE_STEPS, _PAUSE_S = 10.0, 4.0
"""Usual steps, and seconds beyond a usual step, from which on a step is a pause."""

_TIMEOUT_S, _ABOUT_S = 4.0, 0.5
"""Time in s that ping of Windows waits for a lost reply before the next probe, and its tolerance."""

_USUAL = 0.9
"""Minimum share of steps of at most twice the median for longer ones to be pauses."""

_PARTING_S = 60.0
"""Minimum length in s of a pause that separates two flights; shorter ones are cut out."""

_MIN_PART_S = 120.0
"""Minimum measured time in s of separate flights: bursts of half a minute each are one flight."""


@dataclass(frozen=True)
class Flight:
    """All series of one journey over one network, on one clock.

    Attributes:
        name: source files.
        times_s: start of each row in s, strictly increasing from 0; shape (n,).
        columns: values of `rate`, `delay` and `loss`; NaN: not measured.
        length_s: duration in s.
        notes: assumptions of the readers.
        clock_s: measuring time of each row, in s, pauses included; shape (n,). None: `times_s`.
    """

    name: str
    times_s: Floats
    columns: tuple[Column, ...]
    length_s: float
    notes: tuple[str, ...] = ()
    clock_s: Floats | None = None

    def values(self, quantity: str, direction: str) -> Floats | None:
        """Returns the values of a quantity in a direction, shape (n,); None where it was not measured."""
        for wanted in (direction, ""):
            for column in self.columns:
                if column.quantity == quantity and column.direction == wanted:
                    return column.values
        return None

    def each_way(self, quantity: str) -> list[Floats]:
        """Returns the values of a quantity, one array of shape (n,) for each direction in which it was measured."""
        ways = (self.values(quantity, direction) for direction in DIRECTIONS)
        return [values for values in ways if values is not None]

    def has(self, quantity: str) -> bool:
        """Whether a quantity was measured in either direction."""
        return any(column.quantity == quantity for column in self.columns)

    def is_same_as(self, other: Flight) -> bool:
        """Whether another flight has the same columns, times and values."""
        if len(self.columns) != len(other.columns) or not np.array_equal(self.times_s, other.times_s):
            return False
        return all(
            (one.quantity, one.direction) == (another.quantity, another.direction)
            and np.array_equal(one.values, another.values, equal_nan=True)
            for one, another in zip(self.columns, other.columns, strict=True)
        )

    @property
    def clock(self) -> Floats:
        """Returns the measuring time of each row, in s since 1970 (UTC) where files have dates; shape (n,)."""
        return self.times_s if self.clock_s is None else self.clock_s

    @property
    def measured_s(self) -> float:
        """Returns the time in s in which all columns were measured."""
        return float(self._durations_s()[~self._unknown()].sum())

    @property
    def interval_s(self) -> float:
        """Returns the median time in s between rows."""
        return float(np.median(np.diff(self.times_s))) if len(self.times_s) > 1 else 1.0

    def without_gaps(self) -> Flight:
        """Returns the flight with unmeasured times cut out and the remaining parts joined."""
        unknown = self._unknown()
        if not unknown.any():
            return self
        lengths_s = self._durations_s()[~unknown]
        if lengths_s.size == 0:
            raise TraceError(f"{self.name}: found no time in which all columns were measured; expected some")
        times_s = np.concatenate([[0.0], np.cumsum(lengths_s)])
        columns = tuple(replace(column, values=column.values[~unknown]) for column in self.columns)
        note = f"{self.name}: gaps of {self._durations_s()[unknown].sum():.4g} s were cut out"
        return replace(
            self,
            times_s=times_s[:-1],
            columns=columns,
            length_s=float(times_s[-1]),
            notes=(*self.notes, note),
            clock_s=self.clock[~unknown],
        )

    def without_pauses(self) -> Flight:
        """Returns the flight without the pauses between its roughly even rows; a flight of uneven rows is unchanged.

        Otherwise the last value before a pause would hold for all of it. Pauses come from pings that wait for a lost
        reply, or from a logger that was off. A lost probe itself is not a pause.
        """
        pauses_s = self._pauses_s()
        if not pauses_s.any():
            return self
        times_s = np.concatenate([[0.0], np.cumsum(self._durations_s() - pauses_s)])
        count, total_s = int((pauses_s > 0).sum()), float(pauses_s.sum())
        pauses = "a pause" if count == 1 else f"{count} pauses"
        note = (
            f"{self.name}: {pauses} of {total_s:.4g} s cut out; if the link was down meanwhile, "
            "`skybraid trace import --gaps outage` says so"
        )
        return replace(
            self,
            times_s=times_s[:-1],
            length_s=float(times_s[-1]),
            notes=(*self.notes, note),
            clock_s=self.clock,
        )

    def journeys(self) -> list[Flight]:
        """Splits the flight at long unmeasured times and returns the parts, each without its pauses.

        Raises:
            TraceError: no row has all columns.
        """
        idle_s = np.where(self._unknown(), self._durations_s(), self._pauses_s())
        # Unmeasured rows may follow one another.
        edges = np.flatnonzero(np.diff(np.concatenate([[False], idle_s > 0, [False]]).astype(int)))
        ends_s = np.append(self.times_s[1:], self.length_s)
        starts_s, stops_s = [0.0], []
        measured_s = np.concatenate([[0.0], np.cumsum(self._durations_s() - idle_s)])
        parted_s = 0.0
        for first, after in zip(edges[::2], edges[1::2], strict=True):
            length_s = float(idle_s[first:after].sum())
            is_long = min(measured_s[after] - parted_s, measured_s[-1] - measured_s[after]) >= _MIN_PART_S
            if length_s >= _PARTING_S and is_long:
                starts_s.append(float(ends_s[after - 1]))
                stops_s.append(starts_s[-1] - length_s)
                parted_s = measured_s[after]
        if not stops_s:
            return [self.without_gaps().without_pauses()]
        found = []
        for number, (start_s, end_s) in enumerate(zip(starts_s, [*stops_s, self.length_s], strict=True), start=1):
            rows = (self.times_s >= start_s) & (self.times_s < end_s)
            if (rows & ~self._unknown()).any():
                journey = replace(self.part(start_s, end_s), name=f"{self.name}, part {number}")
                found.append(journey.without_gaps().without_pauses())
        return found if found else [self.without_gaps()]

    def part(self, start_s: float, end_s: float) -> Flight:
        """Returns the rows that begin in [`start_s`, `end_s`), with times relative to `start_s`."""
        rows = (self.times_s >= start_s) & (self.times_s < end_s)
        if not rows.any():
            raise TraceError(f"{self.name}: found nothing between {start_s:g} s and {end_s:g} s; expected a row")
        times_s = self.times_s[rows]
        columns = tuple(replace(column, values=column.values[rows]) for column in self.columns)
        return replace(
            self,
            times_s=times_s - times_s[0],
            columns=columns,
            length_s=min(end_s, self.length_s) - float(times_s[0]),
            clock_s=self.clock[rows],
        )

    def grid(self, quantity: str, direction: str, step_s: float) -> Floats | None:
        """Returns the values resampled at even times, shape (length / step,); NaN: not measured; None: none at all."""
        values = self.values(quantity, direction)
        if values is None:
            return None
        times_s = np.arange(max(int(self.length_s / step_s + 1e-9), 1)) * step_s
        rows = np.searchsorted(self.times_s, times_s + 1e-9, side="right") - 1
        found: Floats = values[np.clip(rows, 0, None)]
        return found

    def _durations_s(self) -> Floats:
        return np.diff(self.times_s, append=self.length_s)

    def _pauses_s(self) -> Floats:
        """Returns by how many s each row exceeds the usual duration, 0 where that is no pause; shape (n,)."""
        steps_s = np.diff(self.times_s)
        found = np.zeros(len(self.times_s))
        if steps_s.size == 0:
            return found
        usual_s = float(np.median(steps_s))
        lost = np.any([np.isinf(column.values) for column in self.columns], axis=0)
        is_wait = lost[:-1] & (np.abs(steps_s - usual_s - _TIMEOUT_S) < min(_ABOUT_S, usual_s))
        found[:-1] = np.where(is_wait, steps_s - usual_s, 0.0)
        if steps_s.size < 1 / (1 - _USUAL):
            return found
        if (steps_s <= 2 * usual_s).mean() < _USUAL:
            return found
        is_pause = steps_s > max(_PAUSE_STEPS * usual_s, usual_s + _PAUSE_S)
        found[:-1] = np.where(is_wait | is_pause, steps_s - usual_s, 0.0)
        return found

    def _unknown(self) -> Flags:
        unknown = np.zeros(len(self.times_s), dtype=np.bool_)
        for column in self.columns:
            unknown |= np.isnan(column.values)
        return unknown


def without_twins(flights: Sequence[Flight]) -> list[Flight]:
    """Returns flights without duplicates: a flight with the values of an earlier one adds no evidence."""
    found: list[Flight] = []
    for flight in flights:
        twin = next((at for at, one in enumerate(found) if one.is_same_as(flight)), None)
        if twin is None:
            found.append(flight)
        else:
            note = f"{flight.name}: the same values as {found[twin].name}; counted once"
            found[twin] = replace(found[twin], notes=(*found[twin].notes, note))
    return found


def read_flight(text: str, options: Options | None = None) -> Flight:
    """Reads a flight from one file, or from several of the same journey joined with `+`.

    Args:
        text: `drive.csv`, `uplink:up.csv+downlink:down.csv+ping.txt`; the prefix gives the direction of columns that
            have none.
        options: facts that the files do not contain.

    Raises:
        TraceError: a file cannot be read, or has no quantity that a link can replay.
    """
    words = [text] if Path(text).exists() else text.split("+")
    found: list[Measurement] = []
    loaded: list[Imported] = []
    for path, direction, own_options in _files(words, options):
        own = load(path, None, own_options)
        loaded += own
        for one in own:
            if not isinstance(one, Measurement):
                continue
            known = {column.direction for column in one.columns if column.direction}
            # The reader assumes facts that a tool does not record; the user's options take precedence.
            columns = tuple(
                replace(column, direction=direction if direction and len(known) < 2 else column.direction)
                for column in with_derived(one).columns
                if column.quantity in NETWORK
            )
            kinds = [(column.quantity, column.direction) for column in columns]
            twin = next((kind for kind in kinds if kinds.count(kind) > 1), None)
            if twin is not None:
                name = " ".join(reversed(twin)).strip()
                count = kinds.count(twin)
                expected = f"one, or names before them as `trace join` writes them, such as `lte {name} [UNIT]`"
                raise TraceError(f"{path}: found {count} columns of `{name}`; expected {expected}")
            if columns:
                found.append(replace(one, columns=columns))
    if not found:
        others = sorted({"a track" if isinstance(one, MeasuredTrack) else one.label for one in loaded} - {""})
        alone = f"{' and '.join(others)} alone" if others else "no rate, delay or loss"
        expected = "a rate, delay or loss of the link too, such as the log of a ping: FILE+ping.txt"
        raise TraceError(f"{text}: found {alone}; expected {expected}")
    return _joined(text, found)


def _files(words: Sequence[str], options: Options | None) -> Iterator[tuple[str, str, Options | None]]:
    """Yields the path, direction and options of each file; two adjacent captures are those of both ends."""
    left = list(words)
    while left:
        word = left.pop(0)
        direction, colon, path = word.partition(":")
        if not colon or direction not in DIRECTIONS:
            direction, path = "", word
        own = options
        if left and Path(left[0]).is_file() and all(pcap.recognises(Source(Path(one))) for one in (path, left[0])):
            own = replace(options or Options(), peer=Path(left.pop(0)))
        yield path, direction, own


def _joined(name: str, found: list[Measurement]) -> Flight:
    notes = [note for one in found for note in one.notes]
    starts = [one.start_unix_s for one in found]
    dated = [start for start in starts if start is not None]
    offsets_s = [0.0] * len(found)
    origin_s = max(dated) if len(dated) == len(found) else 0.0
    if len(found) > 1 and len(dated) == len(found):
        offsets_s = [start - origin_s for start in dated]
    elif len(found) > 1:
        notes.append(f"{name}: not all files have dates: taken as begun together")
    end_s = min(offset_s + one.length_s for offset_s, one in zip(offsets_s, found, strict=True))
    if end_s <= 0:
        spans = spans_of(found) if len(dated) == len(found) else name
        raise TraceError(f"{spans}: found no time in common; expected files of one journey")
    longest_s = max(one.length_s for one in found)
    if end_s < 0.9 * longest_s:
        notes.append(f"{name}: only the {end_s:.4g} s that all files have in common are used, of {longest_s:.4g} s")
    marked = [_marked(one) for one in found]
    own = [np.round(times_s + offset_s, _MICRO) for (times_s, _), offset_s in zip(marked, offsets_s, strict=True)]
    inside = [times_s[(times_s > 0) & (times_s < end_s)] for times_s in own]
    times_s = np.unique(np.concatenate([[0.0], *inside]))
    columns: list[Column] = []
    for (_, its), its_s in zip(marked, own, strict=True):
        rows = np.clip(np.searchsorted(its_s, times_s, side="right") - 1, 0, None)
        columns += [
            replace(column, values=column.values[rows])
            for column in its
            if column.quantity in ("rate", "delay", "loss")
            and not any((column.quantity, column.direction) == (one.quantity, one.direction) for one in columns)
        ]
    if not columns:
        raise TraceError(f"{name}: found no rate, delay or loss; expected one of them")
    return Flight(name, times_s, tuple(_with_losses(columns)), end_s, tuple(notes), origin_s + times_s)


def _with_losses(columns: list[Column]) -> list[Column]:
    """Returns the columns with infinite delays where all packets were lost, so that delay and loss agree."""
    lost = {column.direction: column.values >= 100 for column in columns if column.quantity == "loss"}
    found = []
    for column in columns:
        out = lost.get(column.direction, lost.get(""))
        if column.quantity == "delay" and out is not None:
            found.append(replace(column, values=np.where(out, math.inf, column.values)))
        else:
            found.append(column)
    return found


def _marked(measurement: Measurement) -> tuple[Floats, tuple[Column, ...]]:
    """Returns the rows with one row of NaN inserted at each gap."""
    gaps = [gap for gap in gaps_of(measurement) if not np.isclose(measurement.times_s, gap.start_s, atol=1e-9).any()]
    added = np.array([gap.start_s for gap in gaps])
    rows = np.searchsorted(measurement.times_s, added)
    columns = tuple(replace(column, values=np.insert(column.values, rows, math.nan)) for column in measurement.columns)
    return np.insert(measurement.times_s, rows, added), columns

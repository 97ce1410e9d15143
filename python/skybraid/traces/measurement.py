"""Contents of a measuring tool's file: columns over one clock, including gaps and lost probes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.series import Quantity, Trace, TraceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


POLICIES = ("outage", "hold", "split")
"""Treatment of gaps: no path meanwhile, hold of the last value, or one file per part."""

NETWORK: dict[str, Quantity] = {
    "rate": "rate",
    "delay": "delay",
    "rtt": "rtt",
    "loss": "loss",
    "round_trip_loss": "loss",
}
"""Names of the columns that a link may replay, with their quantity."""

OUTAGE = {"rate": 0.0, "delay": math.inf, "rtt": math.inf, "loss": 100.0, "round_trip_loss": 100.0}
"""Values of a link that is down."""

_GAP_STEPS = 4.0
"""Minimum number of sampling intervals in a pause that is a gap."""

_MIN_GAP_S = 1.0
"""Minimum length in s of a gap."""

_EVEN, _JITTER = 0.9, 0.1
"""Minimum share of rows within a tolerance of the median interval, and the tolerance, of an even series."""


@dataclass(frozen=True)
class Column:
    """Values of one quantity.

    Attributes:
        quantity: one of `NETWORK`, in Mbit/s, ms or %, or another name with its own unit.
        unit: unit of the values.
        values: shape (n,). NaN: not measured. A delay of infinity: the probe was lost.
        direction: "uplink" (from the vehicle), "downlink", or "" for both or neither.
    """

    quantity: str
    unit: str
    values: Floats
    direction: str = ""

    @property
    def name(self) -> str:
        """Returns the name without the unit: "downlink rate"."""
        return f"{self.direction} {self.quantity}".strip()

    @property
    def heading(self) -> str:
        """Returns the name with the unit: "downlink rate [Mbit/s]"."""
        return f"{self.name} [{self.unit}]"


class Gap(NamedTuple):
    """Time span in s without measurements."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class Measurement:
    """Columns over one clock.

    Attributes:
        source: source file or files.
        times_s: start of each row, in s, strictly increasing from 0; shape (n,).
        columns: one or more columns.
        start_unix_s: time of the first row in s since 1970 (UTC); None where the file has no date.
        end_s: end of the last row, in s; None: it holds for one sampling interval.
        is_sampled: whether rows come at an even interval, so that a longer pause is a gap.
        label: distinguishes the measurements of one file; "" where there is one.
        notes: assumptions and omissions of the reader.
    """

    source: str
    times_s: Floats
    columns: tuple[Column, ...]
    start_unix_s: float | None = None
    end_s: float | None = None
    is_sampled: bool = True
    label: str = ""
    notes: tuple[str, ...] = ()

    @property
    def interval_s(self) -> float:
        """Returns the median time between rows in s; 1 s for a single row."""
        return float(np.median(np.diff(self.times_s))) if len(self.times_s) > 1 else 1.0

    @property
    def length_s(self) -> float:
        """Returns the length in s, the last row included."""
        return self.end_s if self.end_s is not None else float(self.times_s[-1]) + self.interval_s

    def column(self, name: str) -> Column:
        """Returns the column of a name such as "downlink rate".

        Raises:
            TraceError: there is none.
        """
        for column in self.columns:
            if name in (column.name, column.heading):
                return column
        listed = ", ".join(f"`{column.name}`" for column in self.columns)
        raise TraceError(f"{self.source}: found {listed}; expected a column `{name}`")

    def trace(self, name: str) -> Trace:
        """Returns one column as a trace.

        Raises:
            TraceError: there is no such column, it is no quantity of a link, or some of its values are not measured.
        """
        column = self.column(name)
        if column.quantity not in NETWORK:
            raise TraceError(f"{self.source}: `{name}`: found [{column.unit}]; expected {', '.join(NETWORK)}")
        if np.isnan(column.values).any():
            row = int(np.argmax(np.isnan(column.values)))
            at = f"at {self.times_s[row]:g} s"
            expected = f"one without gaps (skybraid trace import --gaps {', '.join(POLICIES)})"
            raise TraceError(f"{self.source}: `{name}` is not measured {at}; expected {expected}")
        label = f"{self.source}, {column.name}"
        return Trace(self.times_s, column.values, NETWORK[column.quantity], column.unit, label, self.length_s)


@dataclass(frozen=True)
class MeasuredTrack:
    """Measured positions over time.

    Attributes:
        source: source file.
        times_s: times in s, strictly increasing from 0; shape (n,).
        latitude_deg: latitude in degrees, north positive; shape (n,).
        longitude_deg: longitude in degrees, east positive; shape (n,).
        altitude_m: altitude in m, with the file's datum; shape (n,).
        start_unix_s: time of the first position in s since 1970 (UTC); None where the file has no date.
        notes: assumptions and omissions of the reader.
    """

    source: str
    times_s: Floats
    latitude_deg: Floats
    longitude_deg: Floats
    altitude_m: Floats
    start_unix_s: float | None = None
    notes: tuple[str, ...] = ()


Imported = Measurement | MeasuredTrack


def is_even(times_s: Floats) -> bool:
    """Whether nearly all rows are one interval apart, so that a longer distance is a gap."""
    steps_s = np.diff(times_s)
    return len(steps_s) > 1 / (1 - _EVEN) and bool(
        (np.abs(steps_s / float(np.median(steps_s)) - 1) < _JITTER).mean() >= _EVEN
    )


def gaps_of(measurement: Measurement) -> list[Gap]:
    """Returns the gaps: pauses between samples, and runs of rows with an unmeasured network quantity."""
    times_s, end_s = measurement.times_s, measurement.length_s
    interval_s = measurement.interval_s
    found: list[Gap] = []
    if measurement.is_sampled and len(times_s) > 1:
        steps_s = np.diff(times_s)
        long = steps_s > max(_GAP_STEPS * interval_s, interval_s + _MIN_GAP_S)
        found += [Gap(float(times_s[row]) + interval_s, float(times_s[row + 1])) for row in np.flatnonzero(long)]
    unknown = _unknown(measurement)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], unknown, [False]]).astype(int)))
    stops_s = np.append(times_s, end_s)
    found += [
        Gap(float(times_s[first]), float(stops_s[last])) for first, last in zip(edges[::2], edges[1::2], strict=True)
    ]
    return sorted(found)


def filled(measurement: Measurement, policy: str | None) -> list[Measurement]:
    """Returns the measurement without gaps: one, or its parts where the policy is "split".

    Raises:
        TraceError: there are gaps and no policy, or no value to hold before the first one.
    """
    gaps = gaps_of(measurement)
    if not gaps:
        return [measurement]
    longest = max(gaps, key=lambda gap: gap.end_s - gap.start_s)
    count = "1 gap" if len(gaps) == 1 else f"{len(gaps)} gaps"
    found = f"{count} without measurements, the longest of {longest.end_s - longest.start_s:g} s at "
    found += f"{longest.start_s:g} s"
    if policy == "outage":
        return [replace(_with_outages(measurement, gaps), notes=(*measurement.notes, f"{found}: outages"))]
    if policy == "hold":
        return [replace(_hold_values(measurement), notes=(*measurement.notes, f"{found}: the last value holds"))]
    if policy == "split":
        return _parts(measurement, gaps)
    raise TraceError(
        f"{measurement.source}: found {found}; expected --gaps outage (the link carried nothing), "
        "hold (the last value holds) or split (a file for each part)"
    )


def spans_of(measurements: list[Measurement]) -> str:
    """Returns a description of when dated measurements began and ended."""
    starts_s = [(one, one.start_unix_s or 0.0) for one in measurements]
    return ", ".join(f"{one.source}: {moment(at)} to {moment(at + one.length_s)}" for one, at in starts_s)


def on_one_clock(measurements: list[Measurement], names: list[str], source: str) -> Measurement:
    """Returns one measurement over the time covered by all, with each column named after its measurement.

    Raises:
        TraceError: a measurement has no date, or the measurements have no time in common.
    """
    starts_s: list[float] = []
    for measurement in measurements:
        if measurement.start_unix_s is None:
            raise TraceError(f"{measurement.source}: found no dates; expected dates, to join by (or --together)")
        starts_s.append(measurement.start_unix_s)
    start_s = max(starts_s)
    end_s = min(begun + one.length_s for begun, one in zip(starts_s, measurements, strict=True))
    if end_s <= start_s:
        raise TraceError(f"{spans_of(measurements)}: found no time in common; expected series measured together")
    own = [one.times_s + begun - start_s for begun, one in zip(starts_s, measurements, strict=True)]
    inside = [times_s[(times_s > 0) & (times_s < end_s - start_s)] for times_s in own]
    # A microsecond is finer than any tool's clock; rounding merges simultaneous rows.
    times_s = np.unique(np.round(np.concatenate([[0.0], *inside]), 6))
    columns: list[Column] = []
    for one, its_s, name in zip(measurements, own, names, strict=True):
        rows = np.searchsorted(np.round(its_s, 6), times_s, side="right") - 1
        columns += [
            replace(column, values=column.values[rows], direction=_combined_name(name, column))
            for column in one.columns
        ]
    notes = tuple(note for one in measurements for note in one.notes)
    return Measurement(source, times_s, tuple(columns), start_s, end_s - start_s, is_sampled=False, notes=notes)


def moment(unix_s: float) -> str:
    """Formats a time in s since 1970 as UTC text."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def with_derived(measurement: Measurement) -> Measurement:
    """Adds link quantities derived from round trips: delay, half of the round trip, and the loss of each direction.

    Both directions are assumed to lose equally and independently: `1 - sqrt(1 - p)` each for a share `p` of lost
    probes. Where single probes are known, both directions lose those that were lost.
    """
    names = {column.quantity for column in measurement.columns}
    more: list[Column] = []
    for column in measurement.columns:
        if column.quantity == "rtt" and "delay" not in names:
            more.append(replace(column, quantity="delay", values=column.values / 2))
        if column.quantity == "round_trip_loss" and "loss" not in names:
            share = column.values / 100
            more.append(replace(column, quantity="loss", values=100 * (1 - np.sqrt(1 - share))))
    return replace(measurement, columns=(*more, *measurement.columns))


def _combined_name(name: str, column: Column) -> str:
    return f"{name} {column.direction}".strip()


def _unknown(measurement: Measurement) -> NDArray[np.bool_]:
    unknown = np.zeros(len(measurement.times_s), dtype=np.bool_)
    for column in measurement.columns:
        if column.quantity in NETWORK:
            unknown |= np.isnan(column.values)
    return unknown


def _with_outages(measurement: Measurement, gaps: list[Gap]) -> Measurement:
    times_s = measurement.times_s
    added = np.array([gap.start_s for gap in gaps if not np.isclose(times_s, gap.start_s, atol=1e-9).any()])
    rows = np.searchsorted(times_s, added)
    columns = []
    for column in measurement.columns:
        bad = OUTAGE.get(column.quantity, math.nan)
        values = np.where(np.isnan(column.values), bad, column.values)
        columns.append(replace(column, values=np.insert(values, rows, bad)))
    return replace(
        measurement, times_s=np.insert(times_s, rows, added), columns=tuple(columns), end_s=measurement.length_s
    )


def _hold_values(measurement: Measurement) -> Measurement:
    columns = []
    for column in measurement.columns:
        known = ~np.isnan(column.values)
        if column.quantity in NETWORK and not known[0]:
            raise TraceError(f"{measurement.source}: `{column.name}` begins with a gap, which has no value to hold")
        rows = np.maximum.accumulate(np.where(known, np.arange(len(known)), 0))
        columns.append(replace(column, values=column.values[rows]))
    return replace(measurement, columns=tuple(columns), end_s=measurement.length_s)


def _parts(measurement: Measurement, gaps: list[Gap]) -> list[Measurement]:
    times_s, unknown = measurement.times_s, _unknown(measurement)
    starts_s = [0.0, *(gap.end_s for gap in gaps)]
    ends_s = [*(gap.start_s for gap in gaps), measurement.length_s]
    parts: list[Measurement] = []
    for start_s, end_s in zip(starts_s, ends_s, strict=True):
        rows = np.flatnonzero((times_s >= start_s - 1e-9) & (times_s < end_s - 1e-9) & ~unknown)
        if rows.size == 0:
            continue
        begun = measurement.start_unix_s
        parts.append(
            replace(
                measurement,
                times_s=times_s[rows] - times_s[rows[0]],
                columns=tuple(replace(column, values=column.values[rows]) for column in measurement.columns),
                start_unix_s=None if begun is None else begun + float(times_s[rows[0]]),
                end_s=end_s - float(times_s[rows[0]]),
                label=f"{measurement.label}-{len(parts) + 1}".removeprefix("-"),
                notes=(*measurement.notes, f"part {len(parts) + 1} of a measurement with {len(gaps)} gaps"),
            )
        )
    return parts

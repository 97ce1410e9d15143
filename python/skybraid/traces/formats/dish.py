"""Statistics of a Starlink dish: CSV of starlink-grpc-tools, Parquet with their names, or JSON.

Source: `dish_grpc_text.py` of starlink-grpc-tools (modes `bulk_history` and `status`, with the headings of `-H`); the
dish's `get_status`, one after another, as grpcurl prints them or with the names of Python's protobuf; its
`get_history`: rings of one value a second, of which `current` counts all, the newest at `current - 1` modulo the ring's
length. A second in which all pings were dropped has no latency, or one of -1. Times are UTC.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np, pl
from skybraid.traces.formats.source import Options, Source, from_zero, json_values, optional_number, unix_time
from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

_NAMES = ("pop_ping_latency_ms", "pop_ping_drop_rate", "downlink_throughput_bps", "uplink_throughput_bps")
_RINGS = ("popPingLatencyMs", "popPingDropRate", "downlinkThroughputBps", "uplinkThroughputBps")
_STAMPS = ("datetimestampUtc", "timestamp", "time")
_MAX_NAMED = 20_000
"""Number of characters within which a report contains one of its own names."""

_NOTE = "rates are what was carried, not what the dish could have carried"


def recognises(source: Source) -> bool:
    """Whether the file contains statistics of a Starlink dish."""
    if source.data[:4] == b"PAR1":
        return b"pop_ping_drop_rate" in source.data
    if source.head.lstrip().startswith(("{", "[")):
        # Zeros are left out, so the drop rate may be missing everywhere.
        names = "dish_?get_?(status|history)|pop_?ping_?(drop_?rate|latency)"
        return re.search(names, source.text[:_MAX_NAMED], re.IGNORECASE) is not None
    return bool(source.first_lines) and "pop_ping_drop_rate" in source.first_lines[0]


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads round-trip time and loss to the point of presence, and the throughput of both directions.

    Raises:
        TraceError: a line is invalid, or headings are missing.
    """
    del options
    if source.data[:4] == b"PAR1":
        return [_parquet(source)]
    if source.head.lstrip().startswith(("{", "[")):
        return [_history(source) if re.search('"current"', source.text) else _statuses(source)]
    headings: list[str] = []
    rows: list[list[float]] = []
    times_s: list[float] = []
    lines: list[int] = []
    for number, row in enumerate(csv.reader(source.lines), start=1):
        if not row:
            continue
        if not headings:
            headings = row
            if "pop_ping_drop_rate" not in headings or "datetimestamp_utc" not in headings:
                source.fail(number, f"`{','.join(row)}`", "headings with datetimestamp_utc and pop_ping_drop_rate")
            continue
        if row == headings:
            continue
        if len(row) < len(headings) and source.drop_cut(number):
            break
        if len(row) != len(headings):
            source.fail(number, f"{len(row)} cells", f"{len(headings)}, as many as headings")
        cells = dict(zip(headings, row, strict=True))
        at_s = unix_time(cells["datetimestamp_utc"], None)
        if at_s is None:
            source.fail(number, f"`{cells['datetimestamp_utc']}`", "a date and time")
        times_s.append(at_s)
        lines.append(number)
        rows.append([optional_number(source, number, cells.get(name, ""), f"a number as `{name}`") for name in _NAMES])
    start_s = times_s[0] if times_s else 0.0
    return [_measurement(source, from_zero(source, times_s, lines), np.array(rows), start_s, lines)]


def _parquet(source: Source) -> Measurement:
    """Reads columns that end in the names of grpc tools, such as `dish_status.pop_ping_latency_ms`."""
    try:
        table = pl.read_parquet(source.path)
    except (pl.exceptions.PolarsError, OSError) as error:
        source.fail(None, str(error), "Parquet")
    found = {name: next((one for one in table.columns if one.rpartition(".")[2] == name), None) for name in _NAMES}
    stamp = next((name for name in ("datetimestamp_utc", "@timestamp", "time") if name in table.columns), None)
    missing = [name for name in _NAMES[:2] if found[name] is None] + ([] if stamp else ["@timestamp"])
    if missing or stamp is None:
        source.fail(None, f"columns {', '.join(table.columns[:6])}", ", ".join(missing))
    try:
        dates = table[stamp]
        dates = dates.str.to_datetime(time_unit="us", time_zone="UTC") if dates.dtype == pl.String else dates
        table = table.with_columns(dates.dt.epoch("us").alias(stamp)).sort(stamp)
    except pl.exceptions.PolarsError as error:
        source.fail(None, str(error), f"dates as `{stamp}`")
    nothing = pl.Series([None] * len(table), dtype=pl.Float64)
    columns = [nothing if name is None else table[name].cast(pl.Float64) for name in found.values()]
    values = np.stack([column.fill_null(math.nan).to_numpy() for column in columns], axis=1)
    times_s = table[stamp].to_numpy() * 1e-6
    return _measurement(
        source, from_zero(source, times_s.tolist(), range(1, len(times_s) + 1)), values, float(times_s[0])
    )


def _statuses(source: Source) -> Measurement:
    """Reads a sequence of statuses, nested as the dish sends them or flat, timed by date or by uptime in s."""
    at_s: list[float] = []
    rows: list[list[float]] = []
    lines: list[int] = []
    is_dated = False
    for number, value in json_values(source):
        for report in value if isinstance(value, list) else [value]:
            try:
                whole = _renamed(report)
                status = whole.get("dishGetStatus", whole)
                stamp = next((status[name] for name in _STAMPS if name in status), None)
                is_dated = stamp is not None
                time_s = unix_time(str(stamp), None) if is_dated else float(status["deviceState"]["uptimeS"])
                if time_s is None:
                    source.fail(number, f"`{stamp}`", "a date and time")
                # Zeros are left out.
                row = [float(status.get(name, 0.0)) for name in _RINGS]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                expected = "the dish's get_status as grpcurl prints it, or its values with a datetimestamp_utc"
                source.fail(number, f"{type(error).__name__} {error}", expected)
            if at_s and time_s < at_s[-1]:
                source.fail(
                    number, f"a status {at_s[-1] - time_s:g} s before the one above it", "one start of the dish"
                )
            if not at_s or time_s > at_s[-1]:
                at_s.append(time_s)
                rows.append(row)
                lines.append(number)
    return _measurement(source, from_zero(source, at_s, lines), np.array(rows), at_s[0] if is_dated else None, lines)


def _renamed(report: dict[str, Any]) -> dict[str, Any]:
    """Renames the fields of a report to grpcurl's spelling; Python's protobuf writes `pop_ping_drop_rate`."""
    found = {}
    for name, value in report.items():
        first, *others = name.split("_")
        renamed = first + "".join(word.capitalize() for word in others)
        found[renamed] = _renamed(value) if isinstance(value, dict) else value
    return found


def _history(source: Source) -> Measurement:
    reports = list(json_values(source))
    if len(reports) > 1:
        source.fail(reports[1][0], "a second report", "one get_history in a file")
    try:
        report = _renamed(reports[0][1])
        history = report.get("dishGetHistory", report)
        current = int(history["current"])
        rings = [[float(value or 0.0) for value in history[name]] for name in _RINGS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        source.fail(None, f"{type(error).__name__} {error}", "the dish's get_history as grpcurl prints it")
    size = len(rings[0])
    if size == 0 or current < 1 or any(len(ring) != size for ring in rings):
        source.fail(None, f"rings of {', '.join(str(len(ring)) for ring in rings)}", "four of one length, with values")
    count = min(current, size)
    places = (np.arange(current - count, current)) % size
    return _measurement(source, np.arange(count, dtype=np.float64), np.array(rings)[:, places].T, None)


def _measurement(
    source: Source,
    times_s: Floats,
    values: Floats,
    start_unix_s: float | None,
    lines: Sequence[int] = (),
) -> Measurement:
    latency_ms, drops, down, up = values.T
    latency_ms[latency_ms == -1] = 0.0
    bad = (values < 0) | np.isinf(values) | (values > np.array([math.inf, 1.0, math.inf, math.inf]))
    if bad.any():
        row, place = (int(at[0]) for at in np.nonzero(bad))
        found = f"{values[row, place]:g} as {_NAMES[place]}"
        source.fail(lines[row] if lines else None, found, "latencies and rates from 0, drop rates from 0 to 1")
    silent = drops >= 1
    latency_ms = np.where(silent, math.inf, np.where(latency_ms == 0, math.nan, latency_ms))
    columns = [
        Column("rtt", "ms", latency_ms),
        Column("round_trip_loss", "%", 100 * drops),
        Column("carried", "Mbit/s", down * 1e-6, "downlink"),
        Column("carried", "Mbit/s", up * 1e-6, "uplink"),
    ]
    # Firmware of 2024 has no latency in its status.
    measured = tuple(one for one in columns if np.isfinite(one.values).any())
    return Measurement(str(source.path), times_s, measured, start_unix_s, notes=(_NOTE,))

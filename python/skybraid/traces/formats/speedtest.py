"""Results of speed tests, CSV or JSON: Ookla's `speedtest`, `speedtest-cli` and LibreSpeed.

Source: `speedtest --help` of Ookla (CSV and JSON give bytes a second), `speedtest-cli --csv-header` (bit/s),
`librespeed-cli --csv-header` (Mbit/s). Ookla's CSV has no times: say `--every`.
"""

from __future__ import annotations

import csv
import math
from typing import Any, NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.formats.source import (
    Options,
    Source,
    from_zero,
    has_zone,
    json_values,
    optional_number,
    unix_time,
    zone_of,
)
from skybraid.traces.measurement import Column, Measurement


class _Kind(NamedTuple):
    """Headings of a tool: time, round trip, loss in %, rates, and their unit in Mbit/s."""

    time: str | None
    ping: str
    loss: str | None
    download: str
    upload: str
    size: float


_KINDS = (
    _Kind(None, "idle latency", "packet loss", "download", "upload", 8e-6),
    _Kind(None, "latency", "packet loss", "download", "upload", 8e-6),
    _Kind("Timestamp", "Ping", None, "Download", "Upload", 1e-6),
    _Kind("Timestamp", "Ping", None, "Download", "Upload", 1.0),
)


def recognises(source: Source) -> bool:
    """Whether the file contains results of a speed test tool."""
    first = source.first_lines[0] if source.first_lines else ""
    if first.startswith(("{", "[")):
        return all(f'"{word}"' in source.head for word in ("ping", "download", "upload", "timestamp"))
    return _kind(_cells(first)) is not None


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads rates of both directions, round-trip time and loss of each test. A failed test is a gap.

    Raises:
        TraceError: a line is invalid, or there are no times and no `--every`.
    """
    first = source.first_lines[0] if source.first_lines else ""
    rows = _json_rows(source) if first.startswith(("{", "[")) else _csv_rows(source, options)
    lines = [int(row[0]) for row in rows]
    if rows and any(math.isnan(row[1]) for row in rows):
        if options.every_s is None:
            source.fail(lines[0], "no times of the tests", "--every, the time from test to test, such as 15min")
        times_s = from_zero(source, [place * options.every_s for place in range(len(rows))], lines)
        start_unix_s = None
    else:
        times_s = from_zero(source, [row[1] for row in rows], lines)
        start_unix_s = rows[0][1]
    values = np.array([row[2:] for row in rows])
    columns = [
        Column("rate", "Mbit/s", values[:, 2], options.received),
        Column("rate", "Mbit/s", values[:, 3], options.sent),
        Column("rtt", "ms", values[:, 0]),
    ]
    if not np.isnan(values[:, 1]).any():
        columns.append(Column("round_trip_loss", "%", np.clip(values[:, 1], 0.0, 100.0)))
    notes = ["a rate is what the test's connections carried, over a few seconds of each interval"]
    if np.isnan(values[:, 1]).any() and not np.isnan(values[:, 1]).all():
        notes.append("loss left out: some tests have none")
    return [Measurement(str(source.path), times_s, tuple(columns), start_unix_s, notes=tuple(notes))]


def _cells(line: str) -> list[str]:
    return next(csv.reader([line], delimiter=_delimiter(line)), [])


def _delimiter(line: str) -> str:
    """Returns the delimiter of the cells: Ookla's `-f tsv` has tabs."""
    return "\t" if "\t" in line else ","


def _kind(headings: list[str]) -> _Kind | None:
    """Returns the tool that writes these headings; LibreSpeed's differ from speedtest-cli's by the server's name."""
    names = set(headings)
    if {"Timestamp", "Ping", "Download", "Upload"} <= names:
        return _KINDS[2] if "Sponsor" in names else _KINDS[3] if "Jitter" in names else None
    for kind in _KINDS[:2]:
        if {kind.ping, kind.download, kind.upload, "server name"} <= names:
            return kind
    return None


def _csv_rows(source: Source, options: Options) -> list[tuple[float, ...]]:
    headings: list[str] = []
    kind: _Kind | None = None
    zone = zone_of(options)
    rows: list[tuple[float, ...]] = []
    delimiter = _delimiter(source.first_lines[0]) if source.first_lines else ","
    for number, row in enumerate(csv.reader(source.lines, delimiter=delimiter), start=1):
        if not row:
            continue
        if kind is None:
            headings, kind = row, _kind(row)
            if kind is None:
                source.fail(number, f"`{','.join(row)}`", "the headings of a speed test")
            continue
        if row == headings:
            continue
        if len(row) != len(headings):
            source.fail(number, f"{len(row)} cells", f"{len(headings)}, as many as headings")
        cells = dict(zip(headings, row, strict=True))
        at_s: float | None = math.nan
        if kind.time is not None:
            at_s = unix_time(cells[kind.time], zone)
            if at_s is None or (zone is None and not has_zone(cells[kind.time])):
                source.fail(number, f"`{cells[kind.time]}`", "a date and time with a zone (or --zone)")
        values = [
            optional_number(source, number, cells[name], f"a number as `{name}`") if name is not None else math.nan
            for name in (kind.ping, kind.loss, kind.download, kind.upload)
        ]
        if any(value < 0 for value in values):
            source.fail(number, f"{min(values):g}", "values of 0 or more")
        rows.append((number, at_s or 0.0, values[0], values[1], values[2] * kind.size, values[3] * kind.size))
    return rows


def _json_rows(source: Source) -> list[tuple[float, ...]]:
    rows: list[tuple[float, ...]] = []
    for number, value in json_values(source):
        for result in value if isinstance(value, list) else [value]:
            try:
                if result.get("type", "result") != "result":
                    continue
                at_s = unix_time(str(result["timestamp"]), None)
                values = _json_values(result)
            except (ValueError, KeyError, TypeError, AttributeError):
                source.fail(number, f"`{source.lines[number - 1]}`", "results of `speedtest -f json` or the like")
            if at_s is None or any(value < 0 or math.isinf(value) for value in values):
                source.fail(number, f"`{source.lines[number - 1]}`", "a timestamp, and values of 0 or more")
            rows.append((number, at_s, *values))
    return rows


def _json_values(result: dict[str, Any]) -> tuple[float, float, float, float]:
    """Returns round-trip time in ms, loss in % and both rates in Mbit/s of a result."""
    if isinstance(result["download"], dict):
        loss = result.get("packetLoss")
        rates = [float(result[key]["bandwidth"]) * 8e-6 for key in ("download", "upload")]
        return float(result["ping"]["latency"]), math.nan if loss is None else float(loss), rates[0], rates[1]
    # speedtest-cli writes bit/s; LibreSpeed, which also has the jitter, Mbit/s.
    size = 1.0 if "jitter" in result else 1e-6
    return float(result["ping"]), math.nan, float(result["download"]) * size, float(result["upload"]) * size

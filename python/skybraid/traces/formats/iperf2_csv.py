"""CSV of iperf 2 (`iperf -y C -i 1`).

Source: iperf 2's `reportCSV_bw_format`: local time, address and port of this end and of the other, stream (-1: all),
interval, bytes, bit/s; of a UDP receiver also jitter in ms, packets lost and all, their share in %, and packets out of
order. A summary has the whole test as its interval.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from skybraid.traces.formats import iperf3_text
from skybraid.traces.formats.iperf3_text import Interval
from skybraid.traces.formats.source import Options, Source, number_of, zone_of
from skybraid.traces.formats.stamps import read_stamp

if TYPE_CHECKING:
    from skybraid.traces.measurement import Measurement

_ROW = re.compile(
    r"(?P<stamp>\d{14}(\.\d+)?),[^,]*,\d*,[^,]*,\d*,(?P<id>-?\d+),(?P<start>\d+\.\d+)-"
    r" ?(?P<end>\d+\.\d+),\d+,.*"
)
_CELLS, _UDP_CELLS = 9, 14
_FORM = "20260513120001,10.0.0.2,42132,10.0.0.1,5001,3,0.0-1.0,1310720,10485760"


def recognises(source: Source) -> bool:
    """Whether the lines are CSV of iperf 2."""
    first_lines = source.first_lines
    return bool(first_lines) and _ROW.match(first_lines[0]) is not None


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of a UDP receiver its loss; several tests are one series.

    Raises:
        TraceError: a line is invalid, both ways are in one file, or the file has only the offered rate of a UDP sender.
    """
    tests: list[list[Measurement]] = []
    rows: list[tuple[int, re.Match[str]]] = []
    for number, line in enumerate(source.lines, start=1):
        found = _ROW.fullmatch(line.strip())
        if found is None:
            if not line.strip() or source.drop_cut(number):
                continue
            source.fail(number, f"`{line}`", f"`{_FORM}`")
        if rows and _key(found) == _key(rows[0][1]):
            # The first interval again begins the next test.
            tests.append(_test(source, rows, options))
            rows = []
        rows.append((number, found))
    if rows:
        tests.append(_test(source, rows, options))
    if not tests:
        source.fail(None, "no intervals", f"`{_FORM}`")
    return iperf3_text.in_series(source, tests)


def _key(row: re.Match[str]) -> tuple[str, float, float]:
    return row["id"], float(row["start"]), float(row["end"])


def _test(source: Source, rows: list[tuple[int, re.Match[str]]], options: Options) -> list[Measurement]:
    by_start: dict[float, Interval] = {}
    for number, row in rows:
        cells = row[0].split(",")
        start_s, end_s = (number_of(source, number, row[name], "a time in s") for name in ("start", "end"))
        known = by_start.setdefault(start_s, Interval(number, start_s, end_s))
        if known.end_s != end_s:
            # The summary of the test.
            continue
        rate = number_of(source, number, cells[_CELLS - 1], "a rate in bit/s") * 1e-6
        lost = packets = 0
        if len(cells) >= _UDP_CELLS:
            lost, packets = (int(number_of(source, number, cells[at], "a number of packets")) for at in (10, 11))
        # The sum of all streams is stream -1.
        stream = "SUM" if row["id"] == "-1" else row["id"]
        known.streams.setdefault(stream, (rate, max(lost, 0), packets))
    # A client of UDP ends with the report of its server.
    is_udp = any(len(row[0].split(",")) >= _UDP_CELLS for _, row in rows)
    found = iperf3_text.measurements(source, {options.sent: list(by_start.values())}, [], is_udp=is_udp)
    stamp = read_stamp(rows[0][1]["stamp"], zone_of(options))
    if stamp is None:
        source.fail(rows[0][0], f"`{rows[0][1]['stamp']}`", "a date and time such as 20260513120001")
    begun_s = stamp.at_s - float(rows[0][1]["end"])
    note = () if stamp.is_zoned else ("dates without a zone, taken as UTC (--zone)",)
    return [replace(one, start_unix_s=begun_s, notes=(*one.notes, *note)) for one in found]

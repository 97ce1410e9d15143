"""Output of mtr: `--raw`, probe by probe, or several reports one after another (`--report`, `--csv`, `--json`).

Source: mtr's `raw.c` (`x HOP SEQ` for a probe that is sent, `p HOP RTT_US SEQ` for its reply, `h HOP ADDRESS`) and
`report.c` (`Mtr_Version,Start_Time,Status,Host,Hop,Ip,Loss%,Snt, ,Last,Avg,…`; `Start: 2026-05-13T10:00:00+0200`, then
`HOST: … Loss% Snt Last Avg …` and `  1.|-- 10.0.0.1 …`; JSON's `report.hubs`, which has no time). A report holds
averages over its time, so that one alone is no series.
"""

from __future__ import annotations

import csv
import math
import re
from typing import NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.formats.probes import of_probes
from skybraid.traces.formats.source import Options, Source, from_zero, json_values, number_of, zone_of
from skybraid.traces.formats.stamps import read_stamp
from skybraid.traces.measurement import Column, Measurement

_RAW = re.compile(r"[xphdm] \d+ \S+")
_HOP = re.compile(
    r"\s*(?P<hop>\d+)\.\|?-?-?\s.*?\s(?P<loss>[\d.]+)%?\s+\d+\s+[\d.]+\s+(?P<average>[\d.]+)(?:\s+[\d.]+){3,}\s*$"
)
_SERIES = "a series: `mtr --raw TARGET > FILE`, or reports one after another (`mtr --csv TARGET >> FILE`)"


class _Report(NamedTuple):
    """Last hop of a report: its number, loss in %, average round-trip time in ms, and its line."""

    hop: int
    loss: float
    average_ms: float
    line: int


def recognises(source: Source) -> bool:
    """Whether the file is the output of mtr."""
    first_lines = source.first_lines
    if source.head.lstrip().startswith("{"):
        return '"mtr"' in source.head[:200]
    if first_lines and first_lines[0].startswith(("Mtr_Version,", "MTR.", "HOST:", "Start: ")):
        return first_lines[0].startswith(("Mtr_Version,", "MTR.")) or "Loss%" in source.head
    return len(first_lines) > 1 and all(_RAW.match(line) for line in first_lines[:-1]) and first_lines[0][0] in "xh"


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads round-trip time and loss of the last hop that answers.

    Raises:
        TraceError: a line is invalid, or the file is a single report.
    """
    first = source.first_lines[0] if source.first_lines else ""
    if _RAW.match(first):
        return [_raw(source, options)]
    if first.startswith("{"):
        return [_series(source, *_json(source, options), is_dated=False)]
    return [_series(source, *(_csv(source) if first.startswith(("Mtr_Version,", "MTR.")) else _text(source, options)))]


def _raw(source: Source, options: Options) -> Measurement:
    rtt_ms: dict[int, list[float]] = {}
    places: dict[tuple[int, int], int] = {}
    for number, line in enumerate(source.lines, start=1):
        words = line.split()
        if not words or words[0] in {"h", "d", "m"}:
            continue
        if len(words) < (3 if words[0] == "x" else 4) and source.drop_cut(number):
            # A truncated reply may belong to the last probe.
            for unanswered in [probes for probes in rtt_ms.values() if math.isinf(probes[-1])]:
                unanswered.pop()
            break
        if words[0] not in {"x", "p"} or len(words) < 3:
            source.fail(number, f"`{line}`", "`x HOP SEQ`, `p HOP RTT_US SEQ`, `h HOP ADDRESS` or `d HOP NAME`")
        hop = int(number_of(source, number, words[1], "the number of a hop"))
        if words[0] == "x":
            sequence = int(number_of(source, number, words[2], "a sequence number"))
            probes = rtt_ms.setdefault(hop, [])
            # Sequence numbers wrap after 65535: a reply belongs to the newest probe with its number.
            places[hop, sequence] = len(probes)
            probes.append(math.inf)
        elif len(words) < 4:
            source.fail(number, f"`{line}`", "a sequence number, as mtr 0.86 and later write")
        else:
            sequence = int(number_of(source, number, words[3], "a sequence number"))
            place = places.get((hop, sequence))
            if place is None:
                source.fail(number, f"`{line}`", f"a line `x {hop} {sequence}` before it")
            rtt_ms[hop][place] = number_of(source, number, words[2], "a round-trip time in us") * 1e-3
    answering = [hop for hop, probes in rtt_ms.items() if not all(math.isinf(value) for value in probes)]
    if not answering:
        source.fail(None, "no probe with a reply", "lines such as `x 0 33000` and `p 0 13105 33000`")
    # The first round probes beyond the target; the target is the last hop that is still probed afterwards.
    most = max(len(rtt_ms[hop]) for hop in answering)
    target = max(hop for hop in answering if 2 * len(rtt_ms[hop]) >= most)
    every_s = 1.0 if options.every_s is None else options.every_s
    rtt = rtt_ms[target]
    taken = f"hop {target + 1}, the last that answered; no stamps: probes taken as {every_s:g} s apart (--every)"
    return of_probes(source, np.arange(len(rtt), dtype=np.float64) * every_s, rtt, None, len(rtt) * every_s, (taken,))


def _csv(source: Source) -> tuple[list[float], list[_Report]]:
    headings: list[str] = []
    last: dict[float, _Report] = {}
    for number, row in enumerate(csv.reader(source.lines), start=1):
        if not row:
            continue
        if row[0] == "Mtr_Version":
            headings = [cell.strip() for cell in row]
            continue
        if not {"Start_Time", "Hop", "Loss%", "Avg"} <= set(headings) or len(row) < len(headings) - 1:
            source.fail(number, f"`{','.join(row)}`", "a row below `Mtr_Version,Start_Time,Status,Host,Hop,Ip,Loss%,…`")
        cells = dict(zip(headings, row, strict=False))
        at_s = number_of(source, number, cells["Start_Time"], "s since 1970")
        hop = int(number_of(source, number, cells["Hop"], "the number of a hop"))
        loss = number_of(source, number, cells["Loss%"], "a loss in %")
        average = number_of(source, number, cells["Avg"], "a round-trip time in ms")
        if at_s not in last or hop >= last[at_s].hop:
            last[at_s] = _Report(hop, loss, average, number)
    return list(last), list(last.values())


def _text(source: Source, options: Options) -> tuple[list[float], list[_Report]]:
    times_s: list[float] = []
    reports: list[_Report] = []
    for number, line in enumerate(source.lines, start=1):
        if line.startswith("Start: "):
            stamp = read_stamp(line.removeprefix("Start: "), zone_of(options))
            if stamp is None or not stamp.is_zoned:
                source.fail(number, f"`{line}`", "a date and time with a zone (or --zone)")
            if len(reports) < len(times_s):
                source.fail(number, "a report without hops before it", "lines such as `  1.|-- 10.0.0.1  0.0%  5 …`")
            times_s.append(stamp.at_s)
        elif line.startswith("HOST:") and "Loss%" in line and not times_s:
            source.fail(number, "a report without its time", _SERIES)
        elif (found := _HOP.match(line)) is not None and times_s:
            report = _Report(int(found["hop"]), float(found["loss"]), float(found["average"]), number)
            reports[len(times_s) - 1 :] = [report]
    return times_s[: len(reports)], reports


def _json(source: Source, options: Options) -> tuple[list[float], list[_Report]]:
    reports: list[_Report] = []
    for number, value in json_values(source):
        try:
            hub = value["report"]["hubs"][-1]
            reports.append(_Report(int(hub["count"]), float(hub["Loss%"]), float(hub["Avg"]), number))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            source.fail(number, f"{type(error).__name__} {error}", "reports as mtr --json writes them")
    if options.every_s is None and len(reports) > 1:
        source.fail(None, "no times of the reports", "--every, the time from report to report, such as 1min")
    return [place * (options.every_s or 1.0) for place in range(len(reports))], reports


def _series(source: Source, times_s: list[float], reports: list[_Report], *, is_dated: bool = True) -> Measurement:
    if len(reports) < 2:
        source.fail(None, f"{len(reports)} report of mtr, averages over one time", _SERIES)
    lines = [report.line for report in reports]
    for report in reports:
        if not (0 <= report.loss <= 100 and 0 <= report.average_ms < 1e9):
            source.fail(report.line, f"{report.loss:g} % and {report.average_ms:g} ms", "a loss and a time in range")
    losses = np.array([report.loss for report in reports])
    rtt = np.where(losses >= 100, math.inf, [report.average_ms for report in reports])
    columns = (Column("rtt", "ms", rtt), Column("round_trip_loss", "%", losses))
    notes = ("round-trip times are averages over each report",)
    start_s = times_s[0] if is_dated else None
    return Measurement(str(source.path), from_zero(source, times_s, lines), columns, start_s, notes=notes)

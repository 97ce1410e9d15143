"""Output of mtr: `--raw`, probe by probe, or several `--csv` reports one after another.

Source: mtr's `raw.c` (`x HOP SEQ` for a probe that is sent, `p HOP RTT_US SEQ` for its reply, `h HOP ADDRESS`) and
`report.c` (`Mtr_Version,Start_Time,Status,Host,Hop,Ip,Loss%,Snt, ,Last,Avg,…`). Other reports hold averages of one
time, which are no series.
"""

from __future__ import annotations

import csv
import math
import re

import numpy as np

from skybraid.traces.formats.probes import of_probes
from skybraid.traces.formats.source import Options, Source, from_zero, number_of
from skybraid.traces.measurement import Column, Measurement

_RAW = re.compile(r"[xphdm] \d+ \S+")
_SERIES = "a series: `mtr --raw TARGET > FILE`, or `mtr --csv TARGET >> FILE` again and again"


def recognises(source: Source) -> bool:
    """Whether the file is the output of mtr."""
    begins = source.begins
    if source.head.lstrip().startswith("{"):
        return '"mtr"' in source.head[:200]
    if begins and begins[0].startswith(("Mtr_Version,", "MTR.", "HOST:", "Start: ")):
        return begins[0].startswith(("Mtr_Version,", "MTR.")) or "Loss%" in source.head
    return len(begins) > 1 and all(_RAW.match(line) for line in begins[:-1]) and begins[0][0] in "xh"


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the round trips to the last hop that answers, and their losses.

    Raises:
        TraceError: a line is invalid, or the file is a report of one time.
    """
    first = source.begins[0] if source.begins else ""
    if first.startswith(("Mtr_Version,", "MTR.")):
        return [_csv(source)]
    if not _RAW.match(first):
        source.fail(None, "a report of mtr, averages over one time", _SERIES)
    return [_raw(source, options)]


def _raw(source: Source, options: Options) -> Measurement:
    rtt_ms: dict[int, list[float]] = {}
    places: dict[tuple[int, int], int] = {}
    for number, line in enumerate(source.lines, start=1):
        words = line.split()
        if not words or words[0] in {"h", "d", "m"}:
            continue
        if words[0] not in {"x", "p"} or len(words) < 3:
            source.fail(number, f"`{line}`", "`x HOP SEQ`, `p HOP RTT_US SEQ`, `h HOP ADDRESS` or `d HOP NAME`")
        hop = int(number_of(source, number, words[1], "the number of a hop"))
        if words[0] == "x":
            sequence = int(number_of(source, number, words[2], "a sequence number"))
            probes = rtt_ms.setdefault(hop, [])
            # Sequence numbers come again after 65535: a reply is that of the newest probe of its number.
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
    # The first round probes beyond the target, whose hop then is the last one that goes on being probed.
    most = max(len(rtt_ms[hop]) for hop in answering)
    target = max(hop for hop in answering if 2 * len(rtt_ms[hop]) >= most)
    every_s = 1.0 if options.every_s is None else options.every_s
    rtt = rtt_ms[target]
    notes = (f"hop {target + 1}, the last that answered; no stamps: probes taken as {every_s:g} s apart (--every)",)
    return of_probes(source, np.arange(len(rtt), dtype=np.float64) * every_s, rtt, None, len(rtt) * every_s, notes)


def _csv(source: Source) -> Measurement:
    headings: list[str] = []
    last: dict[float, tuple[int, float, float, int]] = {}
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
        if at_s not in last or hop >= last[at_s][0]:
            last[at_s] = (hop, loss, average, number)
    if len(last) < 2:
        source.fail(None, f"{len(last)} report of mtr", _SERIES)
    rows = list(last.items())
    times_s = from_zero(source, [at_s for at_s, _ in rows], [row[3] for _, row in rows])
    losses = np.clip([row[1] for _, row in rows], 0.0, 100.0)
    rtt = np.where(losses >= 100, math.inf, [row[2] for _, row in rows])
    columns = (Column("rtt", "ms", rtt), Column("round_trip_loss", "%", losses))
    notes = ("round-trip times are averages over each report",)
    return Measurement(str(source.path), times_s, columns, rows[0][0], notes=notes)

"""Output of iperf3 with `--json` or `--json-stream`.

Source: iperf3's manual and its JSON output: `start.test_start`, `intervals[].sum`, `sum_bidir_reverse`,
`server_output_json` with `--get-server-output`. A rate is application data in bit/s, without TCP, UDP and IP headers.
An interrupted test has an `error` after its intervals, and perhaps its last one twice. Scripts append one test to
another.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skybraid.traces.formats import iperf3_text
from skybraid.traces.formats.source import Options, Source, json_values

if TYPE_CHECKING:
    from skybraid.traces.measurement import Measurement


def recognises(source: Source) -> bool:
    """Whether the file is JSON output of iperf3."""
    head = source.head.lstrip("[ \n\t")
    return head.startswith("{") and ('"event"' in head[:200] or '"start"' in head[:200]) and "iperf" in source.head


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of UDP its loss; several tests are one series with the time between them.

    Raises:
        TraceError: the file is no JSON of iperf3, contains only an error, or only the offered rate of a UDP sender.
    """
    reports = _reports(source)
    failed = [report["error"] for report in reports if isinstance(report.get("error"), str)]
    run = [report for report in reports if report.get("intervals") or not isinstance(report.get("error"), str)]
    if not run:
        source.fail(None, f"an error of iperf3: {failed[0]}" if failed else "no test", "a finished test")
    if len(run) < len(reports):
        source.notes.append(f"{len(reports) - len(run)} of {len(reports)} tests without an interval: {failed[0]}")
    return iperf3_text.in_series(source, [_read(source, options, report) for report in run])


def _read(source: Source, options: Options, report: dict[str, Any]) -> list[Measurement]:
    notes: list[str] = []
    if isinstance(report.get("error"), str):
        notes.append(f"the test ended early: {report['error']}")
    try:
        test = report["start"]["test_start"]
        begun = report["start"].get("timestamp", {}).get("timesecs")
        is_udp = str(test["protocol"]).upper() == "UDP"
        forward = options.received if test.get("reverse") else options.sent
        receiver = report.get("server_output_json")
        if test.get("reverse") or not isinstance(receiver, dict) or not receiver.get("intervals"):
            receiver = report
        else:
            notes.append("rates as the server received them")
        parts = {forward: [interval["sum"] for interval in receiver["intervals"]]}
        intervals = report["intervals"]
        if test.get("bidir") or (intervals and "sum_bidir_reverse" in intervals[0]):
            parts[options.received] = [interval["sum_bidir_reverse"] for interval in intervals]
        omitted = sum(bool(one.get("omitted")) for sums in parts.values() for one in sums)
        if omitted:
            notes.append(f"{omitted} intervals left out, which iperf3 --omit marked")
        by_direction = {direction: _intervals(sums) for direction, sums in parts.items()}
        start_s = None if begun is None else float(str(begun))
        is_offered = is_udp and not any(one.totals[2] for rows in by_direction.values() for one in rows)
        if is_offered and isinstance(report.get("server_output_text"), str):
            # An older server sends its log as text.
            text = Source.of_text(source.path, str(report["server_output_text"]))
            return [replace(one, start_unix_s=start_s) for one in iperf3_text.read(text, options)]
        found = iperf3_text.measurements(source, by_direction, notes, is_udp=is_udp)
    except ValueError as error:
        source.fail(None, str(error), "intervals as iperf3 --json writes them")
    except (KeyError, TypeError, AttributeError) as error:
        source.fail(None, f"{type(error).__name__} {error}", "intervals as iperf3 --json writes them")
    first_s = [rows[0].start_s for rows in by_direction.values()]
    return [replace(one, start_unix_s=None if start_s is None else start_s + first_s[0]) for one in found]


def _reports(source: Source) -> list[dict[str, Any]]:
    """Returns the report of each test; lines of `--json-stream` are combined to one per test."""
    found: list[dict[str, Any]] = []
    for line, value in json_values(source):
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                source.fail(line, "no JSON object", "the output of iperf3 --json")
            if "event" not in one:
                found.append(one)
                continue
            kind, data = one["event"], one.get("data")
            if kind == "start":
                found.append({"start": data, "intervals": []})
            elif not found:
                source.fail(line, f"`{kind}` before a start", "events of iperf3 --json-stream")
            elif kind == "interval":
                found[-1]["intervals"].append(data)
            elif kind in ("error", "server_output_json"):
                found[-1][kind] = data
    return found


def _intervals(sums: list[dict[str, Any]]) -> list[iperf3_text.Interval]:
    """Returns the intervals of a test, without omitted and repeated ones."""
    found: list[iperf3_text.Interval] = []
    for at, one in enumerate(sums):
        start_s = float(one["start"])
        if one.get("omitted") or (found and start_s == found[-1].start_s):
            continue
        rate = one.get("bits_per_second")
        if not isinstance(rate, int | float) or not 0 <= rate < math.inf:
            raise ValueError(f"intervals[{at}] with a rate of {rate} bit/s")
        interval = iperf3_text.Interval(1, start_s, float(one.get("end", start_s + 1)))
        # A UDP sender knows its packets but not their losses.
        packets = int(one["packets"]) if "lost_packets" in one else 0
        lost = max(int(one.get("lost_packets", 0)), 0)
        interval.streams["SUM"] = (rate * 1e-6, lost, packets)
        found.append(interval)
    if not found:
        raise ValueError("no intervals")
    return found

"""Output of iperf3 with `--json` or `--json-stream`.

Source: iperf3's manual and its JSON output: `start.test_start`, `intervals[].sum`, `sum_bidir_reverse`,
`server_output_json` with `--get-server-output`. A rate is application data in bit/s, without TCP, UDP and IP headers.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from skybraid.traces.formats import iperf3_text
from skybraid.traces.formats.source import Options, Source, from_zero
from skybraid.traces.measurement import Column, Measurement


def recognises(source: Source) -> bool:
    """Whether the file is JSON of iperf3."""
    head = source.head.lstrip()
    return head.startswith("{") and ('"event"' in head[:200] or '"start"' in head[:200]) and "iperf" in source.head


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of UDP its loss.

    Raises:
        TraceError: the file is no JSON of iperf3, reports an error, or holds only what a UDP sender offered.
    """
    report = _report(source)
    if isinstance(report.get("error"), str):
        source.fail(None, f"an error of iperf3: {report['error']}", "a finished test")
    try:
        test = report["start"]["test_start"]
        begun = report["start"].get("timestamp", {}).get("timesecs")
        is_udp = str(test["protocol"]).upper() == "UDP"
        forward = options.received if test.get("reverse") else options.sent
        server = report.get("server_output_json")
        notes: list[str] = []
        parts = [(forward, [interval["sum"] for interval in report["intervals"]])]
        is_sender = not test.get("reverse")
        if isinstance(server, dict) and server.get("intervals") and is_sender:
            parts = [(forward, [interval["sum"] for interval in server["intervals"]])]
            notes.append("rates as the server received them")
            is_sender = False
        intervals = report["intervals"]
        if test.get("bidir") or (intervals and "sum_bidir_reverse" in intervals[0]):
            parts.append((options.received, [interval["sum_bidir_reverse"] for interval in intervals]))
        if is_udp and is_sender and isinstance(report.get("server_output_text"), str):
            # An older server sends its log as people read it.
            return [
                replace(one, start_unix_s=None if begun is None else float(str(begun)))
                for one in iperf3_text.read(Source.of_text(source.path, str(report["server_output_text"])), options)
            ]
        if is_udp and is_sender:
            source.fail(None, "UDP intervals of the sender", iperf3_text.OFFERED.removeprefix("expected "))
        found = [_measurement(source, direction, sums, begun, notes) for direction, sums in parts]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        source.fail(None, f"{type(error).__name__} {error}", "intervals as iperf3 --json writes them")
    return found


def _report(source: Source) -> dict[str, Any]:
    try:
        found = json.loads(source.text)
    except (json.JSONDecodeError, RecursionError) as error:
        if '"event"' not in source.head:
            source.fail(None, f"damaged JSON ({error})", "the whole output of iperf3 --json: was the test cut off?")
        found = _stream(source)
    if not isinstance(found, dict):
        source.fail(None, "no JSON object", "the output of iperf3 --json")
    return found


def _stream(source: Source) -> dict[str, Any]:
    """Returns the report that the lines of `--json-stream` amount to."""
    report: dict[str, Any] = {"intervals": []}
    for number, line in enumerate(source.lines, start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            kind, data = event["event"], event["data"]
        except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
            source.fail(number, f"`{line}`", "one event of iperf3 --json-stream")
        if kind == "interval":
            report["intervals"].append(data)
        elif kind in ("start", "error", "server_output_json"):
            report[kind] = data
    return report


def _measurement(
    source: Source, direction: str, sums: list[dict[str, Any]], begun: object, notes: list[str]
) -> Measurement:
    kept = [one for one in sums if not one.get("omitted")]
    if len(kept) < len(sums):
        notes = [*notes, f"{len(sums) - len(kept)} intervals left out, which iperf3 --omit marked"]
    starts_s = [float(one["start"]) for one in kept]
    times_s = from_zero(source, starts_s, [1] * len(kept))
    rates = np.array([float(one["bits_per_second"]) * 1e-6 for one in kept])
    if not np.isfinite(rates).all() or (rates < 0).any():
        source.fail(None, "a rate below zero or infinite", "bits_per_second from 0")
    columns = [Column("rate", "Mbit/s", rates, direction)]
    if all("lost_packets" in one and "packets" in one for one in kept):
        lost = [(float(one["lost_packets"]), float(one["packets"])) for one in kept]
        share = np.array([100 * min(max(few / all_, 0.0), 1.0) if all_ > 0 else math.nan for few, all_ in lost])
        # An interval without a packet carried nothing.
        columns.append(Column("loss", "%", np.where(np.isnan(share), 100.0, share), direction))
    end_s = float(kept[-1].get("end", starts_s[-1] + 1)) - starts_s[0]
    start_unix_s = None if begun is None else float(str(begun)) + starts_s[0]
    return Measurement(
        str(source.path),
        times_s,
        tuple(columns),
        start_unix_s,
        max(end_s, float(times_s[-1]) + 1e-9),
        label=direction,
        notes=tuple(notes),
    )

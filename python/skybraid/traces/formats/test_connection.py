"""Output of PowerShell's `Test-Connection`: tables of version 7, and of Windows PowerShell 5.1.

Source: Microsoft's reference of Test-Connection: rows `Ping Source Address Latency(ms) BufferSize(B) Status`, whose
status is `Success`, `TimedOut` and the like; version 5.1 has `Source Destination IPV4Address IPV6Address Bytes
Time(ms)`, and an error in place of a lost probe. A probe follows the previous one after `-Delay`, 1 s; version 7 waits
5 s for a reply.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from skybraid.traces.formats.probes import of_probes

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source
    from skybraid.traces.measurement import Measurement

TIMEOUT_S = 5.0
"""Default time in s that version 7 waits for a reply."""

_HEADING = re.compile(r"\s*(Ping\s+)?Source\s+(Address|Destination)\s.*(Latency\s+BufferSize|Bytes\s+Time\(ms\))")
_ROW = re.compile(r"\s*\d+\s+\S+\s+\S+\s+(?P<rtt>\d+|\*)\s+(?:\d+|\*)\s+(?P<status>[A-Za-z]+)\s*")
_OLD_ROW = re.compile(r"\S+\s+\S+\s.*\s(?P<bytes>\d+)\s+(?P<rtt>\d+)\s*")
_OLD_LOST = re.compile(r"Test-Connection : .*")
_MIN_RTT_MS = 1.0
"""Value in ms for a latency of 0 ms: ms are rounded down, and a round trip takes time."""


def recognises(source: Source) -> bool:
    """Whether the file has the headings of Test-Connection."""
    return any(_HEADING.match(line) for line in source.first_lines)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the round-trip times; a status other than `Success` is a lost probe.

    Raises:
        TraceError: there is no reply, or a row is damaged.
    """
    rtt_ms: list[float] = []
    is_new, is_table = False, False
    for number, line in enumerate(source.lines, start=1):
        heading = _HEADING.match(line)
        if heading is not None:
            is_new, is_table = heading[1] is not None, True
        elif _OLD_LOST.match(line) and not is_new:
            rtt_ms.append(math.inf)
        elif is_table and (row := (_ROW if is_new else _OLD_ROW).fullmatch(line)) is not None:
            is_reply = not is_new or row["status"] == "Success"
            rtt_ms.append(max(float(row["rtt"]), _MIN_RTT_MS) if is_reply and row["rtt"] != "*" else math.inf)
        elif is_new and re.match(r"\s*\d", line) and not source.drop_cut(number):
            source.fail(number, f"`{line.strip()}`", "a row such as `1 HOST 8.8.8.8 12 32 Success`")
    if all(math.isinf(value) for value in rtt_ms):
        source.fail(None, "no reply", "rows such as `1 HOST 8.8.8.8 12 32 Success`")
    every_s = 1.0 if options.every_s is None else options.every_s
    times_s, at_s = [], 0.0
    for value in rtt_ms:
        times_s.append(at_s)
        at_s += every_s + (TIMEOUT_S if math.isinf(value) else 0.0)
    notes = [f"no stamps: probes taken as {every_s:g} s apart (--every), timeouts as {TIMEOUT_S:g} s longer"]
    if not is_new and not any(math.isinf(value) for value in rtt_ms):
        notes.append("Windows PowerShell 5.1 writes no row of a lost probe: losses are known where its errors are kept")
    return [of_probes(source, times_s, rtt_ms, None, at_s, tuple(notes))]

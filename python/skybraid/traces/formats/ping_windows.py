"""Output of `ping` of Windows, in any of its languages.

Source: Microsoft's reference of ping: `Reply from 10.0.0.1: bytes=32 time=12ms TTL=117`, `time<1ms`, `Request timed
out.` A probe follows the one before by 1 s, and a timeout (`-w`, by default 4 s) comes before that second. There are no
stamps.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from skybraid.traces.formats.probes import of_probes

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source
    from skybraid.traces.measurement import Measurement

TIMEOUT_S = 4.0
"""How long Windows waits for a reply unless told otherwise, in s."""

_REPLY = re.compile(r"[=<](?P<rtt>\d+)\s?ms\s+TTL=\d+", re.IGNORECASE)
_IPV6_REPLY = re.compile(r"^\S.*: \w+[=<](?P<rtt>\d+)\s?ms\s*$")
_COUNTS = re.compile(r"=\s*(\d+),.*?=\s*(\d+),.*?=\s*(\d+)")


def recognises(source: Source) -> bool:
    """Whether the file is the output of Windows' ping."""
    return any(_REPLY.search(line) and "icmp_seq" not in line for line in source.begins) or any(
        line.startswith("Pinging ") for line in source.begins
    )


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes: every line between the heading and the statistics is one.

    Raises:
        TraceError: there is no probe, or their number is not that of the statistics.
    """
    rtt_ms: list[float] = []
    heading = next((place for place, line in enumerate(source.lines) if line.strip()), 0)
    for number, line in enumerate(source.lines[heading + 1 :], start=heading + 2):
        if not line.strip():
            if rtt_ms:
                break
            continue
        reply = _REPLY.search(line) or _IPV6_REPLY.search(line.strip())
        if reply is None and line.startswith(" ") and rtt_ms:
            source.fail(number, f"`{line.strip()}`", "a reply, a timeout, or a blank line before the statistics")
        rtt_ms.append(math.inf if reply is None else float(reply["rtt"]))
    if not rtt_ms or all(math.isinf(value) for value in rtt_ms):
        source.fail(None, "no reply", "lines such as `Reply from 10.0.0.1: bytes=32 time=12ms TTL=117`")
    counts = next((match for line in source.lines if (match := _COUNTS.search(line)) and "ms" not in line), None)
    if counts is not None and int(counts[1]) != len(rtt_ms):
        source.fail(None, f"{len(rtt_ms)} probes", f"{counts[1]} as the statistics say")
    every_s = 1.0 if options.every_s is None else options.every_s
    times_s, at_s = [], 0.0
    for value in rtt_ms:
        times_s.append(at_s)
        at_s += every_s + (TIMEOUT_S if math.isinf(value) else 0.0)
    notes = (f"no stamps: probes taken as {every_s:g} s apart (--every), timeouts as {TIMEOUT_S:g} s longer",)
    return [of_probes(source, times_s, rtt_ms, None, at_s, notes)]

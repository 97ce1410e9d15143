"""Output of `ping` of Windows, in any of its languages.

Source: Microsoft's reference of ping: `Reply from 10.0.0.1: bytes=32 time=12ms TTL=117`, `time<1ms`, `Request timed
out.` A probe follows the one before by 1 s, and a timeout (`-w`, by default 4 s) comes before that second. There are no
stamps but those that a script writes before each line (`10/05/2026 10:00:01 - Reply from …`).
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from skybraid.traces.formats.probes import of_probes, stamped_probes
from skybraid.traces.formats.source import zone_of
from skybraid.traces.formats.stamps import Stamp, is_day_first, may_be_month_first, read_stamp

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source
    from skybraid.traces.measurement import Measurement

TIMEOUT_S = 4.0
"""How long Windows waits for a reply by default, in s."""

_REPLY = re.compile(r"[=<](?P<rtt>\d+)\s?\S{1,6}\s+TTL=\d+", re.IGNORECASE)
_IPV6_REPLY = re.compile(r"^\S.*: ?\w+[=<](?P<rtt>\d+)\s?ms\s*$")
_COUNTS = re.compile(r"=\s*(\d+)\D+?=\s*(\d+)\D+?=\s*(\d+)")
_PREFIX = re.compile(r"(?P<stamp>[\d/.: T_-]*\d(?:\s?[AP]M)?)(?P<after>\s+-\s|[,;:]\s|\s)(?P<rest>.*)", re.IGNORECASE)


def recognises(source: Source) -> bool:
    """Whether the file is the output of Windows' ping."""
    return any(_REPLY.search(line) and "icmp_seq" not in line and " seq=" not in line for line in source.begins) or any(
        line.startswith("Pinging ") for line in source.begins
    )


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes: every line between the heading and the statistics is one.

    Raises:
        TraceError: there is no probe, or their number is not that of the statistics.
    """
    prefixed = [_PREFIX.fullmatch(line.strip()) for line in source.lines]
    first = _stamps(prefixed, options)
    lines = [
        (found["rest"] if found is not None and at in first else line)
        for at, (line, found) in enumerate(zip(source.lines, prefixed, strict=True))
    ]
    rtt_ms: list[float] = []
    stamps: dict[int, Stamp] = {}
    heading = next((place for place, line in enumerate(lines) if line.strip()), 0)
    if lines and _reply(lines[heading]) is not None:
        # A log that was cut off at its beginning.
        heading -= 1
    is_over = False
    for number, line in enumerate(lines[heading + 1 :], start=heading + 2):
        reply = _reply(line)
        # Statistics follow a blank line; after those of Ctrl+Break the probes go on.
        is_over = reply is None and (is_over or (bool(rtt_ms) and not line.strip()))
        if is_over or not line.strip():
            continue
        if reply is None and line.strip()[-1] not in ".!。" and source.drop_cut(number):
            continue
        if reply is None and line.startswith(" ") and rtt_ms:
            source.fail(number, f"`{line.strip()}`", "a reply, a timeout, or a blank line before the statistics")
        if number - 1 in first:
            stamps[len(rtt_ms)] = first[number - 1]
        rtt_ms.append(math.inf if reply is None else float(reply["rtt"]))
    if not rtt_ms or all(math.isinf(value) for value in rtt_ms):
        source.fail(None, "no reply", "lines such as `Reply from 10.0.0.1: bytes=32 time=12ms TTL=117`")
    counts = [match for line in lines if (match := _COUNTS.search(line)) and "ms" not in line and not _reply(line)]
    if counts and int(counts[-1][1]) != len(rtt_ms):
        source.fail(None, f"{len(rtt_ms)} probes", f"{counts[-1][1]} as the statistics say")
    if len(stamps) == len(rtt_ms):
        return [stamped_probes(source, dict(enumerate(rtt_ms)), stamps, len(rtt_ms) - 1)]
    every_s = 1.0 if options.every_s is None else options.every_s
    times_s, at_s = [], 0.0
    for value in rtt_ms:
        times_s.append(at_s)
        at_s += every_s + (TIMEOUT_S if math.isinf(value) else 0.0)
    notes = (f"no stamps: probes taken as {every_s:g} s apart (--every), timeouts as {TIMEOUT_S:g} s longer",)
    return [of_probes(source, times_s, rtt_ms, None, at_s, notes)]


def _reply(line: str) -> re.Match[str] | None:
    return _REPLY.search(line) or _IPV6_REPLY.search(line.strip())


def _stamps(prefixed: list[re.Match[str] | None], options: Options) -> dict[int, Stamp]:
    """Returns the stamps that a script wrote before lines, by the place of the line."""
    texts = {at: found["stamp"] for at, found in enumerate(prefixed) if found is not None}
    day_first = is_day_first(list(texts.values()))
    if day_first is None and any(may_be_month_first(text) for text in texts.values()):
        # Within a day nothing but the date of the start depends on it.
        day_first = False
    read = {at: read_stamp(text, zone_of(options), is_day_first=day_first) for at, text in texts.items()}
    return {at: stamp for at, stamp in read.items() if stamp is not None}

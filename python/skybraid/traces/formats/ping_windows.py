"""Output of `ping` of Windows, in any of its languages.

Source: Microsoft's reference of ping: `Reply from 10.0.0.1: bytes=32 time=12ms TTL=117`, `time<1ms`, `Request timed
out.` A probe is sent 1 s after the previous reply or timeout (`-w`, by default 4 s). The only stamps are those that a
script writes before each line (`10/05/2026 10:00:01 - Reply from …`).
"""

from __future__ import annotations

import math
import re
from itertools import accumulate
from typing import TYPE_CHECKING

from skybraid.traces.formats.probes import of_probes, stamped_probes
from skybraid.traces.formats.source import zone_of
from skybraid.traces.formats.stamps import Stamp, is_day_first, may_be_month_first, read_stamp

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source
    from skybraid.traces.measurement import Measurement

TIMEOUT_S = 4.0
"""Default time in s that Windows waits for a reply."""

_REPLY = re.compile(r"[=<](?P<rtt>\d+)\s?\S{1,6}\s+TTL=\d+", re.IGNORECASE)
_IPV6_REPLY = re.compile(r"^\S.*: ?\w+[=<](?P<rtt>\d+)\s?ms\s*$")
_COUNTS = re.compile(r"=\s*(\d+)\D+?=\s*(\d+)\D+?=\s*(\d+)")
_PREFIX = re.compile(r"(?P<stamp>[\d/.: T_-]*\d(?:\s?[AP]M)?)(?P<after>\s+-\s|[,;:]\s|\s)(?P<rest>.*)", re.IGNORECASE)


def recognises(source: Source) -> bool:
    """Whether the file is the output of Windows' ping."""
    return any(
        _REPLY.search(line) and "icmp_seq" not in line and " seq=" not in line for line in source.first_lines
    ) or any(line.startswith("Pinging ") for line in source.first_lines)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes, one per line between the heading and the statistics.

    Raises:
        TraceError: there is no probe, or their number differs from the statistics.
    """
    lines, stamps = _without_stamps(source, options)
    probes = _probes(source, lines)
    if not any(math.isfinite(rtt_ms) for rtt_ms in probes.values()):
        source.fail(None, "no reply", "lines such as `Reply from 10.0.0.1: bytes=32 time=12ms TTL=117`")
    counts = [match for line in lines if (match := _COUNTS.search(line)) and "ms" not in line and not _reply(line)]
    if counts and int(counts[-1][1]) != len(probes):
        source.fail(None, f"{len(probes)} probes", f"{counts[-1][1]} as the statistics say")
    rtt_ms = list(probes.values())
    if probes.keys() <= stamps.keys():
        sent_at = {number: stamps[at] for number, at in enumerate(probes)}
        return [stamped_probes(source, dict(enumerate(rtt_ms)), sent_at, len(rtt_ms) - 1)]
    every_s = 1.0 if options.every_s is None else options.every_s
    steps_s = [every_s + (TIMEOUT_S if math.isinf(rtt) else 0.0) for rtt in rtt_ms]
    *times_s, end_s = accumulate(steps_s, initial=0.0)
    notes = (f"no stamps: probes taken as {every_s:g} s apart (--every), timeouts as {TIMEOUT_S:g} s longer",)
    return [of_probes(source, times_s, rtt_ms, None, end_s, notes)]


def _probes(source: Source, lines: list[str]) -> dict[int, float]:
    """Returns the round trips in ms by the place of their line, infinite where there was no reply.

    Raises:
        TraceError: a line among them is none.
    """
    probes: dict[int, float] = {}
    begin = next((at for at, line in enumerate(lines) if line.strip()), len(lines))
    # A log that was cut off at its beginning has no heading.
    if begin < len(lines) and _reply(lines[begin]) is None:
        begin += 1
    is_over = False
    for at, line in enumerate(lines[begin:], start=begin):
        reply, text = _reply(line), line.strip()
        # Statistics follow a blank line; after those of Ctrl+Break the probes go on.
        is_over = reply is None and (is_over or (bool(probes) and not text))
        if is_over or not text:
            continue
        if reply is None and text[-1] not in ".!。" and source.drop_cut(at + 1):
            continue
        if reply is None and line.startswith(" ") and probes:
            source.fail(at + 1, f"`{text}`", "a reply, a timeout, or a blank line before the statistics")
        probes[at] = math.inf if reply is None else float(reply["rtt"])
    return probes


def _reply(line: str) -> re.Match[str] | None:
    return _REPLY.search(line) or _IPV6_REPLY.search(line.strip())


def _without_stamps(source: Source, options: Options) -> tuple[list[str], dict[int, Stamp]]:
    """Returns the lines without the stamps that a script wrote before them, and the stamps by the place of the line."""
    prefixed = {at: found for at, line in enumerate(source.lines) if (found := _PREFIX.fullmatch(line.strip()))}
    texts = [found["stamp"] for found in prefixed.values()]
    day_first = is_day_first(texts)
    if day_first is None and any(may_be_month_first(text) for text in texts):
        # Within a day nothing but the date of the start depends on it.
        day_first = False
    read = {at: read_stamp(one["stamp"], zone_of(options), is_day_first=day_first) for at, one in prefixed.items()}
    stamps = {at: stamp for at, stamp in read.items() if stamp is not None}
    return [prefixed[at]["rest"] if at in stamps else line for at, line in enumerate(source.lines)], stamps

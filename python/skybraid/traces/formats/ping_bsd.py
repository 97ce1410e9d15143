"""Output of `ping` of macOS and the BSDs.

Source: FreeBSD's ping(8) and its `pr_pack`: `64 bytes from 10.0.0.1: icmp_seq=0 ttl=55 time=12.345 ms`, sequence
numbers from 0, `Request timeout for icmp_seq 1` on macOS, `4 packets transmitted, 3 packets received`. A reply after
its timeout counts. macOS with `--apple-time` puts the time of day before each line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skybraid.traces.formats.probes import even_probes, stamped_probes, unwrapped
from skybraid.traces.formats.source import MAX_ROWS, Options, Source, number_of, zone_of
from skybraid.traces.formats.stamps import Stamp, read_stamp

if TYPE_CHECKING:
    from skybraid.traces.measurement import Measurement

_REPLY = re.compile(r"(?P<stamp>.*?)[\s:\]|-]*\b\d+ bytes from .*icmp_seq=(?P<seq>\d+) .*time=(?P<rtt>\S+) ms")
_TIMEOUT = re.compile(r"Request timeout for icmp_seq (?P<seq>\d+)")
HEADING = re.compile(r"PING [^()]*\([^()]*\): \d+ data bytes|PING6?\(\d+=")
"""First line of the output, which busybox has too; of IPv6 `PING6(56=40+8+8 bytes)`, since FreeBSD 13 `PING(…)`."""

_SUMMARY = re.compile(r"(?P<sent>\d+) packets transmitted, (?P<received>\d+) packets received")


def recognises(source: Source) -> bool:
    """Whether the file is the output of a BSD or macOS ping."""
    if any(re.search(r"\d+ bytes from .*: seq=\d", line) for line in source.first_lines):
        # Busybox has the same heading.
        return False
    return any(HEADING.search(line) or _TIMEOUT.search(line) for line in source.first_lines)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes; they are `every` apart, by default 1 s.

    Raises:
        TraceError: a line is invalid, or there is no probe.
    """
    replies: dict[int, float] = {}
    stamps: dict[int, Stamp] = {}
    zone = zone_of(options)
    newest = -1
    for number, line in enumerate(source.lines, start=1):
        if reply := _REPLY.search(line):
            sequence = unwrapped(int(reply["seq"]), newest)
            rtt_ms = number_of(source, number, reply["rtt"], "a round-trip time in ms")
            if sequence > MAX_ROWS:
                source.fail(number, f"icmp_seq={sequence}", f"fewer than {MAX_ROWS} probes")
            newest = max(newest, sequence)
            if sequence not in replies and (stamp := read_stamp(reply["stamp"], zone)) is not None:
                stamps[sequence] = stamp
            replies.setdefault(sequence, rtt_ms)
        elif timeout := _TIMEOUT.search(line):
            sequence = unwrapped(int(timeout["seq"]), newest)
            if sequence > MAX_ROWS:
                source.fail(number, f"icmp_seq {sequence}", f"fewer than {MAX_ROWS} probes")
            newest = max(newest, sequence)
        elif (summary := _SUMMARY.search(line)) and int(summary["sent"]) <= MAX_ROWS:
            newest = max(newest, int(summary["sent"]) - 1)
    if newest < 0:
        source.fail(None, "no probe", "lines such as `64 bytes from 10.0.0.1: icmp_seq=0 ttl=55 time=12.3 ms`")
    if replies and len(stamps) == len(replies):
        return [stamped_probes(source, replies, stamps, newest, is_paced=True)]
    every_s = 1.0 if options.every_s is None else options.every_s
    notes = (f"no dates: probes taken as {every_s:g} s apart (--every)",)
    return [even_probes(source, replies, 0, newest, every_s, notes)]

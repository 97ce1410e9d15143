"""Output of `ping` of iputils, in any of its languages, and of busybox; the reader that scenarios use parses it.

Source: `crates/link/src/trace/ping.rs`; translations (`64 Bytes von 10.0.0.1: icmp_seq=1 ttl=55 Zeit=12 ms`).
Stamps are those of `-D`, or what scripts write before each line (`ts`, `date`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from skybraid._core import SkybraidError, read_trace
from skybraid.model.heavy import np
from skybraid.traces.formats.ping_bsd import HEADING
from skybraid.traces.formats.probes import clock_of, of_probes, unwrapped
from skybraid.traces.formats.source import Options, Source, zone_of
from skybraid.traces.formats.stamps import read_stamp
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.measurement import Measurement

_REPLY = re.compile(
    r"(?P<stamp>.*?)[\s:\]|-]*\b\d+ (?![A-Z]{2,5}\b)[^\s\d:]{2,} [^=]*?(?P<key>icmp_seq|icmp_req|seq)=(?P<seq>\d+) "
    r"(?:ident=\d+ )?(?:ttl|hlim)=\d+ [^=<]*[=<] ?(?P<rtt>\d+(?:[.,]\d+)?) ?[^\s\d.,]+(?P<rest>.*)"
)
_HEADING = re.compile(r"PING \S.*\d")
_SIZES = re.compile(r"(?P<stamp>(?:^|.*[\s:\]|-])\[*)PING .*\d\(\d+\) ")
"""First line of the output, perhaps with a stamp before it; the BSDs' has no `56(84)`."""

_SENT = re.compile(r"\b(?:icmp_seq|icmp_req|seq)=(?P<seq>\d+)\b")
_SUMMARY = re.compile(r"--- .* ---\s*$")
_ROUND = 1 << 16


class _Reply(NamedTuple):
    place: int
    stamp: str
    sequence: int
    rtt_ms: str
    is_again: bool


class _Log(NamedTuple):
    """Log in the form that `ping -D` writes in English.

    Attributes:
        text: lines at their original line numbers.
        start_unix_s: sending time of the first answered probe, in s since 1970; None without a date.
        even_s: interval of the probes in s, from the summary, else 1 s; None with stamps.
        notes: assumptions and omissions.
    """

    text: str
    start_unix_s: float | None
    even_s: float | None
    notes: tuple[str, ...]


def recognises(source: Source) -> bool:
    """Whether the file is the output of Linux's ping."""
    found = [match for line in source.first_lines if (match := _REPLY.match(line))]
    if any(HEADING.search(line) for line in source.first_lines):
        # Busybox has the heading of the BSDs.
        return any(match["key"] == "seq" for match in found)
    return bool(found) or any(_SIZES.match(line) for line in source.first_lines)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes; without stamps they are `every` apart, by default as in the summary, else 1 s.

    Raises:
        TraceError: a line is invalid, or there is no reply and no number of probes.
    """
    lines = _classified(source)
    if not lines.replies and lines.sent + lines.silent > 0:
        return [_unanswered(source, options, lines)]
    log = _english_log(source, options, lines)
    try:
        times_s, rtt_ns = read_trace(log.text, "ping", "rtt", None)
    except SkybraidError as error:
        raise TraceError(f"{source.path}: {error}") from error
    times, start_unix_s, notes = np.asarray(times_s), log.start_unix_s, log.notes
    if log.even_s is not None:
        every_s = log.even_s if options.every_s is None else options.every_s
        times = times * every_s
        notes = (*notes, f"no stamps: probes taken as {every_s:g} s apart (--every, ping -D)")
    elif start_unix_s is not None:
        # The first reply's probe; lost ones before it were sent earlier.
        start_unix_s -= float(times[int(np.argmax(np.isfinite(rtt_ns)))])
    return [of_probes(source, times, np.asarray(rtt_ns) * 1e-6, start_unix_s, None, notes, is_paced=True)]


@dataclass(slots=True)
class _Lines:
    """Lines of a log, sorted by kind.

    Attributes:
        lines: all lines at their original line numbers; irrelevant ones are empty.
        replies: replies in the order of the log, each with its line number.
        headings: line numbers of the headings.
        silent: unanswered probes after the last reply, or of a log without replies.
        sent: number of probes in the summary, 0 without a summary.
        even_s: interval of the probes in s, from the summary's time.
    """

    lines: list[str]
    replies: list[_Reply] = field(default_factory=list)
    headings: list[int] = field(default_factory=list)
    silent: int = 0
    sent: int = 0
    even_s: float | None = None


def _unanswered(source: Source, options: Options, log: _Lines) -> Measurement:
    """Returns the probes of a log without any reply: all are lost."""
    count = max(log.sent, log.silent)
    every_s = options.every_s or log.even_s or 1.0
    stamps = [read_stamp(found["stamp"], zone_of(options)) for line in source.lines if (found := _SIZES.match(line))]
    known = [stamp for stamp in stamps[:1] if stamp is not None and stamp.is_dated]
    clock_s, assumed = clock_of(source, known) if known else (np.empty(0), ())
    start_unix_s = float(clock_s[0]) if known else None
    notes = (f"none of {count} probes was answered: taken as lost, {every_s:g} s apart", *assumed)
    times_s = np.arange(count, dtype=np.float64) * every_s
    return of_probes(source, times_s, np.full(count, np.inf), start_unix_s, count * every_s, notes)


def _english_log(source: Source, options: Options, log: _Lines) -> _Log:
    """Returns the log in the form that the scenario reader parses."""
    if not log.replies:
        return _Log(source.text, None, 1.0, ())
    replies = _with_points(source, log.replies)
    # A log whose beginning is missing lost no probe there.
    first = min(replies[0].sequence, 1) if log.headings else _first_number(replies[:5])
    stamps = [read_stamp(reply.stamp, zone_of(options)) for reply in replies]
    known = [stamp for stamp in stamps if stamp is not None]
    has_stamps = len(known) == len(stamps)
    clock_s, assumed = clock_of(source, known) if has_stamps else (np.empty(0), ())
    start_unix_s = float(clock_s[0]) - float(replies[0].rtt_ms) * 1e-3 if has_stamps and known[0].is_dated else None
    newest = number = 0
    for at, reply in enumerate(replies):
        ahead = reply.sequence - first
        number = unwrapped(ahead if log.headings else ahead % _ROUND, newest)
        newest = max(newest, number)
        stamp = f"[{clock_s[at]:.6f}] " if has_stamps else ""
        again = " (DUP!)" if reply.is_again else ""
        log.lines[reply.place] = f"{stamp}64 bytes from x: icmp_seq={number + 1} ttl=64 time={reply.rtt_ms} ms{again}"
    sent = log.sent
    if not log.headings:
        sent = sent - first + 1 if sent < _ROUND else 0
    sent = max(sent, number + log.silent + 1)
    kept = _english(log.lines, [*log.headings, *(reply.place for reply in replies)])
    even_s = None if has_stamps else log.even_s or 1.0
    return _Log("\n".join([*kept, f"{sent} packets transmitted"]), start_unix_s, even_s, assumed)


def _classified(source: Source) -> _Lines:
    """Finds replies, headings and the summary.

    Raises:
        TraceError: there are two logs.
    """
    log = _Lines(source.lines.copy())
    for at, line in enumerate(source.lines):
        if found := _REPLY.match(line):
            reply = _Reply(at, found["stamp"], int(found["seq"]), found["rtt"], "DUP" in found["rest"])
            log.replies.append(reply)
            log.silent = 0
        elif " bytes from " in line and source.drop_cut(at + 1):
            log.lines[at] = ""
        elif (probe := _SENT.search(line)) is not None:
            # No answer yet, or an ICMP error of a router.
            ahead = (int(probe["seq"]) - (log.replies[-1].sequence if log.replies else 0)) % _ROUND
            log.silent = max(log.silent, ahead if ahead < _ROUND // 2 else 0)
        elif _HEADING.search(line):
            if log.replies:
                source.fail(at + 1, f"`{line.strip()}`", "one log, its sequence numbers on one clock: a file for each")
            log.lines[at] = "PING x 56(84) bytes of data."
            log.headings.append(at)
        elif (summary := _SUMMARY.search(line)) and at + 1 < len(log.lines):
            # Numbers that a script wrote before both lines are no counts.
            log.sent, log.even_s = _parse_summary(log.lines[at + 1][summary.start() :])
    return log


def _parse_summary(summary: str) -> tuple[int, float | None]:
    """Parses a summary; returns the number of probes and their interval in s, None without a time."""
    count, took = re.search(r"\d+", summary), re.search(r"\b(\d+) ?ms\s*$", summary)
    sent = 0 if count is None else int(count[0])
    return sent, int(took[1]) * 1e-3 / (sent - 1) if took is not None and sent > 1 else None


def _with_points(source: Source, replies: list[_Reply]) -> list[_Reply]:
    """Returns the replies with decimal points.

    Raises:
        TraceError: some have decimal commas and some decimal points.
    """
    comma = next((reply for reply in replies if "," in reply.rtt_ms), None)
    if comma is None:
        return replies
    # Below 100 ms iputils writes decimals; in a language with decimal commas, all of them have one.
    if any(re.fullmatch(r"\d{1,2}(\.\d+)?", reply.rtt_ms) for reply in replies):
        source.fail(comma.place + 1, f"`{comma.rtt_ms}`", "decimals as in the other lines")
    return [reply._replace(rtt_ms=reply.rtt_ms.replace(",", ".")) for reply in replies]


def _first_number(replies: Sequence[_Reply]) -> int:
    """Returns the lowest sequence number of nearby replies, negative if the numbers wrapped."""
    origin = replies[0].sequence
    return origin + min((reply.sequence - origin + _ROUND // 2) % _ROUND - _ROUND // 2 for reply in replies)


def _english(lines: Sequence[str], places: Sequence[int]) -> list[str]:
    """Returns the lines without those that are not replies; damaged replies stay."""
    kept = set(places)
    return [line if at in kept or " bytes from " in line else "" for at, line in enumerate(lines)]

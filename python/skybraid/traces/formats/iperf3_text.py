"""Text output of iperf3 and iperf 2.

Source: iperf3's manual and its `report_bw_format` lines: `[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec`, with
`[SUM]` for several streams, `[TX-C]` and `[RX-C]` for both directions at once, `(omitted)`, and of a UDP receiver
`0.041 ms  3/8000 (0.037%)`. An interrupted server prints its last interval twice; iperf 2, and 3.1 of UDP, have a
summary without a word at its end.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from skybraid.model.heavy import np
from skybraid.traces.formats.source import Options, Source, from_zero, zone_of
from skybraid.traces.formats.stamps import read_stamp
from skybraid.traces.measurement import Column, Measurement

_LINE = re.compile(
    r"\[\s*(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<start>\d+\.\d+)-\s*(?P<end>\d+\.\d+)\s+sec\s+"
    r"[\d.]+\s+[KMGT]?Bytes\s+(?P<rate>[\d.]+)\s+(?P<unit>[KMGT]?(?:bits|Bytes)/sec)(?P<rest>.*)"
)
_LOST = re.compile(r"\s(?P<lost>-?\d+)/\s*(?P<packets>\d+)\s+\(")
_ERROR = re.compile(r"iperf3: (error - .*)")
_PREFIXES = " KMGT"

_BEGUN = ("Connecting to host", "Client connecting to", "Accepted connection from")
"""Words that begin a test in the log of a client or a server."""

_MIN_TAIL = 0.1
"""Minimum share of the usual interval for the last one: a shorter one has the rate of emptied buffers."""

OFFERED = (
    "the receiver's intervals (run with --get-server-output or -R, or import the log of the other end): a UDP sender "
    "knows what it offered, and nothing of what arrived"
)
"""Text on what is expected instead of the rates of a UDP sender."""


def recognises(source: Source) -> bool:
    """Whether the file has interval lines of iperf3, or its error."""
    first_lines = source.first_lines
    return not source.head.lstrip().startswith("{") and any(
        _LINE.search(line) or _ERROR.match(line) for line in first_lines
    )


@dataclass
class Interval:
    """Interval of a test.

    Attributes:
        line: number of its first line.
        start_s: start in s.
        end_s: end in s.
        streams: rate in Mbit/s, lost packets and total packets by stream, or of all streams as "SUM".
    """

    line: int
    start_s: float
    end_s: float
    streams: dict[str, tuple[float, int, int]] = field(default_factory=dict)

    @property
    def totals(self) -> tuple[float, int, int]:
        """Returns the rate in Mbit/s, lost packets and total packets of all streams."""
        own = [self.streams["SUM"]] if "SUM" in self.streams else list(self.streams.values())
        rates, lost, packets = zip(*own, strict=True)
        return sum(rates), sum(lost), sum(packets)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of a UDP receiver its loss; several tests with times are one series.

    Raises:
        TraceError: there are no intervals, several tests without times, or only the offered rate of a UDP sender.
    """
    tests = _tests(source.lines)
    run = [test for test in tests if any(_LINE.search(line) for line in test[1])] or tests[:1]
    if len(run) < len(tests):
        source.notes.append(f"{len(tests) - len(run)} of {len(tests)} tests without an interval")
    return in_series(source, [_read(source, first, lines, options) for first, lines in run])


def in_series(source: Source, tests: Sequence[list[Measurement]]) -> list[Measurement]:
    """Returns consecutive tests as one measurement per direction.

    Raises:
        TraceError: they have no times, overlap, or have different protocols.
    """
    if len(tests) == 1:
        return tests[0]
    every = [one for test in tests for one in test]
    found = []
    for label in dict.fromkeys(one.label for one in every):
        dated = [(one.start_unix_s, one) for one in every if one.label == label and one.start_unix_s is not None]
        if len(dated) < sum(one.label == label for one in every):
            source.fail(None, f"{len(tests)} tests without their times", "one test in a file, --timestamps or --json")
        if len(dated) == 1:
            found.append(dated[0][1])
            continue
        dated.sort(key=lambda pair: pair[0])
        own = [one for _, one in dated]
        start_s = dated[0][0]
        times_s = np.concatenate([one.times_s + (begun_s - start_s) for begun_s, one in dated])
        if (np.diff(times_s) <= 0).any():
            source.fail(None, "tests at the same time", "one after another, or a file for each")
        names = {tuple(column.name for column in one.columns) for one in own}
        if len(names) > 1:
            source.fail(None, "tests of TCP and of UDP", "one protocol in a file")
        columns = [
            replace(column, values=np.concatenate([one.columns[at].values for one in own]))
            for at, column in enumerate(own[0].columns)
        ]
        notes = [*dict.fromkeys(note for one in own for note in one.notes), f"{len(own)} tests, one after another"]
        end_s = dated[-1][0] - start_s + own[-1].length_s
        found.append(replace(own[0], times_s=times_s, columns=tuple(columns), end_s=end_s, notes=tuple(notes)))
    return found


def _tests(lines: Sequence[str]) -> list[tuple[int, Sequence[str]]]:
    """Splits a log into tests; returns the number of preceding lines and the lines of each.

    A test ends at the last interval before the next line such as "Connecting to host". Without such lines, a new test
    begins where the first interval of the previous test occurs again.
    """
    words = next((one for one in _BEGUN if any(one in line for line in lines)), None)
    cuts, starts, last, first = [0], 0, 0, ""
    for at, line in enumerate(lines):
        found = _LINE.search(line)
        if words is not None and words in line:
            starts += 1
            if starts > 1:
                cuts.append(last)
        elif found is not None:
            shown = "{role} {id} {start} {end}".format(**found.groupdict())
            first = first or shown
            if words is None and shown == first and last > cuts[-1] + 1:
                cuts.append(at)
            last = at + 1
        elif _ERROR.search(line):
            last = at + 1
    return [(one, lines[one:end]) for one, end in itertools.pairwise([*cuts, len(lines)])]


def _read(source: Source, first_line: int, all_lines: Sequence[str], options: Options) -> list[Measurement]:
    # With --get-server-output the server's log, of what arrived or was sent, follows that of the client.
    output = next((at for at, line in enumerate(all_lines) if line.strip().endswith("Server output:")), None)
    lines = all_lines if output is None else all_lines[output + 1 :]
    first = first_line + len(all_lines) - len(lines)
    is_udp = any("Total Datagrams" in line or "datagrams" in line for line in lines)
    intervals: dict[str, dict[float, Interval]] = defaultdict(dict)
    omitted = 0
    for number, line in enumerate(lines, start=first + 1):
        found = _LINE.search(line)
        if found is None or found["rest"].rstrip().endswith(("sender", "receiver")):
            continue
        if "(omitted)" in found["rest"]:
            omitted += 1
            continue
        _add_stream(intervals[found["role"] or ""], found, number)
    if not intervals:
        failed = next((found[1] for line in lines if (found := _ERROR.search(line))), "no intervals")
        source.fail(None, failed, "lines such as `[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec`")
    notes = [] if output is None else ["rates as the server received them"]
    if omitted:
        notes.append(f"{omitted} intervals left out, which iperf3 --omit marked")
    is_reverse = _is_reverse(source, all_lines, lines)
    if is_reverse is None:
        notes.append("neither end is named in the file: taken for the client's sending (else `downlink:FILE`)")
    by_direction = {}
    for role, by_start in intervals.items():
        # A server shows what it receives, unless the client asked for the reverse.
        sends = role.startswith("TX") == role.endswith("C") if role else not is_reverse
        by_direction[options.sent if sends else options.received] = list(by_start.values())
    start_unix_s = _start(lines, options)
    found_all = measurements(source, by_direction, notes, is_udp=is_udp)
    return [replace(one, start_unix_s=start_unix_s) for one in found_all]


def measurements(
    source: Source, by_direction: dict[str, list[Interval]], notes: list[str], *, is_udp: bool
) -> list[Measurement]:
    """Returns one measurement per direction of a test.

    Raises:
        TraceError: there is only the offered rate of a UDP sender, or times do not increase.
    """
    received = {}
    for direction, rows in by_direction.items():
        if is_udp and not any(one.totals[2] for one in rows):
            notes = [*notes, f"the {direction} left out: a UDP sender knows only what it offered"]
        else:
            received[direction] = rows
    if not received:
        source.fail(None, "UDP intervals of the sender", OFFERED)
    return [_measurement(source, direction, rows, notes) for direction, rows in received.items()]


def _is_reverse(source: Source, all_lines: Sequence[str], lines: Sequence[str]) -> bool | None:
    """Returns whether the server sends; None if the log does not show which end wrote it.

    Args:
        source: the file.
        all_lines: all lines of the test.
        lines: lines of the log that is read.

    Raises:
        TraceError: the directions of iperf 2 cannot be distinguished.
    """
    is_reverse = any("Reverse mode, remote host" in line for line in all_lines)
    is_server = any("Accepted connection from" in line or "Server listening on" in line for line in lines)
    if is_server and any("Client connecting to" in line for line in lines):
        source.fail(None, "both directions of iperf 2, whose streams cannot be distinguished", "one of them, or iperf3")
    if is_server and not is_reverse:
        # Only a sender has retransmissions and a congestion window.
        return any(re.search(r"Bitrate\s+Retr|Bandwidth\s+Retr", line) for line in lines)
    is_named = is_server or is_reverse or any(words in line for words in _BEGUN for line in lines)
    return is_reverse if is_named else None


def _start(lines: Sequence[str], options: Options) -> float | None:
    """Returns the Unix time in s at which the test began, from `--timestamps` or the time of `--verbose`."""
    for line in lines:
        if (verbose := re.search(r"Time: (\w{3}, \d.*)", line)) is not None:
            found = read_stamp(verbose[1], zone_of(options))
        elif (interval := _LINE.search(line)) is not None:
            found = read_stamp(line[: interval.start()], zone_of(options))
            if found is not None:
                found = found._replace(at_s=found.at_s - float(interval["end"]))
            elif line[: interval.start()].strip() == "":
                return None
        else:
            continue
        if found is not None and found.is_dated and not found.unknown_zone:
            return found.at_s
    return None


def _add_stream(by_start: dict[float, Interval], found: re.Match[str], number: int) -> None:
    """Adds a stream's line to its interval, unless the line repeats one or sums up the test."""
    start_s = float(found["start"])
    interval = by_start.setdefault(start_s, Interval(number, start_s, float(found["end"])))
    rate = float(found["rate"]) * _mbps_of(found["unit"])
    counts = _LOST.search(found["rest"])
    lost, packets = (0, 0) if counts is None else (max(int(counts["lost"]), 0), int(counts["packets"]))
    interval.streams.setdefault(found["id"], (rate, lost, packets))


def _mbps_of(unit: str) -> float:
    """Returns a unit's size in Mbit/s: prefixes of bits are powers of 1000, those of bytes of 1024 (`units.c`)."""
    power = max(_PREFIXES.find(unit[0]), 0)
    return 8e-6 * 1024.0**power if "Bytes" in unit else 1e-6 * 1000.0**power


def _measurement(source: Source, direction: str, rows: list[Interval], notes: list[str]) -> Measurement:
    lengths_s = [one.end_s - one.start_s for one in rows]
    if len(rows) > 1 and lengths_s[-1] < _MIN_TAIL * float(np.median(lengths_s)):
        rows = rows[:-1]
    times_s = from_zero(source, [one.start_s for one in rows], [one.line for one in rows])
    rates, lost, packets = np.array([one.totals for one in rows], dtype=np.float64).T
    if not np.isfinite(rates).all() or (rates < 0).any():
        source.fail(rows[int(np.argmin(rates))].line, "a rate below zero or infinite", "rates from 0")
    columns = [Column("rate", "Mbit/s", rates, direction)]
    if packets.any():
        # An interval without a packet carried nothing.
        share = np.where(packets > 0, lost / np.maximum(packets, 1), 1.0)
        columns.append(Column("loss", "%", 100 * np.clip(share, 0.0, 1.0), direction))
    end_s = max(rows[-1].end_s - rows[0].start_s, float(times_s[-1]) + 1e-9)
    return Measurement(str(source.path), times_s, tuple(columns), None, end_s, label=direction, notes=tuple(notes))

"""Output of iperf3 for people, and of iperf 2.

Source: iperf3's manual and its `report_bw_format` lines: `[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec`, with
`[SUM]` for several streams, `[TX-C]` and `[RX-C]` for both directions at once, `(omitted)`, and of a UDP receiver
`0.041 ms  3/8000 (0.037%)`. An interrupted server prints its last interval twice; iperf 2, and 3.1 of UDP, have a
summary without a word at its end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.formats.source import Options, Source, from_zero, zone_of
from skybraid.traces.formats.stamps import read_stamp
from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE = re.compile(
    r"\[\s*(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<start>\d+\.\d+)-\s*(?P<end>\d+\.\d+)\s+sec\s+"
    r"[\d.]+\s+[KMGT]?Bytes\s+(?P<rate>[\d.]+)\s+(?P<unit>[KMGT]?(?:bits|Bytes)/sec)(?P<rest>.*)"
)
_LOST = re.compile(r"\s(?P<lost>-?\d+)/\s*(?P<packets>\d+)\s+\(")
_ERROR = re.compile(r"iperf3: (error - .*)")
_SIZES = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}

_MIN_TAIL = 0.1
"""Share of the usual interval below which the last one only ends a test: its rate is that of emptied buffers."""

OFFERED = (
    "the receiver's intervals (run with --get-server-output or -R, or import the log of the other end): a UDP sender "
    "knows what it offered, and nothing of what arrived"
)
"""Expected instead of the rates of a UDP sender."""


def recognises(source: Source) -> bool:
    """Whether the file has interval lines of iperf3, or its error."""
    begins = source.begins
    return not source.head.lstrip().startswith("{") and any(_LINE.search(line) or _ERROR.match(line) for line in begins)


@dataclass
class Interval:
    """An interval of a test.

    Attributes:
        line: its first line.
        start_s: in s.
        end_s: in s.
        streams: rate in Mbit/s, packets lost and all packets by stream, or of all as "SUM".
    """

    line: int
    start_s: float
    end_s: float
    streams: dict[str, tuple[float, int, int]] = field(default_factory=dict)

    @property
    def totals(self) -> tuple[float, int, int]:
        """Returns the rate in Mbit/s, packets lost and all packets of all streams."""
        own = [self.streams["SUM"]] if "SUM" in self.streams else list(self.streams.values())
        rates, lost, packets = zip(*own, strict=True)
        return sum(rates), sum(lost), sum(packets)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of a UDP receiver its loss.

    Raises:
        TraceError: there are no intervals, several tests, or only what a UDP sender offered.
    """
    # With --get-server-output the server's log follows that of the client: it says what arrived, or was sent.
    output = next((at for at, line in enumerate(source.lines) if line.strip().endswith("Server output:")), None)
    first = 0 if output is None else output + 1
    lines = source.lines[first:]
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
        _take(intervals[found["role"] or ""], found, number)
    if not intervals:
        failed = next((found[1] for line in lines if (found := _ERROR.search(line))), "no intervals")
        source.fail(None, failed, "lines such as `[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec`")
    notes = [] if output is None else ["rates as the server received them"]
    if omitted:
        notes.append(f"{omitted} intervals left out, which iperf3 --omit marked")
    is_reverse = _is_reverse(source, lines, first)
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
    """Returns the measurement of each direction of a test.

    Raises:
        TraceError: there is only what a UDP sender offered, or times do not increase.
    """
    heard = {}
    for direction, rows in by_direction.items():
        if is_udp and not any(one.totals[2] for one in rows):
            notes = [*notes, f"the {direction} left out: a UDP sender knows only what it offered"]
        else:
            heard[direction] = rows
    if not heard:
        source.fail(None, "UDP intervals of the sender", OFFERED)
    return [_measurement(source, direction, rows, notes) for direction, rows in heard.items()]


def _is_reverse(source: Source, lines: Sequence[str], first: int) -> bool | None:
    """Returns whether the server sends; None where the file does not say whose log it is.

    Raises:
        TraceError: there are several tests.
    """
    begun = ("Connecting to host", "Accepted connection from", "Client connecting to")
    starts = [number for number, line in enumerate(lines, first + 1) if any(words in line for words in begun)]
    if len(starts) > 1:
        source.fail(starts[1], "a second test", "one test in a file")
    is_reverse = any("Reverse mode, remote host" in line for line in source.lines)
    is_server = any("Accepted connection from" in line or "Server listening on" in line for line in lines)
    if is_server and any("Client connecting to" in line for line in lines):
        source.fail(None, "both directions of iperf 2, whose streams are not told apart", "one of them, or iperf3")
    if is_server and not is_reverse:
        # Only a sender has retransmissions and a congestion window.
        return any(re.search(r"Bitrate\s+Retr|Bandwidth\s+Retr", line) for line in lines)
    return is_reverse if starts or is_server or is_reverse else None


def _start(lines: Sequence[str], options: Options) -> float | None:
    """Returns when the test began in s since 1970, from the stamps of `--timestamps` or the time of `--verbose`."""
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


def _take(by_start: dict[float, Interval], found: re.Match[str], number: int) -> None:
    """Adds a stream's line to its interval, unless it is a repetition or the summary of all."""
    start_s = float(found["start"])
    interval = by_start.setdefault(start_s, Interval(number, start_s, float(found["end"])))
    size = _SIZES[found["unit"][0] if found["unit"][0] in _SIZES else ""]
    rate = float(found["rate"]) * size * (8 if "Bytes" in found["unit"] else 1)
    counts = _LOST.search(found["rest"])
    lost, packets = (0, 0) if counts is None else (max(int(counts["lost"]), 0), int(counts["packets"]))
    interval.streams.setdefault(found["id"], (rate, lost, packets))


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

"""Output of iperf3 for people.

Source: iperf3's manual and its `report_bw_format` lines: `[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec`, with
`[SUM]` for several streams, `[TX-C]` and `[RX-C]` for both directions at once, `(omitted)`, and of a UDP receiver
`0.041 ms  3/8000 (0.037%)`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from skybraid.traces.formats.source import Options, Source, from_zero, zone_of
from skybraid.traces.formats.stamps import read_stamp
from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE = re.compile(
    r"\[\s*(?P<id>\d+|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<start>\d+\.\d+)-(?P<end>\d+\.\d+)\s+sec\s+"
    r"[\d.]+\s+[KMGT]?Bytes\s+(?P<rate>[\d.]+)\s+(?P<unit>[KMGT]?(?:bits|Bytes)/sec)(?P<rest>.*)"
)
_LOST = re.compile(r"\s(?P<lost>-?\d+)/(?P<packets>\d+)\s+\(")
_SIZES = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3, "T": 1e6}


OFFERED = (
    "expected the receiver's intervals (run with --get-server-output or -R, or import the log of the other end): a UDP "
    "sender knows what it offered, and nothing of what arrived"
)
"""Why rates of a UDP sender are refused."""


def recognises(source: Source) -> bool:
    """Whether the file has interval lines of iperf3."""
    return not source.head.lstrip().startswith("{") and any(_LINE.search(line) for line in source.begins)


@dataclass
class _Interval:
    line: int
    end_s: float
    rate: float = 0.0
    lost: int = 0
    packets: int = 0
    is_sum: bool = False


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of a UDP receiver its loss.

    Raises:
        TraceError: there are no intervals, several tests, or only what a UDP sender offered.
    """
    is_reverse = any("Reverse mode, remote host" in line for line in source.lines)
    # With --get-server-output the server's log follows that of the client: it says what arrived, or was sent.
    output = next((at for at, line in enumerate(source.lines) if line.strip().endswith("Server output:")), None)
    first = 0 if output is None else output + 1
    lines = source.lines[first:]
    is_udp, is_server = False, any("Accepted connection from" in line for line in lines)
    intervals: dict[str, dict[float, _Interval]] = defaultdict(dict)
    omitted, tests = 0, 0
    for number, line in enumerate(lines, start=first + 1):
        tests += "Connecting to host" in line or "Accepted connection from" in line
        if tests > 1:
            source.fail(number, "a second test", "one test in a file")
        if "Total Datagrams" in line:
            is_udp = True
        found = _LINE.search(line)
        if found is None or found["rest"].rstrip().endswith(("sender", "receiver")):
            continue
        if "(omitted)" in found["rest"]:
            omitted += 1
            continue
        _take(intervals[found["role"] or ""], found, number)
    notes: tuple[str, ...] = () if omitted == 0 else (f"{omitted} intervals left out, which iperf3 --omit marked",)
    if output is not None:
        notes += ("rates as the server received them",)
    if not intervals:
        source.fail(None, "no intervals", "lines such as `[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec`")
    measurements = []
    start_unix_s = _start(lines, options)
    for role, by_start in intervals.items():
        # A server shows what it receives, unless the client asked for the reverse.
        sends = role.startswith("TX") == role.endswith("C") if role else not is_reverse
        if is_udp and not any(one.packets for one in by_start.values()):
            source.fail(None, "UDP intervals of the sender", OFFERED.removeprefix("expected "))
        knows_loss = is_udp and (is_server or is_reverse or role.startswith("RX"))
        direction = options.sent if sends else options.received
        one = _measurement(source, direction, by_start, notes, knows_loss=knows_loss)
        measurements.append(replace(one, start_unix_s=start_unix_s))
    return measurements


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
        if found is not None and found.is_dated:
            return found.at_s
    return None


def _take(by_start: dict[float, _Interval], found: re.Match[str], number: int) -> None:
    """Adds a stream's line to its interval; the line of all streams takes their place."""
    start_s, is_sum = float(found["start"]), found["id"] == "SUM"
    interval = by_start.setdefault(start_s, _Interval(number, float(found["end"])))
    if interval.is_sum and not is_sum:
        return
    if is_sum and not interval.is_sum:
        interval.rate, interval.lost, interval.packets, interval.is_sum = 0.0, 0, 0, True
    size = _SIZES[found["unit"][0] if found["unit"][0] in _SIZES else ""]
    interval.rate += float(found["rate"]) * size * (8 if "Bytes" in found["unit"] else 1)
    if lost := _LOST.search(found["rest"]):
        interval.lost += max(int(lost["lost"]), 0)
        interval.packets += int(lost["packets"])


def _measurement(
    source: Source, direction: str, by_start: dict[float, _Interval], notes: tuple[str, ...], *, knows_loss: bool
) -> Measurement:
    rows = list(by_start.items())
    times_s = from_zero(source, [start_s for start_s, _ in rows], [one.line for _, one in rows])
    columns = [Column("rate", "Mbit/s", np.array([one.rate for _, one in rows]), direction)]
    if knows_loss:
        shares = [100 * min(one.lost / one.packets, 1.0) if one.packets else 100.0 for _, one in rows]
        columns.append(Column("loss", "%", np.array(shares), direction))
    end_s = max(rows[-1][1].end_s - rows[0][0], float(times_s[-1]) + 1e-9)
    return Measurement(str(source.path), times_s, tuple(columns), None, end_s, label=direction, notes=notes)

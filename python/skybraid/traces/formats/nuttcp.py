"""Interval reports of nuttcp (`-i`).

Source: nuttcp's `PERF_FMT_INTERVAL`, `DROP_FMT_INTERVAL` and `LOSS_FMT_INTERVAL`:
`   11.1875 MB /   1.00 sec =   93.8473 Mbps     3 retrans`, and of UDP `    40 /  5537 ~drop/pkt  0.72 ~%loss`. The
receiver reports, whichever end prints.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_LINE = re.compile(
    r"(?P<volume>[\d.]+) MB /\s+(?P<seconds>[\d.]+) sec =\s+(?P<rate>[\d.]+) (?P<unit>[KMG]?)bps(?P<rest>.*)"
)
_PARSED = re.compile(
    r"megabytes=(?P<volume>[\d.]+) real_sec=(?P<seconds>[\d.]+) rate_(?P<unit>[KMG]?)bps=(?P<rate>[\d.]+)(?P<rest>.*)"
)
_DROPS = re.compile(r"(?P<drops>-?\d+) /\s+(?P<packets>\d+) ~?drop/pkt|drop=(?P<dropped>-?\d+) pkt=(?P<all>\d+)")
_SIZES = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3}


def recognises(source: Source) -> bool:
    """Whether the file has interval lines of nuttcp."""
    return any(_LINE.search(line) or _PARSED.match(line) for line in source.first_lines)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of UDP its loss. Without `-r`, the client sends.

    Raises:
        TraceError: there are no intervals.
    """
    starts_s, rates, shares, at_s = [], [], [], 0.0
    for number, line in enumerate(source.lines, start=1):
        found = _LINE.search(line) or _PARSED.match(line.strip())
        if found is None or "%TX" in found["rest"]:
            continue
        starts_s.append(at_s)
        seconds = float(found["seconds"])
        if seconds <= 0:
            source.fail(number, f"an interval of {seconds:g} s", "more than 0 s")
        at_s += seconds
        rates.append(float(found["rate"]) * _SIZES[found["unit"]])
        if drops := _DROPS.search(found["rest"]):
            packets, lost = int(drops["packets"] or drops["all"]), int(drops["drops"] or drops["dropped"])
            # Packets that arrive late make an interval's drops negative.
            shares.append(100 * min(max(lost, 0) / packets, 1.0) if packets else 100.0)
    if not starts_s:
        source.fail(None, "no intervals", "lines such as `11.1875 MB /   1.00 sec =   93.8473 Mbps` (nuttcp -i)")
    # With -v, the printing end first names itself as transmitter or receiver.
    ends = [found[0] for line in source.lines if (found := re.match(r"nuttcp-[tr](?=: v)", line.strip()))]
    direction = options.received if ends[:1] == ["nuttcp-r"] else options.sent
    columns = [Column("rate", "Mbit/s", np.array(rates), direction)]
    if len(shares) == len(rates):
        columns.append(Column("loss", "%", np.array(shares), direction))
    assumed = (
        f"nuttcp does not say who sent: taken for the client's sending, the {direction} (else `downlink:FILE`, -v)"
    )
    notes = () if ends else (assumed,)
    return [Measurement(str(source.path), np.array(starts_s), tuple(columns), None, at_s, notes=notes)]

"""Interval reports of nuttcp (`-i`).

Source: nuttcp's `PERF_FMT_INTERVAL`, `DROP_FMT_INTERVAL` and `LOSS_FMT_INTERVAL`:
`   11.1875 MB /   1.00 sec =   93.8473 Mbps     3 retrans`, and of UDP `    40 /  5537 ~drop/pkt  0.72 ~%loss`. The
receiver reports, whichever end prints.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_LINE = re.compile(
    r"(?P<volume>[\d.]+) MB /\s+(?P<seconds>[\d.]+) sec =\s+(?P<rate>[\d.]+) (?P<unit>[KMG]?)bps(?P<rest>.*)"
)
_DROPS = re.compile(r"(?P<drops>-?\d+) /\s+(?P<packets>\d+) ~?drop/pkt")
_SIZES = {"": 1e-6, "K": 1e-3, "M": 1.0, "G": 1e3}


def recognises(source: Source) -> bool:
    """Whether the file has interval lines of nuttcp."""
    return any(_LINE.search(line) for line in source.begins)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate of each interval, and of UDP its loss. Without `-r`, the client sends.

    Raises:
        TraceError: there are no intervals.
    """
    starts_s, rates, shares, at_s = [], [], [], 0.0
    for number, line in enumerate(source.lines, start=1):
        found = _LINE.search(line)
        if found is None or "%TX" in found["rest"]:
            continue
        starts_s.append(at_s)
        seconds = float(found["seconds"])
        if seconds <= 0:
            source.fail(number, f"an interval of {seconds:g} s", "more than 0 s")
        at_s += seconds
        rates.append(float(found["rate"]) * _SIZES[found["unit"]])
        if drops := _DROPS.search(found["rest"]):
            packets = int(drops["packets"])
            # Packets that arrive late make an interval's drops negative.
            shares.append(100 * min(max(int(drops["drops"]), 0) / packets, 1.0) if packets else 100.0)
    if not starts_s:
        source.fail(None, "no intervals", "lines such as `11.1875 MB /   1.00 sec =   93.8473 Mbps` (nuttcp -i)")
    columns = [Column("rate", "Mbit/s", np.array(rates), options.sent)]
    if len(shares) == len(rates):
        columns.append(Column("loss", "%", np.array(shares), options.sent))
    notes = (f"nuttcp does not say who sent: taken for the client's sending, the {options.sent}",)
    return [Measurement(str(source.path), np.array(starts_s), tuple(columns), None, at_s, notes=notes)]

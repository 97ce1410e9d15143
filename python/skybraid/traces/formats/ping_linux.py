"""Output of `ping` of iputils and busybox on Linux, parsed by the reader that scenarios use.

Source: `crates/link/src/trace/ping.rs`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from skybraid._core import SkybraidError, read_trace
from skybraid.traces.formats.probes import of_probes
from skybraid.traces.formats.source import Options, Source, unix_time, zone_of
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.measurement import Measurement

_REPLY = re.compile(
    r"(?:\[(?P<stamp>[^\]]+)\] )?\d+ bytes from .*(?:icmp_seq|icmp_req|seq)=\d+.*time[=<](?P<rtt>[\d.]+)"
)


def recognises(source: Source) -> bool:
    """Whether the file is the output of Linux's ping."""
    is_ping = any(
        (line.startswith("PING ") and " bytes of data" in line) or _REPLY.search(line) for line in source.begins
    )
    return is_ping and not any(": icmp_seq" in line and "data bytes" in source.head for line in source.begins)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes; without stamps they are `every` apart, by default 1 s.

    Raises:
        TraceError: a line is invalid, or there is no reply.
    """
    try:
        times_s, rtt_ns = read_trace(source.text, "ping", "rtt", None)
    except SkybraidError as error:
        raise TraceError(f"{source.path}: {error}") from error
    found = next((match for line in source.lines if (match := _REPLY.search(line))), None)
    start_unix_s: float | None = None
    notes: tuple[str, ...] = ()
    times = np.asarray(times_s)
    if found is not None and found["stamp"] is not None:
        arrived_s = unix_time(found["stamp"], zone_of(options))
        # The first reply's probe; lost ones before it were sent earlier.
        answered = int(np.argmax(np.isfinite(rtt_ns)))
        if arrived_s is not None:
            start_unix_s = arrived_s - float(found["rtt"]) * 1e-3 - float(times[answered])
    else:
        every_s = 1.0 if options.every_s is None else options.every_s
        times = times * every_s
        notes = (f"no stamps: probes taken as {every_s:g} s apart (--every, ping -D)",)
    return [of_probes(source, times, np.asarray(rtt_ns) * 1e-6, start_unix_s, None, notes)]

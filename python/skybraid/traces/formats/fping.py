"""Output of `fping -l` or `-c`, with stamps (`-D`) or without.

Source: fping(8): `[1683995463.5] 8.8.8.8 : [0], 64 bytes, 78.0 ms (78.0 avg, 0% loss)` and `8.8.8.8 : [1], timed out
(78.0 avg, 50% loss)`; probes of a target are numbered from 0.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from skybraid.traces.formats.probes import even_probes, stamped_probes
from skybraid.traces.formats.source import MAX_ROWS, Options, Source, number_of, zone_of
from skybraid.traces.formats.stamps import Stamp, read_stamp

if TYPE_CHECKING:
    from skybraid.traces.measurement import Measurement

_LINE = re.compile(
    r"(?:\[(?P<stamp>[^\]]+)\]\s*)?(?P<host>\S+)\s+: \[(?P<seq>\d+)\], "
    r"(?:\d+ bytes, (?P<rtt>\S+) ms|(?P<lost>timed out))"
)


def recognises(source: Source) -> bool:
    """Whether the file is per-probe output of fping."""
    return any(_LINE.match(line) for line in source.first_lines)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the probes of a single target.

    Raises:
        TraceError: a line is invalid, or there are several targets.
    """
    rtt_ms: dict[int, float] = {}
    stamps: dict[int, Stamp] = {}
    target = ""
    for number, line in enumerate(source.lines, start=1):
        found = _LINE.match(line.strip())
        if found is None:
            if " : [" in line:
                source.drop_cut(number)
            continue
        if target not in ("", found["host"]):
            source.fail(number, f"`{found['host']}` after `{target}`", "one target in a file")
        target, sequence = found["host"], int(found["seq"])
        if sequence > MAX_ROWS:
            source.fail(number, f"[{sequence}]", f"fewer than {MAX_ROWS} probes")
        answered_ms = math.inf if found["lost"] else number_of(source, number, found["rtt"], "a round trip in ms")
        if math.isfinite(rtt_ms.get(sequence, math.inf)):
            # Of several replies the first counts.
            continue
        rtt_ms[sequence] = answered_ms
        if found["stamp"] and (stamp := read_stamp(found["stamp"], zone_of(options))) is not None:
            stamps[sequence] = stamp
    if all(math.isinf(value) for value in rtt_ms.values()):
        source.fail(None, "no reply", "lines such as `8.8.8.8 : [0], 64 bytes, 12.3 ms (12.3 avg, 0% loss)`")
    first, last = min(rtt_ms), max(rtt_ms)
    if len(stamps) == len(rtt_ms):
        rtt_ms = {number - first: value for number, value in rtt_ms.items()}
        stamps = {number - first: stamp for number, stamp in stamps.items()}
        return [stamped_probes(source, rtt_ms, stamps, last - first, is_paced=True)]
    every_s = 1.0 if options.every_s is None else options.every_s
    notes = (f"no stamps: probes taken as {every_s:g} s apart (--every, fping -D)",)
    return [even_probes(source, rtt_ms, first, last, every_s, notes)]

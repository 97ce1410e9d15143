"""The formats that a scenario reads too: CSV with units, mahimahi, Hypatia, Parquet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from skybraid.traces import reading
from skybraid.traces.formats.source import unix_time
from skybraid.traces.measurement import Column, Measurement
from skybraid.traces.series import Trace, TraceError

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_STARTS = "# starts at "


def recognises_csv(source: Source) -> bool:
    """Whether the first line names columns with units, and the times are numbers."""
    first = next((line for line in source.begins if not line.startswith("#")), "")
    return bool(re.match(r'"?(time|t)\b', first, re.IGNORECASE)) and "[" in first


def recognises_mahimahi(source: Source) -> bool:
    """Whether the name says so, or lines are whole numbers that can be the ms of opportunities."""
    if source.path.suffix in {".up", ".down"}:
        return True
    begins = source.begins
    if not begins or not all(re.fullmatch(r"\d+", line) for line in begins[:-1] or begins):
        return False
    return reading.is_opportunities(source.text)


def recognises_hypatia(source: Source) -> bool:
    """Whether lines are those of Hypatia's series."""
    begins = source.begins[:5]
    forms = (r"\d+,\d+,\d+", r"\d+,\d+\.\d{10}")
    return bool(begins) and any(all(re.fullmatch(form, line) for line in begins) for form in forms)


def recognises_parquet(source: Source) -> bool:
    """Whether the file is Parquet."""
    return source.data[:4] == b"PAR1"


def read_csv(source: Source, options: Options) -> list[Measurement]:
    """Reads every column whose heading has a unit that a link knows."""
    del options
    first = next((line for line in source.lines if line.strip() and not line.startswith("#")), "")
    headings = reading.headings_of(first)
    traces = {}
    left_out = []
    for number, heading in enumerate(headings[1:], start=2):
        try:
            traces[heading] = reading.read(source.path, number, None, "csv")
        except TraceError as error:
            if "expected one of" not in str(error) and "states no unit" not in str(error):
                raise
            left_out.append(heading)
    if not traces:
        source.fail(None, f"`{first.strip()}`", "a column with a unit of a rate, a time or a loss")
    notes = (f"columns left out: {', '.join(left_out)}",) if left_out else ()
    columns = tuple(_column(heading, trace) for heading, trace in traces.items())
    one = next(iter(traces.values()))
    # `trace import` keeps the date of the first row in a comment.
    begun = next((line for line in source.lines if line.startswith(_STARTS)), None)
    start_s = None if begun is None else unix_time(begun.removeprefix(_STARTS), None)
    return [Measurement(str(source.path), one.times_s, columns, start_s, one.end_s, is_sampled=False, notes=notes)]


def read_mahimahi(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate in steps of 100 ms."""
    direction = {".up": "uplink", ".down": "downlink"}.get(source.path.suffix, options.sent)
    return [_of(source, reading.read(source.path, format="mahimahi"), direction)]


def read_hypatia(source: Source, options: Options) -> list[Measurement]:
    """Reads the round-trip times."""
    del options
    return [_of(source, reading.read(source.path, format="hypatia"), "")]


def read_parquet(source: Source, options: Options) -> list[Measurement]:
    """Reads the first column that is not the time."""
    del options
    return [_of(source, reading.read(source.path, format="parquet"), "")]


def _of(source: Source, trace: Trace, direction: str) -> Measurement:
    column = Column(trace.quantity, trace.unit, trace.values, direction)
    return Measurement(str(source.path), trace.times_s, (column,), None, trace.end_s, is_sampled=False)


def _column(heading: str, trace: Trace) -> Column:
    name = heading.partition("[")[0].strip()
    # As `trace import` and `trace join` write them: "uplink rate", "lte downlink delay".
    own = re.fullmatch(r"(?:(.+) )?(rate|delay|rtt|loss|round_trip_loss)", name)
    if own is not None:
        return Column(own[2], trace.unit, trace.values, own[1] or "")
    lower = name.lower()
    direction = "downlink" if "down" in lower else "uplink" if re.search(r"uplink|upload", lower) else ""
    is_round_trip = trace.quantity == "loss" and "round" in lower
    return Column("round_trip_loss" if is_round_trip else trace.quantity, trace.unit, trace.values, direction)

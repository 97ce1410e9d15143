"""The formats that a scenario reads too: CSV with units, mahimahi, Hypatia, Parquet."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces import reading
from skybraid.traces.formats import dish, table
from skybraid.traces.formats.source import unix_time
from skybraid.traces.formats.table import Meaning, meaning_of
from skybraid.traces.measurement import Column, Measurement
from skybraid.traces.series import Trace, TraceError

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_STARTS = "# starts at "

_UNKNOWN = re.compile(
    r"^\d[^\n#]*[,;\t][ ]*(?:na|n/a|nan|null|none|--?)?[ ]*(?:[,;\t][^\n]*)?$", re.IGNORECASE | re.MULTILINE
)
"""A row with a cell that was not measured, which the scenario's reader has no value for."""

_DECIMAL_COMMA = re.compile(r"^\d+(?:,\d+)?[;\t](?:[^\n]*[;\t])?\d+,\d+(?:[;\t]|$)", re.MULTILINE)
"""A row of columns that are parted by semicolons or tabs, with a decimal comma."""

_EVEN, _JITTER = 0.9, 0.1
"""Share of rows, and how far they may be from the median interval, of a series without pauses of its own."""


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
    return source.data[:4] == b"PAR1" and not dish.recognises(source)


def read_csv(source: Source, options: Options) -> list[Measurement]:
    """Reads every column whose heading has a unit that a link knows, or those that the user names.

    Columns of one kind keep their names, as those of `trace join`: `att rate [Mbit/s]`.
    """
    # `trace import` keeps the date of the first row in a comment.
    begun = next((line for line in source.lines if line.startswith(_STARTS)), None)
    start_s = None if begun is None else unix_time(begun.removeprefix(_STARTS), None)
    first = next((line for line in source.lines if line.strip() and not line.startswith("#")), "")
    headings = reading.headings_of(first)
    is_cut = source.cut_line is not None and len(reading.headings_of(source.lines[-1])) < len(headings)
    if is_cut or _UNKNOWN.search(source.text) or _DECIMAL_COMMA.search(source.text):
        # The scenario's reader, which knows none of these, would refuse them.
        return [replace(one, start_unix_s=start_s) for one in table.read(source, options)]
    given = _given(source, headings, options)
    traces: list[tuple[str, Trace]] = []
    left_out = []
    for number, heading in enumerate(headings[1:], start=2):
        if given and heading not in given:
            left_out.append(heading)
            continue
        try:
            unit = given[heading].unit if given else None
            traces.append((heading, reading.read(source.path, number, unit, "csv", options.lost)))
        except TraceError as error:
            if given or ("expected one of" not in str(error) and "states no unit" not in str(error)):
                raise
            left_out.append(heading)
    if not traces:
        source.fail(None, f"`{first.strip()}`", "a column with a unit of a rate, a time or a loss")
    notes = (f"columns left out: {', '.join(left_out)}",) if left_out else ()
    columns = [
        Column(given[heading].quantity, trace.unit, trace.values, given[heading].direction)
        if given
        else _column(heading, trace)
        for heading, trace in traces
    ]
    kinds = [(column.quantity, column.direction) for column in columns]
    columns = [
        replace(column, direction=f"{_name(heading)} {column.direction}".strip())
        if kinds.count((column.quantity, column.direction)) > 1 and _name(heading) != column.name
        else column
        for (heading, _), column in zip(traces, columns, strict=True)
    ]
    one = traces[0][1]
    return [Measurement(str(source.path), one.times_s, tuple(columns), start_s, one.end_s, _is_even(one), notes=notes)]


def _given(source: Source, headings: list[str], options: Options) -> dict[str, Meaning]:
    """Returns what the user says of columns, by their heading; a column may be named without its unit."""
    found = {}
    for name, text in options.columns.items():
        heading = next((one for one in headings if name in (one, _name(one))), None)
        if heading is None:
            listed = ", ".join(f"`{one}`" for one in headings)
            raise TraceError(f"{source.path}: --as: found no column `{name}`; expected one of {listed}")
        found[heading] = meaning_of(text)
    return found


def _name(heading: str) -> str:
    return heading.partition("[")[0].strip()


def _is_even(trace: Trace) -> bool:
    """Whether nearly all rows are one interval apart, so that a longer one is a gap."""
    steps_s = np.diff(trace.times_s)
    return len(steps_s) > 1 / (1 - _EVEN) and bool(
        (np.abs(steps_s / float(np.median(steps_s)) - 1) < _JITTER).mean() >= _EVEN
    )


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
    name = _name(heading)
    # As `trace import` and `trace join` write them: "uplink rate", "lte downlink delay".
    own = re.fullmatch(r"(?:(.+) )?(rate|delay|rtt|loss|round_trip_loss)", name)
    if own is not None:
        return Column(own[2], trace.unit, trace.values, own[1] or "")
    lower = name.lower()
    direction = "downlink" if "down" in lower else "uplink" if re.search(r"uplink|upload", lower) else ""
    is_round_trip = trace.quantity == "loss" and "round" in lower
    return Column("round_trip_loss" if is_round_trip else trace.quantity, trace.unit, trace.values, direction)

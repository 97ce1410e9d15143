"""Formats that scenarios read too: CSV with units, mahimahi, Hypatia, Parquet."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from skybraid.traces import reading
from skybraid.traces.formats import dish, records, table
from skybraid.traces.formats.source import unix_time
from skybraid.traces.measurement import Column, Measurement, is_even

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source
    from skybraid.traces.series import Trace

_STARTS = "# starts at "


def recognises_csv(source: Source) -> bool:
    """Whether the first line names columns with units, and the times are numbers."""
    first = next((line for line in source.first_lines if not line.startswith("#")), "")
    return bool(re.match(r'"?(time|t)\b', first, re.IGNORECASE)) and "[" in first


def recognises_mahimahi(source: Source) -> bool:
    """Whether the name says so, or the lines are integers that can be times of opportunities in ms."""
    if source.path.suffix in {".up", ".down"}:
        return True
    first_lines = source.first_lines
    if not first_lines or not all(re.fullmatch(r"\d+", line) for line in first_lines[:-1] or first_lines):
        return False
    return reading.is_opportunities(source.text)


def recognises_hypatia(source: Source) -> bool:
    """Whether the lines are a series of Hypatia."""
    return reading.is_hypatia(source.first_lines[:5])


def recognises_parquet(source: Source) -> bool:
    """Whether the file is Parquet."""
    return records.is_parquet(source) and not dish.recognises(source)


def read_csv(source: Source, options: Options) -> list[Measurement]:
    """Reads every column whose heading has a unit of a link quantity, or the columns that the user names.

    Several columns of one quantity keep their names, as `trace join` writes them: `att rate [Mbit/s]`.
    """
    (found,) = table.read(source, options, has_units=True)
    # `trace import` keeps the date of the first row in a comment.
    begun = next((line for line in source.lines if line.startswith(_STARTS)), None)
    start_s = found.start_unix_s if begun is None else unix_time(begun.removeprefix(_STARTS), None)
    return [replace(found, start_unix_s=start_s, is_sampled=is_even(found.times_s))]


def read_mahimahi(source: Source, options: Options) -> list[Measurement]:
    """Reads the rate in steps of 100 ms."""
    direction = {".up": "uplink", ".down": "downlink"}.get(source.path.suffix, options.sent)
    return [_measurement(source, reading.read_text(source.path, None, None, "mahimahi"), direction)]


def read_hypatia(source: Source, options: Options) -> list[Measurement]:
    """Reads the round-trip times."""
    del options
    return [_measurement(source, reading.read_text(source.path, None, None, "hypatia"), "")]


def read_parquet(source: Source, options: Options) -> list[Measurement]:
    """Reads Parquet columns in the same way as those of CSV."""
    (found,) = table.read(source, options, has_units=True)
    return [replace(found, is_sampled=is_even(found.times_s))]


def _measurement(source: Source, trace: Trace, direction: str) -> Measurement:
    column = Column(trace.quantity, trace.unit, trace.values, direction)
    return Measurement(str(source.path), trace.times_s, (column,), None, trace.end_s, is_sampled=False)

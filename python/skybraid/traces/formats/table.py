"""Columns with dates: CSV of one's own scripts, with zones and gaps.

The first column that holds dates (ISO 8601, or s, ms, us or ns since 1970) is the time. What a column holds follows
from its heading where that names quantity and unit (`dl_mbps`, `rtt [ms]`, `Upload (kbit/s)`, `loss_pct`); `--as` says
it otherwise. A cell that is empty or says `NA`, `nan`, `null` or `-` was not measured.
"""

from __future__ import annotations

import csv
import re
from typing import NamedTuple

import numpy as np

from skybraid.traces.formats.source import (
    Options,
    Source,
    from_zero,
    has_zone,
    optional_number,
    range_of,
    unit_scale,
    unix_time,
    zone_of,
)
from skybraid.traces.measurement import NETWORK, Column, Measurement
from skybraid.traces.series import UNIT_OF, TraceError

_UNITS = {
    "gbps": "Gbit/s", "mbps": "Mbit/s", "kbps": "kbit/s", "bps": "bit/s", "gbit/s": "Gbit/s", "mbit/s": "Mbit/s",
    "kbit/s": "kbit/s", "bit/s": "bit/s", "ms": "ms", "msec": "ms", "us": "us", "µs": "us", "ns": "ns", "s": "s",
    "sec": "s", "seconds": "s", "milliseconds": "ms", "%": "%", "pct": "%", "percent": "%", "ratio": "ratio",
    "ppm": "ppm",
}  # fmt: skip
_QUANTITIES = (
    ("round_trip_loss", r"round.?trip.?loss|ping.?loss|probe.?loss"),
    ("rtt", r"rtt|round.?trip|ping|latency"),
    ("delay", r"delay|owd|one.?way"),
    ("loss", r"loss|lost|drop"),
    ("rate", r"rate|throughput|bandwidth|bitrate|speed|goodput|capacity|download|upload|\bdl\b|\bul\b|dl_|ul_"),
)
_DIRECTIONS = (("downlink", r"down|\bdl\b|dl_|_dl|\brx\b"), ("uplink", r"up(load|link|$|_|\b)|\bul\b|ul_|_ul|\btx\b"))


class Meaning(NamedTuple):
    """Quantity of a column, its unit, and the factor to the quantity's own unit."""

    quantity: str
    direction: str
    scale: float
    unit: str


def recognises(source: Source) -> bool:
    """Whether the file is a table, one column of which holds dates."""
    begins = [line for line in source.begins if not line.startswith("#")]
    if len(begins) < 2:
        return False
    headings, cells = (_cells(line, _separator(begins[0])) for line in begins[:2])
    return len(headings) > 1 and any(unix_time(cell, None) is not None for cell in cells)


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the columns whose meaning is known; the others are named in a note.

    Raises:
        TraceError: a line is invalid, a date has no zone, or the meaning of no column is known.
    """
    rows = [(n, line) for n, line in enumerate(source.lines, start=1) if line.strip() and not line.startswith("#")]
    if len(rows) < 2:
        source.fail(None, "no rows", "headings and a row at least")
    separator = _separator(rows[0][1])
    headings = _cells(rows[0][1], separator)
    if any(unix_time(cell, None) is not None for cell in headings):
        # Without headings columns have their numbers.
        headings = [str(number) for number in range(1, len(headings) + 1)]
        rows.insert(0, (0, ""))
    elif options.columns and all(name.isdecimal() and name not in headings for name in options.columns):
        # Columns by number, whatever the headings are.
        headings = [str(number) for number in range(1, len(_cells(rows[1][1], separator)) + 1)]
    first = _cells(rows[1][1], separator)
    place = next((place for place, cell in enumerate(first) if unix_time(cell, None) is not None), None)
    if place is None:
        source.fail(rows[1][0], f"`{rows[1][1]}`", "a column of dates, such as 2026-05-13T12:31:03+02:00")
    meanings = _meanings(source, headings, place, options)
    zone, is_zoned = zone_of(options), options.zone is not None
    times_s: list[float] = []
    values: list[list[float]] = []
    for number, line in rows[1:]:
        cells = _cells(line, separator)
        if len(cells) != len(headings):
            source.fail(number, f"{len(cells)} cells", f"{len(headings)}, as many as headings")
        at_s = unix_time(cells[place], zone)
        if at_s is None:
            source.fail(number, f"`{cells[place]}`", "a date and time")
        if not is_zoned and not has_zone(cells[place]):
            source.fail(number, f"`{cells[place]}` without a zone", "a zone in the file, or --zone (UTC is one)")
        times_s.append(at_s)
        values.append([_value(source, number, cells[column], headings[column]) for column in meanings])
    table = np.array(values)
    columns = []
    for (_, meaning), raw in zip(meanings.items(), table.T, strict=True):
        scaled = raw * meaning.scale
        if options.lost is not None and meaning.quantity in ("rtt", "delay"):
            scaled = np.where(raw == options.lost, np.inf, scaled)
        low, high = range_of(meaning.quantity)
        is_lost = np.isinf(raw) & (meaning.quantity in ("rtt", "delay")) | (scaled == np.inf) & (raw == options.lost)
        bad = (scaled < low) | (scaled > high) & ~is_lost
        if bad.any():
            row = int(np.argmax(bad))
            source.fail(rows[row + 1][0], f"{raw[row]:g} as {meaning.quantity}", "a value in range (--lost -1: lost)")
        columns.append(Column(meaning.quantity, UNIT_OF[NETWORK[meaning.quantity]], scaled, meaning.direction))
    ignored = [heading for at, heading in enumerate(headings) if at not in meanings and at != place]
    notes = (f"columns left out: {', '.join(ignored)} (--as 'NAME=downlink rate [Mbit/s]')",) if ignored else ()
    lines = [number for number, _ in rows[1:]]
    expected = "increasing times (in autumn, local times repeat an hour: use UTC)"
    found_s = from_zero(source, times_s, lines, expected)
    return [Measurement(str(source.path), found_s, tuple(columns), times_s[0], notes=notes)]


def meaning_of(text: str) -> Meaning:
    """Returns what the user says that a column holds: "downlink rate [Mbit/s]".

    Raises:
        TraceError: it is no quantity, or not a unit of it.
    """
    found = re.fullmatch(r"(?:(uplink|downlink) )?(\w+) \[([^\]]+)\]", text.strip())
    quantities = ", ".join(NETWORK)
    if found is None or found[2] not in NETWORK:
        raise TraceError(f"--as: found `{text}`; expected `[uplink|downlink] QUANTITY [UNIT]` with one of {quantities}")
    scale = unit_scale(found[2], found[3])
    if scale is None:
        raise TraceError(f"--as: found the unit `{found[3]}`; expected one of {found[2]}")
    return Meaning(found[2], found[1] or "", scale, found[3])


def _value(source: Source, number: int, cell: str, heading: str) -> float:
    if cell.strip().lower() in {"inf", "infinity"}:
        return float("inf")
    return optional_number(source, number, cell, f"a number as `{heading}`")


def _meanings(source: Source, headings: list[str], place: int, options: Options) -> dict[int, Meaning]:
    for name in options.columns:
        if name not in headings:
            raise TraceError(f"{source.path}: --as: found no column `{name}`; expected one of {', '.join(headings)}")
    found: dict[int, Meaning] = {}
    for at, heading in enumerate(headings):
        if at == place:
            continue
        given = options.columns.get(heading)
        meaning = meaning_of(given) if given is not None else None if options.columns else _guess(heading)
        if meaning is not None:
            found[at] = meaning
    names = [(meaning.quantity, meaning.direction) for meaning in found.values()]
    if len(set(names)) < len(names):
        both = ", ".join(headings[at] for at in found)
        source.fail(None, f"columns that hold the same: {both}", "--as 'NAME=QUANTITY [UNIT]' for those to take")
    if not found:
        listed = ", ".join(f"`{heading}`" for heading in headings)
        source.fail(None, listed, "quantity and unit in a heading (rtt_ms), or --as 'NAME=downlink rate [Mbit/s]'")
    return found


def _guess(heading: str) -> Meaning | None:
    """Returns what a heading says; None where it names no quantity or no unit."""
    name = heading.strip().lower()
    bracketed = re.search(r"[\[(]\s*([^\])]+?)\s*[\])]", name)
    suffix = re.search(r"[_\s]([a-zµ%/]+)$", name)
    unit = _UNITS.get((bracketed or suffix or {1: ""})[1])
    if unit is None:
        return None
    name = name[: bracketed.start()] if bracketed else name
    quantity = next((one for one, pattern in _QUANTITIES if re.search(pattern, name)), None)
    if quantity is None:
        quantity = "rate" if unit.endswith("bit/s") else None
    scale = None if quantity is None else unit_scale(quantity, unit)
    if quantity is None or scale is None:
        return None
    direction = next((one for one, pattern in _DIRECTIONS if re.search(pattern, name)), "")
    return Meaning(quantity, "" if quantity in ("rtt", "round_trip_loss") else direction, scale, unit)


def _separator(line: str) -> str:
    marks = (";", "\t", ",") if re.match(r"\d{4}-\d{2}-\d{2} ", line) else (";", "\t", ",", " ")
    return next((mark for mark in marks if mark in line), ",")


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]

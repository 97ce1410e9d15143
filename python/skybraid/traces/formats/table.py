"""Columns with dates: CSV of one's own scripts, with zones and gaps.

The first column that holds dates (`stamps`) is the time, else a date with a time of day, else a column that counts
(`seconds`, `time_s`, `elapsed_ms`). Rows of the same whole second are spread over it. What a column holds follows
from its heading where that names quantity and unit (`dl_mbps`, `rtt [ms]`, `Upload (kbit/s)`, `loss_pct`); `--as` says
it otherwise. A cell that is empty or says `NA`, `nan`, `null` or `-` was not measured.
"""

from __future__ import annotations

import csv
import itertools
import re
from typing import NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.formats.source import (
    CUT,
    Options,
    Source,
    from_zero,
    in_network_unit,
    number_of,
    optional_number,
    unit_scale,
    unix_time,
    zone_of,
)
from skybraid.traces.formats.stamps import in_order, is_day_first, may_be_month_first, on_one_clock, read_stamp
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
    ("rtt", r"rtt|round.?trip|ping|laten[czt]"),
    ("delay", r"delay|owd|one.?way|verzögerung|délai|retardo"),
    ("loss", r"loss|lost|drop|verlust|perte|pérdida"),
    (
        "rate",
        r"rate|throughput|bandwidth|bitrate|speed|goodput|capacity|download|upload|durchsatz|datenrate|débit|velocidad|\bdl\b|\bul\b|dl_|ul_",
    ),
)
_DIRECTIONS = (("downlink", r"down|\bdl\b|dl_|_dl|\brx\b"), ("uplink", r"up(load|link|$|_|\b)|\bul\b|ul_|_ul|\btx\b"))


_TOOLS = (
    # G-NetTrack's manual: bit rates in kbit/s, round trips in ms.
    (
        {"NetworkMode", "DL_bitrate", "UL_bitrate"},
        {"DL_bitrate": "downlink rate [kbit/s]", "UL_bitrate": "uplink rate [kbit/s]", "PINGAVG": "rtt [ms]"},
    ),
    # Ookla's apps: bit rates in kbit/s.
    (
        {"ConnType", "Download", "Upload", "Latency"},
        {"Download": "downlink rate [kbit/s]", "Upload": "uplink rate [kbit/s]", "Latency": "rtt [ms]"},
    ),
)
"""Headings by which a tool is known, and what its columns without units hold."""

_MIN_REPEATED = 0.1
"""Share of rows with the date of the one before from which on dates are rounded to seconds."""

_MAX_UNKNOWN = 0.5
"""Share of a column that may be unknown before it is left out."""

_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{8}")
_TIME = re.compile(r"\d{1,2}:\d{2}:\d{2}([.,]\d+)?(\s*[AaPp]\.?[Mm]\.?)?")
_COUNT = re.compile(
    r"(?P<name>time|t|elapsed|elapsed.?time|timestamp|seconds?|secs?)"
    r"(?:[ _]*[\[(]?(?P<unit>s|secs?|seconds?|ms|msec|us|ns|min)[\])]?)?"
    r"(?<!^time)(?<!^t)(?<!^timestamp)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+([.,]\d+)?")
_LOST = {"inf", "infinity", "timeout", "timed out", "request timed out", "lost", "*"}
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+")
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_SECONDS = {"ms": 1e-3, "msec": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0}


class Meaning(NamedTuple):
    """Quantity of a column, its unit, and the factor to the quantity's own unit."""

    quantity: str
    direction: str
    scale: float
    unit: str


def recognises(source: Source) -> bool:
    """Whether the file is a table, one column of which holds dates or counts time."""
    begins = [line for line in source.begins if not line.startswith("#")]
    if len(begins) < 2:
        return False
    separator = _separator(begins[0])
    headings, first = (_cells(line, separator) for line in begins[:2])
    return len(headings) > 1 and (
        _clock(headings, first) is not None
        or _lacks_unit(headings, first)
        or any(unix_time(cell, None) is not None for cell in headings)
    )


def _lacks_unit(headings: list[str], first: list[str]) -> bool:
    """Whether numbers are times of an unknown unit."""
    return bool(re.fullmatch(r"time|t|timestamp", headings[0], re.IGNORECASE) and _NUMBER.fullmatch(first[0]))


class _Clock(NamedTuple):
    """The columns that hold the time: one or two of dates, or one that counts in units of `size_s`."""

    places: tuple[int, ...]
    size_s: float | None = None


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
    clock = _clock(headings, first)
    if clock is None and _lacks_unit(headings, first):
        source.fail(rows[0][0], f"`{headings[0]}` without a unit", "one in its heading, such as time_s or time_ms")
    if clock is None:
        source.fail(rows[1][0], f"`{rows[1][1]}`", "a column of dates, such as 2026-05-13T12:31:03+02:00")
    meanings = _meanings(source, headings, clock.places, options)
    table: list[list[str]] = []
    notes: list[str] = []
    for number, line in rows[1:]:
        cells = _cells(line, separator)
        if len(cells) < len(headings) and number == source.cut_line and table:
            notes.append(CUT)
            break
        if len(cells) != len(headings):
            source.fail(number, f"{len(cells)} cells", f"{len(headings)}, as many as headings")
        table.append(cells)
    lines = [number for number, _ in rows[1 : len(table) + 1]]
    whens = [" ".join(cells[place] for place in clock.places) for cells in table]
    times_s, start_unix_s = _times(source, lines, whens, clock, options)
    found_s = from_zero(source, times_s, lines)
    columns: list[Column] = []
    for place, meaning in meanings.items():
        raw = np.array(
            [_value(source, n, cells[place], headings[place], separator) for n, cells in zip(lines, table, strict=True)]
        )
        if not options.columns and np.isnan(raw).mean() > _MAX_UNKNOWN and len(meanings) > 1:
            share = 100 * np.isnan(raw).mean()
            notes.append(f"`{headings[place]}` left out: {share:.0f} % of its rows were not measured (--as takes it)")
            continue
        values, told = in_network_unit(source, lines, raw, meaning.quantity, meaning.scale, options.lost)
        columns.append(Column(meaning.quantity, UNIT_OF[NETWORK[meaning.quantity]], values, meaning.direction))
        notes += told
    if not columns:
        source.fail(None, "no values", "numbers in the columns")
    known = {*meanings, *clock.places}
    ignored = [heading for at, heading in enumerate(headings) if at not in known and heading]
    if ignored:
        notes.insert(0, f"columns left out: {', '.join(ignored)} (--as 'NAME=downlink rate [Mbit/s]')")
    return [Measurement(str(source.path), found_s, tuple(columns), start_unix_s, notes=tuple(notes))]


def _clock(headings: list[str], first: list[str]) -> _Clock | None:
    """Returns the columns of the time by the cells of the first row: dates, a date and a time of day, or a count."""
    month_first = is_day_first(first)
    if month_first is None:
        # Whether these begin with a day or a month is for all rows to tell.
        month_first = False
    # A row may have more cells than headings.
    first = first[: len(headings)]
    for place, cell in enumerate(first):
        stamp = read_stamp(cell, is_day_first=month_first)
        if stamp is not None and stamp.is_dated:
            return _Clock((place,))
    dates = [place for place, cell in enumerate(first) if _DATE.fullmatch(cell)]
    clocks = [place for place, cell in enumerate(first) if _TIME.fullmatch(cell)]
    if dates and clocks:
        return _Clock((dates[0], clocks[0]))
    for place, (heading, cell) in enumerate(zip(headings, first, strict=False)):
        found = _COUNT.fullmatch(heading.strip())
        if found is not None and _NUMBER.fullmatch(cell.strip()):
            unit = (found["unit"] or found["name"]).lower()
            return _Clock((place,), _SECONDS.get(unit, 1.0))
    return _Clock((clocks[0],)) if clocks and re.search("time|zeit|heure|hora", headings[clocks[0]].lower()) else None


def _times(
    source: Source, lines: list[int], whens: list[str], clock: _Clock, options: Options
) -> tuple[list[float], float | None]:
    """Returns the times in s, and the first in s since 1970 where the file has dates."""
    if clock.size_s is not None:
        size_s = clock.size_s
        return [
            number_of(source, n, when.replace(",", "."), "a time") * size_s
            for n, when in zip(lines, whens, strict=True)
        ], None
    day_first = is_day_first(whens)
    if day_first is None and any(may_be_month_first(when) for when in whens[:1]):
        known = "dates that begin with the year (2026-05-06): no day is above 12, so that it may be the month"
        source.fail(lines[0], f"`{whens[0]}`", known)
    zone = zone_of(options)
    stamps = []
    for number, when in zip(lines, whens, strict=True):
        stamp = read_stamp(when, zone, is_day_first=day_first)
        if stamp is None:
            source.fail(number, f"`{when}`", "a date and time")
        if stamp.is_dated and not stamp.is_zoned:
            source.fail(number, f"`{when}` without a zone", "a zone in the file, or --zone (UTC is one)")
        stamps.append(stamp)
    stamps = in_order(stamps)
    repeated = float(
        np.mean([float(after.at_s == before.at_s) for before, after in itertools.pairwise(stamps)] or [0.0])
    )
    # A date twice is a mistake; many are rows of less than a second.
    times_s = (
        [float(at_s) for at_s in on_one_clock(stamps)] if repeated > _MIN_REPEATED else [one.at_s for one in stamps]
    )
    return times_s, times_s[0] if stamps[0].is_dated else None


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


def _value(source: Source, number: int, cell: str, heading: str, separator: str) -> float:
    if cell.strip().lower() in _LOST:
        return float("inf")
    if separator == "," and _THOUSANDS.fullmatch(cell):
        source.fail(number, f"`{cell}`", "a number without commas: this may be thousands or a decimal comma")
    if _DECIMAL_COMMA.fullmatch(cell):
        # Commas do not part such columns, so that one is a decimal comma.
        cell = cell.replace(",", ".")
    return optional_number(source, number, cell, f"a number as `{heading}`")


def _meanings(source: Source, headings: list[str], places: tuple[int, ...], options: Options) -> dict[int, Meaning]:
    for name in options.columns:
        if name not in headings:
            raise TraceError(f"{source.path}: --as: found no column `{name}`; expected one of {', '.join(headings)}")
    found: dict[int, Meaning] = {}
    of_tool = next((columns for marks, columns in _TOOLS if marks <= set(headings)), {})
    for at, heading in enumerate(headings):
        if at in places:
            continue
        given = options.columns.get(heading, None if options.columns else of_tool.get(heading))
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
    found = bracketed or re.search(r"[_\s]([a-zµ%/]+)$", name)
    if found is None:
        return None
    # A capital B is a byte.
    size = re.fullmatch(r"([kKMG]?)B(/s|ps)", heading.strip()[found.start(1) : found.end(1)])
    unit = _UNITS.get(found[1]) if size is None else f"{size[1].replace('K', 'k')}B/s"
    if unit is None:
        return None
    name = name[: bracketed.start()] if bracketed else name
    quantity = next((one for one, pattern in _QUANTITIES if re.search(pattern, name)), None)
    if quantity is None:
        quantity = "rate" if unit.endswith(("bit/s", "B/s")) else None
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

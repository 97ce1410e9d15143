"""Columns with dates: CSV or JSON records of one's own scripts, with zones and gaps.

The first column that holds dates (`stamps`) is the time, else a date with a time of day, else a column that counts
(`seconds`, `time_s`, `elapsed_ms`), else a time of day. Rows of the same whole second are spread over it. The meaning
of a column follows from its heading if that names quantity and unit (`dl_mbps`, `rtt [ms]`, `Upload (kbit/s)`,
`loss_pct`); `--as` states it otherwise. A cell that is empty or says `NA`, `nan`, `null` or `-` was not measured.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.formats import records
from skybraid.traces.formats.source import (
    Options,
    Source,
    from_zero,
    in_network_unit,
    number_of,
    optional_number,
    unix_time,
    zone_of,
)
from skybraid.traces.formats.stamps import (
    KNOWN_ZONE,
    in_order,
    is_day_first,
    may_be_month_first,
    on_one_clock,
    read_stamp,
)
from skybraid.traces.measurement import NETWORK, Column, Measurement
from skybraid.traces.series import UNIT_OF, TraceError
from skybraid.traces.units import scale_of, seconds_of

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

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
_DIRECTIONS = (
    ("downlink", r"down|\bdl\b|dl_|_dl|(?<![a-z])rx(?![a-z])|pdsch"),
    ("uplink", r"up(load|link|$|_|\b)|\bul\b|ul_|_ul|(?<![a-z])tx(?![a-z])|pusch"),
)


_SPREADS = re.compile(r"jitter|mdev|(?<![a-z])(std|sd|dev|var)(?![a-z])|stddev|deviation|varia|pdv", re.IGNORECASE)
"""Headings of how much a quantity varies."""

_OTHER_TIMES = re.compile(r"duration|interval|period|(?<![a-z])age(?![a-z])|uptime|offset|timeout", re.IGNORECASE)
"""Headings of times that are no delays of packets."""

_LOSSES = re.compile(rf"{_QUANTITIES[3][1]}|(?<![a-z])(per|plr|fer)(?![a-z])|missed|timeout", re.IGNORECASE)
"""Headings of shares that are losses."""

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
"""Headings that identify a tool, and the meaning of its columns without units."""

_MIN_REPEATED = 0.1
"""Minimum share of rows with the date of the previous one for dates to be rounded to seconds."""

_MAX_UNKNOWN = 0.5
"""Maximum share of unknown values in a column that is read."""

_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{8}")
_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s*[AaPp]\.?[Mm]\.?)?")
_COUNT = re.compile(
    r"(?P<name>(?:(?:relative|elapsed|test|run|flight)[ _]?)?(?:time|timestamp|zeit|temps|tiempo|hora)"
    r"|t|elapsed|seconds?|secs?)"
    r"(?: since start)?(?:[ _]*[\[(]? *(?P<unit>[a-zµμ]+) *[\])]?)?",
    re.IGNORECASE,
)
_TIMED = re.compile(r"time|date|stamp|epoch|utc|unix|zeit|heure|hora|fecha|\bts\b|^t$|^\d*$", re.IGNORECASE)
"""Headings of numbers that may be s, ms, us or ns since 1970."""

_UNIT_OF_TIME = re.compile(r"[\[(] *([a-zµμ]+) *[\])]|[_ ]([a-zµμ]+)$", re.IGNORECASE)

_MAX_UPTIME_S = 3e8
"""Maximum time in s since a device was started: above ten years, a number is a date."""

_PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_NUMBER = re.compile(r"\d+([.,]\d+)?([eE][-+]?\d+)?")
_MEASURED = re.compile(r"(?P<number>[-+\d.,]*\d)\s*(?P<unit>[A-Za-zµμ%/]+)")
"""Cell with a number and its unit."""

_LOST = {"inf", "infinity", "timeout", "timed out", "request timed out", "lost", "*"}
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+")
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*")
_SEPARATORS = (";", "\t", ",", "|", " ")


class Meaning(NamedTuple):
    """Quantity of a column, its unit, and the factor to the standard unit of the quantity."""

    quantity: str
    direction: str
    scale: float
    unit: str


class _Clock(NamedTuple):
    """Columns of the time: one or two columns of dates, or a counter in units of `size_s`."""

    places: tuple[int, ...]
    size_s: float | None = None


class _Table(NamedTuple):
    """Headings, rows with as many cells, and the line number of each row."""

    headings: list[str]
    rows: list[list[str]]
    lines: list[int]
    separator: str


def recognises(source: Source) -> bool:
    """Whether the file is a table with a column of dates or of counted time."""
    if records.is_json(source):
        record = records.first_record(source)
        return len(record) > 1 and _clock(list(record), list(record.values())) is not None
    first_lines = [line for line in source.first_lines if not line.startswith("#")]
    if len(first_lines) < 2:
        return False
    separator = _separator(first_lines[0])
    headings, first = (next(csv.reader([line], delimiter=separator), []) for line in first_lines[:2])
    if separator == " ":
        headings, first = first_lines[0].split(), first_lines[1].split()
    return len(headings) > 1 and (
        _clock(headings, first) is not None
        or _lacks_unit(headings, first)
        or any(unix_time(cell, None) is not None for cell in headings)
    )


def _lacks_unit(headings: list[str], first: list[str]) -> bool:
    """Whether the time column is a number without a unit."""
    return bool(re.fullmatch(r"time|t|timestamp", headings[0], re.IGNORECASE) and _NUMBER.fullmatch(first[0]))


def read(source: Source, options: Options, *, has_units: bool = False) -> list[Measurement]:
    """Reads the columns whose meaning is known; a note lists the others.

    Args:
        source: the file.
        options: facts that the file does not contain.
        has_units: whether a unit alone gives the meaning of a column, and columns of one quantity keep their names.

    Raises:
        TraceError: a line is invalid, a date has no zone, or no column has a known meaning.
    """
    table = _table(source, options)
    headings, first = table.headings, table.rows[0]
    clock = _clock(headings, first)
    if clock is None and _lacks_unit(headings, first):
        expected = "one in its heading, such as time_s or time_ms"
        source.fail(max(table.lines[0] - 1, 1), f"`{headings[0]}` without a unit", expected)
    if clock is None:
        shown = (table.separator or ",").join(first)
        source.fail(table.lines[0], f"`{shown}`", "a column of dates, such as 2026-05-13T12:31:03+02:00")
    meanings = _meanings(source, headings, clock.places, options, has_units=has_units)
    whens = [" ".join(cells[place] for place in clock.places) for cells in table.rows]
    times_s, start_unix_s = _times(source, table.lines, whens, clock, options)
    found_s = from_zero(source, times_s, table.lines)
    columns: list[Column] = []
    notes: list[str] = []
    for place, meaning in meanings.items():
        raw = _values(source, table, place, meaning)
        if not options.columns and np.isnan(raw).mean() > _MAX_UNKNOWN and len(meanings) > 1:
            share = 100 * np.isnan(raw).mean()
            notes.append(f"`{headings[place]}` left out: {share:.0f} % of its rows were not measured (--as takes it)")
            continue
        values, remarks = in_network_unit(source, table.lines, raw, meaning.quantity, meaning.scale, options.lost)
        columns.append(Column(meaning.quantity, UNIT_OF[NETWORK[meaning.quantity]], values, meaning.direction))
        notes += remarks
    if not columns:
        source.fail(None, "no values", "numbers in the columns")
    if not options.columns:
        notes += [_latency_note(headings[at], one) for at, one in meanings.items() if "laten" in headings[at].lower()]
    known = {*meanings, *clock.places}
    ignored = [heading for at, heading in enumerate(headings) if at not in known and heading]
    if ignored:
        notes.insert(0, f"columns left out: {', '.join(ignored)} (--as 'NAME=downlink rate [Mbit/s]')")
    return [Measurement(str(source.path), found_s, tuple(columns), start_unix_s, notes=tuple(notes))]


def _table(source: Source, options: Options) -> _Table:
    """Returns the cells of a file; repeated headings are skipped.

    Raises:
        TraceError: a row and the headings differ in their number of cells, or there are no rows.
    """
    separator = ""
    if records.is_parquet(source):
        rows = records.parquet_rows(source)
    elif records.is_json(source):
        rows = records.json_rows(source)
    else:
        separator = next((_separator(line) for line in source.lines if line.strip() and not line.startswith("#")), ",")
        rows = list(_rows(source, separator))
    if not rows:
        source.fail(None, "no rows", "headings and a row at least")
    headings = rows[0][1]
    if any(unix_time(cell, None) is not None for cell in headings):
        # Columns without headings are named by number.
        headings = [str(number) for number in range(1, len(headings) + 1)]
    else:
        rows = [row for row in rows[1:] if row[1] != headings]
        if options.columns and rows and all(name.isdecimal() and name not in headings for name in options.columns):
            # The user chose columns by number.
            headings = [str(number) for number in range(1, len(rows[0][1]) + 1)]
    count = len(headings)
    kept: list[list[str]] = []
    lines: list[int] = []
    for number, cells in rows:
        if len(cells) != count and (len(cells) < count or any(cells[count:])):
            if len(cells) < count and source.drop_cut(number):
                break
            source.fail(number, f"{len(cells)} cells", f"{count}, as many as headings")
        kept.append(cells[:count])
        lines.append(number)
    if not kept:
        source.fail(None, "headings without rows", "a row at least")
    return _Table(headings, kept, lines, separator)


def _rows(source: Source, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the cells of each row, with the line on which it begins; blank lines and comments are skipped."""
    lines = ["" if line.startswith("#") else line for line in source.lines]
    if separator == " ":
        yield from ((number, line.split()) for number, line in enumerate(lines, start=1) if line.strip())
        return
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    number = 1
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield number, stripped
            number = reader.line_num + 1
    except csv.Error as error:
        source.fail(number, str(error), "cells with closed quotes")


def _clock(headings: list[str], first: list[str]) -> _Clock | None:
    """Returns the time columns by the cells of the first row: dates, a date and a time of day, or a counter."""
    month_first = is_day_first(first)
    if month_first is None:
        # Only all rows together show whether dates begin with the day or the month.
        month_first = False
    # A row may have more cells than headings.
    cells = list(enumerate(zip(headings, first, strict=False)))
    for place, (heading, cell) in cells:
        count_s = _since_start(heading, cell)
        if count_s is not None:
            return _Clock((place,), count_s)
        stamp = read_stamp(cell, is_day_first=month_first)
        if stamp is not None and stamp.is_dated and (not _NUMBER.fullmatch(cell) or _TIMED.search(heading)):
            return _Clock((place,))
    dates = [place for place, (_, cell) in cells if _DATE.fullmatch(cell)]
    clocks = [place for place, (_, cell) in cells if _TIME.fullmatch(cell)]
    if dates and clocks:
        return _Clock((dates[0], clocks[0]))
    for place, (heading, cell) in cells:
        found = _COUNT.fullmatch(heading.strip())
        if found is not None and _NUMBER.fullmatch(cell.strip()):
            size_s = seconds_of(found["unit"] or found["name"])
            if size_s is not None or found["name"].lower().startswith("elapsed"):
                return _Clock((place,), size_s or 1.0)
    return _Clock((clocks[0],)) if clocks and _TIMED.search(headings[clocks[0]]) else None


def _since_start(heading: str, cell: str) -> float | None:
    """Returns the unit in s of a time since a device was started that has the digits of a date; else None.

    1234567890 is a date in s, and 20 minutes in us.
    """
    found = _UNIT_OF_TIME.search(heading)
    if found is None or not _TIMED.search(heading) or not _PLAIN.fullmatch(cell) or read_stamp(cell) is None:
        return None
    size_s = seconds_of(found[1] or found[2])
    return size_s if size_s is not None and float(cell) * size_s < _MAX_UPTIME_S else None


def _times(
    source: Source, lines: list[int], whens: list[str], clock: _Clock, options: Options
) -> tuple[list[float], float | None]:
    """Returns the times in s, and the first one in s since 1970 if the file has dates."""
    if clock.size_s is not None:
        size_s = clock.size_s
        return [
            (float(when) if _PLAIN.fullmatch(when) else number_of(source, n, when.replace(",", "."), "a time")) * size_s
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
        if stamp.unknown_zone:
            source.fail(number, f"`{when}`, whose zone is not of one place", KNOWN_ZONE)
        if stamp.is_dated and not stamp.is_zoned:
            source.fail(number, f"`{when}` without a zone", "a zone in the file, or --zone (UTC is one)")
        stamps.append(stamp)
    stamps = in_order(stamps)
    repeated = float(
        np.mean([float(after.at_s == before.at_s) for before, after in itertools.pairwise(stamps)] or [0.0])
    )
    # A single repeated date is an error; many are rows of less than a second.
    times_s = (
        [float(at_s) for at_s in on_one_clock(stamps)] if repeated > _MIN_REPEATED else [one.at_s for one in stamps]
    )
    return times_s, times_s[0] if stamps[0].is_dated else None


def meaning_of(text: str) -> Meaning:
    """Parses the user's description of a column: "downlink rate [Mbit/s]".

    Raises:
        TraceError: the quantity is unknown, or the unit is none of it.
    """
    found = re.fullmatch(r"(?:(uplink|downlink) )?(\w+) \[([^\]]+)\]", text.strip())
    quantities = ", ".join(NETWORK)
    if found is None or found[2] not in NETWORK:
        raise TraceError(f"--as: found `{text}`; expected `[uplink|downlink] QUANTITY [UNIT]` with one of {quantities}")
    scale = scale_of(found[2], found[3])
    if scale is None:
        raise TraceError(f"--as: found the unit `{found[3]}`; expected one of {found[2]}")
    return Meaning(found[2], found[1] or "", scale, found[3])


def _latency_note(heading: str, meaning: Meaning) -> str:
    """Returns how a latency was taken, which may be one way or a round trip."""
    taken, other = ("a round trip", "delay") if meaning.quantity == "rtt" else ("a one-way delay", "rtt")
    return f"`{heading}` taken as {taken} (otherwise --as '{_without_unit(heading)}={other} [{meaning.unit}]')"


def _values(source: Source, table: _Table, place: int, meaning: Meaning) -> Floats:
    """Returns the numbers of a column, shape (n,); infinity: a lost probe."""
    heading = table.headings[place]
    found = np.empty(len(table.rows))
    comma = point = None
    for at, cells in enumerate(table.rows):
        cell = cells[place]
        if _PLAIN.fullmatch(cell):
            found[at] = float(cell)
            if point is None and "." in cell:
                point = at
        elif cell.lower() in _LOST:
            found[at] = np.inf
        elif table.separator == "," and _THOUSANDS.fullmatch(cell):
            source.fail(
                table.lines[at], f"`{cell}`", "a number without commas: this may be thousands or a decimal comma"
            )
        else:
            measured = _MEASURED.fullmatch(cell)
            is_same = measured is not None and scale_of(meaning.quantity, measured["unit"]) == meaning.scale
            number = measured["number"] if measured is not None and is_same else cell
            # Such columns are not separated by commas, or are quoted, so a comma is a decimal comma.
            if _DECIMAL_COMMA.fullmatch(number):
                number = number.replace(",", ".")
                comma = at if comma is None else comma
            found[at] = optional_number(source, table.lines[at], number, f"a number as `{heading}`")
    if comma is not None and point is not None:
        # A point next to decimal commas may part thousands.
        shown = table.rows[point][place]
        source.fail(table.lines[point], f"`{shown}`", f"decimals as in `{table.rows[comma][place]}` of the same column")
    return found


def _meanings(
    source: Source, headings: list[str], places: tuple[int, ...], options: Options, *, has_units: bool
) -> dict[int, Meaning]:
    given_by_heading = {_heading(source, headings, name): text for name, text in options.columns.items()}
    found: dict[int, Meaning] = {}
    of_tool = next((columns for marks, columns in _TOOLS if marks <= set(headings)), {})
    for at, heading in enumerate(headings):
        if at in places:
            continue
        given = given_by_heading.get(heading, None if options.columns else of_tool.get(heading))
        guess = None if options.columns else (has_units and _by_unit(heading)) or _guess(heading)
        meaning = meaning_of(given) if given is not None else guess
        if meaning is not None:
            found[at] = meaning
    names = [(meaning.quantity, meaning.direction) for meaning in found.values()]
    if has_units:
        for at, one in found.items():
            name = _without_unit(headings[at])
            if names.count((one.quantity, one.direction)) > 1 and name != f"{one.direction} {one.quantity}".strip():
                found[at] = one._replace(direction=f"{name} {one.direction}".strip())
    elif len(set(names)) < len(names):
        both = ", ".join(headings[at] for at in found)
        source.fail(None, f"columns that hold the same: {both}", "--as 'NAME=QUANTITY [UNIT]' for those to take")
    if not found:
        listed = ", ".join(f"`{heading}`" for heading in headings)
        source.fail(None, listed, "quantity and unit in a heading (rtt_ms), or --as 'NAME=downlink rate [Mbit/s]'")
    return found


def _heading(source: Source, headings: list[str], name: str) -> str:
    """Returns the heading of a column that the user names, possibly without its unit."""
    for heading in headings:
        if name in (heading, _without_unit(heading)):
            return heading
    listed = ", ".join(f"`{heading}`" for heading in headings)
    raise TraceError(f"{source.path}: --as: found no column `{name}`; expected one of {listed}")


def _without_unit(heading: str) -> str:
    return heading.partition("[")[0].strip()


def _by_unit(heading: str) -> Meaning | None:
    """Returns the meaning of `NAME [UNIT]`, whose unit implies a rate, a time or a loss."""
    parts = re.fullmatch(r"(.*?)\s*\[\s*(.*?)\s*\]", heading)
    if parts is None:
        return None
    name, unit = parts[1], parts[2]
    quantity, scale = next(
        ((one, size) for one in ("rate", "delay", "loss") if (size := scale_of(one, unit)) is not None), ("", 0.0)
    )
    if not quantity:
        return None
    # Names that `trace import` and `trace join` write: "uplink rate", "lte downlink delay".
    own = re.fullmatch(r"(?:(.+) )?(rate|delay|rtt|loss|round_trip_loss)", name)
    direction = _direction(name)
    if own is not None and NETWORK[own[2]] in (quantity, "rtt" if quantity == "delay" else ""):
        words = (own[1] or "").split(" ")
        is_word = len(words) == 1 and direction != "" and quantity != "delay"
        return Meaning(own[2], direction if is_word else own[1] or "", scale, unit)
    is_loss = quantity != "loss" or _LOSSES.search(name) is not None
    if not is_loss or _is_other(name):
        return None
    is_round_trip = bool(re.search("rtt|round|ping", name, re.IGNORECASE))
    kinds = {"delay": "rtt", "loss": "round_trip_loss", "rate": "rate"}
    return Meaning(kinds[quantity] if is_round_trip else quantity, direction, scale, unit)


def _guess(heading: str) -> Meaning | None:
    """Returns the meaning that a heading implies; None if it names no quantity or no unit."""
    name = heading.strip()
    bracketed = re.search(r"[\[(]\s*([^\])]+?)\s*[\])]", name)
    found = bracketed or re.search(r"[_\s]([A-Za-zµμ%/]+)$|(%)$", name)
    if found is None:
        return None
    unit = found[1] or found[2]
    name = (name[: bracketed.start()] if bracketed else name).lower()
    quantity = next((one for one, pattern in _QUANTITIES if re.search(pattern, name)), None)
    if quantity is None and scale_of("rate", unit) is not None:
        quantity = "rate"
    scale = None if quantity is None else scale_of(quantity, unit)
    if quantity is None or scale is None or _is_other(name):
        return None
    return Meaning(quantity, "" if quantity in ("rtt", "round_trip_loss") else _direction(name), scale, unit)


def _is_other(name: str) -> bool:
    """Whether a heading names the spread of a quantity, or a time that is no delay."""
    return bool(_SPREADS.search(name) or _OTHER_TIMES.search(name))


def _direction(name: str) -> str:
    return next((one for one, pattern in _DIRECTIONS if re.search(pattern, name.lower())), "")


def _separator(line: str) -> str:
    # A date with a time of day is one cell.
    marks = _SEPARATORS[:-1] if re.match(r"\d{4}-\d{2}-\d{2} ", line) else _SEPARATORS
    return next((mark for mark in marks if mark in line), ",")

"""Dates and times as tools and scripts write them.

Source: ISO 8601; RFC 3164 (`May 13 10:00:00`, as `ts` of moreutils writes it); `date` of coreutils and its locales;
G-NetTrack (`2026.05.13_10.00.00`); s, ms, us or ns since 1970. Whether a date begins with the day or the month shows
only from a number above twelve, a dot (day first) or AM and PM (month first).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from skybraid.model.heavy import np

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

_ZONES = {
    "Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120, "MEZ": 60, "MESZ": 120,
    "EET": 120, "EEST": 180, "MSK": 180, "JST": 540, "KST": 540, "AEST": 600, "AEDT": 660, "EST": -300, "EDT": -240,
    "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
}  # fmt: skip
"""Minutes ahead of UTC by zone. CST is left out, since it is ambiguous (America and China)."""

_MONTHS = {
    name: at
    for at, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1
    )
}
_CLOCK = r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})[:.](?P<second>\d{2}(?:[.,:]\d+)?)\s*(?P<half>[AaPp]\.?[Mm]\.?)?"
_MINUTES = _CLOCK.replace(r"[:.](?P<second>\d{2}(?:[.,:]\d+)?)", r"(?::(?P<second>\d{2}(?:[.,:]\d+)?))?", 1)
_ZONE = r"\s*(?P<zone>[A-Z]{1,4}(?![A-Za-z])|[A-Z][a-z]+/[A-Za-z_/]+|[+-]\d{2}(?::?\d{2})?)?"
_ZONED_YEAR = r"(?:\s+(?P<late>[A-Z]{3,4}))?\s+(?P<year>\d{4})"
_ISO = r"(?P<year>\d{4})-(?P<month>\d{2})-(?P<day>\d{2})"
_NAMED = r"(?P<name>[A-Za-z]{3})[a-z]*"
_SINCE_1970 = re.compile(r"(?P<whole>1\d{9}(?:\d{3}){0,3})(?:[.,]\d+)?|1\.\d+[eE]\+?(?P<exponent>09|9|12|15|18)")
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?P<year>\d{{4}})[-/.](?P<month>\d{{1,2}})[-/.](?P<day>\d{{1,2}})[T_\s,;]+{_CLOCK}{_ZONE}",
        rf"{_ISO}[T_ ](?P<hour>\d{{2}})-(?P<minute>\d{{2}})-(?P<second>\d{{2}}(?:\.\d+)?){_ZONE}",
        rf"{_ISO}[T ](?P<hour>\d{{2}}):(?P<minute>\d{{2}})(?P<second>){_ZONE}",
        rf"{_ISO.replace('-', '')}[T_ -]?(?P<hour>\d{{2}})(?P<minute>\d{{2}})(?P<second>\d{{2}}(?:\.\d+)?){_ZONE}",
        rf"(?P<day>\d{{1,2}})\.\s?(?P<month>\d{{1,2}})\.\s?(?P<year>\d{{4}})[\s,]+{_MINUTES}{_ZONE}",
        rf"(?P<first>\d{{1,2}})[/-](?P<second_of>\d{{1,2}})[/-](?P<year>\d{{4}})[\s,]+{_MINUTES}{_ZONE}",
        rf"(?:\w{{2,3}},?\s+)?(?P<day>\d{{1,2}})[\s-]{_NAMED}\.?[\s-](?P<year>\d{{4}})[\s,]+{_CLOCK}{_ZONE}",
        rf"(?:\w{{3}},?\s+)?(?P<name>[A-Za-z]{{3}})[a-z]*\s+(?P<day>\d{{1,2}}),?\s+{_CLOCK}{_ZONED_YEAR}",
        rf"(?:\w{{3}},?\s+)?(?P<name>[A-Za-z]{{3}})[a-z]*\s+(?P<day>\d{{1,2}})(?:,?\s+(?P<year>\d{{4}}))?,?\s+{_CLOCK}{_ZONE}",
        _CLOCK,
        r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?P<second>)\s*(?P<half>[AaPp]\.?[Mm]\.?)?",
    )
)


KNOWN_ZONE = "--zone with the place meant (CST may be America/Chicago or Asia/Shanghai), or offsets such as +08:00"
"""Text on what is expected instead of an ambiguous or unknown zone."""

_DAY_S = 86400.0
_YEAR_S = 366 * _DAY_S
"""Length of 2000, the year that dates without one are taken to be of, in s."""

_NEW_YEAR_S = 300 * _DAY_S
"""Step back in s from which on a date without its year is of the next year."""


class Stamp(NamedTuple):
    """Parsed date and time.

    Attributes:
        at_s: time in s since 1970 (UTC) with a year, else from an arbitrary origin.
        is_dated: whether the date includes the year.
        is_zoned: whether the zone is known, or none is needed.
        grain_s: resolution in s: 60 without seconds, 1 without their fraction, else 0.
        again_s: second occurrence of a local time in the hour that is repeated in autumn; else `at_s`.
        unknown_zone: an ambiguous or unknown zone name, taken for UTC; else empty.
    """

    at_s: float
    is_dated: bool
    is_zoned: bool
    grain_s: float
    again_s: float
    unknown_zone: str = ""


def read_stamp(text: str, zone: ZoneInfo | None = None, *, is_day_first: bool | None = None) -> Stamp | None:
    """Parses a date and time; None for other texts, and if `05/06/2026` may be in May or June.

    Args:
        text: text of a cell, or prefix of a line.
        zone: zone of dates whose own is missing or ambiguous; default: UTC.
        is_day_first: whether dates with slashes begin with the day; None: unknown.
    """
    cleaned = text.strip().strip("\"'[]()").strip()
    since_1970_s = _since_1970(cleaned)
    if since_1970_s is not None:
        return Stamp(since_1970_s, True, True, float(float(since_1970_s).is_integer()), since_1970_s)
    for form in _FORMS:
        found = form.fullmatch(cleaned)
        if found is not None:
            return _stamp(found.groupdict(), zone, is_day_first=is_day_first)
    return None


def is_day_first(texts: Sequence[str]) -> bool | None:
    """Returns whether dates with slashes begin with the day; None if no date shows it."""
    for text in texts:
        found = re.match(r"\s*\"?(\d{1,2})[/-](\d{1,2})[/-]\d{4}\b", text)
        if found is None:
            return None
        if int(found[1]) > 12 or int(found[2]) > 12:
            return int(found[1]) > 12
        if re.search(r"[AaPp]\.?[Mm]\.?\"?\s*$", text):
            return False
    return None


def may_be_month_first(text: str) -> bool:
    """Whether a date begins with a day or a month."""
    return re.match(r"\s*\"?\d{1,2}[/-]\d{1,2}[/-]\d{4}\b", text) is not None


def in_order(stamps: Sequence[Stamp]) -> list[Stamp]:
    """Returns the stamps of a log in increasing order; times of day continue after midnight, days after New Year.

    After the clock has stepped back in autumn, stamps of the repeated hour take its second occurrence.
    """
    found: list[Stamp] = []
    before_s, is_second, passed_s = -math.inf, False, 0.0
    for one in stamps:
        stamp = one
        if not one.is_dated:
            back_s = before_s - one.at_s - passed_s
            passed_s += _YEAR_S if _NEW_YEAR_S < back_s < math.inf else _DAY_S if back_s > _DAY_S / 2 else 0.0
            stamp = one._replace(at_s=one.at_s + passed_s, again_s=one.again_s + passed_s)
        has_gone_back = stamp.again_s - before_s < before_s - stamp.at_s
        is_second = stamp.again_s > stamp.at_s and (is_second or has_gone_back)
        found.append(stamp._replace(at_s=stamp.again_s) if is_second else stamp)
        before_s = found[-1].at_s
    return found


def on_one_clock(stamps: Sequence[Stamp]) -> Floats:
    """Returns the times of `in_order` in s, shape (n,).

    Equal whole seconds or minutes are spread evenly; the first and the last of them may be only partly measured.
    """
    times_s = np.array([stamp.at_s for stamp in in_order(stamps)])
    if not all(stamp.grain_s for stamp in stamps):
        return times_s
    starts = np.flatnonzero(np.diff(times_s, prepend=math.nan) != 0)
    counts = np.diff(np.append(starts, len(times_s)))
    if counts.max(initial=1) == 1:
        return times_s
    usual = int(np.median(counts[1:-1])) if len(counts) > 2 else int(counts.max())
    inside = np.arange(len(times_s)) - np.repeat(starts, counts)
    inside[: counts[0]] += max(usual - counts[0], 0)
    of = np.maximum(counts, np.where(np.isin(np.arange(len(counts)), (0, len(counts) - 1)), usual, 1))
    spread: Floats = times_s + inside / np.repeat(of, counts) * max(stamp.grain_s for stamp in stamps)
    return spread


def _since_1970(text: str) -> float | None:
    # From 2001 to 2033 these begin with 1; other numbers of that length are bytes and the like.
    found = _SINCE_1970.fullmatch(text)
    if found is None:
        return None
    digits = int(found["exponent"]) if found["exponent"] else len(found["whole"]) - 1
    return float(text.replace(",", ".")) * 10.0 ** (9 - digits)


def _stamp(parts: dict[str, str | None], zone: ZoneInfo | None, *, is_day_first: bool | None) -> Stamp | None:
    day, month = parts.get("day"), parts.get("name") or parts.get("month")
    if parts.get("first") is not None:
        if is_day_first is None:
            return None
        day, month = parts["first"], parts["second_of"]
        if not is_day_first:
            day, month = month, day
    named, year = parts.get("zone") or parts.get("late"), parts.get("year")
    minute = _minute(year, month, day, parts["hour"], parts["minute"], parts.get("half"), named, zone)
    seconds_text = parts["second"] or "0"
    if not seconds_text.isdecimal():
        seconds_text = seconds_text.replace(",", ".").replace(":", ".")
    seconds = float(seconds_text)
    if minute is None or seconds >= 61:
        return None
    at_s, again_s, is_zoned = minute
    grain_s = 0.0 if "." in seconds_text else 1.0 if parts["second"] else 60.0
    unknown_zone = "" if is_zoned else named or ""
    return Stamp(at_s + seconds, year is not None, is_zoned, grain_s, again_s + seconds, unknown_zone)


@lru_cache(maxsize=1024)
def _minute(
    year: str | None,
    month: str | None,
    day: str | None,
    hour: str | None,
    minute: str | None,
    half_of_day: str | None,
    zone_name: str | None,
    zone: ZoneInfo | None,
) -> tuple[float, float, bool] | None:
    """Returns the start of a minute in s since 1970, that of its second occurrence, and whether its zone is known.

    Cached, since consecutive rows share their minute.
    """
    month_number = 1 if month is None else int(month) if month.isdecimal() else _MONTHS.get(month.lower())
    hour_number = int(hour or 0)
    if half_of_day is not None:
        hour_number = hour_number % 12 + (12 if half_of_day.lower().startswith("p") else 0)
    offset = _offset(zone_name)
    if month_number is None:
        return None
    try:
        minute_start = datetime(int(year or 2000), month_number, int(day or 1), hour_number, int(minute or 0))
        minute_start = minute_start.replace(tzinfo=offset or zone or UTC)
        at_s, again_s = (minute_start.replace(fold=fold).timestamp() for fold in (0, 1))
    except (ValueError, OverflowError):
        return None
    return at_s, max(at_s, again_s), offset is not None or zone is not None


def _offset(zone_name: str | None) -> tzinfo | None:
    if zone_name is None:
        return None
    if "/" in zone_name:
        try:
            return ZoneInfo(zone_name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None
    if zone_name[0] in "+-":
        minutes = int(zone_name[1:3]) * 60 + int(zone_name[3:].lstrip(":") or 0)
        return timezone(timedelta(minutes=-minutes if zone_name[0] == "-" else minutes)) if minutes < 1440 else None
    return timezone(timedelta(minutes=_ZONES[zone_name])) if zone_name in _ZONES else None

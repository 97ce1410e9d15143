"""Ranges of quantities: `{ from = "5Mbit/s", to = "50Mbit/s", steps = 5 }`, in the unit of their text."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from skybraid.model.keys import Keys

MAX_STEPS = 10_000
"""More values than an axis can want."""

_FAMILIES: tuple[dict[str, float], ...] = (
    {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0},
    {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9},
    {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3},
    {"%": 1e-2, "ppm": 1e-6},
    {"m": 1.0, "km": 1e3, "ft": 0.3048, "NM": 1852.0},
    {"m/s": 1.0, "km/h": 1 / 3.6, "kn": 1852 / 3600},
    {"deg": math.pi / 180, "rad": 1.0},
    {"dB": 1.0},
    {"": 1.0},
)
"""Units that convert into one another, as a scenario knows them."""

_KINDS = (str, float, int)

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z/%]*)\s*")


class Quantity(NamedTuple):
    """A number with its unit; the unit of a plain number is empty."""

    number: float
    unit: str

    def in_unit(self, unit: str) -> float | None:
        """Returns the number in another unit, or None if the units do not convert."""
        if unit == self.unit:
            return self.number
        family = next((units for units in _FAMILIES if self.unit in units and unit in units), None)
        return None if family is None else self.number * family[self.unit] / family[unit]


def quantity(value: object) -> Quantity | None:
    """Parses a number, or a text such as "5Mbit/s"; returns None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return Quantity(float(value), "")
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None or not any(found[2] in family for family in _FAMILIES):
        return None
    return Quantity(float(found[1]), found[2])


def of_table(table: dict[str, object], where: str) -> list[object]:
    """Returns the values of a range: both ends and values between, in equal steps, or equal ratios with `log = true`.

    Raises:
        ScenarioError: the table is invalid.
    """
    keys = Keys(table, where)
    first = _end(keys, "from", keys.take("from", _KINDS))
    last = _end(keys, "to", keys.take("to", _KINDS), first)
    log = keys.take("log", bool, False)
    steps: int | None = keys.take("steps", (int,), None)
    distance: object = keys.take("by", _KINDS, None)
    by = None if distance is None else _end(keys, "by", distance, first)
    keys.done()
    if (steps is None) == (by is None):
        keys.refuse("steps", "neither" if steps is None else "both `steps` and `by`", "`steps` or `by`")
    if log and by is not None:
        keys.refuse("by", "it with `log = true`", "`steps`")
    numbers = _by(keys, first, last, by) if by is not None else _steps(keys, first, last, steps or 0, log=log)
    whole = all(isinstance(table[end], int) for end in ("from", "to") if end in table)
    return [_text(number, first.unit, whole=whole) for number in numbers]


def _steps(keys: Keys, first: Quantity, last: Quantity, steps: int, *, log: bool) -> list[float]:
    if not 2 <= steps <= MAX_STEPS:
        keys.refuse("steps", str(steps), f"a number of values from 2 to {MAX_STEPS}")
    shares = [place / (steps - 1) for place in range(steps)]
    if not log:
        return [first.number + (last.number - first.number) * share for share in shares]
    if first.number <= 0 or last.number <= 0:
        keys.refuse("log", "an end that is not above zero", "both above zero")
    ratio = last.number / first.number
    return [first.number * ratio**share for share in shares]


def _by(keys: Keys, first: Quantity, last: Quantity, by: Quantity) -> list[float]:
    if by.number == 0 or (last.number - first.number) / by.number < 0:
        keys.refuse("by", f"{by.number:g}{by.unit}", "a step that leads from `from` to `to`")
    count = math.floor((last.number - first.number) / by.number * (1 + 1e-12) + 1e-9) + 1
    if count > MAX_STEPS:
        keys.refuse("by", f"{count} values", f"at most {MAX_STEPS}")
    return [first.number + place * by.number for place in range(count)]


def _end(keys: Keys, key: str, value: object, like: Quantity | None = None) -> Quantity:
    found = quantity(value)
    if found is None:
        keys.refuse(key, repr(value), 'a number with its unit, such as "5Mbit/s"')
    if like is None:
        return found
    number = found.in_unit(like.unit)
    if number is None:
        keys.refuse(key, str(value), f"a quantity in {like.unit or 'plain numbers'}, as `from` is")
    return Quantity(number, like.unit)


def _text(number: float, unit: str, *, whole: bool) -> object:
    if unit:
        return f"{number:.10g}{unit}"
    if whole and number == int(number):
        return int(number)
    return float(f"{number:.10g}")

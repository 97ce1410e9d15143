"""Units of rates, times and losses as tools and scripts write them: `Mb/s`, `Mbits/sec`, `KBps`, `msec`, `pct`."""

from __future__ import annotations

import re

from skybraid.traces.series import LOSS_UNITS, TIME_UNITS

_RATE = re.compile(
    r"(?P<size>[kmgt]?)(?P<binary>i?)(?P<unit>bits?|bytes?|b)(?P<per>/s|/sec|/secs|/second|ps)", re.IGNORECASE
)
_TIMES = {
    "ns": r"ns|nsecs?|nanoseconds?",
    "us": r"[uµμ]s|[uµμ]secs?|microseconds?",
    "ms": r"ms|msecs?|millis|milliseconds?|millisekunden",
    "s": r"s|secs?|seconds?|sekunden?|secondes?",
    "min": r"min|mins|minutes?",
    "h": r"h|hours?",
}
_LOSSES = {"%": r"%|pct|percent|percentage|prozent", "ratio": r"ratio|fraction", "ppm": r"ppm"}


def scale_of(quantity: str, unit: str) -> float | None:
    """Returns the size of a unit in that of a network quantity (Mbit/s, ms, %); None for another unit."""
    if quantity == "rate":
        return _rate_scale(unit)
    names, sizes = (_LOSSES, LOSS_UNITS) if "loss" in quantity else (_TIMES, TIME_UNITS)
    return next((sizes[name] for name, form in names.items() if re.fullmatch(form, unit, re.IGNORECASE)), None)


def seconds_of(unit: str) -> float | None:
    """Returns the size of a unit of time in s; None for another unit."""
    scale = scale_of("delay", unit)
    return None if scale is None else scale * 1e-3


def _rate_scale(unit: str) -> float | None:
    found = _RATE.fullmatch(unit)
    if found is None:
        return None
    power = " kmgt".index(found["size"].lower() or " ")
    size: float = 1024.0**power * 1e-6 if found["binary"] else 1000.0 ** (power - 2)
    # A capital B is a byte, but for the whole unit in capitals.
    is_byte = "yte" in found["unit"].lower() or (found["unit"] == "B" and found["per"] != "PS")
    return 8 * size if is_byte else size

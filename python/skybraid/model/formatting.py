"""Numbers with units as people read them: shares, times, rates, counts."""

import math


def count(number: int) -> str:
    """Formats an integer with thousands separated: 1 799 990."""
    return f"{number:,}".replace(",", " ")


def times(number: int) -> str:
    """Formats a number of occurrences: "once", "12 times"."""
    return "once" if number == 1 else f"{count(number)} times"


def percent(share: float) -> str:
    """Formats a share from 0 to 1 as "99.9993 %", with the digits that its distance from 0 % or 100 % needs."""
    return f"{_percent_digits(share)} %"


_UNSEEN = 1e-8
"""Maximum share that a campaign cannot distinguish from zero."""


def percent_range(low: float, high: float) -> str:
    """Formats two shares as "99.9989–99.9996 %"; an upper end closer to 1 than any number of trials shows is 100 %."""
    return f"{_percent_digits(low)}–{upper_percent(high)}"


def upper_percent(high: float) -> str:
    """Formats the upper end of an interval of a share."""
    return percent(1.0 if 1 - high < _UNSEEN else high)


def _percent_digits(share: float) -> str:
    from_edge = min(share, 1 - share) * 100
    decimals = 0 if from_edge < 1e-12 else min(max(2 - math.floor(math.log10(from_edge)), 1), 10)
    text = f"{share * 100:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def milliseconds(delay_ms: float) -> str:
    """Formats a delay as "42.3 ms" or, from ten seconds on, "12.3 s"."""
    if delay_ms >= 10_000:
        return f"{_rounded(delay_ms / 1000):g} s"
    return f"{delay_ms:.0f} ms" if delay_ms >= 999.5 else f"{_rounded(delay_ms):g} ms"


def microseconds(time_us: float) -> str:
    """Formats a short time as "42 µs" or "1.3 ms"."""
    if 0 < time_us < 1:
        return "under 1 µs"
    return f"{_rounded(time_us):g} µs" if time_us < 999.5 else milliseconds(time_us / 1000)


def _rounded(value: float) -> float:
    """Rounds to three significant digits."""
    return float(f"{value:.3g}")


def span(time_s: float) -> str:
    """Formats a time as "30 min", "80 s", "12.5 s" or "85 ms", in the largest unit with a value of at least 2."""
    for size, unit in ((3600, "h"), (60, "min"), (1, "s")):
        if time_s >= 2 * size or (time_s >= size and (size == 1 or time_s % size == 0)):
            return f"{time_s / size:.4g} {unit}"
    return milliseconds(time_s * 1000)


def about(time_s: float) -> str:
    """Formats a time with two significant digits: "5.6 min", "17 min", "130 h"."""
    if time_s < 120:
        return span(float(f"{time_s:.2g}"))
    size, unit = (3600, "h") if time_s >= 7200 else (60, "min")
    return f"{float(f'{time_s / size:.2g}'):g} {unit}"


def rate(bits_per_second: float) -> str:
    """Formats a rate as "9.87 Mbit/s"."""
    value = _rounded(bits_per_second)
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} bit/s"


def frames_a_second(frames: float) -> str:
    """Formats a frame rate as "29.97 frames/s"."""
    return f"{frames:.4g} frames/s"


def freezes_a_minute(freezes: float) -> str:
    """Formats a rate of freezes as "0.5 freezes/min"."""
    return f"{_rounded(freezes):g} freezes/min"


def readable(number: float) -> str:
    """Formats a number with up to four digits and no exponent: 0.002, 45, 9870, 15.7 k, 3.2 M."""
    magnitude = abs(number)
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if magnitude >= factor and magnitude >= 1e4:
            return f"{_digits(number / factor, 3)} {prefix}"
    return _digits(number, 4)


def _digits(number: float, digits: int) -> str:
    text = f"{float(f'{number:.{digits}g}'):.12f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def clock(time_s: float) -> str:
    """Formats a time of a run as "12:34", or "1:12:34"."""
    whole = int(time_s + 1e-9)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def size(number: float) -> str:
    """Formats a number of bytes as "1.23 MB"."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f} B"

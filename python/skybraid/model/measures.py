"""Measures of a flow: one number per run, with the names, columns and words that commands share.

`sweep --until` takes them by name, `compare A B` reports their differences, and the tables of flows have their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from skybraid.model.formatting import frames_a_second, freezes_a_minute, milliseconds, percent, rate
from skybraid.model.summary import PERCENTILES

POINTS = " percentage points"
"""What both ends of a difference of shares have in common."""


class Unit(NamedTuple):
    """Unit of a measure: how values are parsed and printed.

    Attributes:
        unit: in which a value is given, as a scenario writes it; none for a plain number.
        scale: factor from the column's unit to this one.
        example: of such a value.
        text: the column's number in words.
        apart: the size of a difference of two in words.
    """

    unit: str
    scale: float
    example: str
    text: Callable[[float], str]
    apart: Callable[[float], str]


def _points(share: float) -> str:
    return f"{share * 100:.3g}{POINTS}"


SHARE = Unit("%", 0.01, "99.9%", percent, _points)
RATE = Unit("bit/s", 1.0, "5Mbit/s", rate, rate)
DELAY = Unit("s", 1000.0, "300ms", milliseconds, milliseconds)
FRAME_RATE = Unit("", 1.0, "28.5 (frames a second)", frames_a_second, frames_a_second)
FREEZES = Unit("", 1.0, "0.5 (freezes a minute)", freezes_a_minute, freezes_a_minute)


class Counted(NamedTuple):
    """Denominator of a share.

    Attributes:
        things: noun of what is counted.
        met: the column of those that met it.
        trials: the column of those whose fate is decided.
        within_ms: the column of the time in question, in ms.
        misses: prefix of the columns on the grouping of its misses (`episodes.SPREAD`).
    """

    things: str
    met: str
    trials: str
    within_ms: str
    misses: str


MESSAGES = Counted("messages", "met", "trials", "deadline_ms", "misses_")
FRAMES = Counted("frames", "frames_met", "frames_due", "frames_within_ms", "frames_misses_")


class Measure(NamedTuple):
    """Measure of a flow.

    Attributes:
        name: as `--until` takes it.
        column: of the tables of flows.
        words: description with a time, which replaces "{}", and without one.
        unit: printed unit of its values.
        counted: of a share, what it is a share of.
        mean: whether flights are put together by their mean with Student's interval; else by their median.
        nothing: value of a flight without one, where it must count: the worst.
        video: whether only a video has it.
        listed: whether `compare A B` and the summary of a campaign list it.
    """

    name: str
    column: str
    words: tuple[str, str]
    unit: Unit
    counted: Counted | None = None
    mean: bool = False
    nothing: float = float("inf")
    video: bool = False
    listed: bool = True

    def within(self, within_ms: float | None) -> str:
        """Description in words: "share within 300 ms"."""
        timed, untimed = self.words
        return untimed if within_ms is None else timed.format(milliseconds(within_ms))


def _named(words: str) -> tuple[str, str]:
    return words, words


def _most(share: float) -> str:
    return "half" if share == 0.5 else percent(share)


MEASURES = (
    Measure("share", "within_deadline", ("share within {}", "share that arrived"), SHARE, MESSAGES, nothing=0.0),
    Measure("goodput", "goodput_bps", _named("goodput"), RATE, mean=True, nothing=0.0),
    *(
        Measure(
            name,
            f"delay_{name}_ms",
            _named(f"delay of {_most(share)} of the messages"),
            DELAY,
            listed=name in ("p50", "p99"),
        )
        for name, share in PERCENTILES.items()
    ),
    Measure(
        "frames",
        "frames_in_time",
        ("frames shown undamaged within {}", "frames shown undamaged"),
        SHARE,
        FRAMES,
        nothing=0.0,
        video=True,
    ),
    *(
        Measure(
            f"frame_latency_{name}",
            f"frame_latency_{name}_ms",
            _named(f"latency of {_most(PERCENTILES[name])} of the frames"),
            DELAY,
            video=True,
        )
        for name in ("p50", "p95", "p99")
    ),
    Measure("frame_rate", "frame_rate", _named("frame rate"), FRAME_RATE, mean=True, nothing=0.0, video=True),
    Measure(
        "worst_frame_rate",
        "worst_frame_rate",
        _named("frame rate of the worst second"),
        FRAME_RATE,
        mean=True,
        nothing=0.0,
        video=True,
    ),
    Measure("freezes", "freezes_per_minute", _named("freezes"), FREEZES, mean=True, video=True),
)
"""Every measure; those of a video are known of flows that are one."""


def names(*, video: bool) -> Collection[str]:
    """Names of the measures of a flow, video or not."""
    return [one.name for one in MEASURES if video or not one.video]

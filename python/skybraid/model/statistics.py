"""Verdicts, and intervals for independent samples.

- a median of independent values: distribution-free, between two order statistics whose ranks follow from the binomial
  distribution (David and Nagaraja, Order Statistics, 3rd ed., section 7.1);
- a mean over independent runs: Student's t.

Both are two-sided with equal tails at the stated confidence; the first is conservative. Messages are not independent:
the intervals of their shares are in `skybraid.episodes`. More in docs/statistics.md.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

from skybraid import _core

CONFIDENCE = _core.CONFIDENCE
"""Confidence of every interval that Skybraid prints."""


class Interval(NamedTuple):
    """Closed confidence interval."""

    low: float
    high: float


class Verdict(enum.StrEnum):
    """Verdict on a requirement."""

    MET = "met"
    NOT_MET = "not met"
    INCONCLUSIVE = "inconclusive"

    @classmethod
    def _missing_(cls, value: object) -> Verdict | None:
        """Accepts "not shown" of earlier versions."""
        return cls.INCONCLUSIVE if value == "not shown" else None


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Distribution-free interval of the median of independent values, or None below six values (at 95 %)."""
    count = len(values)
    # As many values lie below the median as coins show heads: the lower end fails if no more than `rank` of them do.
    rank, ways, term = 0, 1, 1
    while rank < count and ways / 2**count <= _tail(confidence):
        term = term * (count - rank) // (rank + 1)
        rank, ways = rank + 1, ways + term
    if not 1 <= rank <= count / 2:
        return None
    ordered = sorted(values)
    return Interval(ordered[rank - 1], ordered[count - rank])


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's t interval of the mean of independent values, or None below two values."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    reach = _core.student_quantile(count - 1, 1 - _tail(confidence)) * math.sqrt(variance / count)
    return Interval(mean - reach, mean + reach)


def shows_no_difference(pairs: Sequence[float]) -> bool:
    """Whether differences of runs of the same seeds are none, by their 95 % interval; a single one where it is zero."""
    interval = mean_interval(pairs)
    if interval is None:
        return bool(pairs) and not any(pairs)
    return interval.low <= 0 <= interval.high


def judge_interval(low: float | None, high: float | None, target: float) -> Verdict:
    """Met where the whole interval reaches the target, not met where all of it stays below.

    Args:
        low: lower end; None where nothing bounds it.
        high: upper end; None where nothing bounds it.
        target: in the same unit; more is better.
    """
    if low is not None and low >= target:
        return Verdict.MET
    return Verdict.NOT_MET if high is not None and high < target else Verdict.INCONCLUSIVE


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: found {confidence}, expected a share between 0 and 1")
    return (1 - confidence) / 2

"""Verdicts, and intervals for independent samples.

- a share of independent trials: Clopper and Pearson, Biometrika 26 (1934) 404-413, through the beta distribution;
- a percentile of independent values: distribution-free, between two order statistics whose ranks follow from the
  binomial distribution (David and Nagaraja, Order Statistics, 3rd ed., section 7.1);
- a mean over independent runs: Student's t.

All are two-sided with equal tails at the stated confidence; the first two are exact or conservative. Messages are not
independent: the intervals of their shares are in `skybraid.episodes`. More in docs/statistics.md.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.heavy import special

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONFIDENCE = 0.95
"""Confidence of every interval that Skybraid prints."""


class Interval(NamedTuple):
    """Closed confidence interval."""

    low: float
    high: float


class Ranks(NamedTuple):
    """1-based ranks of the order statistics that enclose a percentile.

    `low` is 0 where no value bounds it from below, `high` is the number of values plus one where none bounds it
    from above.
    """

    low: int
    high: int


class Verdict(enum.StrEnum):
    """Verdict on a requirement."""

    MET = "met"
    NOT_MET = "not met"
    INCONCLUSIVE = "inconclusive"

    @classmethod
    def _missing_(cls, value: object) -> Verdict | None:
        """Accepts "not shown" of earlier versions."""
        return cls.INCONCLUSIVE if value == "not shown" else None


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Exact interval of a probability after `successes` out of `trials`.

    Args:
        successes: from 0 to `trials`.
        trials: 0 gives the whole range from 0 to 1.
        confidence: between 0 and 1, both excluded.

    Raises:
        ValueError: `successes` is not between 0 and `trials`, or `confidence` is out of range.
    """
    return _bounds(successes, trials, _tail(confidence))


def percentile_ranks(values: int, quantile: float, confidence: float = CONFIDENCE) -> Ranks:
    """Ranks of the two order statistics that enclose a quantile, whatever the distribution.

    Args:
        values: how many values there are, 0 or more.
        quantile: between 0 and 1, both excluded (0.95 for the 95th percentile).
        confidence: of the interval; the true coverage is at least this wherever both ranks exist.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile: found {quantile}, expected a share between 0 and 1")
    if values < 0:
        raise ValueError(f"values: found {values}, expected 0 or more")
    tail = _tail(confidence)

    def at_most(rank: int) -> float:
        return float(special.bdtr(rank, values, quantile)) if rank < values else 1.0

    # With B of the values below the quantile, it lies between the two ranks when low <= B < high.
    guess = int(values * quantile)
    low = _first(lambda rank: rank >= values or at_most(rank) > tail, guess)
    high = _first(lambda rank: rank > values or at_most(rank - 1) >= 1 - tail, guess)
    return Ranks(low, high)


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Distribution-free interval of the median of independent values, or None below six values (at 95 %)."""
    ranks = percentile_ranks(len(values), 0.5, confidence)
    if ranks.low < 1 or ranks.high > len(values):
        return None
    ordered = sorted(values)
    return Interval(ordered[ranks.low - 1], ordered[ranks.high - 1])


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's t interval of the mean of independent values, or None below two values."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    reach = float(special.stdtrit(count - 1, 1 - _tail(confidence))) * math.sqrt(variance / count)
    return Interval(mean - reach, mean + reach)


def _bounds(successes: int, trials: int, tail: float) -> Interval:
    """Clopper and Pearson's bounds, each of which fails with a probability of at most `tail`."""
    if not 0 <= successes <= trials:
        raise ValueError(f"successes: found {successes}, expected 0 to {trials}, the number of trials")
    failures = trials - successes
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(special.betainccinv(successes + 1, failures, tail))
    return Interval(low, high)


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


def _first(holds: Callable[[int], bool], guess: int) -> int:
    """The smallest whole number from 0 on at which a monotone condition holds, searched outwards from a guess."""
    low, high, step = -1, max(guess, 0), 1
    while not holds(high):
        low, high, step = high, high + step, step * 2
    step = 1
    while high - step > low and holds(high - step):
        high, step = high - step, step * 2
    low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high

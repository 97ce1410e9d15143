"""Intervals and verdicts: how much a number of trials can show.

All intervals are two-sided with equal tails at the stated confidence; the first two are exact or conservative:

- a share of messages: Clopper and Pearson, Biometrika 26 (1934) 404-413, through the beta distribution;
- a percentile: distribution-free, between two order statistics whose ranks follow from the binomial
  distribution (David and Nagaraja, Order Statistics, 3rd ed., section 7.1);
- a mean over independent runs: Student's t.

The first two count each message as an independent trial. Losses that come in bursts carry less information than
their number suggests, so a claim near its limit deserves several seeds: `pooled_share` sets beside the interval of the
messages one that takes whole flights as what is independent.

A required share is a claim to one side, so it is judged by the one-sided bound at 95 %: `trials_needed(0.99999)` is
299 572 loss-free trials (the "rule of three"). The interval that is printed beside it is the two-sided one, which is a
little wider; 368 887 loss-free trials bring its low end to 99.999 %. A percentile and a goodput are judged by their
two-sided intervals. More in docs/statistics.md.
"""

import enum
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

CONFIDENCE = 0.95
"""Confidence of every interval that Skybraid prints."""


class Interval(NamedTuple):
    """A closed range that covers the true value at the stated confidence."""

    low: float
    high: float


class PooledShare(NamedTuple):
    """A share over several flights, with both intervals.

    Attributes:
        met: messages that met it.
        trials: messages whose fate is decided.
        messages: Clopper and Pearson's interval, as if messages were independent.
        flights: the interval that takes flights as independent, whatever happens within each.
        method: how the latter was found: "bootstrap", "worst flight" or "flights".
    """

    met: int
    trials: int
    messages: Interval
    flights: Interval
    method: str

    @property
    def estimate(self) -> float:
        """Share from 0 to 1; NaN without a trial."""
        return self.met / self.trials if self.trials else math.nan

    @property
    def cautious(self) -> Interval:
        """What holds both intervals: this one decides."""
        return Interval(min(self.messages.low, self.flights.low), max(self.messages.high, self.flights.high))


class Ranks(NamedTuple):
    """1-based ranks of the order statistics that enclose a percentile.

    `low` is 0 where no value bounds it from below, `high` is the number of values plus one where none bounds it
    from above.
    """

    low: int
    high: int


class Verdict(enum.StrEnum):
    """What the trials show about a requirement."""

    MET = "met"
    NOT_MET = "not met"
    NOT_SHOWN = "not shown"


class ShareVerdict(NamedTuple):
    """A share judged against its target; `needed` is how many trials would show it, where it is not shown."""

    verdict: Verdict
    estimate: float
    interval: Interval
    needed: int | None


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


def trials_needed(target: float, failures: int = 0, confidence: float = CONFIDENCE, sides: Literal[1, 2] = 1) -> int:
    """The fewest trials whose lower bound reaches `target` when `failures` of them fail.

    Args:
        target: the share to show, between 0 and 1, both excluded.
        failures: how many trials have failed, 0 or more.
        confidence: of the bound, between 0 and 1, both excluded.
        sides: 1 for a lower bound alone, by which shares are judged, 2 for the low end of a two-sided interval.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 < target < 1:
        raise ValueError(f"target: found {target}, expected a share between 0 and 1")
    if failures < 0:
        raise ValueError(f"failures: found {failures}, expected 0 or more")
    from scipy import special

    tail = _tail(confidence, sides)

    def shown(trials: int) -> bool:
        return trials > failures and float(special.bdtr(failures, trials, 1 - target)) <= tail

    return _first(shown, failures + math.ceil(math.log(tail) / math.log(target)) - 1)


def share_verdict(successes: int, trials: int, target: float, confidence: float = CONFIDENCE) -> ShareVerdict:
    """Judges a share: met when its lower bound reaches `target`, not met when its upper bound stays below.

    Each bound holds one-sided at `confidence`; the interval returned is two-sided, and a little wider.

    Otherwise the trials do not show it, and `needed` says how many would, if all further ones succeed; where the
    share seen lies below the target there is no such promise and `needed` is None.

    Args:
        successes: trials that succeeded, from 0 to `trials`.
        trials: trials whose outcome is decided; 0 shows nothing and estimates NaN.
        target: share from 0 to 1.
        confidence: of each bound and of the interval.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 <= target <= 1:
        raise ValueError(f"target: found {target}, expected a share from 0 to 1")
    interval = clopper_pearson(successes, trials, confidence)
    lower, upper = _bounds(successes, trials, _tail(confidence, sides=1))
    estimate = successes / trials if trials else math.nan
    if trials and lower >= target:
        return ShareVerdict(Verdict.MET, estimate, interval, None)
    if upper < target:
        return ShareVerdict(Verdict.NOT_MET, estimate, interval, None)
    promising = target < 1 and not estimate < target
    needed = trials_needed(target, trials - successes, confidence) if promising else None
    return ShareVerdict(Verdict.NOT_SHOWN, estimate, interval, needed)


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
    from scipy import special

    tail = _tail(confidence)

    def at_most(rank: int) -> float:
        return float(special.bdtr(rank, values, quantile)) if rank < values else 1.0

    # With B of the values below the quantile, it lies between the two ranks when low <= B < high.
    guess = int(values * quantile)
    low = _first(lambda rank: rank >= values or at_most(rank) > tail, guess)
    high = _first(lambda rank: rank > values or at_most(rank - 1) >= 1 - tail, guess)
    return Ranks(low, high)


def values_needed(quantile: float, confidence: float = CONFIDENCE) -> int:
    """The fewest values whose largest bounds the quantile from above: 146 for the 97.5th percentile at 95 %.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile: found {quantile}, expected a share between 0 and 1")
    return math.ceil(math.log(_tail(confidence)) / math.log(quantile))


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Distribution-free interval of the median of independent values, or None below six values (at 95 %)."""
    ranks = percentile_ranks(len(values), 0.5, confidence)
    if ranks.low < 1 or ranks.high > len(values):
        return None
    ordered = sorted(values)
    return Interval(ordered[ranks.low - 1], ordered[ranks.high - 1])


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Student's t interval of the mean of independent values, or None below two values."""
    from scipy import special

    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    reach = float(special.stdtrit(count - 1, 1 - _tail(confidence))) * math.sqrt(variance / count)
    return Interval(mean - reach, mean + reach)


BOOTSTRAP_FLIGHTS, BOOTSTRAP_MISSING = 10, 5
"""Flights, and flights among them with a miss, from which on the bootstrap is trusted."""

_REPLICATES = 2000
_MOST_DRAWN = 2_000_000


def pooled_share(
    met: Sequence[int], trials: Sequence[int], confidence: float = CONFIDENCE, sides: Literal[1, 2] = 2
) -> PooledShare:
    """A share over several flights: one interval for independent messages, one for independent flights.

    Misses come in bursts, and a burst stays within its flight. The interval over flights draws flights with
    replacement and takes the percentiles of their pooled share (the cluster bootstrap: Davison and Hinkley, Bootstrap
    Methods and their Application, section 3.8; Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13).

    With fewer than ten flights, or fewer than five that miss anything, there is nothing to draw from. Then Clopper and
    Pearson bound how many of the flights miss anything, and each of those is taken to miss as large a share as the
    worst that was seen (for the upper end: as the best of them). Where no flight misses anything, nothing tells how
    much a bad one would miss, so it is taken to miss everything: n flights without a miss show a share of about
    1 - 3/n, by flights, however many messages they carry. The same holds the other way where nothing arrives.

    Args:
        met: messages that met it, in each flight.
        trials: messages whose fate is decided, in each flight; flights without any are left out.
        confidence: of both intervals.
        sides: 2 for intervals, 1 for two bounds that hold one at a time, by which shares are judged.

    Raises:
        ValueError: the sequences differ in length, or a number of successes is not one.
    """
    if len(met) != len(trials):
        raise ValueError(f"met: found {len(met)} flights, expected {len(trials)}, as in trials")
    pairs = [(good, all_) for good, all_ in zip(met, trials, strict=True) if all_]
    tail = _tail(confidence, sides)
    for good, all_ in pairs:
        if not 0 <= good <= all_:
            raise ValueError(f"successes: found {good}, expected 0 to {all_}, the number of trials")
    successes, total = sum(good for good, _ in pairs), sum(all_ for _, all_ in pairs)
    messages = _bounds(successes, total, tail)
    missing = [(all_ - good) / all_ for good, all_ in pairs if good < all_]
    if not pairs:
        return PooledShare(0, 0, messages, Interval(0.0, 1.0), "flights")
    if successes == 0:
        return PooledShare(0, total, messages, _bounds(0, len(pairs), tail), "flights")
    if not missing:
        return PooledShare(successes, total, messages, _bounds(len(pairs), len(pairs), tail), "flights")
    if len(pairs) >= BOOTSTRAP_FLIGHTS and len(missing) >= BOOTSTRAP_MISSING:
        flights = bootstrap_share([good for good, _ in pairs], [all_ for _, all_ in pairs], confidence, sides)
        return PooledShare(successes, total, messages, flights, "bootstrap")
    bad = _bounds(len(missing), len(pairs), tail)
    flights = Interval(1 - bad.high * max(missing), 1 - bad.low * min(missing))
    return PooledShare(successes, total, messages, flights, "worst flight")


def bootstrap_share(
    met: Sequence[float], trials: Sequence[float], confidence: float = CONFIDENCE, sides: Literal[1, 2] = 2
) -> Interval:
    """Percentiles of the pooled share over flights drawn with replacement; the same each time.

    Args:
        met: messages that met it, in each flight.
        trials: messages in each flight, at least one in all.
        confidence: of the interval.
        sides: 2 for an interval, 1 for two bounds that hold one at a time.
    """
    tail, flights = _tail(confidence, sides), len(met)
    good, all_ = np.asarray(met, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    chance = np.random.default_rng(0)
    shares: list[float] = []
    at_once = max(_MOST_DRAWN // flights, 1)
    while len(shares) < _REPLICATES:
        drawn = chance.integers(0, flights, size=(min(at_once, _REPLICATES - len(shares)), flights))
        shares.extend((good[drawn].sum(axis=1) / np.maximum(all_[drawn].sum(axis=1), 1)).tolist())
    low, high = np.quantile(shares, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _bounds(successes: int, trials: int, tail: float) -> Interval:
    """Clopper and Pearson's bounds, each of which fails with a probability of at most `tail`."""
    if not 0 <= successes <= trials:
        raise ValueError(f"successes: found {successes}, expected 0 to {trials}, the number of trials")
    from scipy import special

    failures = trials - successes
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, failures + 1, tail))
    high = 1.0 if failures == 0 else float(special.betainccinv(successes + 1, failures, tail))
    return Interval(low, high)


def _tail(confidence: float, sides: int = 2) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: found {confidence}, expected a share between 0 and 1")
    return (1 - confidence) / sides


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

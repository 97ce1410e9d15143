"""Intervals for shares of messages that fail together.

Losses and lateness come in episodes: an outage of a second takes a thousand messages with it, and these say as much as
one event. So what counts as independent is a block of the run, as long as the data's own dependence asks for, or a
whole run where there are several.

- The length of a block follows from the data: it doubles while a block depends on its neighbour (overlapping batch
  means: Meketon and Schmeiser, Winter Simulation Conference 1984).
- The interval is Fay and Feuer's for weighted sums of Poisson counts (Statistics in Medicine 16, 1997): episodes are
  the events, the messages that each took with it their weights. Of independent misses it is the exact Poisson interval.
- A variance that was estimated from few or from very unequal blocks widens it as Student's t does (Korn and Graubard,
  Survey Methodology 24, 1998).
- Episodes of a run that replays a part of a measurement weigh more, by how far such parts differ
  (`skybraid.clustering`).
- Fewer than five episodes, or none at all, say little about the largest that may come: the upper end of the misses
  allows for an outage of `UNSEEN_S` that was not seen.

`docs/statistics.md` has the coverage of these intervals over links of a known truth, as `make coverage` measures it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from skybraid.model.heavy import special
from skybraid.model.statistics import CONFIDENCE, Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

FEW = 5
"""Below this number of episodes no method's interval holds everywhere; results say so."""

UNSEEN_S = 10.0
"""Length in s of an outage that a run with few episodes may have missed."""

UNSEEN_PART = 0.05
"""The same as a part of the flight time, where that is less: of longer ones a short flight knows nothing."""

RUNS = 10
"""From this number of runs on, runs are the clusters; fewer are judged by blocks unless they differ by more."""

MAX_FACTOR = 1e6
"""How many times longer a flight may be to be called one that would decide."""

_KNOWN = 1e9
"""Degrees of freedom of a variance that is not estimated."""

_MIN_BLOCKS = 16
_SIGNIFICANT = 2.0
"""Standard errors by which blocks must correlate, or vary, to count as dependent."""
_DENSE = 1 / 3
"""From this share of bins with a miss on, gaps between misses separate no episodes."""

SPREAD = ("variance", "freedom", "largest", "episodes", "block_s", "span_s", "clustering")
"""What tables keep of a run's misses besides their number, in the order of `RunShare`."""


def unclustered(_: float) -> float:
    """Clustering where no measurement is replayed in part: a factor of 1."""
    return 1.0


class RunShare(NamedTuple):
    """Share in one run, with the grouping of its misses.

    Attributes:
        trials: messages (or frames) whose fate is decided.
        missed: those among them that failed.
        variance: of `missed`, by blocks, in messages squared.
        freedom: degrees of freedom of `variance`.
        largest: misses of the worst block beyond the expected ones; of dense misses, as many as one event takes.
        episodes: groups of misses with more than a block between them; of dense misses, as many independent ones as
            would vary as much.
        block_s: length of a block in s.
        span_s: time from the first to the last trial, in s.
        clustering: how many times its own weight each episode has, since the run saw a part of a measurement only.
    """

    trials: int
    missed: int
    variance: float
    freedom: float
    largest: float
    episodes: int
    block_s: float
    span_s: float
    clustering: float = 1.0

    @classmethod
    def of_bins(
        cls, trials: npt.ArrayLike, met: npt.ArrayLike, bin_s: float, clustering: Callable[[float], float] = unclustered
    ) -> Self:
        """Builds a share from counts over time.

        Args:
            trials: of each bin, in the order of time.
            met: those among them that met the requirement.
            bin_s: width of a bin in s.
            clustering: the `clustering` for a share of misses (`skybraid.clustering`).
        """
        counted = np.asarray(trials, dtype=np.float64)
        missed = counted - np.asarray(met, dtype=np.float64)
        busy = np.flatnonzero(counted)
        if busy.size == 0:
            return cls(0, 0, 0.0, 0.0, 0.0, 0, bin_s, 0.0)
        counted, missed = counted[busy[0] : busy[-1] + 1], missed[busy[0] : busy[-1] + 1]
        total, failed = float(counted.sum()), float(missed.sum())
        sums = _sums(missed - failed / total * counted)
        length, variance = _block(sums, failed)
        blocks = sums[length:] - sums[:-length]
        episodes = _episodes(missed, length, total, variance)
        return cls(
            trials=round(total),
            missed=round(failed),
            variance=variance,
            freedom=_freedom(blocks, missed.size / length, failed, variance, episodes),
            largest=_largest(blocks, missed, total, variance),
            episodes=episodes,
            block_s=length * bin_s,
            span_s=missed.size * bin_s,
            clustering=clustering(failed / total),
        )

    @classmethod
    def of_counts(cls, trials: int, met: int) -> Self:
        """Builds a share from the sums of a run, within which messages count as independent.

        Args:
            trials: messages whose fate is decided.
            met: those among them that met the requirement.
        """
        missed = trials - met
        return cls(trials, missed, float(missed), _KNOWN, 1.0, missed, 0.0, 0.0)

    @classmethod
    def of_row(cls, row: Mapping[str, Any], met: str, trials: str, prefix: str) -> Self | None:
        """Builds a share from a table row; None without trials.

        Args:
            row: of the table.
            met: the column of the successes.
            trials: the column of the trials.
            prefix: of the columns that hold `SPREAD`.
        """
        if row[trials] is None or row[met] is None:
            return None
        return cls(row[trials], row[trials] - row[met], *(row[f"{prefix}{name}"] for name in SPREAD))

    @property
    def spread(self) -> tuple[float, ...]:
        """The values of `SPREAD`."""
        return self[2:]

    def times(self, factor: float) -> Self:
        """Projection to a flight that many times as long with the same rate of misses."""
        return self._replace(
            trials=round(self.trials * factor),
            missed=round(self.missed * factor),
            variance=self.variance * factor,
            freedom=self.freedom * factor,
            episodes=round(self.episodes * factor),
            span_s=self.span_s * factor,
        )


class ShareInterval(NamedTuple):
    """Share over one or several runs, with its interval.

    Attributes:
        estimate: share from 0 to 1; NaN without a trial.
        interval: the two-sided interval.
        trials: messages (or frames) whose fate is decided.
        missed: those among them that failed.
        episodes: in how many groups they failed.
        runs: how many runs there are.
        method: what counts as independent: "blocks" or "runs".
        block_s: length of a block in s; the longest of all runs.
        span_s: time of all runs in s.
        clustering: how many times its own weight each episode counts, where blocks of a measurement's parts decide.
        copies: how often each distinct run is among the runs; `episodes` and the interval are of the distinct ones.
    """

    estimate: float
    interval: Interval
    trials: int
    missed: int
    episodes: int
    runs: int
    method: str
    block_s: float
    span_s: float
    clustering: float
    copies: int

    @property
    def few(self) -> bool:
        """Whether there are too few episodes for an interval with guaranteed coverage."""
        return self.episodes < FEW * self.clustering


def share_interval(runs: Sequence[RunShare], confidence: float = CONFIDENCE) -> ShareInterval:
    """Returns the share over independent runs, or over the blocks of one run, with its two-sided interval.

    Runs that are copies of one another, to the last message, are judged as one.

    Args:
        runs: those without a trial are left out.
        confidence: of the interval.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: found {confidence}, expected a share between 0 and 1")
    seen = [run for run in runs if run.trials]
    if not seen:
        return ShareInterval(math.nan, Interval(0.0, 1.0), 0, 0, 0, len(runs), "blocks", 0.0, 0.0, 1.0, 1)
    copies = len(seen) if seen[0].missed and all(run == seen[0] for run in seen) else 1
    seen = seen[: len(seen) // copies]
    trials, missed = sum(run.trials for run in seen), sum(run.missed for run in seen)
    span_s, episodes = math.fsum(run.span_s for run in seen), sum(run.episodes for run in seen)
    method, variance, freedom, largest, clustering = _spread(seen, missed / trials)
    variance, freedom, largest = clustering * variance, freedom / clustering, clustering * largest
    few = episodes < FEW * clustering
    if few and span_s:
        unseen_s = min(clustering * UNSEEN_S, UNSEEN_PART * span_s, max(run.span_s for run in seen))
        largest = max(largest, trials * unseen_s / span_s)
    tail = (1 - confidence) / 2
    ends = (variance, freedom, max(largest, 1.0), tail)
    failing = _gamma_interval(missed, *ends)
    if 2 * missed > trials:
        # The rarer outcome is what comes in episodes; of few episodes nobody knows which one that is.
        meeting = _gamma_interval(trials - missed, *ends)
        low, high = trials - meeting.high, trials - meeting.low
        failing = Interval(min(failing.low, low), max(failing.high, high)) if few else Interval(low, high)
    interval = Interval(max(1 - failing.high / trials, 0.0), min(1 - failing.low / trials, 1.0))
    estimate = (trials - missed) / trials
    block_s = max(run.block_s for run in seen)
    counted = (copies * trials, copies * missed, episodes, copies * len(seen))
    return ShareInterval(estimate, interval, *counted, method, block_s, copies * span_s, clustering, copies)


def factor_needed(runs: Sequence[RunShare], target: float, confidence: float = CONFIDENCE) -> float | None:
    """Multiple of the flight time that would decide whether the share reaches `target`, at the present rate of misses.

    Returns:
        At least 1; None where the estimate is too close to the target for `MAX_FACTOR` times the time.
    """
    now = share_interval(runs, confidence)
    if not now.trials or not 0 < target < 1:
        return None
    # Runs that differ weigh as many of their like; so do blocks.
    seen = [run for run in runs if run.trials]
    together = _pooled(seen[: len(seen) // now.copies], now)

    def decides(factor: float) -> bool:
        interval = share_interval([together.times(factor)], confidence).interval
        return interval.low >= target if now.estimate >= target else interval.high < target

    return _smallest(decides, MAX_FACTOR)


def mean_over_time(values: npt.ArrayLike, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of the mean of an autocorrelated series, by batch means; None below 32 values.

    Args:
        values: in the order of time, equally far apart.
        confidence: of the interval.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2 * _MIN_BLOCKS:
        return None
    mean, total = float(series.mean()), float(series.sum())
    length, variance = _block(_sums(series - mean), total)
    freedom = 1.5 * series.size / length - 1
    reach = float(special.stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(variance) / series.size
    return Interval(mean - reach, mean + reach)


def _smallest(holds: Callable[[float], bool], most: float) -> float | None:
    """Smallest factor from 1 on at which a monotone condition holds, to a hundredth; None beyond `most`."""
    high = 1.0
    while not holds(high):
        high *= 2
        if high > most:
            return None
    low = high / 2
    while high > 1 and high - low > 0.01 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _pooled(runs: Sequence[RunShare], seen: ShareInterval) -> RunShare:
    """Pools distinct runs, with the spread that applies to them."""
    spread = _spread(runs, seen.missed / seen.trials)
    return RunShare(
        seen.trials // seen.copies,
        seen.missed // seen.copies,
        spread.variance,
        spread.freedom,
        spread.largest,
        seen.episodes,
        seen.block_s,
        seen.span_s / seen.copies,
        spread.clustering,
    )


class _Spread(NamedTuple):
    """Independent units of a share and their variance.

    Attributes:
        method: "blocks" or "runs".
        variance: of the misses.
        freedom: degrees of freedom of the variance.
        largest: misses of the event that may come next.
        clustering: how many times its own weight an episode counts.
    """

    method: str
    variance: float
    freedom: float
    largest: float
    clustering: float


def _spread(runs: Sequence[RunShare], failing: float) -> _Spread:
    number = len(runs)
    within = math.fsum(run.variance for run in runs)
    largest = max(run.largest for run in runs)
    clustering = max(run.clustering for run in runs)
    blocks = _Spread("blocks", within, math.fsum(run.freedom for run in runs), largest, clustering)
    if number == 1:
        return blocks
    apart = np.asarray([run.missed - failing * run.trials for run in runs])
    between = number / (number - 1) * float(apart @ apart)
    alike = between <= within * (1 + _SIGNIFICANT * math.sqrt(2 / (number - 1)))
    if alike and number < RUNS:
        return blocks
    missed, episodes = sum(run.missed for run in runs), sum(run.episodes for run in runs)
    freedom = min(_freedom(apart, number, missed, between, episodes), number - 1)
    # Of runs that are alike, what comes next is an episode; of others, a run.
    return _Spread("runs", between, freedom, largest if alike else float(np.max(apart)), 1.0)


def _sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Cumulative sums, starting with 0."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _block(sums: npt.NDArray[np.float64], total: float) -> tuple[int, float]:
    """Block length in bins, and the variance of the sum by blocks of that length.

    A length is taken while a block depends on its neighbour, or where blocks of that length vary by more than what was
    taken so far explains: a slow change under much noise.

    Args:
        sums: of the deviations from the mean, with a leading 0.
        total: of the values themselves.
    """
    bins = sums.size - 1
    if bins < 2 * _MIN_BLOCKS:
        return max(bins, 1), total * total

    def variance_by(length: int) -> float:
        batches = sums[length:] - sums[:-length]
        return float(np.mean(batches * batches)) * bins / length * bins / (bins - length)

    taken, variance = 1, variance_by(1)
    length, before, dependent = 2, variance, True
    while bins // length >= _MIN_BLOCKS:
        wider = variance_by(length)
        freedom = min(1.5 * bins / length, max(total * total / variance, 1.0)) if variance > 0 else 1.0
        if dependent or wider > variance * (1 + _SIGNIFICANT * math.sqrt(2 / freedom)):
            taken, variance = length, max(wider, variance)
        dependent = dependent and wider > before * (1 + _SIGNIFICANT * math.sqrt(length / 2 / bins))
        length, before = 2 * length, wider
    return taken, variance


def _episodes(missed: npt.NDArray[np.float64], length: int, trials: float, variance: float) -> int:
    """Groups of misses more than a block apart; for dense misses, the effective number of independent ones."""
    places, failed = np.flatnonzero(missed), float(missed.sum())
    if places.size == 0:
        return 0
    alike = round(min((failed * (1 - failed / trials)) ** 2 / variance, failed)) if variance > 0 else 1
    grouped = 1 + int(np.count_nonzero(np.diff(places) > length))
    return max(alike, 1) if places.size > _DENSE * missed.size else max(alike, grouped)


def _largest(blocks: npt.NDArray[np.float64], missed: npt.NDArray[np.float64], trials: float, variance: float) -> float:
    """Weight assumed for an unseen event: that of the worst block, or the mean one for dense misses."""
    failed = float(missed.sum())
    if np.count_nonzero(missed) > _DENSE * missed.size and failed < trials:
        return variance / (failed * (1 - failed / trials))
    return float(np.max(np.abs(blocks), initial=0.0))


def _freedom(clusters: npt.NDArray[np.float64], number: float, missed: float, variance: float, episodes: int) -> float:
    """Effective degrees of freedom of a variance estimated from clusters of unequal size.

    That is how well the variance for a given number of misses is known: exactly where all episodes have one size.

    Args:
        clusters: misses of each beyond the expected ones; blocks may overlap.
        number: of clusters side by side.
        missed: their sum.
        variance: of that sum.
        episodes: in which they came; of few, no more can be known.
    """
    if episodes < FEW or variance <= 0:
        return float(max(episodes, 1))
    third, fourth = (number * float(np.mean(clusters**power)) for power in (3, 4))
    spread = fourth / variance**2 + variance / missed**2 - 2 * third / (variance * missed)
    # Few episodes rarely hold the longest: what they say of their inequality is too little.
    return 2 / max(spread * (episodes + 3) / (episodes - 3), 1e-9)


def _gamma_interval(missed: float, variance: float, freedom: float, largest: float, tail: float) -> Interval:
    """Interval of a weighted sum of Poisson counts (Fay and Feuer 1997).

    Args:
        missed: the sum.
        variance: its variance.
        freedom: degrees of freedom of the variance.
        largest: weight of the event that may come next.
        tail: probability of either side.
    """
    student = float(special.stdtrit(max(freedom, 1.0), 1 - tail) / special.ndtri(1 - tail))
    widened = variance * max(student, 1.0) ** 2
    low = float(missed)
    if missed > 0 and widened > 0:
        low = widened / missed * float(special.gammaincinv(missed * missed / widened, tail))
    more, wider = missed + largest, widened + largest * largest
    return Interval(low, wider / more * float(special.gammainccinv(more * more / wider, tail)))

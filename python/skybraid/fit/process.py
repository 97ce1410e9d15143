"""A process in time: a marginal distribution, and how long the values remember.

The process is a Gaussian copula of two autoregressive parts: with `a = exp(-step/slow)`, `S' = a S + sqrt(1 - a^2) e`,
likewise F with `fast`; `Z = sqrt(s) S + sqrt(1 - s) F`; the value is `Q(Phi(Z))` of the quantile table Q. The normal
scores of its values therefore have the correlation `s exp(-t/slow) + (1 - s) exp(-t/fast)` at lag t, whatever Q is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid import _core
from skybraid.model.heavy import np

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

PROBABILITIES = (
    0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7,
    0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0,
)  # fmt: skip
"""At which the quantile table is given, where there are values enough."""

MIN_TAIL = 1e-5
"""Smallest probability that is written, from either end."""

MAX_LAG_S = 120.0
"""Longest lag in s at which the memory is looked at, unless another one is given."""

_LAG_SHARE = 0.25
"""Part of a series beyond which lags have too few pairs."""


@dataclass(frozen=True)
class Memory:
    """Memory of a process: how long its values stay correlated.

    Attributes:
        slow_s: correlation time of the slow part in s (1/e); 0: none.
        fast_s: of the fast part in s.
        slow_share: share of the variance of the slow part, 0 to 1.
        misfit: root mean square of the difference of the autocorrelations.
    """

    slow_s: float
    fast_s: float
    slow_share: float
    misfit: float = 0.0

    def correlation(self, lags_s: Floats) -> Floats:
        """Returns the correlation of normal scores at lags in s, shape (n,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            slow = np.where(lags_s == 0, 1.0, np.exp(-lags_s / self.slow_s) if self.slow_s > 0 else 0.0)
            fast = np.where(lags_s == 0, 1.0, np.exp(-lags_s / self.fast_s) if self.fast_s > 0 else 0.0)
        found: Floats = self.slow_share * slow + (1 - self.slow_share) * fast
        return found


@dataclass(frozen=True)
class Process:
    """A fitted process.

    Attributes:
        table: pairs of probability and value; probabilities increase from 0 to 1, values do not decrease.
        memory: how long values stay correlated.
        step_s: for how long a value holds, in s.
        plus: added to every value.
        both_ways: correlation of the normal scores with those of the other direction, 0 to 1.
    """

    table: tuple[tuple[float, float], ...]
    memory: Memory
    step_s: float
    plus: float = 0.0
    both_ways: float = 0.0

    def sample(
        self, count: int, random: np.random.Generator, scale: float = 1.0, common: Floats | None = None
    ) -> Floats:
        """Returns `count` values, one a step.

        Args:
            count: number of values.
            random: of the process alone.
            scale: factor on all quantiles.
            common: standard normal noise that both directions share, shape (2, n), n at least `count`.
        """
        noise = random.standard_normal((2, count))
        if common is not None:
            noise = np.sqrt(self.both_ways) * common[:, :count] + np.sqrt(1 - self.both_ways) * noise
        share = self.memory.slow_share
        scores = np.sqrt(share) * _autoregressive(noise[0], self.memory.slow_s, self.step_s)
        scores += np.sqrt(1 - share) * _autoregressive(noise[1], self.memory.fast_s, self.step_s)
        probabilities, values = np.array(self.table).T
        found: Floats = self.plus + scale * np.interp(_core.normal_cdf(scores), probabilities, values)
        return found


def quantile_table(values: Floats) -> tuple[tuple[float, float], ...]:
    """Returns the quantiles of finite values at those probabilities that they can tell.

    Args:
        values: shape (n,), at least one; others than finite ones are left out.
    """
    known = values[np.isfinite(values)]
    # The k-th of n values is at (k - 0.5) / n (Hazen 1914): the extremes are drawn as often as they were seen.
    end = max(0.5 / len(known), MIN_TAIL)
    places = sorted({0.0, end, *(p for p in PROBABILITIES if end < p < 1 - end), 1 - end, 1.0})
    quantiles = np.quantile(known, places, method="hazen")
    return tuple((p, float(value)) for p, value in zip(places, np.maximum.accumulate(quantiles), strict=True))


def normal_scores(values: Floats) -> Floats:
    """Returns the normal quantiles of the values' ranks, shape (n,); equal values share one; NaN where not finite."""
    scores = np.full(len(values), np.nan)
    known = np.isfinite(values)
    if known.any():
        _, inverse, counts = np.unique(values[known], return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - (counts - 1) / 2 - 0.5
        quantiles = _core.normal_quantile(middle / known.sum())
        scores[known] = quantiles[inverse]
    return scores


def autocorrelation(series: list[Floats], lags: list[int]) -> Floats:
    """Returns the correlation of normal scores at lags in steps, over all series together.

    Args:
        series: scores, NaN where not measured.
        lags: in steps, each at least 1.
    """
    found = []
    for lag in lags:
        product, square, pairs = 0.0, 0.0, 0
        for scores in series:
            if len(scores) <= lag:
                continue
            first, second = scores[:-lag], scores[lag:]
            both = np.isfinite(first) & np.isfinite(second)
            product += float(first[both] @ second[both])
            square += float((first[both] @ first[both] + second[both] @ second[both]) / 2)
            pairs += int(both.sum())
        found.append(product / square if pairs > 1 and square > 0 else np.nan)
    return np.array(found)


def fit_memory(series: list[Floats], step_s: float, max_lag_s: float = MAX_LAG_S) -> Memory:
    """Fits the two correlation times to the autocorrelation of series' normal scores, by least squares.

    The scores of a series have the mean zero, whatever slow change was within it: their autocorrelation is that of the
    process about its mean over the series, and is compared with that one.

    Args:
        series: values at even steps, NaN where not measured.
        step_s: in s.
        max_lag_s: longest lag in s.
    """
    longest = max(len(one) for one in series)
    most = min(int(longest * _LAG_SHARE), int(max_lag_s / step_s))
    if most < 2:
        return Memory(0.0, 0.0, 0.0)
    lags = sorted({int(lag) for lag in np.geomspace(1, most, 40)})
    measured = autocorrelation([normal_scores(one) for one in series], lags)
    known = np.isfinite(measured)
    lags_s = np.array(lags)[known] * step_s
    lengths = [len(one) for one in series if len(one)]
    measured = measured[known]
    if len(measured) < 2:
        return Memory(0.0, 0.0, 0.0)
    times_s = np.geomspace(step_s / 3, max(most * step_s, step_s), 60)
    best = Memory(0.0, 0.0, 0.0, float(np.sqrt(np.mean(measured**2))))
    # Flights have quantiles of their own: what changes from one to the next is no memory of a process.
    # A fast time of zero is white noise: part of what was measured need not be remembered at all.
    fast_times_s = np.concatenate([[0.0], times_s])
    of_mean = np.array([_variance_of_mean(float(one), step_s, lengths) for one in fast_times_s])
    decays = np.vstack([np.zeros(len(lags_s)), np.exp(-lags_s[None, :] / times_s[:, None])])
    # Of a part with the correlation r and the variance v of its mean, what is left of r is (r - v) / (1 - v).
    left = decays - (1 - measured) * of_mean[:, None]
    for at in range(1, len(left)):
        # With both times given, the share is a line's slope.
        over, away = left[at] - left[: at + 1], measured - left[: at + 1]
        square = (over * over).sum(axis=1)
        slope = np.divide((over * away).sum(axis=1), square, out=np.zeros(at + 1), where=square > 1e-12)
        share = np.clip(slope, 0.0, 1.0)
        kept = 1 - share * of_mean[at] - (1 - share) * of_mean[: at + 1]
        misfit = np.sqrt(np.mean((away - share[:, None] * over) ** 2, axis=1)) / kept
        place = int(np.argmax(misfit <= misfit.min() + 1e-12))
        if misfit[place] < best.misfit - 1e-12:
            best = Memory(
                float(fast_times_s[at]), float(fast_times_s[place]), float(share[place]), float(misfit[place])
            )
    return best


def _variance_of_mean(time_s: float, step_s: float, lengths: list[int]) -> float:
    """Returns the variance of the mean over series of an autoregressive process of variance 1."""
    kept = float(np.exp(-step_s / time_s)) if time_s > 0 else 0.0
    counts = np.array(lengths, dtype=np.float64)
    each = ((1 + kept) / (1 - kept) - 2 * kept * (1 - kept**counts) / (counts * (1 - kept) ** 2)) / counts
    return float(np.average(each, weights=counts))


def _autoregressive(noise: Floats, time_s: float, step_s: float) -> Floats:
    if time_s <= 0:
        return noise
    kept = float(np.exp(-step_s / time_s))
    noise = noise.copy()
    noise[1:] *= np.sqrt(1 - kept * kept)
    found = np.empty(len(noise))
    before = 0.0
    for place, value in enumerate(noise):
        before = kept * before + float(value)
        found[place] = before
    return found

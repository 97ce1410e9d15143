"""Stochastic process: a marginal distribution and a memory.

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
"""Probabilities of the quantile table, as far as there are enough values."""

MIN_TAIL = 1e-5
"""Minimum tail probability that is written, at either end."""

MAX_LAG_S = 120.0
"""Default maximum lag in s at which the memory is fitted."""

_LAG_SHARE = 0.25
"""Share of a series beyond which lags have too few pairs."""


@dataclass(frozen=True)
class Memory:
    """Memory of a process: the correlation of its values over time.

    Attributes:
        slow_s: correlation time of the slow part in s (1/e); 0: none.
        fast_s: correlation time of the fast part in s; 0: white noise.
        slow_share: share of the variance of the slow part, 0 to 1.
        misfit: root mean square difference between measured and fitted autocorrelation.
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
        memory: correlation of values over time.
        step_s: time in s for which a value holds.
        plus: offset added to every value.
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
        """Returns `count` random values, one per step.

        Args:
            count: number of values.
            random: generator of this process.
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
    """Returns the quantiles of finite values, at the probabilities that their number can resolve.

    Args:
        values: shape (n,), at least one finite; others are ignored.
    """
    known = values[np.isfinite(values)]
    # The k-th of n values is at (k - 0.5) / n (Hazen 1914): the extremes are drawn as often as they occurred.
    end = max(0.5 / len(known), MIN_TAIL)
    places = sorted({0.0, end, *(p for p in PROBABILITIES if end < p < 1 - end), 1 - end, 1.0})
    quantiles = np.quantile(known, places, method="hazen")
    return tuple((p, float(value)) for p, value in zip(places, np.maximum.accumulate(quantiles), strict=True))


def normal_scores(values: Floats) -> Floats:
    """Returns the normal quantiles of the values' ranks, shape (n,); ties share one; NaN for non-finite values."""
    scores = np.full(len(values), np.nan)
    known = np.isfinite(values)
    if known.any():
        _, inverse, counts = np.unique(values[known], return_inverse=True, return_counts=True)
        middle = np.cumsum(counts) - (counts - 1) / 2 - 0.5
        quantiles = _core.normal_quantile(middle / known.sum())
        scores[known] = quantiles[inverse]
    return scores


def autocorrelation(series: list[Floats], lags: list[int]) -> Floats:
    """Returns the correlation of normal scores at lags, pooled over all series.

    Args:
        series: normal scores, NaN where not measured.
        lags: lags in steps, each at least 1.
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
    """Fits both correlation times to the autocorrelation of the series' normal scores, by least squares.

    Scores have zero mean over each series, so slow changes are partly removed. Their autocorrelation is therefore
    compared with that of a process about its mean over the series.

    Args:
        series: values at even steps, NaN where not measured.
        step_s: step in s.
        max_lag_s: maximum lag in s.
    """
    longest = max(len(one) for one in series)
    max_lag = min(int(longest * _LAG_SHARE), int(max_lag_s / step_s))
    if max_lag < 2:
        return Memory(0.0, 0.0, 0.0)
    lags = sorted({int(lag) for lag in np.geomspace(1, max_lag, 40)})
    measured = autocorrelation([normal_scores(one) for one in series], lags)
    known = np.isfinite(measured)
    lags_s = np.array(lags)[known] * step_s
    lengths = [len(one) for one in series if len(one)]
    measured = measured[known]
    if len(measured) < 2:
        return Memory(0.0, 0.0, 0.0)
    times_s = np.geomspace(step_s / 3, max(max_lag * step_s, step_s), 60)
    best = Memory(0.0, 0.0, 0.0, float(np.sqrt(np.mean(measured**2))))
    # Flights have their own quantiles: changes from one flight to the next are not memory.
    # A fast time of zero is white noise: part of the variance may have no memory.
    fast_times_s = np.concatenate([[0.0], times_s])
    of_mean = np.array([_variance_of_mean(float(one), step_s, lengths) for one in fast_times_s])
    decays = np.vstack([np.zeros(len(lags_s)), np.exp(-lags_s[None, :] / times_s[:, None])])
    # A part with correlation r and variance v of its mean has the remaining correlation (r - v) / (1 - v).
    remaining = decays - (1 - measured) * of_mean[:, None]
    for at in range(1, len(remaining)):
        # For fixed times, the share is the slope of a line.
        slow_rest, measured_rest = remaining[at] - remaining[: at + 1], measured - remaining[: at + 1]
        square = (slow_rest * slow_rest).sum(axis=1)
        slope = np.divide((slow_rest * measured_rest).sum(axis=1), square, out=np.zeros(at + 1), where=square > 1e-12)
        share = np.clip(slope, 0.0, 1.0)
        scale = 1 - share * of_mean[at] - (1 - share) * of_mean[: at + 1]
        misfit = np.sqrt(np.mean((measured_rest - share[:, None] * slow_rest) ** 2, axis=1)) / scale
        place = int(np.argmax(misfit <= misfit.min() + 1e-12))
        if misfit[place] < best.misfit - 1e-12:
            best = Memory(
                float(fast_times_s[at]), float(fast_times_s[place]), float(share[place]), float(misfit[place])
            )
    return best


def _variance_of_mean(time_s: float, step_s: float, lengths: list[int]) -> float:
    """Returns the variance of the mean over series of an autoregressive process of variance 1."""
    decay = float(np.exp(-step_s / time_s)) if time_s > 0 else 0.0
    counts = np.array(lengths, dtype=np.float64)
    each = ((1 + decay) / (1 - decay) - 2 * decay * (1 - decay**counts) / (counts * (1 - decay) ** 2)) / counts
    return float(np.average(each, weights=counts))


def _autoregressive(noise: Floats, time_s: float, step_s: float) -> Floats:
    if time_s <= 0:
        return noise
    decay = float(np.exp(-step_s / time_s))
    noise = noise.copy()
    noise[1:] *= np.sqrt(1 - decay * decay)
    found = np.empty(len(noise))
    previous = 0.0
    for place, value in enumerate(noise):
        previous = decay * previous + float(value)
        found[place] = previous
    return found

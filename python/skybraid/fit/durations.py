"""Distributions of durations and intervals: exponential, hyperexponential, quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.fit.process import quantile_table
from skybraid.model.heavy import np

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

ENOUGH_FOR_TWO = 30
"""Minimum number of intervals for fitting two exponentials."""

ENOUGH_FOR_QUANTILES = 20
"""Minimum number of durations for fitting quantiles; with fewer, only their number and mean are used."""

MAX_TIMES_LONGEST = 10.0
"""Maximum ratio of a future duration to the longest of a few measured ones."""

MIN_TAIL = 10
"""Minimum number of durations in a fitted tail."""

TAIL_SHAPE, TAIL_EVENTS = 0.4, 10
"""Prior shape of the tail of stalls and times without service (0.0 to 0.8 of eleven measured sets, `docs/fit.md`), and
its weight in durations.
"""

MIN_SHAPE, MAX_SHAPE = 0.05, 0.8
"""Range of the tail's shape: nearly exponential, and heavier than any measured."""

_TAIL_PROBABILITIES = (0.25, 0.5, 0.75, 0.9, 0.97, 1.0)

_FEW_PROBABILITIES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99)

_ROUNDS = 500


@dataclass(frozen=True)
class Exponentials:
    """Mixture of exponential distributions: weights that sum to 1, and means in s."""

    weights: tuple[float, ...]
    means_s: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        """Returns the mean in s."""
        return sum(weight * mean for weight, mean in zip(self.weights, self.means_s, strict=True))

    def scaled(self, factor: float) -> Exponentials:
        """Returns the distribution of values `factor` times as long."""
        return Exponentials(self.weights, tuple(factor * mean for mean in self.means_s))

    def sample(self, count: int, random: np.random.Generator) -> Floats:
        """Returns `count` random values in s."""
        chosen = random.choice(len(self.weights), size=count, p=np.array(self.weights))
        found: Floats = random.exponential(np.array(self.means_s)[chosen])
        return found

    def toml(self) -> str:
        """Returns the distribution as a TOML value of a scenario."""
        if len(self.weights) == 1:
            return f'{{ mean = "{self.means_s[0]:.4g}s" }}'
        parts = ", ".join(
            f'{{ weight = {weight:.4g}, mean = "{mean:.4g}s" }}'
            for weight, mean in zip(self.weights, self.means_s, strict=True)
        )
        return f"{{ exponentials = [{parts}] }}"


@dataclass(frozen=True)
class Quantiles:
    """Distribution given by its quantiles: pairs of probability and duration in s."""

    table: tuple[tuple[float, float], ...]

    def scaled(self, factor: float) -> Quantiles:
        """Returns the distribution of values `factor` times as long."""
        return Quantiles(tuple((p, factor * value) for p, value in self.table))

    def sample(self, count: int, random: np.random.Generator) -> Floats:
        """Returns `count` random values in s."""
        probabilities, values = np.array(self.table).T
        found: Floats = np.interp(random.random(count), probabilities, values)
        return found

    def toml(self) -> str:
        """Returns the distribution as a TOML value of a scenario."""
        pairs = ", ".join(f'[{p:g}, "{1e3 * value:.6g}ms"]' for p, value in self.table)
        return f"{{ quantiles = [{pairs}] }}"


def fit_intervals(intervals_s: Floats, span_s: float) -> Exponentials:
    """Fits intervals between events: two exponentials if events are clustered, else one.

    The mixture is found by expectation maximisation, starting from the two halves of the sorted intervals. It is used
    if its log-likelihood exceeds that of one exponential by more than its two extra parameters (Akaike 1974).

    Args:
        intervals_s: intervals in s, each above zero; shape (n,).
        span_s: time in s in which `n + 1` events were seen; the fit reproduces their rate exactly.
    """
    count = len(intervals_s) + 1
    one = Exponentials((1.0,), (span_s / count,))
    if len(intervals_s) < ENOUGH_FOR_TWO:
        return one
    values = np.sort(intervals_s)
    middle = len(values) // 2
    weights, means = np.array([0.5, 0.5]), np.array([values[:middle].mean(), values[middle:].mean()])
    likelihood = -np.inf
    for _ in range(_ROUNDS):
        density = weights / means * np.exp(-values[:, None] / means)
        total = density.sum(axis=1)
        before, likelihood = likelihood, float(np.log(np.maximum(total, 1e-300)).sum())
        shares = density / np.maximum(total, 1e-300)[:, None]
        weights = shares.mean(axis=0)
        means = np.maximum((shares * values[:, None]).sum(axis=0) / np.maximum(shares.sum(axis=0), 1e-12), 1e-6)
        if likelihood - before < 1e-9 * abs(likelihood):
            break
    single_likelihood = float((-np.log(values.mean()) - values / values.mean()).sum())
    if likelihood - single_likelihood < 2 or weights.min() < 1e-3:
        return one
    order = np.argsort(means)
    return Exponentials(tuple(float(weight) for weight in weights[order]), tuple(float(mean) for mean in means[order]))


@dataclass(frozen=True)
class DurationPrior:
    """Prior for a kind of duration, from measurements of other networks.

    Attributes:
        mean_s: mean duration in s.
        events: weight of the prior, as a number of durations.
        longest_s: maximum duration in s, unless a longer one was measured.
        shortest_s: minimum detectable duration in s.
    """

    mean_s: float
    events: int
    longest_s: float
    shortest_s: float = 0.0


def fit_durations(durations_s: Floats, prior: DurationPrior | None = None) -> Quantiles:
    """Fits durations by quantiles; if they are few, as an exponential distribution of unknown mean.

    The next duration exceeds the longest of n with probability `1 / (n + 1)`, by an excess from the generalised Pareto
    distribution fitted to the longest fifth (Pickands 1975). After n exponential durations of sum s, the next one
    exceeds x with probability `(1 + x / s) ** -n` (Lomax 1954; the prior is 1 / mean); this is applied to the excess
    over the minimum duration, with the prior's durations added.

    Args:
        durations_s: durations in s, shape (n,); n at least 1, or 0 with a prior.
        prior: prior from other networks.
    """
    prior = prior or DurationPrior(0.0, 0, 0.0)
    longest_s = float(durations_s.max(initial=0.0))
    if len(durations_s) < ENOUGH_FOR_QUANTILES:
        count = len(durations_s) + prior.events
        total_s = float(durations_s.sum()) + prior.events * prior.mean_s
        sum_s = max(total_s - count * prior.shortest_s, 0.0)
        max_s = max(prior.longest_s, MAX_TIMES_LONGEST * longest_s)

        def quantile_s(p: float) -> float:
            return min(prior.shortest_s + sum_s * (math.pow(1 - p, -1 / count) - 1), max_s)

        return Quantiles((*((p, quantile_s(p)) for p in _FEW_PROBABILITIES), (1.0, quantile_s(0.999))))
    table = quantile_table(durations_s)
    if prior.longest_s <= longest_s:
        return Quantiles(table)
    share = len(durations_s) / (len(durations_s) + 1)
    measured = ((share * p, value) for p, value in table)
    beyond = _tail(durations_s)
    return Quantiles(
        (*measured, *((share + (1 - share) * p, min(longest_s + beyond_s, prior.longest_s)) for p, beyond_s in beyond))
    )


def _tail(durations_s: Floats) -> list[tuple[float, float]]:
    """Returns quantiles of the excess in s of the next duration over the longest one, given that it is longer.

    The shape is estimated by probability-weighted moments (Hosking and Wallis 1987) and shrunk towards that of other
    networks.
    """
    values = np.sort(durations_s)
    count = max(len(values) // 5, MIN_TAIL)
    excess = values[-count:] - values[-count - 1]
    mean = float(excess.mean())
    weighted = float((excess * (1 - (np.arange(1, count + 1) - 0.35) / count)).mean())
    measured_shape = 2 - mean / (mean - 2 * weighted) if mean > 2 * weighted else 0.0
    shape = min(max((count * measured_shape + TAIL_EVENTS * TAIL_SHAPE) / (count + TAIL_EVENTS), MIN_SHAPE), MAX_SHAPE)
    scale_s = mean * (1 - shape) + shape * float(excess[-1])
    return [(p, scale_s / shape * (math.pow(1 - min(p, 0.999), -shape) - 1)) for p in _TAIL_PROBABILITIES]

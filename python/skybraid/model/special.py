"""Quantiles and tails of the binomial, t, gamma and normal distributions, to about 12 digits.

The densities are those of Loader (2000), "Fast and accurate computation of binomial probabilities", which keep their
digits for counts of 10^8; the tails are the continued fraction of DiDonato and Morris (1992, equation 9) and those of
Abramowitz and Stegun, 6.5.29 and 6.5.31. So no package of 100 MB has to be installed for a handful of functions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TINY = 1e-300
_SMALLEST = 4e-16
_CONVERGED = 2e-15
_MAX_STEPS = 500
_MAX_TERMS = 1_000_000
_KEPT = 4096
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
_STIRLING_FROM = 15.0
_CLOSE = 0.1

_NORMAL = NormalDist()


def normal_cdf(score: float) -> float:
    """Probability that a standard normal variable is at most `score`."""
    return 0.5 * math.erfc(-score / math.sqrt(2))


def normal_quantile(probability: float) -> float:
    """Inverse of `normal_cdf`; infinite at 0 and 1."""
    if 0 < probability < 1:
        return _NORMAL.inv_cdf(probability)
    return math.inf if probability >= 1 else -math.inf


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """Probability of at most so many successes of `trials`, each of which has this probability."""
    if successes >= trials or probability <= 0:
        return 1.0
    if successes < 0:
        return 0.0
    if probability >= 1:
        return 0.0
    return _beta_tails(trials - successes, successes + 1, 1 - probability, probability)[0]


@lru_cache(_KEPT)
def beta_quantile(a: float, b: float, probability: float) -> float:
    """Value below which a beta variable with shapes `a` and `b` is with this probability, 0 to 1."""
    return _beta_inverse(a, b, probability, 1 - probability)


@lru_cache(_KEPT)
def beta_upper_quantile(a: float, b: float, probability: float) -> float:
    """Value above which a beta variable with shapes `a` and `b` is with this probability, 0 to 1."""
    return _beta_inverse(a, b, 1 - probability, probability)


@lru_cache(_KEPT)
def student_quantile(freedom: float, probability: float) -> float:
    """Quantile of Student's t with `freedom` degrees above zero, not necessarily whole."""
    if probability < 0.5:
        return -student_quantile(freedom, 1 - probability)
    if math.isinf(freedom):
        return normal_quantile(probability)
    central, outside = 2 * probability - 1, 2 * (1 - probability)
    # t^2 / (n + t^2) and its complement are beta variables; the smaller of the two keeps its digits.
    ratio = _beta_inverse(0.5, freedom / 2, central, outside)
    if ratio < 0.5:
        return math.sqrt(freedom * ratio / (1 - ratio))
    rest = _beta_inverse(freedom / 2, 0.5, outside, central)
    return math.sqrt(freedom * (1 - rest) / rest) if rest > 0 else math.inf


@lru_cache(_KEPT)
def gamma_quantile(shape: float, probability: float) -> float:
    """Value below which a gamma variable of this shape and scale 1 is with this probability, 0 to 1."""
    return _gamma_inverse(shape, probability, 1 - probability)


@lru_cache(_KEPT)
def gamma_upper_quantile(shape: float, probability: float) -> float:
    """Value above which a gamma variable of this shape and scale 1 is with this probability, 0 to 1."""
    return _gamma_inverse(shape, 1 - probability, probability)


def _stirling_error(count: float) -> float:
    """Logarithm of count! less that of Stirling's formula."""
    if count <= _STIRLING_FROM:
        return math.lgamma(count + 1) - (count + 0.5) * math.log(count) + count - _LOG_ROOT_2PI
    square = count * count
    series = 1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square
    return series / count


def _deviance(found: float, expected: float) -> float:
    """`found` log(`found`/`expected`) + `expected` - `found`, without cancellation."""
    difference = found - expected
    if abs(difference) >= _CLOSE * (found + expected):
        return found * math.log(found / expected) - difference
    ratio = difference / (found + expected)
    total, term = difference * ratio, 2 * found * ratio
    for number in range(3, 1000, 2):
        term *= ratio * ratio
        longer = total + term / number
        if longer == total:
            break
        total = longer
    return total


def _beta_weight(a: float, b: float, x: float, y: float) -> float:
    """x^a y^b / B(a, b), where y = 1 - x."""
    both = a + b
    log = _stirling_error(both) - _stirling_error(a) - _stirling_error(b)
    log -= _deviance(a, both * x) + _deviance(b, both * y)
    return math.exp(log - _LOG_ROOT_2PI) * math.sqrt(a * b / both)


def _beta_tails(a: float, b: float, x: float, y: float) -> tuple[float, float]:
    """Regularised incomplete beta function at x and its complement, where y = 1 - x."""
    if x > (a + 1) / (a + b + 2):
        upper, lower = _beta_tails(b, a, y, x)
        return lower, upper
    if x <= 0:
        return 0.0, 1.0

    # Lentz's method, written out: every interval of a report passes through this loop.
    above = a * y - b * x + 1
    value = numerator = a * above / (a + 1) or _TINY
    denominator = 0.0
    square, both = x * x, a + b
    for number in range(1, _MAX_TERMS):
        below = a + 2 * number - 1
        rest = number * (b - number)
        over = (a + number - 1) / below * (both + number - 1) / below * rest * square
        plus = number + rest * x / below + (a + number) * (above + number * (2 - x)) / (below + 2)
        denominator = 1 / (plus + over * denominator or _TINY)
        numerator = plus + over / numerator or _TINY
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < _SMALLEST:
            break
    lower = _beta_weight(a, b, x, y) / value
    return lower, 1 - lower


def _gamma_tails(shape: float, x: float) -> tuple[float, float]:
    """Regularised incomplete gamma function at x and its complement."""
    if x <= 0:
        return 0.0, 1.0
    weight = math.exp(-_stirling_error(shape) - _deviance(shape, x) - _LOG_ROOT_2PI) / math.sqrt(shape)
    if x < shape + 1:
        total = term = 1.0
        for number in range(1, _MAX_TERMS):
            term *= x / (shape + number)
            total += term
            if term < total * _SMALLEST:
                break
        lower = weight * total
        return lower, 1 - lower

    value = numerator = x + 1 - shape or _TINY
    denominator = 0.0
    for number in range(1, _MAX_TERMS):
        over, plus = number * (shape - number), x + 1 - shape + 2 * number
        denominator = 1 / (plus + over * denominator or _TINY)
        numerator = plus + over / numerator or _TINY
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < _SMALLEST:
            break
    upper = weight * shape / value
    return 1 - upper, upper


def _beta_inverse(a: float, b: float, lower: float, upper: float) -> float:
    if lower <= 0 or upper <= 0:
        return 0.0 if lower <= 0 else 1.0
    if a > b:
        return 1 - _beta_inverse(b, a, upper, lower)

    def density(x: float) -> float:
        return _beta_weight(a, b, x, 1 - x) / (x * (1 - x))

    return _inverse(lambda x: _beta_tails(a, b, x, 1 - x), density, (lower, upper), a / (a + b), 1.0)


def _gamma_inverse(shape: float, lower: float, upper: float) -> float:
    if lower <= 0 or upper <= 0:
        return 0.0 if lower <= 0 else math.inf

    def density(x: float) -> float:
        log = -_stirling_error(shape) - _deviance(shape, x) - _LOG_ROOT_2PI
        return math.exp(log) * math.sqrt(shape) / x

    return _inverse(lambda x: _gamma_tails(shape, x), density, (lower, upper), shape, math.inf)


def _inverse(
    tails: Callable[[float], tuple[float, float]],
    density: Callable[[float], float],
    wanted: tuple[float, float],
    start: float,
    end: float,
) -> float:
    """Solves for the place with the wanted tails, by Newton's method on the logarithm of the smaller one.

    The lower tail is nearly a power of x, the upper one nearly an exponential: so in the logarithm of x and in x itself
    they are nearly straight. A step out of what is known halves it instead.
    """
    by_lower = wanted[0] <= wanted[1]
    low, high, x = 0.0, end, start
    for _ in range(_MAX_STEPS):
        below, above = tails(x)
        tail, target = (below, wanted[0]) if by_lower else (above, wanted[1])
        if (tail < target) == by_lower:
            low = x
        else:
            high = x
        slope = density(x)
        if tail > 0 and slope > 0:
            distance = math.log(target / tail) * tail / slope
            step = x * math.exp(min(distance / x, 700.0)) if by_lower else x - distance
        else:
            step = math.nan
        if abs(step - x) <= _CONVERGED * x:
            return step
        if not low < step < high:
            step = 2 * x if math.isinf(high) else (math.sqrt(low * high) if low > 0 else high / 16)
        x = step
    return x

"""Quantiles and tails against closed forms, published tables and exact sums."""

import math
from decimal import Decimal, localcontext

import pytest
from scipy import special as reference

from skybraid.model import special

P = (1e-6, 0.005, 0.025, 0.3, 0.5, 0.9, 0.975, 0.995)


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize("shape", [1, 2.5, 40, 1_000, 34_694_266])
def test_beta_quantiles_with_a_shape_of_one_have_closed_forms(shape: float, p: float) -> None:
    lowest, highest = -math.expm1(math.log1p(-p) / shape), math.exp(math.log(p) / shape)
    assert special.beta_quantile(1, shape, p) == pytest.approx(lowest, rel=1e-12)
    assert special.beta_quantile(shape, 1, p) == pytest.approx(highest, rel=1e-12)
    assert special.beta_upper_quantile(1, shape, 1 - p) == pytest.approx(lowest, rel=1e-9)


# Abramowitz and Stegun, table 26.10, to its digits.
@pytest.mark.parametrize(
    ("freedom", "p", "t"),
    [
        (1, 0.975, 12.706),
        (2, 0.975, 4.303),
        (5, 0.995, 4.032),
        (10, 0.95, 1.812),
        (30, 0.975, 2.042),
        (120, 0.995, 2.617),
    ],
)
def test_student_quantiles_are_those_of_the_table(freedom: float, p: float, t: float) -> None:
    assert special.student_quantile(freedom, p) == pytest.approx(t, abs=5.1e-4)
    assert special.student_quantile(freedom, 1 - p) == pytest.approx(-t, abs=5.1e-4)


@pytest.mark.parametrize("p", [0.5, 0.6, 0.9, 0.975, 0.999])
def test_student_quantiles_of_few_degrees_have_closed_forms(p: float) -> None:
    two = (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    assert special.student_quantile(1, p) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-11, abs=1e-15)
    assert special.student_quantile(2, p) == pytest.approx(two, rel=1e-11, abs=1e-15)
    # The expansion in 1/n of Abramowitz and Stegun, 26.7.5, of which the next term is far below 1e-10 here.
    z = special.normal_quantile(p)
    assert special.student_quantile(1e6, p) == pytest.approx(z + (z**3 + z) / 4e6, rel=1e-10, abs=1e-15)
    assert special.student_quantile(math.inf, p) == z


@pytest.mark.parametrize("p", P)
def test_a_gamma_quantile_of_shape_one_is_a_logarithm(p: float) -> None:
    assert special.gamma_quantile(1, p) == pytest.approx(-math.log1p(-p), rel=1e-12)
    assert special.gamma_upper_quantile(1, p) == pytest.approx(-math.log(p), rel=1e-12)


@pytest.mark.parametrize("count", [1, 7, 150, 3_000])
@pytest.mark.parametrize("p", [0.025, 0.975])
def test_gamma_quantiles_are_bounds_of_poisson_counts(count: int, p: float) -> None:
    """Garwood (1936): with the quantile of shape n as mean, n or more are counted with probability p."""
    with localcontext() as context:
        context.prec = 40
        mean = Decimal(special.gamma_quantile(count, p))
        term = fewer = (-mean).exp()
        for number in range(1, count):
            term *= mean / number
            fewer += term
    assert float(1 - fewer) == pytest.approx(p, rel=1e-11)


@pytest.mark.parametrize(
    ("successes", "trials", "p"), [(3, 10, 0.4), (40, 100, 0.5), (990, 1_000, 0.999), (600, 2_000_000, 0.00035)]
)
def test_a_binomial_tail_is_the_sum_of_its_terms(successes: int, trials: int, p: float) -> None:
    with localcontext() as context:
        context.prec = 40
        share = Decimal(p)
        term = total = (1 - share) ** trials
        for number in range(1, successes + 1):
            term *= Decimal(trials - number + 1) / number * share / (1 - share)
            total += term
    assert special.binomial_cdf(successes, trials, p) == pytest.approx(float(total), rel=1e-11)


@pytest.mark.parametrize("p", P)
@pytest.mark.parametrize(("a", "b"), [(3, 8), (0.4, 2.7), (60, 4), (900, 100_000)])
def test_quantiles_agree_with_scipy(a: float, b: float, p: float) -> None:
    assert special.beta_quantile(a, b, p) == pytest.approx(float(reference.betaincinv(a, b, p)), rel=1e-10)
    assert special.beta_upper_quantile(a, b, p) == pytest.approx(float(reference.betainccinv(a, b, p)), rel=1e-10)
    assert special.gamma_quantile(a, p) == pytest.approx(float(reference.gammaincinv(a, p)), rel=1e-10)
    assert special.gamma_upper_quantile(b, p) == pytest.approx(float(reference.gammainccinv(b, p)), rel=1e-10)


def test_the_ends_of_the_normal_distribution_are_infinite() -> None:
    assert (special.normal_quantile(0), special.normal_quantile(1)) == (-math.inf, math.inf)
    assert special.normal_cdf(special.normal_quantile(0.975)) == pytest.approx(0.975, rel=1e-15)

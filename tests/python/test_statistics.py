"""Intervals against textbooks, scipy and simulation."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from skybraid.model.statistics import clopper_pearson, mean_interval, median_interval, percentile_ranks

shares = st.floats(0.001, 0.999)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (1, 10, 0.0025, 0.4450), (0, 0, 0.0, 1.0)],
)
def test_clopper_pearson_gives_the_values_of_the_tables(successes: int, trials: int, low: float, high: float) -> None:
    interval = clopper_pearson(successes, trials)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@pytest.mark.parametrize("trials", [1, 17, 3_000, 1_799_990, 50_000_000])
@pytest.mark.parametrize("failures", [0, 1, 12])
def test_clopper_pearson_agrees_with_scipy_up_to_a_flight_of_fifty_million_messages(trials: int, failures: int) -> None:
    successes = max(trials - failures, 0)
    reference = stats.binomtest(successes, trials).proportion_ci(0.95, "exact")
    assert clopper_pearson(successes, trials) == pytest.approx((reference.low, reference.high), abs=1e-9)


@settings(deadline=None)  # the first call computes what later ones look up
@given(p=st.floats(0.01, 0.99), trials=st.integers(1, 400))
def test_clopper_pearson_covers_the_truth_at_least_as_often_as_it_says(p: float, trials: int) -> None:
    covered = 0.0
    for successes in range(trials + 1):
        interval = clopper_pearson(successes, trials)
        if interval.low <= p <= interval.high:
            covered += float(stats.binom.pmf(successes, trials, p))
    assert covered >= 0.95 - 1e-9


@pytest.mark.parametrize(
    ("values", "quantile", "ranks"), [(100, 0.5, (40, 61)), (10, 0.5, (2, 9)), (5, 0.5, (0, 6)), (0, 0.5, (0, 1))]
)
def test_percentile_ranks_are_those_of_the_tables(values: int, quantile: float, ranks: tuple[int, int]) -> None:
    assert percentile_ranks(values, quantile) == ranks


@given(values=st.integers(1, 3_000), quantile=shares)
def test_percentile_ranks_hold_at_least_the_confidence_in_both_tails(values: int, quantile: float) -> None:
    low, high = percentile_ranks(values, quantile)
    below = stats.binom(values, quantile)
    assert below.cdf(low - 1) <= 0.025 + 1e-12
    assert below.cdf(low) > 0.025 - 1e-12 or low >= values
    assert below.sf(high - 1) <= 0.025 + 1e-12
    assert below.sf(high - 2) > 0.025 - 1e-12 or high <= 1


def test_percentile_ranks_cover_the_median_of_skewed_delays() -> None:
    draws = random.Random(1)
    covered = 0
    for _ in range(2_000):
        delays = sorted(draws.expovariate(1.0) for _ in range(60))
        low, high = percentile_ranks(60, 0.5)
        covered += delays[low - 1] <= math.log(2) <= delays[high - 1]
    assert covered / 2_000 > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 2_000)


def test_the_mean_over_runs_has_students_interval() -> None:
    values = [9.1, 9.4, 9.2, 9.9, 9.0]
    mean = sum(values) / 5
    reference = stats.t.interval(0.95, 4, loc=mean, scale=stats.sem(values))
    assert mean_interval(values) == pytest.approx(tuple(map(float, reference)))
    assert mean_interval([9.1]) is None


def test_the_median_over_runs_has_an_interval_from_six_runs_on() -> None:
    assert median_interval([1, 2, 3, 4, 5]) is None
    assert median_interval([6, 2, 3, 4, 5, 1]) == (1, 6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: clopper_pearson(11, 10),
        lambda: clopper_pearson(-1, 10),
        lambda: clopper_pearson(1, 10, confidence=1.0),
        lambda: percentile_ranks(10, 0.0),
        lambda: percentile_ranks(-1, 0.5),
    ],
)
def test_numbers_out_of_range_are_refused_with_what_was_expected(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"found .*expected"):
        wrong()

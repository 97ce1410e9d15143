"""Intervals against textbooks, scipy and simulation."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from skybraid import _core
from skybraid.model.statistics import mean_interval, median_interval


@given(freedom=st.floats(0.5, 1e7), probability=st.floats(0.5001, 0.9999))
def test_students_quantiles_are_those_of_scipy(freedom: float, probability: float) -> None:
    assert _core.student_quantile(freedom, probability) == pytest.approx(
        special.stdtrit(freedom, probability), rel=1e-9, abs=1e-10
    )


def test_normal_quantiles_and_probabilities_are_those_of_scipy() -> None:
    shares = np.linspace(0, 1, 201)
    assert _core.normal_quantile(shares) == pytest.approx(special.ndtri(shares), rel=1e-12, abs=1e-15)
    scores = np.linspace(-12, 12, 201)
    assert _core.normal_cdf(scores) == pytest.approx(special.ndtr(scores), rel=1e-12)


@given(values=st.integers(0, 3_000))
def test_the_median_lies_between_the_ranks_that_a_fair_coin_gives(values: int) -> None:
    interval = median_interval(range(1, values + 1))
    below = stats.binom(values, 0.5)
    if interval is None:
        assert values < 6
        return
    low, high = interval
    assert below.cdf(low - 1) <= 0.025 + 1e-12 < below.cdf(low)
    assert high == values + 1 - low


def test_the_medians_interval_covers_that_of_skewed_delays() -> None:
    draws = random.Random(1)
    covered = 0
    for _ in range(2_000):
        interval = median_interval([draws.expovariate(1.0) for _ in range(60)])
        covered += interval is not None and interval.low <= math.log(2) <= interval.high
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


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0])
def test_a_confidence_out_of_range_is_refused_with_what_was_expected(confidence: float) -> None:
    with pytest.raises(ValueError, match=r"found .*expected"):
        median_interval([1, 2, 3, 4, 5, 6], confidence)

"""Intervals against textbooks, scipy and simulation."""

import math
import random
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from skybraid.statistics import (
    Verdict,
    clopper_pearson,
    mean_interval,
    median_interval,
    percentile_ranks,
    share_verdict,
    trials_needed,
    values_needed,
)

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


@given(p=st.floats(0.01, 0.99), trials=st.integers(1, 400))
def test_clopper_pearson_covers_the_truth_at_least_as_often_as_it_says(p: float, trials: int) -> None:
    covered = 0.0
    for successes in range(trials + 1):
        interval = clopper_pearson(successes, trials)
        if interval.low <= p <= interval.high:
            covered += float(stats.binom.pmf(successes, trials, p))
    assert covered >= 0.95 - 1e-9


def test_five_nines_take_three_hundred_thousand_loss_free_messages_and_not_one_fewer() -> None:
    enough = trials_needed(0.99999)
    assert enough == math.ceil(math.log(0.05) / math.log(0.99999)) == 299_572
    assert enough == pytest.approx(3 / 1e-5, rel=0.002)
    assert share_verdict(enough, enough, 0.99999).verdict is Verdict.MET
    almost = share_verdict(enough - 1, enough - 1, 0.99999)
    assert almost.verdict is Verdict.NOT_SHOWN
    assert almost.needed == enough


def test_the_interval_that_is_printed_is_two_sided_and_reaches_five_nines_later() -> None:
    enough = trials_needed(0.99999, sides=2)
    assert enough == math.ceil(math.log(0.025) / math.log(0.99999)) == 368_887
    assert share_verdict(enough, enough, 0.99999).interval.low >= 0.99999
    assert share_verdict(enough - 1, enough - 1, 0.99999).interval.low < 0.99999
    assert share_verdict(5, 10, 0.5).interval == clopper_pearson(5, 10)


@given(target=st.floats(0.5, 0.9999), failures=st.integers(0, 30), sides=st.sampled_from([1, 2]))
def test_the_trials_needed_are_the_first_that_show_the_share(
    target: float, failures: int, sides: Literal[1, 2]
) -> None:
    # A one-sided bound at 95 % is the end of a two-sided interval at 90 %.
    confidence = 0.95 if sides == 2 else 0.9
    needed = trials_needed(target, failures, sides=sides)
    assert clopper_pearson(needed - failures, needed, confidence).low >= target - 1e-12
    if needed - 1 > failures:
        assert clopper_pearson(needed - 1 - failures, needed - 1, confidence).low < target + 1e-12


@given(target=st.floats(0.5, 0.9999), failures=st.integers(0, 30))
def test_a_share_is_met_from_the_trials_needed_on(target: float, failures: int) -> None:
    needed = trials_needed(target, failures)
    one_more = share_verdict(needed + 1 - failures, needed + 1, target)
    assert one_more.verdict is Verdict.MET
    if needed - 2 > failures:
        assert share_verdict(needed - 2 - failures, needed - 2, target).verdict is not Verdict.MET


@given(p=st.floats(0.02, 0.98), trials=st.integers(1, 300))
def test_a_share_at_its_target_is_wrongly_judged_at_most_one_time_in_twenty_to_either_side(
    p: float, trials: int
) -> None:
    wrongly = dict.fromkeys(Verdict, 0.0)
    for successes in range(trials + 1):
        # Just above and just below the truth, so that "met" and "not met" are each a false claim.
        for target, claim in ((p + 1e-9, Verdict.MET), (p - 1e-9, Verdict.NOT_MET)):
            if share_verdict(successes, trials, target).verdict is claim:
                wrongly[claim] += float(stats.binom.pmf(successes, trials, p))
    assert max(wrongly.values()) <= 0.05 + 1e-6


@pytest.mark.parametrize(
    ("successes", "trials", "verdict"),
    [
        (10_000, 10_000, Verdict.NOT_SHOWN),
        (400_000, 400_000, Verdict.MET),
        (399_900, 400_000, Verdict.NOT_MET),
        (0, 0, Verdict.NOT_SHOWN),
    ],
)
def test_a_share_is_met_not_met_or_not_shown(successes: int, trials: int, verdict: Verdict) -> None:
    assert share_verdict(successes, trials, 0.99999).verdict is verdict


def test_a_share_of_one_is_never_shown_and_no_number_of_trials_is_promised() -> None:
    judged = share_verdict(1_000_000, 1_000_000, 1.0)
    assert judged.verdict is Verdict.NOT_SHOWN
    assert judged.needed is None


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


def test_a_far_percentile_has_no_upper_end_until_there_are_values_enough() -> None:
    needed = values_needed(0.999)
    assert percentile_ranks(needed - 1, 0.999).high == needed
    assert percentile_ranks(needed, 0.999).high == needed


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
        lambda: trials_needed(1.0),
        lambda: trials_needed(0.9, failures=-1),
        lambda: share_verdict(1, 1, 1.5),
        lambda: share_verdict(2, 1, 0.5),
        lambda: share_verdict(1, 1, 0.5, confidence=0.0),
        lambda: percentile_ranks(10, 0.0),
        lambda: percentile_ranks(-1, 0.5),
        lambda: values_needed(1.0),
    ],
)
def test_numbers_out_of_range_are_refused_with_what_was_expected(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"found .*expected"):
        wrong()

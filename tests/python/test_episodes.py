"""Intervals of shares whose misses come in episodes."""

import numpy as np
import pytest
from scipy import stats

from skybraid.model.episodes import FEW, UNSEEN_S, RunShare, factor_needed, mean_over_time, share_interval
from skybraid.model.statistics import Interval

BIN_S = 0.5


def of_misses(missed: list[int] | np.ndarray, each: int = 100) -> RunShare:
    """A run of `each` messages a bin, so many of them missed."""
    missed = np.asarray(missed)
    trials = np.full(missed.size, each)
    return RunShare.of_bins(trials, trials - missed, BIN_S)


def with_outages(chance: np.random.Generator, up_s: float, down_s: float, length_s: float) -> RunShare:
    """A link that is up and down for exponential times, seen by 20 messages a second."""
    draws = int(3 * length_s / (up_s + down_s)) + 100
    spans = np.empty(2 * draws)
    down_first = chance.random() < down_s / (up_s + down_s)
    spans[int(not down_first) :: 2] = chance.exponential(down_s, draws)
    spans[int(down_first) :: 2] = chance.exponential(up_s, draws)
    at = np.arange(0, length_s, 0.05)
    phase = np.searchsorted(np.cumsum(spans), at, side="right") % 2
    missed = phase == (0 if down_first else 1)
    bins = (at / BIN_S).astype(int)
    trials = np.bincount(bins)
    return RunShare.of_bins(trials, trials - np.bincount(bins, missed), BIN_S)


def test_single_independent_misses_have_the_poisson_interval() -> None:
    # Garwood, Biometrika 28 (1936): ten events are compatible with 4.795 to 18.391.
    missed = np.zeros(2000, dtype=int)
    missed[100::200] = 1
    seen = share_interval([of_misses(missed)])
    assert (seen.missed, seen.episodes, seen.few) == (10, 10, False)
    assert (1 - seen.interval.high) * 200_000 == pytest.approx(4.795, rel=0.01)
    assert (1 - seen.interval.low) * 200_000 == pytest.approx(18.391, rel=0.01)


def test_an_episode_counts_as_one_event_however_many_it_takes() -> None:
    few, many = np.zeros(2000, dtype=int), np.zeros(2000, dtype=int)
    few[100::200], many[100::200] = 1, 50
    one, fifty = share_interval([of_misses(few)]), share_interval([of_misses(many)])
    assert one.episodes == fifty.episodes == 10
    assert (1 - fifty.interval.low) == pytest.approx(50 * (1 - one.interval.low), rel=0.01)
    assert (1 - fifty.interval.high) == pytest.approx(50 * (1 - one.interval.high), rel=0.01)


def test_without_a_miss_an_unseen_outage_remains_possible() -> None:
    seen = share_interval([of_misses([0] * 3600)])
    # The rule of three, two-sided, for outages of ten seconds in half an hour.
    assert 1 - seen.interval.low == pytest.approx(-np.log(0.025) * UNSEEN_S / 1800)
    assert seen.interval.high == 1
    assert (seen.episodes, seen.few) == (0, True)


def test_copies_of_one_run_say_no_more_than_the_run() -> None:
    missed = np.zeros(2000, dtype=int)
    missed[100::200] = 30
    run = of_misses(missed)
    one, hundred = share_interval([run]), share_interval([run] * 100)
    assert hundred.interval == one.interval
    assert hundred.episodes == one.episodes
    assert hundred.missed == 100 * one.missed == 30_000
    assert factor_needed([run] * 100, 0.99) == factor_needed([run], 0.99)


def test_runs_that_differ_more_than_their_blocks_are_the_clusters() -> None:
    chance = np.random.default_rng(1)
    good, bad = ([of_misses(chance.binomial(100, p, 2000)) for _ in range(3)] for p in (0.01, 0.2))
    assert share_interval(good).method == "blocks"
    assert share_interval([*good, *bad]).method == "runs"


def test_bursts_that_a_binomial_interval_ignores_are_covered() -> None:
    # Outages of 2 s every minute in runs of 10 minutes: an interval of independent messages holds in one of four runs.
    chance = np.random.default_rng(2)
    truth, held, naive = 60 / 62, 0, 0
    for _ in range(300):
        run = with_outages(chance, 60, 2, 600)
        low, high = share_interval([run]).interval
        held += low <= truth <= high
        independent = stats.binomtest(run.trials - run.missed, run.trials).proportion_ci()
        naive += bool(independent.low <= truth <= independent.high)
    assert naive / 300 < 0.4
    assert 0.93 <= held / 300 <= 0.985


@pytest.mark.parametrize(("runs", "length_s"), [(10, 300), (30, 120)])
def test_intervals_over_runs_hold_as_often_as_they_say(runs: int, length_s: float) -> None:
    chance = np.random.default_rng(3)
    truth, repetitions, held = 60 / 62, 150, 0
    for _ in range(repetitions):
        low, high = share_interval([with_outages(chance, 60, 2, length_s) for _ in range(runs)]).interval
        held += low <= truth <= high
    assert 0.92 <= held / repetitions <= 0.99


def test_few_episodes_still_hold_and_are_named() -> None:
    chance = np.random.default_rng(4)
    truth, held, few = 600 / 630, 0, 0
    for _ in range(300):
        seen = share_interval([with_outages(chance, 600, 30, 1800)])
        held += seen.interval.low <= truth <= seen.interval.high
        few += seen.few
    assert held / 300 >= 0.86
    assert few / 300 > 0.5


def test_a_flight_as_much_longer_as_is_said_decides() -> None:
    chance = np.random.default_rng(5)
    run = of_misses(chance.binomial(1, 0.05, 3600))
    target = 1 - 0.05 / 100 * 1.1
    assert share_interval([run]).interval.low < target
    factor = factor_needed([run], target)
    assert factor is not None

    def low_of(flight: float) -> float:
        longer = run._replace(
            trials=round(run.trials * flight),
            missed=round(run.missed * flight),
            variance=run.variance * flight,
            freedom=run.freedom * flight,
            episodes=round(run.episodes * flight),
            span_s=run.span_s * flight,
        )
        return share_interval([longer]).interval.low

    assert low_of(factor) >= target > low_of(0.9 * factor)
    assert factor_needed([run], 1 - run.missed / run.trials) is None


def test_a_mean_over_time_covers_what_independent_values_do() -> None:
    chance = np.random.default_rng(6)
    held = sum(
        low <= 5 <= high
        for low, high in (mean_over_time(chance.normal(5, 1, 500)) or Interval(0, 0) for _ in range(400))
    )
    assert stats.binom.cdf(held, 400, 0.95) > 0.001
    assert held / 400 <= 0.985
    assert mean_over_time([1.0, 2.0]) is None


def test_all_missed_and_nothing_sent_are_no_division_by_zero() -> None:
    assert share_interval([of_misses([100] * 2000)]).interval.low == 0
    nothing = share_interval([RunShare.of_bins([], [], BIN_S)])
    assert (nothing.trials, nothing.interval) == (0, Interval(0.0, 1.0))
    assert nothing.episodes < FEW

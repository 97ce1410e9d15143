"""Seeds until a question is decided, and the statistics of shares over flights."""

import math
from pathlib import Path

import numpy as np
import pytest

import skybraid
from skybraid import ScenarioError, Verdict
from skybraid.campaigns.until import budget, question
from skybraid.statistics import clopper_pearson, pooled_share
from test_campaigns import TINY

# A share over flights.


def test_independent_messages_give_both_intervals_alike() -> None:
    chance = np.random.default_rng(1)
    trials = [1000] * 200
    met = [int(number) for number in chance.binomial(1000, 0.99, size=200)]
    share = pooled_share(met, trials)
    assert share.method == "bootstrap"
    assert share.messages == clopper_pearson(sum(met), sum(trials))
    widths = [interval.high - interval.low for interval in (share.messages, share.flights)]
    assert 0.8 < widths[1] / widths[0] < 1.25
    assert share.flights.low < share.estimate < share.flights.high


def test_messages_that_share_their_flight_s_fate_tell_as_much_as_their_flights() -> None:
    # 20 of 200 flights lose everything: each tells as one trial does, so Clopper and Pearson over flights are right.
    met, trials = [1000] * 180 + [0] * 20, [1000] * 200
    share = pooled_share(met, trials)
    by_flight = clopper_pearson(180, 200)
    assert share.flights.low == pytest.approx(by_flight.low, abs=0.01)
    assert share.flights.high == pytest.approx(by_flight.high, abs=0.01)
    assert (share.flights.high - share.flights.low) > 20 * (share.messages.high - share.messages.low)
    assert share.cautious.low == min(share.flights.low, share.messages.low)


def test_the_bootstrap_covers_the_true_share_about_as_often_as_it_says() -> None:
    # A flight in ten has an outage that takes a tenth of its messages: the true share is 99 %.
    chance = np.random.default_rng(2)
    covered, by_messages = 0, 0
    for _ in range(200):
        met = [900 if bad else 1000 for bad in chance.random(100) < 0.1]
        share = pooled_share(met, [1000] * 100)
        covered += share.flights.low <= 0.99 <= share.flights.high
        by_messages += share.messages.low <= 0.99 <= share.messages.high
    assert covered / 200 > 0.88
    assert by_messages / 200 < 0.5


def test_without_a_miss_the_flights_show_what_their_number_shows() -> None:
    # The rule of three: n flights without a miss leave room for about 3/n, one-sided.
    share = pooled_share([10_000] * 60, [10_000] * 60, sides=1)
    assert share.method == "flights"
    assert share.flights.low == pytest.approx(math.exp(math.log(0.05) / 60))
    assert 1 - share.flights.low == pytest.approx(3 / 60, rel=0.05)
    assert share.flights.high == 1
    nothing = pooled_share([0] * 60, [10_000] * 60, sides=1)
    assert nothing.flights.high == pytest.approx(1 - share.flights.low)
    assert nothing.flights.low == 0


def test_few_flights_are_taken_to_miss_what_the_worst_missed() -> None:
    share = pooled_share([1000, 1000, 1000, 990], [1000] * 4)
    assert share.method == "worst flight"
    assert share.flights.low == pytest.approx(1 - clopper_pearson(1, 4).high * 0.01)
    assert share.flights.low < share.estimate < share.flights.high


def test_flights_without_trials_say_nothing() -> None:
    assert pooled_share([0, 5], [0, 5]) == pooled_share([5], [5])
    assert pooled_share([], []).cautious == (0, 1)
    with pytest.raises(ValueError, match="expected 0 to 5"):
        pooled_share([6], [5])


# What may be asked.


@pytest.mark.parametrize(
    ("text", "flow", "metric", "at_least", "target", "reach"),
    [
        ("control.share >= 99.999% ± shown", "control", "share", True, 0.99999, None),
        ("control.share >= 99.9 % +- shown by messages", "control", "share", True, 0.999, None),
        ("a.b.p99.9<=300ms ± shown", "a.b", "p99.9", False, 300, None),
        ("video.goodput ≥ 5Mbit/s +/- shown", "video", "goodput", True, 5e6, None),
        ("video.share ± 0.01%", "video", "share", None, None, 0.0001),
        ("video.p50 ± 0.5s", "video", "p50", None, None, 500),
        ("video.frames >= 95% ± shown by frames", "video", "frames", True, 0.95, None),
        ("a.video.frame_latency_p95 <= 0.3s ± shown", "a.video", "frame_latency_p95", False, 300, None),
        ("video.worst_frame_rate ± 2.5", "video", "worst_frame_rate", None, None, 2.5),
    ],
)
def test_a_question_names_flow_metric_and_value(
    text: str, flow: str, metric: str, at_least: bool | None, target: float | None, reach: float | None
) -> None:
    asked = question(text)
    assert (asked.flow, asked.metric.name, asked.at_least) == (flow, metric, at_least)
    assert asked.target == pytest.approx(target)
    assert asked.reach == pytest.approx(reach)
    assert asked.by_things == text.endswith((" by messages", " by frames"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("control.share >= 99%", "expected FLOW.METRIC >= VALUE ± shown"),
        ("control.share ± shown", "without a value"),
        ("control.share >= 99% ± 1%", "found both a value and a width"),
        ("control.share ± 0.1", "expected a value of share with its unit, such as 99.9%"),
        ("control.p99 <= 5Mbit/s ± shown", "expected a value of p99 with its unit, such as 300ms"),
        ("control.p98 <= 5ms ± shown", "found p98, expected one of share, goodput, p50, p95"),
        ("control.p99 <= 5ms ± shown by messages", "expected it with share"),
    ],
)
def test_what_is_wrong_with_a_question_is_told(text: str, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        question(text)
    assert words in str(caught.value)


def test_a_budget_is_a_number_of_runs_or_a_time() -> None:
    assert budget("1000").runs == 1000
    assert budget("30min").time_s == 1800
    for text in ("0", "1.5", "many", "3km"):
        with pytest.raises(ScenarioError, match="expected a number of runs such as 1000, or a time such as 30min"):
            budget(text)


# Campaigns until they know.


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    file = tmp_path / "lossy.toml"
    file.write_text(TINY.replace('duration = "200ms"', 'duration = "2s"'), encoding="utf-8")
    return file


def test_each_point_takes_as_many_flights_as_its_answer_needs(lossy: Path, tmp_path: Path) -> None:
    # 5 % lost against 90 % required is soon shown, 9.5 % takes longer, 15 % is soon refuted.
    losses = [{"uniform": loss} for loss in ("5%", "9%", "15%")]
    campaign = skybraid.sweep(
        lossy,
        vary={"path.near.downlink.loss": losses},
        overrides=[("flow.control.transport.scheduler", "single")],
        until="control.share >= 90% ± shown",
        budget=1000,
        out=tmp_path / "out",
    )
    first, second, third = campaign.answers
    assert (first.verdict, second.verdict, third.verdict) == (Verdict.MET, Verdict.MET, Verdict.NOT_MET)
    assert (first.flights, third.flights) == (10, 10)
    assert second.flights > 10
    assert campaign.points()["done"].to_list() == [answer.flights for answer in campaign.answers]
    assert first.low is not None
    assert first.low >= 0.9
    # Asked again, the flights that are there answer.
    again = skybraid.sweep(
        lossy,
        vary={"path.near.downlink.loss": losses},
        overrides=[("flow.control.transport.scheduler", "single")],
        until="control.share >= 90% ± shown",
        out=tmp_path / "out",
    )
    assert again.answers == campaign.answers


def test_without_a_miss_flights_alone_decide_unless_messages_are_asked_for(lossy: Path, tmp_path: Path) -> None:
    by_flights = skybraid.sweep(lossy, until="control.share >= 99.9% ± shown", budget=40, out=tmp_path / "out")
    (answer,) = by_flights.answers
    assert (answer.verdict, answer.flights) == (Verdict.NOT_SHOWN, 40)
    assert "by flights, 4 603 without a miss would show it" in answer.words
    by_messages = skybraid.sweep(
        lossy, until="control.share >= 99.9% ± shown by messages", budget=40, out=tmp_path / "out"
    )
    assert by_messages.answers[0].verdict is Verdict.MET


def test_precision_is_reached_or_the_budget_says_no(lossy: Path, tmp_path: Path) -> None:
    overrides = [("path.near.downlink.loss.uniform", "10%"), ("flow.control.transport.scheduler", "single")]
    words = {"overrides": overrides, "out": tmp_path / "out"}
    (wide,) = skybraid.sweep(lossy, until="control.share ± 2%", **words).answers  # type: ignore[arg-type]
    (narrow,) = skybraid.sweep(lossy, until="control.share ± 0.5%", **words).answers  # type: ignore[arg-type]
    assert wide.flights < narrow.flights
    assert narrow.low is not None
    assert narrow.high is not None
    assert (narrow.high - narrow.low) / 2 <= 0.005
    (never,) = skybraid.sweep(lossy, until="control.share ± 0.01%", budget=50, **words).answers  # type: ignore[arg-type]
    assert never.verdict is Verdict.NOT_SHOWN
    (delay,) = skybraid.sweep(lossy, until="control.p99 <= 100ms ± shown", **words).answers  # type: ignore[arg-type]
    assert delay.verdict is Verdict.MET


def test_a_time_is_a_budget_too(lossy: Path, tmp_path: Path) -> None:
    campaign = skybraid.sweep(lossy, until="control.share ± 0.000001%", budget="1s", out=tmp_path / "out")
    assert not campaign.answers[0].good

"""Seeds until a question is decided."""

from pathlib import Path

import pytest

import skybraid
from skybraid import ScenarioError, Verdict
from skybraid.execute.until import budget, question
from test_campaigns import TINY

# What may be asked.


@pytest.mark.parametrize(
    ("text", "flow", "metric", "at_least", "target", "reach"),
    [
        ("control.share >= 99.999% ± shown", "control", "share", True, 0.99999, None),
        ("control.share >= 99.9 % +- shown", "control", "share", True, 0.999, None),
        ("a.b.p99.9<=300ms ± shown", "a.b", "p99.9", False, 300, None),
        ("video.goodput ≥ 5Mbit/s +/- shown", "video", "goodput", True, 5e6, None),
        ("video.share ± 0.01%", "video", "share", None, None, 0.0001),
        ("video.p50 ± 0.5s", "video", "p50", None, None, 500),
        ("video.frames >= 95% ± shown", "video", "frames", True, 0.95, None),
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("control.share >= 99%", "expected FLOW.METRIC >= VALUE ± shown"),
        ("control.share ± shown", "without a value"),
        ("control.share >= 99% ± 1%", "found both a value and a width"),
        ("control.share ± 0.1", "expected a value of share with its unit, such as 99.9%"),
        ("control.p99 <= 5Mbit/s ± shown", "expected a value of p99 with its unit, such as 300ms"),
        ("control.p98 <= 5ms ± shown", "found p98, expected one of share, goodput, p50, p95"),
        ("control.share >= 99% ± shown by messages", "expected FLOW.METRIC >= VALUE ± shown"),
    ],
)
def test_errors_of_a_question_are_explained(text: str, words: str) -> None:
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


def test_without_a_miss_it_says_how_many_runs_would_decide(lossy: Path, tmp_path: Path) -> None:
    campaign = skybraid.sweep(lossy, until="control.share >= 99.9% ± shown", budget=40, out=tmp_path / "out")
    (answer,) = campaign.answers
    assert (answer.verdict, answer.flights) == (Verdict.INCONCLUSIVE, 40)
    assert "0 misses in 0 episodes" in answer.words
    assert "flights like these would decide it" in answer.words


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
    assert never.verdict is Verdict.INCONCLUSIVE
    (delay,) = skybraid.sweep(lossy, until="control.p99 <= 100ms ± shown", **words).answers  # type: ignore[arg-type]
    assert delay.verdict is Verdict.MET


def test_a_time_is_a_budget_too(lossy: Path, tmp_path: Path) -> None:
    campaign = skybraid.sweep(lossy, until="control.share ± 0.000001%", budget="1s", out=tmp_path / "out")
    assert not campaign.answers[0].good

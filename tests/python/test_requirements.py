"""Requirements judged, and said in plain words."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from skybraid.model.formatting import count, milliseconds, percent, percent_range, rate, span
from skybraid.model.requirements import Binned, Requirement, headline, judge, members_of
from skybraid.model.statistics import Verdict

BINS = 2000
"""Bins of half a second in a flight."""


@dataclass
class Seen:
    """Statistics of one run of a flow made by hand: misses spread evenly over a flight of 1000 s."""

    delays_ms: list[float] = field(default_factory=list)
    trials: int = 0
    in_time: int = 0
    goodput_bps: float = 1e6
    shown: dict[str, Any] | None = None

    @property
    def delivered(self) -> int:
        return len(self.delays_ms)

    def met_over_time(self, deadline_ms: float | None = None) -> Binned:
        return spread(self.trials, self.in_time)

    def frames_met_over_time(self, within_ms: float) -> Binned:
        return spread(self.trials, self.in_time)

    def delays_within_over_time(self, delay_ms: float) -> Binned:
        within = np.asarray(self.delays_ms) <= delay_ms
        order = np.random.default_rng(1).permutation(within)
        return np.ones(order.size, dtype=np.uint64), order.astype(np.uint64), 0.5

    def goodput_over_time(self) -> tuple[npt.NDArray[np.uint64], float]:
        noise = np.random.default_rng(2).normal(1, 0.1, BINS)
        return (noise * self.goodput_bps / 16).astype(np.uint64), 0.5

    def delay_quantile(self, q: float) -> float:
        ordered = sorted(self.delays_ms)
        return ordered[max(math.ceil(q * len(ordered)) - 1, 0)]

    def video(self) -> dict[str, Any] | None:
        return self.shown


def spread(trials: int, in_time: int) -> Binned:
    """Trials in even bins, and misses evenly among them."""

    written = np.arange(BINS + 1) * trials // BINS
    missed = written * (trials - in_time) // max(trials, 1)
    return np.diff(written).astype(np.uint64), np.diff(written - missed).astype(np.uint64), 0.5


def judged_alone(required: dict[str, Any], run: Seen) -> Requirement:
    return judge(required, [run], run)


def share(successes: int, trials: int, target: float) -> Requirement:
    required = {"flow": "control", "metric": "share", "deadline_ms": 300.0, "target": target}
    return judged_alone(required, Seen(trials=trials, in_time=successes))


def percentile(delays_ms: list[float], quantile: float, limit_ms: float) -> Requirement:
    required = {"flow": "video", "metric": "percentile", "deadline_ms": limit_ms, "target": quantile}
    return judged_alone(required, Seen(delays_ms=delays_ms))


def goodput(runs_bps: list[float], target_bps: float) -> Requirement:
    required = {"flow": "video", "metric": "goodput", "deadline_ms": None, "target": target_bps}
    return judge(required, [Seen(goodput_bps=one) for one in runs_bps], Seen())


def frames(intact: int, trials: int, target: float) -> Requirement:
    required = {"flow": "video", "metric": "frames", "deadline_ms": 300.0, "target": target}
    return judged_alone(required, Seen(trials=trials, in_time=intact))


def of_runs(metric: str, values: list[float | None], target: float) -> Requirement:
    """A requirement that has one number a run."""
    name = "freezes_per_minute" if metric == "freezes" else metric
    required = {"flow": "video", "metric": metric, "deadline_ms": None, "target": target}
    runs = [Seen(shown={"frames": 300, "shown": 0 if value is None else 290, name: value}) for value in values]
    return judge(required, runs, Seen())


def test_a_share_reads_like_a_sentence() -> None:
    judged = share(1_799_977, 1_799_990, 0.9999)
    assert judged.verdict is Verdict.MET
    assert judged.words == (
        "99.999278 % of 1 799 990 messages arrived within 300 ms "
        "(95 % interval 99.99876–99.999616 %, required 99.99 %; 13 misses in 13 episodes)"
    )


def test_a_flight_without_a_miss_says_what_it_cannot_exclude() -> None:
    judged = share(1_000_000, 1_000_000, 0.99)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.words == (
        "100 % of 1 000 000 messages arrived within 300 ms (95 % interval 96.31–100 %, required 99 %; "
        "no miss in 17 min: outages rarer than one in 5.6 min cannot be excluded): "
        "about 62 min of flight without a miss (4 runs like this) would decide it"
    )


def test_a_share_is_met_from_the_flight_time_on_that_was_named() -> None:
    open_ = share(100, 100, 0.99)
    assert open_.needed_s is not None
    # Ten seconds of an unseen outage in each third of the time: 3.69 · 10 s / 1 %.
    assert open_.needed_s == pytest.approx(3689, rel=0.02)


def test_too_close_a_share_is_decided_by_no_flight() -> None:
    judged = share(90_000, 100_000, 0.9)
    assert (judged.verdict, judged.needed_s) == (Verdict.INCONCLUSIVE, None)
    assert judged.words.endswith("too close to the requirement to be decided by more flights")


def test_no_message_at_all_shows_nothing() -> None:
    judged = share(0, 0, 0.9)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.estimate is None
    assert judged.words == "no message was due to arrive within 300 ms; required 90 %"


@pytest.mark.parametrize(
    ("limit_ms", "verdict"), [(99.0, Verdict.MET), (50.0, Verdict.NOT_MET), (90.0, Verdict.INCONCLUSIVE)]
)
def test_a_percentile_is_judged_between_order_statistics(limit_ms: float, verdict: Verdict) -> None:
    judged = percentile([0.1 * number for number in range(1, 1001)], 0.9, limit_ms)
    assert judged.verdict is verdict
    assert judged.low is not None
    assert judged.high is not None
    assert judged.low < 90 < judged.high


def test_a_percentile_of_too_few_messages_has_no_upper_end() -> None:
    judged = percentile([1.0, 2.0, 3.0], 0.99, 10.0)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.high is None
    assert "no upper end" in judged.words


def test_goodput_is_judged_by_blocks_of_one_run_or_by_runs() -> None:
    alone = goodput([9.5e6], 9e6)
    assert alone.verdict is Verdict.MET
    assert alone.low is not None
    # Half-second rates that vary by a tenth, 2000 of them.
    assert alone.low == pytest.approx(9.5e6 * (1 - 1.96 * 0.1 / math.sqrt(2000)), rel=1e-3)
    assert goodput([9.5e6, 9.6e6, 9.5e6], 9e6).verdict is Verdict.MET
    assert goodput([8.5e6, 8.6e6, 8.5e6], 9e6).verdict is Verdict.NOT_MET


def test_frames_are_judged_as_messages_are() -> None:
    met, failed = frames(1788, 1792, 0.95), frames(269, 1792, 0.95)
    assert (met.verdict, failed.verdict) == (Verdict.MET, Verdict.NOT_MET)
    assert (met.low, met.high) == pytest.approx((share(1788, 1792, 0.95).low, share(1788, 1792, 0.95).high))
    assert failed.words == (
        "15 % of 1 792 frames were shown undamaged within 300 ms "
        f"(95 % interval {percent_range(failed.low or 0, failed.high or 0)}, required 95 %; "
        f"1 523 misses in {count(failed.episodes or 0)} episodes)"
    )
    assert frames(0, 0, 0.9).words == "no frame was due to be shown within 300 ms; required 90 %"


def test_a_frame_rate_needs_several_runs_and_many_frames_are_good() -> None:
    assert of_runs("frame_rate", [29.9], 28).verdict is Verdict.INCONCLUSIVE
    assert of_runs("frame_rate", [29.9], 28).words == (
        "29.9 frames/s in 1 run, which gives no interval (required 28 frames/s): run several seeds"
    )
    assert of_runs("frame_rate", [29.9, 29.8, 29.9], 28).verdict is Verdict.MET
    assert of_runs("frame_rate", [26.9, 26.8, 26.9], 28).verdict is Verdict.NOT_MET
    assert of_runs("worst_frame_rate", [20, 21, 20], 10).words.startswith(
        "in the worst second 20.33 frames/s on average"
    )


def test_few_freezes_are_good() -> None:
    assert of_runs("freezes", [0.1, 0.2, 0.1], 1).verdict is Verdict.MET
    assert of_runs("freezes", [5.1, 5.2, 5.1], 1).verdict is Verdict.NOT_MET
    assert of_runs("freezes", [0.0, 5.0, 0.0], 1).verdict is Verdict.INCONCLUSIVE
    assert of_runs("freezes", [0.5], 1).words == (
        "0.5 freezes/min in 1 run, which gives no interval (at most 1 freezes/min allowed): run several seeds"
    )


def test_a_run_without_shown_frames_has_rate_zero_and_no_freezes() -> None:
    assert of_runs("frame_rate", [None, 30.0, 30.0], 28).estimate == 20
    assert of_runs("worst_frame_rate", [None, None, None], 1).verdict is Verdict.NOT_MET
    judged = of_runs("freezes", [None], 1)
    assert (judged.verdict, judged.estimate, judged.trials) == (Verdict.INCONCLUSIVE, None, 0)
    assert judged.words == "nothing was shown; at most 1 freezes/min allowed"


def test_an_ssim_is_not_shown_until_frames_are_decoded() -> None:
    required = {"flow": "video", "metric": "ssim", "deadline_ms": None, "target": 0.95, "ssim": 0.5}
    judged = judged_alone(required, Seen())
    assert (judged.verdict, judged.ssim, judged.trials) == (Verdict.INCONCLUSIVE, 0.5, 0)
    assert Requirement.from_dict(judged.to_dict()) == judged


def test_a_group_is_judged_by_its_worst_member() -> None:
    often = members_of([("video.1", of_runs("freezes", [1.0], 1)), ("video.2", of_runs("freezes", [3.0], 1))])
    assert often.words("freezes").endswith("worst is video.2 with 3 freezes/min")
    slow = members_of([("video.1", of_runs("frame_rate", [21.0], 1)), ("video.2", of_runs("frame_rate", [30.0], 1))])
    assert slow.words("frame_rate").endswith("worst is video.1 with 21 frames/s")


def test_a_requirement_survives_json() -> None:
    judged = share(95, 100, 0.9)
    assert Requirement.from_dict(judged.to_dict()) == judged


def test_the_headline_counts_what_is_not_met_first() -> None:
    met, failed, open_ = share(1000, 1000, 0.9), share(100, 1000, 0.9), share(1000, 1000, 0.999)
    assert headline([]) == "The scenario states no requirement."
    assert headline([met]) == "The requirement is met."
    assert headline([failed]) == "The requirement is not met."
    assert headline([open_]) == "The requirement is inconclusive."
    assert headline([met, met]) == "All 2 requirements are met."
    assert headline([met, failed, open_]) == "1 of 3 requirements is not met."
    assert headline([met, open_]) == "No requirement failed; 1 of 2 is inconclusive."


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="metric: found jitter"):
        judged_alone({"flow": "video", "metric": "jitter", "target": 1.0}, Seen())


def test_numbers_are_written_as_an_engineer_reads_them() -> None:
    assert count(1_799_990) == "1 799 990"
    assert percent(0.99999) == "99.999 %"
    assert percent(1.0) == "100 %"
    assert percent(0.9999999) != "100 %"
    assert percent(0.0) == "0 %"
    assert percent(1e-5) == "0.001 %"
    assert milliseconds(42.34) == "42.3 ms"
    assert milliseconds(1234.0) == "1234 ms"
    assert milliseconds(999.7) == "1000 ms"
    assert milliseconds(70_000.0) == "70 s"
    assert span(1800) == "30 min"
    assert span(60) == "1 min"
    assert span(80) == "80 s"
    assert span(5400) == "90 min"
    assert span(1.5) == "1.5 s"
    assert span(0.085) == "85 ms"
    assert rate(9.873e6) == "9.87 Mbit/s"
    assert rate(999_990.0) == "1 Mbit/s"
    assert rate(0.0) == "0 bit/s"

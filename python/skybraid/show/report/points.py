"""Verdicts of a campaign's points: every requirement judged over a point's runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.model.episodes import RunShare, share_interval
from skybraid.model.formatting import (
    count,
    frames_a_second,
    freezes_a_minute,
    milliseconds,
    percent,
    rate,
    upper_percent,
)
from skybraid.model.measures import MESSAGES
from skybraid.model.requirements import LESS_IS_BETTER, SHOWN
from skybraid.model.statistics import Interval, Verdict, judge_interval, mean_interval

if TYPE_CHECKING:
    import polars as pl

_COUNTED = {"share": "messages", "frames": "frames", "continuity": "transactions", "availability": "ms"}
"""Unit counted by each metric that is a share."""


@dataclass(frozen=True, slots=True, order=True)
class Wanted:
    """Requirement shared by a campaign's points: flow, metric and target."""

    flow: str
    metric: str
    deadline_ms: float
    target: float
    ssim: float = 0.0

    @property
    def words(self) -> str:
        """Description: "control: 99.9 % within 300 ms"."""
        match self.metric:
            case "share" if self.deadline_ms == 0:
                return f"{self.flow}: {percent(self.target)} arrive"
            case "share":
                return f"{self.flow}: {percent(self.target)} within {milliseconds(self.deadline_ms)}"
            case "percentile":
                most = milliseconds(self.deadline_ms)
                return f"{self.flow}: {percent(self.target)} of what arrives takes at most {most}"
            case "frames":
                limit = milliseconds(self.deadline_ms)
                return f"{self.flow}: {percent(self.target)} of frames undamaged within {limit}"
            case "expiration":
                most = milliseconds(self.deadline_ms)
                return f"{self.flow}: {percent(self.target)} of transactions take at most {most}"
            case "continuity" | "availability" | "integrity":
                return f"{self.flow}: {self.metric} {percent(self.target)}"
            case "frame_rate":
                return f"{self.flow}: {frames_a_second(self.target)}"
            case "worst_frame_rate":
                return f"{self.flow}: {frames_a_second(self.target)} in the worst second"
            case "freezes":
                return f"{self.flow}: at most {freezes_a_minute(self.target)}"
            case "ssim":
                return f"{self.flow}: {percent(self.target)} of frames of an SSIM of {self.ssim:g}"
            case _:
                return f"{self.flow}: {rate(self.target)}"

    def shown(self, value: float | None) -> str:
        """Formats a value of the metric with its unit."""
        if value is None:
            return "–"
        return SHOWN[self.metric](value)

    def goodness(self, value: float | None) -> float:
        """Returns a sort key that is larger for better values; None is worst."""
        if value is None:
            return float("-inf")
        return -value if self.metric in LESS_IS_BETTER else value


@dataclass(frozen=True, slots=True)
class Judged:
    """Requirement at a point, judged over the point's runs.

    Attributes:
        point: number of the point.
        wanted: requirement.
        verdict: met, not met or inconclusive.
        estimate: share of all messages or frames (0 to 1), or the mean over the runs of a delay percentile in ms,
            goodput in bit/s, frame rate in 1/s, or freezes per minute.
        interval: 95 % interval, by episodes for a share (`skybraid.episodes`), else of the mean of the runs (Student's
            t).
        episodes: number of episodes of misses, for a share.
        trials: number of messages, frames, or runs.
        seeds: result of the run of each seed, if known.
    """

    point: int
    wanted: Wanted
    verdict: Verdict
    estimate: float | None
    interval: Interval | None
    episodes: int | None
    trials: int
    seeds: dict[int, float | None]

    @property
    def words(self) -> str:
        """Estimate with interval, in words."""
        seen = self.wanted.shown(self.estimate)
        if self.interval is not None:
            upper = upper_percent if SHOWN[self.wanted.metric] is percent else self.wanted.shown
            seen += f" ({self.wanted.shown(self.interval.low)} to {upper(self.interval.high)})"
        return seen

    @property
    def of(self) -> str:
        """Sample size, in words."""
        things = _COUNTED.get(self.wanted.metric)
        if things is None:
            return f"{count(len(self.seeds))} runs"
        return f"{count(self.trials)} {things}, misses in {count(self.episodes or 0)} episodes"


def judged(requirements: pl.DataFrame) -> list[Judged]:
    """Judges every requirement at every point.

    Args:
        requirements: table `requirements` of the campaign.
    """
    found = []
    keys = ["point", "flow", "metric", "deadline_ms", "target", "ssim"]
    for key, rows in requirements.sort(*keys, "seed").group_by(keys, maintain_order=True):
        point, flow, metric, deadline_ms, target, ssim = key
        # 99.9 % as a share is 0.9990000000000001 in binary; no requirement has a precision of 10^-12.
        wanted = Wanted(str(flow), str(metric), _number(deadline_ms), round(_number(target), 12), _number(ssim))
        found.append(_judge(int(_number(point)), wanted, rows))
    return found


def _judge(point: int, wanted: Wanted, rows: pl.DataFrame) -> Judged:
    seeds = dict(rows.select("seed", "estimate").iter_rows())
    if wanted.metric in _COUNTED:
        known = (RunShare.of_row(row, "met", "trials", MESSAGES.misses) for row in rows.iter_rows(named=True))
        share = share_interval([run for run in known if run is not None])
        if not share.trials:
            return Judged(point, wanted, Verdict.INCONCLUSIVE, None, None, None, 0, seeds)
        verdict = judge_interval(*share.interval, wanted.target)
        return Judged(point, wanted, verdict, share.estimate, share.interval, share.episodes, share.trials, seeds)
    values = [value for value in seeds.values() if value is not None]
    mean = sum(values) / len(values) if values else None
    interval = mean_interval(values)
    verdict = Verdict.INCONCLUSIVE
    if interval is not None:
        limit = wanted.deadline_ms if wanted.metric in ("percentile", "expiration") else wanted.target
        good = sorted(wanted.goodness(value) for value in interval)
        verdict = judge_interval(good[0], good[1], wanted.goodness(limit))
    return Judged(point, wanted, verdict, mean, interval, None, len(values), seeds)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

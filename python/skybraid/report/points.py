"""What a campaign shows of each of its points: every requirement judged over the point's runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.requirements import count, frames_a_second, freezes_a_minute, milliseconds, percent, rate
from skybraid.statistics import Interval, Verdict, mean_interval, pooled_share, share_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

_COUNTED = {"share": "messages", "frames": "frames"}
"""What the metrics that are shares count."""

_SHOWN: dict[str, Callable[[float], str]] = {
    "share": percent,
    "percentile": milliseconds,
    "frames": percent,
    "frame_rate": frames_a_second,
    "worst_frame_rate": frames_a_second,
    "freezes": freezes_a_minute,
    "ssim": percent,
}


@dataclass(frozen=True, slots=True, order=True)
class Wanted:
    """A requirement that the campaign's points have in common: a flow, what is measured, and its target."""

    flow: str
    metric: str
    deadline_ms: float
    target: float
    ssim: float = 0.0

    @property
    def words(self) -> str:
        """In words: "control: 99.9 % within 300 ms"."""
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
        """A value of the metric with its unit."""
        if value is None:
            return "–"
        return _SHOWN.get(self.metric, rate)(value)

    def goodness(self, value: float | None) -> float:
        """A number that is larger where the value is better; none is worst."""
        if value is None:
            return float("-inf")
        return -value if self.metric in ("percentile", "freezes") else value


@dataclass(frozen=True, slots=True)
class Judged:
    """A requirement at a point, over the point's runs.

    Attributes:
        point: its number.
        wanted: the requirement.
        verdict: met, not met or not shown.
        estimate: share of all messages or frames (0 to 1), or the mean over the runs of a delay percentile in ms, of
            goodput in bit/s, of a frame rate in 1/s, of freezes a minute.
        interval: at 95 %, of messages or frames (Clopper–Pearson) for a share, of the mean of the runs (Student's t)
            otherwise.
        over_runs: of a share, the 95 % interval that takes runs as independent, not messages; None with a single run.
        trials: messages, frames, or runs.
        runs: how many.
    """

    point: int
    wanted: Wanted
    verdict: Verdict
    estimate: float | None
    interval: Interval | None
    over_runs: Interval | None
    trials: int
    runs: int

    @property
    def words(self) -> str:
        """What was seen, in words."""
        seen = self.wanted.shown(self.estimate)
        if self.interval is not None:
            seen += f" ({self.wanted.shown(self.interval.low)} to {self.wanted.shown(self.interval.high)})"
        return seen

    @property
    def of(self) -> str:
        """Of how much it was seen."""
        things = _COUNTED.get(self.wanted.metric)
        return f"{count(self.runs)} runs" if things is None else f"{count(self.trials)} {things}"


def judged(requirements: pl.DataFrame) -> list[Judged]:
    """Every requirement at every point.

    Args:
        requirements: the campaign's table of that name.
    """
    found = []
    keys = ["point", "flow", "metric", "deadline_ms", "target", "ssim"]
    for key, rows in requirements.sort(*keys, "seed").group_by(keys, maintain_order=True):
        point, flow, metric, deadline_ms, target, ssim = key
        # 99.9 % as a share is 0.9990000000000001 in binary; nobody requires shares to a part in 10^12.
        wanted = Wanted(str(flow), str(metric), _number(deadline_ms), round(_number(target), 12), _number(ssim))
        found.append(_judge(int(_number(point)), wanted, rows))
    return found


def _judge(point: int, wanted: Wanted, rows: pl.DataFrame) -> Judged:
    if wanted.metric in _COUNTED:
        met, trials = ([int(number) for number in rows[name].fill_null(0)] for name in ("met", "trials"))
        share = pooled_share(met, trials)
        # As `skybraid run` with several seeds judges it, by the messages of all runs together.
        verdict = share_verdict(share.met, share.trials, wanted.target).verdict
        estimate, interval = (share.estimate, share.messages) if share.trials else (None, None)
        flights = share.flights if len(met) > 1 and share.trials else None
        return Judged(point, wanted, verdict, estimate, interval, flights, share.trials, rows.height)
    values = [float(value) for value in rows["estimate"].drop_nulls()]
    mean = sum(values) / len(values) if values else None
    interval = mean_interval(values)
    verdict = Verdict.NOT_SHOWN
    if interval is not None:
        limit = wanted.deadline_ms if wanted.metric == "percentile" else wanted.target
        good = [wanted.goodness(value) for value in interval]
        if min(good) >= wanted.goodness(limit):
            verdict = Verdict.MET
        elif max(good) < wanted.goodness(limit):
            verdict = Verdict.NOT_MET
    return Judged(point, wanted, verdict, mean, interval, None, len(values), rows.height)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

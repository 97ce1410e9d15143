"""What a campaign shows of each of its points: every requirement judged over the point's runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skybraid.requirements import count, milliseconds, percent, rate
from skybraid.statistics import Interval, Verdict, mean_interval, pooled_share, share_verdict

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, order=True)
class Wanted:
    """A requirement that the campaign's points have in common: a flow, what is measured, and its target."""

    flow: str
    metric: str
    deadline_ms: float
    target: float

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
            case _:
                return f"{self.flow}: {rate(self.target)}"

    def shown(self, value: float | None) -> str:
        """A value of the metric with its unit."""
        if value is None:
            return "–"
        return {"share": percent, "percentile": milliseconds}.get(self.metric, rate)(value)

    def goodness(self, value: float | None) -> float:
        """A number that is larger where the value is better; none is worst."""
        if value is None:
            return float("-inf")
        return -value if self.metric == "percentile" else value


@dataclass(frozen=True, slots=True)
class Judged:
    """A requirement at a point, over the point's runs.

    Attributes:
        point: its number.
        wanted: the requirement.
        verdict: met, not met or not shown.
        estimate: share of all messages (0 to 1), mean delay percentile in ms, or mean goodput in bit/s.
        interval: at 95 %, of messages (Clopper–Pearson) for a share, of the mean of the runs (Student's t) otherwise.
        over_runs: of a share, the 95 % interval that takes runs as independent, not messages; None with a single run.
        trials: messages, or runs.
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
        return f"{count(self.trials)} messages" if self.wanted.metric == "share" else f"{count(self.runs)} runs"


def judged(requirements: pl.DataFrame) -> list[Judged]:
    """Every requirement at every point.

    Args:
        requirements: the campaign's table of that name.
    """
    found = []
    keys = ["point", "flow", "metric", "deadline_ms", "target"]
    for key, rows in requirements.sort(*keys, "seed").group_by(keys, maintain_order=True):
        point, flow, metric, deadline_ms, target = key
        # 99.9 % as a share is 0.9990000000000001 in binary; nobody requires shares to a part in 10^12.
        wanted = Wanted(str(flow), str(metric), _number(deadline_ms), round(_number(target), 12))
        found.append(_judge(int(_number(point)), wanted, rows))
    return found


def _judge(point: int, wanted: Wanted, rows: pl.DataFrame) -> Judged:
    if wanted.metric == "share":
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

"""Adds seeds until a question is decided: `--until "control.share >= 99.999% ± shown"`.

    FLOW.METRIC >= VALUE ± shown      until the interval is on one side of the value (`<=` likewise)
    FLOW.METRIC ± WIDTH               until the interval extends at most WIDTH to either side

Metrics are those of `measures.MEASURES`: `share` (within the flow's shortest deadline; of all messages where it
requires none), `goodput`, delays `p50` … `p99.999`; of a video also `frames` (the same share, of its frames),
`frame_latency_p50`, `frame_latency_p95`, `frame_latency_p99`, `frame_rate`, `worst_frame_rate` and `freezes`. `+-` and
`+/-` can be written for ±. Intervals are those of `skybraid.episodes` over runs. Each point is examined after 10, 20,
40, 80 … runs. Stopping at the first success with 95 % intervals would err more often than once in twenty, so each look
decides by 99 % intervals: over the first five looks, the error probabilities add up to at most 5 %.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from skybraid.execute.ranges import quantity
from skybraid.execute.rows import FLOWS
from skybraid.model.episodes import SPREAD, RunShare, ShareInterval, factor_needed, share_interval
from skybraid.model.errors import ScenarioError
from skybraid.model.formatting import count, percent_range
from skybraid.model.heavy import pl
from skybraid.model.measures import MEASURES, Measure, names
from skybraid.model.statistics import CONFIDENCE, Interval, Verdict, mean_interval, median_interval

if TYPE_CHECKING:
    from skybraid.execute.batches import Job
    from skybraid.execute.sweep import Running
    from skybraid.model.measures import Counted

FIRST_LOOK = 10
"""Flights of a point before the first look, unless more seeds are given."""

DECIDING = 0.99
"""Confidence of each bound that decides."""

MAX_RUNS = 10_000
"""Runs of a campaign unless a budget says otherwise."""

_GRAMMAR = re.compile(
    r"\s*(?P<flow>\S+?)\.(?P<metric>[a-z_]+(?:\d+(?:\.\d+)?)?)\s*"
    r"(?:(?P<sign>>=|<=|≥|≤)\s*(?P<target>[^±+\s]+(?:\s*[^±+\s\d]+)?)\s*)?"
    r"(?:±|\+/?-)\s*(?P<reach>shown|[^\s]+(?:\s*[^\s]+)?)\s*"
)

_EXPECTED = (
    'expected FLOW.METRIC >= VALUE ± shown, or FLOW.METRIC ± WIDTH, such as "control.share >= 99.999% ± shown" or '
    '"video.p99 ± 5ms"'
)


@dataclass(frozen=True, slots=True)
class Question:
    """Question to be decided at each point.

    Attributes:
        text: the user's question.
        flow: name of the flow.
        metric: measured quantity.
        at_least: True for a minimum, False for a maximum; None without a target.
        target: share from 0 to 1, bit/s, ms, frames per second, or freezes per minute; None if only precision is
            asked.
        reach: maximum extent of the interval to either side, in the same unit; None for "shown".
    """

    text: str
    flow: str
    metric: Measure
    at_least: bool | None
    target: float | None
    reach: float | None

    def formatted(self, value: float) -> str:
        """Formats a value of the metric."""
        return "without end" if math.isinf(value) else self.metric.unit.text(value)

    def check(self, flows: Sequence[str], videos: Sequence[str]) -> None:
        """Raises if the flow does not exist or has no such metric.

        Args:
            flows: names of the flows.
            videos: names of the flows that are video.

        Raises:
            ScenarioError: there is no such flow, or it has no such metric.
        """
        if self.flow not in flows:
            raise ScenarioError(f"--until: found the flow {self.flow}, expected one of {', '.join(flows)}")
        if self.metric.video and self.flow not in videos:
            known = ", ".join(names(video=False))
            others = f"; flows that are video: {', '.join(videos)}" if videos else ""
            raise ScenarioError(
                f"--until: found {self.metric.name} of {self.flow}, which is no video, expected one of {known}{others}"
            )


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to the question at a point.

    Attributes:
        point: number of the point.
        name: values of the point.
        question: the user's question.
        verdict: met, not met, or inconclusive within the budget.
        flights: number of completed runs.
        estimate: estimate in the unit of the question's target; None if there is none.
        low: lower end of the deciding interval.
        high: upper end of the deciding interval.
        words: the answer in a sentence.
    """

    point: int
    name: str
    question: str
    verdict: Verdict
    flights: int
    estimate: float | None
    low: float | None
    high: float | None
    words: str

    @property
    def good(self) -> bool:
        """Whether the answer is met."""
        return self.verdict is Verdict.MET

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self) | {"verdict": str(self.verdict)}


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on a campaign's size.

    Attributes:
        runs: maximum number of runs, cached ones included.
        time_s: time in s after which no further run is started; None for no limit.
    """

    runs: int = MAX_RUNS
    time_s: float | None = None


def question(text: str) -> Question:
    """Parses a question.

    Raises:
        ScenarioError: the text does not follow the grammar.
    """
    found = _GRAMMAR.fullmatch(text)
    if found is None:
        raise ScenarioError(f"--until: found {text}, {_EXPECTED}")
    metric, reach = next((one for one in MEASURES if one.name == found["metric"]), None), found["reach"]
    if metric is None:
        raise ScenarioError(f"--until: found {found['metric']}, expected one of {', '.join(names(video=True))}")
    shown = reach.startswith("shown")
    if shown and found["sign"] is None:
        raise ScenarioError(f"--until: found {text} without a value, {_EXPECTED}")
    if not shown and found["sign"] is not None:
        raise ScenarioError(f"--until: found both a value and a width in {text}, {_EXPECTED}")
    return Question(
        text.strip(),
        found["flow"],
        metric,
        None if found["sign"] is None else found["sign"] in (">=", "≥"),
        None if found["sign"] is None else _value(found["target"], metric),
        None if shown else _value(reach, metric),
    )


def budget(text: str | None) -> Budget:
    """Parses a budget: a number of runs, or a time.

    Raises:
        ScenarioError: the text is neither.
    """
    if text is None:
        return Budget()
    found = quantity(text.strip())
    if found is not None and found.unit == "" and found.number >= 1 and found.number == int(found.number):
        return Budget(runs=int(found.number))
    time_s = None if found is None else found.in_unit("s")
    if time_s is None or time_s <= 0:
        raise ScenarioError(f"--budget: found {text}, expected a number of runs such as 1000, or a time such as 30min")
    return Budget(runs=sys.maxsize, time_s=time_s)


def run_until(running: Running, asked: Question, limit: Budget) -> list[Answer]:
    """Runs each point with more and more seeds until its question is decided or the budget is exhausted.

    Raises:
        ScenarioError: the scenario has no such flow.
        ResultError: a part cannot be written.
    """
    seeds = running.plan.seeds
    after = max(seeds) + 1

    def seed(place: int) -> int:
        return seeds[place] if place < len(seeds) else after + place - len(seeds)

    end = None if limit.time_s is None else time.monotonic() + limit.time_s
    answers: dict[int, Answer] = {}
    open_ = list(running.plan.wanted)
    alike = running.plan.alike
    flown, goal = 0, max(FIRST_LOOK, len(seeds))
    while open_:
        allowed = (limit.runs - running.status.total) // len(open_)
        goal = min(goal, flown + allowed)
        points, first = list(open_), flown

        def jobs(points: list[int] = points, first: int = first, goal: int = goal) -> Iterator[Job]:
            ends = {point: min(goal, 1) if point in alike else goal for point in points}
            return ((point, seed(place)) for point in points for place in range(first, ends[point]))

        if goal > flown:
            running.run(jobs, until=end)
        for point in points:
            made = min(goal, 1) if point in alike else goal
            answers[point] = _look(running, asked, point, {seed(place) for place in range(made)})
        # Further runs of a point where all are alike would show nothing new.
        open_ = [point for point in points if answers[point].verdict is Verdict.INCONCLUSIVE and point not in alike]
        if goal <= flown or (end is not None and time.monotonic() >= end):
            break
        flown, goal = goal, 2 * goal
    return [answers[point] for point in running.plan.wanted]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Evidence of a point's runs so far.

    Attributes:
        flights: number of completed runs.
        estimate: estimate of the metric; None if no run has a value.
        shown: its 95 % interval.
        decides: the interval that decides the question.
        share: the share with its misses, if the metric is a share.
        needed: number of runs that would decide the question, in words; empty if unknown.
    """

    flights: int
    estimate: float | None
    shown: Interval | None
    decides: Interval | None
    share: ShareInterval | None = None
    needed: str = ""

    def words(self, asked: Question) -> str:
        """Describes the estimate, the runs and the interval."""
        seen = "nothing" if self.estimate is None else asked.formatted(self.estimate)
        if self.share is not None and self.share.trials:
            misses = "1 miss" if self.share.missed == 1 else f"{count(self.share.missed)} misses"
            together = "1 episode" if self.share.episodes == 1 else f"{count(self.share.episodes)} episodes"
            interval = f"95 % interval {percent_range(*self.share.interval)}; {misses} in {together}"
        elif self.shown is None:
            interval = "no interval"
        else:
            interval = f"95 % interval {asked.formatted(self.shown.low)} to {asked.formatted(self.shown.high)}"
        return f"{seen} in {count(self.flights)} flights ({interval})"


def _look(running: Running, asked: Question, point: int, seeds: set[int]) -> Answer:
    """Returns the evidence of a point's runs so far."""
    frame = (
        running.campaign.scan(FLOWS)
        .filter((pl.col("point") == point) & (pl.col("flow") == asked.flow))
        .sort("seed")
        .collect()
    )
    frame = frame.filter(pl.col("seed").is_in(list(seeds)))
    seen = (
        _seen_value(asked, frame) if asked.metric.counted is None else _seen_share(asked, asked.metric.counted, frame)
    )
    verdict = _verdict(asked, seen)
    name = running.plan.manifest.points[point].words(running.plan.manifest.columns)
    before = f"{name}: " if name else ""
    needed = seen.needed if verdict is Verdict.INCONCLUSIVE else ""
    words = f"{before}{asked.text}: {verdict}. {seen.words(asked)}{needed}"
    low, high = (None, None) if seen.shown is None else (_finite(seen.shown.low), _finite(seen.shown.high))
    estimate = None if seen.estimate is None else _finite(seen.estimate)
    return Answer(point, name, asked.text, verdict, seen.flights, estimate, low, high, words)


def _seen_share(asked: Question, counted: Counted, frame: pl.DataFrame) -> _Seen:
    rows = frame.select(counted.met, counted.trials, *(f"{counted.misses}{name}" for name in SPREAD))
    known = (RunShare.of_row(row, counted.met, counted.trials, counted.misses) for row in rows.iter_rows(named=True))
    runs = [run for run in known if run is not None]
    share = share_interval(runs)
    decides = share_interval(runs, 2 * DECIDING - 1).interval
    factor = None if asked.target is None else factor_needed(runs, asked.target, 2 * DECIDING - 1)
    needed = ""
    if factor is not None:
        needed = f"; about {count(math.ceil(factor * len(runs)))} flights like these would decide it"
    estimate = share.estimate if share.trials else None
    return _Seen(frame.height, estimate, share.interval, decides, share, needed)


def _seen_value(asked: Question, frame: pl.DataFrame) -> _Seen:
    values = [asked.metric.nothing if value is None else value for value in frame[asked.metric.column].to_list()]
    middle, reach = (statistics.fmean, _mean) if asked.metric.mean else (statistics.median, median_interval)
    estimate = middle(values) if values else None
    return _Seen(frame.height, estimate, reach(values, CONFIDENCE), reach(values, 2 * DECIDING - 1))


def _verdict(asked: Question, seen: _Seen) -> Verdict:
    shown, decides = seen.shown, seen.decides
    if asked.reach is not None:
        precise = shown is not None and (shown.high - shown.low) / 2 <= asked.reach
        return Verdict.MET if precise else Verdict.INCONCLUSIVE
    if decides is None or asked.target is None:
        return Verdict.INCONCLUSIVE
    if asked.at_least:
        reached, missed = decides.low >= asked.target, decides.high < asked.target
    else:
        reached, missed = decides.high <= asked.target, decides.low > asked.target
    return Verdict.MET if reached else Verdict.NOT_MET if missed else Verdict.INCONCLUSIVE


def _mean(values: Sequence[float], confidence: float) -> Interval | None:
    """Returns the interval of the mean; None if a value is infinite."""
    return mean_interval(values, confidence) if all(map(math.isfinite, values)) else None


def _value(text: str, metric: Measure) -> float:
    unit, found = metric.unit, quantity(text)
    value = None if found is None or bool(found.unit) != bool(unit.unit) else found.in_unit(unit.unit)
    if value is None or value < 0:
        with_unit = "with its unit" if unit.unit else "without a unit"
        raise ScenarioError(
            f"--until: found {text}, expected a value of {metric.name} {with_unit}, such as {unit.example}"
        )
    return round(value * unit.scale, 12)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""Paired comparison of two scenarios, results or campaigns, seed by seed.

Runs with the same seed and point have the same random events on their links, so their difference is more precise than
the difference of two averages. The mean difference over the pairs has Student's t interval.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from skybraid.execute.batches import Pace, Threads
from skybraid.execute.campaign import Campaign
from skybraid.execute.plan import plan
from skybraid.execute.rows import FLOWS, Buffer, key_of, schemas
from skybraid.execute.store import Store
from skybraid.model.errors import ResultError, ScenarioError
from skybraid.model.folder import MANIFEST
from skybraid.model.formatting import count, milliseconds
from skybraid.model.heavy import pl
from skybraid.model.measures import MEASURES, POINTS, Measure
from skybraid.model.provenance import MAX_RUNS, seeds_from
from skybraid.model.results import Results
from skybraid.model.scenario import Scenario
from skybraid.model.seeds import ALIKE
from skybraid.model.statistics import mean_interval
from skybraid.model.summary import frames_in_time_of, video_columns

if TYPE_CHECKING:
    from skybraid.execute.axes import Label
    from skybraid.execute.plan import Plan
    from skybraid.execute.pool import Progress
    from skybraid.execute.rows import Outcome
    from skybraid.model.scenario import Overrides

Side = Scenario | Results | Campaign | str | os.PathLike[str]
"""What can be compared; a text is the path of a scenario's file, or of a result's or campaign's folder, or its URL."""

METRICS = tuple(one for one in MEASURES if one.listed)
"""What is compared of each flow; what only a video has, of videos."""

SEEDS = range(1, 21)
"""Of two scenarios that name none."""

_SHOWN = 12
"""Differences that `repr` shows."""

_TIMES = tuple(dict.fromkeys(one.counted.within_ms for one in METRICS if one.counted is not None))
_COLUMNS = (*_TIMES, *(one.column for one in METRICS))

_Key = tuple[tuple["Label", ...], str, int]
"""A flight's flow: its point's labels, the flow, the seed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of B and A over their common runs.

    Attributes:
        point: values of the point, if several are compared; else empty.
        flow: name of the flow.
        metric: column of one of `METRICS`.
        deadline_ms: deadline of messages or frames in A, for shares; else None.
        mean_a: mean of A over the pairs: share from 0 to 1, bit/s, ms, frames per second, or freezes per minute.
        mean_b: mean of B over the pairs.
        difference: mean of B - A.
        low: lower end of its 95 % interval; None below two pairs.
        high: upper end of its 95 % interval; None below two pairs.
        pairs: number of compared runs.
        left_out: number of pairs without a value on some side, for example a delay if nothing arrived.
        words: the difference in a sentence.
    """

    point: str
    flow: str
    metric: str
    deadline_ms: float | None
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    pairs: int
    left_out: int
    words: str


@dataclass(frozen=True, slots=True)
class Paired:
    """Result of a paired comparison.

    Attributes:
        a: name of the first.
        b: name of the second.
        differences: one for each point, flow and metric.
        seeds: seeds that both have.
        notes: remarks on what could not be compared, and on how the runs were made.
    """

    a: str
    b: str
    differences: tuple[Difference, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = [f"  {one.point} {one.words}".replace("   ", "  ") for one in self.differences[:_SHOWN]]
        more = [f"  and {len(self.differences) - _SHOWN} more"] if len(self.differences) > _SHOWN else []
        return "\n".join([f"Paired(A {self.a!r}, B {self.b!r}: {len(self.seeds)} seeds)", *shown, *more])

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Exports `frame` as an Arrow stream."""
        return self.frame().__arrow_c_stream__(requested_schema)

    def frame(self) -> pl.DataFrame:
        """Differences as a frame, one row each."""
        real = ("deadline_ms", "mean_a", "mean_b", "difference", "low", "high")
        return pl.DataFrame(
            [asdict(one) for one in self.differences], schema_overrides=dict.fromkeys(real, pl.Float64())
        )

    def json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "a": self.a,
            "b": self.b,
            "seeds": list(self.seeds),
            "differences": [asdict(one) for one in self.differences],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class _Ready:
    name: str
    columns: tuple[str, ...]
    values: Mapping[_Key, Mapping[str, float | None]]


def paired(
    a: Side,
    b: Side,
    *,
    seeds: Iterable[int] | str | None = None,
    overrides: Overrides = (),
    workers: int | None = None,
    progress: Progress | None = None,
) -> Paired:
    """Compares two scenarios, results or campaigns by their runs with the same seed and point.

    Args:
        a: the first; a scenario is run.
        b: the second; differences are B - A.
        seeds: seeds to run or, of stored runs, to compare. By default 1 to 20 for two scenarios, and the seeds of the
            other side for one scenario.
        overrides: keys replaced in scenarios (key, TOML value).
        workers: number of parallel runs; one per core by default.
        progress: receives the completed share, 0 to 1.

    Raises:
        ScenarioError: a scenario is invalid.
        ResultError: there is nothing to compare, or a run failed.
        KeyboardInterrupt: Ctrl-C.
    """
    chosen = None if seeds is None else seeds_from(seeds, "seeds", MAX_RUNS)
    sides = [_opened(side) for side in (a, b)]
    to_run = sum(isinstance(side, _Missing) for side in sides)
    known = {seed for side in sides if isinstance(side, _Ready) for _, _, seed in side.values}
    numbers = chosen or sorted(known) or list(SEEDS)
    plans = {
        place: plan(side.scenario, seeds=numbers, overrides=overrides, several=len(numbers) > 1)
        for place, side in enumerate(sides)
        if isinstance(side, _Missing)
    }
    notes = list(dict.fromkeys(planned.drawn for planned in plans.values() if planned.drawn))
    if len(numbers) > 1 and len(plans) == len(sides) and all(one.alike == set(one.wanted) for one in plans.values()):
        notes.append(f"{ALIKE}; 1 flight of each")
        plans = {place: replace(planned, seeds=planned.seeds[:1]) for place, planned in plans.items()}
    finished: list[_Ready] = []
    for side in sides:
        if isinstance(side, _Ready):
            finished.append(side)
            continue
        at = sum(isinstance(earlier, _Missing) for earlier in sides[: len(finished)])

        def report_share(share: float, at: int = at) -> None:
            if progress is not None:
                progress((at + share) / to_run)

        finished.append(_run(plans[len(finished)], workers, report_share))
    found = _paired(finished[0], finished[1], chosen)
    return replace(found, notes=(*notes, *found.notes))


@dataclass(frozen=True, slots=True)
class _Missing:
    scenario: Scenario | str


def _opened(side: Side) -> _Ready | _Missing:
    match side:
        case Scenario():
            return _Missing(side)
        case Results():
            return _of_results(side)
        case Campaign():
            return _of_campaign(side)
    text = os.fspath(side)
    if "://" not in text and not os.path.isdir(text):  # noqa: PTH112 may be a URL
        return _Missing(text)
    store = Store.at(text)
    if store.read(MANIFEST) is not None:
        return _of_campaign(Campaign.at(store))
    if not store.local:
        raise ResultError(f"{text}: found no {MANIFEST}, expected a campaign")
    return _of_results(Results.open(text))


def _run(planned: Plan, workers: int | None, progress: Callable[[float], None]) -> _Ready:
    manifest = planned.manifest
    threads, pace = Threads(workers), Pace(Threads.target_s)
    jobs = ((point, seed) for point in planned.wanted for seed in planned.seeds)
    outcomes: list[Outcome] = []
    total = len(planned.wanted) * len(planned.seeds)
    for batch in threads.outcomes(manifest.base, pace.batches(jobs, manifest.points, manifest.digests)):
        pace.saw(batch)
        outcomes += batch
        progress(len(outcomes) / total)
    failed = next((outcome for outcome in outcomes if outcome.error is not None), None)
    if failed is not None:
        raise ResultError(f"{manifest.base.file}: seed {failed.seed}: the run failed: {failed.error}")
    buffer = Buffer(schemas(manifest.columns, manifest.points[0].labels, manifest.paths), manifest.paths)
    for outcome in outcomes:
        key = key_of(manifest.digests[outcome.point], outcome.seed)
        buffer.add(outcome, key, manifest.points[outcome.point], "")
    return _of_frame(manifest.base.file, manifest.columns, buffer.take()[FLOWS])


def _of_campaign(campaign: Campaign) -> _Ready:
    names = ["flow", "seed", *campaign.columns, *_COLUMNS]
    return _of_frame(campaign.url, campaign.columns, campaign.scan(FLOWS).select(names).collect())


def _of_frame(name: str, columns: tuple[str, ...], frame: pl.DataFrame) -> _Ready:
    values = {}
    for row in frame.iter_rows(named=True):
        point = tuple(row[column] for column in columns)
        values[point, str(row["flow"]), int(row["seed"])] = {column: row[column] for column in _COLUMNS}
    return _Ready(name, columns, values)


def _of_results(results: Results) -> _Ready:
    values: dict[_Key, Mapping[str, float | None]] = {}
    for flight in results.flights:
        for flow, seen in flight.flows.items():
            shares = [
                requirement
                for requirement in flight.requirements
                if requirement.flow == flow and requirement.metric == "share" and requirement.deadline_ms
            ]
            nearest = min(shares, key=lambda requirement: requirement.deadline_ms or math.inf, default=None)
            decided = seen.delivered + seen.lost
            arrived = seen.delivered / decided if decided else None
            values[(), flow, flight.seed] = {
                "deadline_ms": None if nearest is None else nearest.deadline_ms,
                "within_deadline": arrived if nearest is None else nearest.estimate,
                "goodput_bps": seen.goodput_bps,
                **{f"delay_{name}_ms": delay_ms for name, delay_ms in seen.delay_ms.items()},
                **video_columns(seen.video),
                **frames_in_time_of(flight, flow),
            }
    name = results.name if results.folder is None else str(results.folder)
    return _Ready(name, (), values)


def _paired(a: _Ready, b: _Ready, seeds: list[int] | None) -> Paired:
    one_point = len({point for point, _, _ in a.values}) == len({point for point, _, _ in b.values}) == 1
    if not one_point and a.columns != b.columns:
        varied = [", ".join(side.columns) or "nothing" for side in (a, b)]
        raise ResultError(f"{a.name} varies {varied[0]}, {b.name} varies {varied[1]}; expected the same of both")

    def keyed(side: _Ready) -> dict[_Key, Mapping[str, float | None]]:
        return {
            (() if one_point else point, flow, seed): values
            for (point, flow, seed), values in side.values.items()
            if seeds is None or seed in seeds
        }

    left, right = keyed(a), keyed(b)
    shared = [key for key in left if key in right]
    if not shared:
        raise ResultError(f"{a.name}, {b.name}: found no flight of the same seed, point and flow, expected some")
    by_flow: dict[tuple[tuple[Label, ...], str], list[int]] = {}
    for point, flow, seed in shared:
        by_flow.setdefault((point, flow), []).append(seed)
    differences = []
    for (point, flow), numbers in by_flow.items():
        words = " ".join(f"{column}={label}" for column, label in zip(a.columns, point, strict=False))
        for metric in METRICS:
            pairs = [(left[point, flow, seed], right[point, flow, seed]) for seed in sorted(numbers)]
            found = _difference(words, flow, metric, pairs)
            if found is not None:
                differences.append(found)
    alone = len(left) + len(right) - 2 * len(shared)
    notes = [f"{count(alone)} rows of a flow and flight have no partner and are left out"] if alone else []
    return Paired(a.name, b.name, tuple(differences), tuple(sorted({seed for _, _, seed in shared})), tuple(notes))


def _difference(
    point: str, flow: str, metric: Measure, pairs: list[tuple[Mapping[str, float | None], Mapping[str, float | None]]]
) -> Difference | None:
    known = [
        (left, right)
        for one, other in pairs
        if (left := one[metric.column]) is not None and (right := other[metric.column]) is not None
    ]
    if not known:
        return None
    differences = [right - left for left, right in known]
    mean = math.fsum(differences) / len(known)
    interval = mean_interval(differences)
    low, high = interval or (None, None)
    deadline_ms, other_ms = (None if metric.counted is None else side[metric.counted.within_ms] for side in pairs[0])
    what = metric.within(deadline_ms)
    if deadline_ms != other_ms:
        what += f" (in B within {'no deadline' if other_ms is None else milliseconds(other_ms)})"
    left_out = len(pairs) - len(known)
    words = f"{point}: " if point else ""
    words += f"{flow}, {what}: {_sentence(metric, differences, mean, low, high)}"
    return Difference(
        point,
        flow,
        metric.column,
        deadline_ms,
        math.fsum(left for left, _ in known) / len(known),
        math.fsum(right for _, right in known) / len(known),
        mean,
        low,
        high,
        len(known),
        left_out,
        words,
    )


def _sentence(metric: Measure, differences: list[float], mean: float, low: float | None, high: float | None) -> str:
    pairs = "1 pair" if len(differences) == 1 else f"{count(len(differences))} pairs"
    if not any(differences):
        return f"equal in all {pairs}" if len(differences) > 1 else "equal in the one pair"
    how = f"{_text(metric, abs(mean))} {'higher' if mean > 0 else 'lower'} in B"
    if low is None or high is None:
        return f"{how} in one pair, which gives no interval"
    ends = f"{_text(metric, low, signed=True)} to {_text(metric, high, signed=True)}"
    interval = f"95 % interval {ends.replace(POINTS, '', 1)}, {pairs}"
    if low <= 0 <= high:
        return f"no difference is shown: {how} on average ({interval})"
    return f"{how} ({interval})"


def _text(metric: Measure, value: float, *, signed: bool = False) -> str:
    sign = ("+" if value > 0 else "−" if value < 0 else "") if signed else ""
    return f"{sign}{metric.unit.apart(abs(value))}"


def refuse_more(names: Mapping[str, object]) -> None:
    """Raises if options of a ranking of schedulers are given for a comparison of two sources.

    Raises:
        ScenarioError: such an option is given.
    """
    for name, value in names.items():
        if value is not None:
            raise ScenarioError(f"--{name}: found it with two things to compare, expected it with one scenario alone")

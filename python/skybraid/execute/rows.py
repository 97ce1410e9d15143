"""Rows of a run in the tables of a campaign: plain values, which can be sent between machines."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skybraid import _core
from skybraid.model import algorithms
from skybraid.model.episodes import SPREAD, KnownRun, RunShare
from skybraid.model.heavy import pl
from skybraid.model.link_performance import Slots, share_of
from skybraid.model.measures import FRAMES, MESSAGES
from skybraid.model.summary import (
    FRAMES_IN_TIME,
    PERCENTILES,
    TOTALS,
    VIDEO_COUNTS,
    VIDEO_MEASURES,
    frames_in_time,
    video_columns,
)

if TYPE_CHECKING:
    from skybraid._core import FlowStats, KnownLinks, Run
    from skybraid.execute.axes import Label, Point
    from skybraid.model.scenario import Scenario

RUNS, FLOWS, REQUIREMENTS = "runs", "flows", "requirements"

DONE, FAILED = "done", "failed"
"""How a run ends."""

Row = tuple[Any, ...]

DELAYS = tuple(f"delay_{name}_ms" for name in PERCENTILES)

CAUSES = tuple(cause for cause in _core.causes() if cause != "delivered")

_NO_SPREAD = (None,) * len(SPREAD)

_SECONDS = frozenset(name for name in TOTALS if name.endswith("_s"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A completed or failed run.

    Attributes:
        point: position of its point.
        seed: root of its random streams.
        error: message of the failure; None for a completed run.
        wall_s: wall-clock duration in s.
        simulated_s: simulated time in s.
        flows: its rows of `flows`, without the columns that identify the run.
        requirements: its rows of `requirements`, without the columns that identify the run.
    """

    point: int
    seed: int
    error: str | None
    wall_s: float
    simulated_s: float
    flows: tuple[Row, ...] = ()
    requirements: tuple[Row, ...] = ()


def digest_of(scenario: Scenario) -> str:
    """Returns a digest of a point's inputs: effective scenario, its files, user-defined algorithms and the version."""
    files = [digest for _, digest in scenario.inputs()]
    plugins = sorted(digest for _, digest in algorithms.inputs(scenario))
    of = [_core.__version__, scenario.toml(), files, plugins]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()[:32]


def key_of(digest: str, seed: int) -> str:
    """Returns the key of a run; runs with equal keys have equal results."""
    return hashlib.sha256(f"{digest} {seed}".encode()).hexdigest()[:24]


def outcome_of(
    run: Run,
    point: int,
    wall_s: float,
    deadlines_ms: Mapping[str, float],
    frames_within_ms: Mapping[str, float],
    requirements: Sequence[Mapping[str, Any]],
    links: KnownLinks,
) -> Outcome:
    """Returns the outcome of a completed run; `links` describes the links of its scenario."""
    stats = {one.flow: one for one in run.group_stats()}
    return Outcome(
        point,
        run.seed,
        None,
        wall_s,
        run.simulated_s,
        tuple(
            _flow(one, deadlines_ms.get(name), frames_within_ms.get(name), KnownRun(links, name, run.seed))
            for name, one in stats.items()
        ),
        tuple(
            _requirement(requirement, stats[requirement["flow"]], KnownRun(links, requirement["flow"], run.seed))
            for requirement in requirements
            if requirement["flow"] in stats
        ),
    )


def _flow(
    stats: FlowStats,
    deadline_ms: float | None,
    frames_within_ms: float | None,
    known: KnownRun,
) -> Row:
    met, trials = stats.met(deadline_ms)
    lost = stats.lost_by_cause
    return (
        stats.flow,
        deadline_ms,
        met,
        trials,
        met / trials if trials else None,
        stats.goodput_bps,
        *(_finite(stats.delay_quantile(q)) for q in PERCENTILES.values()),
        *(getattr(stats, name) for name in TOTALS),
        *(lost.get(cause, 0) for cause in CAUSES),
        *video_columns(stats.video()).values(),
        *frames_in_time(stats, frames_within_ms).values(),
        *RunShare.of_bins(*stats.met_over_time(deadline_ms), known, deadline_ms).spread,
        *(_NO_SPREAD if frames_within_ms is None else _frames(stats, frames_within_ms, known).spread),
        stats.share,
    )


def _frames(stats: FlowStats, within_ms: float, known: KnownRun) -> RunShare:
    return RunShare.of_bins(*stats.frames_met_over_time(within_ms), known, within_ms)


def _requirement(requirement: Mapping[str, Any], stats: FlowStats, known: KnownRun) -> Row:
    """Returns a row on a requirement in a single run: its estimate and, for a share, the trials that met it."""
    metric, target, deadline_ms = requirement["metric"], requirement["target"], requirement["deadline_ms"]
    met: int | None = None
    spread: Row = _NO_SPREAD
    match metric:
        case "share" | "frames":
            share = (
                RunShare.of_bins(*stats.met_over_time(deadline_ms), known, deadline_ms)
                if metric == "share"
                else _frames(stats, deadline_ms, known)
            )
            trials, met, spread = share.trials, share.trials - share.missed, share.spread
            estimate = met / trials if trials else None
        case "frame_rate" | "worst_frame_rate" | "freezes":
            name = "freezes_per_minute" if metric == "freezes" else metric
            estimate = video_columns(stats.video())[name]
            trials = 0 if estimate is None else 1
        case "continuity" | "availability":
            slots = Slots(*stats.met_over_time(deadline_ms))
            share = share_of(requirement, slots, known) or RunShare.of_counts(0, 0)
            trials, met, spread = share.trials, share.trials - share.missed, share.spread
            estimate = met / trials if trials else None
        case "ssim" | "integrity":
            # Nobody has decoded the frames; no run says what a check lets pass.
            trials, estimate = 0, None
        case "percentile" | "expiration":
            trials = stats.delivered
            estimate = _finite(stats.delay_quantile(target)) if trials else None
        case _:
            trials, estimate = 1, stats.goodput_bps
    return (requirement["flow"], metric, deadline_ms, target, estimate, met, trials, requirement.get("ssim"), *spread)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def schemas(columns: Sequence[str], labels: Sequence[Label], paths: Sequence[str]) -> dict[str, dict[str, pl.DataType]]:
    """Returns the columns of the tables with their types.

    Args:
        columns: columns of the axes.
        labels: one value of each of these columns, for its type.
        paths: names of the paths.
    """
    types = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64(), str: pl.String()}
    axes: dict[str, pl.DataType] = {column: types[type(label)] for column, label in zip(columns, labels, strict=True)}
    text, count, real, seed = pl.String(), pl.UInt64(), pl.Float64(), pl.UInt64()
    named: dict[str, pl.DataType] = {"key": text, "point": pl.UInt32(), **axes, "seed": seed}
    return {
        RUNS: named | {"status": text, "error": text, "wall_s": real, "simulated_s": real, "replay": text},
        FLOWS: named
        | {"flow": text, "deadline_ms": real, "met": count, "trials": count, "within_deadline": real}
        | {"goodput_bps": real}
        | dict.fromkeys(DELAYS, real)
        | {name: real if name in _SECONDS else count for name in TOTALS}
        | {f"lost_{cause}": count for cause in CAUSES}
        | dict.fromkeys(VIDEO_COUNTS, count)
        | dict.fromkeys(VIDEO_MEASURES, real)
        | {name: count if name in ("frames_met", "frames_due") else real for name in FRAMES_IN_TIME}
        | _spread(MESSAGES.misses)
        | _spread(FRAMES.misses)
        | {f"share_{path}": real for path in paths},
        REQUIREMENTS: named
        | {"flow": text, "metric": text, "deadline_ms": real, "target": real, "estimate": real}
        | {"met": count, "trials": count, "ssim": real}
        | _spread(MESSAGES.misses),
    }


def _spread(prefix: str) -> dict[str, pl.DataType]:
    return {f"{prefix}{name}": pl.UInt64() if name == "episodes" else pl.Float64() for name in SPREAD}


@dataclass(slots=True)
class Buffer:
    """Rows of finished runs that are not yet written.

    Attributes:
        schemas: columns of the tables with their types.
        paths: names of the paths, in the order of their columns.
        runs: number of runs.
    """

    schemas: Mapping[str, Mapping[str, pl.DataType]]
    paths: Sequence[str]
    _rows: dict[str, list[Row]] = field(default_factory=lambda: {RUNS: [], FLOWS: [], REQUIREMENTS: []})

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self._rows[RUNS])

    @property
    def rows(self) -> int:
        """Number of rows in all tables."""
        return sum(len(rows) for rows in self._rows.values())

    def add(self, outcome: Outcome, key: str, point: Point, replay: str) -> None:
        """Adds the rows of a run."""
        named = (key, outcome.point, *point.labels, outcome.seed)
        status = DONE if outcome.error is None else FAILED
        self._rows[RUNS].append((*named, status, outcome.error, outcome.wall_s, outcome.simulated_s, replay))
        for *values, share in outcome.flows:
            self._rows[FLOWS].append((*named, *values, *(share.get(path) for path in self.paths)))
        for row in outcome.requirements:
            self._rows[REQUIREMENTS].append((*named, *row))

    def take(self) -> dict[str, pl.DataFrame]:
        """Returns the rows as frames and empties the buffer."""
        frames = {}
        for table, rows in self._rows.items():
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.schemas[table])
            series = [
                pl.Series(name, list(column), dtype=kind)
                for (name, kind), column in zip(self.schemas[table].items(), columns, strict=True)
            ]
            frames[table] = pl.DataFrame(series)
        self._rows = {table: [] for table in self._rows}
        return frames

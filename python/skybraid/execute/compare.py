"""Compares every scheduler with every congestion control over one scenario, in one table.

    frame = compare("scenarios/remote-piloting.toml", flows=["video"])
    print(text(frame))

The algorithms are those of the registries, including registered user-defined ones.
"""

from __future__ import annotations

import io
import os
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from skybraid._core import registry
from skybraid.execute.pool import Gauge, on_all_cores
from skybraid.execute.runs import seeds_of, simulation
from skybraid.model import algorithms
from skybraid.model.errors import ResultError, ScenarioError, unknown
from skybraid.model.folder import write_whole
from skybraid.model.heavy import pl
from skybraid.model.requirements import Requirement, judge
from skybraid.model.scenario import Scenario
from skybraid.model.seeds import sampled
from skybraid.model.summary import (
    FRAMES_IN_TIME,
    PERCENTILES,
    TOTALS,
    VIDEO_COUNTS,
    VIDEO_MEASURES,
    frames_in_time,
    one_run,
    pooled,
    video_columns,
)

if TYPE_CHECKING:
    from skybraid._core import FlowStats
    from skybraid.execute.pool import Progress

PROTOCOLS = ("mptcp", "mp_dccp")
"""Protocols that are compared by default."""

SUFFIXES = (".csv", ".parquet")
"""How the name of a written table may end."""

RATE_TITLES = ("frames/s", "worst", "freezes/min")
"""Heads of what a video's screen does in time: frames shown a second, also in the worst one, and freezes a minute."""

_UNCONTROLLED = "udp"
"""The protocol without congestion control: it has one row a scheduler."""


class Combination(NamedTuple):
    """Transport of a row; `congestion` is None for a protocol without congestion control."""

    protocol: str
    scheduler: str
    congestion: str | None


class Names(TypedDict, total=False):
    """Fields of `Choice` as keyword arguments."""

    flows: Sequence[str] | None
    protocols: Sequence[str] | None
    schedulers: Sequence[str] | None
    congestion: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Choice:
    """Options to compare.

    Attributes:
        flows: flows whose transport is replaced in these three keys; by default all flows with a transport. Other flows
            are not changed.
        protocols: names of protocols; by default `PROTOCOLS` and the protocol of the named flows.
        schedulers: names of schedulers; all by default.
        congestion: names of congestion controls; all by default.
    """

    flows: Sequence[str] | None = None
    protocols: Sequence[str] | None = None
    schedulers: Sequence[str] | None = None
    congestion: Sequence[str] | None = None

    def combinations(self, own: Sequence[str] = ()) -> list[Combination]:
        """Returns all combinations.

        Args:
            own: protocols of the flows, which are compared too unless protocols were named.

        Raises:
            ScenarioError: a name is unknown.
        """
        schedulers, congestion = _names("schedulers", self.schedulers), _names("congestion", self.congestion)
        protocols = self.protocols or list(dict.fromkeys((*PROTOCOLS, *own)))
        return list(_combinations(_names("protocols", protocols), schedulers, congestion))


@dataclass(frozen=True, slots=True)
class Flown:
    """Runs of all combinations.

    Attributes:
        frame: one row for each combination, seed and flow.
        requirements: requirements of each combination, judged over all seeds.
        replaced: flows whose transport was replaced; their requirements come first.
        left_out: sentences on the combinations that cannot be run.
    """

    frame: pl.DataFrame
    requirements: dict[Combination, tuple[Requirement, ...]]
    replaced: tuple[str, ...]
    left_out: tuple[str, ...]

    def medians(self) -> dict[Combination, list[dict[str, Any]]]:
        """Returns the medians over the seeds, one row per flow; flows whose transport was replaced come first."""
        found: dict[Combination, list[dict[str, Any]]] = {}
        for row in _medians(self.frame).to_dicts():
            combination = Combination(*(row.pop(key) for key in Combination._fields))
            found.setdefault(combination, []).append(row)
        for rows in found.values():
            rows.sort(key=lambda row: not any(is_of(row["flow"], flow) for flow in self.replaced))
        return found

    def values(self, combination: Combination, flow: str, column: str) -> list[float | None]:
        """Returns a column of a flow, one value per seed; if several flows have the name, of the first."""
        rows = self.frame
        for key, name in combination._asdict().items():
            rows = rows.filter(pl.col(key).eq_missing(pl.lit(name, dtype=pl.String)))
        own = rows.filter((pl.col("flow") == flow) | pl.col("flow").str.starts_with(f"{flow}."))
        return own.unique("seed", keep="first", maintain_order=True).sort("seed")[column].to_list()


def compare(
    scenario: Scenario | str | os.PathLike[str],
    choice: Choice | None = None,
    *,
    seed: int | None = None,
    seeds: Iterable[int] | str | None = None,
    progress: Progress | None = None,
    **names: Unpack[Names],
) -> pl.DataFrame:
    """Runs a scenario with every combination of protocol, scheduler and congestion control, on all cores.

    Args:
        scenario: a `Scenario`, or the path of its file.
        choice: options to compare.
        seed: root of the random streams of every run; by default the scenario's, unless `seeds` is given.
        seeds: several seeds, each run once with every combination; traces then begin at a place drawn from the seed,
            unless the scenario defines it.
        progress: receives the completed share.
        names: fields of `Choice`, instead of `choice`.

    Returns:
        One row for each combination, seed and flow, with the columns `protocol`, `scheduler`, `congestion`, `seed`,
        `flow`; `deadline_ms` and `within_deadline`, the share (0 to 1) of the messages that met it, or that arrived at
        all if the flow has no deadline; `goodput_bps`; `delay_p50_ms` and the other percentiles of one-way delay; the
        totals of `summary.TOTALS`; if a flow is video, the columns of `summary.video_columns` and
        `summary.frames_in_time`, null for other flows; `share_PATH`, the share (0 to 1) of the flow's packets on each
        path.

    Raises:
        ScenarioError: a name is unknown, or the scenario cannot be run with a combination.
        KeyboardInterrupt: Ctrl-C.
    """
    return flown(scenario, choice or Choice(**names), seed, seeds, progress).frame


def flown(
    scenario: Scenario | str | os.PathLike[str],
    choice: Choice,
    seed: int | None,
    seeds: Iterable[int] | str | None,
    progress: Progress | None,
) -> Flown:
    """Runs all combinations and judges each over its seeds; arguments and errors of `compare`."""
    chosen = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    replaced = _flows(chosen, choice.flows)
    numbers = seeds_of(chosen, seed, seeds)
    if len(numbers) > 1:
        chosen, _ = sampled(chosen)
    tables = tomllib.loads(chosen.toml())["flow"]
    own = {str(tables[flow]["transport"]["protocol"]) for flow in choice.flows or []}
    made, left_out = _scenarios(chosen, replaced, choice, sorted(own) if len(own) == 1 else [])
    jobs = [(combination, number) for combination in made for number in numbers]
    deadlines_ms, frames_within_ms = chosen.deadlines_ms, chosen.frames_within_ms
    video = bool(chosen.videos)
    gauge = Gauge(len(jobs), chosen.duration_s)
    judging = _Judging(chosen, replaced, len(numbers))

    def one(job: tuple[Combination, int]) -> list[dict[str, Any]]:
        gauge.raise_if_stopped()
        combination, number = job
        native, _ = simulation(made[combination]).make(number, [], gauge.reporter(job), None, None)
        judging.add(combination, number, {stats.flow: stats for stats in native.group_stats()})
        key = {**combination._asdict(), "seed": number}
        return [
            key
            | _row(stats, deadlines_ms.get(stats.group))
            | (video_columns(stats.video()) | frames_in_time(stats, frames_within_ms.get(stats.group)) if video else {})
            | {f"share_{path}": stats.share.get(path) for path in chosen.paths}
            for stats in native.flow_stats()
        ]

    rows = [row for rows in on_all_cores(one, jobs, gauge, progress) for row in rows]
    # A column without a single value has a type too.
    real = ["deadline_ms", "within_deadline", *(f"delay_{name}_ms" for name in PERCENTILES)]
    real += [f"share_{path}" for path in chosen.paths]
    types: dict[str, type[pl.DataType]] = {"congestion": pl.String, "seed": pl.UInt64} | dict.fromkeys(real, pl.Float64)
    if video:
        types |= dict.fromkeys((*VIDEO_MEASURES, *FRAMES_IN_TIME), pl.Float64)
        types |= dict.fromkeys((*VIDEO_COUNTS, "frames_met", "frames_due"), pl.UInt64)
    frame = pl.DataFrame(rows, infer_schema_length=None, schema_overrides=types)
    return Flown(frame, judging.requirements, tuple(replaced), left_out)


def _scenarios(
    scenario: Scenario, flows: Sequence[str], choice: Choice, own: Sequence[str]
) -> tuple[dict[Combination, Scenario], tuple[str, ...]]:
    """Returns the scenario with each combination, and sentences on combinations that cannot be run.

    Raises:
        ScenarioError: a combination that the user named cannot be run.
    """
    made: dict[Combination, Scenario] = {}
    refused: dict[str, list[str]] = {}
    first: ScenarioError | None = None
    for combination in choice.combinations(own):
        try:
            made[combination] = _with(scenario, flows, combination)
        except ScenarioError as error:
            if choice.schedulers is not None and choice.congestion is not None:
                raise
            first = first or error
            why = str(error).rpartition(": ")[2]
            refused.setdefault(why, []).append(f"{combination.protocol} {combination.scheduler}")
    if first is not None and not made:
        raise first
    return made, tuple(f"{', '.join(dict.fromkeys(names))}: left out: {why}" for why, names in refused.items())


class _Judging:
    """Judges a combination once all its seeds have been run, and drops its statistics."""

    def __init__(self, scenario: Scenario, replaced: Sequence[str], seeds: int) -> None:
        self._wanted = sorted(scenario.requirements, key=lambda one: one["flow"] not in replaced)
        self._links = scenario.native.known_links()
        self._seeds = seeds
        self._open: dict[Combination, dict[int, dict[str, FlowStats]]] = {}
        self._lock = threading.Lock()
        self.requirements: dict[Combination, tuple[Requirement, ...]] = {}

    def add(self, combination: Combination, seed: int, stats: dict[str, FlowStats]) -> None:
        """Adds a run."""
        with self._lock:
            runs = self._open.setdefault(combination, {})
            runs[seed] = stats
            if len(runs) < self._seeds:
                return
            del self._open[combination]
        found = []
        for wanted in self._wanted:
            own = [run[wanted["flow"]] for run in runs.values()]
            found.append(judge(wanted, own, pooled(own), self._links, list(runs)))
        self.requirements[combination] = tuple(found)


def _medians(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the medians over the seeds, one row for each combination and flow."""
    keys = [*Combination._fields, "flow"]
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric() and name != "seed"]
    return frame.group_by(keys, maintain_order=True).agg(pl.col(numbers).median())


def text(frame: pl.DataFrame) -> str:
    """Formats the result of `compare` as a table: one line per combination, with medians over several seeds.

    Columns of a flow: share of messages within the deadline (or delivered, if it has none), median and 99th percentile
    of the one-way delay, goodput, and the share of its packets on each path but the last. Columns of a video describe
    frames instead of messages: share shown undamaged in time, latency from the camera to the screen, frames per second
    on average and in the worst second, and freezes per minute.
    """
    keys = list(Combination._fields)
    medians = _medians(frame)
    shares = [name for name in frame.columns if name.startswith("share_")][:-1]
    flows = {str(row["flow"]): titles_of(row, shares) for row in medians.unique("flow", maintain_order=True).to_dicts()}
    lines = [keys + [title for titles in flows.values() for title in titles]]
    for _, rows in groupby(medians.to_dicts(), key=lambda row: [row[key] for key in keys]):
        of_flows = list(rows)
        lines.append(
            [of_flows[0][key] or "–" for key in keys] + [cell for row in of_flows for cell in cells_of(row, shares)]
        )
    return aligned(lines, len(keys), {name: len(titles) for name, titles in flows.items()})


def write(frame: pl.DataFrame, path: Path) -> None:
    """Writes the result of `compare` as CSV or Parquet, by the file's suffix; replaces an earlier file.

    Raises:
        ResultError: the suffix is unknown, or the file cannot be written.
    """
    check_name(path)
    file = io.BytesIO()
    if path.suffix == ".csv":
        frame.write_csv(file)
    else:
        frame.write_parquet(file)
    write_whole(path, file.getvalue())


def check_name(path: Path) -> None:
    """Raises if `write` cannot write the file.

    Raises:
        ResultError: the file's suffix is not in `SUFFIXES`.
    """
    if path.suffix not in SUFFIXES:
        raise ResultError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}")


def _flows(scenario: Scenario, wanted: Sequence[str] | None) -> list[str]:
    for name in wanted or []:
        if name not in scenario.flows:
            raise ScenarioError(unknown("flow", name, scenario.flows))
    tables = tomllib.loads(scenario.toml())["flow"]
    return [name for name in scenario.flows if (name in wanted if wanted else "with" not in tables[name])]


def is_of(name: str, flow: str) -> bool:
    """Whether a row's flow is `flow`, or a member of this group."""
    return name == flow or name.startswith(f"{flow}.")


def _names(kind: str, wanted: Sequence[str] | None) -> list[str]:
    known = [str(entry["name"]) for entry in (*registry(kind), *algorithms.entries(kind))]
    for name in wanted or []:
        if name not in known:
            raise ScenarioError(unknown(kind, name, known, several=True))
    return list(dict.fromkeys(wanted)) if wanted else known


def _combinations(
    protocols: Sequence[str], schedulers: Sequence[str], congestion: Sequence[str]
) -> Iterator[Combination]:
    for protocol, scheduler in product(protocols, schedulers):
        for control in [None] if protocol == _UNCONTROLLED else congestion:
            yield Combination(protocol, scheduler, control)


def _with(scenario: Scenario, flows: Sequence[str], combination: Combination) -> Scenario:
    values = {key: name for key, name in combination._asdict().items() if name is not None}
    return scenario.with_all({f"flow.{flow}.transport.{key}": name for flow in flows for key, name in values.items()})


def _row(stats: FlowStats, deadline_ms: float | None) -> dict[str, Any]:
    met, trials = stats.met(deadline_ms)
    flow = one_run(stats)
    return (
        {
            "flow": stats.flow,
            "deadline_ms": deadline_ms,
            "within_deadline": met / trials if trials else None,
            "goodput_bps": flow.goodput_bps,
        }
        | {f"delay_{name}_ms": delay_ms for name, delay_ms in flow.delay_ms.items()}
        | {total: getattr(flow, total) for total in TOTALS}
    )


def titles_of(row: Mapping[str, Any], shares: Sequence[str]) -> list[str]:
    """Returns the column titles of `cells_of`."""
    on_paths = ["Mbit/s", *(f"on {name.removeprefix('share_')}" for name in shares)]
    if row.get("frames") is not None:
        return [frames_title(row["frames_within_ms"]), "p50 ms", "p99 ms", *RATE_TITLES, *on_paths]
    within = "arrived" if row["deadline_ms"] is None else f"in {row['deadline_ms']:g} ms"
    return [within, "p50 ms", "p99 ms", *on_paths]


def frames_title(within_ms: float | None) -> str:
    """Returns the column title of the share of frames shown undamaged within `within_ms`, or at all if None."""
    return "undamaged" if within_ms is None else f"frames in {within_ms:g} ms"


def rate_cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the cells of the columns `RATE_TITLES`."""
    return [
        _cell(row["frame_rate"], 1, 2),
        _cell(row["worst_frame_rate"], 1, 1),
        _cell(row["freezes_per_minute"], 1, 2),
    ]


def cells_of(row: Mapping[str, Any], shares: Sequence[str]) -> list[str]:
    """Returns the cells of a flow: share in time, delays, rate and shares of the paths."""
    video = row.get("frames") is not None
    share, delay = ("frames_in_time", "frame_latency") if video else ("within_deadline", "delay")
    return [
        _cell(row[share], 100, 3, " %"),
        _cell(row[f"{delay}_p50_ms"], 1, 1),
        _cell(row[f"{delay}_p99_ms"], 1, 1),
        *(rate_cells(row) if video else []),
        _cell(row["goodput_bps"], 1e-6, 3),
        *(_cell(row[share], 100, 1, " %") for share in shares),
    ]


def _cell(value: float | None, scale: float, digits: int, unit: str = "") -> str:
    return "–" if value is None else f"{value * scale:.{digits}f}{unit}"


def name_of_equals(names: Sequence[str]) -> str:
    """Returns one name for options with equal results: both of two, else the first and the number of others."""
    if len(names) <= 2:
        return " = ".join(names)
    return f"{names[0]} and {len(names) - 1} that did the same"


def aligned(lines: list[list[str]], names: int, groups: Mapping[str, int], shared: int | None = None) -> str:
    """Aligns cells in columns: names to the left, numbers to the right.

    Args:
        lines: lines of equal length, the titles first.
        names: number of columns with names.
        groups: titles above groups of columns, each with its number of columns; the first group follows the names.
        shared: number of leading columns that are equal within a block of lines; by default all names but one.
    """
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def joined(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if column < names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    above, column = " " * (sum(widths[:names]) + 2 * names), names
    for title, columns in groups.items():
        above += f" {title} ".center(sum(widths[column : column + columns]) + 2 * (columns - 1), "─") + "  "
        column += columns
    together = names - 1 if shared is None else shared
    parts = ["\n".join(map(joined, part)) for _, part in groupby(lines[1:], key=lambda line: line[:together])]
    return above.rstrip() + "\n" + joined(lines[0]) + "\n" + "\n\n".join(parts)

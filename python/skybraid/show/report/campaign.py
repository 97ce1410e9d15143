"""Report of a campaign: points that meet the requirements, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from skybraid.model.formatting import count
from skybraid.model.provenance import seeds_text
from skybraid.model.statistics import Verdict
from skybraid.show.plots.runs import Runs, metric, short
from skybraid.show.report import comparison
from skybraid.show.report.charts import Charts
from skybraid.show.report.page import Cell, Table, fragment, page
from skybraid.show.report.points import Judged, Wanted, judged
from skybraid.show.report.ranking import Column, Entry, Estimate, Ranking, ranked

if TYPE_CHECKING:
    from skybraid.execute.campaign import Campaign

MAX_ROWS = 5000
"""Maximum rows of the page's table of points; the dataset holds all."""

MAX_FAILED = 200
"""Maximum number of failed runs listed."""

_COLUMNS = (
    "within_deadline",
    "goodput_bps",
    "delay_p50_ms",
    "delay_p99_ms",
    "delay_p99.9_ms",
    *comparison.VIDEO_COLUMNS,
)


@dataclass(frozen=True, slots=True)
class CampaignData:
    """Data of a campaign's report.

    Attributes:
        runs: flows of all runs.
        points: one row per point: `point`, the columns of the axes, `done`, `failed`.
        columns: columns of the axes.
        replays: command that repeats the first run, by point.
        seeds: seeds by point.
        judged: verdicts on each requirement at each point.
    """

    runs: Runs
    points: list[dict[str, object]]
    columns: tuple[str, ...]
    replays: dict[int, str]
    seeds: dict[int, list[int]]
    judged: list[Judged]

    @property
    def wanted(self) -> list[Wanted]:
        """Returns the requirements, in the order of their flows."""
        return sorted(
            {one.wanted for one in self.judged}, key=lambda wanted: (self.runs.flows.index(wanted.flow), wanted)
        )

    def label(self, point: int) -> str:
        """Returns the label of a point."""
        names = short(self.columns)
        return ", ".join(f"{names[column]} {self.points[point][column]}" for column in self.columns) or "the scenario"

    def meeting(self) -> list[int]:
        """Returns the points that meet every requirement without a failed run."""
        of_point: dict[int, list[Verdict]] = {}
        for one in self.judged:
            of_point.setdefault(one.point, []).append(one.verdict)
        return [
            point
            for point, verdicts in of_point.items()
            if all(verdict is Verdict.MET for verdict in verdicts) and not self.points[point]["failed"]
        ]


def campaign_html(campaign: Campaign) -> str:
    """Renders the report of a campaign as HTML."""
    data = read(campaign)
    done = campaign.scan("runs").select("point", "seed", "wall_s", "simulated_s", "status").collect()
    failed = campaign.failed()
    charts = Charts()
    meeting = data.meeting()
    names = short(data.columns)
    return page(
        "campaign.html.j2",
        charts,
        campaign=campaign,
        seen=data,
        headline=headline(data, meeting),
        verdict=verdict(data, meeting),
        runs=done.height,
        failed=failed.height,
        simulated_s=float(done["simulated_s"].sum()),
        wall_s=float(done["wall_s"].sum()),
        axes=[(names[column], column, _distinct(data, column)) for column in data.columns],
        ranking=ranking(data),
        heat=comparison.heat_maps(data.runs, charts),
        tradeoffs=comparison.tradeoffs(data.runs, charts),
        table=table(data),
        max_rows=MAX_ROWS,
        failures=failures(data, failed),
        max_failed=MAX_FAILED,
    )


def ranking_so_far(campaign: Campaign) -> str:
    """Renders the ranking of a campaign's points by the finished runs, as an HTML fragment; empty without runs."""
    data = read(campaign)
    if not data.judged:
        return ""
    runs = sum(len(seeds) for seeds in data.seeds.values())
    return fragment("live_ranking.html.j2", ranking=ranking(data), runs=runs)


def read(campaign: Campaign) -> CampaignData:
    """Reads a campaign's tables."""
    flown = campaign.scan("runs").select("point", "seed", "replay").sort("point", "seed").collect()
    replays: dict[int, str] = {}
    seeds: dict[int, list[int]] = {}
    for point, seed, replay in flown.iter_rows():
        replays.setdefault(point, str(replay))
        seeds.setdefault(point, []).append(seed)
    return CampaignData(
        Runs.of(campaign),
        campaign.points().to_dicts(),
        campaign.columns,
        replays,
        seeds,
        judged(campaign.scan("requirements").collect()),
    )


def headline(data: CampaignData, meeting: list[int]) -> str:
    """Returns the verdict in one sentence."""
    flown = len(data.replays)
    if not data.judged:
        return "The scenario states no requirement."
    if not meeting:
        undecided = len(_undecided(data))
        if undecided:
            return f"No point is shown to meet every requirement; {count(undecided)} of {count(flown)} undecided."
        return f"None of {_points(flown)} meets every requirement."
    if len(meeting) == flown:
        return "The point meets every requirement." if flown == 1 else f"All {_points(flown)} meet every requirement."
    return f"{count(len(meeting))} of {_points(flown)} {'meets' if len(meeting) == 1 else 'meet'} every requirement."


def verdict(data: CampaignData, meeting: list[int]) -> Verdict | None:
    """Returns the verdict: met if some point meets all requirements, not met if every point fails one."""
    if not data.judged:
        return None
    if meeting:
        return Verdict.MET
    return Verdict.INCONCLUSIVE if _undecided(data) else Verdict.NOT_MET


def _undecided(data: CampaignData) -> set[int]:
    """Returns the points that fail no requirement; for campaigns in which no point meets all of them."""
    failing = {one.point for one in data.judged if one.verdict is Verdict.NOT_MET}
    return {one.point for one in data.judged} - failing


def ranking(data: CampaignData) -> Ranking:
    """Ranks the points: those that meet most requirements first, then by their results."""
    columns = [Column(wanted.words, _scale(wanted), _target(wanted)) for wanted in data.wanted]
    found: dict[int, dict[Wanted, Judged]] = {}
    for one in data.judged:
        found.setdefault(one.point, {})[one.wanted] = one
    names = short(data.columns)
    entries = [
        Entry(
            {names[column]: str(data.points[point][column]) for column in data.columns},
            [_shown(wanted, own.get(wanted)) for wanted in data.wanted],
            data.replays.get(point, ""),
            own[data.wanted[0]].seeds if data.wanted[0] in own else {},
        )
        for point, own in found.items()
    ]
    return ranked("point", columns, entries)


def _scale(wanted: Wanted) -> str:
    if wanted.metric in ("share", "frames", "ssim"):
        return "nines"
    return "log" if wanted.metric == "percentile" else "linear"


def _target(wanted: Wanted) -> float:
    return wanted.deadline_ms if wanted.metric == "percentile" else wanted.target


def _shown(wanted: Wanted, result: Judged | None) -> Estimate:
    if result is None:
        return Estimate("–", None, None, None, float("-inf"))
    low, high = result.interval or (None, None)
    return Estimate(result.words, result.estimate, low, high, wanted.goodness(result.estimate), result.verdict)


def table(data: CampaignData) -> Table:
    """Returns a table with one row per point: axes, seeds, verdicts, and the command that repeats its first run."""
    flows, names = data.runs.flows, short(data.columns)
    numbers = [name for name in _COLUMNS if data.runs.frame[name].count()]
    medians = data.runs.frame.group_by("point", "flow").agg(pl.col(numbers).median())
    values = {(row["point"], row["flow"]): row for row in medians.to_dicts()}
    meeting = set(data.meeting())
    verdicts: dict[int, dict[Wanted, Judged]] = {}
    for one in data.judged:
        verdicts.setdefault(one.point, {})[one.wanted] = one
    heads = ["point", *(names[column] for column in data.columns), "seeds", "failed"]
    heads += ["meets all"] if data.judged else []
    heads += [wanted.words for wanted in data.wanted]
    # Video metrics are shown for videos only.
    judged = [
        (flow, name)
        for flow in flows
        for name in numbers
        if name not in comparison.VIDEO_COLUMNS or data.runs.of_flow(flow)[name].count()
    ]
    heads += [f"{flow}: {metric(name).label}" for flow, name in judged]
    rows = []
    for point, row in enumerate(data.points[:MAX_ROWS]):
        cells = [Cell.number(point, str(point))]
        cells += [_label(row[column]) for column in data.columns]
        own = data.seeds.get(point, [])
        cells += [
            Cell(seeds_text(own) if own else "–", len(own)),
            Cell.number(_integer(row["failed"]), str(row["failed"])),
        ]
        if data.judged:
            cells.append(Cell("yes" if point in meeting else "no"))
        for wanted in data.wanted:
            found = verdicts.get(point, {}).get(wanted)
            if found is None:
                cells.append(Cell("–"))
            else:
                cells.append(Cell(f"{found.verdict}: {wanted.shown(found.estimate)}", wanted.goodness(found.estimate)))
        for flow, name in judged:
            value = values.get((point, flow), {}).get(name)
            cells.append(Cell.number(None if value is None else value * metric(name).scale))
        rows.append((cells, data.replays.get(point, "")))
    return Table("points", heads, rows, replay=True)


def failures(data: CampaignData, failed: pl.DataFrame) -> Table:
    """Returns a table of failed runs with their errors and the commands that repeat them."""
    rows = [
        ([Cell(data.label(row["point"])), Cell.number(row["seed"], str(row["seed"])), Cell(_last_line(row["error"]))],
         str(row["replay"]))
        for row in failed.head(MAX_FAILED).to_dicts()
    ]  # fmt: skip
    return Table("failed", ["point", "seed", "error"], rows, replay=True)


def _distinct(data: CampaignData, column: str) -> str:
    values = list(dict.fromkeys(str(row[column]) for row in data.points))
    shown = ", ".join(values[:12])
    return f"{shown} and {count(len(values) - 12)} more" if len(values) > 12 else shown


def _label(value: object) -> Cell:
    return Cell(f"{value:g}", value) if isinstance(value, float) else Cell(str(value))


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _last_line(text: object) -> str:
    return str(text or "").strip().splitlines()[-1] if text else ""


def _points(number: int) -> str:
    return "1 point" if number == 1 else f"{count(number)} points"

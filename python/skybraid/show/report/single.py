"""Report of one result: texts and tables next to its charts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from skybraid.model.formatting import count, percent, readable, span, times
from skybraid.model.misses import refusals
from skybraid.model.provenance import seeds_text
from skybraid.model.requirements import headline
from skybraid.model.summary import PERCENTILES
from skybraid.show.explain import explain
from skybraid.show.report import flight, route, video
from skybraid.show.report.cards import cards
from skybraid.show.report.charts import Charts, Clock
from skybraid.show.report.overview import overview
from skybraid.show.report.page import Cell, Table, fragment, page
from skybraid.show.report.pictures import pictures
from skybraid.show.series import duration_s, first_seed, outages

if TYPE_CHECKING:
    from skybraid.model.results import Results
    from skybraid.model.summary import FlowSummary
    from skybraid.show.explain import Budget, FlowExplained

CAUSES = ("queue", "random", "burst", "handover", "outage", "mtu")
"""Causes of lost packets, in the order of the tables."""

_OF_VIDEO = ("frames", "frame_rate", "worst_frame_rate", "freezes", "ssim")
"""Metrics of requirements on a video."""

MAX_ROWS = 5000
"""Maximum rows of the table of runs and flows; the Parquet files have all."""


@dataclass(frozen=True, slots=True)
class PathStory:
    """Summary of one direction of a path in the first run.

    Attributes:
        path: name of the path.
        direction: "uplink" (from the vehicle) or "downlink".
        rate_bps: mean rate of the link in bit/s.
        delay_ms: median one-way delay of the link in ms, without queueing.
        delay_p95_ms: 95th percentile of that delay in ms.
        outages: number of times the link was down, at the 100 ms resolution of the samples.
        longest_outage_s: longest of these in s.
        down: share of the time down, 0 to 1.
        halted: share of the samples with the link up but without service, 0 to 1.
    """

    path: str
    direction: str
    rate_bps: float
    delay_ms: float
    delay_p95_ms: float
    outages: int
    longest_outage_s: float
    down: float
    halted: float


def single_html(results: Results, budget: Budget | None = None) -> str:
    """Renders the report of one result as HTML.

    Args:
        results: result.
        budget: budget of runs that test remedies; without it the cards list untested changes.
    """
    charts = Charts()
    clock = Clock(duration_s(results))
    seen = overview(results, charts, clock)
    explained = explained_flows(results, budget, seen.medians)
    videos = video.section(results, charts, clock)
    watched = pictures(results, charts)
    over_time = flight.over_time(results, charts, clock)
    tail = flight.tail(results, charts)
    seeds = flight.seeds(results, charts)
    return page(
        "report.html.j2",
        charts,
        results=results,
        emulation=results.flights[0].emulation,
        doubts=doubts(results),
        notes=(results.flights[0].emulation or {}).get("notes", ()),
        headline=headline(results.requirements) if results.flows else "Programs over the links.",
        cards=cards(results, explained),
        overview=seen,
        percentiles=list(PERCENTILES),
        causes=CAUSES,
        links=results.links(),
        stories=path_stories(results),
        gaps=longest_gaps(results),
        waits={name: waits(flow) for name, flow in results.flows.items()},
        findings=findings(explained),
        over_time=over_time,
        videos=videos,
        videos_matter=any(one.metric in _OF_VIDEO for one in results.requirements),
        pictures=watched,
        tail=tail,
        seeds=seeds,
        table=table(results),
        route=route.section(results, charts),
        max_rows=MAX_ROWS,
    )


def verdicts_so_far(results: Results) -> str:
    """Renders the verdicts on the finished runs, as an HTML fragment."""
    shown = [replace(card, changes=[]) for card in cards(results, ())]
    return fragment("live_verdicts.html.j2", cards=shown, runs=len(results.flights))


def explained_flows(
    results: Results, budget: Budget | None = None, medians: pl.DataFrame | None = None
) -> list[FlowExplained]:
    """Explains the flows, as `skybraid explain` does.

    Networks, whose flows have no named paths, and programs have no explanation.
    """
    if not results.flows or "\n[path" not in f"\n{results.scenario}":
        return []
    return explain(results, budget=budget, medians=medians)


def findings(explained: list[FlowExplained]) -> dict[str, list[str]]:
    """Returns the bottlenecks and unused paths in words."""
    return {one.flow: [finding for path in one.paths for finding in path.findings] + one.findings for one in explained}


def table(results: Results) -> Table:
    """Returns a table with one row per flow and run, with the command that repeats the run."""
    paths = results.paths
    heads = ["flow", "seed", "sent", "arrived", "lost", "goodput, Mbit/s"]
    heads += [f"delay {name}, ms" for name in PERCENTILES]
    heads += [f"on {path}, %" for path in paths]
    rows = []
    for flown in results.flights:
        for name, flow in flown.flows.items():
            cells = [
                Cell(name),
                Cell.number(flown.seed, str(flown.seed)),
                *(Cell.number(number, count(number)) for number in (flow.sent, flow.delivered, flow.lost)),
                Cell.number(flow.goodput_bps, readable(flow.goodput_bps / 1e6)),
                *(Cell.number(flow.delay_ms[percentile]) for percentile in PERCENTILES),
                *(Cell.number(flow.share.get(path), percent(flow.share.get(path, 0.0))) for path in paths),
            ]
            rows.append((cells, replay(results, flown.seed)))
    return Table("flights", heads, rows[:MAX_ROWS], replay=True)


def replay(results: Results, seed: int) -> str:
    """Returns the command that repeats one run of a result."""
    command = str(results.provenance["replay"])
    several = f"--seeds {seeds_text(results.seeds)}"
    return command.replace(several, f"--seed {seed}") if len(results.seeds) > 1 else command


def doubts(results: Results) -> str:
    """Returns reasons to doubt an emulation's numbers; empty if there are none."""
    return str((results.flights[0].emulation or {}).get("doubtful") or "")


def path_stories(results: Results) -> list[PathStory]:
    """Returns the summary of each direction of each path; empty without the table `links`."""
    if "links" not in list(results.tables):
        return []
    links = first_seed(results.tables.scan("links"))
    stories = []
    for path in results.paths:
        for direction in ("uplink", "downlink"):
            one = links.filter((pl.col("path") == path) & (pl.col("direction") == direction))
            row = one.select(
                pl.col("rate_bps").mean(),
                (pl.col("delay_ns").median() / 1e6).alias("delay_ms"),
                (pl.col("delay_ns").quantile(0.95, "nearest") / 1e6).alias("delay_p95_ms"),
                (~pl.col("up")).mean().alias("down"),
                (pl.col("up") & (pl.col("rate_bps") == 0)).mean().alias("halted"),
            ).collect(engine="streaming")
            if row["down"][0] is None:
                continue
            spans = outages(one)
            stories.append(
                PathStory(
                    path,
                    direction,
                    row["rate_bps"][0],
                    row["delay_ms"][0],
                    row["delay_p95_ms"][0],
                    len(spans),
                    max((end_s - begin_s for begin_s, end_s in spans), default=0.0),
                    row["down"][0],
                    row["halted"][0],
                )
            )
    return stories


def longest_gaps(results: Results) -> dict[str, float]:
    """Returns the longest gap in s between two deliveries of each flow; empty without the table `messages`."""
    if "messages" not in list(results.tables):
        return {}
    arrivals = first_seed(results.tables.scan("messages")).filter(pl.col("delivered_ns").is_not_null())
    gaps: dict[str, float] = {}
    for name in results.flows:
        times_ns = arrivals.filter(pl.col("flow") == name).select("delivered_ns").collect(engine="streaming")
        longest_ns = times_ns.to_series().sort().diff().max()
        if isinstance(longest_ns, int):
            gaps[name] = longest_ns * 1e-9
    return gaps


def waits(flow: FlowSummary) -> list[str]:
    """Describes what held messages of a flow back.

    These are head-of-line blocking, the peer's receive window, chunks sent again on another path, and refused messages.
    """
    lines = []
    if flow.held_messages:
        lines.append(
            f"{percent(flow.held_messages / max(flow.delivered, 1))} of the delivered messages waited for an "
            f"earlier missing one, {span(flow.held_total_s / flow.held_messages)} on average and "
            f"{span(flow.held_longest_s)} at most"
        )
    if flow.holding_s > 0:
        lines.append(
            f"the receiver held data of one path for missing data of another for {span(flow.holding_s)} in total"
        )
    if flow.window_blocked_times:
        lines.append(
            f"the peer's receive window blocked data although a path had room {times(flow.window_blocked_times)}, "
            f"{span(flow.window_blocked_s)} in total"
        )
    if flow.opportunistic_retransmissions:
        lines.append(f"{_chunks(flow.opportunistic_retransmissions)} retransmitted on a faster path because of that")
    if flow.reinjections:
        lines.append(f"{_chunks(flow.reinjections)} retransmitted on another path because their own failed")
    if flow.refused:
        lines.append(f"{refusals(flow)}, because the send buffer was full or the deadline passed")
    return lines


def _chunks(number: int) -> str:
    return "1 chunk of data was" if number == 1 else f"{count(number)} chunks of data were"

"""Charts of one run: shares of paths, rates, delays, and the state of the paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from skybraid.model.errors import MissingTableError
from skybraid.model.formatting import milliseconds, percent
from skybraid.model.statistics import Verdict
from skybraid.show.palette import DOWN, HALTED, LINE_STYLES, SECOND_INK, flow_colour, marker, path_colour
from skybraid.show.report.charts import (
    DASHES,
    SHAPES,
    Charts,
    Clock,
    band,
    chart,
    dots,
    from_zero,
    glyph,
    hover,
    legend,
    nines,
    shade,
    source,
    stacked_shares,
    steps,
)
from skybraid.show.report.models import Figure, Model, Renderer, Source
from skybraid.show.series import (
    DIRECTIONS,
    bin_ns,
    binned,
    duration_s,
    envelope,
    first_seed,
    halts,
    not_arrived,
    outages,
    sample_step_s,
    wanted,
)

if TYPE_CHECKING:
    from skybraid.model.results import Results

MAX_FLOWS, MAX_PATHS = 8, 6
"""Maximum number of flows and paths drawn over time; tables have all."""

_POINTS, _MIN_POINTS, _MAX_POINTS = 8000, 240, 1000
_ENVELOPE = "Lines are means; bands reach from minimum to maximum."


@dataclass(frozen=True, slots=True)
class Drawing:
    """Chart on the page: its name, title and description, or the reason why it is missing."""

    title: str
    caption: str
    chart: str = ""
    missing: str = ""


def over_time(results: Results, charts: Charts, clock: Clock) -> list[Drawing]:
    """Draws the first run over a shared time axis."""
    drawings: list[Drawing] = []
    for needs, draw, title in (
        ("messages", _messages, "Goodput"),
        ("links", _links, "Links"),
        ("subflows", _subflows, "Windows"),
    ):
        if not results.flows and needs != "links":
            continue
        try:
            drawings += draw(results, charts, clock)
        except MissingTableError as error:
            drawings.append(Drawing(title, "", missing=str(error)))
    return drawings


def _messages(results: Results, charts: Charts, clock: Clock) -> list[Drawing]:
    width_ns = bin_ns(results, _MAX_POINTS // 2)
    messages = first_seed(results.tables.scan("messages"))
    arrived = messages.select("flow", "bytes", "delivered_ns").filter(pl.col("delivered_ns").is_not_null())
    carried = (
        binned(arrived, "delivered_ns", width_ns)
        .group_by("flow", "bin")
        .agg(pl.col("bytes").cast(pl.Int64).sum())
        .collect(engine="streaming")
        .with_columns(pl.col("flow").cast(pl.String))
    )
    names = drawn_flows(results, carried["flow"])
    every = pl.DataFrame({"bin": pl.int_range(0, -(-int(duration_s(results) * 1e9) // width_ns), eager=True)})
    goodput = charts.add("goodput", _goodput(results, clock, names, carried, every, width_ns))
    caption = "Application data that arrived. A dashed line marks a required goodput, if any."
    return [Drawing("Goodput", caption, goodput)]


def flow_names(results: Results) -> list[str]:
    """Returns the names of flows and of members of groups."""
    members = [name for flown in results.flights[:1] for name in flown.members]
    return [*results.flows, *members]


def drawn_flows(results: Results, found: Iterable[str]) -> list[str]:
    """Returns the flows to draw, out of those found in a table."""
    seen = set(found)
    return [name for name in flow_names(results) if name in seen][:MAX_FLOWS]


def shares(results: Results, clock: Clock, carried: pl.DataFrame, width_ns: int) -> Figure:
    """Draws the share of a flow's messages delivered first by each path.

    Args:
        results: result with the paths.
        clock: time axis.
        carried: number of the flow's messages (`len`) that each `path` delivered first in each `bin`.
        width_ns: width of a bin in ns.
    """
    drawn = chart(y_label="messages, %", clock=clock, height=130, y_range=(0, 100))
    bins = -(-round(duration_s(results) * 1e9) // width_ns)
    numbers = np.zeros((len(results.paths), bins))
    for row, path in enumerate(results.paths):
        own = carried.filter((pl.col("path") == path) & (pl.col("bin") < bins))
        numbers[row, own["bin"].to_numpy()] = own["len"].to_numpy()
    percents = 100 * numbers / np.maximum(numbers.sum(axis=0), 1)
    # The last bin needs an end point.
    times_s = np.append(np.arange(bins) * (width_ns * 1e-9), duration_s(results))
    stacked_shares(drawn, results.paths, times_s, np.hstack([percents, percents[:, -1:]]), "after")
    return drawn


def _goodput(
    results: Results, clock: Clock, names: list[str], carried: pl.DataFrame, width: pl.DataFrame, width_ns: int
) -> Figure:
    drawn = chart(y_label="goodput, Mbit/s", clock=clock)
    from_zero(drawn)
    rates = carried.group_by("flow", "bin").agg((pl.col("bytes").sum() * 8 / (width_ns * 1e-9) / 1e6).alias("rate"))
    # An incomplete last bin is too short for a rate.
    whole = width.filter((pl.col("bin") + 1) * width_ns <= round(duration_s(results) * 1e9))
    entries: list[tuple[str, list[Any]]] = []
    lines: list[Any] = []
    for index, name in enumerate(names):
        series = whole.join(rates.filter(pl.col("flow") == name), on="bin", how="left").select(
            (pl.col("bin") * width_ns * 1e-9).alias("time_s"), pl.col("rate").fill_null(0.0)
        )
        shown, line = steps(drawn, source(series), "time_s", "rate", flow_colour(index), name)
        lines.append(line)
        entries.append((name, [shown]))
        for requirement in results.requirements:
            if requirement.flow == name and requirement.metric == "goodput":
                drawn.add_layout(limit(requirement.target / 1e6, flow_colour(index)))
    hover(drawn, lines, [("", "$name: @rate{0.000} Mbit/s"), ("time", "@time_s{0.0} s")])
    legend(drawn, entries)
    return drawn


def limit(value: float, colour: str, dimension: Literal["width", "height"] = "width") -> Model:
    """Returns a line at a required value."""
    return Model("Span", location=value, dimension=dimension, line_color=colour, line_dash="dashed", line_width=1)


def _links(results: Results, charts: Charts, clock: Clock) -> list[Drawing]:
    links = first_seed(results.tables.scan("links")).with_columns(pl.col("path", "direction").cast(pl.String))
    paths = results.paths[:MAX_PATHS]
    each = [(path, direction) for path in paths for direction in DIRECTIONS]
    of_one = {key: links.filter((pl.col("path") == key[0]) & (pl.col("direction") == key[1])) for key in each}
    step_s = sample_step_s(of_one[each[0]]) if each else 0.1
    values = {
        "rate": pl.col("rate_bps") / 1e6,
        "load": pl.col("delivered_bytes") * 8 / step_s / 1e6,
        "delay": pl.col("delay_ns") / 1e6,
        "queue": pl.col("queue_bytes") / 1e3,
        "loss": pl.col("loss") * 100,
    }
    columns = min(_MAX_POINTS, max(_MIN_POINTS, _POINTS // (len(each) * 2 or 1)))
    links = links.filter(pl.col("path").is_in(paths))
    every = envelope(links, values, by=("path", "direction"), columns=columns)
    data = {
        key: source(
            every.filter((pl.col("path") == key[0]) & (pl.col("direction") == key[1])).drop("path", "direction")
        )
        for key in each
    }
    dark = {key: (outages(rows), halts(rows)) for key, rows in of_one.items()}
    drawings: list[Drawing] = []
    caption = (
        f"Capacity and the load that it carried. {_ENVELOPE} Shaded: down, or no service (up, but a handover, "
        "a reconfiguration or a gap of the trace stopped it; periods between two samples, which are "
        f"{milliseconds(step_s * 1000)} apart, are not seen). The same applies to every path and direction."
    )
    if len(paths) < len(results.paths):
        caption += f" The first {len(paths)} of {len(results.paths)} links are drawn."
    for number, path in enumerate(paths):
        for direction in DIRECTIONS:
            drawn = _rates(clock, data[path, direction], path_colour(number), direction, dark[path, direction])
            shown = charts.add(f"rate-{number}-{direction}", drawn)
            drawings.append(Drawing(f"{path} {direction}", "" if drawings else caption, shown))
    for metric, title, label, unit, words in (
        ("delay", "Delay of the links", "delay, ms", "ms", "One-way delay of each link, without its queue."),
        ("queue", "Queues", "queue, kB", "kB", "Bytes in the queue of each link."),
        ("loss", "Loss on the links", "loss, %", "%", "Loss probability of a packet."),
    ):
        drawn = chart(y_label=label, clock=clock)
        from_zero(drawn)
        entries: list[tuple[str, list[Any]]] = []
        lines: list[Any] = []
        for number, path in enumerate(paths):
            for direction, dash in zip(DIRECTIONS, ("solid", "dashed"), strict=True):
                parts = band(drawn, data[path, direction], metric, path_colour(number), dash=dash)
                parts[0].update(name=f"{path} {direction}")
                entries.append((f"{path} {direction}", parts))
                lines.append(parts[0])
        seen = _range_of(data.values(), metric)
        tips = [("", f"$name: @{metric}_mean{{0.[00]}} {unit}{seen}"), ("time", "@time_s{0.0} s")]
        hover(drawn, lines, tips)
        legend(drawn, entries)
        shown = charts.add(metric, drawn)
        drawings.append(Drawing(title, f"{words} {_ENVELOPE} Dashed: downlink.", shown))
    return drawings


def _range_of(sources: Iterable[Source], name: str) -> str:
    """Returns the pointer text with minimum and maximum, if every series has them."""
    whole = all(f"{name}_low" in one.data for one in sources)
    return f", @{name}_low{{0.[00]}} to @{name}_high{{0.[00]}}" if whole else ""


def _rates(
    clock: Clock,
    data: Source,
    colour: str,
    direction: str,
    dark: tuple[list[tuple[float, float]], list[tuple[float, float]]],
) -> Figure:
    drawn = chart(y_label=f"{direction}, Mbit/s", clock=clock, height=170)
    from_zero(drawn)
    area = glyph(drawn, data, "VArea", x="time_s", y1=0, y2="load_mean", fill_color=colour, fill_alpha=0.6)
    capacity = band(drawn, data, "rate", colour)
    entries = [("load", [area]), ("capacity", capacity)]
    for spans, shade_colour, words in ((dark[0], DOWN, "down"), (dark[1], HALTED, "no service")):
        if spans:
            entries.append((words, [shade(drawn, spans, shade_colour)]))
    tips = [
        ("load", f"@load_mean{{0.[000]}} Mbit/s{_range_of([data], 'load')}"),
        ("capacity", f"@rate_mean{{0.[000]}} Mbit/s{_range_of([data], 'rate')}"),
        ("time", "@time_s{0.0} s"),
    ]
    hover(drawn, [capacity[0]], tips)
    legend(drawn, entries)
    return drawn


def _subflows(results: Results, charts: Charts, clock: Clock) -> list[Drawing]:
    keys = ("flow", "side", "path", "subflow")
    subflows = first_seed(results.tables.scan("subflows")).with_columns(pl.col(keys[:3]).cast(pl.String))
    flows = subflows.select(pl.col("flow").unique()).collect(engine="streaming")["flow"]
    subflows = subflows.filter(pl.col("flow").is_in(drawn_flows(results, flows)))
    subflows = subflows.filter(pl.col("path").is_in(results.paths[:MAX_PATHS]))
    values = {"window": pl.col("cwnd_bytes") / 1e3, "rtt": pl.col("srtt_ns") / 1e6}
    each = subflows.select(keys).unique().sort(keys).collect(engine="streaming").rows()
    columns = min(_MAX_POINTS // 2, max(_MIN_POINTS, _POINTS // (len(each) or 1)))
    every = envelope(subflows, values, by=keys, columns=columns)
    drawings: list[Drawing] = []
    for flow, side in dict.fromkeys((flow, side) for flow, side, _, _ in each):
        own = [(path, subflow) for one, other, path, subflow in each if (one, other) == (flow, side)]
        own.sort(key=lambda key: results.paths.index(key[0]) if key[0] in results.paths else len(results.paths))
        rows = every.filter((pl.col("flow") == flow) & (pl.col("side") == side))
        data = {key: source(rows.filter(pl.col("path") == key[0], pl.col("subflow") == key[1])[:, 4:]) for key in own}
        for metric, title, label, unit in (
            ("window", "window", "window, kB", "kB"),
            ("rtt", "round-trip time", "smoothed RTT, ms", "ms"),
        ):
            drawn = chart(y_label=label, clock=clock)
            from_zero(drawn)
            entries: list[tuple[str, list[Any]]] = []
            lines: list[Any] = []
            for key, curve in data.items():
                path, subflow = key
                siblings = [number for one, number in own if one == path]
                place = siblings.index(subflow)
                name = path if len(siblings) == 1 else f"{path}, subflow {place + 1}"
                colour = path_colour(results.paths.index(path)) if path in results.paths else SECOND_INK
                parts = band(drawn, curve, metric, colour, dash=DASHES[LINE_STYLES[place % len(LINE_STYLES)]])
                parts[0].update(name=name)
                entries.append((name, parts))
                lines.append(parts[0])
            tips = [("", f"$name: @{metric}_mean{{0.0}} {unit}{_range_of(data.values(), metric)}")]
            hover(drawn, lines, [*tips, ("time", "@time_s{0.0} s")])
            legend(drawn, entries)
            shown = charts.add(f"{metric}-{len(drawings)}", drawn)
            drawings.append(Drawing(f"{flow}, sent by the {side}: {title}", _ENVELOPE, shown))
    return drawings


def requirement_mark(
    drawn: Figure, deadline_ms: float, missing: float, place: int, colour: str, verdict: Verdict
) -> Renderer:
    """Marks a required share within a deadline, with a line at the deadline; filled if the requirement is met."""
    drawn.add_layout(limit(deadline_ms, colour, "height"))
    data, shape = Source({"x": [deadline_ms], "y": [missing]}), SHAPES[marker(place)]
    return dots(drawn, data, "x", "y", colour=colour, shape=shape, size=10, filled=verdict is Verdict.MET)


def tail(results: Results, charts: Charts) -> Drawing | None:
    """Draws delay distributions of all flows, down to the last message."""
    curves = {name: not_arrived(results, name) for name in results.flows}
    curves = {name: curve for name, curve in curves.items() if curve[0]}
    if not curves:
        return None
    least = min(min(share for share in missing if share > 0) for _, missing in curves.values())
    lowest = 10.0 ** np.floor(np.log10(least))
    drawn = chart(
        x_label="one-way delay, ms",
        y_label="not yet arrived",
        height=360,
        logarithmic="xy",
        y_range=(lowest, 1.3),
    )
    nines(drawn, [10.0**power for power in range(int(np.log10(lowest)), 1)])
    entries: list[tuple[str, list[Any]]] = []
    lines: list[Any] = []
    places = list(results.flows)
    for name, (delays_ms, missing) in curves.items():
        index = places.index(name)
        colour = flow_colour(index)
        data = Source({"delay_ms": delays_ms, "missing": missing, "arrived": [percent(1 - share) for share in missing]})
        shown, line = steps(drawn, data, "delay_ms", "missing", colour, name)
        lines.append(line)
        entries.append((name, [shown]))
        for deadline_ms, allowed, words, verdict in wanted(results, name):
            mark = requirement_mark(drawn, deadline_ms, max(allowed, lowest), index, colour, verdict)
            entries.append((f"{name}: {words}, {verdict}", [mark]))
    hover(drawn, lines, [("", "$name: @arrived arrived within @delay_ms{0.0} ms")], mode="mouse")
    legend(drawn, entries, columns=2)
    caption = (
        "Share of each flow's messages that have not arrived after a delay. A curve ends at the share that was "
        "lost; it must pass below the marker of its requirement."
    )
    return Drawing("One-way delay", caption, charts.add("tail", drawn))


def seeds(results: Results, charts: Charts) -> Drawing | None:
    """Draws goodput against delay, one dot per flow and run, for several runs."""
    if len(results.seeds) < 2 or not results.flows:
        return None
    drawn = chart(x_label="one-way delay, p99, ms", y_label="goodput, Mbit/s", height=280, logarithmic="x")
    entries: list[tuple[str, list[Any]]] = []
    for index, name in enumerate(results.flows):
        flown = [(run.seed, run.flows[name]) for run in results.flights if name in run.flows]
        data = Source(
            {
                "delay": [float("nan") if (ms := flow.delay_ms["p99"]) is None else ms for _, flow in flown],
                "goodput": [flow.goodput_bps / 1e6 for _, flow in flown],
                "seed": [str(seed) for seed, _ in flown],
            }
        )
        colour = flow_colour(index)
        shape = SHAPES[marker(index)]
        dot = dots(drawn, data, "delay", "goodput", colour=colour, shape=shape, fill_alpha=0.5, name=name)
        entries.append((name, [dot]))
    tips = [("", "$name: seed @seed"), ("p99", "@delay{0.0} ms"), ("goodput", "@goodput{0.000} Mbit/s")]
    hover(drawn, [dot for _, (dot,) in entries], tips, mode="mouse")
    legend(drawn, entries)
    return Drawing("The flights apart", "Each flow of each flight.", charts.add("seeds", drawn))

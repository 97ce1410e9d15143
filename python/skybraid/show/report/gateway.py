"""Post-flight report of gateways' event logs: verdict, charts over time, events."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from skybraid.model.formatting import count, milliseconds, percent, size, span, times
from skybraid.show.palette import COLOURS, path_colour
from skybraid.show.report.charts import (
    Charts,
    Clock,
    band,
    chart,
    from_zero,
    glyph,
    hover,
    legend,
    source,
    stacked_shares,
)
from skybraid.show.report.flight import Drawing
from skybraid.show.report.logs import DIRECTIONS, STATES, GatewayLog
from skybraid.show.report.models import Figure, Model, Source
from skybraid.show.report.page import Cell, Table, page
from skybraid.show.series import envelope

CLASSES = ("control", "telemetry", "video", "bulk")

MAX_EVENTS = 5000
"""Maximum rows of the table of events; the log has all."""

_STATE_COLOURS = dict(zip(STATES, (COLOURS[2], COLOURS[1], COLOURS[6], COLOURS[3], COLOURS[4]), strict=True))
_WAYS = {"outgoing": "to the peer", "incoming": "from the peer"}
_DASHES = dict(zip(DIRECTIONS, ("solid", "dashed"), strict=True))
_POINTS = 800


@dataclass(frozen=True, slots=True)
class Finding:
    """Sentence of the verdict.

    Attributes:
        kind: `met`, `not-met` or `inconclusive`, which sets its colour.
        words: text of the sentence.
    """

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the report about one log.

    Attributes:
        log: event log.
        title: side and name of the gateway.
        begun: start time, as text.
        drawings: charts of the delivered traffic.
        over_time: charts of the paths, collapsed on the page.
        paths: rows of the table of paths.
        classes: rows of the table of classes.
        refused: text on refused datagrams.
    """

    log: GatewayLog
    title: str
    begun: str
    drawings: list[Drawing]
    over_time: list[Drawing]
    paths: list[list[str]]
    classes: list[list[str]]
    refused: str


def gateway_html(files: Sequence[Path]) -> str:
    """Renders the report of a flight's logs as HTML.

    Args:
        files: logs of one side or both; of a restarted gateway, all of its logs.

    Raises:
        ResultError: a file is no log.
    """
    logs = [GatewayLog.read(file) for file in files]
    begun = min(log.begun_unix for log in logs)
    offsets = [log.begun_unix - begun for log in logs]
    length_s = max(log.length_s + offset for log, offset in zip(logs, offsets, strict=True))
    charts, clock = Charts(), Clock(length_s)
    findings = verdict(logs)
    worst = "not-met" if any(one.kind == "not-met" for one in findings) else "met"
    return page(
        "gateway.html.j2",
        charts,
        title=" and ".join(dict.fromkeys(log.name for log in logs)),
        headline=headline(findings),
        verdict=worst if any(one.kind == "met" for one in findings) or worst == "not-met" else "inconclusive",
        findings=findings,
        length_s=length_s,
        sections=[
            _section(log, f"{who}: {log.name}", offset, number, charts, clock)
            for number, (log, who, offset) in enumerate(zip(logs, _names(logs), offsets, strict=True))
        ],
        notes=[(log.file.name, note) for log in logs for note in log.notes],
        table=events(logs, offsets),
        max_events=MAX_EVENTS,
        happened=sum(len(log.events) for log in logs),
        files=[str(log.file) for log in logs],
    )


def headline(findings: Sequence[Finding]) -> str:
    """Returns the verdict in one line."""
    bad = sum(one.kind == "not-met" for one in findings)
    if bad:
        return f"{count(bad)} of {count(len(findings))} findings need attention."
    if not any(one.kind == "met" for one in findings):
        return "The log says too little for a verdict."
    return "The link was up throughout, and control was delivered in time."


def verdict(logs: Sequence[GatewayLog]) -> list[Finding]:
    """Returns the findings of the logs, gravest first."""
    found = [one for log, who in zip(logs, _names(logs), strict=True) for one in _log_findings(log, who)]
    found += _flight_findings(logs)
    order = ("not-met", "inconclusive", "met")
    return sorted(found, key=lambda one: order.index(one.kind))


def _names(logs: Sequence[GatewayLog]) -> list[str]:
    """Names the side of each log, with the number of the start if there are several."""
    sides = [log.side.capitalize() for log in logs]
    order = sorted(range(len(logs)), key=lambda at: logs[at].begun_unix)
    starts = {at: sum(sides[other] == sides[at] for other in order[: place + 1]) for place, at in enumerate(order)}
    return [side if sides.count(side) == 1 else f"{side}, start {starts[at]}" for at, side in enumerate(sides)]


def _log_findings(log: GatewayLog, who: str) -> list[Finding]:
    """Returns the findings of one log."""
    found = [
        Finding("not-met", f"{who}: alarm at {event.time_s:.1f} s: {event.words}")
        for event in log.events
        if event.kind == "alarm"
    ]
    silences = dark(log)
    if silences:
        words = (
            f"no path from the peer was alive {times(len(silences))}, {span(sum(e - b for b, e in silences))} in total"
        )
        found.append(Finding("not-met", f"{who}: {words}; the first time at {silences[0][0]:.1f} s."))
    elif log.path_names and log.length_s > 0:
        found.append(Finding("met", f"{who}: at least one path from the peer was alive throughout."))
    control = {name: log.counted("control", name) for name in ("delivered", "late", "refused")}
    if control["late"] or control["refused"]:
        late = f"{count(control['late'])} control messages were late and dropped"
        found.append(Finding("not-met", f"{who}: {late}, {count(control['refused'])} were refused at the sender."))
    elif control["delivered"]:
        delays = log.classes.filter(pl.col("name") == "control")
        gap, p99 = delays["longest_gap_ms"].max(), delays["delay_p99_ms"].max()
        words = f"{count(control['delivered'])} control messages were delivered, none late"
        if isinstance(p99, float):
            words += f"; 99 % of them within {span(p99 / 1000)} in the worst sample"
        if isinstance(gap, float):
            words += f"; the longest gap was {span(gap / 1000)}"
        found.append(Finding("met", f"{who}: {words}."))
    for path in log.path_names:
        downs = [one for one in log.spans(path, "incoming") if one.state == "down"]
        if downs:
            total_s = sum(one.end_s - one.begin_s for one in downs)
            words = f"{who}: {path} was down {times(len(downs))}, {span(total_s)} in total"
            found.append(
                Finding("inconclusive", f"{words}, {span(max(one.end_s - one.begin_s for one in downs))} at most.")
            )
    return found


def dark(log: GatewayLog) -> list[tuple[float, float]]:
    """Returns the spans in s without any live path from the peer, after the first path was up."""
    edges: list[tuple[float, int]] = []
    for path in log.path_names:
        for one in log.spans(path, "incoming"):
            if one.state in ("up", "probation", "suspected"):
                edges += [(one.begin_s, 1), (one.end_s, -1)]
    edges.sort(key=lambda edge: (edge[0], -edge[1]))
    found: list[tuple[float, float]] = []
    alive, since = 0, None
    for time_s, step in edges:
        if since is not None and step > 0 and time_s > since:
            found.append((since, time_s))
        alive += step
        since = time_s if alive == 0 else None
    if since is not None and since < log.length_s:
        found.append((since, log.length_s))
    return found


def _flight_findings(logs: Sequence[GatewayLog]) -> list[Finding]:
    """Returns the findings of both sides' logs: messages written on one side and delivered on the other."""
    sides = {log.side: log for log in logs}
    if len(logs) != 2 or len(sides) != 2:
        return []
    found: list[Finding] = []
    for sender, receiver in (("aircraft", "ground"), ("ground", "aircraft")):
        if sender not in sides or receiver not in sides:
            continue
        written, refused = (sides[sender].counted("control", name) for name in ("written", "refused"))
        names = ("delivered", "late", "superseded")
        delivered, late, superseded = (sides[receiver].counted("control", name) for name in names)
        if not written:
            continue
        # Messages written after the last sample of the other side are not missing; one second's worth is tolerated.
        lost = max(written - refused - delivered - late - superseded, 0)
        rate = written / max(sides[sender].length_s, 1)
        words = (
            f"Control from the {sender}: {count(written)} messages written, {count(delivered)} delivered at the "
            f"other side, {count(superseded)} superseded by a newer one, "
            f"{count(late)} late, {count(lost)} lost."
        )
        found.append(Finding("met" if late == 0 and lost <= rate else "not-met", words))
    return found


def events(logs: Sequence[GatewayLog], offsets: Sequence[float]) -> Table:
    """Returns the events in chronological order."""
    rows = [
        (time_s, [Cell.number(time_s, f"{time_s:.3f}"), Cell(log.side), Cell(event.kind), Cell(event.words)])
        for log, offset in zip(logs, offsets, strict=True)
        for event in log.events
        for time_s in [event.time_s + offset]
    ]
    rows.sort(key=lambda row: row[0])
    return Table(
        "events", ["time, s", "side", "event", "what"], [(row, "") for _, row in rows[:MAX_EVENTS]], replay=False
    )


def _section(log: GatewayLog, title: str, offset_s: float, number: int, charts: Charts, clock: Clock) -> Section:
    drawings: list[Drawing] = []
    over_time: list[Drawing] = []

    def add(to: list[Drawing], name: str, title: str, drawn: Figure, caption: str) -> None:
        to.append(Drawing(title, caption, charts.add(f"{name}-{number}", drawn)))

    shift = round(offset_s * 1e9)
    paths = log.paths.with_columns(pl.col("time_ns") + shift)
    classes = log.classes.with_columns(pl.col("time_ns") + shift)
    caption = "State of each path in both directions. Suspected: silent for three probe intervals; down: declared dead."
    add(drawings, "states", "Path states", _states(log, offset_s, clock), caption)
    if not paths.is_empty():
        caption = "Smoothed round-trip time of each path: mean with a band from minimum to maximum."
        add(
            over_time,
            "rtt",
            "Round-trip time",
            _series(log, paths, clock, ["rtt_ms"], "round-trip time, ms", "ms"),
            caption,
        )
        caption = "As far as the clocks of both sides can be compared. Dashed: from the peer."
        names = ["outgoing_delay_ms", "incoming_delay_ms"]
        add(over_time, "delay", "One-way delay", _series(log, paths, clock, names, "one-way delay, ms", "ms"), caption)
        caption = "Share of the datagrams that did not arrive. Dashed: from the peer."
        names = ["outgoing_loss", "incoming_loss"]
        lost = paths.with_columns(pl.col(names) * 100)
        add(over_time, "loss", "Loss", _series(log, lost, clock, names, "loss, %", "%"), caption)
        caption = "Sent and received data. Dashed: from the peer."
        names = ["outgoing_bps", "incoming_bps"]
        carried = paths.with_columns(pl.col(names) / 1e6)
        add(over_time, "rate", "Rate", _series(log, carried, clock, names, "rate, Mbit/s", "Mbit/s"), caption)
    if not classes.is_empty():
        caption = "Age of control messages at delivery, and the longest gap between two of them."
        add(drawings, "control", "Control", _control(classes, clock), caption)
        for name in CLASSES:
            own = classes.filter(pl.col("name") == name)
            if own["delivered"].max():
                drawn = _shares(log, own, clock)
                add(
                    drawings,
                    f"share-{name}",
                    f"{name.capitalize()}: traffic by path",
                    drawn,
                    "Share of messages delivered first, by path.",
                )
    begun = datetime.datetime.fromtimestamp(log.begun_unix, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Section(log, title, begun, drawings, over_time, _path_rows(log), _class_rows(log), _refused(log))


def _states(log: GatewayLog, offset_s: float, clock: Clock) -> Figure:
    rows = [f"{path}, {_WAYS[direction]}" for path in log.path_names for direction in DIRECTIONS]
    height = 70 + 22 * max(len(rows), 1)
    drawn = chart(y_label="", clock=clock, height=height, y_range=Model("FactorRange", factors=rows[::-1]))
    entries = []
    shown: list[Any] = []
    for state in STATES:
        spans = [
            (f"{path}, {_WAYS[direction]}", one.begin_s + offset_s, one.end_s + offset_s)
            for path in log.path_names
            for direction in DIRECTIONS
            for one in log.spans(path, direction)
            if one.state == state
        ]
        if not spans:
            continue
        data = Source(
            {
                "row": [row for row, _, _ in spans],
                "left": [begin for _, begin, _ in spans],
                "right": [end for _, _, end in spans],
                "length": [span(end - begin) for _, begin, end in spans],
            }
        )
        colour = _STATE_COLOURS[state]
        # An edge keeps spans narrower than a pixel visible.
        bar = glyph(
            drawn,
            data,
            "HBar",
            y="row",
            left="left",
            right="right",
            height=0.7,
            fill_color=colour,
            line_color=colour,
            name=state,
        )
        entries.append((state, [bar]))
        shown.append(bar)
    tips = [("@row", "$name for @length"), ("from", "@left{0.000} s")]
    hover(drawn, shown, tips, mode="mouse")
    legend(drawn, entries, columns=5)
    return drawn


def _series(
    log: GatewayLog, paths: pl.DataFrame, clock: Clock, names: Sequence[str], y_label: str, unit: str
) -> Figure:
    """Draws series of the paths over time, one colour per path; the second column is dashed."""
    drawn = chart(y_label=y_label, clock=clock)
    from_zero(drawn)
    entries: list[tuple[str, list[Any]]] = []
    lines: list[Any] = []
    for name, dash in zip(names, _DASHES.values(), strict=False):
        every = envelope(paths.lazy(), {"value": pl.col(name)}, by=("name",), columns=_POINTS)
        for index, path in enumerate(log.path_names):
            own = every.filter(pl.col("name") == path).drop("name")
            if own["value_mean"].null_count() == own.height:
                continue
            parts = band(drawn, source(own), "value", path_colour(index), dash=dash)
            way = f" {_WAYS[name.partition('_')[0]]}" if len(names) > 1 else ""
            parts[0].update(name=f"{path}{way}")
            entries.append((f"{path}{way}", parts))
            lines.append(parts[0])
    hover(drawn, lines, [("", f"$name: @value_mean{{0.[00]}} {unit}"), ("time", "@time_s{0.0} s")])
    legend(drawn, entries)
    return drawn


def _control(classes: pl.DataFrame, clock: Clock) -> Figure:
    drawn = chart(y_label="control, ms", clock=clock, logarithmic="y", height=220)
    own = classes.lazy().filter(pl.col("name") == "control")
    entries: list[tuple[str, list[Any]]] = []
    lines: list[Any] = []
    for index, (name, label) in enumerate(
        (("delay_p50_ms", "median delay"), ("delay_p99_ms", "delay p99"), ("longest_gap_ms", "longest gap"))
    ):
        every = envelope(own, {"value": pl.when(pl.col(name) > 0).then(pl.col(name))}, columns=_POINTS)
        if every["value_mean"].null_count() == every.height:
            continue
        parts = band(drawn, source(every), "value", COLOURS[(0, 1, 3)[index]])
        parts[0].update(name=label)
        entries.append((label, parts))
        lines.append(parts[0])
    hover(drawn, lines, [("", "$name: @value_mean{0.[00]} ms"), ("time", "@time_s{0.0} s")])
    legend(drawn, entries)
    return drawn


def _shares(log: GatewayLog, columns: pl.DataFrame, clock: Clock) -> Figure:
    """Draws the messages of a class delivered first, by path, between two samples."""
    drawn = chart(y_label="messages, %", clock=clock, height=150, y_range=(0, 100))
    columns = columns.sort("time_ns")
    every = -(-columns.height // _POINTS)
    columns = columns.gather_every(every)
    times_s = columns["time_ns"].to_numpy() * 1e-9
    width = len(log.path_names)
    brought = np.zeros((columns.height, width))
    for row, counts in enumerate(columns["by_path"].to_list()):
        for column, number in enumerate((counts or [])[:width]):
            brought[row, column] = number or 0
    steps = np.diff(brought, axis=0, prepend=brought[:1] * 0)
    total = steps.sum(axis=1, keepdims=True)
    percents = np.divide(steps * 100, total, out=np.zeros_like(steps), where=total > 0)
    stacked_shares(drawn, log.path_names, times_s, percents.T, "before")
    return drawn


def _path_rows(log: GatewayLog) -> list[list[str]]:
    rows = []
    won = {one.get("name"): int(one.get("control_won") or 0) for one in log.last.get("paths", [])}
    for one in log.last.get("paths", []):
        name = str(one.get("name"))
        own = log.paths.filter(pl.col("name") == name)
        lengths = {
            direction: sum(part.end_s - part.begin_s for part in log.spans(name, direction) if part.state == "down")
            for direction in DIRECTIONS
        }
        rows.append(
            [
                name,
                size(float(one.get("outgoing_bytes") or 0)),
                size(float(one.get("incoming_bytes") or 0)),
                _delay(own["rtt_ms"].median()),
                _delay(own["rtt_ms"].max()),
                _share(own["outgoing_loss"].mean()),
                _share(own["incoming_loss"].mean()),
                count(int(one.get("given_up") or 0)),
                *(span(lengths[direction]) if lengths[direction] else "–" for direction in DIRECTIONS),
                percent(won[name] / sum(won.values())) if sum(won.values()) else "–",
                f"{one.get('mtu')} B" if one.get("mtu") else "–",
            ]
        )
    return rows


def _class_rows(log: GatewayLog) -> list[list[str]]:
    rows = []
    for one in log.last.get("classes", []):
        own = log.classes.filter(pl.col("name") == one.get("name"))
        counts = ("written", "refused", "delivered", "late", "superseded", "duplicates", "repaired")
        rows.append(
            [
                str(one.get("name")),
                *(count(int(one.get(name) or 0)) for name in counts),
                _delay(own["delay_p50_ms"].median()),
                _delay(own["delay_p99_ms"].max()),
                _delay(own["longest_gap_ms"].max()),
            ]
        )
    return rows


def _refused(log: GatewayLog) -> str:
    refused = log.last.get("refused")
    if not isinstance(refused, dict) or not any(refused.values()):
        return "Nothing from outside was refused."
    kinds = ", ".join(f"{count(int(number))} {name}" for name, number in refused.items() if number)
    return f"Refused datagrams from outside: {kinds}."


def _delay(value: object) -> str:
    return milliseconds(value) if isinstance(value, float) else "–"


def _share(value: object) -> str:
    return percent(value) if isinstance(value, float) else "–"

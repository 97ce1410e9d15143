"""Path use: reasons why a path went unused, or why several paths carried less than the best one could.

Reads shares and losses from a result's summary, link rates, windows and round-trip times from its tables, and the
scheduler's waits from the table `decisions`, as far as these were kept.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from skybraid.model.errors import ResultError
from skybraid.model.formatting import count, milliseconds, percent, rate
from skybraid.model.heavy import pl
from skybraid.model.misses import refusals

if TYPE_CHECKING:
    from skybraid.model.results import Results
    from skybraid.show.explain.requirement import UnmetRequirement

UNUSED = 0.0005
"""Share of a flow's packets below which a path counts as unused."""

LITTLE = 0.5
"""Ratio to its share of the links' rates below which a path counts as little used."""

CLEARLY = 0.9
"""Ratio to the possible rate below which a rate counts as lower; headers and the start take some of a link's rate."""

WORTH_TELLING = 0.005
"""Share of the time below which a wait is not mentioned."""

_UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9,
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30,
}  # fmt: skip

_RECEIVE_BUFFER = "6MB"
_WAITS = {
    "peer's window": "the peer's receive window was full",
    "window full": "no path had room in its congestion window",
    "no path": "no path was usable",
    "own algorithm": "the Python scheduler chose to wait",
}
"""Explanation of each reason to wait."""


@dataclass(slots=True)
class Wait:
    """Waiting time of a flow for one reason: share of its time, 0 to 1, and number of waits."""

    reason: str
    path: str | None
    share_of_time: float
    waits: int


@dataclass(slots=True)
class PathUse:
    """Use of a path by a flow; None where the result lacks the data.

    Attributes:
        path: name of the path.
        share_of_packets: share of the flow's packets, 0 to 1.
        share_of_decisions: share of the decisions to send that chose the path, 0 to 1; copies count on each path.
        chosen_because: shares of the reasons among these decisions.
        link_bps: mean rate of the link in the flow's direction in bit/s, counting 0 while it was down.
        carried_bps: acknowledged rate of this flow on the path in bit/s.
        down: share of the time in which the path was down in either direction.
        rtt_ms: median smoothed round-trip time in ms.
        window_bytes: median congestion window in bytes.
        threshold_bytes: median slow start threshold in bytes, of the samples that have one.
        window_bps: rate of one median window per round trip in bit/s.
        lost: segments declared lost.
        reductions: window reductions after losses, including timeouts.
        link_losses: packets of all flows that the link lost in the flow's direction, by cause.
        delay_ms: median delay in ms of the messages delivered first by this path.
        findings: reasons for not using it, in words.
    """

    path: str
    share_of_packets: float
    share_of_decisions: float | None = None
    chosen_because: dict[str, float] = field(default_factory=dict)
    link_bps: float | None = None
    carried_bps: float | None = None
    down: float | None = None
    rtt_ms: float | None = None
    window_bytes: float | None = None
    threshold_bytes: float | None = None
    window_bps: float | None = None
    lost: int | None = None
    reductions: int | None = None
    link_losses: dict[str, int] = field(default_factory=dict)
    delay_ms: float | None = None
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FlowExplained:
    """Explanation of a flow's use of its paths.

    Attributes:
        flow: name of the flow.
        protocol, scheduler, congestion: names of the algorithms.
        goodput_bps: rate of delivered application data in bit/s.
        offered_bps: maximum offered load in bit/s; infinite for bulk.
        best_path: path with the highest mean link rate, if known.
        paths: use of each path, in the order of the connection.
        waits: waits, longest first; None without the table `decisions`.
        findings: reasons for staying below the best path, in words.
        missing: information that is missing because a table was not kept.
        requirements: the flow's requirements that are not met or not decided, explained.
    """

    flow: str
    protocol: str
    scheduler: str
    congestion: str | None
    goodput_bps: float
    offered_bps: float
    best_path: str | None
    paths: list[PathUse]
    waits: list[Wait] | None
    findings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    requirements: list[UnmetRequirement] = field(default_factory=list)

    def __repr__(self) -> str:
        return text(self)

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON; infinite values become None."""
        values = asdict(self)
        values["offered_bps"] = self.offered_bps if math.isfinite(self.offered_bps) else None
        return values


def median_delays(messages: pl.LazyFrame) -> pl.LazyFrame:
    """Returns the query of the median delay `delay_ns` by `flow` and `path` of first delivery.

    Args:
        messages: rows of `skybraid.show.series.delays`.
    """
    delivered = messages.filter(pl.col("delay_ns").is_not_null())
    return delivered.group_by("flow", "path").agg(pl.col("delay_ns").median())


def use_of_paths(
    results: Results, scenario: dict[str, Any], name: str, delays_ms: dict[tuple[str, str], float]
) -> FlowExplained:
    """Explains how a flow used its paths.

    Args:
        results: result to explain.
        scenario: scenario of the result, as a table.
        name: name of the flow.
        delays_ms: median delays in ms, by flow and path.
    """
    flow = _Flow(results, scenario, name)
    summary = results.flows[name]
    refused = refusals(summary)
    paths = [PathUse(path, summary.share.get(path) or 0.0) for path in flow.paths]
    for path in paths:
        flow.describe(path)
        path.delay_ms = delays_ms.get((name, path.path))
    waits = flow.waits()
    known = [path for path in paths if path.link_bps is not None]
    best = max(known, key=lambda path: path.link_bps or 0.0, default=None)
    explained = FlowExplained(
        flow=name,
        protocol=flow.protocol,
        scheduler=flow.scheduler,
        congestion=None if flow.protocol == "udp" else _name(flow.transport.get("congestion", "cubic")),
        goodput_bps=summary.goodput_bps,
        offered_bps=offered(flow.traffic, flow.active_s),
        best_path=None if best is None else best.path,
        paths=paths,
        waits=waits,
    )
    for path in paths:
        path.findings = _unused_reasons(flow, explained, path)
    explained.findings = _below_best_reasons(flow, explained, best)
    if refused is not None:
        explained.findings.append(refused)
    if summary.forecast is not None:
        explained.findings.append(f"expected by `{flow.scheduler}`: {summary.forecast['words']}")
    explained.missing = [
        f"{words}: keep the table `{table}` ({how})"
        for table, words, how in (
            ("decisions", "why the scheduler chose as it did, and how long it waited for what", "--decisions"),
            ("subflows", "windows, round-trip times and losses of each path", "without --summary"),
            ("links", "rates of the links and how long they were down", "without --summary"),
        )
        if table not in results.tables and not (table == "subflows" and flow.protocol == "udp")
    ]
    return explained


class _Flow:
    """Flow of a scenario, with the table rows of its sending side."""

    def __init__(self, results: Results, scenario: dict[str, Any], name: str) -> None:
        self.results = results
        self.name = name
        self.table = scenario["flow"][name]
        self.path_tables: dict[str, Any] = scenario.get("path", {})
        self.traffic: dict[str, Any] = self.table["traffic"]
        carrier = scenario["flow"].get(self.table.get("with"), self.table)
        self.transport: dict[str, Any] = carrier.get("transport", {})
        self.protocol = str(self.transport.get("protocol", "udp"))
        self.scheduler = scheduler_of(self.transport)
        self.paths = [str(path) for path in self.transport.get("paths", scenario.get("path", {}))]
        self.side = str(self.table["from"])
        self.direction = "uplink" if self.side == "vehicle" else "downlink"
        duration_s = min(quantity(scenario["duration"]), max(flight.simulated_s for flight in results.flights))
        self.start_s = quantity(self.table.get("start", "0s"))
        self.stop_s = min(quantity(self.table.get("stop", scenario["duration"])), duration_s)
        self.active_s = self.stop_s - self.start_s
        self.runs = len(results.seeds)
        self.receive_buffer = quantity(self.transport.get("receive_buffer", _RECEIVE_BUFFER))
        self._decisions: pl.DataFrame | None = None

    def rows(self, table: str, *conditions: pl.Expr) -> pl.DataFrame:
        """Returns the rows within the flow's active time."""
        at = pl.col("time_ns")
        within = (at >= self.start_s * 1e9) & (at <= self.stop_s * 1e9)
        return self.results.tables.scan(table).filter(within, *conditions).collect()

    def decisions(self) -> pl.DataFrame | None:
        """Returns the scheduler's decisions with the time in ns until the next one or the end."""
        if "decisions" not in self.results.tables:
            return None
        if self._decisions is None:
            rows = self.rows("decisions", pl.col("flow") == self.name, pl.col("side") == self.side)
            following = pl.col("time_ns").shift(-1, fill_value=round(self.stop_s * 1e9))
            if "seed" in rows.columns:
                following = following.over("seed")
            self._decisions = rows.with_columns((following - pl.col("time_ns")).alias("lasted_ns"))
        return self._decisions

    def waits(self) -> list[Wait] | None:
        """Returns the waiting times of the sender, by reason and path."""
        decisions = self.decisions()
        if decisions is None:
            return None
        waits = decisions.filter(pl.col("paths") == 0).group_by("reason", "waits_for")
        summed = waits.agg(pl.col("lasted_ns").sum(), pl.len().alias("waits"))
        whole_ns = self.active_s * 1e9 * self.runs
        found = [
            Wait(row["reason"], row["waits_for"], row["lasted_ns"] / whole_ns, row["waits"])
            for row in summed.iter_rows(named=True)
        ]
        return sorted(found, key=lambda wait: (-wait.share_of_time, wait.reason, wait.path or ""))

    def describe(self, path: PathUse) -> None:
        """Adds the data of all tables to a path's use."""
        for link in self.results.links():
            if (link["path"], link["direction"]) == (path.path, self.direction):
                path.link_losses = {
                    key.removeprefix("lost_"): value
                    for key, value in link.items()
                    if key.startswith("lost_") and value > 0
                }
        if "links" in self.results.tables:
            self._describe_link(path)
        if "subflows" in self.results.tables and self.protocol != "udp":
            self._describe_subflow(path)
        self._describe_choices(path)

    def _describe_link(self, path: PathUse) -> None:
        # A link's row describes the time until the next row, so the last one describes none.
        rows = self.rows("links", pl.col("path") == path.path, pl.col("time_ns") < self.stop_s * 1e9)
        if rows.height == 0:
            return
        own = rows.filter(pl.col("direction") == self.direction)
        path.link_bps = _number(own.select((pl.col("rate_bps") * pl.col("up")).mean()).item())
        by_direction = rows.group_by("direction").agg((~pl.col("up")).mean().alias("down"))
        path.down = _number(by_direction["down"].max())

    def _describe_subflow(self, path: PathUse) -> None:
        own = (pl.col("flow") == self.name) & (pl.col("side") == self.side) & (pl.col("path") == path.path)
        rows = self.rows("subflows", own)
        if rows.height == 0:
            return
        path.carried_bps = _number(rows["acked_bytes"].sum()) * 8 / (self.active_s * self.runs)
        path.lost, path.reductions = int(rows["lost"].sum()), int(rows["window_reductions"].sum())
        # A path may carry several subflows, whose windows add up.
        instants = [key for key in ("seed", "time_ns") if key in rows.columns]
        measured = (
            rows.filter(pl.col("srtt_ns").is_not_null())
            .group_by(instants)
            .agg(
                pl.col("srtt_ns").median(),
                pl.col("cwnd_bytes").sum(),
                # If no subflow has a threshold, the path has none.
                pl.when(pl.col("ssthresh_bytes").is_not_null().all()).then(pl.col("ssthresh_bytes").sum()),
            )
        )
        if measured.height == 0:
            return
        path.rtt_ms = _number(measured["srtt_ns"].median()) / 1e6
        path.window_bytes = _number(measured["cwnd_bytes"].median())
        with_threshold = measured["ssthresh_bytes"].drop_nulls()
        path.threshold_bytes = None if with_threshold.is_empty() else _number(with_threshold.median())
        path.window_bps = path.window_bytes * 8 / (path.rtt_ms / 1e3)

    def _describe_choices(self, path: PathUse) -> None:
        decisions = self.decisions()
        if decisions is None:
            return
        sent = decisions.filter(pl.col("paths") != 0)
        if sent.height == 0:
            return
        bit = pl.lit(1 << self.paths.index(path.path), dtype=pl.UInt64)
        chosen = sent.filter((pl.col("paths") & bit) != 0)
        path.share_of_decisions = chosen.height / sent.height
        by_reason = chosen.group_by("reason").len().sort("len", descending=True)
        path.chosen_because = {row["reason"]: row["len"] / chosen.height for row in by_reason.iter_rows(named=True)}

    def blocked_share(self) -> float | None:
        """Returns the share of samples in which data in flight nearly fill the peer's receive window."""
        if "subflows" not in self.results.tables:
            return None
        rows = self.rows("subflows", pl.col("flow") == self.name, pl.col("side") == self.side)
        keys = [key for key in ("seed", "time_ns") if key in rows.columns]
        in_flight = rows.group_by(keys).agg(pl.col("in_flight_bytes").sum())["in_flight_bytes"]
        return _number((in_flight >= 0.9 * self.receive_buffer).mean()) if in_flight.len() else None


def _unused_reasons(flow: _Flow, explained: FlowExplained, path: PathUse) -> list[str]:
    """Returns the reason why a path was used little or not at all; empty if it was used."""
    others = [other for other in explained.paths if other is not path]
    if not others or not _is_neglected(explained, path):
        return []
    amount = "unused" if path.share_of_packets < UNUSED else f"little used, {percent(path.share_of_packets)}"
    reasons = list(_reasons_against(flow, explained, path, others))
    if not reasons:
        reasons = [f"the scheduler {flow.scheduler} chose others; the tables show no hindrance on the path itself"]
    return [f"{path.path} is {amount}: {reason}" for reason in reasons]


def _is_neglected(explained: FlowExplained, path: PathUse) -> bool:
    if path.share_of_packets < UNUSED:
        return True
    rates = [other.link_bps for other in explained.paths]
    if path.link_bps is None or None in rates:
        fair = 1 / len(rates)
    else:
        fair = path.link_bps / max(sum(value or 0.0 for value in rates), 1.0)
    return path.share_of_packets < LITTLE * fair or (path.down or 0.0) > LITTLE


def _reasons_against(flow: _Flow, explained: FlowExplained, path: PathUse, others: list[PathUse]) -> list[str]:
    most = max(others, key=lambda other: other.share_of_packets)
    own = flow.path_tables.get(path.path, {})
    found = []
    if flow.scheduler == "single":
        found.append(f"the scheduler single sends everything on {most.path} and never on another path")
        return found
    if path.down is not None and path.down > WORTH_TELLING:
        found.append(f"it was down {percent(path.down)} of the time")
    elif path.down is None and path.link_losses.get("outage"):
        found.append(f"{count(path.link_losses['outage'])} packets were lost in outages")
    if flow.protocol != "udp" and "subflows" in flow.results.tables and path.rtt_ms is None:
        found.append("no round-trip time was ever measured on it, so that its subflow never carried data")
        return found
    if own.get("backup"):
        found.append("it is a backup path, used only when no other is usable")
    if own.get("priority", 3) < 3:
        found.append(f"its priority is {own['priority']}, below that of a primary path (3 and more)")
    found += _slower(explained, path, most)
    if path.window_bps is not None and path.link_bps and path.window_bps < CLEARLY * path.link_bps:
        found.append(
            f"its congestion window, {_size(path.window_bytes or 0.0)} in the median"
            f"{_threshold(path)}, lets {rate(path.window_bps)} through at {milliseconds(path.rtt_ms or 0.0)} "
            f"round-trip time, of the link's {rate(path.link_bps)}; {_losses(path)}"
        )
    return found


def _slower(explained: FlowExplained, path: PathUse, most: PathUse) -> list[str]:
    """Returns a finding if other paths are faster and sufficient; else an empty list."""
    measured = path.rtt_ms is not None and most.rtt_ms is not None
    mine, its = (path.rtt_ms, most.rtt_ms) if measured else (path.delay_ms, most.delay_ms)
    what = "round-trip time" if measured else "delay"
    found = []
    if mine is not None and its is not None and mine > its:
        text = f"its {what}, {milliseconds(mine)} in the median, is longer than {most.path}'s {milliseconds(its)}"
        if explained.scheduler == "low_rtt":
            text += f", and low_rtt turns to it only while {most.path} has no room"
        found.append(text)
    if most.link_bps and explained.offered_bps < CLEARLY * most.link_bps:
        offered = f"the flow offers {rate(explained.offered_bps)}, and {most.path} alone carries {rate(most.link_bps)}"
        found.append(offered + ": one path is enough")
    if most.share_of_decisions is not None and most.chosen_because:
        reason, share = next(iter(most.chosen_because.items()))
        found.append(
            f"{percent(most.share_of_decisions)} of the decisions to send chose {most.path}, {percent(share)} of them "
            f"for the reason “{reason}”"
        )
    return found


def _below_best_reasons(flow: _Flow, explained: FlowExplained, best: PathUse | None) -> list[str]:
    """Returns the reason why the flow carried less than its best path could alone; empty if it did not."""
    if best is None or not best.link_bps:
        return []
    possible = min(explained.offered_bps, best.link_bps)
    if explained.goodput_bps >= CLEARLY * possible:
        return []
    found = [
        f"the flow got {rate(explained.goodput_bps)} through, {percent(explained.goodput_bps / possible)} of the "
        f"{rate(possible)} that "
        + (f"{best.path} alone carries" if possible == best.link_bps else "the application offers")
    ]
    if flow.protocol != "udp":
        found += _receive_window(flow, explained)
    for wait in explained.waits or []:
        if wait.reason != "peer's window" and wait.share_of_time > WORTH_TELLING:
            means = _WAITS.get(wait.reason, f"the scheduler waited: {wait.reason}")
            meant = "" if wait.path is None else f", for {wait.path}"
            found.append(f"{percent(wait.share_of_time)} of the time {means}{meant} ({count(wait.waits)} waits)")
    for path in explained.paths:
        if path.down is not None and path.down > WORTH_TELLING:
            found.append(f"{path.path} was down {percent(path.down)} of the time")
        if path.lost and path.reductions:
            found.append(f"{path.path}: {_losses(path)}")
        losses = sum(path.link_losses.values())
        if flow.protocol == "udp" and losses:
            causes = ", ".join(f"{cause} {count(number)}" for cause, number in path.link_losses.items())
            found.append(f"{path.path} lost {count(losses)} packets of all flows: {causes}")
    if flow.scheduler == "single":
        used = max(explained.paths, key=lambda path: path.share_of_packets)
        if used is not best and used.link_bps is not None:
            found.append(f"the scheduler single uses {used.path}, whose link carries {rate(used.link_bps)}")
    return found


def _receive_window(flow: _Flow, explained: FlowExplained) -> list[str]:
    """Returns the share of time for which the receive window limited the flow, as a finding."""
    rtts = [path.rtt_ms for path in explained.paths if path.rtt_ms is not None and path.share_of_packets >= UNUSED]
    waited = None
    if explained.waits is not None:
        waited = sum(wait.share_of_time for wait in explained.waits if wait.reason == "peer's window")
    filled = flow.blocked_share()
    share = filled if waited is None else waited
    if share is None or share <= WORTH_TELLING or not rtts:
        return []
    text = (
        f"{percent(share)} of the time the peer's receive window blocked data that a path had room for"
        if waited is not None
        else f"in {percent(share)} of the samples what was in flight nearly filled the peer's receive window"
    )
    longest = max(rtts)
    worth = rate(flow.receive_buffer * 8 / (longest / 1e3))
    buffer = (
        f"its receive buffer of {_size(flow.receive_buffer)} (`receive_buffer`), once per round trip, is {worth} at "
        f"the {milliseconds(longest)} of the slowest path in use"
    )
    return [f"{text}; {buffer}"]


def text(explained: FlowExplained) -> str:
    """Formats an explanation in plain words."""
    what = f"{explained.protocol}, scheduler {explained.scheduler}"
    if explained.congestion is not None:
        what += f", congestion control {explained.congestion}"
    lines = [f"{explained.flow}: {rate(explained.goodput_bps)} ({what})"]
    for requirement in explained.requirements:
        lines += [f"  {line}" for line in requirement.lines()]
    lines += [f"  {path.path}: {_facts(path)}" for path in explained.paths]
    for wait in explained.waits or []:
        if wait.share_of_time > WORTH_TELLING:
            meant = "" if wait.path is None else f" for {wait.path}"
            lines.append(f"  waited{meant} {percent(wait.share_of_time)} of the time: {wait.reason}")
    findings = [finding for path in explained.paths for finding in path.findings]
    if findings or explained.findings:
        lines.append("  why:")
        lines += [f"    {finding}" for finding in findings + explained.findings]
    elif not explained.requirements:
        lines.append("  nothing to explain: every path is used, and the flow gets what its best path could carry")
    lines += [f"  to learn more: {words}" for words in explained.missing]
    return "\n".join(lines)


def _facts(path: PathUse) -> str:
    facts = [f"{percent(path.share_of_packets)} of the packets"]
    if path.share_of_decisions is not None:
        facts.append(f"{percent(path.share_of_decisions)} of the decisions")
    if path.carried_bps is not None:
        facts.append(f"{rate(path.carried_bps)} carried")
    if path.link_bps is not None:
        facts.append(f"link {rate(path.link_bps)}")
    if path.rtt_ms is not None:
        facts.append(f"round-trip time {milliseconds(path.rtt_ms)}")
    elif path.delay_ms is not None:
        facts.append(f"delay {milliseconds(path.delay_ms)}")
    if path.window_bytes is not None:
        facts.append(f"window {_size(path.window_bytes)}{_threshold(path)}")
    if path.lost is not None:
        facts.append(_losses(path))
    return ", ".join(facts)


def _losses(path: PathUse) -> str:
    times = "once" if path.reductions == 1 else f"{count(path.reductions or 0)} times"
    return f"{count(path.lost or 0)} segments lost, window reduced {times}"


def _threshold(path: PathUse) -> str:
    return "" if path.threshold_bytes is None else f" (threshold {_size(path.threshold_bytes)})"


def _size(size_bytes: float) -> str:
    for factor, unit in ((1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.3g} B"


def offered(traffic: dict[str, Any], active_s: float) -> float:
    """Returns the offered load of an application in bit/s; infinite for bulk sources."""
    match traffic["kind"]:
        case "cbr" | "video":
            return quantity(traffic["rate"])
        case "on_off":
            on, off = quantity(traffic["on"]), quantity(traffic["off"])
            return quantity(traffic["rate"]) * on / (on + off)
        case "ping":
            return quantity(traffic.get("packet", "56B")) * 8 / quantity(traffic["every"])
        case "file":
            return quantity(traffic["size"]) * 8 / active_s
        case _:
            return math.inf


def quantity(text: str) -> float:
    """Parses a quantity of the scenario, in s, bit/s or B."""
    found = re.fullmatch(r"\s*([0-9.eE+_-]+)\s*([A-Za-z/]+)\s*", str(text))
    if found is None or found[2] not in _UNITS:
        raise ResultError(f"scenario.toml: found {text}, expected a number with a unit")
    return float(found[1]) * _UNITS[found[2]]


def scheduler_of(transport: dict[str, Any]) -> str:
    """Returns the configured scheduler of a transport, or its protocol's default."""
    if "scheduler" in transport:
        return _name(transport["scheduler"])
    match str(transport.get("protocol", "udp")).replace("-", "_"):
        case "mptcp":
            return "linux" if transport.get("profile") == "linux" else "low_rtt"
        case "mp_dccp":
            return "low_rtt"
        case _:
            return "single"


def _name(algorithm: str | dict[str, Any]) -> str:
    return str(algorithm["name"]) if isinstance(algorithm, dict) else algorithm


def _number(value: object) -> float:
    """Parses a number of a table."""
    if not isinstance(value, int | float):
        raise ResultError(f"the result is damaged: found {value}, expected a number")
    return float(value)

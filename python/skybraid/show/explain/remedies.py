"""Remedies: runs of the same scenario with one change, and an upper bound for its paths."""

from __future__ import annotations

import shlex
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import tomli_w

from skybraid.execute.runs import run
from skybraid.model.errors import SkybraidError
from skybraid.model.formatting import frames_a_second, freezes_a_minute, milliseconds, percent, rate, span
from skybraid.model.heavy import pl
from skybraid.model.scenario import Scenario
from skybraid.show.explain.path_use import offered, quantity, scheduler_of

if TYPE_CHECKING:
    from skybraid.model.misses import Cause
    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results

_SHOWN = {
    "share": percent,
    "frames": percent,
    "percentile": milliseconds,
    "goodput": rate,
    "frame_rate": frames_a_second,
    "worst_frame_rate": frames_a_second,
    "freezes": freezes_a_minute,
}
_LESS_IS_BETTER = ("percentile", "freezes")
_SINGLE_PATH = {"tcp": "mptcp", "dccp": "mp_dccp"}
_ON_THE_WAY = ("lost", "retransmission", "queue", "halt", "propagation", "link", "reference", "late", "sender")
_PROBE_LOAD = 0.05
"""Maximum load of probes, as a share of the slowest path's mean rate."""
_MAX_PROBES_PER_S = 200.0
_RARE = 0.05
"""Minimum share of the misses with which a cause is remedied."""


@dataclass(slots=True)
class Budget:
    """Budget of an explanation: number of runs and wall time.

    Attributes:
        changes: number of changes tried for each requirement, not counting the bound of the paths.
        seeds: number of the result's seeds with which each change is run.
        duration_s: maximum simulated time in s; for a longer scenario, the unchanged one is run again too.
        wall_s: wall-clock time in s after which no further run starts.
    """

    changes: int = 4
    seeds: int = 3
    duration_s: float = 600.0
    wall_s: float = 120.0
    begun: float = field(default_factory=time.monotonic)

    def is_spent(self) -> bool:
        """Whether no further run may start."""
        return time.monotonic() - self.begun > self.wall_s


@dataclass(frozen=True, slots=True)
class Remedy:
    """Change of a scenario, and a requirement's result with it.

    Attributes:
        words: change and its result, in words.
        changes: replaced keys of the scenario; empty for the bound of the paths.
        reached: share, delay, goodput, rate or freezes, depending on the requirement.
        before: result without the change, over the same seeds and time.
        helped: whether the change improved the result.
        seeds: number of runs.
        simulated_s: length of each run in s.
    """

    words: str
    changes: dict[str, Any]
    reached: float | None
    before: float | None
    helped: bool
    seeds: list[int]
    simulated_s: float

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Change of a scenario that may help, not yet run.

    Attributes:
        words: change in words.
        changes: replaced keys of the scenario.
    """

    words: str
    changes: dict[str, Any]


class Remedies:
    """Candidates derived from the causes of a requirement's misses, and the runs that try them."""

    def __init__(
        self,
        results: Results,
        scenario: dict[str, Any],
        requirement: Requirement,
        causes: list[Cause],
        budget: Budget,
    ) -> None:
        self._results = results
        self._table = scenario
        self._requirement = requirement
        self._causes = causes
        self._budget = budget
        self._flow = scenario["flow"][requirement.flow]
        self._carrier = str(self._flow.get("with", requirement.flow))
        self._transport: dict[str, Any] = scenario["flow"][self._carrier].get("transport", {})
        self._protocol = str(self._transport.get("protocol", "udp")).replace("-", "_")
        self._seeds = results.seeds[: budget.seeds]
        whole_s = max(flight.simulated_s for flight in results.flights)
        self._duration_s = min(whole_s, budget.duration_s)
        self._is_cut = self._duration_s < whole_s

    def proposed(self) -> list[Candidate]:
        """Returns the changes that follow from the causes, most promising first, without running them."""
        if _SHOWN.get(self._requirement.metric) is None:
            return []
        return list(islice(self._candidates(), self._budget.changes))

    def found(self) -> tuple[list[Remedy], list[str]]:
        """Returns the changes tried, best first, and sentences on what was left out."""
        shown = _SHOWN.get(self._requirement.metric)
        if shown is None or self._requirement.metric in ("ssim", "integrity"):
            return [], []
        try:
            return self._try(shown)
        except SkybraidError as error:
            return [], [f"what would have helped is not known, as the scenario could not be run again: {error}"]

    def _try(self, shown: Callable[[float], str]) -> tuple[list[Remedy], list[str]]:
        before = self._before()
        remedies: list[Remedy] = []
        notes: list[str] = []
        for candidate in self._candidates():
            if self._budget.is_spent():
                notes.append(f"further changes were not tried: {span(self._budget.wall_s)} are used up (`--runs-for`)")
                break
            if len(remedies) >= self._budget.changes:
                break
            try:
                reached = self._reached(self._scenario(candidate.changes))
            except SkybraidError as error:
                notes.append(f"{candidate.words} could not be tried: {error}")
                continue
            if reached is not None:
                words = f"{candidate.words}: {shown(reached)}"
                remedies.append(self._remedy(words, candidate.changes, reached, before))
        less = self._requirement.metric in _LESS_IS_BETTER
        remedies.sort(key=lambda remedy: remedy.reached or 0.0, reverse=not less)
        bound = self._bound(remedies, before)
        if bound is not None:
            remedies.append(bound)
        if remedies and before is not None:
            part = f" in the first {span(self._duration_s)}" if self._is_cut else ""
            seeds = "seed" if len(self._seeds) == 1 else "seeds"
            numbers = ", ".join(str(seed) for seed in self._seeds)
            notes.insert(0, f"as it is{part}, {seeds} {numbers}: {shown(before)}")
        if not remedies and not notes:
            notes.append("no change of the transport follows from these causes: the paths themselves set the limit")
        return remedies, notes

    def _remedy(self, words: str, changes: dict[str, Any], reached: float, before: float | None) -> Remedy:
        less = self._requirement.metric in _LESS_IS_BETTER
        helped = before is None or (reached < before if less else reached > before)
        return Remedy(words, changes, reached, before, helped, list(self._seeds), self._duration_s)

    def _scenario(self, changes: dict[str, Any]) -> Scenario:
        # The command `skybraid run FILE ...`; a scenario's files are relative to its folder.
        file = shlex.split(str(self._results.provenance["replay"]))[2]
        scenario = Scenario(self._results.scenario, file)
        cut = {"duration": f"{self._duration_s:.9g}s"} if self._is_cut else {}
        return scenario.with_all(cut | changes)

    def _before(self) -> float | None:
        if self._is_cut or self._results.driver != "simulation":
            return self._reached(self._scenario({}))
        kept = [flight for flight in self._results.flights if flight.seed in self._seeds]
        if len(kept) == len(self._results.flights):
            return self._requirement.estimate
        place = self._results.requirements.index(self._requirement)
        seen = [flight.requirements[place] for flight in kept]
        known = [(one.estimate, one.trials) for one in seen if one.estimate is not None]
        whole = sum(trials for _, trials in known)
        return sum(estimate * trials for estimate, trials in known) / whole if whole else None

    def _reached(self, scenario: Scenario) -> float | None:
        results = run(scenario, seeds=self._seeds, tables=())
        one = self._requirement
        for other in results.requirements:
            if (other.flow, other.metric, other.deadline_ms, other.target) == (
                one.flow, one.metric, one.deadline_ms, one.target,
            ):  # fmt: skip
                return other.estimate
        return None

    def _candidates(self) -> Iterator[Candidate]:
        """Yields candidate changes for the causes, most frequent cause first, without duplicates."""
        seen: list[dict[str, Any]] = []
        for cause in self._causes:
            if cause.share < _RARE and seen:
                break
            for candidate in self._against(cause):
                if candidate.changes not in seen:
                    seen.append(candidate.changes)
                    yield candidate
        if not self._causes or self._requirement.metric in ("goodput", "percentile"):
            for candidate in (*self._copies(None), *self._schedulers()):
                if candidate.changes not in seen:
                    seen.append(candidate.changes)
                    yield candidate

    def _against(self, cause: Cause) -> Iterator[Candidate]:
        match cause.cause:
            case "refused" | "expired":
                yield from self._longer_queue()
                yield from self._schedulers()
            case "order":
                yield from self._less_order()
                yield from self._copies(cause.path)
            case "sender" | "unsent" | "queue":
                yield from self._schedulers()
                yield from self._copies(cause.path)
            case kind if kind in _ON_THE_WAY:
                yield from self._copies(cause.path)
                # Fewer copies cannot deliver what all of them failed to deliver.
                if scheduler_of(self._transport) != "redundant":
                    yield from self._schedulers()
            case _:
                return

    def _key(self, key: str) -> str:
        return f"flow.{self._carrier}.transport.{key}"

    def _longer_queue(self) -> Iterator[Candidate]:
        if self._protocol in ("dccp", "mp_dccp"):
            given = int(self._transport.get("tx_queue", 5))
            longer = max(10 * given, 500)
            yield Candidate(f"with `tx_queue = {longer}`", {self._key("tx_queue"): longer})
        elif self._transport.get("refuse_when_full"):
            larger = 4 * quantity(self._transport.get("send_buffer", "4MB"))
            yield Candidate(
                f'with `send_buffer = "{larger / 1e6:g}MB"`', {self._key("send_buffer"): f"{larger / 1e6:g}MB"}
            )

    def _less_order(self) -> Iterator[Candidate]:
        if self._transport.get("reordering", "none") != "none":
            yield Candidate('with `reordering = "none"`', {self._key("reordering"): "none"})
        if self._protocol == "mptcp" and scheduler_of(self._transport) != "blest":
            yield Candidate('with `scheduler = "blest"`', {self._key("scheduler"): "blest"})

    def _paths(self) -> list[str]:
        """Returns the paths of the scenario; empty for a network, whose paths have no names."""
        return [str(path) for path in self._table.get("path", {})]

    def _copies(self, path: str | None) -> Iterator[Candidate]:
        """Yields redundant transmission over all paths."""
        paths = self._paths()
        own = [str(name) for name in self._transport.get("paths", paths)]
        if self._protocol in _SINGLE_PATH:
            own = own[:1]
        if len(paths) < 2 or (scheduler_of(self._transport) == "redundant" and len(own) == len(paths)):
            return
        if self._protocol == "parallel_tcp":
            return
        others = [name for name in paths if name != (path or (own or paths)[0])]
        changes: dict[str, Any] = {self._key("scheduler"): "redundant"}
        words = 'scheduler = "redundant"'
        if "paths" in self._transport:
            changes[self._key("paths")] = paths
        if self._protocol in _SINGLE_PATH:
            changes[self._key("protocol")] = _SINGLE_PATH[self._protocol]
            words = f'protocol = "{_SINGLE_PATH[self._protocol]}", {words}'
        yield Candidate(f"with a copy on {' and '.join(others)} (`{words}`)", changes)

    def _schedulers(self) -> Iterator[Candidate]:
        own = [str(name) for name in self._transport.get("paths", self._paths())]
        now = scheduler_of(self._transport)
        if len(own) < 2 or self._protocol in (*_SINGLE_PATH, "parallel_tcp"):
            return
        for name in ("low_rtt", "round_robin"):
            if name != now:
                yield Candidate(f'with `scheduler = "{name}"`', {self._key("scheduler"): name})
                return

    def _bound(self, remedies: list[Remedy], before: float | None) -> Remedy | None:
        """Returns the upper bound of the share in time, from probes on each path."""
        paths = self._paths()
        deadline_ms = self._requirement.deadline_ms
        if self._requirement.metric != "share" or deadline_ms is None or not paths or self._budget.is_spent():
            return None
        probes = self._probes(paths)
        if probes is None:
            return None
        results = run(probes, seeds=self._seeds, tables=["messages"])
        share = _best_of(results, deadline_ms)
        if share is None:
            return None
        reached = max([share, before or 0.0, *(remedy.reached or 0.0 for remedy in remedies)])
        words = f"at most: {percent(reached)}, had every message taken the better path"
        if len(paths) == 1:
            words = f"at most: {percent(reached)}, with {paths[0]} to itself"
        return self._remedy(words, {}, reached, before)

    def _probes(self, paths: list[str]) -> Scenario | None:
        """Returns the scenario with its flows replaced by probes on each path, of the flow's message size."""
        traffic = self._flow["traffic"]
        packet = str(traffic.get("packet", "1200B"))
        bits = quantity(packet) * 8
        own = offered(traffic, max(self._duration_s, 1e-9))
        slowest = self._slowest(paths)
        load = min(own, slowest * _PROBE_LOAD, _MAX_PROBES_PER_S * bits)
        if load <= 0:
            return None
        table = tomllib.loads(self._scenario({}).toml())
        when = {key: self._flow[key] for key in ("start", "stop") if key in self._flow}
        table["flow"] = {
            f"probe_{number}": {
                "from": self._flow["from"],
                **when,
                "traffic": {"kind": "cbr", "rate": f"{load:.9g}bit/s", "packet": packet},
                "transport": {"protocol": "udp", "paths": [path]},
            }
            for number, path in enumerate(paths)
        }
        return Scenario(tomli_w.dumps(table), self._scenario({}).file)

    def _slowest(self, paths: list[str]) -> float:
        """Returns the smallest mean rate of a link if known, else that of a slow link."""
        if "links" not in self._results.tables:
            return 2e6
        direction = "uplink" if self._flow["from"] == "vehicle" else "downlink"
        rows = self._results.tables.scan("links").filter(pl.col("direction") == direction, pl.col("path").is_in(paths))
        means = rows.group_by("path").agg(pl.col("rate_bps").mean()).collect()["rate_bps"]
        least = means.min()
        return float(least) if isinstance(least, int | float) else 2e6


def _best_of(results: Results, deadline_ms: float) -> float | None:
    """Returns the share of instants at which a probe on any path was in time."""
    rows = results.tables.scan("messages")
    keys = [key for key in ("seed", "sent_ns") if key in rows.collect_schema().names()]
    in_time = (pl.col("delivered_ns") - pl.col("sent_ns") <= deadline_ms * 1e6).fill_null(value=False)
    end_ns = max(flight.simulated_s for flight in results.flights) * 1e9
    due = rows.filter(pl.col("sent_ns") + deadline_ms * 1e6 <= end_ns)
    share = due.group_by(keys).agg(in_time.any().alias("in_time")).select(pl.col("in_time").mean()).collect().item()
    return None if share is None else float(share)

"""Observations: functions that compute a number from a run's tables.

An experiment's file uses an observation as the kind of its measure, with its keys:

    measure = { kind = "late_share", flow = "control", limit_ms = 300 }

Observations of a single paper are in `observations.py` of its folder, see `skybraid_studies.engine.papers`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np, pl
from skybraid.model.tables import frame
from skybraid_studies.engine import papers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid._core import FlowStats, Run
    from skybraid.model.scenario import Scenario

MS_PER_NS = 1e-6
NS_PER_S = 1_000_000_000

Read = Callable[..., float]
"""Function that computes a number from `RunData`, with the keys as arguments; NaN: no value."""


class RunData:
    """Data of a run for observations: its tables, cached as frames, and its statistics.

    Args:
        run: finished run with the required tables.
        scenario: scenario of the run, for observations that need more than tables.
    """

    def __init__(self, run: Run, scenario: Scenario | None = None) -> None:
        self.run = run
        self.scenario = scenario
        self._frames: dict[str, pl.DataFrame] = {}
        self._senders: dict[str, str] = {}

    def table(self, name: str) -> pl.DataFrame:
        """Returns a table of the run; `docs/scenario.md` describes the columns."""
        if name not in self._frames:
            self._frames[name] = frame(self.run.columns(name))
        return self._frames[name]

    @cached_property
    def flows(self) -> dict[str, FlowStats]:
        """Statistics of each flow and group by name."""
        return {stats.flow: stats for stats in [*self.run.flow_stats(), *self.run.group_stats()]}

    @property
    def length_s(self) -> float:
        """Length of the run in s."""
        return self.run.simulated_s

    def messages(self, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> pl.DataFrame:
        """Returns a flow's messages written in [`from_s`, `to_s`)."""
        found = self.table("messages").filter(pl.col("flow") == flow, pl.col("sent_ns") >= from_s * NS_PER_S)
        return found if math.isinf(to_s) else found.filter(pl.col("sent_ns") < to_s * NS_PER_S)

    def subflows(self, flow: str, path: str = "", side: str = "") -> pl.DataFrame:
        """Returns samples of a flow's subflows every 100 ms: on one path, at its data sender or at `side`."""
        found = self.table("subflows").filter(pl.col("flow") == flow)
        if path:
            found = found.filter(pl.col("path") == path)
        return found.filter(pl.col("side") == (side or self._sender(flow)))

    def _sender(self, flow: str) -> str:
        """Returns the side that sends the flow's data: the one with more acknowledged bytes."""
        if flow not in self._senders:
            own = self.table("subflows").filter(pl.col("flow") == flow)
            acked = own.group_by("side").agg(pl.col("acked_bytes").sum()).sort("acked_bytes", descending=True)
            self._senders[flow] = str(acked["side"][0]) if len(acked) else ""
        return self._senders[flow]


@dataclass(frozen=True, slots=True)
class Observation:
    """A registered observation.

    Attributes:
        name: kind of the measure.
        tables: required tables of the run.
        keys: keys with their defaults; a key without one is required.
        read: function.
        absent: meaning of NaN, such as "path never used"; if empty, a run without a value makes claims inconclusive.
    """

    name: str
    tables: tuple[str, ...]
    keys: Mapping[str, Any]
    read: Read
    absent: str = ""

    def __call__(self, run: RunData, keys: Mapping[str, Any]) -> float:
        """Computes the observation from a run."""
        return float(self.read(run, **keys))


REQUIRED = inspect.Parameter.empty
"""Marks keys without a default."""

_OBSERVATIONS: dict[str, Observation] = {}


def observation(name: str, *tables: str, absent: str = "") -> Callable[[Read], Read]:
    """Registers a function of `RunData` and keys under the name that `measure.kind` takes.

    Args:
        name: kind of the measure.
        tables: required tables of the run.
        absent: meaning of NaN, if runs may have no value: comparisons leave out such runs, with a note.
    """

    def register(function: Read) -> Read:
        _, *keys = inspect.signature(function).parameters.values()
        _OBSERVATIONS[name] = Observation(name, tables, {key.name: key.default for key in keys}, function, absent)
        return function

    return register


def observations() -> Mapping[str, Observation]:
    """Returns all registered observations by name."""
    papers.load()
    return _OBSERVATIONS


def quantile(values: pl.Series | NDArray[np.float64], q: float) -> float:
    """Returns the smallest value that a share `q` (0 to 1) does not exceed; NaN if empty, infinite if lost."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[max(math.ceil(q * ordered.size) - 1, 0)]) if ordered.size else math.nan


def delays_ms(messages: pl.DataFrame) -> NDArray[np.float64]:
    """Returns the one-way delays of messages in ms, infinite for those that never arrived."""
    late = (messages["delivered_ns"] - messages["sent_ns"]).cast(pl.Float64) * MS_PER_NS
    return late.fill_null(math.inf).to_numpy()


def arrived_delays_ms(messages: pl.DataFrame) -> NDArray[np.float64]:
    """Returns the one-way delays in ms of delivered messages."""
    found = delays_ms(messages)
    return found[np.isfinite(found)]


def windows_bps(run: RunData, flow: str, window_s: float, path: str = "") -> NDArray[np.float64]:
    """Returns a flow's goodput in bit/s in each whole window of the run, optionally of one path.

    A message sent in several copies counts for the path that delivered it first.
    """
    arrived = run.messages(flow).filter(pl.col("delivered_ns").is_not_null())
    if path:
        arrived = arrived.filter(pl.col("path") == path)
    edges = np.arange(int(run.length_s / window_s + 1e-9) + 1) * (window_s * NS_PER_S)
    counts, _ = np.histogram(arrived["delivered_ns"].to_numpy(), edges, weights=arrived["bytes"].to_numpy())
    return counts * (8 / window_s)


@observation("goodput_quantile", "messages")
def goodput_quantile(run: RunData, flow: str, q: float, window_s: float = 1.0, path: str = "") -> float:
    """Returns the quantile `q` of the goodput over windows, in Mbit/s."""
    return quantile(windows_bps(run, flow, window_s, path), q) / 1e6


@observation("goodput_share", "messages")
def goodput_share(run: RunData, flow: str, above_mbps: float, window_s: float = 1.0, from_s: float = 0.0) -> float:
    """Returns the share of windows in % with a goodput above `above_mbps`."""
    windows = windows_bps(run, flow, window_s)[round(from_s / window_s) :]
    return 100 * float(np.mean(windows > above_mbps * 1e6)) if windows.size else math.nan


@observation("delay_quantile", "messages")
def delay_quantile(run: RunData, flow: str, q: float) -> float:
    """Returns the quantile `q` of the one-way delay in ms; infinite if these messages were lost."""
    return quantile(delays_ms(run.messages(flow)), q)


@observation("delay_mean", "messages")
def delay_mean(run: RunData, flow: str) -> float:
    """Returns the mean one-way delay in ms of delivered messages."""
    found = arrived_delays_ms(run.messages(flow))
    return float(found.mean()) if found.size else math.nan


@observation("late_share")
def late_share(run: RunData, flow: str, limit_ms: float) -> float:
    """Returns the share of messages in % that took longer than `limit_ms` or were lost.

    Messages due after the end do not count. The flow must require this deadline, since a run counts only required ones.
    """
    met, trials = run.flows[flow].met(limit_ms)
    return 100 * (trials - met) / trials if trials else math.nan


@observation("path_share")
def path_share(run: RunData, flow: str, path: str) -> float:
    """Returns the share of a flow's packets in % sent on a path."""
    return 100 * run.flows[flow].share.get(path, math.nan)


@observation("rtt_quantile", "subflows")
def rtt_quantile(run: RunData, flow: str, q: float, path: str = "") -> float:
    """Returns the quantile `q` of a path's smoothed round-trip time in ms, sampled every 100 ms."""
    return quantile(run.subflows(flow, path)["srtt_ns"].drop_nulls().cast(pl.Float64) * MS_PER_NS, q)


@observation("rtt_mean", "subflows")
def rtt_mean(run: RunData, flow: str, path: str = "") -> float:
    """Returns the mean of the smoothed round-trip time in ms, sampled every 100 ms."""
    mean = run.subflows(flow, path)["srtt_ns"].drop_nulls().mean()
    return float(mean) * MS_PER_NS if isinstance(mean, int | float) else math.nan


@observation("gap_mean", "messages")
def gap_mean(run: RunData, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Returns the mean time in s between messages that arrive from `from_s` to `to_s`."""
    gaps = arrival_gaps_s(run, flow, from_s, to_s)
    return float(gaps.mean()) if gaps.size else math.nan


@observation("gap_sd", "messages")
def gap_sd(run: RunData, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Returns the standard deviation of the time in s between messages that arrive from `from_s` to `to_s`."""
    gaps = arrival_gaps_s(run, flow, from_s, to_s)
    return float(gaps.std(ddof=1)) if gaps.size > 1 else math.nan


def arrival_gaps_s(run: RunData, flow: str, from_s: float, to_s: float) -> NDArray[np.float64]:
    """Returns the times in s between consecutive arrivals from `from_s` to `to_s`."""
    arrived = run.messages(flow)["delivered_ns"].drop_nulls().sort().to_numpy() / NS_PER_S
    return np.diff(arrived[(arrived >= from_s) & (arrived < to_s)])


@observation("delay_share", "messages")
def delay_share(run: RunData, flow: str, above_ms: float) -> float:
    """Returns the share of delivered messages in % with a one-way delay above `above_ms`."""
    found = arrived_delays_ms(run.messages(flow))
    return 100 * float(np.mean(found > above_ms)) if found.size else math.nan


@observation("delay_count", "messages")
def delay_count(run: RunData, flow: str, above_ms: float) -> float:
    """Returns the number of delivered messages with a one-way delay above `above_ms`."""
    return float(np.sum(arrived_delays_ms(run.messages(flow)) > above_ms))


@observation("delay_peak", "messages")
def delay_peak(run: RunData, flow: str) -> float:
    """Returns the maximum one-way delay in ms of a delivered message."""
    found = arrived_delays_ms(run.messages(flow))
    return float(found.max()) if found.size else math.nan


_LINK = {"rate": ("rate_bps", 1e-6), "delay": ("delay_ns", MS_PER_NS)}
"""Columns of a link's state, and their factors to Mbit/s and ms."""


def link_state(run: RunData, path: str, direction: str, what: str) -> NDArray[np.float64]:
    """Returns a link's configured `rate` in Mbit/s or `delay` in ms, sampled every 100 ms."""
    column, factor = _LINK[what]
    rows = run.table("links").filter(pl.col("path") == path, pl.col("direction") == direction)
    return rows[column].drop_nulls().cast(pl.Float64).to_numpy() * factor


@observation("link_mean", "links")
def link_mean(run: RunData, path: str, direction: str, what: str) -> float:
    """Returns the mean of a link's `rate` (Mbit/s) or `delay` (ms), halts included."""
    found = link_state(run, path, direction, what)
    return float(found.mean()) if found.size else math.nan


@observation("link_quantile", "links")
def link_quantile(run: RunData, path: str, direction: str, what: str, q: float) -> float:
    """Returns the quantile `q` of a link's `rate` (Mbit/s) or `delay` (ms)."""
    return quantile(link_state(run, path, direction, what), q)


@observation("link_count", "links")
def link_count(run: RunData, path: str, direction: str, what: str, above: float) -> float:
    """Returns the number of times that a link's `rate` (Mbit/s) or `delay` (ms) rises above a value."""
    over = link_state(run, path, direction, what) > above
    return float(np.sum(np.diff(over.astype(np.int8), prepend=0) == 1))


def wire_delays_ms(run: RunData, flow: str, path: str) -> NDArray[np.float64]:
    """Returns delays in ms of a flow's delivered data packets since the sender's interface, optionally of one path."""
    rows = run.table("packets").filter(
        pl.col("flow") == flow, pl.col("kind") == "data", pl.col("out_ns").is_not_null(), pl.col("cause").is_null()
    )
    if path:
        rows = rows.filter(pl.col("path") == path)
    return (rows["out_ns"] - rows["in_ns"]).to_numpy() * MS_PER_NS


@observation("wire_delay_mean", "packets")
def wire_delay_mean(run: RunData, flow: str, path: str = "") -> float:
    """Returns the mean one-way delay in ms of a flow's data packets since the sender's interface."""
    found = wire_delays_ms(run, flow, path)
    return float(found.mean()) if found.size else math.nan


@observation("wire_delay_count", "packets")
def wire_delay_count(run: RunData, flow: str, above_ms: float, path: str = "") -> float:
    """Returns the number of a flow's data packets that took longer than `above_ms` since the sender's interface."""
    return float(np.sum(wire_delays_ms(run, flow, path) > above_ms))


def resent_rates(run: RunData, flow: str, path: str, window_s: float, segment_bytes: float) -> NDArray[np.float64]:
    """Returns the share (0 to 1) of a path's segments that were retransmissions, in each whole window with segments.

    Sent segments are estimated as those acknowledged in the window plus the retransmissions.
    """
    rows = run.subflows(flow, path)
    windows = (rows["time_ns"].to_numpy() - 1) // int(window_s * NS_PER_S)
    many = int(run.length_s / window_s + 1e-9)
    inside = (windows >= 0) & (windows < many)
    again, acked = (
        np.bincount(windows[inside], rows[column].to_numpy()[inside].astype(float), minlength=many)
        for column in ("retransmitted", "acked_bytes")
    )
    sent = acked / segment_bytes + again
    return again[sent > 0] / sent[sent > 0]


@observation("resent_mean", "subflows")
def resent_mean(run: RunData, flow: str, path: str, window_s: float = 1.0, segment_bytes: float = 1400) -> float:
    """Returns the mean over windows of the share of a path's segments in % that were retransmissions."""
    found = resent_rates(run, flow, path, window_s, segment_bytes)
    return 100 * float(found.mean()) if found.size else math.nan


@observation("resent_quantile", "subflows")
def resent_quantile(
    run: RunData, flow: str, path: str, q: float, window_s: float = 1.0, segment_bytes: float = 1400
) -> float:
    """Returns the quantile `q` over windows of the share of a path's segments in % that were retransmissions."""
    return 100 * quantile(resent_rates(run, flow, path, window_s, segment_bytes), q)


@observation("resent_time", "subflows")
def resent_time(run: RunData, flow: str, path: str, window_s: float = 1.0, segment_bytes: float = 1400) -> float:
    """Returns the share of windows in % with retransmissions on a path."""
    found = resent_rates(run, flow, path, window_s, segment_bytes)
    return 100 * float(np.mean(found > 0)) if found.size else math.nan

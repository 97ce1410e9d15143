"""Observations: numbers that a study reads from a run's tables, one function each.

An experiment's file names one as the kind of its measure, with its keys:

    measure = { kind = "late_share", flow = "control", limit_ms = 300 }

A paper's own are in `observations.py` of its folder, see `skybraid_studies.engine.papers`.
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
"""Reads a number from `Seen`, with the keys as arguments; NaN where there is none."""


class Seen:
    """A run as observations see it: its tables, each made into a frame once, and its counts.

    Args:
        run: a finished one that kept the tables which are asked for.
        scenario: what was run, for observations that look beyond the tables.
    """

    def __init__(self, run: Run, scenario: Scenario | None = None) -> None:
        self.run = run
        self.scenario = scenario
        self._frames: dict[str, pl.DataFrame] = {}
        self._senders: dict[str, str] = {}

    def table(self, name: str) -> pl.DataFrame:
        """A table of the run, see the page on scenarios for its columns."""
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
        """A flow's messages that were written from `from_s` up to but without `to_s`."""
        found = self.table("messages").filter(pl.col("flow") == flow, pl.col("sent_ns") >= from_s * NS_PER_S)
        return found if math.isinf(to_s) else found.filter(pl.col("sent_ns") < to_s * NS_PER_S)

    def subflows(self, flow: str, path: str = "", side: str = "") -> pl.DataFrame:
        """A flow's subflows each 100 ms: on one path, at the end that sends its data or at `side`."""
        found = self.table("subflows").filter(pl.col("flow") == flow)
        if path:
            found = found.filter(pl.col("path") == path)
        return found.filter(pl.col("side") == (side or self._sender(flow)))

    def _sender(self, flow: str) -> str:
        """The side whose subflows carried the flow's data: more bytes of it were acknowledged than the other's."""
        if flow not in self._senders:
            own = self.table("subflows").filter(pl.col("flow") == flow)
            acked = own.group_by("side").agg(pl.col("acked_bytes").sum()).sort("acked_bytes", descending=True)
            self._senders[flow] = str(acked["side"][0]) if len(acked) else ""
        return self._senders[flow]


@dataclass(frozen=True, slots=True)
class Observation:
    """A registered observation.

    Attributes:
        name: the measure's kind.
        tables: that the run has to keep.
        keys: with their defaults; a key without one is required.
        read: the function.
        absent: what NaN means, such as "path never used"; without it a run without a value judges nothing.
    """

    name: str
    tables: tuple[str, ...]
    keys: Mapping[str, Any]
    read: Read
    absent: str = ""

    def __call__(self, seen: Seen, keys: Mapping[str, Any]) -> float:
        """Reads it from a run."""
        return float(self.read(seen, **keys))


REQUIRED = inspect.Parameter.empty
"""Stands for the default of a key that has none."""

_OBSERVATIONS: dict[str, Observation] = {}


def observation(name: str, *tables: str, absent: str = "") -> Callable[[Read], Read]:
    """Registers a function of `Seen` and keys under the name that `measure.kind` takes.

    Args:
        name: of the kind.
        tables: that the run has to keep for it.
        absent: what NaN means, where a run may have no value: comparisons leave such runs out and say so.
    """

    def register(function: Read) -> Read:
        _, *keys = inspect.signature(function).parameters.values()
        _OBSERVATIONS[name] = Observation(name, tables, {key.name: key.default for key in keys}, function, absent)
        return function

    return register


def observations() -> Mapping[str, Observation]:
    """Every registered observation by name."""
    papers.load()
    return _OBSERVATIONS


def quantile(values: pl.Series | NDArray[np.float64], q: float) -> float:
    """Smallest value that a share `q` (0 to 1) of all does not exceed; NaN of none, infinite if it is lost."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[max(math.ceil(q * ordered.size) - 1, 0)]) if ordered.size else math.nan


def delays_ms(messages: pl.DataFrame) -> NDArray[np.float64]:
    """One-way delays of messages in ms, infinite for those that never arrived."""
    late = (messages["delivered_ns"] - messages["sent_ns"]).cast(pl.Float64) * MS_PER_NS
    return late.fill_null(math.inf).to_numpy()


def arrived_delays_ms(messages: pl.DataFrame) -> NDArray[np.float64]:
    """One-way delays in ms of the messages that arrived."""
    found = delays_ms(messages)
    return found[np.isfinite(found)]


def windows_bps(seen: Seen, flow: str, window_s: float, path: str = "") -> NDArray[np.float64]:
    """A flow's goodput in bit/s in each whole window of the run, as its messages arrived; of one path if it is named.

    With several copies on their way a message counts for the path whose copy came first.
    """
    arrived = seen.messages(flow).filter(pl.col("delivered_ns").is_not_null())
    if path:
        arrived = arrived.filter(pl.col("path") == path)
    edges = np.arange(int(seen.length_s / window_s + 1e-9) + 1) * (window_s * NS_PER_S)
    counts, _ = np.histogram(arrived["delivered_ns"].to_numpy(), edges, weights=arrived["bytes"].to_numpy())
    return counts * (8 / window_s)


@observation("goodput_quantile", "messages")
def goodput_quantile(seen: Seen, flow: str, q: float, window_s: float = 1.0, path: str = "") -> float:
    """Mbit/s that a share `q` of the windows does not exceed."""
    return quantile(windows_bps(seen, flow, window_s, path), q) / 1e6


@observation("goodput_share", "messages")
def goodput_share(seen: Seen, flow: str, above_mbps: float, window_s: float = 1.0, from_s: float = 0.0) -> float:
    """Share of the windows, in %, in which more than `above_mbps` arrived."""
    windows = windows_bps(seen, flow, window_s)[round(from_s / window_s) :]
    return 100 * float(np.mean(windows > above_mbps * 1e6)) if windows.size else math.nan


@observation("delay_quantile", "messages")
def delay_quantile(seen: Seen, flow: str, q: float) -> float:
    """One-way delay in ms that a share `q` of the messages does not exceed; infinite where these were lost."""
    return quantile(delays_ms(seen.messages(flow)), q)


@observation("delay_mean", "messages")
def delay_mean(seen: Seen, flow: str) -> float:
    """Mean one-way delay in ms of the messages that arrived."""
    found = arrived_delays_ms(seen.messages(flow))
    return float(found.mean()) if found.size else math.nan


@observation("late_share")
def late_share(seen: Seen, flow: str, limit_ms: float) -> float:
    """Share of the messages, in %, that took longer than `limit_ms` or never came.

    Those that still had time at the end do not count. The flow has to require this deadline, since that is what a run
    counts.
    """
    met, trials = seen.flows[flow].met(limit_ms)
    return 100 * (trials - met) / trials if trials else math.nan


@observation("path_share")
def path_share(seen: Seen, flow: str, path: str) -> float:
    """Share of a flow's packets, in %, that went onto a path."""
    return 100 * seen.flows[flow].share.get(path, math.nan)


@observation("rtt_quantile", "subflows")
def rtt_quantile(seen: Seen, flow: str, q: float, path: str = "") -> float:
    """Smoothed round-trip time in ms that a share `q` of a path's samples, each 100 ms, does not exceed."""
    return quantile(seen.subflows(flow, path)["srtt_ns"].drop_nulls().cast(pl.Float64) * MS_PER_NS, q)


@observation("rtt_mean", "subflows")
def rtt_mean(seen: Seen, flow: str, path: str = "") -> float:
    """Mean of the samples of the smoothed round-trip time in ms."""
    mean = seen.subflows(flow, path)["srtt_ns"].drop_nulls().mean()
    return float(mean) * MS_PER_NS if isinstance(mean, int | float) else math.nan


@observation("gap_mean", "messages")
def gap_mean(seen: Seen, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Mean time in s between messages that arrive from `from_s` to `to_s`."""
    gaps = arrival_gaps_s(seen, flow, from_s, to_s)
    return float(gaps.mean()) if gaps.size else math.nan


@observation("gap_sd", "messages")
def gap_sd(seen: Seen, flow: str, from_s: float = 0.0, to_s: float = math.inf) -> float:
    """Standard deviation of the time in s between messages that arrive from `from_s` to `to_s`."""
    gaps = arrival_gaps_s(seen, flow, from_s, to_s)
    return float(gaps.std(ddof=1)) if gaps.size > 1 else math.nan


def arrival_gaps_s(seen: Seen, flow: str, from_s: float, to_s: float) -> NDArray[np.float64]:
    """Times in s between one message's arrival and the next, of those that arrive from `from_s` to `to_s`."""
    arrived = seen.messages(flow)["delivered_ns"].drop_nulls().sort().to_numpy() / NS_PER_S
    return np.diff(arrived[(arrived >= from_s) & (arrived < to_s)])


@observation("delay_share", "messages")
def delay_share(seen: Seen, flow: str, above_ms: float) -> float:
    """Share of the messages that arrived, in %, with a one-way delay above `above_ms`."""
    found = arrived_delays_ms(seen.messages(flow))
    return 100 * float(np.mean(found > above_ms)) if found.size else math.nan


@observation("delay_count", "messages")
def delay_count(seen: Seen, flow: str, above_ms: float) -> float:
    """Number of messages that arrived with a one-way delay above `above_ms`."""
    return float(np.sum(arrived_delays_ms(seen.messages(flow)) > above_ms))


@observation("delay_peak", "messages")
def delay_peak(seen: Seen, flow: str) -> float:
    """The largest one-way delay in ms of a message that arrived."""
    found = arrived_delays_ms(seen.messages(flow))
    return float(found.max()) if found.size else math.nan


_LINK = {"rate": ("rate_bps", 1e-6), "delay": ("delay_ns", MS_PER_NS)}
"""Columns of a link's state and what brings them to Mbit/s and ms."""


def link_state(seen: Seen, path: str, direction: str, what: str) -> NDArray[np.float64]:
    """A link's `rate` in Mbit/s or `delay` in ms each 100 ms, as it was configured at that time."""
    column, factor = _LINK[what]
    rows = seen.table("links").filter(pl.col("path") == path, pl.col("direction") == direction)
    return rows[column].drop_nulls().cast(pl.Float64).to_numpy() * factor


@observation("link_mean", "links")
def link_mean(seen: Seen, path: str, direction: str, what: str) -> float:
    """Mean of a link's `rate` (Mbit/s) or `delay` (ms), halts included."""
    found = link_state(seen, path, direction, what)
    return float(found.mean()) if found.size else math.nan


@observation("link_quantile", "links")
def link_quantile(seen: Seen, path: str, direction: str, what: str, q: float) -> float:
    """Quantile `q` of the samples of a link's `rate` (Mbit/s) or `delay` (ms)."""
    return quantile(link_state(seen, path, direction, what), q)


@observation("link_count", "links")
def link_count(seen: Seen, path: str, direction: str, what: str, above: float) -> float:
    """Number of times that a link's `rate` (Mbit/s) or `delay` (ms) rises above a value."""
    over = link_state(seen, path, direction, what) > above
    return float(np.sum(np.diff(over.astype(np.int8), prepend=0) == 1))


def wire_delays_ms(seen: Seen, flow: str, path: str) -> NDArray[np.float64]:
    """Delays in ms of a flow's data packets that arrived, from the sender's interface on, of one path if named."""
    rows = seen.table("packets").filter(
        pl.col("flow") == flow, pl.col("kind") == "data", pl.col("out_ns").is_not_null(), pl.col("cause").is_null()
    )
    if path:
        rows = rows.filter(pl.col("path") == path)
    return (rows["out_ns"] - rows["in_ns"]).to_numpy() * MS_PER_NS


@observation("wire_delay_mean", "packets")
def wire_delay_mean(seen: Seen, flow: str, path: str = "") -> float:
    """Mean one-way delay in ms of a flow's data packets, from the sender's interface on."""
    found = wire_delays_ms(seen, flow, path)
    return float(found.mean()) if found.size else math.nan


@observation("wire_delay_count", "packets")
def wire_delay_count(seen: Seen, flow: str, above_ms: float, path: str = "") -> float:
    """Number of a flow's data packets that took longer than `above_ms` from the sender's interface on."""
    return float(np.sum(wire_delays_ms(seen, flow, path) > above_ms))


def resent_rates(seen: Seen, flow: str, path: str, window_s: float, segment_bytes: float) -> NDArray[np.float64]:
    """Share (0 to 1) of a path's segments that were sent again, in each whole window in which any were.

    What was sent is taken for what was acknowledged in the window and what was sent again.
    """
    rows = seen.subflows(flow, path)
    windows = (rows["time_ns"].to_numpy() - 1) // int(window_s * NS_PER_S)
    many = int(seen.length_s / window_s + 1e-9)
    inside = (windows >= 0) & (windows < many)
    again, acked = (
        np.bincount(windows[inside], rows[column].to_numpy()[inside].astype(float), minlength=many)
        for column in ("retransmitted", "acked_bytes")
    )
    sent = acked / segment_bytes + again
    return again[sent > 0] / sent[sent > 0]


@observation("resent_mean", "subflows")
def resent_mean(seen: Seen, flow: str, path: str, window_s: float = 1.0, segment_bytes: float = 1400) -> float:
    """Mean over the windows of the share of a path's segments, in %, that were sent again."""
    found = resent_rates(seen, flow, path, window_s, segment_bytes)
    return 100 * float(found.mean()) if found.size else math.nan


@observation("resent_quantile", "subflows")
def resent_quantile(
    seen: Seen, flow: str, path: str, q: float, window_s: float = 1.0, segment_bytes: float = 1400
) -> float:
    """Share of a path's segments sent again, in %, that a share `q` of the windows does not exceed."""
    return 100 * quantile(resent_rates(seen, flow, path, window_s, segment_bytes), q)


@observation("resent_time", "subflows")
def resent_time(seen: Seen, flow: str, path: str, window_s: float = 1.0, segment_bytes: float = 1400) -> float:
    """Share of the windows, in %, in which segments were sent again on a path."""
    found = resent_rates(seen, flow, path, window_s, segment_bytes)
    return 100 * float(np.mean(found > 0)) if found.size else math.nan

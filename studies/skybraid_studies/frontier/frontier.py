"""Missed share against overhead: schedulers and bounds over paths measured simultaneously."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import skybraid
from skybraid.model.episodes import RunShare, share_interval
from skybraid_studies.frontier.measurements import DELAY, PAUSE_S, write

if TYPE_CHECKING:
    import numpy.typing as npt

    from skybraid_studies.frontier.measurements import Together

NS_PER_S = 1_000_000_000
BIN_S = 0.2
HEADERS = 28
"""Size of a packet's IPv4 and UDP headers in bytes."""
DRIVEN_DELAY = "30ms"
"""One-way delay of a path with capacity measurements only: the median of the carriers' pings."""
DRIVEN_QUEUE = {"packets": 350}
"""Queue of such a path: that of an LTE modem (Baltaci et al. 2023)."""
GRID_S = 0.01
"""Spacing in s of the times at which the oracle may send."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Traffic of the ground station: messages of constant size and interval."""

    name: str
    every_s: float
    size: int

    @property
    def traffic(self) -> dict[str, str]:
        """Returns the traffic of a scenario's flow."""
        rate = round(8 * self.size / self.every_s)
        return {"kind": "cbr", "rate": f"{rate}bit/s", "packet": f"{self.size}B"}


CONTROL = Pattern("control", 0.01, 1250)
"""Control of 1 Mbit/s in small messages."""
MAVLINK = Pattern("mavlink", 0.04, 33)
"""MANUAL_CONTROL in MAVLink 2 with a signature, at 25 Hz."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a rule over one set of paths.

    Attributes:
        missed: late or lost messages in each bin of each episode, by deadline in ms.
        written: messages in each bin of each episode.
        sent: bytes on all links in both directions, with headers, during the episodes.
        single: bytes of one copy of each message.
        expected: lower end, estimate and upper end of the misses expected by the rule itself; empty if it does not
            estimate them.
    """

    missed: Mapping[int, Sequence[npt.NDArray[np.int64]]]
    written: Sequence[npt.NDArray[np.int64]]
    sent: int
    single: int
    expected: tuple[float, ...] = (math.nan,) * 3


def scenario(measured: Together, files: Sequence[Path], transport: Mapping[str, Any], pattern: Pattern) -> Any:  # noqa: ANN401
    """Returns a scenario that replays measured paths for one control flow from the ground."""
    duration = measured.seconds + PAUSE_S * (len(measured.episodes) + 1)
    tables = {
        "name": "frontier",
        "duration": f"{duration:.1f}s",
        "seed": 1,
        "path": {
            name: {"uplink": link(file, measured.column), "downlink": link(file, measured.column)}
            for name, file in zip(measured.paths, files, strict=True)
        },
        "flow": {"control": {"from": "ground", "traffic": pattern.traffic, "transport": dict(transport)}},
    }
    return skybraid.Scenario.build(tables)


def link(file: Path, column: str) -> dict[str, Any]:
    """Returns one direction of a path with the delays of a file, far from full, or with its capacities."""
    trace = {"trace": str(file), "column": column, "unit": column.partition("[")[2].rstrip("]")}
    if column == DELAY:
        return {"rate": "50Mbit/s", "delay": trace, "queue": "unlimited"}
    return {"rate": trace, "delay": DRIVEN_DELAY, "queue": DRIVEN_QUEUE}


def replay(measured: Together, transport: Mapping[str, Any], pattern: Pattern, deadlines_ms: Sequence[int]) -> Outcome:
    """Runs a transport over measured paths; returns the result."""
    with tempfile.TemporaryDirectory() as folder:
        files, spans = write(measured, Path(folder))
        return outcome(scenario(measured, files, transport, pattern), 1, spans, pattern, deadlines_ms)


def outcome(
    flight: Any,  # noqa: ANN401
    seed: int,
    spans: Sequence[tuple[float, float]],
    pattern: Pattern,
    deadlines_ms: Sequence[int],
) -> Outcome:
    """Runs a scenario with one control flow and counts its messages in some spans."""
    results = skybraid.run(flight, seed=seed, tables=["messages", "packets"])
    messages, packets = results.tables["messages"], results.tables["packets"]
    delay_ms = (messages["delivered_ns"] - messages["sent_ns"]).cast(pl.Float64).fill_null(np.inf).to_numpy() / 1e6
    times = packets["in_ns"].to_numpy()
    sizes = packets["bytes"].to_numpy()
    written, missed = _counted(messages["sent_ns"].to_numpy(), delay_ms, spans, deadlines_ms)
    sent = sum(int(sizes[within(times, span)].sum()) for span in spans)
    forecast = results.flows["control"].forecast or {}
    low, high = forecast.get("misses_so_far_interval", (math.nan, math.nan))
    expected = (low, forecast.get("misses_so_far", math.nan), high)
    return Outcome(missed, written, sent, _single(written, pattern), expected)


def within(times_ns: npt.NDArray[np.int64], span: tuple[float, float]) -> npt.NDArray[np.bool_]:
    """Returns whether each time is in a span in s."""
    start, end = span
    return (times_ns >= start * NS_PER_S) & (times_ns < end * NS_PER_S)


def _counted(
    sent_ns: npt.NDArray[np.int64],
    delay_ms: npt.NDArray[np.float64],
    spans: Sequence[tuple[float, float]],
    deadlines_ms: Sequence[int],
) -> tuple[list[npt.NDArray[np.int64]], dict[int, list[npt.NDArray[np.int64]]]]:
    """Returns messages of each episode, and those late by each deadline, in bins of time."""
    written: list[npt.NDArray[np.int64]] = []
    missed: dict[int, list[npt.NDArray[np.int64]]] = {deadline: [] for deadline in deadlines_ms}
    for start, end in spans:
        inside = within(sent_ns, (start, end))
        bins = round((end - start) / BIN_S)
        places = np.minimum((sent_ns[inside] / NS_PER_S - start) / BIN_S, bins - 1).astype(np.int64)
        written.append(np.bincount(places, minlength=bins))
        for deadline, found in missed.items():
            found.append(np.bincount(places[delay_ms[inside] > deadline], minlength=bins))
    return written, missed


def _single(written: Sequence[npt.NDArray[np.int64]], pattern: Pattern) -> int:
    """Returns the bytes of one copy of each message."""
    return sum(int(each.sum()) for each in written) * (pattern.size + HEADERS)


@dataclass(frozen=True, slots=True)
class Point:
    """Point of the frontier: missed share with its interval by episodes, and overhead."""

    missed: float
    low: float
    high: float
    overhead: float
    messages: int
    misses: int


def point(outcomes: Sequence[Outcome], deadline_ms: int) -> Point:
    """Returns missed share and overhead over several sets of paths."""
    runs = [
        RunShare.of_bins(written, written - missed, BIN_S)
        for outcome in outcomes
        for written, missed in zip(outcome.written, outcome.missed[deadline_ms], strict=True)
    ]
    found = share_interval(runs)
    overhead = sum(each.sent for each in outcomes) / sum(each.single for each in outcomes) - 1
    missed = found.missed / found.trials
    return Point(missed, 1 - found.interval.high, 1 - found.interval.low, overhead, found.trials, found.missed)


def oracle(measured: Together, pattern: Pattern, deadlines_ms: Sequence[int]) -> Outcome:
    """Returns a lower bound on misses: an oracle that knows the future sends each message at most once.

    The oracle may choose the path and any later multiple of the pattern's interval. Packet fates are those of full
    duplication: links are far from full, so traffic does not change them.
    """
    with tempfile.TemporaryDirectory() as folder:
        files, spans = write(measured, Path(folder))
        transport = {"protocol": "udp", "scheduler": "redundant"}
        packets = skybraid.run(scenario(measured, files, transport, pattern), tables=["packets"]).tables["packets"]
    down = packets.filter(pl.col("direction") == "downlink")
    sent_ns = np.unique(down["in_ns"].to_numpy())
    first_ns = np.full(sent_ns.size, np.inf)
    for name in measured.paths:
        copies = down.filter((pl.col("path") == name) & pl.col("cause").is_null() & pl.col("out_ns").is_not_null())
        places = np.searchsorted(sent_ns, copies["in_ns"].to_numpy())
        first_ns[places] = np.minimum(first_ns[places], copies["out_ns"].to_numpy())
    best_ms = (np.minimum.accumulate(first_ns[::-1])[::-1] - sent_ns) / 1e6
    written, missed = _counted(sent_ns, best_ms, spans, deadlines_ms)
    single = _single(written, pattern)
    return Outcome(missed, written, single, single)

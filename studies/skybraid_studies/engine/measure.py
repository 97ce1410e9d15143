"""Records of runs, and measures that read them.

Runs of studies keep no tables. The numbers that experiments need are extracted at the end of each run, so that
thousands of runs fit into little memory and small files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np, pl
from skybraid_studies.engine.observe import RunData, observations

if TYPE_CHECKING:
    from skybraid._core import Run
    from skybraid.model.scenario import Scenario
    from skybraid_studies.engine.experiment import Measure

NS_PER_S = 1e9

Kept = dict[str, Any]
"""Record of a run, in plain values."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Contents of a run's record.

    Attributes:
        checkpoints_s: times at which deliveries are counted, in s.
        receivers: whether deliveries and the time of the last one are recorded per receiver.
        last: whether the time of the last message is recorded.
        times_s: times at which windows are recorded, in s.
        observed: observations, as returned by `Measure.spec`.
    """

    checkpoints_s: tuple[float, ...] = ()
    receivers: bool = False
    last: bool = False
    times_s: tuple[float, ...] = ()
    observed: tuple[str, ...] = ()

    @property
    def tables(self) -> list[str]:
        """Returns the tables required for the record."""
        messages = ["messages"] if self.checkpoints_s or self.receivers or self.last else []
        windows = ["subflows"] if self.times_s else []
        others = [table for spec in self.observed for table in observations()[json.loads(spec)[0]].tables]
        return list(dict.fromkeys([*messages, *windows, *others]))

    def covers(self, other: Recording) -> bool:
        """Whether the record contains another one."""
        return (
            set(self.checkpoints_s) >= set(other.checkpoints_s)
            and set(self.times_s) >= set(other.times_s)
            and self.receivers >= other.receivers
            and self.last >= other.last
            and set(self.observed) >= set(other.observed)
        )

    def __or__(self, other: Recording) -> Recording:
        """Returns the union of both."""
        return Recording(
            tuple(sorted({*self.checkpoints_s, *other.checkpoints_s})),
            self.receivers or other.receivers,
            self.last or other.last,
            tuple(sorted({*self.times_s, *other.times_s})),
            tuple(sorted({*self.observed, *other.observed})),
        )

    def take(self, run: Run, scenario: Scenario | None = None) -> Kept:
        """Returns the record of a run of a scenario."""
        kept: Kept = {
            "simulated_s": run.simulated_s,
            "wall_s": run.wall_s,
            "delay_ms": {stats.flow: stats.delay_quantile(0.5) for stats in [*run.flow_stats(), *run.group_stats()]},
            "bits": {stats.flow: 8 * stats.bytes_delivered for stats in [*run.flow_stats(), *run.group_stats()]},
        }
        data = RunData(run, scenario)
        if self.checkpoints_s or self.receivers or self.last:
            kept |= self._deliveries(data.table("messages"), run.simulated_s)
        if self.times_s:
            kept["windows"] = self._windows(data.table("subflows"))
        for spec in self.observed:
            name, keys = json.loads(spec)
            kept.setdefault("observed", {})[spec] = observations()[name](data, keys)
        return kept

    def _deliveries(self, messages: pl.DataFrame, whole_s: float) -> Kept:
        found: Kept = {}
        arrived = messages.lazy().filter(pl.col("delivered_ns").is_not_null())
        if self.checkpoints_s or self.receivers:
            counted = {}
            for length_s in self.checkpoints_s or (whole_s,):
                until = arrived.filter(pl.col("delivered_ns") <= int(length_s * NS_PER_S))
                rows = until.group_by("flow").agg(pl.col("bytes").sum() * 8, pl.col("delivered_ns").max()).collect()
                counted[f"{length_s:g}"] = {
                    str(flow): [int(bits), last / NS_PER_S] for flow, bits, last in rows.iter_rows()
                }
            found["delivered"] = counted
        if self.last:
            rows = (
                messages.lazy()
                .group_by("flow")
                .agg(
                    pl.col("sent_ns").min(),
                    pl.col("delivered_ns").max(),
                    pl.col("delivered_ns").null_count().alias("missing"),
                )
                .collect()
            )
            found["transfers"] = {
                str(flow): math.inf if missing else (last - first) / NS_PER_S
                for flow, first, last, missing in rows.iter_rows()
            }
        return found

    def _windows(self, subflows: pl.DataFrame) -> dict[str, dict[str, dict[str, list[float]]]]:
        """Returns windows in bytes by flow, side and path at the times, summed over the subflows that sent data."""
        at_ns = np.array([int(time_s * NS_PER_S) for time_s in self.times_s])
        found: dict[str, dict[str, dict[str, list[float]]]] = {}
        keys = [column for column in ("flow", "side", "path", "subflow") if column in subflows.columns]
        for group, rows in subflows.sort("time_ns").group_by(keys, maintain_order=True):
            if rows["acked_bytes"].sum() == 0:
                continue
            named = dict(zip(keys, group, strict=True))
            times = rows["time_ns"].to_numpy()
            place = np.searchsorted(times, at_ns, side="right") - 1
            windows = rows["cwnd_bytes"].cast(pl.Float64).to_numpy()
            # A subflow has no window before its first sample and after its end.
            values = np.where((place >= 0) & (at_ns <= times[-1] + _SAMPLE_NS), windows[np.maximum(place, 0)], 0.0)
            of_side = found.setdefault(str(named["flow"]), {}).setdefault(str(named["side"]), {})
            path = str(named.get("path"))
            of_side[path] = (np.array(of_side.get(path, np.zeros(len(at_ns)))) + values).tolist()
        return found


_SAMPLE_NS = 150_000_000
"""Sampling interval of windows in ns."""


def needed(
    measure: Measure, x: float, checkpoints_s: Sequence[float], times_s: Sequence[float], *, both: bool
) -> Recording:
    """Returns the record required by a measure at a sweep's value, for an experiment's checkpoints and times in s.

    `both` includes both estimators of goodput, for comparison with published numbers.
    """
    if measure.is_observation:
        return Recording(observed=(measure.spec(x),))
    match measure.kind:
        case "goodput":
            return Recording(tuple(sorted(checkpoints_s)), both or measure.estimator == "last_byte")
        case "delay":
            return Recording()
        case "transfer_time":
            return Recording(last=True)
        case _:
            return Recording(times_s=tuple(sorted(times_s)))


def values(
    measure: Measure,
    x: float,
    kept: Kept,
    recording: Recording,
    checkpoints_s: Sequence[float],
    times_s: Sequence[float],
) -> list[float]:
    """Returns the values of a measure at a sweep's value: a single one, or one per time for windows."""
    if measure.is_observation:
        return [float(kept["observed"][measure.spec(x)])]
    match measure.kind:
        case "goodput":
            lengths = list(checkpoints_s) or [float(kept["simulated_s"])]
            if not checkpoints_s and measure.estimator == "run":
                return [float(kept["bits"].get(measure.flow, 0.0)) / lengths[0] / 1e3]
            return [float(np.mean([_goodput_kbps(measure, kept, length) for length in lengths]))]
        case "delay":
            return [float(kept["delay_ms"].get(measure.flow, math.nan))]
        case "transfer_time":
            found = [time for name, time in kept["transfers"].items() if belongs(name, measure.flow)]
            return [max(found, default=math.inf)]
        case _:
            columns = [recording.times_s.index(time) for time in times_s]
            total = np.zeros(len(recording.times_s))
            total += sum(
                np.array(windows)
                for name, by_side in kept["windows"].items()
                if belongs(name, measure.flow)
                for side, by_path in by_side.items()
                if not measure.sides or side in measure.sides
                for path, windows in by_path.items()
                if not measure.paths or any(belongs(path, each) for each in measure.paths)
            )
            return [float(value) for value in total[columns] / measure.segment_bytes]


def _goodput_kbps(measure: Measure, kept: Kept, length_s: float) -> float:
    delivered: Mapping[str, Sequence[float]] = kept["delivered"][f"{length_s:g}"]
    of_flow = [each for name, each in delivered.items() if belongs(name, measure.flow)]
    if not of_flow:
        return 0.0
    bits = sum(each[0] for each in of_flow)
    seconds = length_s if measure.estimator == "run" else float(np.mean([each[1] for each in of_flow]))
    return bits / seconds / 1e3


def belongs(name: str, group: str) -> bool:
    """Whether a flow, path or link is in a group, or is the group itself."""
    return name == group or name.startswith(f"{group}.")

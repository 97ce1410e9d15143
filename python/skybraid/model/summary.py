"""Summary of a flow over one or many runs: goodput, delay, losses, shares of the paths."""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypeVar

from skybraid._core import FlowStats
from skybraid.model.formatting import count, frames_a_second, freezes_a_minute, milliseconds, percent, rate, span
from skybraid.model.heavy import np
from skybraid.model.misses import counted
from skybraid.model.requirements import Requirement, a_second
from skybraid.model.statistics import median_interval

PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "p99.999": 0.99999}
"""Delay percentiles that are reported, by name."""

TOTALS = (
    "sent",
    "delivered",
    "lost",
    "refused",
    "in_flight",
    "held_messages",
    "held_total_s",
    "held_longest_s",
    "window_blocked_s",
    "window_blocked_times",
    "holding_s",
    "reinjections",
    "opportunistic_retransmissions",
)
"""What adds up over runs, by name; of `held_longest_s` the longest counts."""

VIDEO_COUNTS = ("frames", "frames_shown", "frames_intact")
"""Columns of tables that count a video's frames."""

VIDEO_MEASURES = (
    "intact_share",
    "frame_rate",
    "worst_frame_rate",
    "freezes_per_minute",
    "frame_latency_p50_ms",
    "frame_latency_p95_ms",
    "frame_latency_p99_ms",
)
"""Columns of tables that measure a video."""

FRAMES_IN_TIME = ("frames_within_ms", "frames_met", "frames_due", "frames_in_time")
"""Columns of tables that say which share of a video's frames was shown undamaged in time."""

T = TypeVar("T")

_TAIL_POINTS_PER_DECADE = 24


@dataclass(frozen=True, slots=True)
class FlowSummary:
    """Summary of a flow over all runs: `TOTALS` are summed, all other values are medians over the runs.

    Attributes:
        sent: messages passed on by the application.
        delivered: messages that arrived whole.
        lost: messages that never will.
        refused: of the lost messages, those that were not sent for want of room or time.
        in_flight: messages undecided at the end, which count neither way.
        goodput_bps: application data that arrived, in bit/s.
        delay_ms: one-way delay percentiles of the messages that arrived, in ms; None where nothing arrived.
        lost_by_cause: packets with the flow's data that the links lost, by cause; some of them were recovered by a
            retransmission or a copy.
        share: share of the packets with the flow's data that were sent on each path, 0 to 1.
        won: share of the messages that each path brought first, 0 to 1.
        held_messages: messages that lay whole in the receiver's buffer behind something missing: head-of-line blocking.
        held_total_s: for how long they did, each one's time added up, in s.
        held_longest_s: for how long one did at most, in s; over several runs the longest of all.
        window_blocked_s: time for which the peer's receive window held back data for which a path had room, in s.
        window_blocked_times: number of such periods.
        holding_s: time for which the receiver of an MPTCP connection held data of any subflow behind a gap, in s.
        reinjections: chunks offered to another path because theirs failed.
        opportunistic_retransmissions: chunks sent again on a faster path because the peer's window was blocked.
        interval: with several runs, the 95 % interval of each median in the same nesting (None below six runs).
        delay_tail: (delay in ms, share of the messages that took longer) over all runs, from the median's side to
            the last message.
        video: counts of frames of a video flow, over all runs: `frames`, `complete`, `intact` (shown
            undamaged), `shown`, `latency_ms` (p50, p95, p99, p999, max), `frame_rate`, `worst_frame_rate` (in a
            second), `freezes`, `freezes_per_minute`, `frozen_s`, `longest_gap_s`.
        misses: misses by cause, over all runs: an entry for each deadline, with `metric` (share or frames),
            `deadline_ms` (None: never arrived, or never shown undamaged) and `causes` (cause, path, effect, count).
        forecast: the share of its last messages that the scheduler `deadline` expected in time, over all runs:
            `within_ms`, `wanted`, `expected`, `overhead`, `best`, `best_overhead` (copies on all paths) and `words`;
            of all messages, `misses_so_far` that it expected, and `min_misses_so_far` (copies on all paths);
            `expected_interval` and so on are the 95 % intervals.
    """

    sent: int
    delivered: int
    lost: int
    in_flight: int
    goodput_bps: float
    delay_ms: dict[str, float | None]
    lost_by_cause: dict[str, float]
    share: dict[str, float]
    won: dict[str, float]
    refused: int = 0
    held_messages: int = 0
    held_total_s: float = 0.0
    held_longest_s: float = 0.0
    window_blocked_s: float = 0.0
    window_blocked_times: int = 0
    holding_s: float = 0.0
    reinjections: int = 0
    opportunistic_retransmissions: int = 0
    interval: dict[str, Any] | None = None
    delay_tail: list[tuple[float, float]] = field(default_factory=list)
    video: dict[str, Any] | None = None
    misses: list[dict[str, Any]] = field(default_factory=list)
    forecast: dict[str, Any] | None = None

    def __repr__(self) -> str:
        delays = ", ".join(
            f"{name} {milliseconds(delay)}" for name, delay in self.delay_ms.items() if delay is not None
        )
        found = f"{count(self.delivered)} of {count(self.sent)} messages, {rate(self.goodput_bps)}"
        return f"FlowSummary({found}{', delay ' if delays else ''}{delays})"

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Reads the output of `to_dict`."""
        tail = [(float(delay), float(share)) for delay, share in values["delay_tail"]]
        return cls(**(values | {"delay_tail": tail}))


@dataclass(frozen=True, slots=True)
class Flight:
    """One run of a scenario.

    Attributes:
        seed: root of its random streams.
        simulated_s: simulated time in s.
        packet_hops: packets that a link was offered.
        flows: summaries of the flows.
        requirements: each requirement judged on this run alone.
        links: totals of each link direction: path, direction, delivered, delivered_bytes, lost_<cause>.
        emulation: accuracy of real time, and the implementation of each flow, where it was emulated: `lateness_us`
            (p50, p99, p99.9, max), `early_share`, `emulator_losses`, `doubtful`, `stacks`, `connections`,
            `interrupted` (it was ended early); of programs also `programs`.
        members: summaries of the single flows of each flow with a count.
    """

    seed: int
    simulated_s: float
    packet_hops: int
    flows: dict[str, FlowSummary]
    requirements: tuple[Requirement, ...]
    links: list[dict[str, Any]]
    emulation: dict[str, Any] | None = None
    members: dict[str, FlowSummary] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Flight(seed {self.seed}, {span(self.simulated_s)}; flows: {', '.join(self.flows) or 'none'})"

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return {
            "seed": self.seed,
            "simulated_s": self.simulated_s,
            "packet_hops": self.packet_hops,
            "flows": {name: flow.to_dict() for name, flow in self.flows.items()},
            "requirements": [requirement.to_dict() for requirement in self.requirements],
            "links": self.links,
            "emulation": self.emulation,
            "members": {name: flow.to_dict() for name, flow in self.members.items()},
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Reads the output of `to_dict`."""
        return cls(
            values["seed"],
            values["simulated_s"],
            values["packet_hops"],
            {name: FlowSummary.from_dict(flow) for name, flow in values["flows"].items()},
            tuple(Requirement.from_dict(requirement) for requirement in values["requirements"]),
            values["links"],
            values.get("emulation"),
            {name: FlowSummary.from_dict(flow) for name, flow in values.get("members", {}).items()},
        )


def one_run(stats: FlowStats) -> FlowSummary:
    """A flow in one run, without its tail."""
    return FlowSummary(
        goodput_bps=stats.goodput_bps,
        delay_ms={name: _finite(stats.delay_quantile(q)) for name, q in PERCENTILES.items()},
        lost_by_cause=dict(stats.lost_by_cause),
        share=dict(stats.share),
        won=dict(stats.won),
        video=stats.video(),
        misses=counted(stats),
        forecast=stats.forecast(),
        **{name: getattr(stats, name) for name in TOTALS},
    )


def video_columns(video: Mapping[str, Any] | None) -> dict[str, int | float | None]:
    """Returns `VIDEO_COUNTS` and `VIDEO_MEASURES` of a video; all None for other flows."""
    if video is None:
        return dict.fromkeys((*VIDEO_COUNTS, *VIDEO_MEASURES))
    frames = video["frames"]
    measures = (
        video["intact"] / frames if frames else None,
        *(a_second(video, name) for name in ("frame_rate", "worst_frame_rate", "freezes_per_minute")),
        *(video["latency_ms"][name] for name in ("p50", "p95", "p99")),
    )
    counts = (frames, video["shown"], video["intact"])
    return dict(zip((*VIDEO_COUNTS, *VIDEO_MEASURES), (*counts, *measures), strict=True))


def frames_in_time(stats: FlowStats, within_ms: float | None) -> dict[str, int | float | None]:
    """Returns `FRAMES_IN_TIME` of a flow in one run; all None for a flow without video.

    Args:
        stats: of the flow.
        within_ms: the time that a requirement of the flow names, in ms; without one every frame counts that was taken,
            whenever it was shown.
    """
    met = (0, 0) if within_ms is None else stats.frames_met(within_ms)
    return _in_time(stats.video(), within_ms, *met)


def frames_in_time_of(flight: Flight, name: str) -> dict[str, int | float | None]:
    """Returns `FRAMES_IN_TIME` of a stored run, by its strictest requirement of the flow's frames."""
    named = [
        requirement
        for requirement in flight.requirements
        if requirement.flow == name and requirement.metric == "frames"
    ]
    wanted = min(named, key=lambda requirement: requirement.deadline_ms or 0.0, default=None)
    video = (flight.flows | flight.members)[name].video
    if wanted is None:
        return _in_time(video, None, 0, 0)
    return _in_time(video, wanted.deadline_ms, round((wanted.estimate or 0.0) * wanted.trials), wanted.trials)


def _in_time(
    video: Mapping[str, Any] | None, within_ms: float | None, met: int, due: int
) -> dict[str, int | float | None]:
    if video is None:
        return dict.fromkeys(FRAMES_IN_TIME)
    if within_ms is None:
        met, due = video["intact"], video["frames"]
    return dict(zip(FRAMES_IN_TIME, (within_ms, met, due, met / due if due else None), strict=True))


def video_words(video: Mapping[str, Any]) -> str:
    """Summary of a video's frames in a sentence without full stop."""
    frames, shown = video["frames"], video["shown"]
    if not shown:
        return f"none of {count(frames)} frames was shown"
    latency = video["latency_ms"]
    text = f"{count(shown)} of {count(frames)} frames shown, {percent(video['intact'] / frames)} of all undamaged"
    if video["frame_rate"] is not None:
        often = freezes_a_minute(video["freezes_per_minute"])
        text += f"; {frames_a_second(video['frame_rate'])}, {often}"
    median, tail = milliseconds(latency["p50"]), milliseconds(latency["p99"])
    return f"{text}; from camera to screen {median} (median), {tail} (p99)"


def over_runs(stats: Sequence[FlowStats]) -> FlowSummary:
    """Summarises a flow over runs: totals are summed, other values are medians with intervals."""
    runs = [one_run(run) for run in stats]
    several = len(runs) > 1
    together = pooled(stats)
    return FlowSummary(
        goodput_bps=statistics.median(run.goodput_bps for run in runs),
        delay_ms=_medians([run.delay_ms for run in runs]),
        lost_by_cause=_numbers(_medians([run.lost_by_cause for run in runs])),
        share=_numbers(_medians([run.share for run in runs])),
        won=_numbers(_medians([run.won for run in runs])),
        **{name: getattr(together, name) for name in TOTALS},
        interval={
            "goodput_bps": median_interval([run.goodput_bps for run in runs]),
            "delay_ms": _intervals([run.delay_ms for run in runs]),
            "lost_by_cause": _intervals([run.lost_by_cause for run in runs]),
            "share": _intervals([run.share for run in runs]),
            "won": _intervals([run.won for run in runs]),
        }
        if several
        else None,
        delay_tail=delay_tail(together),
        video=together.video(),
        misses=counted(together),
        forecast=together.forecast(),
    )


def pooled(stats: Sequence[FlowStats]) -> FlowStats:
    """Pools the statistics of all runs."""
    return functools.reduce(lambda all_, one: all_.merge(one), stats)


def delay_tail(stats: FlowStats) -> list[tuple[float, float]]:
    """Complementary distribution of delay: (delay in ms, share that took longer), denser towards the tail."""
    if stats.delivered == 0:
        return []
    decades = math.log10(max(stats.delivered, 10))
    tail = np.logspace(0, -decades, max(int(decades * _TAIL_POINTS_PER_DECADE), 2))
    body = np.linspace(1, 0.1, 19)
    shares = np.unique(np.concatenate([tail, body]))[::-1]
    points = [(stats.delay_quantile(float(max(1 - share, 0))), float(share)) for share in shares]
    return [(round(delay, 6), share) for delay, share in points if math.isfinite(delay)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _medians(runs: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    return _each(runs, lambda values: statistics.median(values) if values else None)


def _intervals(runs: Sequence[Mapping[str, float | None]]) -> dict[str, Any]:
    return _each(runs, median_interval)


def _each(runs: Sequence[Mapping[str, float | None]], summarise: Callable[[list[float]], T]) -> dict[str, T]:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: summarise([value for run in runs if (value := run.get(name)) is not None]) for name in names}

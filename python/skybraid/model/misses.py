"""Causes of misses: why messages and frames were late or lost, as counted by the engine.

Every miss has one cause, and the counts add up to all misses (`docs/explain.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from skybraid.model.formatting import count, milliseconds, percent, span
from skybraid.model.statistics import Verdict

if TYPE_CHECKING:
    from skybraid._core import FlowStats
    from skybraid.model.requirements import Requirement
    from skybraid.model.summary import FlowSummary

NEVER_ARRIVED = frozenset({"lost", "refused", "expired", "unsent"})
"""Causes of messages that never arrived, which have no delay."""

_EFFECTS = {
    "queue": "a full queue",
    "random": "random loss",
    "burst": "a burst of losses",
    "handover": "handover",
    "outage": "an outage",
    "mtu": "its MTU",
    "unknown": "an unknown effect",
}

_ON_A_PATH = {
    "queue": "delayed by the queue of {path}",
    "halt": "delayed by a halt of {path}",
    "propagation": "delayed by transmission and propagation on {path}",
    "link": "delayed on {path}",
}

_ELSEWHERE = {
    "order": "delayed by waiting for earlier data",
    "sender": "delayed by waiting at the sender",
    "refused": "refused at the sender, whose queue was full",
    "expired": "dropped at the sender, where their deadline passed",
    "unsent": "not sent by the end",
    "proxy": "delayed or lost behind a proxy",
    "reference": "complete, but their reference frame was lost",
    "late": "shown too late",
    "skipped": "dropped by the camera before they were sent",
    "unknown": "missed for an unknown cause",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Misses of one cause.

    Attributes:
        cause: its name, as `docs/explain.md` lists them.
        path: the path that it happened on, where it happened on one.
        effect: cause of the loss: queue, random, burst, handover, outage, mtu, or unknown.
        count: misses.
        share: of all misses, 0 to 1.
        words: the cause as the end of a sentence: "lost on leo by handover".
    """

    cause: str
    path: str | None
    effect: str | None
    count: int
    share: float
    words: str

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self)


def counted(stats: FlowStats) -> list[dict[str, Any]]:
    """Misses of a flow by cause, as plain values: one entry per deadline, sorted by count."""
    keys = ("cause", "path", "effect", "count")
    return [
        {
            "metric": metric,
            "deadline_ms": deadline_ms,
            "causes": [dict(zip(keys, cause, strict=True)) for cause in found],
        }
        for metric, deadline_ms, found in stats.all_misses()
    ]


def causes(flow: FlowSummary, metric: str, deadline_ms: float | None) -> list[Cause]:
    """Misses of a flow's messages ("share") or frames ("frames") by cause, most frequent first."""
    for entry in flow.misses:
        wanted = entry["deadline_ms"]
        same = wanted is deadline_ms if wanted is None or deadline_ms is None else abs(wanted - deadline_ms) < 1e-6
        if entry["metric"] == metric and same:
            return _shared(entry["causes"])
    return []


def causes_of(requirement: Requirement, flow: FlowSummary) -> list[Cause]:
    """Misses behind a requirement, by cause.

    Of a share or frames: all misses. Of a percentile: messages that took longer than its limit. Of frame rates and
    freezes: frames that were not shown undamaged. Of a goodput: messages that never arrived.
    """
    if is_short_of_runs(requirement):
        return []
    match requirement.metric:
        case "share" | "continuity" | "availability":
            return causes(flow, "share", requirement.deadline_ms)
        case "integrity":
            return []
        case "percentile" | "expiration":
            found = causes(flow, "share", requirement.deadline_ms)
            return _shared([one.to_dict() for one in found if one.cause not in NEVER_ARRIVED])
        case "frames":
            return causes(flow, "frames", requirement.deadline_ms)
        case "goodput":
            return causes(flow, "share", None)
        case _:
            return causes(flow, "frames", None)


def _shared(entries: Sequence[dict[str, Any]]) -> list[Cause]:
    whole = max(sum(entry["count"] for entry in entries), 1)
    return [
        Cause(entry["cause"], entry["path"], entry["effect"], entry["count"], entry["count"] / whole, _words(**entry))
        for entry in entries
    ]


def _words(cause: str, path: str | None, effect: str | None, **_: object) -> str:
    where = path or "an unknown path"
    by = _EFFECTS.get(effect or "unknown", effect)
    if cause == "lost":
        return f"lost on {where} by {by}"
    if cause == "retransmission":
        return f"retransmitted too late after a loss on {where} by {by}"
    if cause in _ON_A_PATH:
        return _ON_A_PATH[cause].format(path=where)
    return _ELSEWHERE.get(cause, cause)


def main_cause(requirement: Requirement, flow: FlowSummary) -> str | None:
    """Main cause of a requirement that is not met or inconclusive, in one sentence; None where it is met.

    Reads the summary alone.
    """
    if requirement.verdict is Verdict.MET:
        return None
    if is_short_of_runs(requirement):
        return "Main cause: one run gives no interval; run several seeds."
    found = causes_of(requirement, flow)
    total = sum(cause.count for cause in found)
    things = {
        **dict.fromkeys(("share", "frames", "continuity", "availability"), "misses"),
        **dict.fromkeys(("percentile", "expiration"), "late messages"),
        "goodput": "lost messages",
    }
    if not found:
        return f"Main cause: {without_misses(requirement, flow)}."
    first = found[0]
    verb = "was" if first.count == 1 else "were"
    what = things.get(requirement.metric, "damaged frames")
    if requirement.metric in ("freezes", "frame_rate", "worst_frame_rate"):
        seen = without_misses(requirement, flow)
        return f"Main cause: {seen}; {count(first.count)} of {count(total)} {what} {verb} {first.words}."
    if first.cause == "reference" and len(found) > 1:
        behind = f"{first.words}; {count(found[1].count)} were {found[1].words}"
        return f"Main cause: {count(first.count)} of {count(total)} {what} {verb} {behind}."
    return f"Main cause: {count(first.count)} of {count(total)} {what} {verb} {first.words}."


def is_short_of_runs(requirement: Requirement) -> bool:
    """Whether a mean over runs reaches its target and only lacks a second run as evidence."""
    if requirement.low is not None or requirement.estimate is None:
        return False
    match requirement.metric:
        case "goodput" | "frame_rate" | "worst_frame_rate":
            return requirement.estimate >= requirement.target
        case "freezes":
            return requirement.estimate <= requirement.target
        case _:
            return False


def without_misses(requirement: Requirement, flow: FlowSummary) -> str:
    """Reason for a verdict that no miss explains, as the end of a sentence."""
    video = flow.video
    match requirement.metric:
        case "share" | "frames" | "continuity" | "availability" if requirement.trials:
            return "no miss was seen, but the time simulated is too short to prove it"
        case "continuity" | "availability" | "integrity" if requirement.note:
            return requirement.note
        case "share" | "continuity" | "availability":
            return "no message was due within the run"
        case "frames":
            return "no frame was due within the run"
        case "percentile" | "expiration":
            median, tail = flow.delay_ms.get("p50"), flow.delay_ms.get("p99")
            if median is None or tail is None:
                return "no message arrived"
            return f"half of the messages took {milliseconds(median)} or less, 99 % {milliseconds(tail)} or less"
        case "goodput":
            return _goodput(flow)
        case "ssim":
            return "the pictures were not decoded; `skybraid video watch` does that"
        case _ if video is None or not video["shown"]:
            return "no frame was shown"
        case "freezes":
            return (
                f"the picture froze {count(video['freezes'])} times, {span(video['frozen_s'])} in total and "
                f"{span(video['longest_gap_s'])} at the longest"
            )
        case _:
            missing = video["frames"] - video["shown"]
            return f"{count(missing)} of {count(video['frames'])} frames were never shown, and the longest gap was " + (
                span(video["longest_gap_s"])
            )


def _goodput(flow: FlowSummary) -> str:
    waiting = flow.in_flight
    if waiting > 0.01 * max(flow.sent, 1):
        still = f"{count(waiting)} of {count(flow.sent)} messages were still waiting at the end"
        return f"{still}; the paths carry no more than this"
    if flow.window_blocked_s > 0:
        return f"the peer's receive window kept data back for {span(flow.window_blocked_s)}"
    return "nearly all that the application wrote arrived: it offers no more, or the paths let it write no more"


def refusals(flow: FlowSummary) -> str | None:
    """Sentence (without full stop) on messages refused at the sender; None if there were none."""
    if not flow.refused:
        return None
    messages = "1 message was" if flow.refused == 1 else f"{count(flow.refused)} messages were"
    return f"{messages} refused at the sender, {percent(flow.refused / max(flow.sent, 1))} of all"

"""Cards of a run's report: verdict, cause and remedies of each requirement."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skybraid.model.formatting import (
    about,
    count,
    frames_a_second,
    freezes_a_minute,
    milliseconds,
    percent,
    rate,
    upper_percent,
)
from skybraid.model.misses import is_short_of_runs, main_cause
from skybraid.model.provenance import MAX_RUNS
from skybraid.model.requirements import SHOWN
from skybraid.model.scenario import toml_value
from skybraid.model.statistics import Verdict
from skybraid.show.report.ranking import Bar, Column, Estimate

if TYPE_CHECKING:
    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results
    from skybraid.show.explain import FlowExplained, Remedy, UnmetRequirement

_SHARES = ("share", "frames", "ssim", "continuity", "availability", "integrity")

URGENT = (Verdict.NOT_MET, Verdict.INCONCLUSIVE, Verdict.MET)
"""Verdicts by urgency for the reader."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change that may turn a verdict: a sentence, and its command if there is one."""

    words: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """Card of a requirement.

    Attributes:
        flow: name of the flow.
        verdict: met, not met or inconclusive.
        seen: estimate with its unit; a dash without one.
        what: description of the estimate and of the target.
        bar: interval next to the target; None without one.
        ends: ends of the interval, in words.
        cause: sentence on the main cause; empty if the requirement is met.
        family: expectation over all flights of the links' families, if the simulated flights are not representative.
        changes: changes that may turn the verdict.
        heading: heading of the changes.
        full: complete finding in one sentence, with numbers.
        members: results of the members of a group of flows.
    """

    flow: str
    verdict: Verdict
    seen: str
    what: str
    bar: Bar | None
    ends: tuple[str, str]
    cause: str
    family: str
    full: str
    heading: str = ""
    changes: list[Change] = field(default_factory=list)
    members: str = ""


def cards(results: Results, explained: Sequence[FlowExplained]) -> list[Card]:
    """Returns the cards of a result's requirements, unmet ones first.

    Args:
        results: the result.
        explained: explanations from `skybraid.explain`; may be empty.
    """
    reasons = {id(one.requirement): one for flow in explained for one in flow.requirements}
    found = [_card(results, one, reasons.get(id(one))) for one in results.requirements]
    return sorted(found, key=lambda card: URGENT.index(card.verdict))


def _card(results: Results, one: Requirement, reason: UnmetRequirement | None) -> Card:
    heading, changes = _changes(results, one, reason)
    cause = one.note or main_cause(one, results.flows[one.flow]) or ""
    return Card(
        one.flow,
        one.verdict,
        "–" if one.estimate is None else SHOWN[one.metric](one.estimate),
        _description(one),
        _bar(one),
        _ends(one),
        _sentence(cause.removeprefix("Main cause: ")),
        _sentence(one.family_words),
        one.words,
        heading,
        changes,
        "" if one.members is None else one.members.words(one.metric),
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _description(one: Requirement) -> str:
    """Describes the measured and the required value."""
    within = "" if one.deadline_ms is None else f" within {milliseconds(one.deadline_ms)}"
    match one.metric:
        case "share":
            return f"of {count(one.trials)} messages arrived{within}; {percent(one.target)} required"
        case "frames":
            return f"of {count(one.trials)} frames shown undamaged{within}; {percent(one.target)} required"
        case "ssim":
            return f"of {count(one.trials)} frames with an SSIM of at least {one.ssim}; {percent(one.target)} required"
        case "percentile":
            limit = milliseconds(one.deadline_ms or 0.0)
            return f"is the longest delay of {percent(one.target)} of the messages that arrived; {limit} allowed"
        case "goodput":
            return f"goodput; {rate(one.target)} required"
        case "frame_rate":
            return f"shown; {frames_a_second(one.target)} required"
        case "worst_frame_rate":
            return f"in the worst second; {frames_a_second(one.target)} required"
        case "expiration":
            limit = milliseconds(one.deadline_ms or 0.0)
            return f"is the longest time of {percent(one.target)} of the transactions that completed; {limit} allowed"
        case "continuity":
            return f"continuity: of {count(one.trials)} transactions completed{within}; {percent(one.target)} required"
        case "availability":
            return f"availability: of {about(one.trials / 1000)}; {percent(one.target)} required"
        case "integrity":
            return f"integrity; {percent(one.target)} required"
        case _:
            return f"seen; at most {freezes_a_minute(one.target)} allowed"


def _bar(one: Requirement) -> Bar | None:
    """Returns the interval next to the target; None without one."""
    if one.estimate is None or one.low is None or one.high is None:
        return None
    scale = "nines" if one.metric in _SHARES else "linear"
    target = (one.deadline_ms or 0.0) if one.metric in ("percentile", "expiration") else one.target
    return Column("", scale, target).bars([Estimate("", one.estimate, one.low, one.high, 0.0)])[0]


def _ends(one: Requirement) -> tuple[str, str]:
    """Describes the ends of the interval."""
    shown = SHOWN[one.metric]
    upper = upper_percent if shown is percent else shown
    return shown(one.low or 0.0), upper(one.high or 0.0)


def _changes(results: Results, one: Requirement, reason: UnmetRequirement | None) -> tuple[str, list[Change]]:
    """Returns the heading and the list of remedies that would change a verdict."""
    if one.verdict is Verdict.MET:
        return "", []
    if is_short_of_runs(one):
        return "What would decide it", [Change("Run several seeds.", _with_seeds(results, 10))]
    found: list[Change] = []
    runs = one.needed_runs
    if runs is not None:
        command = _with_seeds(results, runs) if 1 < runs <= MAX_RUNS else ""
        found.append(Change(_sentence(f"{one.decided_by()} would decide it."), command))
    if reason is None or (one.missed == 0 and not reason.causes):
        # Without misses, another transport cannot improve anything.
        return ("What would decide it" if found else ""), found
    if reason.remedies:
        tried = [Change(_tried(remedy), _with(results, remedy.changes)) for remedy in reason.remedies]
        notes = [Change(_sentence(f"{note}.")) for note in reason.notes]
        return "What would change it, found by runs", [*found, *tried, *notes]
    untried = [Change(_sentence(f"{one.words}."), _with(results, one.changes)) for one in reason.proposals]
    if untried:
        return "What may change it (not run yet)", [*found, *untried]
    return ("What would decide it" if found else ""), found


def _tried(remedy: Remedy) -> str:
    if not remedy.changes:
        return _sentence(f"{remedy.words}.")
    return f"{'Helps' if remedy.helped else 'Does not help'}: {remedy.words}."


def _with(results: Results, changes: dict[str, object]) -> str:
    """Returns the command that repeats the run with some keys replaced."""
    if not changes:
        return ""
    sets = [f"--set {shlex.quote(f'{key}={toml_value(value)}')}" for key, value in changes.items()]
    return " ".join([str(results.provenance["replay"]), *sets])


def _with_seeds(results: Results, runs: int) -> str:
    """Returns the command for `runs` runs with different seeds; an emulation makes one."""
    if results.driver == "emulation":
        return ""
    words = shlex.split(str(results.provenance["replay"]))
    for option in ("--seed", "--seeds"):
        if option in words:
            place = words.index(option)
            words[place : place + 2] = ["--seeds", f"1..{runs}"]
    return shlex.join(words)

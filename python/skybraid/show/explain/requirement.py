"""Explanation of a requirement that is not met or inconclusive: misses by cause, and remedies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skybraid.model.formatting import count, milliseconds, percent
from skybraid.model.misses import Cause, causes_of, is_short_of_runs, main_cause, refusals, without_misses
from skybraid.model.statistics import Verdict
from skybraid.show.explain.remedies import Budget, Candidate, Remedies, Remedy

if TYPE_CHECKING:
    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results
    from skybraid.model.summary import FlowSummary

MAX_CAUSES = 8
"""Maximum number of causes listed in words; the others are summed up in one line. JSON has all."""

_THINGS = {
    "share": "messages that missed",
    "frames": "frames that missed",
    "percentile": "messages that took longer",
    "goodput": "messages that never arrived",
    "expiration": "transactions that took longer",
    "continuity": "transactions that missed",
    "availability": "transactions that missed",
}


@dataclass(slots=True)
class UnmetRequirement:
    """Explanation of a requirement that is not met or inconclusive.

    Attributes:
        requirement: the requirement with its verdict.
        main_cause: sentence on the main cause.
        misses: number of messages or frames that missed the requirement.
        causes: misses by cause, which add up to `misses`, most frequent first.
        facts: sentences on other limits.
        remedies: changes tested by a run.
        notes: sentences on limits of these runs.
        proposals: untested changes that follow from the causes; empty if remedies were run.
    """

    requirement: Requirement
    main_cause: str
    misses: int
    causes: list[Cause]
    facts: list[str] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    proposals: list[Candidate] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return {
            "requirement": self.requirement.to_dict(),
            "main_cause": self.main_cause,
            "misses": self.misses,
            "causes": [cause.to_dict() for cause in self.causes],
            "facts": self.facts,
            "remedies": [remedy.to_dict() for remedy in self.remedies],
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """Formats the explanation, one line per statement."""
        one = self.requirement
        lines = [f"{one.verdict}: {one.words}", f"  {self.main_cause}"]
        if self.causes:
            lines.append(f"  {_THINGS.get(one.metric, 'frames not shown undamaged')}: {count(self.misses)}")
        lines += [_line(cause) for cause in self.causes[:MAX_CAUSES]]
        others = self.causes[MAX_CAUSES:]
        if others:
            rest = sum(cause.count for cause in others)
            lines.append(f"    {count(rest)} ({percent(rest / self.misses)}) {len(others)} other causes")
        lines += [f"  {fact}" for fact in self.facts]
        for heading, helped in (("what would have helped", True), ("what would not have helped", False)):
            tried = [remedy.words for remedy in self.remedies if remedy.helped is helped]
            if tried:
                lines += [f"  {heading}:", *(f"    {words}" for words in tried)]
        return lines + [f"  {note}" for note in self.notes]


def _line(cause: Cause) -> str:
    return f"    {count(cause.count)} ({percent(cause.share)}) {cause.words}"


def unmet(
    results: Results, scenario: dict[str, Any], flow: str, budget: Budget | None = None
) -> list[UnmetRequirement]:
    """Explains the requirements of a flow that are not met or inconclusive.

    Args:
        results: result to explain.
        scenario: scenario of the result, as a table.
        flow: name of the flow.
        budget: budget of runs that test remedies; None: no runs.
    """
    summary = results.flows[flow]
    found = []
    for requirement in results.requirements:
        if requirement.flow != flow or requirement.verdict is Verdict.MET:
            continue
        causes = causes_of(requirement, summary)
        one = UnmetRequirement(
            requirement,
            main_cause(requirement, summary) or "",
            sum(cause.count for cause in causes),
            causes,
            _facts(requirement, summary),
        )
        if not is_short_of_runs(requirement):
            remedies = Remedies(results, scenario, requirement, causes, budget or Budget())
            if budget is None:
                one.proposals = remedies.proposed()
            else:
                one.remedies, one.notes = remedies.found()
        found.append(one)
    return found


def _facts(requirement: Requirement, flow: FlowSummary) -> list[str]:
    facts = []
    if requirement.metric not in (
        "share",
        "frames",
        "continuity",
        "availability",
        "integrity",
    ) and not is_short_of_runs(requirement):
        facts.append(without_misses(requirement, flow))
    refused = refusals(flow)
    if refused is not None:
        facts.append(refused)
    if requirement.metric in ("percentile", "expiration") and flow.held_messages:
        held = milliseconds(flow.held_longest_s * 1e3)
        facts.append(f"{count(flow.held_messages)} messages waited for order, {held} at most")
    return facts

"""Markdown tables and lists of a study's page, from the dicts of scorecards or of kept results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skybraid_studies.engine.causes import Status
from skybraid_studies.engine.claims import Holds, Role
from skybraid_studies.engine.scorecard import Checked, interval_text, number, range_text, role_of, why


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats rows (of `Row.to_dict`) as a Markdown table."""
    lines = ["| id | figure | finding | claims held | ours / published | verdict |", "|---|---|---|---|---|---|"]
    for one in rows:
        ratio = one["published"]["median"] if one["published"] else None
        cells = (
            one["id"], one["figure"], one["finding"], _held(one), number(ratio), one["verdict"]
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def by_gateways(rows: Sequence[Mapping[str, Any]], simulated: Sequence[Mapping[str, Any]]) -> str:
    """Formats rows of gateways next to those of the simulator, claim by claim, as a Markdown table."""
    lines = [
        "| id | claim | wanted | published | simulated (95 %) | | by gateways (95 %) | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    others = {(row["id"], claim["words"]): claim for row in simulated for claim in row["claims"]}
    for row in rows:
        for claim in row["claims"]:
            theirs = others.get((row["id"], claim["words"]))
            ours = _of_table(claim)
            sides = ["–", ""] if theirs is None else [interval_text(_of_table(theirs)), theirs["verdict"]]
            # Comparisons are named "SERIES at X" or "SERIES / SERIES at X".
            unplayed = sorted((name for name in row["simulated"] if name in ours.compared), key=len)
            played = [interval_text(ours), ours.verdict]
            if unplayed and all(part.partition(" at ")[0] in unplayed for part in ours.compared.split(" / ")):
                played = ["not played", ""]
            elif unplayed:
                played[0] += f", with {unplayed[-1]} simulated"
            cells = (row["id"], ours.words, range_text(ours.wanted), number(ours.theirs), *sides, *played)
            lines.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _of_table(claim: Mapping[str, Any]) -> Checked:
    low, high = claim["wanted"]
    return Checked(**(dict(claim) | {"wanted": (low, high)}))


SURVIVES = {Holds.YES: "survives", Holds.NO: "does not", Holds.OPEN: "cannot be judged", Holds.FAILED: "failed"}
"""Words for the verdict on a conclusion that is tested again."""


def conclusions(rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats each claim of the rows as a conclusion of the source that `figure` names, as a Markdown table."""
    lines = ["| conclusion | source | survives? | ours (95 %) | theirs | |", "|---|---|---|---|---|---|"]
    for one in rows:
        for claim in one["claims"]:
            checked = _of_table(claim)
            cells = (
                checked.words, one["figure"], SURVIVES[Holds(checked.verdict)], interval_text(checked),
                number(checked.theirs), one["id"],
            )  # fmt: skip
            lines.append("| " + " | ".join(str(cell).replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _named(card: Mapping[str, Any]) -> str:
    return f"`{card['reading']}`{', quick' if card['quick'] else ''}"


_COUNTED = (
    ("claims of the paper", Role.FINDING, False),
    ("experiments", Role.FINDING, True),
    ("fits: claims for which a number was chosen", Role.FIT, False),
    ("checks: the product against itself", Role.CHECK, False),
)
"""Rows of a headline: words, role, and whether experiments or claims are counted."""


def counted(rows: Sequence[Mapping[str, Any]], role: Role, *, experiments: bool) -> tuple[int, int]:
    """Returns the numbers of claims of a role that hold, and of all; or of experiments with such claims.

    Our own experiments, which are in no paper, do not count as experiments.
    """
    if experiments:
        own = [row for row in rows if role_of(claim["role"] for claim in row["claims"]) == role and not row["further"]]
        return sum(row["verdict"] == Holds.YES for row in own), len(own)
    found = [claim for row in rows for claim in row["claims"] if claim["role"] == role]
    return sum(claim["verdict"] == Holds.YES for claim in found), len(found)


def headline(cards: Sequence[Mapping[str, Any]]) -> str:
    """Formats the numbers of claims that hold in several readings of a study, side by side, as a Markdown table."""
    lines = [f"| hold | {' | '.join(map(_named, cards))} |", "|---|" + "---|" * len(cards)]
    for words, role, experiments in _COUNTED:
        found = [counted(card["rows"], role, experiments=experiments) for card in cards]
        if any(total for _, total in found):
            cells = (f"{held} of {total}" if total else "–" for held, total in found)
            lines.append(f"| {words} | {' | '.join(cells)} |")
    failed = [sum(row["verdict"] == Holds.FAILED for row in card["rows"]) for card in cards]
    if any(failed):
        lines.append(f"| experiments whose runs failed | {' | '.join(map(str, failed))} |")
    for status in Status:
        many = [sum(claim["status"] == status for row in card["rows"] for claim in row["claims"]) for card in cards]
        if any(many):
            lines.append(f"| claims that do not hold, {status} | {' | '.join(map(str, many))} |")
    return "\n".join(lines) + "\n"


def total(cards: Mapping[str, Mapping[str, Any]]) -> str:
    """Formats the numbers of claims that hold in several studies, in their default readings, as a Markdown table."""
    lines = [
        "| study | reading | experiments that hold | claims that hold | open claims | fits | checks |",
        "|---|---|---|---|---|---|---|",
    ]
    every: list[Mapping[str, Any]] = []
    for name, card in cards.items():
        lines.append(f"| {name} | {_named(card)} | {_total(card['rows'])} |")
        every += card["rows"]
    lines.append(f"| **all** | | {_total(every)} |")
    return "\n".join(lines) + "\n"


def _total(rows: Sequence[Mapping[str, Any]]) -> str:
    kinds = ((Role.FINDING, True), (Role.FINDING, False), (Role.FIT, False), (Role.CHECK, False))
    found = [counted(rows, role, experiments=experiments) for role, experiments in kinds]
    cells = [f"{held} of {all_}" if all_ else "–" for held, all_ in found]
    cells.insert(2, str(sum(claim["status"] == Status.OPEN for row in rows for claim in row["claims"])))
    return " | ".join(cells)


def explanations(rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats each claim that does not hold or is inconclusive, and each cause once, as Markdown lists."""
    lines: list[str] = []
    causes: dict[str, Mapping[str, Any]] = {}
    by_cause: dict[str, list[str]] = {}
    for one in rows:
        for claim in one["claims"]:
            if claim["verdict"] == Holds.YES:
                continue
            name = claim["cause"]
            text = why(_of_table(claim | {"known": "" if name else claim["known"]}))
            if name:
                causes[name] = claim
                by_cause.setdefault(name, []).append(one["id"])
                text += f" Cause: [{name}](#cause-{name})."
            lines.append(f"- **{one['id']}** {text}")
    if causes:
        lines += ["", "Causes:", ""]
    for name, claim in causes.items():
        ids = ", ".join(dict.fromkeys(by_cause[name]))
        lines.append(f'- <a id="cause-{name}"></a>**{name}** ({claim["status"]}; {ids}): {claim["known"]}')
    return "\n".join(lines) + "\n" if lines else "Every claim holds.\n"


def readings(cards: Sequence[Mapping[str, Any]]) -> str:
    """Formats the median ratios of several scorecards of a study, one per reading, as a Markdown table."""
    words = list(dict.fromkeys(about for card in cards for about in card["comparisons"]))
    lines = [
        "| ours / published, median (95 % interval) | " + " | ".join(map(_named, cards)) + " |",
        "|---|" + "---|" * len(cards),
    ]
    for about in words:
        cells = [_median(card["comparisons"].get(about)) for card in cards]
        lines.append(f"| {about} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _median(found: Mapping[str, float] | None) -> str:
    if found is None:
        return "–"
    interval = f" ({number(found['low'])} to {number(found['high'])})" if "low" in found else ""
    return f"{number(found['median'])}{interval}, {found['points']:.0f} points"


def _held(row: Mapping[str, Any]) -> str:
    role = role_of(claim["role"] for claim in row["claims"])
    found = [claim["verdict"] for claim in row["claims"] if claim["role"] == role]
    role_text = {Role.FIT: ", fits", Role.CHECK: ", checks"}.get(role, "")
    return f"{sum(each == Holds.YES for each in found)} of {len(found)}{role_text}"

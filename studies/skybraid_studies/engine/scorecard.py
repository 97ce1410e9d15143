"""Scorecard of a study: the paper's claims next to our results."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np
from skybraid.model.statistics import mean_interval
from skybraid_studies.engine.claims import Holds, Judgement, Line, Role, published_ratios
from skybraid_studies.engine.runner import Form, replay

if TYPE_CHECKING:
    from skybraid_studies.engine.experiment import Experiment
    from skybraid_studies.engine.index import Entry
    from skybraid_studies.engine.runner import Collected, Selection

_APART = 0.05
"""Relative difference above which two ways of counting differ."""

_WITHOUT_PYAV = "It decodes pictures: found no package av, expected it with pip install 'skybraid[video]'."


@dataclass(frozen=True, slots=True)
class Checked:
    """Claim with its verdict.

    Attributes:
        words: words of the paper.
        kind: kind of claim.
        verdict: verdict by the runs.
        compared: description of the deciding comparison.
        comparisons: number of comparisons.
        theirs: number of the paper, or None.
        ours: estimate over the seeds.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        wanted: range with which the interval is compared.
        known: reason for not holding, if known.
        cause: name of this reason among the study's causes, or empty.
        status: certainty of the reason, one of `skybraid_studies.engine.causes.Status`, or empty.
        role: one of `skybraid_studies.engine.claims.Role`.
    """

    words: str
    kind: str
    verdict: str
    compared: str
    comparisons: int
    theirs: float | None
    ours: float | None
    low: float | None
    high: float | None
    wanted: tuple[float | None, float | None]
    known: str
    cause: str = ""
    status: str = ""
    role: str = Role.FINDING

    @property
    def shown(self) -> str:
        """Returns the comparison, its result and the wanted range in words."""
        if self.ours is None:
            return "Its runs failed." if self.verdict == Holds.FAILED else "Nothing to compare."
        return f"{self.compared} is {interval_text(self)}, wanted {range_text(self.wanted)}."


@dataclass(frozen=True, slots=True)
class Row:
    """Row of an experiment.

    The numbers are those of the deciding claim: the first that does not hold, else the first inconclusive one, else the
    first. Checks and fits count only in the absence of findings.

    Attributes:
        id: id of the experiment.
        paper: name of the study.
        figure: figure or section of the paper.
        finding: finding of the paper.
        theirs: number of the paper, or None.
        ours: estimate over the seeds, or None.
        low: lower end of the 95 % interval, or None.
        high: upper end of the 95 % interval, or None.
        ratio: ratio of ours to theirs, or None.
        verdict: verdict over all claims; "failed" if a run failed; "needs video" or "needs hardware" if no run is
            possible.
        why: deciding comparison, known reasons of claims that do not hold, and failures with the command that repeats
            them.
        claims: claims with their verdicts.
        published: comparison with published numbers: `points`, `median` ratio, and the number of points at which our
            way of counting differs from the authors' by more than 5 % (`apart`); None without published numbers.
        reading: reading of the paper.
        quick: whether seeds and durations were reduced.
        seeds: number of seeds.
        wall_s: total time of the runs in s.
        driver: "simulation", "emulation" or "gateway".
        type: type of the experiment in its paper, one of `skybraid_studies.engine.index.TYPES`, or empty.
        replay: command that repeats it.
        failed: number of series without results because a run failed.
        notes: part of `why` that is not about claims.
        figure_file: file of the figure, or empty.
        simulated: series that are simulated since gateways do not support them; empty in other forms.
    """

    id: str
    paper: str
    figure: str
    finding: str
    theirs: float | None
    ours: float | None
    low: float | None
    high: float | None
    ratio: float | None
    verdict: str
    why: str
    claims: tuple[Checked, ...]
    published: dict[str, float] | None
    reading: str
    quick: bool
    seeds: int
    wall_s: float
    driver: str = "simulation"
    type: str = ""
    replay: str = ""
    failed: int = 0
    notes: str = ""
    figure_file: str = ""
    simulated: tuple[str, ...] = ()

    @property
    def role(self) -> Role:
        """Role of the row: finding if any claim is one, else fit, else check."""
        return role_of([claim.role for claim in self.claims])

    @property
    def further(self) -> bool:
        """Whether the experiment is our own, not in the index of the papers' experiments."""
        return not self.type

    @property
    def counted(self) -> list[Checked]:
        """Claims on which the verdict is based."""
        return [claim for claim in self.claims if claim.role == self.role]

    @property
    def held(self) -> int:
        """Number of these claims that hold."""
        return sum(claim.verdict == Holds.YES for claim in self.counted)

    @property
    def unexplained(self) -> bool:
        """Whether a claim does not hold without a known cause."""
        return any(claim.verdict == Holds.NO and not claim.known for claim in self.claims)

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Beside:
    """Published number and ours.

    Attributes:
        id: id of the experiment.
        figure: figure or section of the paper.
        series: name of the series.
        x: x value.
        unit: unit of the numbers.
        theirs: published mean, or None.
        theirs_sd: published standard deviation, or None.
        ours: mean over the seeds, or None.
        low: lower end of the 95 % interval, or None.
        high: upper end of the 95 % interval, or None.
        counted: mean by the authors' way of counting.
        ratio: ratio of `counted` to `theirs`, or None.
    """

    id: str
    figure: str
    series: str
    x: float
    unit: str
    theirs: float | None
    theirs_sd: float | None
    ours: float | None
    low: float | None
    high: float | None
    counted: float | None
    ratio: float | None


def row(
    selection: Selection, experiment: Experiment, collected: Collected, form: Form, entry: Entry | None = None
) -> Row:
    """Judges an experiment; returns its row."""
    lines, failures = collected.lines[experiment.id], collected.failures.get(experiment.id, ())
    judged = [
        claim.judge(lines) if lines.keys() >= set(claim.series) else Judgement(claim, Holds.FAILED, None, 0)
        for claim in experiment.claims
    ]
    checked = tuple(_checked(one, selection) for one in judged)
    # Some claims may be judged, but the experiment is incomplete.
    found = Holds.FAILED if failures else overall([(one.role, one.verdict) for one in checked])
    verdict = f"needs {experiment.lacks}" if experiment.lacks else str(found)
    role = role_of([one.role for one in checked])
    deciding = next((one for one in checked if one.verdict == verdict and one.role == role), None)
    theirs = deciding.theirs if deciding else None
    ours = deciding.ours if deciding else None
    teller = "By gateways" if form is Form.GATEWAY else "Emulated"
    notes = [
        *([selection.note] if selection.note else []),
        *([_WITHOUT_PYAV] if experiment.lacks == "video" and experiment.series else []),
        *(f"{failure.words.rstrip('.')}. Again: `{failure.replay}`." for failure in dict.fromkeys(failures)),
        *(f"{teller}: {note}." for note in collected.notes.get(experiment.id, ())),
    ]
    reasons = [*notes, *(why(one) for one in checked if one.verdict != Holds.YES)]
    return Row(
        id=experiment.id,
        paper=selection.study.paper,
        figure=experiment.figure,
        finding=experiment.finding,
        theirs=theirs,
        ours=ours,
        low=deciding.low if deciding else None,
        high=deciding.high if deciding else None,
        ratio=ours / theirs if ours is not None and theirs else None,
        verdict=verdict,
        why=" ".join(reasons),
        claims=checked,
        published=_published(list(lines.values())),
        reading=selection.reading,
        quick=form.quick,
        seeds=len(form.runs(experiment).seeds),
        wall_s=round(collected.wall_s[experiment.id], 3),
        driver=form.driver,
        type=entry.type if entry else "",
        replay=replay(selection, experiment, form),
        failed=len(failures),
        notes=" ".join(notes),
        simulated=collected.simulated.get(experiment.id, ()),
    )


def missing(entry: Entry, form: Form) -> Row:
    """Returns the row of an experiment of the index without a file."""
    words = f"Missing: no file {entry.paper}/{entry.id}.toml."
    return Row(
        id=entry.id,
        paper=entry.paper,
        figure="",
        finding=entry.line,
        theirs=None,
        ours=None,
        low=None,
        high=None,
        ratio=None,
        verdict=str(Holds.OPEN),
        why=words,
        claims=(),
        published=None,
        reading="",
        quick=form.quick,
        seeds=0,
        wall_s=0.0,
        driver=form.driver,
        type=entry.type,
        replay=f"skybraid reproduce {entry.id}",
        failed=1,
        notes=words,
    )


def role_of(roles: Iterable[str]) -> Role:
    """Returns the common role of claims: findings, else fits, else checks."""
    found = set(roles)
    return next((role for role in (Role.FINDING, Role.FIT, Role.CHECK) if role in found), Role.FINDING)


def overall(claims: Sequence[tuple[str, str]]) -> Holds:
    """Returns the verdict on an experiment from the roles and verdicts of its claims."""
    role = role_of(role for role, _ in claims)
    verdicts = {verdict for each, verdict in claims if each == role}
    order = (Holds.FAILED, Holds.NO, Holds.OPEN, Holds.YES)
    return next((each for each in order if each in verdicts), Holds.OPEN)


def _checked(judgement: Judgement, selection: Selection) -> Checked:
    claim, decisive = judgement.claim, judgement.decisive
    cause = claim.explanation(selection.reading, selection.study.causes) if judgement.verdict is Holds.NO else None
    return Checked(
        words=claim.words,
        kind=claim.kind,
        verdict=str(judgement.verdict),
        compared=decisive.what if decisive else "nothing",
        comparisons=judgement.comparisons,
        theirs=_finite(claim.theirs),
        ours=_finite(decisive.estimate) if decisive else None,
        low=_finite(decisive.low) if decisive else None,
        high=_finite(decisive.high) if decisive else None,
        wanted=(_finite(decisive.at_least), _finite(decisive.at_most)) if decisive else (None, None),
        known=cause.text if cause else "",
        cause=cause.name if cause else "",
        status=str(cause.status) if cause else "",
        role=str(claim.role),
    )


def why(claim: Checked) -> str:
    """Formats a claim with its verdict and the deciding comparison."""
    shown = claim.shown if claim.ours is not None else f"{claim.shown[0].lower()}{claim.shown[1:]}"
    return f"“{claim.words}” {claim.verdict}: {shown} {claim.known}".rstrip()


def interval_text(claim: Checked) -> str:
    """Formats our number with its interval."""
    if claim.low is None or claim.high is None:
        return number(claim.ours)
    return f"{number(claim.ours)} ({number(claim.low)} to {number(claim.high)})"


def range_text(wanted: tuple[float | None, float | None]) -> str:
    """Formats a wanted range."""
    low, high = wanted
    if low is None:
        return f"at most {number(high)}"
    return f"at least {number(low)}" if high is None else f"{number(low)} to {number(high)}"


def _published(lines: Sequence[Line]) -> dict[str, float] | None:
    medians = published_ratios(lines)
    if not medians or not all(math.isfinite(median) for median, _ in medians):
        return None
    apart = [
        abs(float(line.at(x).mean()) / float(line.counted_at(x).mean()) - 1) > _APART
        for line in lines
        for x in line.x
        if x in line.published and line.counted_at(x).mean() > 0
    ]
    return {
        "apart": sum(apart),
        "points": medians[0][1],
        "median": round(math.exp(float(np.mean(np.log([max(m, 1e-12) for m, _ in medians])))), 4),
    }


def median_ratio(collected: Collected, experiments: Sequence[str]) -> dict[str, float] | None:
    """Returns the median ratio of ours to published numbers over several experiments, with its interval.

    The keys are `points`, `median`, `low`, `high`; None without published points.
    """
    lines = [line for name in experiments if name in collected.lines for line in collected.lines[name].values()]
    medians = published_ratios(lines)
    if not medians or not all(math.isfinite(median) for median, _ in medians):
        return None
    numbers = [median for median, _ in medians]
    interval = mean_interval(numbers)
    found = {"points": medians[0][1], "median": float(np.mean(numbers))}
    return found if interval is None else found | {"low": interval.low, "high": interval.high}


def published_points(experiment: Experiment, lines: Mapping[str, Line]) -> list[Beside]:
    """Returns the points of an experiment's series that have published numbers."""
    found = []
    for line in lines.values():
        for x in line.x:
            ours = line.at(x)
            theirs, sd = line.published.get(x, (None, None))
            mean, counted = float(ours.mean()), float(line.counted_at(x).mean())
            interval = mean_interval([float(value) for value in ours]) if np.isfinite(ours).all() else None
            found.append(
                Beside(
                    experiment.id,
                    experiment.figure,
                    line.name,
                    x,
                    experiment.unit,
                    theirs,
                    sd,
                    _finite(mean),
                    interval.low if interval else None,
                    interval.high if interval else None,
                    _finite(counted),
                    counted / theirs if theirs and math.isfinite(counted) else None,
                )
            )
    return found


def csv_text(points: Sequence[Beside]) -> str:
    """Formats points as CSV with a heading, numbers with six digits."""
    names = [each.name for each in fields(Beside)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for point in points:
        values = [getattr(point, name) for name in names]
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])
    return text.getvalue()


def number(value: float | None) -> str:
    """Formats a number with three digits, or a dash; a share in % near 100 with as many as distinguish it from 100."""
    if value is None:
        return "–"
    if 99 < value < 100:
        return f"{100 - float(f'{100 - value:.2g}'):.7g}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

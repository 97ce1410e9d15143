"""Claims: statements of a paper about its figures, in a testable form.

A claim compares numbers of an experiment's series. Every comparison is made for each seed and has a 95 % interval over
the seeds (Student's t of the mean; of its logarithm for ratios). A comparison holds if its interval is within the
wanted range, does not hold if its interval is outside, and is inconclusive otherwise. A claim holds if all its
comparisons do, and does not hold if one of them does not.

The kinds of comparisons, with their keys and defaults:

- `ratio` (`of`, `to`, `at_least`, `at_most`): ratio of one series to another at each x.
- `above` (`of`, `to`, `by` 1): a ratio of at least `by` at each x.
- `equal` (`of`, `to`, `within` 0.1): a ratio between 1 / (1 + within) and 1 + within at each x.
- `difference` (`of`, `to`, `at_least`, `at_most`): difference of two series at each x, in the unit.
- `value` (`of`, `at_least`, `at_most`): value at each x, in the unit.
- `rises`, `falls` (`of`, `tolerance` 0.05, `by` 1): each value may deviate by the tolerance in the wrong direction from
  the previous one; from the first to the last the factor in the right direction is at least `by`.
- `flat` (`of`, `within` 0.1): ratio of each value to the series' mean along x.
- `linear` (`of`, `within` 0.2): ratio of each series to the first, divided by that of their parameters k.
- `fair` (`of`, `at_least` 0.95): Jain's index of the series' values at each x, 1 for equal shares.
- `published` (`of`, `at_least` 0.8, `at_most` 1.25): median over all points of the ratio to the published value.
- `mean`, `peak` (`of`, `at_least`, `at_most`): mean or maximum along x, in the unit.
- `time_of_peak` (`of`, `at_least`, `at_most`): x of the maximum.
- `time_of_level` (`of`, `level`, `at_least`, `at_most`): first x at which the value reaches the level.
- `share_above` (`of`, `to`, `at_least`, `at_most`): share (0 to 1) of x at which one series exceeds another.
- `pooled` (`of`, `to`, `at_least`, `at_most`): ratio of the counts of two series over all flights, in %. Its
  interval is the wider of two on each side: Clopper and Pearson's, for independent messages, which is valid without any
  loss; and a bootstrap over flights, since messages of a flight are correlated.

`of` is a name, or a list of names to compare one by one; `to` is one name, or a list of the same length. A name with
`*` matches several series, in the order of the file. `at` (an x or a list), or the inclusive bounds `from` and `to_x`,
select x; by default all. `words` are those of the paper, and `theirs` its number, if any. A claim that is known not to
hold has a `cause`, the name of a cause of the study's file (`skybraid_studies.engine.causes`), or a text: `known` if
runs explain it, `contradicted` if the paper's own numbers exclude it. Each of these may be a table by reading. `role`
is "finding" (of the paper, the default), "check" (of the simulator), or "fit" (a number was fitted so that it holds);
the `role` of an experiment is the default of its claims.
"""

from __future__ import annotations

import enum
import fnmatch
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skybraid.model.episodes import RunShare, share_interval
from skybraid.model.heavy import np
from skybraid.model.keys import Keys
from skybraid.model.statistics import mean_interval
from skybraid_studies.engine.causes import Cause, Status

if TYPE_CHECKING:
    from numpy.typing import NDArray


UNBOUNDED = math.inf


class Holds(enum.StrEnum):
    """Verdict on a claim."""

    YES = "holds"
    NO = "does not hold"
    OPEN = "cannot be judged"
    FAILED = "failed"


class Role(enum.StrEnum):
    """Subject of a claim: the paper, the simulator, or a fitted number."""

    FINDING = "finding"
    CHECK = "check"
    FIT = "fit"


@dataclass(frozen=True, slots=True)
class Line:
    """Values of a series.

    Attributes:
        name: name of the series.
        x: x values in ascending order.
        values: one row per seed, one column per x; NaN: no value.
        published: the authors' numbers by x.
        k: parameter of the series.
        counted: values computed in the authors' way, if it differs from ours; published numbers are compared with
            these.
        absent: meaning of NaN; if given, runs without a value are left out.
    """

    name: str
    x: tuple[float, ...]
    values: NDArray[np.float64]
    published: Mapping[float, tuple[float, float | None]]
    k: float | None = None
    counted: NDArray[np.float64] | None = None
    absent: str = ""

    def at(self, x: float) -> NDArray[np.float64]:
        """Returns the values of all seeds at an x."""
        return self.values[:, self.x.index(x)]

    def counted_at(self, x: float) -> NDArray[np.float64]:
        """Returns the values of all seeds at an x, computed in the authors' way."""
        return (self.values if self.counted is None else self.counted)[:, self.x.index(x)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Number that a claim bounds.

    Attributes:
        what: description of the comparison.
        estimate: estimate over the seeds.
        low: lower end of the interval; NaN: none.
        high: upper end of the interval; NaN: none.
        at_least: lower end of the wanted range.
        at_most: upper end of the wanted range.
    """

    what: str
    estimate: float
    low: float
    high: float
    at_least: float
    at_most: float

    @property
    def verdict(self) -> Holds:
        """Verdict by the interval and the wanted range."""
        if math.isnan(self.low) or math.isnan(self.high):
            return Holds.OPEN
        if self.at_least <= self.low and self.high <= self.at_most:
            return Holds.YES
        return Holds.NO if self.high < self.at_least or self.low > self.at_most else Holds.OPEN

    @property
    def excess(self) -> float:
        """Distance of the estimate from the range, relative to the size of the range; negative inside."""
        if math.isnan(self.estimate):
            return -math.inf
        below = self.at_least - self.estimate if math.isfinite(self.at_least) else -math.inf
        above = self.estimate - self.at_most if math.isfinite(self.at_most) else -math.inf
        scale = max((abs(bound) for bound in (self.at_least, self.at_most) if math.isfinite(bound)), default=1.0)
        return max(below, above) / (scale or 1.0)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Claim with its verdict.

    Attributes:
        claim: claim.
        verdict: verdict over all comparisons.
        decisive: deciding comparison; None if nothing could be compared.
        comparisons: number of comparisons.
    """

    claim: Claim
    verdict: Holds
    decisive: Comparison | None
    comparisons: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Sentence of the paper and its test; for the attributes see the keys in the module's description."""

    words: str
    kind: str
    of: tuple[str, ...]
    to: tuple[str, ...] = ()
    at: tuple[float, ...] = ()
    x_from: float = -UNBOUNDED
    x_to: float = UNBOUNDED
    at_least: float = -UNBOUNDED
    at_most: float = UNBOUNDED
    by: float = 1.0
    within: float = 0.1
    tolerance: float = 0.05
    level: float = 0.0
    theirs: float = math.nan
    known: str | Mapping[str, str] = ""
    contradicted: str | Mapping[str, str] = ""
    cause: str | Mapping[str, str] = ""
    role: Role = Role.FINDING

    @property
    def series(self) -> tuple[str, ...]:
        """Returns the names of all series of the claim."""
        return (*self.of, *self.to)

    def explanation(self, reading: str, causes: Mapping[str, Cause]) -> Cause | None:
        """Returns the cause for which the claim is known not to hold in a reading, if any."""
        name, excluded, text = (
            one if isinstance(one, str) else one.get(reading, "") for one in (self.cause, self.contradicted, self.known)
        )
        if name:
            return causes[name]
        if excluded:
            return Cause("", Status.CONTRADICTED, excluded)
        return Cause("", Status.EXPLAINED, text) if text else None

    def check_causes(self, causes: Mapping[str, Cause], where: str) -> None:
        """Checks that the study defines the causes of the claim.

        Raises:
            ScenarioError: there is no such cause.
        """
        for name in [self.cause] if isinstance(self.cause, str) else self.cause.values():
            if name and name not in causes:
                Keys({}, where).refuse("cause", name, f"one of {', '.join(causes)}")

    def among(self, names: Sequence[str]) -> Claim:
        """Returns the claim with patterns such as `MPTCP *` replaced by the matching names.

        Patterns in `of` do not match names in `to`, so that nothing is compared with itself.
        """
        to = tuple(found for name in self.to for found in _matching(name, names))
        of = tuple(found for name in self.of for found in _matching(name, names) if "*" not in name or found not in to)
        return replace(self, of=of, to=to)

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str, role: str = Role.FINDING) -> Claim:
        """Parses a claim of an experiment's file; `role` is its default role.

        Raises:
            ScenarioError: a key is missing, unknown or of another type.
        """
        keys = Keys(table, where)
        words = keys.take("words", str)
        kind = keys.take("kind", str)
        if kind not in KINDS:
            keys.refuse("kind", kind, f"one of {', '.join(KINDS)}")
        needs = KINDS[kind].keys
        at: list[float] | float = keys.take("at", (list, float), [])
        claim = cls(
            words=words,
            kind=kind,
            of=_names(keys, "of"),
            to=_names(keys, "to") if "to" in needs else (),
            at=tuple(float(x) for x in (at if isinstance(at, list) else [at])),
            x_from=keys.take("from", float, -UNBOUNDED),
            x_to=keys.take("to_x", float, UNBOUNDED),
            theirs=keys.take("theirs", float, math.nan),
            known=keys.take("known", (str, dict), ""),
            contradicted=keys.take("contradicted", (str, dict), ""),
            cause=keys.take("cause", (str, dict), ""),
            role=take_role(keys, role),
            **{key: keys.take(key, float, default) for key, default in needs.items() if key != "to"},
        )
        keys.done()
        if len(claim.to) > 1 and len(claim.to) != len(claim.of):
            keys.refuse("to", f"{len(claim.to)} series", f"one, or {len(claim.of)} as in `of`")
        return claim

    def judge(self, lines: Mapping[str, Line]) -> Judgement:
        """Judges the claim by the values of the series."""
        found = list(KINDS[self.kind].compare(self, lines))
        verdicts = {comparison.verdict for comparison in found}
        order = (Holds.NO, Holds.OPEN, Holds.YES)
        verdict = next((each for each in order if each in verdicts), Holds.OPEN)
        deciding = [comparison for comparison in found if comparison.verdict is verdict]
        return Judgement(self, verdict, max(deciding, key=lambda one: one.excess, default=None), len(found))

    def chosen(self, line: Line) -> list[float]:
        """Returns the x values of a series to which the claim applies."""
        return [
            x
            for x in line.x
            if self.x_from * (1 - _SAME) <= x <= self.x_to * (1 + _SAME)
            and (not self.at or any(math.isclose(x, other, rel_tol=_SAME) for other in self.at))
        ]


def take_role(keys: Keys, default: str = Role.FINDING) -> Role:
    """Takes the key `role` of a claim or an experiment.

    Raises:
        ScenarioError: there is no such role.
    """
    role: str = keys.take("role", str, default)
    if role not in set(Role):
        keys.refuse("role", role, f"one of {', '.join(Role)}")
    return Role(role)


@dataclass(frozen=True, slots=True)
class _Kind:
    keys: Mapping[str, Any]
    compare: Callable[[Claim, Mapping[str, Line]], Sequence[Comparison]]


_SAME = 1e-9


def _names(keys: Keys, key: str) -> tuple[str, ...]:
    value: str | list[str] = keys.take(key, (str, list))
    return (value,) if isinstance(value, str) else tuple(value)


def _matching(name: str, names: Sequence[str]) -> list[str]:
    return [each for each in names if fnmatch.fnmatchcase(each, name)] if "*" in name else [name]


def _pairs(claim: Claim, lines: Mapping[str, Line]) -> list[tuple[Line, Line]]:
    others = claim.to if len(claim.to) > 1 else claim.to * len(claim.of)
    return [(lines[one], lines[other]) for one, other in zip(claim.of, others, strict=True)]


def mean_comparison(label: str, values: NDArray[np.float64], at_least: float, at_most: float) -> Comparison:
    """Compares the mean over the seeds with a range."""
    if values.size > 1 and np.isposinf(values).all():
        return Comparison(label, math.inf, math.inf, math.inf, at_least, at_most)
    if values.size == 0 or not np.isfinite(values).all():
        return Comparison(label, math.nan, math.nan, math.nan, at_least, at_most)
    interval = mean_interval([float(value) for value in values])
    low, high = interval if interval is not None else (math.nan, math.nan)
    return Comparison(label, float(values.mean()), low, high, at_least, at_most)


def ratio_comparison(
    label: str, above: NDArray[np.float64], below: NDArray[np.float64], at_least: float, at_most: float
) -> Comparison:
    """Compares the geometric mean over the seeds of a ratio with a range; the interval is that of the logarithm."""
    if not (np.isfinite(above).all() and np.isfinite(below).all() and (above > 0).all() and (below > 0).all()):
        return Comparison(label, math.nan, math.nan, math.nan, at_least, at_most)
    logs = mean_comparison(label, np.log(above / below), at_least, at_most)
    return Comparison(label, math.exp(logs.estimate), math.exp(logs.low), math.exp(logs.high), at_least, at_most)


def _present(
    label: str, lines: Sequence[Line], *columns: NDArray[np.float64]
) -> tuple[str, Sequence[NDArray[np.float64]]]:
    """Returns the description, with the number of runs without a value, and the values of the other runs."""
    absent = next((line.absent for line in lines if line.absent), "")
    missing = np.isnan(columns).any(axis=0)
    if not absent or not missing.any():
        return label, columns
    return f"{label}; {absent} in {missing.sum()} of {missing.size} runs", [column[~missing] for column in columns]


def _ratios(at_least: Callable[[Claim], float], at_most: Callable[[Claim], float]) -> Any:  # noqa: ANN401
    def compare(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
        found = []
        for one, other in _pairs(claim, lines):
            for x in claim.chosen(one):
                words = f"{one.name} / {other.name} at {x:g}"
                what, (above, below) = _present(words, (one, other), one.at(x), other.at(x))
                found.append(ratio_comparison(what, above, below, at_least(claim), at_most(claim)))
        return found

    return compare


def _differences(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    return [
        mean_comparison(f"{one.name} − {other.name} at {x:g}", one.at(x) - other.at(x), claim.at_least, claim.at_most)
        for one, other in _pairs(claim, lines)
        for x in claim.chosen(one)
    ]


def _values(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    found = []
    for line in (lines[name] for name in claim.of):
        for x in claim.chosen(line):
            what, (values,) = _present(f"{line.name} at {x:g}", (line,), line.at(x))
            found.append(mean_comparison(what, values, claim.at_least, claim.at_most))
    return found


def _slope(sign: int) -> Callable[[Claim, Mapping[str, Line]], list[Comparison]]:
    def compare(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
        found = []
        for line in (lines[name] for name in claim.of):
            chosen = claim.chosen(line)
            if len(chosen) < 2:
                continue
            # Falling series are compared backwards, so that every ratio has a lower bound.
            along = chosen[::sign]
            found += [
                ratio_comparison(
                    f"{line.name} at {x:g} / at {before:g}", line.at(x), line.at(before), 1 - claim.tolerance, UNBOUNDED
                )
                for before, x in itertools.pairwise(along)
            ]
            ends = f"{line.name} at {along[-1]:g} / at {along[0]:g}"
            found.append(ratio_comparison(ends, line.at(along[-1]), line.at(along[0]), claim.by, UNBOUNDED))
        return found

    return compare


def _flat(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    found = []
    for line in (lines[name] for name in claim.of):
        chosen = claim.chosen(line)
        if len(chosen) < 2:
            continue
        mean = np.mean([line.at(x) for x in chosen], axis=0)
        found += [
            ratio_comparison(
                f"{line.name} at {x:g} / its mean", line.at(x), mean, 1 / (1 + claim.within), 1 + claim.within
            )
            for x in chosen
        ]
    return found


def _linear(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    first, *others = (lines[name] for name in claim.of)
    found = []
    for line in others:
        slope = (line.k or math.nan) / (first.k or math.nan)
        found += [
            ratio_comparison(
                f"{line.name} / {slope:g} × {first.name} at {x:g}",
                line.at(x),
                slope * first.at(x),
                1 / (1 + claim.within),
                1 + claim.within,
            )
            for x in claim.chosen(line)
        ]
    return found


def _fair(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    chosen = [lines[name] for name in claim.of]
    found = []
    for x in claim.chosen(chosen[0]):
        shares = np.array([line.at(x) for line in chosen])
        with np.errstate(invalid="ignore"):
            index = shares.sum(axis=0) ** 2 / (len(chosen) * (shares**2).sum(axis=0))
        found.append(mean_comparison(f"Jain's index at {x:g}", index, claim.at_least, claim.at_most))
    return found


def _published(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    medians = published_ratios([lines[name] for name in claim.of], claim)
    if not medians:
        return []
    what = f"ours / theirs, median of {medians[0][1]} points"
    numbers = np.array([median for median, _ in medians])
    return [ratio_comparison(what, numbers, np.ones_like(numbers), claim.at_least, claim.at_most)]


def published_ratios(lines: Sequence[Line], claim: Claim | None = None) -> list[tuple[float, int]]:
    """Returns, for each seed common to all lines, the median ratio of ours to the published numbers, and its points."""
    points = [
        line.counted_at(x) / line.published[x][0]
        for line in lines
        for x in (line.x if claim is None else claim.chosen(line))
        if x in line.published and line.published[x][0] > 0
    ]
    if not points:
        return []
    # Experiments may differ in their number of seeds; the first seeds, common to all, count.
    common = min(len(point) for point in points)
    median = np.nanmedian if any(line.absent for line in lines) else np.median
    return [(float(median(seed)), len(points)) for seed in np.array([point[:common] for point in points]).T]


def _along(label: str, number: Callable[[Claim, Line, NDArray[np.float64]], float]) -> Any:  # noqa: ANN401
    """Returns a comparison of a number computed from each seed's line."""

    def compare(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
        found = []
        for line in (lines[name] for name in claim.of):
            columns = [line.x.index(x) for x in claim.chosen(line)]
            part = Line(line.name, tuple(line.x[column] for column in columns), line.values[:, columns], {}, line.k)
            numbers = np.array([number(claim, part, seed) for seed in part.values])
            found.append(mean_comparison(f"{line.name}, {label}", numbers, claim.at_least, claim.at_most))
        return found

    return compare


def _time_of_level(claim: Claim, line: Line, values: NDArray[np.float64]) -> float:
    reached = np.nonzero(values >= claim.level)[0]
    return line.x[int(reached[0])] if reached.size else math.inf


def _share_above(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    found = []
    for one, other in _pairs(claim, lines):
        chosen = claim.chosen(one)
        shares = np.mean([one.at(x) > other.at(x) for x in chosen], axis=0)
        found.append(
            mean_comparison(f"share of x with {one.name} above {other.name}", shares, claim.at_least, claim.at_most)
        )
    return found


def pooled_comparison(
    label: str, hits: NDArray[np.float64], trials: NDArray[np.float64], at_least: float, at_most: float
) -> Comparison:
    """Compares a share of the messages of all flights, in %, with a range; both counts have one number per flight."""
    if hits.size < 2 or not (np.isfinite(hits).all() and np.isfinite(trials).all()) or trials.sum() == 0:
        return Comparison(label, math.nan, math.nan, math.nan, at_least, at_most)
    runs = [RunShare.of_counts(round(of), round(hit)) for hit, of in zip(hits, trials, strict=True)]
    share = share_interval(runs)
    return Comparison(
        label, 100 * share.estimate, 100 * share.interval.low, 100 * share.interval.high, at_least, at_most
    )


def _pooled(claim: Claim, lines: Mapping[str, Line]) -> list[Comparison]:
    return [
        pooled_comparison(f"{one.name} at {x:g}", one.at(x), other.at(x), claim.at_least, claim.at_most)
        for one, other in _pairs(claim, lines)
        for x in claim.chosen(one)
    ]


_RANGE = {"at_least": -UNBOUNDED, "at_most": UNBOUNDED}

KINDS: Mapping[str, _Kind] = {
    "ratio": _Kind({"to": (), **_RANGE}, _ratios(lambda claim: claim.at_least, lambda claim: claim.at_most)),
    "above": _Kind({"to": (), "by": 1.0}, _ratios(lambda claim: claim.by, lambda _: UNBOUNDED)),
    "equal": _Kind(
        {"to": (), "within": 0.1}, _ratios(lambda claim: 1 / (1 + claim.within), lambda claim: 1 + claim.within)
    ),
    "difference": _Kind({"to": (), **_RANGE}, _differences),
    "value": _Kind(_RANGE, _values),
    "rises": _Kind({"tolerance": 0.05, "by": 1.0}, _slope(1)),
    "falls": _Kind({"tolerance": 0.05, "by": 1.0}, _slope(-1)),
    "flat": _Kind({"within": 0.1}, _flat),
    "linear": _Kind({"within": 0.2}, _linear),
    "fair": _Kind({"at_least": 0.95, "at_most": UNBOUNDED}, _fair),
    "published": _Kind({"at_least": 0.8, "at_most": 1.25}, _published),
    "mean": _Kind(_RANGE, _along("mean", lambda _, __, values: statistics.fmean(values))),
    "peak": _Kind(_RANGE, _along("largest", lambda _, __, values: float(values.max()))),
    "time_of_peak": _Kind(_RANGE, _along("x of the largest", lambda _, line, values: line.x[int(values.argmax())])),
    "time_of_level": _Kind({"level": 0.0, **_RANGE}, _along("first x at the level", _time_of_level)),
    "pooled": _Kind({"to": (), **_RANGE}, _pooled),
    "share_above": _Kind({"to": (), **_RANGE}, _share_above),
}
"""Kinds of claims with their keys, defaults and comparison functions."""

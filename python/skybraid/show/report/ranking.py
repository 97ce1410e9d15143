"""Rankings: points of a campaign or combinations of algorithms, best first, with their intervals drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skybraid.model.statistics import Verdict, shows_no_difference

TOP = 10
"""Maximum rows shown; further ones are collapsed."""

MAX_ROWS = 500
"""Maximum rows of a ranking."""

_NAMED = 2
"""Maximum number of a row's entries named outside its collapsed part."""

_MIN_WIDTH = 0.05
"""Minimum width of a scale, as a share of its largest value or in decades."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Interval on a line, as positions from 0 to 100 %; None if unknown.

    Attributes:
        low: left end of the interval.
        high: right end of the interval.
        estimate: position of the estimate.
        target: position of the target.
    """

    low: float | None
    high: float | None
    estimate: float | None
    target: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Value of one row in one column.

    Attributes:
        text: estimate with its interval.
        estimate: value; None without one.
        low: lower end of the interval; None without one.
        high: upper end of the interval; None without one.
        goodness: sort key that is larger for better rows.
        verdict: verdict on a requirement.
    """

    text: str
    estimate: float | None
    low: float | None
    high: float | None
    goodness: float
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a ranking.

    Attributes:
        title: heading.
        scale: "nines" for a share, placed by the logarithm of its complement; "log" or "linear".
        target: target; None without a requirement.
    """

    title: str
    scale: str
    target: float | None = None

    def bars(self, seen: Sequence[Estimate]) -> list[Bar]:
        """Returns the bars of the column's intervals on a common scale."""
        known = [value for one in seen for value in (one.estimate, one.low, one.high) if value is not None]
        known += [] if self.target is None else [self.target]
        if not known:
            return [Bar(None, None, None, None)] * len(seen)
        floor = min((1 - value for value in known if value < 1), default=1e-6) / 2
        estimates = [one.estimate for one in seen if one.estimate is not None and one.estimate > 0]
        # An interval that includes zero has no lower end on a logarithmic scale.
        lowest = min(estimates, default=1.0) / 2

        def place(value: float) -> float:
            if self.scale == "nines":
                return -math.log10(max(1 - value, floor))
            return math.log10(max(value, lowest)) if self.scale == "log" else value

        places = [place(value) for value in known]
        # A minimum width keeps values that round to the same text close together.
        min_width = _MIN_WIDTH * (max(map(abs, places)) if self.scale == "linear" else 1.0)
        width = max(max(places) - min(places), min_width) or 1.0
        first = (max(places) + min(places) - width) / 2

        def percent(value: float | None) -> float | None:
            return None if value is None else round(4 + 92 * (place(value) - first) / width, 1)

        return [Bar(percent(one.low), percent(one.high), percent(one.estimate), percent(self.target)) for one in seen]


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry before it is ranked.

    Attributes:
        values: values by axis.
        seen: value in each column.
        replay: command that repeats it.
        seeds: value of each seed's run in the first column, if known.
    """

    values: dict[str, str]
    seen: list[Estimate]
    replay: str = ""
    seeds: Mapping[int, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a ranking: entries with equal values.

    Attributes:
        place: place with its mark.
        words: names of the entries, or of the first one.
        others: names of the other entries, collapsed on the page.
        cells: value in each column.
        replay: command that repeats the first entry.
    """

    place: str
    words: str
    others: list[str]
    cells: list[tuple[Estimate, Bar]]
    replay: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranked rows with their headings."""

    name: str
    columns: list[Column]
    rows: list[Row] = field(default_factory=list)
    entries: int = 0

    @property
    def top(self) -> list[Row]:
        """Rows that are shown."""
        return self.rows[:TOP]

    @property
    def rest(self) -> list[Row]:
        """Rows that are collapsed."""
        return self.rows[TOP:]


def ranked(name: str, columns: list[Column], entries: Sequence[Entry]) -> Ranking:
    """Ranks entries by the number of unmet requirements, then of inconclusive ones, then by the columns in their order.

    Entries that agree in all columns share a row and a place. `≈` marks places with the same verdicts as the first
    whose runs do not differ from its runs of the same seeds.

    Args:
        name: kind of entry: "point", "transport".
        columns: compared columns.
        entries: entries in any order.
    """

    def order(entry: Entry) -> tuple[object, ...]:
        verdicts = [one.verdict for one in entry.seen]
        failed, open_ = verdicts.count(Verdict.NOT_MET), verdicts.count(Verdict.INCONCLUSIVE)
        return (failed, open_, *(-one.goodness for one in entry.seen))

    together: dict[tuple[object, ...], list[Entry]] = {}
    for entry in sorted(entries, key=order):
        key = tuple((one.verdict, one.text, one.estimate) for one in entry.seen)
        together.setdefault(key, []).append(entry)
    groups = list(together.values())

    def mark(entry: Entry) -> str:
        first = groups[0][0]
        pairs = ((value, entry.seeds.get(seed)) for seed, value in first.seeds.items())
        differences = [b - a for a, b in pairs if a is not None and b is not None]
        return " ≈" if order(entry)[:2] == order(first)[:2] and shows_no_difference(differences) else ""

    places = [(f"{at}{mark(group[0]) if at > 1 else ''}", group) for at, group in enumerate(groups, start=1)]
    return placed(name, columns, places)


def placed(name: str, columns: list[Column], groups: Sequence[tuple[str, list[Entry]]]) -> Ranking:
    """Returns a ranking of groups of equal entries, in the order given."""
    shown = groups[:MAX_ROWS]
    bars = [column.bars([group[0].seen[index] for _, group in shown]) for index, column in enumerate(columns)]
    rows = [
        Row(
            place,
            *_named([entry.values for entry in group]),
            [(one, bars[index][number]) for index, one in enumerate(group[0].seen)],
            group[0].replay,
        )
        for number, (place, group) in enumerate(shown)
    ]
    return Ranking(name, columns, rows, sum(len(group) for _, group in groups))


def _named(entries: Sequence[dict[str, str]]) -> tuple[str, list[str]]:
    """Returns a common name, such as "scheduler ecf; delay 20ms, 40ms", for all combinations of the entries' values.

    For an incomplete set of combinations, returns the name of the first one or two, and the names of the others.
    """
    axes = list(entries[0])
    values = {axis: list(dict.fromkeys(entry[axis] for entry in entries)) for axis in axes}
    if "" not in axes and math.prod(len(several) for several in values.values()) == len(entries):
        return "; ".join(f"{axis} {', '.join(several)}" for axis, several in values.items()) or "the scenario", []
    names = [", ".join(f"{axis} {value}".strip() for axis, value in entry.items()) for entry in entries]
    return (" = ".join(names), []) if len(names) <= _NAMED else (names[0], names[1:])

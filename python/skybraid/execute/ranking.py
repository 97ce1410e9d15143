"""Ranks combinations of protocol, scheduler and congestion control, with intervals.

    found = rank("scenarios/remote-piloting.toml", flows=["video"], seeds="1..20")
    print(found.text())

Combinations with identical results share a place. A place is marked as tied with the first if the 95 % interval of its
difference, seed by seed, contains zero.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from skybraid.execute.compare import (
    Choice,
    Combination,
    Names,
    aligned,
    cells_of,
    flown,
    is_of,
    name_of_equals,
    titles_of,
)
from skybraid.model.formatting import milliseconds, percent, percent_range, rate
from skybraid.model.heavy import pl
from skybraid.model.statistics import Verdict, shows_no_difference

if TYPE_CHECKING:
    from skybraid.execute.pool import Progress
    from skybraid.model.requirements import Requirement
    from skybraid.model.scenario import Scenario

SHOWN = 10
"""Places that the text shows; the others are counted."""

_LESS_IS_BETTER = ("percentile", "expiration", "freezes")
_SHARES = ("share", "frames", "continuity", "availability", "ssim", "integrity")
_IN_OTHER_COLUMNS = ("frame_rate", "worst_frame_rate", "freezes", "integrity")
"""What the columns of `compare` show, and what is the same for all combinations."""
_NAMES = tuple(Combination._fields)

REAL = ("deadline_ms", "target", "estimate", "low", "high")
"""Numbers of a requirement that the rows hold; a column for each, with the requirement's number."""


@dataclass(frozen=True, slots=True)
class Place:
    """Combinations with identical results.

    Attributes:
        combinations: the combinations, at least one.
        requirements: requirements judged over all seeds.
        flows: medians over the seeds of each flow's columns, as in `compare`.
        is_tied: whether the runs show no difference from the first place.
    """

    combinations: tuple[Combination, ...]
    requirements: tuple[Requirement, ...]
    flows: tuple[dict[str, Any], ...]
    is_tied: bool

    @property
    def verdict(self) -> Verdict:
        """Worst verdict of the requirements; met if there are none."""
        found = {one.verdict for one in self.requirements}
        worst = (Verdict.NOT_MET, Verdict.INCONCLUSIVE)
        return next((verdict for verdict in worst if verdict in found), Verdict.MET)

    @property
    def outcome(self) -> str:
        """Worst verdict in words; of several requirements, with the number of those that have it."""
        count = sum(one.verdict is self.verdict for one in self.requirements)
        if self.verdict is Verdict.MET or len(self.requirements) == 1:
            return str(self.verdict)
        return f"{count} of {len(self.requirements)} {self.verdict}"

    @property
    def names(self) -> list[str]:
        """Names of the combinations."""
        return [" ".join(name for name in one if name is not None) for one in self.combinations]

    @property
    def name(self) -> str:
        """Names of the combinations as one text."""
        return name_of_equals(self.names)

    def of_flow(self, row: dict[str, Any]) -> list[Requirement]:
        """Returns the requirements of a row's flow that have their own column in the text."""
        return [one for one in self.requirements if one.flow == row["flow"] and one.metric not in _IN_OTHER_COLUMNS]

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return {
            "combinations": [one._asdict() for one in self.combinations],
            "verdict": str(self.verdict),
            "tied": self.is_tied,
            "requirements": [one.to_dict() for one in self.requirements],
            "flows": list(self.flows),
        }


@dataclass(frozen=True, slots=True)
class Ranking:
    """Combinations, best first.

    Attributes:
        frame: the rows of `compare` with `place`, `tied` (with the first), `verdict`, and the flow's requirements
            (`metric_1`, `estimate_1`, `low_1`, …).
        places: places, best first.
        measure: quantity that orders equal verdicts, in words.
        left_out: sentences on the combinations that cannot be run.
    """

    frame: pl.DataFrame
    places: tuple[Place, ...]
    measure: str
    left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return {
            "measure": self.measure,
            "places": [{"place": at} | place.to_dict() for at, place in enumerate(self.places, start=1)],
            "left_out": list(self.left_out),
            "rows": self.frame.to_dicts(),
        }

    def text(self, shown: int | None = SHOWN) -> str:
        """Formats the first `shown` places as a table; all places if None.

        Columns of a flow: estimates of its requirements with 95 % intervals, and the columns of `compare`. `≈` marks
        places that are tied with the first.
        """
        places = self.places[:shown]
        first = self.places[0]
        shares = [name for name in self.frame.columns if name.startswith("share_")][:-1]
        heads = ["", *_NAMES, *(["verdict"] if first.requirements else [])]
        groups = {
            str(row["flow"]): [*(_title(one) for one in first.of_flow(row)), *titles_of(row, shares)[1:]]
            for row in first.flows
        }
        lines = [heads + [title for titles in groups.values() for title in titles]]
        for at, place in enumerate(places, start=1):
            cells = [f"{at}{' ≈' if place.is_tied and at > 1 else ''}"]
            cells += [name or "–" for name in place.combinations[0]]
            cells += [place.outcome] if place.requirements else []
            for row in place.flows:
                cells += [*(_shown(one) for one in place.of_flow(row)), *cells_of(row, shares)[1:]]
            lines.append(cells)
        widths = {flow: len(titles) for flow, titles in groups.items()}
        text = [f"best first: {self.measure}", aligned(lines, len(heads), widths, shared=0)]
        for at, place in enumerate(places, start=1):
            if len(place.combinations) > 1:
                text.append(f"{at}: the same to the last digit: {self._grouped(place.combinations)}")
        if len(places) < len(self.places):
            more = self.places[len(places) :]
            count = sum(len(place.combinations) for place in more)
            text.append(f"and {len(more)} more places ({count} combinations): --all, --json and --out have them")
        if any(place.is_tied for place in self.places[1:]):
            text.append("≈: the runs show no difference from the first")
        return "\n".join([*text, *self.left_out])

    def _grouped(self, combinations: Iterable[Combination]) -> str:
        """Names combinations in groups: the schedulers of a protocol that have the same congestion controls."""
        compared = _controls(one for place in self.places for one in place.combinations)
        groups: dict[tuple[str, frozenset[str]], list[str]] = {}
        for (protocol, scheduler), controls in _controls(combinations).items():
            groups.setdefault((protocol, frozenset(controls)), []).append(scheduler)
        words = []
        for (protocol, shared), schedulers in groups.items():
            every = {control for (name, _), found in compared.items() if name == protocol for control in found}
            chosen = _listed(shared, every)
            with_control = f" with {chosen}" if shared and len(every) > 1 else ""
            words.append(f"{protocol} {', '.join(schedulers)}{with_control}")
        return "; ".join(words)

    def latex(self, shown: int | None = SHOWN) -> str:
        """Formats the first `shown` places as a LaTeX table with booktabs' rules; all places if None."""
        first = self.places[0]
        heads = ["", *_NAMES, *(_head(one) for one in first.requirements)]
        heads += [f"{row['flow']} {name}" for row in first.flows for name in ("p50 [ms]", "p99 [ms]", "Mbit/s")]
        rows = []
        for at, place in enumerate(self.places[:shown], start=1):
            cells = [f"{at}{'≈' if place.is_tied and at > 1 else ''}", *(name or "–" for name in place.combinations[0])]
            cells += [_shown(one) for one in place.requirements]
            for row in place.flows:
                cells += [_number(row["delay_p50_ms"]), _number(row["delay_p99_ms"]), _number(row["goodput_bps"], 1e-6)]
            rows.append(cells)
        return latex_table(heads, rows)


def rank(
    scenario: Scenario | str | os.PathLike[str],
    choice: Choice | None = None,
    *,
    seed: int | None = None,
    seeds: Iterable[int] | str | None = None,
    progress: Progress | None = None,
    **names: Unpack[Names],
) -> Ranking:
    """Runs a scenario with every combination of a choice and ranks them; arguments and errors of `compare`."""
    seen = flown(scenario, choice or Choice(**names), seed, seeds, progress)
    medians = seen.medians()
    judged = [
        (combination, seen.requirements.get(combination, ()), tuple(rows)) for combination, rows in medians.items()
    ]
    judged.sort(key=lambda one: _order(one[1], one[2]))
    merged: list[tuple[list[Combination], tuple[Requirement, ...], tuple[dict[str, Any], ...]]] = []
    for combination, requirements, rows in judged:
        alike = next((one for one in merged if one[1:] == (requirements, rows)), None)
        if alike is None:
            merged.append(([combination], requirements, rows))
        else:
            alike[0].append(combination)
    best = merged[0]
    column, flow, measure = _measure(best[1], best[2])
    first = seen.values(best[0][0], flow, column)
    places = tuple(
        Place(
            tuple(combinations),
            requirements,
            rows,
            is_tied=_verdicts(requirements) == _verdicts(best[1])
            and shows_no_difference(_differences(first, seen.values(combinations[0], flow, column))),
        )
        for combinations, requirements, rows in merged
    )
    return Ranking(_with_places(seen.frame, places), places, measure, seen.left_out)


def _controls(combinations: Iterable[Combination]) -> dict[tuple[str, str], set[str]]:
    """Returns the congestion controls of each protocol and scheduler; none where the protocol has no such control."""
    controls: dict[tuple[str, str], set[str]] = {}
    for protocol, scheduler, congestion in combinations:
        controls.setdefault((protocol, scheduler), set()).update([] if congestion is None else [congestion])
    return controls


def _listed(controls: AbstractSet[str], every: AbstractSet[str]) -> str:
    """Lists congestion controls out of `every`, or those that are missing if they are fewer."""
    missing = every - controls
    if not missing:
        return "every congestion control"
    if len(missing) < len(controls):
        return f"every congestion control but {', '.join(sorted(missing))}"
    return ", ".join(sorted(controls))


def _with_places(frame: pl.DataFrame, places: Sequence[Place]) -> pl.DataFrame:
    """Adds to each row the place of its combination and the requirements of its flow, numbered from 1."""
    of_row: dict[tuple[Any, ...], dict[str, Any]] = {}
    for at, place in enumerate(places, start=1):
        for row in place.flows:
            found: dict[str, Any] = {"place": at, "tied": place.is_tied, "verdict": str(place.verdict)}
            own = [one for one in place.requirements if is_of(row["flow"], one.flow)]
            for number, one in enumerate(own, start=1):
                found |= {f"{name}_{number}": getattr(one, name) for name in ("metric", *REAL)}
                found[f"verdict_{number}"] = str(one.verdict)
            of_row |= {(*combination, row["flow"]): found for combination in place.combinations}
    rows = [of_row[key] for key in frame.select(*_NAMES, "flow").iter_rows()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    types = {name: pl.Float64 for name in names if name.rpartition("_")[0] in REAL}
    return frame.hstack(pl.DataFrame(rows, schema=names, schema_overrides=types, infer_schema_length=None))


def latex_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a LaTeX table with booktabs' rules."""
    lines = [rf"\begin{{tabular}}{{r{'l' * (len(heads) - 1)}}}", r"\toprule", _row(heads), r"\midrule"]
    return "\n".join([*lines, *map(_row, rows), r"\bottomrule", r"\end{tabular}", ""])


def _measure(requirements: Sequence[Requirement], rows: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    """Returns the column and flow that order equal verdicts, and a description of both."""
    for one in requirements:
        if one.metric in ("share", "continuity", "availability"):
            within = "" if one.deadline_ms is None else f" within {milliseconds(one.deadline_ms)}"
            return "within_deadline", one.flow, f"verdicts, then the share of {one.flow} in time{within}"
        if one.metric == "frames":
            return "frames_in_time", one.flow, f"verdicts, then the share of the frames of {one.flow} shown in time"
    if requirements:
        one = requirements[0]
        column = "delay_p99_ms" if one.metric in ("percentile", "expiration") else "goodput_bps"
        return column, one.flow, f"verdicts, then the {one.metric} of {one.flow}"
    return "goodput_bps", str(rows[0]["flow"]), f"goodput of {rows[0]['flow']}"


def _order(requirements: Sequence[Requirement], rows: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    """Returns the sort key: verdicts, estimates in the order of the requirements, goodput, delay."""
    key: list[float] = list(_verdicts(requirements))
    for one in requirements:
        sign = 1.0 if one.metric in _LESS_IS_BETTER else -1.0
        key.append(math.inf if one.estimate is None else sign * one.estimate)
    if requirements:
        delays = [row["delay_p99_ms"] for row in rows]
        return (*key, *(math.inf if delay is None else delay for delay in delays))
    return (*(-row["goodput_bps"] for row in rows), *key)


def _verdicts(requirements: Sequence[Requirement]) -> tuple[float, float]:
    verdicts = [one.verdict for one in requirements]
    return float(verdicts.count(Verdict.NOT_MET)), float(verdicts.count(Verdict.INCONCLUSIVE))


def _differences(first: Sequence[float | None], other: Sequence[float | None]) -> list[float]:
    return [a - b for a, b in zip(first, other, strict=True) if a is not None and b is not None]


def _title(one: Requirement) -> str:
    match one.metric:
        case "share" | "frames" if one.deadline_ms is not None:
            return f"{'frames ' if one.metric == 'frames' else ''}in {one.deadline_ms:g} ms (95 %)"
        case "share":
            return "arrived (95 %)"
        case "percentile":
            return f"{percent(one.target)} take (95 %)"
        case _:
            return f"{one.metric} (95 %)"


def _head(one: Requirement) -> str:
    return f"{one.flow}: {head_of(one.metric, one.deadline_ms)}"


def head_of(metric: str, deadline_ms: float | None) -> str:
    """Returns the column title of a requirement's estimates and intervals."""
    limit = "" if deadline_ms is None else f" {milliseconds(deadline_ms)}"
    return f"{metric}{limit} (95 %)"


def _shown(one: Requirement) -> str:
    return interval_text(one.metric, one.estimate, one.low, one.high)


def interval_text(metric: str, estimate: float | None, low: float | None, high: float | None) -> str:
    """Returns the estimate of a requirement with its interval, in words."""
    if estimate is None:
        return "–"
    if metric in _SHARES:
        interval = "" if low is None or high is None else f" ({percent_range(low, high)})"
        return f"{percent(estimate)}{interval}"
    shown = {"percentile": milliseconds, "expiration": milliseconds, "goodput": rate}.get(metric, _number)
    ends = "" if low is None else f" ({shown(low)} to {'–' if high is None else shown(high)})"
    return f"{shown(estimate)}{ends}"


def _number(value: float | None, scale: float = 1.0) -> str:
    return "–" if value is None else f"{value * scale:.4g}"


def _row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("%", r"\%").replace("_", r"\_").replace("≈", r"$\approx$") for cell in cells)
    return " & ".join(escaped) + r" \\"

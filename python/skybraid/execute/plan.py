"""The plan of a campaign: its points and seeds, checked before the first run and against what a folder holds."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skybraid import _core
from skybraid.execute import axes
from skybraid.execute.batches import Base
from skybraid.execute.campaign import Manifest
from skybraid.execute.rows import digest_of
from skybraid.model import algorithms
from skybraid.model.errors import ResultError, ScenarioError
from skybraid.model.provenance import seeds_from, utc_now
from skybraid.model.scenario import Scenario, read_text, toml_value
from skybraid.model.seeds import ALIKE, RANDOM_TRACES, random_note

if TYPE_CHECKING:
    from skybraid.execute.axes import Axis, Point
    from skybraid.model.scenario import Overrides

MAX_RUNS = 10_000_000
"""Maximum number of runs of a campaign."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a campaign's runs.

    Attributes:
        manifest: description of the campaign.
        seeds: seeds of each point.
        wanted: positions in `manifest.points` of the points to run.
        alike: positions of points on which seeds have no effect, so one run is enough.
        drawn: note on traces that begin at random because several seeds are run; empty if there are none.
        notes: remarks for the user.
        flows: names of the flows of all points.
        videos: names of the flows that are video at some point.
    """

    manifest: Manifest
    seeds: tuple[int, ...]
    wanted: tuple[int, ...]
    notes: tuple[str, ...]
    flows: tuple[str, ...]
    videos: tuple[str, ...]
    alike: frozenset[int] = frozenset()
    drawn: str = ""

    def seeds_of(self, point: int) -> tuple[int, ...]:
        """Returns the seeds of a point."""
        return self.seeds[:1] if point in self.alike else self.seeds


def plan(
    scenario: Scenario | str | os.PathLike[str],
    *,
    seeds: Iterable[int] | str | None = None,
    vary: Mapping[str, object] | None = None,
    overrides: Overrides = (),
    plugins: Sequence[str | os.PathLike[str]] = (),
    several: bool | None = None,
) -> Plan:
    """Reads the sweep and checks every point.

    With several seeds, traces begin at a place drawn from the seed, unless the scenario defines it.

    Args:
        scenario: a `Scenario`, or the path of its file.
        seeds: seeds that replace those of the sweep.
        vary: keys with their values.
        overrides: keys replaced at every point (key, TOML value).
        plugins: Python files with user-defined algorithms.
        several: whether there are or will be several seeds; by default, whether the sweep or `seeds` has seeds.

    Raises:
        ScenarioError: the sweep or a point is invalid; the message names it.
    """
    if not isinstance(vary, Mapping | None):
        raise ScenarioError(f"vary: found {type(vary).__name__}, expected a mapping of keys to lists of values")
    if isinstance(scenario, Scenario):
        text, file, overrides = scenario.text, scenario.file, (*scenario.overrides, *overrides)
    else:
        text, file = read_text(scenario), os.fspath(scenario)
    for plugin in plugins:
        algorithms.load(plugin)
    found = axes.read(text, file, list((vary or {}).items()), overrides)
    points = tuple(found.points())
    growing = several is True
    draws = (seeds is not None or bool(found.seeds)) if several is None else several
    base, survey = _surveyed(Base(text, file, tuple(overrides)), points, found.columns, _Survey(tuple(plugins)), draws)
    chosen = tuple(seeds_from(seeds, "seeds")) if seeds is not None else found.seeds or (survey.seed,)
    if len(points) * len(chosen) > MAX_RUNS:
        raise ScenarioError(
            f"{file}: found {len(points)} points with {len(chosen)} seeds each, {len(points) * len(chosen)} runs, "
            f"expected at most {MAX_RUNS}; run fewer seeds, or let `--until` add them where they decide something"
        )
    base = replace(base, plugins=tuple((file, Path(file).read_text(encoding="utf-8")) for file in survey.files))
    created = utc_now().isoformat(timespec="seconds")
    digests, paths, alike = tuple(survey.digests), tuple(survey.paths), frozenset(survey.alike)
    manifest = Manifest(survey.name, base, _core.__version__, found.axes, points, digests, paths, created)
    notes = [*found.notes, *([survey.drawn] if survey.drawn else ()), *survey.warnings]
    if alike and (growing or len(chosen) > 1):
        where = "" if len(alike) == len(points) else f"at {len(alike)} of {len(points)} points, "
        notes.append(f"{where}{ALIKE}; 1 run each")
    flows, videos = tuple(survey.flows), tuple(survey.videos)
    wanted = tuple(range(len(points)))
    return Plan(manifest, chosen, wanted, tuple(notes), flows, videos, alike, survey.drawn)


def _surveyed(
    base: Base, points: Sequence[Point], columns: Sequence[str], survey: _Survey, draws: bool
) -> tuple[Base, _Survey]:
    """Reads all points. With several seeds (`draws`), traces without a defined start begin at random.

    Raises:
        ScenarioError: a point is invalid; the message names it.
    """
    one: Scenario | None = None
    for place in range(len(points)):
        one = _read(base, points, columns, place, one)
        if draws and (unplaced := one.native.unplaced_traces()):
            key, value = RANDOM_TRACES
            base = replace(base, overrides=(*base.overrides, (key, toml_value(value))))
            return _surveyed(base, points, columns, _Survey(tuple(survey.files), random_note(unplaced)), draws=False)
        survey.add(one)
    return base, survey


class _Survey:
    """Common scenario parts and required files of the points, gathered point by point.

    Args:
        plugins: Python files with user-defined algorithms.
        drawn: note on traces that begin at random because several seeds are run; None if there are none.
    """

    def __init__(self, plugins: tuple[str | os.PathLike[str], ...], drawn: str = "") -> None:
        self.drawn = drawn
        self.name, self.seed = "", 1
        self.digests: list[str] = []
        self.alike: list[int] = []
        self.paths: dict[str, None] = {}
        self.flows: dict[str, None] = {}
        self.videos: dict[str, None] = {}
        self.warnings: dict[str, None] = {}
        self.files: dict[str, None] = dict.fromkeys(os.fspath(plugin) for plugin in plugins)

    def add(self, one: Scenario) -> None:
        """Adds the next point."""
        if not one.native.is_random():
            self.alike.append(len(self.digests))
        self.digests.append(digest_of(one))
        self.paths |= dict.fromkeys(one.paths)
        self.files |= dict.fromkeys(name for name, _ in algorithms.inputs(one))
        self.flows |= dict.fromkeys(one.flows)
        self.videos |= dict.fromkeys(one.videos)
        self.warnings |= dict.fromkeys(one.warnings())
        self.name, self.seed = self.name or one.name, one.seed


def _read(base: Base, points: Sequence[Point], columns: Sequence[str], place: int, like: Scenario | None) -> Scenario:
    """Returns the scenario of a point; `like` is the scenario of another point whose loaded traces are reused.

    Raises:
        ScenarioError: the scenario is invalid; the message names the point.
    """
    point = points[place]
    try:
        return base.scenario(point, like)
    except ScenarioError as error:
        if not point.labels:
            raise
        raise ScenarioError(f"point {place + 1} of {len(points)} ({point.words(columns)}): {error}") from error


def grown(plan: Plan, there: Manifest, url: str) -> Plan:
    """Returns a plan that extends an existing campaign.

    Scenario, version, inputs and swept keys must be equal; points may be added. If only comments differ, the text of
    the existing campaign is kept.

    Raises:
        ResultError: anything else differs; nothing was changed.
    """
    new = plan.manifest
    if there.version != new.version:
        raise _other(url, f"of version {there.version}", new.version)
    if there.columns != new.columns:
        raise _other(url, f"that varies {_listed(there.columns)}", f"one that varies {_listed(new.columns)}")
    _same_scenario(there.base, new.base, url)
    known = {point.labels: place for place, point in enumerate(there.points)}
    kinds = [_kinds(manifest.points) for manifest in (there, new)]
    if all(kinds) and kinds[0] != kinds[1]:
        raise _other(url, f"of values of the axes as {kinds[0]}", f"{kinds[1]}")
    points, digests, wanted = list(there.points), list(there.digests), []
    same_text = there.base.text == new.base.text
    for point, digest in zip(new.points, new.digests, strict=True):
        place = known.get(point.labels)
        fresh = digest if same_text else digest_of(there.base.scenario(point))
        if place is None:
            place = len(points)
            points.append(point)
            digests.append(fresh)
        elif digests[place] != fresh:
            words = point.words(new.columns) or "the scenario"
            raise _other(url, f"of {words} with other values, input files or algorithms", "the same")
        wanted.append(place)
    manifest = replace(
        there,
        points=tuple(points),
        digests=tuple(digests),
        paths=(*there.paths, *(path for path in new.paths if path not in there.paths)),
        axes=tuple(_longer(before, now) for before, now in zip(there.axes, new.axes, strict=True)),
    )
    alike = frozenset(wanted[place] for place in plan.alike)
    return replace(plan, manifest=manifest, wanted=tuple(wanted), alike=alike)


def _same_scenario(there: Base, new: Base, url: str) -> None:
    if there.overrides != new.overrides:
        replaced = [_listed([f"{key}={value}" for key, value in base.overrides]) for base in (there, new)]
        raise _other(url, f"that overrides {replaced[0]}", f"one that overrides {replaced[1]}")
    if there.text == new.text:
        return
    flat = [dict(_flat(axes.without(base.text))) for base in (there, new)]
    differ = [key for key in {**flat[0], **flat[1]} if flat[0].get(key) != flat[1].get(key)]
    if differ:
        shown = ", ".join(differ[:_SHOWN]) + (f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else "")
        raise _other(url, f"of a scenario that differs in {shown}", "the same")


def _flat(value: object, above: str = "") -> Iterable[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from _flat(below, f"{above}.{key}" if above else key)
    else:
        yield above, json.dumps(value, default=str)


def _kinds(points: Sequence[Point]) -> list[str]:
    names = {str: "text", int: "whole numbers", float: "numbers", bool: "truths"}
    return [names[type(label)] for label in points[0].labels] if points else []


def _longer(before: Axis, now: Axis) -> Axis:
    added = [place for place, labels in enumerate(now.labels) if labels not in before.labels]
    return replace(
        before,
        labels=(*before.labels, *(now.labels[place] for place in added)),
        sets=(*before.sets, *(now.sets[place] for place in added)),
    )


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "no key"


def _other(url: str, found: str, expected: str) -> ResultError:
    return ResultError(
        f"{url}: found a campaign {found}, expected {expected}; only points and seeds may be added. "
        f"Name another folder with --out; nothing was changed"
    )

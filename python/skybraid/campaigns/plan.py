"""What a campaign is to fly, checked before the first run and held against what a folder holds already."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skybraid import _core, algorithms
from skybraid.campaigns import axes
from skybraid.campaigns.dataset import Manifest
from skybraid.campaigns.rows import digest_of
from skybraid.campaigns.runs import Base
from skybraid.errors import ResultError, ScenarioError
from skybraid.provenance import seeds_from, utc_now
from skybraid.scenario import Scenario, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from skybraid.campaigns.axes import Axis, Point
    from skybraid.scenario import Overrides

MAX_RUNS = 10_000_000
"""Maximum number of runs of a campaign."""

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be flown.

    Attributes:
        manifest: the campaign as it will be described.
        seeds: of each point.
        wanted: positions of the points to fly, in `manifest.points`.
        notes: what the user should know.
        flows: names of the flows, over all points.
        videos: names of those that are video at some point.
    """

    manifest: Manifest
    seeds: tuple[int, ...]
    wanted: tuple[int, ...]
    notes: tuple[str, ...]
    flows: tuple[str, ...]
    videos: tuple[str, ...]


def plan(
    scenario: Scenario | str | os.PathLike[str],
    *,
    seeds: Iterable[int] | str | None = None,
    vary: Mapping[str, object] | None = None,
    overrides: Overrides = (),
    plugins: Sequence[str | os.PathLike[str]] = (),
) -> Plan:
    """Reads the sweep and checks every point.

    Raises:
        ScenarioError: the sweep or a point is wrong; it says which.
    """
    if isinstance(scenario, Scenario):
        text, file, overrides = scenario.text, scenario.file, (*scenario.overrides, *overrides)
    else:
        text, file = read_text(scenario), os.fspath(scenario)
    for plugin in plugins:
        algorithms.load(plugin)
    found = axes.read(text, file, list((vary or {}).items()), overrides)
    base = Base(text, file, tuple(overrides))
    name, own_seed = "", 1
    digests: list[str] = []
    paths: dict[str, None] = {}
    flows: dict[str, None] = {}
    videos: dict[str, None] = {}
    warnings: dict[str, None] = {}
    files: dict[str, None] = dict.fromkeys(os.fspath(plugin) for plugin in plugins)
    points = tuple(found.points())
    for place, point in enumerate(points):
        try:
            one = base.scenario(point)
        except ScenarioError as error:
            if not point.labels:
                raise
            words = point.words(found.columns)
            raise ScenarioError(f"point {place + 1} of {len(points)} ({words}): {error}") from error
        digests.append(digest_of(one))
        paths |= dict.fromkeys(one.paths)
        files |= dict.fromkeys(name for name, _ in algorithms.inputs(one))
        flows |= dict.fromkeys(one.flows)
        videos |= dict.fromkeys(one.videos)
        warnings |= dict.fromkeys(one.warnings())
        name, own_seed = name or one.name, one.seed
    chosen = tuple(seeds_from(seeds, "seeds")) if seeds is not None else found.seeds or (own_seed,)
    if len(points) * len(chosen) > MAX_RUNS:
        raise ScenarioError(
            f"{file}: found {len(points)} points with {len(chosen)} seeds each, {len(points) * len(chosen)} runs, "
            f"expected at most {MAX_RUNS}; fly fewer seeds, or let `--until` add them where they decide something"
        )
    base = replace(base, plugins=tuple((it, Path(it).read_text(encoding="utf-8")) for it in files))
    created = utc_now().isoformat(timespec="seconds")
    manifest = Manifest(name, base, _core.__version__, found.axes, points, tuple(digests), tuple(paths), created)
    return Plan(manifest, chosen, tuple(range(len(points))), (*found.notes, *warnings), tuple(flows), tuple(videos))


def grown(plan: Plan, there: Manifest, url: str) -> Plan:
    """A plan as an extension of the campaign that lies there already.

    The scenario, version, inputs and swept keys must be the same; points may come to it. The text of the campaign
    stands where the new one differs in comments alone.

    Raises:
        ResultError: something else differs; nothing was changed.
    """
    new = plan.manifest
    for what, before, now in (
        ("version", there.version, new.version),
        ("swept keys", ", ".join(there.columns) or "none", ", ".join(new.columns) or "none"),
    ):
        if before != now:
            raise _other(url, f"{what} {before}", f"{now}")
    _same_scenario(there.base, new.base, url)
    known = {point.labels: place for place, point in enumerate(there.points)}
    kinds = [_kinds(manifest.points) for manifest in (there, new)]
    if all(kinds) and kinds[0] != kinds[1]:
        raise _other(url, f"values of the axes as {kinds[0]}", f"{kinds[1]}")
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
            raise _other(url, f"{words} with other values, input files or algorithms", "the same")
        wanted.append(place)
    manifest = replace(
        there,
        points=tuple(points),
        digests=tuple(digests),
        paths=(*there.paths, *(path for path in new.paths if path not in there.paths)),
        axes=tuple(_longer(before, now) for before, now in zip(there.axes, new.axes, strict=True)),
    )
    return replace(plan, manifest=manifest, wanted=tuple(wanted))


def _same_scenario(there: Base, new: Base, url: str) -> None:
    if there.overrides != new.overrides:
        told = [" ".join(f"{key}={value}" for key, value in base.overrides) or "none" for base in (there, new)]
        raise _other(url, f"replaced keys {told[0]}", told[1])
    if there.text == new.text:
        return
    flat = [dict(_flat(axes.without(base.text))) for base in (there, new)]
    differ = [key for key in {**flat[0], **flat[1]} if flat[0].get(key) != flat[1].get(key)]
    if differ:
        shown = ", ".join(differ[:_SHOWN]) + (f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else "")
        raise _other(url, f"a scenario that differs in {shown}", "the same")


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


def _other(url: str, found: str, expected: str) -> ResultError:
    return ResultError(
        f"{url}: found a campaign of {found}, expected {expected}; only points and seeds may come to it. "
        f"Name another folder with --out; nothing was changed"
    )

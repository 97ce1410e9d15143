"""Calculations of the frontier: misses, messages and overhead of each rule over each set of paths."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from skybraid_studies.engine.theory import calculation
from skybraid_studies.frontier.frontier import CONTROL, MAVLINK, oracle, point, replay
from skybraid_studies.frontier.measurements import CARRIERS, HALVES, NETWORKS, driven, shuffled, together
from skybraid_studies.frontier.population import DISH, DRONE, flights
from skybraid_studies.frontier.rules import ORACLE, RULES
from skybraid_studies.frontier.video import FILM_RULES, RATES, camera, film

if TYPE_CHECKING:
    from skybraid_studies.engine.theory import Calculation
    from skybraid_studies.frontier.frontier import Outcome, Pattern
    from skybraid_studies.frontier.measurements import Together
    from skybraid_studies.frontier.video import Film

DEADLINES_MS = (100, 150, 300)
GROUPS = 6
"""Number of groups of episodes, used as seeds: every sixth episode is in the same group."""
SETS = {
    "pairs": tuple(itertools.combinations(CARRIERS, 2)),
    "triples": (CARRIERS,),
    # Duplication over two of the three carriers, at the times when all three were measured.
    "two_of_three": tuple(itertools.combinations(CARRIERS, 2)),
    "shuffled": tuple(itertools.combinations(CARRIERS, 2)),
    "driven_pairs": tuple(itertools.combinations(NETWORKS, 2)),
    "driven_triples": tuple(itertools.combinations(NETWORKS, 3)),
}
DRAWN = {"drone_dish": (DRONE, DISH), "two_drones": (DRONE, DRONE), "two_drones_dish": (DRONE, DRONE, DISH)}
"""Presets of the paths of drawn flights."""
STALLS_LEFT = 0.34
"""Maximum share of stalls with CellFusion, relative to the best single-copy scheduler."""
PATTERNS = {"control": CONTROL, "mavlink": MAVLINK}


def has_oracle(data: str) -> bool:
    """Whether links are far from full, so that a copy does not change the fate of other packets."""
    return data not in DRAWN and not data.startswith("driven")


@cache
def outcomes(data: str, pattern: Pattern, rule: str, deadline_ms: int, half: str) -> tuple[Outcome, ...]:
    """Returns the results of a rule over each set of paths of a half; empty without the measurements."""
    if data in DRAWN:
        return (flights(DRAWN[data], RULES[rule](deadline_ms), pattern, DEADLINES_MS, half),)
    found = []
    for paths in SETS[data]:
        measured = _measured(data, paths, half)
        if not measured.episodes:
            return ()
        if rule == ORACLE:
            found.append(oracle(measured, pattern, DEADLINES_MS))
        else:
            found.append(replay(measured, RULES[rule](deadline_ms), pattern, DEADLINES_MS))
    return tuple(found)


def _measured(data: str, paths: tuple[str, ...], half: str) -> Together:
    if data.startswith("driven"):
        return driven(paths, half)
    if data == "shuffled":
        return shuffled(paths, half)
    return together(CARRIERS, half).only(paths) if data == "two_of_three" else together(paths, half)


def settled(rule: str, deadline_ms: int) -> int:
    """Returns the deadline that a rule is configured for; the same for all if it does not use it, to share runs."""
    same = rule == ORACLE or RULES[rule](100) == RULES[rule](300)
    return DEADLINES_MS[0] if same else deadline_ms


def part(outcome: Outcome, group: int) -> Outcome:
    """Returns every sixth episode of a result."""
    own = slice(group % GROUPS, None, GROUPS)
    missed = {deadline: found[own] for deadline, found in outcome.missed.items()}
    return replace(outcome, missed=missed, written=outcome.written[own])


def _value(data: str, pattern: Pattern, rule: str, quantity: str) -> Calculation:
    def value(x: float, seed: int) -> float:
        deadline = round(x)
        found = outcomes(data, pattern, rule, settled(rule, deadline), HALVES[1])
        if not found:
            return math.nan
        if quantity == "overhead":
            return 100 * point(found, deadline).overhead
        parts = [part(each, seed) for each in found]
        messages = sum(int(bins.sum()) for each in parts for bins in each.written)
        missed = sum(int(bins.sum()) for each in parts for bins in each.missed[deadline])
        return 100 * missed / messages

    return value


def films(data: str, rate: str, rule: str, deadline_ms: int, half: str) -> tuple[Film, ...]:
    """Returns the results of video at a rate over each set of paths of a half; empty without the measurements."""
    transport, _ = FILM_RULES[rule]
    same = transport(100) == transport(150)
    return _films(data, rate, rule, 100 if same else deadline_ms, half)


@cache
def _films(data: str, rate: str, rule: str, set_ms: int, half: str) -> tuple[Film, ...]:
    transport, keys = FILM_RULES[rule]
    measured = [_measured(data, paths, half) for paths in SETS[data]]
    if not all(each.episodes for each in measured):
        return ()
    return tuple(film(each, transport(set_ms), camera(rate, **keys)) for each in measured)


def _film_value(data: str, rate: str, rule: str, quantity: str) -> Calculation:
    def value(x: float, seed: int) -> float:
        found = films(data, rate, rule, round(x), HALVES[1])
        if not found:
            return math.nan
        if quantity == "overhead":
            return 100 * point([each.frames for each in found], round(x)).overhead
        freezes = sum(sum(each.freezes[round(x)][seed % GROUPS :: GROUPS]) for each in found)
        return STALLS_LEFT * freezes if quantity == "allowed" else float(freezes)

    return value


def _register() -> None:
    for (data, rate), rule in itertools.product(itertools.product(("pairs", "triples"), RATES), FILM_RULES):
        for what in ("freezes", "allowed", "overhead"):
            calculation(f"frontier.video.{data}.{rate}.{rule}.{what}")(_film_value(data, rate, rule, what))
    sets = itertools.product((*SETS, *DRAWN), PATTERNS.items())
    for (data, (name, pattern)), rule in itertools.product(sets, (*RULES, ORACLE)):
        if rule != ORACLE or has_oracle(data):
            for what in ("share", "overhead"):
                calculation(f"frontier.{data}.{name}.{rule}.{what}")(_value(data, pattern, rule, what))


_register()

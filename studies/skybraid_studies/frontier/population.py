"""Drawn flights: links of families fitted to measurements of drones, cars and ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import skybraid
from skybraid_studies.frontier.frontier import Outcome, outcome
from skybraid_studies.frontier.measurements import HALVES

if TYPE_CHECKING:
    from skybraid_studies.frontier.frontier import Pattern

DRONE, DISH = "lte-drone-rural", "starlink-car"
SEEDS = {HALVES[0]: range(1, 61), HALVES[1]: range(101, 161)}
"""Seeds of each half, one flight per seed: ten hours."""
FLIGHT_S = 600.0


def scenario(presets: Sequence[str], transport: Mapping[str, Any], pattern: Pattern) -> Any:  # noqa: ANN401
    """Returns a scenario with a control flow from the ground, whose seed draws the links."""
    paths = {f"{preset}-{number}": {"preset": preset} for number, preset in enumerate(presets, 1)}
    flow = {"from": "ground", "traffic": pattern.traffic, "transport": dict(transport)}
    return skybraid.Scenario.build(
        {"name": "frontier", "duration": f"{FLIGHT_S:g}s", "path": paths, "flow": {"control": flow}}
    )


def flights(
    presets: Sequence[str], transport: Mapping[str, Any], pattern: Pattern, deadlines_ms: Sequence[int], half: str
) -> Outcome:
    """Runs a transport over drawn links, one episode per flight, without its last second."""
    flight = scenario(presets, transport, pattern)
    spans = [(0.0, FLIGHT_S - 1)]
    found = [outcome(flight, seed, spans, pattern, deadlines_ms) for seed in SEEDS[half]]
    missed = {deadline: [bins for each in found for bins in each.missed[deadline]] for deadline in deadlines_ms}
    written = [bins for each in found for bins in each.written]
    sent, single = (sum(getattr(each, name) for each in found) for name in ("sent", "single"))
    expected = tuple(map(sum, zip(*(each.expected for each in found), strict=True)))
    return Outcome(missed, written, sent, single, expected)

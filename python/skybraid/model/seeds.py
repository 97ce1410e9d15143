"""Seeds of several runs: whether they change anything, and where in measurements each run begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skybraid.model.scenario import Scenario

RANDOM_TRACES = ("traces", "random")
"""The key of a scenario, and its value, by which each run begins at a place of its own in the traces."""

ALIKE = (
    "no seed changes anything: no link, traffic or algorithm that a flow uses draws at random, and every trace begins "
    "at a stated place"
)
"""Why one run stands for all."""


def sampled(scenario: Scenario) -> tuple[Scenario, tuple[str, ...]]:
    """Returns the scenario prepared for several seeds, with notices for the user.

    Traces for which nothing says where a run begins in them begin at a place drawn from the run's seed.
    """
    unplaced = scenario.native.unplaced_traces()
    if not unplaced:
        return scenario, ()
    return scenario.with_(*RANDOM_TRACES), (random_note(unplaced),)


def distinct(scenario: Scenario, seeds: Sequence[int]) -> tuple[list[int], tuple[str, ...]]:
    """Returns the seeds whose simulated runs may differ (one if all are equal), with notices for the user."""
    if len(seeds) < 2 or scenario.native.is_random():
        return list(seeds), ()
    return [seeds[0]], (f"{ALIKE}; 1 run with seed {seeds[0]} in place of {len(seeds)}",)


def random_note(clocks: Iterable[str]) -> str:
    """Notice about traces that start at random because several seeds are run.

    Args:
        clocks: files, or names of what was measured together.
    """
    names = list(dict.fromkeys(clocks))
    words = (
        f"each run starts at a random place in {', '.join(names)}, drawn from its seed "
        '(traces = "replay": all at the beginning)'
    )
    if len(names) > 1:
        words += '; together = "NAME" gives files that were measured at the same time the same place'
    return words

"""Calculations: experiments without a scenario, computed by the code that simulations use.

Those of a single study are in `observations.py` of its folder, see `skybraid_studies.engine.papers`.
"""

from __future__ import annotations

from collections.abc import Callable

from skybraid.model.errors import ScenarioError, unknown
from skybraid_studies.engine import papers

Calculation = Callable[[float, int], float]
"""Function from x and a seed to a value."""

_CALCULATIONS: dict[str, Calculation] = {}


def calculation(name: str) -> Callable[[Calculation], Calculation]:
    """Registers a calculation under the name that `compute` takes."""

    def register(function: Calculation) -> Calculation:
        _CALCULATIONS[name] = function
        return function

    return register


def names() -> list[str]:
    """Returns the registered names."""
    papers.load()
    return sorted(_CALCULATIONS)


def find(name: str) -> Calculation:
    """Returns a calculation by its name.

    Raises:
        ScenarioError: there is no such calculation.
    """
    known = names()
    if name not in known:
        raise ScenarioError(unknown("compute", name, known))
    return _CALCULATIONS[name]


def compute(name: str, x: float, seed: int) -> float:
    """Returns the value of a calculation.

    Raises:
        ScenarioError: there is no such calculation.
    """
    return find(name)(x, seed)

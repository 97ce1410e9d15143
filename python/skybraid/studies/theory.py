"""Calculations: experiments that are answered without a scenario, each by the code that simulations use too."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from skybraid.errors import ScenarioError

Calculation = Callable[[float, int], float]
"""Gives a value from x and a seed."""

_CALCULATIONS: dict[str, Calculation] = {}


def calculation(name: str) -> Callable[[Calculation], Calculation]:
    """Registers a calculation under the name that `compute` takes."""

    def register(function: Calculation) -> Calculation:
        _CALCULATIONS[name] = function
        return function

    return register


def names() -> list[str]:
    """The registered names."""
    return sorted(_CALCULATIONS)


def compute(name: str, x: float, seed: int) -> float:
    """What a calculation gives.

    Raises:
        ScenarioError: there is no such calculation.
    """
    if name not in _CALCULATIONS:
        close = difflib.get_close_matches(name, _CALCULATIONS, 1) or names()
        raise ScenarioError(f"compute: found {name}, expected {', '.join(close) or 'the name of a calculation'}")
    return _CALCULATIONS[name](x, seed)

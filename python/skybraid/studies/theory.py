"""Calculations: experiments that no scenario answers, each by the code that simulations use too.

A study's own stand in a module of its name, which is listed in `ROOMS`.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from skybraid.errors import ScenarioError

Calculation = Callable[[float, int], float]
"""Gives a value from x and a seed."""

ROOMS = ("pedrazzi2020",)
"""Modules beside this one that register calculations."""

_CALCULATIONS: dict[str, Calculation] = {}


def calculation(name: str) -> Callable[[Calculation], Calculation]:
    """Registers a calculation under the name that `compute` takes."""

    def register(function: Calculation) -> Calculation:
        _CALCULATIONS[name] = function
        return function

    return register


def names() -> list[str]:
    """The registered names."""
    for room in ROOMS:
        importlib.import_module(f"skybraid.studies.{room}")
    return sorted(_CALCULATIONS)


def compute(name: str, x: float, seed: int) -> float:
    """What a calculation gives.

    Raises:
        ScenarioError: there is no such calculation.
    """
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, 1) or known
        raise ScenarioError(f"compute: found {name}, expected {', '.join(close) or 'the name of a calculation'}")
    return _CALCULATIONS[name](x, seed)

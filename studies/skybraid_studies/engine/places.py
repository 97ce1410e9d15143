"""Placeholders in the values of a study's files, filled in with a sweep's value, a parameter or words.

A placeholder is `{k}`, `{2*k}`, `{10/k}`, `{min(k, 13)}`, or a choice of words such as `{k:one|two}`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from skybraid.model.errors import ScenarioError
from skybraid.model.keys import Keys

_PLACE = re.compile(r"\{\s*(?:([\d.]+)\s*([*/])\s*)?(min\()?\s*([xk])\s*(?(3),\s*([\d.]+)\s*\))\s*\}")
_CHOICE = re.compile(r"\{([xk]):([^{}]*)\}")


def fill(value: Any, *, x: float | None = None, k: float | None = None) -> Any:  # noqa: ANN401 any value of TOML
    """Fills in the placeholders of `x` and `k` in a value of `set`, if these are known.

    A text that consists of one placeholder becomes a number.
    """
    known = {name: number for name, number in (("x", x), ("k", k)) if number is not None}
    if isinstance(value, Mapping):
        return {key: fill(each, x=x, k=k) for key, each in value.items()}
    if isinstance(value, list):
        return [fill(each, x=x, k=k) for each in value]
    if not isinstance(value, str):
        return value
    value = _CHOICE.sub(lambda place: _chosen(place, known), value)

    def number(place: re.Match[str]) -> float:
        factor, operator, _, name, limit = place.groups()
        known_one = known[name] if limit is None else min(known[name], float(limit))
        if factor is None:
            return known_one
        return float(factor) * known_one if operator == "*" else float(factor) / known_one

    alone = _PLACE.fullmatch(value)
    if alone is not None:
        if alone[4] not in known:
            return value
        result = number(alone)
        return int(result) if float(result).is_integer() else result
    return _PLACE.sub(lambda place: f"{number(place):.12g}" if place[4] in known else place[0], value)


def _chosen(place: re.Match[str], known: Mapping[str, float]) -> str:
    """Returns the word chosen by a placeholder such as `{x:a|b}`; the placeholder itself if its number is unknown."""
    name, words = place[1], place[2].split("|")
    if name not in known:
        return place[0]
    if known[name] not in range(1, len(words) + 1):
        raise ScenarioError(f"{place[0]}: found {name} = {known[name]:g}, expected 1 to {len(words)}")
    return words[int(known[name]) - 1]


def worded_tables(name: str, keys: Keys) -> list[tuple[str, Keys]]:
    """Returns a series' name and table for every combination of one word per key of `each`."""
    each: Mapping[str, list[str]] = keys.take("each", dict, {})
    table = keys.rest()
    choices = [dict(zip(each, choice, strict=True)) for choice in itertools.product(*each.values())]
    return [(_worded(name, words), Keys(_worded(table, words), keys.where)) for words in choices]


def _worded(value: Any, words: Mapping[str, str]) -> Any:  # noqa: ANN401 any value of TOML
    """Fills in the placeholders of words in a value."""
    if isinstance(value, Mapping):
        return {key: _worded(each, words) for key, each in value.items()}
    if isinstance(value, list):
        return [_worded(each, words) for each in value]
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(f"{{{name}}}", word)
    return value

"""Strict reading of TOML tables: unknown keys are errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar, cast

from skybraid.model.errors import ScenarioError, likely

T = TypeVar("T")

_UNITS_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

_KINDS = {str: "text", dict: "table", list: "list", float: "number", int: "whole number", bool: "true or false"}


class Keys:
    """Reader of one table; keys that are never taken are errors.

    Attributes:
        where: beginning of error messages.
    """

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self._left = dict(table)
        self._known: list[str] = []
        self.where = where

    def take(self, key: str, kind: type[T] | tuple[type, ...], *default: T) -> T:
        """Takes a key's value; the key is required without a default.

        Raises:
            ScenarioError: it is missing or of another kind.
        """
        self._known.append(key)
        if key not in self._left:
            if default:
                return default[0]
            if meant := difflib.get_close_matches(key, self._left, 1):
                self.refuse(meant[0], "an unknown key", f"`{key}`")
            self.refuse(key, "nothing", "a value")
        value = self._left.pop(key)
        wanted = kind if isinstance(kind, tuple) else (kind,)
        if float in wanted and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            self.refuse(key, repr(value), f"a {' or a '.join(_KINDS.get(each, each.__name__) for each in wanted)}")
        return cast("T", value)

    def table(self, key: str) -> Keys:
        """Takes a nested table, empty if missing."""
        return Keys(self.take(key, dict, {}), f"{self.where}: {key}")

    def tables(self, key: str) -> dict[str, Keys]:
        """Takes nested tables by name."""
        below = self.take(key, dict, {})
        for name, value in below.items():
            if not isinstance(value, dict):
                self.refuse(f"{key}.{name}", repr(value), "a table")
        return {name: Keys(value, f"{self.where}: {key}.{name}") for name, value in below.items()}

    def list(self, key: str) -> list[dict[str, Any]]:
        """Takes a list of tables."""
        values: list[dict[str, Any]] = self.take(key, list, [])
        if not all(isinstance(value, dict) for value in values):
            self.refuse(key, repr(values), "a list of tables")
        return values

    def rest(self) -> dict[str, Any]:
        """Takes all remaining keys."""
        left, self._left = self._left, {}
        return left

    def done(self) -> None:
        """Raises if a key was not taken.

        Raises:
            ScenarioError: something is left.
        """
        for key in self._left:
            known = ", ".join(map("`{}`".format, self._known))
            self.refuse(key, "an unknown key", f"one of {known}{likely(key, self._known, '`{}`'.format)}")

    def refuse(self, key: str, found: str, expected: str) -> NoReturn:
        """Raises an error about a key."""
        raise ScenarioError(f"{self.where}: {key}: found {found}, expected {expected}")


def seconds(text: str, keys: Keys, key: str) -> float:
    """Parses a duration such as "30s", in s.

    Raises:
        ScenarioError: it is none.
    """
    found = re.fullmatch(r"\s*([\d.]+)\s*(ms|s|min|h)\s*", text)
    if found is None:
        keys.refuse(key, text, "a time with its unit, for example 30s")
    return float(found[1]) * _UNITS_S[found[2]]

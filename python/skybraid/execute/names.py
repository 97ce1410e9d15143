"""`all` as the value of a swept key: every registered name that the scenario accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid._core import registry
from skybraid.model import algorithms
from skybraid.model.errors import ScenarioError
from skybraid.model.scenario import Scenario

if TYPE_CHECKING:
    from skybraid.model.scenario import Overrides

KINDS = {
    "scheduler": "schedulers",
    "congestion": "congestion",
    "reordering": "reordering",
    "protocol": "protocols",
    "preset": "links",
}
"""The registry of each key that names something of it, by the key's last part."""


def all_of(key: str, text: str, file: str, overrides: Overrides, where: str) -> tuple[list[object], list[str]]:
    """Returns the names that "all" stands for at a key, and sentences on names that are left out.

    A name is left out if the scenario cannot be run with it, for example TCP over two paths.

    Raises:
        ScenarioError: the key has no registered names, or the scenario accepts none of them.
    """
    kind = KINDS.get(key.rpartition(".")[2].strip('"'))
    if kind is None:
        ends = ", ".join(f"`{end}`" for end in KINDS)
        raise ScenarioError(f"{where}: {key}: found all, expected it at a key that ends in one of {ends}")
    taken: list[object] = []
    left_out: list[str] = []
    refused: ScenarioError | None = None
    for name in [str(entry["name"]) for entry in (*registry(kind), *algorithms.entries(kind))]:
        try:
            Scenario(text, file, (*overrides, (key, f'"{name}"')))
        except ScenarioError as error:
            refused = error
            left_out.append(f"{key}: {name} is left out: {error}")
        else:
            taken.append(name)
    if not taken and refused is not None:
        raise refused
    return taken, left_out

"""What can go wrong, by what the caller can do about it."""

import difflib
from collections.abc import Iterable

from skybraid._core import Interrupted, ScenarioError, SkybraidError

__all__ = [
    "DomainError",
    "EmulationError",
    "Interrupted",
    "MissingTableError",
    "ResultError",
    "ScenarioError",
    "SkybraidError",
    "VideoError",
]


class ResultError(SkybraidError):
    """A result folder cannot be written or read; choose another folder or make room."""


class MissingTableError(ResultError):
    """A figure or a query needs a table that this result was not asked to keep."""


class EmulationError(SkybraidError):
    """The emulator cannot begin or go on; `skybraid doctor` says what this machine lacks."""


class DomainError(SkybraidError, ValueError):
    """An argument for which a formula has no meaning; it says which, what was found and what was expected."""


class VideoError(SkybraidError):
    """A clip cannot be had, read, encoded or decoded; it names the clip and says what was found and expected."""


def unknown(where: str, found: str, known: Iterable[str], *, several: bool = False) -> str:
    """The words about a name that is not known: what there is, and the one that was probably meant.

    Args:
        where: the option or argument.
        found: the name.
        known: what there is.
        several: whether more than one may be named.
    """
    names = list(known)
    close = difflib.get_close_matches(found, names, 1)
    likely = f"; did you mean {close[0]}?" if close else ""
    how_many = "some" if several else "one"
    listed = ", ".join(names) or "none, since there is none"
    return f"{where}: found {found}, expected {how_many} of {listed}{likely}"

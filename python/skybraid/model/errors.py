"""Errors, classified by what the caller can do about them."""

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from skybraid._core import Interrupted, ScenarioError, SkybraidError

__all__ = [
    "DomainError",
    "EmulationError",
    "Interrupted",
    "MissingExtraError",
    "MissingTableError",
    "ResultError",
    "ScenarioError",
    "SkybraidError",
    "TraceError",
    "VideoError",
]


class ResultError(SkybraidError):
    """A result folder cannot be written or read; choose another folder or free space."""


class MissingTableError(ResultError, KeyError):
    """A figure or a query needs a table that this result does not keep."""

    __str__ = Exception.__str__  # that of KeyError quotes the message


class EmulationError(SkybraidError):
    """The emulator cannot start or continue; `skybraid doctor` lists what this machine lacks."""


class DomainError(SkybraidError, ValueError):
    """An argument is outside a formula's domain; the message names it, what was found and what was expected."""


class TraceError(SkybraidError):
    """A trace cannot be read or written. Says file, place, what was found and what was expected."""


class VideoError(SkybraidError):
    """A clip cannot be opened, encoded or decoded; the message names the clip, what was found and expected."""


EXTRAS = {
    "PIL": "video",
    "aioquic": "quic",
    "av": "video",
    "bokeh": "report",
    "dask": "cluster",
    "distributed": "cluster",
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "plot",
    "pyulog": "px4",
    "s3fs": "s3",
    "scipy": "video",
    "skybraid_studies": "studies",
}
"""Optional packages, by the extra that installs them."""


class MissingExtraError(SkybraidError):
    """A package that only some commands need is not installed; the message names the extra that installs it."""

    @classmethod
    def of(cls, error: ModuleNotFoundError) -> Self:
        """Makes the error of a failed import.

        Raises:
            ModuleNotFoundError: the package belongs to no extra.
        """
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise error
        extra = EXTRAS[package]
        return cls(f"{extra}: found no package {package}, expected it with pip install 'skybraid[{extra}]'")


def meant_by(path: Path) -> str:
    """Returns the end of an error text about a missing file or folder: what next to it was likely meant, if anything.

    Args:
        path: what is missing.
    """
    try:
        there = [each.name for each in path.parent.iterdir() if each.name != path.name]
    except OSError:
        return ""
    # A result and a gateway's log have a seed or a time behind their name.
    later = [name for name in there if name.startswith(f"{path.stem}-") and name.endswith(path.suffix)]
    if later:
        return f"; did you mean {path.with_name(max(later))}?"
    # Endings alone make two names alike.
    return likely(path.name, there, path.with_name, cutoff=0.8)


def likely(found: str, known: Iterable[str], show: Callable[[str], object] = str, *, cutoff: float = 0.6) -> str:
    """Returns the end of an error text about an unknown name: which known one was likely meant, if any.

    Args:
        found: the name.
        known: valid names.
        show: how a valid name is written.
        cutoff: how much alike two names must be, from 0 to 1, as `difflib` counts it.
    """
    names = list(known)
    # `first` is likely to be `first.toml`, and `mine` to be `python:mine`.
    whole = [name for name in names if name == f"{found}.toml" or name.endswith(f":{found}")]
    close = whole or difflib.get_close_matches(found, names, 1, cutoff)
    return f"; did you mean {show(close[0])}?" if close else ""


def unknown(where: str, found: str, known: Iterable[str], *, several: bool = False) -> str:
    """Error text for an unknown name: the known names and the closest match.

    Args:
        where: the option or argument.
        found: the name.
        known: valid names.
        several: whether more than one may be named.
    """
    names = list(known)
    if len(names) < 2:
        return f"{where}: found {found}, expected {', '.join(names) or 'none, since there is none'}"
    how_many = "some" if several else "one"
    return f"{where}: found {found}, expected {how_many} of {', '.join(names)}{likely(found, names)}"

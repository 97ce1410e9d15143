"""Lazy imports of heavy and optional packages.

polars takes 0.2 s and 60 MB, SciPy 0.3 s, fsspec 0.1 s: a run that keeps no tables goes without. NumPy and rich take
0.1 s each: no command's help needs them. Nor does it need importlib.metadata, which reads mail.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from skybraid.model.errors import MissingExtraError

if TYPE_CHECKING:
    from importlib import metadata

    import fsspec
    import numpy as np
    import numpy.typing as npt
    import polars as pl
    from bokeh import palettes
    from PIL import Image, ImageDraw
    from rich import console as rich_console
    from rich import live as rich_live
    from rich import progress as rich_progress
    from rich import table as rich_table
    from scipy import fft, interpolate, ndimage

__all__ = [
    "Image",
    "ImageDraw",
    "Late",
    "fft",
    "fsspec",
    "interpolate",
    "metadata",
    "ndimage",
    "np",
    "npt",
    "palettes",
    "pl",
    "rich_console",
    "rich_live",
    "rich_progress",
    "rich_table",
]


class Late:
    """A module that is not imported yet.

    Args:
        name: the module's.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        try:
            module = importlib.import_module(self._name)
        except ModuleNotFoundError as error:
            raise MissingExtraError.of(error) from error
        found = getattr(module, attribute)
        setattr(self, attribute, found)
        return found


if not TYPE_CHECKING:
    fsspec = Late("fsspec")
    metadata = Late("importlib.metadata")
    np, npt = Late("numpy"), Late("numpy.typing")
    palettes = Late("bokeh.palettes")
    pl = Late("polars")
    rich_console, rich_live = Late("rich.console"), Late("rich.live")
    rich_progress, rich_table = Late("rich.progress"), Late("rich.table")
    fft, interpolate = Late("scipy.fft"), Late("scipy.interpolate")
    ndimage = Late("scipy.ndimage")
    Image, ImageDraw = Late("PIL.Image"), Late("PIL.ImageDraw")

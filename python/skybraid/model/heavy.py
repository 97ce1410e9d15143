"""Lazy imports of heavy and optional packages.

polars takes 0.2 s and 60 MB, SciPy 0.3 s, fsspec 0.1 s: a run that keeps no tables goes without. NumPy and rich take
0.1 s each: no command's help needs them. Nor does it need importlib.metadata, which reads mail.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
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


def late_imports(file: str) -> dict[str, Late]:
    """Returns the modules that a file imports in `if TYPE_CHECKING:`, by their names there, each imported when used.

    So one list serves the type checker and the program, as a stub does with `lazy_loader` of scientific Python.

    Args:
        file: the caller's `__file__`.
    """
    [block, *_] = (node for node in ast.parse(Path(file).read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    found: dict[str, Late] = {}
    for node in block.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            parent = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {alias.asname or alias.name: Late(parent + alias.name) for alias in node.names}
    return found


if not TYPE_CHECKING:
    globals().update(late_imports(__file__))

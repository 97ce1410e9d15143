"""The papers' own modules: each registers calculations and observations when it is imported."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1]
"""Folder of the studies that are installed, one folder a paper."""

MODULE = "observations"
"""Module of a paper that registers them."""


@cache
def load() -> None:
    """Imports the module of each paper."""
    for file in sorted(FOLDER.glob(f"*/{MODULE}.py")):
        importlib.import_module(f"{FOLDER.name}.{file.parent.name}.{MODULE}")

"""The studies' own modules: each registers calculations and observations when it is imported."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

_OF_A_STUDY = re.compile(r"[a-z]+\d{4}[a-z]*|beyond")
"""A module named like a study: author, year, perhaps a word; or our own study, beyond the papers."""


@cache
def load() -> None:
    """Imports the modules next to this one that are named like a study."""
    package = importlib.import_module(__package__ or "")
    for module in pkgutil.iter_modules(package.__path__):
        if _OF_A_STUDY.fullmatch(module.name):
            importlib.import_module(f"{package.__name__}.{module.name}")

"""Modules of studies, which register calculations and observations on import."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

from skybraid.model.errors import ScenarioError

FOLDER = Path(__file__).parents[1]
"""Folder of installed studies, one folder per paper."""

MODULE = "observations"
"""Name of a study's module that registers them."""


@cache
def load() -> None:
    """Imports the modules of the installed studies."""
    for file in sorted(FOLDER.glob(f"*/{MODULE}.py")):
        importlib.import_module(f"{FOLDER.name}.{file.parent.name}.{MODULE}")


def load_from(study: Path) -> None:
    """Imports the module of a study in any folder, if it has one.

    Raises:
        ScenarioError: the module cannot be imported.
    """
    if study.resolve().parent == FOLDER.resolve():
        load()
    elif (study / f"{MODULE}.py").is_file():
        _import((study / f"{MODULE}.py").resolve())


@cache
def _import(file: Path) -> None:
    """Imports a file as a module, once."""
    name = f"{MODULE}_of_{file.parent.name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ScenarioError(f"{file}: found no Python module, expected one")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ScenarioError(f"{file}: cannot import it: {type(error).__name__}: {error}") from error

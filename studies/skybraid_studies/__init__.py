"""Reproductions of published studies: experiments from files, and a scorecard of the findings that hold.

    found = reproduce("pedrazzi2020", ["PED-E09"], quick=True)
    print(found.rows[0].verdict)

Each paper has a folder here; `engine` reads, runs and judges it. `skybraid_studies.engine.experiment` describes the
files' format, `skybraid_studies.engine.claims` the kinds of claims. Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skybraid_studies.engine.experiment import Study
    from skybraid_studies.engine.reproducing import Scorecard, place_of, reproduce, studies
    from skybraid_studies.engine.scorecard import Beside, Row

__all__ = ["Beside", "Row", "Scorecard", "Study", "place_of", "reproduce", "studies"]
__version__ = "0.1.0"

_MODULE_OF = {"Beside": "scorecard", "Row": "scorecard", "Study": "experiment"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Returns a public name, imported on first use."""
        if name not in __all__:
            raise AttributeError(f"module 'skybraid_studies' has no attribute {name!r}")
        module = importlib.import_module(f"skybraid_studies.engine.{_MODULE_OF.get(name, 'reproducing')}")
        globals()[name] = found = getattr(module, name)
        return found


def __dir__() -> list[str]:
    return list(__all__)

"""Skybraid: is a connection over several networks good enough to fly an aircraft remotely?

`run` simulates a scenario and judges it:

    results = skybraid.run("scenarios/remote-piloting.toml")
    for requirement in results.requirements:
        print(requirement.flow, requirement.verdict, requirement.words)
    results.tables["messages"]   # polars
    results.report("report.html")

`results` shows its verdicts where it is printed, and as a table in a notebook. From there:

    skybraid.run("flight.toml", seeds="1..20")                 # twenty runs, judged together
    skybraid.sweep("flight.toml", vary={"flow.control.transport.scheduler": ["low_rtt", "redundant"]})
    skybraid.Scenario.load("flight.toml").with_("path.lte.uplink.rate", "5Mbit/s")   # one key replaced
    skybraid.explain.explain(results)                          # causes, and what would change the verdict
    skybraid.plots.save(skybraid.plots.draw(results, "timeline"), "timeline.svg")
    skybraid.open_results("runs/flight-1")                     # a result or a campaign from its folder
    skybraid.registry("schedulers")                            # what a scenario may name, with units and sources
    skybraid.compare.compare("flight.toml", seeds="1..4")      # every scheduler, a row for each run
    skybraid.traces.read("drive.csv")                          # measurements, also for `fit` and `assess`

Tables are polars frames. Results and campaigns offer theirs by Arrow to pandas, pyarrow and duckdb; a campaign is a
dataset of xarray with `to_xarray()`. `emulate` runs a scenario in real time, through the kernel of Linux. `paired`
compares two scenarios seed by seed. `Link` pushes any number of packets through one direction of a path in a single
call. `scheduler` and `congestion_control` register algorithms of one's own (docs/extending.md). Rates are in bit/s,
times in s or in ms where the name says so, delays in ms, shares from 0 to 1. What cannot be done raises a
`SkybraidError`: a `ScenarioError` names the file, the key, what was found and what was expected.

`skybraid new NAME` writes a commented scenario to start from; docs/scenario.md has all keys. Names are imported when
they are first used, so that `import skybraid` costs next to nothing.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skybraid import algorithms as algorithms
    from skybraid import assess as assess
    from skybraid import compare as compare
    from skybraid import errors as errors
    from skybraid import fit as fit
    from skybraid import network as network
    from skybraid import orbit as orbit
    from skybraid import traces as traces
    from skybraid._core import Link, __version__, causes, read_trace, registry
    from skybraid.execute.campaign import Campaign
    from skybraid.execute.emulation import emulate
    from skybraid.execute.opening import open_results
    from skybraid.execute.pairs import Paired, paired
    from skybraid.execute.runs import run
    from skybraid.execute.sweep import sweep
    from skybraid.model.algorithms import Wait, congestion_control, scheduler
    from skybraid.model.errors import (
        EmulationError,
        Interrupted,
        MissingTableError,
        ResultError,
        ScenarioError,
        SkybraidError,
    )
    from skybraid.model.requirements import Requirement
    from skybraid.model.results import Results
    from skybraid.model.scenario import Scenario
    from skybraid.model.statistics import Verdict
    from skybraid.show import explain as explain
    from skybraid.show import plots as plots
    from skybraid.show import report as report

__all__ = [
    "Campaign",
    "EmulationError",
    "Interrupted",
    "Link",
    "MissingTableError",
    "Paired",
    "Requirement",
    "ResultError",
    "Results",
    "Scenario",
    "ScenarioError",
    "SkybraidError",
    "Verdict",
    "Wait",
    "__version__",
    "causes",
    "congestion_control",
    "emulate",
    "open_results",
    "paired",
    "read_trace",
    "registry",
    "run",
    "scheduler",
    "sweep",
]

_NAMES = {
    "_core": "Link __version__ causes read_trace registry",
    "execute.campaign": "Campaign",
    "execute.emulation": "emulate",
    "execute.opening": "open_results",
    "execute.pairs": "Paired paired",
    "execute.runs": "run",
    "execute.sweep": "sweep",
    "model.algorithms": "Wait congestion_control scheduler",
    "model.errors": "EmulationError Interrupted MissingTableError ResultError ScenarioError SkybraidError",
    "model.requirements": "Requirement",
    "model.results": "Results",
    "model.scenario": "Scenario",
    "model.statistics": "Verdict",
}
"""Public names by the module that defines them."""

_MODULES = {
    name: name for name in ("algorithms", "assess", "compare", "errors", "fit", "network", "orbit", "traces")
} | {name: f"show.{name}" for name in ("explain", "plots", "report")}
"""Public modules, by name."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Returns a public name, imported on first use."""
        if name == "open":
            warnings.warn("skybraid.open is now skybraid.open_results", DeprecationWarning, stacklevel=2)
            found = __getattr__("open_results")
        elif name in _MODULE_OF:
            found = getattr(importlib.import_module(f"skybraid.{_MODULE_OF[name]}"), name)
        elif name in _MODULES:
            try:
                found = importlib.import_module(f"skybraid.{_MODULES[name]}")
            except ModuleNotFoundError as error:
                errors = importlib.import_module("skybraid.model.errors")
                raise errors.MissingExtraError.of(error) from error
        else:
            raise AttributeError(f"module 'skybraid' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]

"""Skybraid: is a connection over several networks good enough to fly an aircraft remotely?

`run` simulates a scenario and judges it:

    results = skybraid.run("scenarios/remote-piloting.toml")
    for requirement in results.requirements:
        print(requirement.flow, requirement.verdict, requirement.words)
    results.tables["messages"]   # polars
    results.report("report.html")

`emulate` flies it in real time, through the kernel. `Link` pushes any number of packets through one direction of a path
in a single call.
"""

from skybraid._core import Link, __version__, causes, read_trace, registry
from skybraid.algorithms import Wait, congestion_control, scheduler
from skybraid.campaign import run
from skybraid.campaigns import Campaign, Paired, open_, paired, sweep
from skybraid.emulation import emulate
from skybraid.errors import EmulationError, Interrupted, MissingTableError, ResultError, ScenarioError, SkybraidError
from skybraid.requirements import Requirement
from skybraid.results import Results
from skybraid.scenario import Scenario
from skybraid.statistics import Verdict

open = open_  # noqa: A001 read as skybraid.open

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
    "open",
    "paired",
    "read_trace",
    "registry",
    "run",
    "scheduler",
    "sweep",
]

"""Explanations of a result: causes of misses, remedies, and how flows used their paths."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from skybraid.model.errors import ResultError, unknown
from skybraid.show.explain.path_use import FlowExplained, PathUse, Wait, median_delays, text, use_of_paths
from skybraid.show.explain.remedies import Budget, Remedy
from skybraid.show.explain.requirement import UnmetRequirement, unmet
from skybraid.show.series import delays

if TYPE_CHECKING:
    import polars as pl

    from skybraid.model.results import Results

__all__ = [
    "Budget",
    "FlowExplained",
    "PathUse",
    "Remedy",
    "UnmetRequirement",
    "Wait",
    "explain",
    "median_delays",
    "text",
]


def explain(
    results: Results,
    flow: str | None = None,
    budget: Budget | None = None,
    medians: pl.DataFrame | None = None,
) -> list[FlowExplained]:
    """Explains the flows of a result, or a single one.

    Args:
        results: result to explain.
        flow: name of a flow; default: all. `print` shows each explanation in plain words.
        budget: budget of runs that test remedies; default: none.
        medians: result of the query `median_delays`; default: the query is executed, if messages were kept.

    Raises:
        ResultError: there is no such flow, or the scenario uses TOML newer than 1.0.
    """
    try:
        scenario = tomllib.loads(results.scenario)
    except tomllib.TOMLDecodeError as error:
        raise ResultError(
            f"scenario.toml: found TOML that only later versions allow, expected TOML 1.0: {error}"
        ) from error
    flows = scenario["flow"]
    if flow is not None and flow not in flows:
        raise ResultError(unknown("--flow", flow, flows))
    if medians is None and "messages" in results.tables:
        medians = median_delays(delays(results.tables.scan("messages"))).collect(engine="streaming")
    rows = () if medians is None else medians.iter_rows()
    delays_ms = {(str(name), str(path)): delay_ns / 1e6 for name, path, delay_ns in rows}
    explained = []
    for name in flows:
        # The user's own programs replace the flows.
        if name in results.flows and flow in (None, name):
            one = use_of_paths(results, scenario, name, delays_ms)
            one.requirements = unmet(results, scenario, name, budget)
            explained.append(one)
    return explained

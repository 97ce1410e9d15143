"""Report: one self-contained HTML file for screen, phone and paper.

Modules are imported on first use, so that a run's report does not load those of campaigns or gateways.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from skybraid.model.folder import write_whole
from skybraid.model.results import Results

if TYPE_CHECKING:
    from skybraid.execute.campaign import Campaign
    from skybraid.show.explain import Budget
    from skybraid.show.report.campaign import ranking_so_far
    from skybraid.show.report.compared import compared_html, is_compared, read_table
    from skybraid.show.report.gateway import gateway_html
    from skybraid.show.report.logs import GatewayLog, is_log
    from skybraid.show.report.points import Judged, Wanted, judged
    from skybraid.show.report.single import longest_gaps, path_stories, verdicts_so_far, waits

__all__ = [
    "GatewayLog",
    "Judged",
    "Wanted",
    "compared_html",
    "gateway_html",
    "html",
    "is_compared",
    "is_log",
    "judged",
    "longest_gaps",
    "path_stories",
    "ranking_so_far",
    "read_table",
    "verdicts_so_far",
    "waits",
    "write_report",
]

_NAMES = {
    "campaign": "campaign_html ranking_so_far",
    "compared": "compared_html is_compared read_table",
    "gateway": "gateway_html",
    "logs": "GatewayLog is_log",
    "points": "Judged Wanted judged",
    "single": "longest_gaps path_stories single_html verdicts_so_far waits",
}
"""Public names by their module."""

_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def write_report(source: Results | Campaign, path: Path, budget: Budget | None = None) -> Path:
    """Writes the report of a result or of a campaign to `path`, replacing an earlier report.

    Args:
        source: result or campaign.
        path: file to write.
        budget: budget of runs that test remedies for a result; default: none.

    Raises:
        ResultError: the file cannot be written.
    """
    write_whole(path, html(source, budget).encode())
    return path


def html(source: Results | Campaign, budget: Budget | None = None) -> str:
    """Renders the report of a result or a campaign as HTML; for the arguments see `write_report`."""
    if isinstance(source, Results):
        return cast("Callable[[Results, Budget | None], str]", _imported("single_html"))(source, budget)
    return cast("Callable[[Campaign], str]", _imported("campaign_html"))(source)


def _imported(name: str) -> object:
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Returns a public name, imported on first use."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _imported(name)

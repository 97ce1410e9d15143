"""Report: one self-contained HTML file for screen, phone and paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.folder import write_whole
from skybraid.model.results import Results
from skybraid.show.report.campaign import campaign_html
from skybraid.show.report.gateway import gateway_html
from skybraid.show.report.logs import GatewayLog, is_log
from skybraid.show.report.points import Judged, Wanted, judged
from skybraid.show.report.single import longest_gaps, path_stories, single_html, waits

if TYPE_CHECKING:
    from pathlib import Path

    from skybraid.execute.campaign import Campaign

__all__ = [
    "GatewayLog",
    "Judged",
    "Wanted",
    "gateway_html",
    "html",
    "is_log",
    "judged",
    "longest_gaps",
    "path_stories",
    "waits",
    "write_report",
]


def write_report(source: Results | Campaign, path: Path) -> Path:
    """Writes the report of a result or of a campaign to `path`, replacing an earlier report there.

    Raises:
        ResultError: the file cannot be written.
    """
    write_whole(path, html(source).encode())
    return path


def html(source: Results | Campaign) -> str:
    """Renders the report of a result or a campaign as HTML."""
    return single_html(source) if isinstance(source, Results) else campaign_html(source)

"""Command `report`: renders a result, a campaign, a comparison or gateway logs as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skybraid.cli.late import explaining, opening, reports
from skybraid.cli.options import AsJson, Quiet, print_result
from skybraid.model.errors import ResultError
from skybraid.model.folder import check_new_file, write_whole
from skybraid.model.results import Results

if TYPE_CHECKING:
    from skybraid.execute.campaign import Campaign


def report(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Folder of a result, folder or URL of a campaign, table of `compare --out`, event logs of gateways.",
            metavar="RESULT|CAMPAIGN|TABLE|LOG…",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file; by default report.html in the folder, or next to the first log.", metavar="FILE"
        ),
    ] = None,
    remedies: Annotated[
        bool,
        typer.Option("--remedies", help="Also run what may change the verdicts of a result, for up to two minutes."),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of a result, a campaign, a comparison or a flight's gateway logs as one HTML file.

    Example: skybraid report runs/first-1 --out first.html
    """
    if out is not None:
        check_new_file(out)
    files = [Path(one) for one in source]
    if len(files) > 1 or reports.is_log(files[0]):
        path = files[0].with_suffix(".html") if out is None else out
        check_new_file(path)
        write_whole(path, reports.gateway_html(files).encode())
    elif files[0].is_file() and reports.is_compared(files[0]):
        path = files[0].with_suffix(".html") if out is None else out
        check_new_file(path)
        write_whole(
            path, reports.compared_html(f"Transports of {files[0].name}", reports.read_table(files[0])).encode()
        )
    else:
        opened = opening.open_results(source[0])
        path = place_in(opened, "report.html") if out is None else out
        check_new_file(path)
        path = reports.write_report(opened, path, explaining.Budget() if remedies else None)
    print_result({"report": str(path)}, path, as_json=as_json, quiet=quiet)


def place_in(opened: Results | Campaign, name: str) -> Path:
    """Path of a file within the opened folder.

    Raises:
        ResultError: it does not lie in a folder of this machine.
    """
    place = opened.folder if isinstance(opened, Results) else opened.url
    if place is None or "://" in str(place):
        raise ResultError(f"--out: {place} is not a folder of this machine, expected the file's name")
    return Path(place) / name

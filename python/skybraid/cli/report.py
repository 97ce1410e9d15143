"""Command `report`: renders a result, a campaign or gateway logs as a page."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import AsJson, Quiet, print_json
from skybraid.execute.campaign import Campaign
from skybraid.execute.opening import open_results
from skybraid.model.errors import ResultError
from skybraid.model.folder import check_new_file, write_whole
from skybraid.model.results import Results
from skybraid.show.report import gateway_html, is_log, write_report


def report(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Folder of a result, folder or URL of a campaign, or event logs of gateways.",
            metavar="RESULT|CAMPAIGN|LOG…",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file; by default report.html in the folder, or next to the first log.", metavar="FILE"
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write the report of a result, a campaign or a flight's gateway logs as one HTML file."""
    if out is not None:
        check_new_file(out)
    files = [Path(one) for one in source]
    if len(files) > 1 or is_log(files[0]):
        path = files[0].with_suffix(".html") if out is None else out
        check_new_file(path)
        write_whole(path, gateway_html(files).encode())
    else:
        opened = open_results(source[0])
        place = place_in(opened, "report.html") if out is None else out
        check_new_file(place)
        path = write_report(opened, place)
    if as_json:
        print_json({"report": str(path)})
    elif not quiet:
        typer.echo(path)


def place_in(opened: Results | Campaign, name: str) -> Path:
    """Path of a file within the opened folder.

    Raises:
        ResultError: it does not lie in a folder of this machine.
    """
    place = opened.folder if isinstance(opened, Results) else opened.url
    if place is None or "://" in str(place):
        raise ResultError(f"--out: {place} is not a folder of this machine, expected the file's name")
    return Path(place) / name

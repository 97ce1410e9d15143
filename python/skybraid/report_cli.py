"""The commands `report` and `plot`: a result or a campaign as a page, or as figures for print."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.campaigns import Campaign, open_
from skybraid.errors import MissingTableError, ResultError, unknown
from skybraid.folder import check_new_file, write_whole
from skybraid.options import Quiet
from skybraid.results import Results

Source = Annotated[
    str, typer.Argument(help="Folder of a result, or folder or URL of a campaign.", metavar="RESULT|CAMPAIGN")
]


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command()(report)
    app.command()(plot)


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
        typer.Option(help="The file; by default report.html in the folder, of logs beside the first.", metavar="FILE"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write the report of a result, of a campaign or of a flight's gateways, one HTML file."""
    from skybraid.report import gateway_html, is_log, write_report

    if out is not None:
        check_new_file(out)
    files = [Path(one) for one in source]
    if len(files) > 1 or is_log(files[0]):
        path = files[0].with_suffix(".html") if out is None else out
        check_new_file(path)
        write_whole(path, gateway_html(files).encode())
        if not quiet:
            typer.echo(path)
        return
    opened = open_(source[0])
    place = _place(opened, "report.html") if out is None else out
    check_new_file(place)
    path = write_report(opened, place)
    if not quiet:
        typer.echo(path)


def plot(
    source: Source,
    kind: Annotated[str | None, typer.Option(help="What to draw, see --list; by default all.", metavar="KIND")] = None,
    flow: Annotated[
        str | None, typer.Option(help="One flow alone; of a campaign by default the first.", metavar="FLOW")
    ] = None,
    x: Annotated[
        str | None,
        typer.Option("--x", help="The axis across; two (A,B) of a heat map, a delay of a tradeoff.", metavar="AXIS"),
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="A column of numbers of the table `flows`.", metavar="METRIC")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="The axis told apart by colour and marker.", metavar="AXIS")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file, .pdf, .svg or .png; by default an .svg a kind in the folder's plots/."),
    ] = None,
    width: Annotated[
        str | None, typer.Option(help="On paper: 88mm for a column, 180mm for a page.", metavar="LENGTH")
    ] = None,
    height: Annotated[str | None, typer.Option(help="On paper.", metavar="LENGTH")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List what can be drawn of this, and leave.")] = False,
    quiet: Quiet = False,
) -> None:
    """Draw a result or a campaign for print: distributions, paths over time, heat maps and more."""
    from skybraid import plots

    if out is not None:
        check_new_file(out)
    opened = open_(source)
    kinds = plots.kinds_of(opened)
    if list_:
        longest = max(map(len, kinds), default=0)
        for name in kinds:
            typer.echo(f"{name:{longest}} {plots.KINDS[name].title}")
        return
    if kind is not None and kind not in kinds:
        raise ResultError(unknown("--kind", kind, kinds))
    if kind is None:
        for option, given in (("--out", out), ("--x", x), ("--y", y), ("--by", by)):
            if given is not None:
                raise ResultError(f"{option}: is for one figure, expected --kind with it, one of {', '.join(kinds)}")
    for name in kinds if kind is None else [kind]:
        path = _place(opened, f"plots/{name}.svg") if out is None else out
        check_new_file(path)
        try:
            figure = plots.draw(opened, name, flow=flow, x=x, y=y, by=by)
        except ResultError as error:
            # Of all kinds, some may lack their table or their axes.
            if kind is not None or not isinstance(error, MissingTableError | plots.NothingToDrawError):
                raise
            typer.echo(f"{name}: not drawn: {error}", err=True)
            continue
        plots.save(figure, path, width=width, height=height)
        if not quiet:
            typer.echo(path)


def _place(opened: Results | Campaign, name: str) -> Path:
    """A file within the folder of what was opened.

    Raises:
        ResultError: it does not lie in a folder of this machine.
    """
    place = opened.folder if isinstance(opened, Results) else opened.url
    if place is None or "://" in str(place):
        raise ResultError(f"--out: {place} is not a folder of this machine, expected the file's name")
    return Path(place) / name

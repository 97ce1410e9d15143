"""Command `plot`: figures for print of a result or a campaign."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.late import opening, plots
from skybraid.cli.options import AsJson, Quiet, print_json
from skybraid.cli.report import place_in
from skybraid.model.errors import MissingTableError, ResultError, unknown
from skybraid.model.folder import check_new_file


def plot(
    source: Annotated[
        str, typer.Argument(help="Folder of a result, or folder or URL of a campaign.", metavar="RESULT|CAMPAIGN")
    ],
    kind: Annotated[
        str | None, typer.Option(help="Kind of figure, see --list; by default all.", metavar="KIND")
    ] = None,
    flow: Annotated[
        str | None, typer.Option(help="Only this flow; for a campaign, by default the first one.", metavar="FLOW")
    ] = None,
    x: Annotated[
        str | None,
        typer.Option("--x", help="Horizontal axis; for a heat map two (A,B), for a tradeoff a delay.", metavar="AXIS"),
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="Vertical axis: a numeric column of the table `flows`.", metavar="METRIC")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Axis distinguished by colour and marker.", metavar="AXIS")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output file (.pdf, .svg or .png); by default one .svg per kind in the folder's plots/."),
    ] = None,
    width: Annotated[
        str | None, typer.Option(help="Width on paper: 88mm for a column, 180mm for a page.", metavar="LENGTH")
    ] = None,
    height: Annotated[str | None, typer.Option(help="Height on paper.", metavar="LENGTH")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the figures that can be drawn, and exit.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw figures of a result or a campaign for print: distributions, paths over time, heat maps and more.

    Example: skybraid plot runs/first-1 --kind ccdf --out delays.pdf
    """
    if out is not None:
        check_new_file(out)
    opened = opening.open_results(source)
    kinds = plots.kinds_of(opened)
    if list_ and as_json:
        print_json({"kinds": {name: plots.KINDS[name].title for name in kinds}})
        return
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
    drawn: dict[str, str] = {}
    for name in kinds if kind is None else [kind]:
        path = place_in(opened, f"plots/{name}.svg") if out is None else out
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
        drawn[name] = str(path)
        if not quiet and not as_json:
            typer.echo(path)
    if as_json:
        print_json({"plots": drawn})

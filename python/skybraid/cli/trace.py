"""Commands `trace`: describe, draw, convert, import and join traces."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from skybraid._core import SkybraidError
from skybraid.cli.measured import Client, Every, InFormat, Lost, Meaning, OneWay, Peer, Zone, one_of, read_options
from skybraid.cli.options import print_json
from skybraid.model.folder import check_new_file
from skybraid.traces import (
    FORMATS,
    OUTPUT_FORMATS,
    Format,
    OutputFormat,
    Trace,
    TraceError,
    formats,
    import_files,
    join,
    load,
    plot,
    read,
    stats,
    write,
)
from skybraid.traces.importing import scenario_lines
from skybraid.traces.measurement import POLICIES, MeasuredTrack

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Describe, draw, convert, import and join traces.",
    no_args_is_help=True,
)

InFile = Annotated[
    Path, typer.Argument(help="Trace, or a file of a measuring tool (`trace import --help`).", metavar="FILE")
]
Column = Annotated[str | None, typer.Option(help="Column by name, or by number from 1.")]
Unit = Annotated[str | None, typer.Option(help="Unit of the values where the file does not state it.")]
Gaps = Annotated[
    str | None,
    typer.Option(help="Gaps are an outage, hold the last value, or split the file.", metavar="|".join(POLICIES)),
]


def _fail(error: SkybraidError) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(2)


def _open(path: Path, column: str | None, unit: str | None, format_: str | None) -> Trace:
    name = one_of(format_, "--format", tuple(formats.FORMATS))
    if name is None:
        source = formats.Source(path)
        # What a scenario reads itself is read as before, by column and unit.
        others = [
            other for other, entry in formats.FORMATS.items() if other not in FORMATS and entry.recognises(source)
        ]
        name = others[0] if len(others) == 1 else None
    if name is None or name in FORMATS:
        return read(path, column, unit, cast("Format | None", name))
    for one in load(path, name):
        if not isinstance(one, MeasuredTrack):
            return one.trace(column or one.columns[0].name)
    raise TraceError(f"{path}: found a track alone; expected a trace")


@app.command("stats")
def stats_command(
    file: InFile,
    column: Column = None,
    unit: Unit = None,
    format_: InFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the statistics of a trace, weighted by time.

    Example: skybraid trace stats drive.csv --column 'delay [ms]'
    """
    try:
        result = stats(_open(file, column, unit, format_))
    except SkybraidError as error:
        _fail(error)
    if as_json:
        print_json(vars(result))
        return
    lines: list[tuple[str, Any]] = [
        ("trace", result.name),
        ("quantity", f"{result.quantity} [{result.unit}]"),
        ("samples", result.samples),
        ("length", f"{result.length_s:.3f} s"),
    ]
    names = ("mean", "sd", "min", "p50", "p95", "p99", "max")
    lines += [(name, f"{getattr(result, name):.4g} {result.unit}") for name in names]
    if result.share_over_300ms is not None:
        lines.append(("over 300 ms", f"{100 * result.share_over_300ms:.4g} % of the time"))
    if result.share_without_path > 0.0:
        lines.append(("no path", f"{100 * result.share_without_path:.4g} % of the time"))
    for name, text in lines:
        typer.echo(f"{name:<12} {text}")


@app.command("plot")
def plot_command(
    file: InFile,
    out: Annotated[Path, typer.Argument(help="Figure to write: .svg, .pdf or .png.")],
    column: Column = None,
    unit: Unit = None,
    format_: InFormat = None,
) -> None:
    """Draw a trace over time and its distribution.

    Example: skybraid trace plot drive.csv drive.svg
    """
    try:
        check_new_file(out)
        if out.suffix not in {".svg", ".pdf", ".png"}:
            raise TraceError(f"{out}: found suffix `{out.suffix}`; expected .svg, .pdf or .png")
        if out.exists():
            raise TraceError(f"{out}: exists already; expected a new file")
        figure = plot(_open(file, column, unit, format_))
        try:
            figure.savefig(out, dpi=150)
        except OSError as error:
            raise TraceError(f"{out}: cannot be written: {error.strerror}") from error
    except SkybraidError as error:
        _fail(error)
    typer.echo(out)


@app.command("convert")
def convert_command(
    file: InFile,
    out: Annotated[Path, typer.Argument(help="Trace to write; never an existing file.")],
    to: Annotated[str | None, typer.Option(help=f"{', '.join(OUTPUT_FORMATS)}; default: by the suffix.")] = None,
    column: Column = None,
    unit: Unit = None,
    format_: InFormat = None,
) -> None:
    """Convert a trace to CSV, Parquet or mahimahi opportunities.

    Example: skybraid trace convert rates.csv rates.down --to mahimahi
    """
    try:
        check_new_file(out)
        chosen = cast("OutputFormat | None", one_of(to, "--to", OUTPUT_FORMATS))
        write(_open(file, column, unit, format_), out, chosen)
    except SkybraidError as error:
        _fail(error)
    typer.echo(out)


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(help="Files of measuring tools.", metavar="FILE...")],
    out: Annotated[Path, typer.Option(help="Folder, or a new .csv where there is one measurement.")],
    format_: InFormat = None,
    every: Every = None,
    zone: Zone = None,
    meanings: Meaning = None,
    client: Client = "vehicle",
    one_way: OneWay = False,
    peer: Peer = None,
    lost: Lost = None,
    gaps: Gaps = None,
) -> None:
    """Turn files of measuring tools into CSV that scenarios replay; lost probes and gaps are kept.

    Reads ping (Linux, macOS, BSD, Windows), irtt, mtr, iperf3, nuttcp, speed tests, Starlink dishes, CSV with dates,
    captures of both ends, MAVLink, ArduPilot and PX4 logs, GPX and KML.

    Example: skybraid trace import ping.log --out drive.csv
    """
    try:
        one_of(gaps, "--gaps", POLICIES)
        options = replace(read_options(zone, meanings, client, lost, every), one_way=one_way, peer=peer)
        written = import_files(files, out, format_, options, gaps)
    except SkybraidError as error:
        _fail(error)
    for path, one in written:
        typer.echo(f"{path}:")
        if isinstance(one, MeasuredTrack):
            typer.echo(f"  track of {len(one.times_s)} points over {one.times_s[-1]:.0f} s")
        else:
            names = ", ".join(column.heading for column in one.columns)
            typer.echo(f"  {names}: {len(one.times_s)} rows over {one.length_s:.6g} s")
        for note in one.notes:
            typer.echo(f"  note: {note}")
        lines = scenario_lines(one, path)
        if lines:
            typer.echo("  in a scenario next to it:")
        for line in lines:
            typer.echo(f"    {line}")


@app.command("join")
def join_command(
    files: Annotated[
        list[str], typer.Argument(help="Series measured together, each with a name.", metavar="NAME=FILE...")
    ],
    out: Annotated[Path, typer.Option(help="New .csv to write.")],
    format_: InFormat = None,
    zone: Zone = None,
    meanings: Meaning = None,
    client: Client = "vehicle",
    lost: Lost = None,
    gaps: Gaps = None,
) -> None:
    """Join series with dates that were measured together into one CSV, so that runs replay them at the same place.

    Example: skybraid trace join lte=lte.log leo=leo.log --out both.csv
    """
    try:
        one_of(gaps, "--gaps", POLICIES)
        named = [_named(text) for text in files]
        options = read_options(zone, meanings, client, lost)
        joined = join(named, out, format_, options, gaps)
    except SkybraidError as error:
        _fail(error)
    typer.echo(f"{out}: {len(joined.times_s)} rows over {joined.length_s:.6g} s that all have in common")
    for column in joined.columns:
        typer.echo(f"  {column.heading}")


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not name:
        raise TraceError(f"found `{text}`; expected NAME=FILE, such as lte=drive.csv")
    return name, Path(path)

"""Commands `trace`: describe, draw, convert, import and join traces."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from skybraid.cli.measured import Client, Every, InFormat, Lost, Meaning, OneWay, Peer, Zone, one_of, read_options
from skybraid.cli.options import AsJson, Group, print_json, print_result
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
from skybraid.traces.measurement import POLICIES, Imported, MeasuredTrack

app = typer.Typer(
    cls=Group,
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


def _open(path: Path, column: str | None, unit: str | None, format_: str | None, options: formats.Options) -> Trace:
    name = one_of(format_, "--format", tuple(formats.FORMATS))
    if name is None:
        source = formats.Source(path)
        fits = formats.fitting(source)
        # What a scenario reads itself is read by column and unit.
        name = fits[0] if len(fits) == 1 else None
    if (name is None or name in FORMATS) and not options.columns and options.lost is None:
        return read(path, column, unit, cast("Format | None", name))
    for one in load(path, name, options):
        if not isinstance(one, MeasuredTrack):
            return one.trace(column or one.columns[0].name)
    raise TraceError(f"{path}: found a track alone; expected a trace")


def _options(meanings: list[str] | None, lost: float | None, every: str | None) -> formats.Options:
    # The clock of a trace begins at zero, so that a date's zone is of no use.
    return read_options("UTC", meanings, "vehicle", lost, every)


@app.command("stats")
def stats_command(
    file: InFile,
    column: Column = None,
    unit: Unit = None,
    format_: InFormat = None,
    every: Every = None,
    meanings: Meaning = None,
    lost: Lost = None,
    as_json: AsJson = False,
) -> None:
    """Print the statistics of a trace, weighted by time.

    Example: skybraid trace stats drive.csv --column 'delay [ms]'
    """
    result = stats(_open(file, column, unit, format_, _options(meanings, lost, every)))
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
    every: Every = None,
    meanings: Meaning = None,
    lost: Lost = None,
    as_json: AsJson = False,
) -> None:
    """Draw a trace over time and its distribution.

    Example: skybraid trace plot drive.csv drive.svg
    """
    check_new_file(out)
    if out.suffix not in {".svg", ".pdf", ".png"}:
        raise TraceError(f"{out}: found suffix `{out.suffix}`; expected .svg, .pdf or .png")
    if out.exists():
        raise TraceError(f"{out}: exists already; expected a new file")
    figure = plot(_open(file, column, unit, format_, _options(meanings, lost, every)))
    try:
        figure.savefig(out, dpi=150)
    except OSError as error:
        raise TraceError(f"{out}: cannot be written: {error.strerror}") from error
    print_result({"figure": str(out)}, out, as_json=as_json)


@app.command("convert")
def convert_command(
    file: InFile,
    out: Annotated[Path, typer.Argument(help="Trace to write; never an existing file.")],
    to: Annotated[str | None, typer.Option(help=f"{', '.join(OUTPUT_FORMATS)}; default: by the suffix.")] = None,
    column: Column = None,
    unit: Unit = None,
    format_: InFormat = None,
    every: Every = None,
    meanings: Meaning = None,
    lost: Lost = None,
    as_json: AsJson = False,
) -> None:
    """Convert a trace to CSV, Parquet or mahimahi opportunities.

    Example: skybraid trace convert rates.csv rates.down --to mahimahi
    """
    check_new_file(out)
    chosen = cast("OutputFormat | None", one_of(to, "--to", OUTPUT_FORMATS))
    write(_open(file, column, unit, format_, _options(meanings, lost, every)), out, chosen)
    print_result({"trace": str(out)}, out, as_json=as_json)


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
    as_json: AsJson = False,
) -> None:
    """Turn files of measuring tools into CSV that scenarios replay; lost probes and gaps are kept.

    Reads ping (Linux, macOS, BSD, Windows, PowerShell), irtt, mtr, iperf 2 and 3, nuttcp, speed tests, Starlink
    dishes, CSV with dates, captures of both ends, MAVLink, ArduPilot and PX4 logs, GPX and KML.

    Example: skybraid trace import ping.log --out drive.csv
    """
    one_of(gaps, "--gaps", POLICIES)
    options = replace(read_options(zone, meanings, client, lost, every), one_way=one_way, peer=peer)
    written = import_files(files, out, format_, options, gaps)
    if as_json:
        print_json({"files": [_written_json(path, one) for path, one in written]})
    else:
        for path, one in written:
            typer.echo("\n".join(_written_lines(path, one)))


def _written_json(path: Path, one: Imported) -> dict[str, Any]:
    columns = [] if isinstance(one, MeasuredTrack) else [column.heading for column in one.columns]
    return {
        "file": str(path),
        "columns": columns,
        "rows": len(one.times_s),
        "length_s": float(one.times_s[-1]) if isinstance(one, MeasuredTrack) else one.length_s,
        "notes": list(one.notes),
        "scenario": scenario_lines(one, path),
    }


def _written_lines(path: Path, one: Imported) -> list[str]:
    if isinstance(one, MeasuredTrack):
        lines = [f"{path}:", f"  track of {len(one.times_s)} points over {one.times_s[-1]:.0f} s"]
    else:
        names = ", ".join(column.heading for column in one.columns)
        lines = [f"{path}:", f"  {names}: {len(one.times_s)} rows over {one.length_s:.6g} s"]
    lines += [f"  note: {note}" for note in one.notes]
    keys = scenario_lines(one, path)
    return [*lines, *(["  in a scenario next to it:"] if keys else []), *(f"    {line}" for line in keys)]


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
    as_json: AsJson = False,
) -> None:
    """Join series with dates that were measured together into one CSV, so that runs replay them at the same place.

    Example: skybraid trace join lte=lte.log leo=leo.log --out both.csv
    """
    one_of(gaps, "--gaps", POLICIES)
    named = [_named(text) for text in files]
    options = read_options(zone, meanings, client, lost)
    joined = join(named, out, format_, options, gaps)
    columns = [column.heading for column in joined.columns]
    value = {"file": str(out), "columns": columns, "rows": len(joined.times_s), "length_s": joined.length_s}
    head = f"{out}: {len(joined.times_s)} rows over {joined.length_s:.6g} s that all have in common"
    print_result(value, "\n  ".join([head, *columns]), as_json=as_json)


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals or not name:
        raise TraceError(f"found `{text}`; expected NAME=FILE, such as lte=drive.csv")
    return name, Path(path)

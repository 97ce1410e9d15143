"""Commands `trace`: describe, draw and convert traces."""

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn, cast

import typer

from skybraid._core import SkybraidError
from skybraid.model.folder import check_new_file
from skybraid.traces import FORMATS, OUTPUT_FORMATS, Format, OutputFormat, Trace, TraceError, plot, read, stats, write

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Describe, draw and convert traces.", no_args_is_help=True
)

InFile = Annotated[Path, typer.Argument(help="CSV, mahimahi, Parquet, ping log or Hypatia RTT series.")]
Column = Annotated[str | None, typer.Option(help="Column by name, or by number from 1.")]
Unit = Annotated[str | None, typer.Option(help="Unit of the values where the file does not state it.")]
InFormat = Annotated[str | None, typer.Option("--format", help=f"Format of the trace: {', '.join(FORMATS)}.")]


def _fail(error: SkybraidError) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(2)


def _one_of(value: str | None, option: str, known: tuple[str, ...]) -> str | None:
    if value is not None and value not in known:
        raise TraceError(f"{option}: found `{value}`; expected one of {', '.join(known)}")
    return value


def _open(path: Path, column: str | None, unit: str | None, format_: str | None) -> Trace:
    return read(path, column, unit, cast("Format | None", _one_of(format_, "--format", FORMATS)))


@app.command("stats")
def stats_command(
    file: InFile,
    column: Column = None,
    unit: Unit = None,
    format_: InFormat = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print the statistics of a trace, weighted by time."""
    try:
        result = stats(_open(file, column, unit, format_))
    except SkybraidError as error:
        _fail(error)
    if as_json:
        typer.echo(json.dumps(vars(result)))
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
    """Draw a trace over time and its distribution."""
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
    """Convert a trace to CSV, Parquet or mahimahi opportunities."""
    try:
        check_new_file(out)
        chosen = cast("OutputFormat | None", _one_of(to, "--to", OUTPUT_FORMATS))
        write(_open(file, column, unit, format_), out, chosen)
    except SkybraidError as error:
        _fail(error)
    typer.echo(out)

"""Command `fit`: fits a link of processes to measurements and checks the fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skybraid.cli.late import fit as fitting
from skybraid.cli.late import fit_page
from skybraid.cli.late import flights as measured
from skybraid.cli.measured import Client, Every, InFormat, Lost, Meaning, Zone, read_options
from skybraid.cli.options import AsJson, Page, Quiet, new_file, print_json
from skybraid.cli.progress import progress
from skybraid.model.errors import TraceError
from skybraid.model.folder import write_whole

if TYPE_CHECKING:
    from skybraid.fit.goodness import Check, Goodness
    from skybraid.fit.link import FittedLink


def fit(
    flights: Annotated[
        list[str],
        typer.Argument(
            help="One flight per argument; `uplink:up.csv+downlink:down.csv+ping.txt` is one flight.",
            metavar="FLIGHT...",
        ),
    ],
    out: Annotated[Path, typer.Option(help="New .toml to write, for `preset` of a path.", metavar="FILE")],
    page: Page = None,
    handovers: Annotated[
        list[Path] | None,
        typer.Option(help="CSV of handovers: start in s, duration in ms; one file per flight.", metavar="FILE"),
    ] = None,
    format_: InFormat = None,
    every: Every = None,
    zone: Zone = None,
    meanings: Meaning = None,
    client: Client = "vehicle",
    lost: Lost = None,
    loaded: Annotated[
        bool, typer.Option("--loaded", help="Delays were measured under full load: fit queue and base delay apart.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare the fit with held-out measurements.")
    ] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a link of random processes to measurements, and compare the fit with held-out measurements.

    Also lists what the data leave open. Reads every format of `skybraid trace import`.

    Example: skybraid fit drive1.csv drive2.csv --out lte.toml --page lte.html
    """
    if out.suffix != ".toml":
        raise TraceError(f"--out: found `{out}`; expected a name that ends in .toml")
    for path in (out, page):
        if path is not None:
            new_file(path)
    options = replace(read_options(zone, meanings, client, lost, every), format=format_)
    read = measured.without_twins([part for text in flights for part in measured.read_flight(text, options).journeys()])
    link = fitting.fit_link(
        read, [one for path in handovers or [] for one in fitting.read_handovers(path)], is_loaded=loaded
    )
    found: Goodness | None = None
    if check:
        with progress(shown=not quiet) as report_progress:
            found = fitting.held_back(fitting.without_load(read)[0] if loaded else read, progress=report_progress)
    write_whole(out, link.toml(", ".join(Path(one.name).name for one in read)).encode())
    if page is not None:
        write_whole(page, fit_page.fit_html(link, found, out.name, read).encode())
    if as_json:
        print_json(_json(link, len(read), found, out))
    elif not quiet:
        notes = list(dict.fromkeys(note for one in read for note in one.notes))
        typer.echo(_text(link, len(read), found, notes, out))


def _json(link: FittedLink, flights: int, found: Goodness | None, out: Path) -> dict[str, object]:
    checks = [] if found is None else [vars_of(one) for one in found.checks]
    return {
        "out": str(out),
        "flights": flights,
        "windows": link.windows,
        "unknown": list(link.unknown),
        "checks": checks,
    }


def vars_of(one: Check) -> dict[str, object]:
    """Returns a check as plain values."""
    return {
        "name": one.name,
        "unit": one.unit,
        "measured": list(one.measured),
        "resampled": list(one.resampled),
        "fitted": list(one.fitted),
        "inside": one.inside,
        "verdict": one.is_verdict,
    }


def _text(link: FittedLink, flights: int, found: Goodness | None, notes: list[str], out: Path) -> str:
    count = "1 flight" if flights == 1 else f"{flights} flights"
    if link.windows > flights:
        count += f", {link.windows} windows"
    lines = [f"{out}: fitted to {count}"]
    lines += [f"  note: {note}" for note in notes]
    lines += [f"  unknown: {one}" for one in link.unknown]
    if found is None:
        return "\n".join(lines)
    lines += ["", f"Checked on held-out measurements: {found.split}."]
    heads = ["", "measured", "by blocks", "fitted", "inside"]
    rows = [heads]
    for one in found.checks:
        measured = _span(min(one.measured), max(one.measured))
        inside = f"{one.inside} of {len(one.measured)}"
        ranges = [_span(each.low, each.high) for each in (one.resampled, one.fitted)]
        rows.append([f"{one.name}{f' [{one.unit}]' if one.unit else ''}", measured, *ranges, inside])
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads))]
    lines += [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    missed = [one.name for one in found.checks if one.is_verdict and one.inside < len(one.measured)]
    if missed:
        lines.append(f"The fit misses: {', '.join(missed)}. Replay the measurement (`resample`) for these.")
    return "\n".join(lines)


def _span(low: float, high: float) -> str:
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} to {high:.4g}"

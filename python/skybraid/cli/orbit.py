"""Command `orbit`: satellites that serve a terminal over time, and their delay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import skybraid
from skybraid import orbit as satellites
from skybraid.cli.options import AsJson, Overrides, Quiet, assignment, print_json
from skybraid.model.errors import ResultError, ScenarioError
from skybraid.model.folder import check_new_file, write_whole
from skybraid.model.formatting import span
from skybraid.model.scenario import Scenario

FIGURES = (".svg", ".pdf", ".png")
_HERE = "command line"

ScenarioFile = Annotated[
    Path | None, typer.Argument(help="A scenario, a TOML file, in place of the options.", metavar="SCENARIO")
]
Places = Annotated[
    list[str] | None,
    typer.Option(help="Position of a gateway; may be repeated. By default the other end.", metavar="LAT,LON"),
]


def orbit(
    scenario: ScenarioFile = None,
    path: Annotated[str | None, typer.Option(help="The scenario's path or link; by default its only one.")] = None,
    set_: Overrides = None,
    constellation: Annotated[
        str | None, typer.Option(help="Name of a constellation; --list shows all.", metavar="NAME")
    ] = None,
    elements: Annotated[
        Path | None, typer.Option(help="Element sets: TLE, or OMM as JSON, CSV, XML or KVN.", metavar="FILE")
    ] = None,
    walker: Annotated[
        list[str] | None, typer.Option(help="A shell: 53deg:1584/72/65@550km; may be repeated.", metavar="I:T/P/F@H")
    ] = None,
    geostationary: Annotated[
        list[str] | None, typer.Option(help="A longitude, east positive: 13deg; may be repeated.", metavar="LON")
    ] = None,
    at: Annotated[str | None, typer.Option(help="Position of the terminal: 46.95,7.44 or 46.95,7.44,550m.")] = None,
    track: Annotated[
        Path | None,
        typer.Option(help="Track of the terminal: CSV, GPX, KML or a plan of QGroundControl.", metavar="FILE"),
    ] = None,
    speed: Annotated[str | None, typer.Option(help="Speed along a track without times: 60m/s.")] = None,
    gateway: Places = None,
    other: Annotated[
        str | None, typer.Option(help="The link's other end; by default the first gateway.", metavar="LAT,LON")
    ] = None,
    ground_delay: Annotated[
        str | None,
        typer.Option(help="Delay from the gateway to --other; by default the great circle at 2/3 c.", metavar="TIME"),
    ] = None,
    mask: Annotated[str, typer.Option(help="Minimum elevation at the terminal.")] = "25deg",
    gateway_mask: Annotated[
        str | None, typer.Option(help="Minimum elevation at the gateways; by default --mask.")
    ] = None,
    choice: Annotated[
        str, typer.Option(help="Choice of the satellite: nearest, longest_visible or epoch.")
    ] = "longest_visible",
    isl: Annotated[bool, typer.Option("--isl", help="Route over inter-satellite links.")] = False,
    handover_gap: Annotated[str, typer.Option(help="Interruption at each handover.")] = "0s",
    start: Annotated[str, typer.Option(help="Start time, in UTC.")] = "2026-01-01T00:00:00Z",
    duration: Annotated[str, typer.Option(help="Time to show.")] = "30min",
    step: Annotated[str, typer.Option(help="Time step of the delay.")] = "100ms",
    csv: Annotated[Path | None, typer.Option(help="Write the delay over time as CSV.", metavar="FILE")] = None,
    hypatia: Annotated[
        Path | None, typer.Option(help="Write round trips as Hypatia does: time_ns,rtt_ns.", metavar="FILE")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw elevation and delay: a .svg, .pdf or .png.", metavar="FILE")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the constellations that have a name.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show which satellite serves a terminal over time, with its elevation and delay.

    Exit code: 0 shown, 2 bad input.

    Example: skybraid orbit --constellation starlink-550 --at 46.95,7.44,550m --gateway 45.5,9.2
    """
    if list_:
        _list_constellations(as_json)
        return
    _check_files(csv, hypatia, plot)
    sources: dict[str, Any] = {
        "constellation": constellation,
        "elements": None if elements is None else str(elements),
        "walker": walker,
        "geostationary": geostationary,
    }
    chosen = {key: value for key, value in sources.items() if value}
    if scenario is not None:
        if chosen or at or track:
            raise ScenarioError("orbit: found a SCENARIO and options, expected one of them; --set changes a scenario")
        service = satellites.of_path(Scenario.load(scenario, [assignment(text) for text in set_ or []]), path)
    else:
        optional = {"ground_delay": ground_delay, "gateway_mask": gateway_mask}
        table: dict[str, Any] = chosen | {key: value for key, value in optional.items() if value is not None}
        table |= {"mask": mask, "choice": choice, "isl": isl, "handover_gap": handover_gap, "step": step}
        table |= {"start": start, "gateways": [_place("--gateway", text) for text in gateway or []]}
        ends = {"position": _place("--other", other)} if other else None
        service = satellites.serve(table, _terminal(at, track, speed), duration, ends, _HERE)
    if service.warning is not None and not quiet:
        typer.echo(f"note: {service.warning}", err=True)
    for file, text in ((csv, service.csv), (hypatia, service.hypatia)):
        if file is not None:
            write_whole(file, text().encode())
    if plot is not None:
        skybraid.plots.save(satellites.plot(service), plot)
    if as_json:
        print_json(service.json())
    elif not quiet:
        for line in _lines(service):
            typer.echo(line)


def _list_constellations(as_json: bool) -> None:
    known = satellites.constellations()
    if as_json:
        print_json({"constellations": known})
        return
    for name, about in known.items():
        typer.echo(f"{name}: {about}")


def _check_files(csv: Path | None, hypatia: Path | None, plot: Path | None) -> None:
    for file in (csv, hypatia, plot):
        if file is not None and file.exists():
            raise ResultError(f"{file}: found a file, expected a new name; nothing was changed")
        if file is not None:
            check_new_file(file)
    if plot is not None and plot.suffix not in FIGURES:
        raise ScenarioError(f"--plot: found {plot}, expected a name that ends in {', '.join(FIGURES)}")


def _terminal(at: str | None, track: Path | None, speed: str | None) -> dict[str, Any]:
    if (at is None) == (track is None):
        raise ScenarioError("orbit: expected either --at LAT,LON or --track FILE (or a SCENARIO)")
    if at is not None:
        return {"position": _place("--at", at)}
    return {"track": {"file": str(track)} | ({} if speed is None else {"speed": speed})}


def _place(option: str, text: str) -> dict[str, Any]:
    """Parses `LAT,LON` or `LAT,LON,ALTITUDE` into the table of a position."""
    parts = [part.strip() for part in text.split(",")]
    try:
        latitude, longitude = float(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        parts = []
    if len(parts) not in (2, 3):
        raise ScenarioError(f"{option}: found {text}, expected LAT,LON in degrees, for example 46.95,7.44 or 47,8,500m")
    place: dict[str, Any] = {"latitude": latitude, "longitude": longitude}
    return place | ({"altitude": parts[2]} if len(parts) == 3 else {})


def _lines(service: satellites.Service) -> list[str]:
    lines = [f"from {service.start} for {span(service.length_s)}"]
    times_s, elevations, delays_ms = (service.samples[key] for key in ("time_s", "elevation_deg", "delay_ms"))
    rows: list[tuple[float, str]] = []
    for serving in service.serving:
        own = (times_s >= serving.from_s) & (times_s < serving.to_s)
        if own.any():
            low, high = elevations[own].min(), elevations[own].max()
            least, most = delays_ms[own].min(), delays_ms[own].max()
            seen = f"{low:4.1f}° to {high:4.1f}°, {least:.3f} ms to {most:.3f} ms"
            rows.append((serving.from_s, f"{_clock(serving.from_s, serving.to_s)}  {serving.satellite}: {seen}"))
    for gaps, what in ((service.gaps, "no satellite"), (service.rain, "cut off by rain")):
        rows += [(gap.from_s, f"{_clock(gap.from_s, gap.from_s + gap.length_s)}  {what}") for gap in gaps]
    lines += [f"  {text}" for _, text in sorted(rows)]
    delays = service.delays_ms
    if delays is not None:
        delay = f"{delays.min:.3f} ms at least, {delays.median:.3f} ms in the median, {delays.max:.3f} ms at most"
        lines.append(f"one-way delay: {delay}")
    number = len(service.handovers)
    lines.append(f"handovers: {number}, {service.handovers_per_hour:.1f} per hour of service")
    without_s = sum(gap.length_s for gap in service.gaps)
    share = 100 * without_s / service.length_s
    lines.append(f"without a satellite: {len(service.gaps)} times, {without_s:.3f} s in all, {share:.2f} % of the time")
    return lines


def _clock(from_s: float, to_s: float) -> str:
    return f"{from_s:10.3f} s to {to_s:10.3f} s"

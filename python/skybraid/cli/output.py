"""Text output of a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from skybraid.model.formatting import count, microseconds, span
from skybraid.model.misses import is_short_of_runs, main_cause, refusals
from skybraid.model.provenance import seeds_text
from skybraid.model.requirements import headline
from skybraid.model.statistics import Verdict
from skybraid.model.summary import video_words
from skybraid.show.words import ended, link_lines, split

if TYPE_CHECKING:
    from skybraid.model.results import Results


def print_results(results: Results, *, has_report: bool) -> None:
    """Prints a result: what was run, the verdict of each requirement, and its folder."""
    one = len(results.seeds) == 1
    flights, seeds = ("1 flight", "seed") if one else (f"{len(results.seeds)} flights", "seeds")
    typer.echo(
        f"{results.name}: {flights}, {span(results.simulated_s)} {_pace(results)}, {seeds} {seeds_text(results.seeds)}"
    )
    emulation = results.flights[0].emulation
    if emulation is not None:
        _print_emulation(emulation)
    if results.flows:
        _print_flows(results)
    else:
        for line in link_lines(results.links()):
            typer.echo(f"  {line}")
    if results.folder is not None:
        typer.echo(f"result: {results.folder}")
        page = results.folder / "report.html"
        typer.echo(f"report: {page}" if has_report else f"report: skybraid report {results.folder}")


def _print_emulation(emulation: dict[str, Any]) -> None:
    for line in timing(emulation):
        typer.echo(f"  {line}")
    for node, proxy in emulation.get("proxies", {}).items():
        typer.echo(f"  {node}: {split(proxy)}")
    for node, program in emulation.get("programs", {}).items():
        see = f", see {node}.err" if program["exit"] else ""
        typer.echo(f"  {node}: {program['command']}: {ended(program)}{see}")


def _print_flows(results: Results) -> None:
    for requirement in results.requirements:
        typer.echo(f"  {requirement.flow}: {coloured(requirement.verdict)}. {requirement.words}.")
        cause = main_cause(requirement, results.flows[requirement.flow])
        # Where nothing was missed, the sentence above has the reason.
        if cause is not None and requirement.missed != 0 and not is_short_of_runs(requirement):
            typer.echo(f"    {cause}")
        if requirement.members is not None:
            typer.echo(f"    each by itself: {requirement.members.words(requirement.metric)}")
    for name, flow in results.flows.items():
        if flow.video is not None:
            typer.echo(f"  {name}: {video_words(flow.video)}.")
        refused = refusals(flow)
        if refused is not None:
            typer.echo(f"  {name}: {refused}.")
    typer.echo(headline(results.requirements))


def _pace(results: Results) -> str:
    if results.driver == "emulation":
        return "emulated in real time"
    speed = results.simulated_s / results.wall_s if results.wall_s > 0 else 0.0
    return f"simulated in {results.wall_s:.2f} s ({count(round(speed))} × real time)"


def timing(emulation: dict[str, Any]) -> list[str]:
    """Lines on an emulation's timing accuracy, its notices, and a warning if it is doubtful."""
    late = emulation["lateness_us"]
    kept = (
        f"packets left their link late by {microseconds(late['p50'])} (median), {microseconds(late['p99'])} (p99), "
        f"{microseconds(late['max'])} (most); the emulator itself lost {count(emulation['emulator_losses'])}"
    )
    lines = [kept, *(f"note: {note}" for note in emulation.get("notes", ()))]
    if not emulation["doubtful"]:
        return lines
    return [*lines, typer.style(f"WARNING: the numbers are doubtful: {emulation['doubtful']}", fg="red", bold=True)]


def coloured(verdict: Verdict) -> str:
    """Colours a verdict if the output is a terminal."""
    colours = {Verdict.MET: typer.colors.GREEN, Verdict.NOT_MET: typer.colors.RED}
    return typer.style(str(verdict), fg=colours.get(verdict, typer.colors.YELLOW), bold=True)

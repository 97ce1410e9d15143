"""Command `sweep`: runs a campaign over many points and seeds."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skybraid.cli.late import axes, opening, overview, planning, reports, sweeping
from skybraid.cli.options import (
    INTERRUPTED,
    MET,
    NOT_MET,
    AsJson,
    Live,
    Overrides,
    Plugins,
    Quiet,
    Report,
    Seed,
    assignment,
    load_plugins,
    print_json,
)
from skybraid.cli.served import page
from skybraid.model.errors import ScenarioError
from skybraid.model.formatting import count, span
from skybraid.model.heavy import rich_console, rich_progress
from skybraid.model.provenance import seeds_from, seeds_text

if TYPE_CHECKING:
    from skybraid.execute.campaign import Campaign
    from skybraid.execute.plan import Plan
    from skybraid.execute.sweep import Status

_LINE_EVERY_S = 5.0
_SHOWN_FAILURES = 3


def sweep(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO")],
    seeds: Annotated[
        str | None, typer.Option(help="Seeds of every point, instead of the sweep's: 1..100 or 3,5,8.", metavar="A..B")
    ] = None,
    seed: Seed = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="A key and its values, a range as in [sweep], or `all` of `skybraid list`; may be repeated.",
            metavar="KEY=V1,V2",
        ),
    ] = None,
    set_: Overrides = None,
    workers: Annotated[
        int | None, typer.Option(help="Parallel runs; by default one per core.", metavar="N", min=1)
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="Cluster that executes the runs: dask://HOST:PORT.", metavar="URL")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Folder or URL (s3://…) of the dataset; by default one below runs/.", metavar="URL"),
    ] = None,
    plugin: Plugins = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all points and print them; run nothing.")] = False,
    until: Annotated[
        str | None,
        typer.Option(
            help='Add seeds until this is decided: "control.share >= 99.999% ± shown", "video.p99 ± 5ms".',
            metavar="REQUIREMENT",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Maximum number of runs, or maximum time: 1000, 30min.", metavar="N|TIME")
    ] = None,
    report: Report = False,
    live: Live = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat runs that failed before.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a scenario over many points and seeds into one dataset; finished runs are not repeated.

    Exit code: 0 all runs are done and --until is met, 1 a run failed or --until is not met, 2 bad input.

    Example: skybraid sweep first.toml --seeds 1..20 --vary path.lte.uplink.rate=5Mbit/s,10Mbit/s
    """
    load_plugins(plugin)
    if report and "://" in (out or ""):
        raise ScenarioError(f"--report: {out} is not a folder of this machine; expected --out DIR with it")
    if seed is not None and seeds is not None:
        raise ScenarioError("--seed: found --seeds too, expected one of them")
    numbers = [seed] if seed is not None else None if seeds is None else seeds_from(seeds)
    overrides = [assignment(text) for text in set_ or []]
    varied = dict[str, object]()
    for key, values in map(_varied, vary or []):
        if key in varied:
            raise ScenarioError(f"--vary: found {key} twice, expected each key once, with all of its values")
        varied[key] = values
    if dry_run:
        planned = planning.plan(
            scenario, seeds=numbers, vary=varied, overrides=overrides, several=None if until is None else True
        )
        _print_plan(planned, as_json=as_json)
        return
    last = sweeping.Status()
    with page(scenario.stem, shown=live) as served, _progress(shown=not quiet) as report_progress:

        def keep(status: Status) -> None:
            nonlocal last
            last = status
            report_progress(status)
            if served is not None:
                served.update(status.share, _line(status))
                served.fill(lambda: reports.ranking_so_far(opening.opened_campaign(status.url)))

        try:
            campaign: Campaign | None = sweeping.sweep(
                scenario,
                seeds=numbers,
                vary=varied,
                overrides=overrides,
                out=out,
                workers=workers,
                on=on,
                plugins=plugin or (),
                retry=retry,
                until=until,
                budget=budget,
                progress=keep,
                note=None if quiet else lambda words: typer.echo(f"note: {words}", err=True),
            )
        except KeyboardInterrupt:
            campaign = None
        if served is not None:
            served.finish(None if campaign is None else reports.html(campaign))
    if campaign is None:
        made = count(last.done + last.failed)
        typer.echo(f"interrupted: the {made} runs made so far are kept; the same command goes on from there", err=True)
        raise typer.Exit(INTERRUPTED)
    failed = campaign.failed()
    written = reports.write_report(campaign, Path(campaign.url) / "report.html", None) if report else None
    if as_json:
        print_json(_json(campaign, last) | ({} if written is None else {"report": str(written)}))
    elif not quiet:
        _print_outcome(campaign, last, written)
    good = failed.is_empty() and all(answer.good for answer in campaign.answers)
    raise typer.Exit(MET if good else NOT_MET)


def _varied(text: str) -> tuple[str, object]:
    key, found, value = text.partition("=")
    if not found or not key.strip() or not value.strip():
        raise ScenarioError(
            f"--vary: found {text}, expected KEY=V1,V2, for example flow.control.transport.scheduler=low_rtt,blest"
        )
    return key.strip(), axes.values_of(value.strip())


def _json(campaign: Campaign, status: Status) -> dict[str, Any]:
    return {
        "name": campaign.name,
        "version": campaign.manifest.version,
        "url": campaign.url,
        "axes": [{"name": axis.name, "keys": axis.keys, "labels": axis.labels} for axis in campaign.axes],
        "runs": {"done": status.done, "failed": status.failed, "cached": status.cached},
        "points": campaign.summary().to_dicts(),
        "failed": campaign.failed().select("key", "point", "seed", "error", "replay").to_dicts(),
        "answers": [answer.to_dict() for answer in campaign.answers],
        "notices": list(campaign.notices),
    }


def _print_plan(planned: Plan, *, as_json: bool) -> None:
    """Prints the plan of the campaign."""
    manifest = planned.manifest
    points = [dict(zip(manifest.columns, point.labels, strict=True)) for point in manifest.points]
    if as_json:
        print_json({"name": manifest.name, "points": points, "seeds": planned.seeds, "notes": planned.notes})
        return
    for note in planned.notes:
        typer.echo(f"note: {note}", err=True)
    for place, point in enumerate(manifest.points):
        typer.echo(f"{place + 1}: {point.words(manifest.columns) or 'the scenario as it is'}")
    runs = sum(len(planned.seeds_of(place)) for place in planned.wanted)
    typer.echo(
        f"{_number(len(points), 'point')}, seeds {seeds_text(planned.seeds)}: {_number(runs, 'run')}, all checked; "
        "nothing was run"
    )


def _print_outcome(campaign: Campaign, status: Status, report: Path | None) -> None:
    """Prints the outcome and possible next steps."""
    made = f"{_number(status.done, 'run')} done"
    if status.cached:
        made += f", {count(status.cached)} there before"
    if status.failed:
        made += f", {count(status.failed)} failed"
    typer.echo(f"{campaign.name}: {_number(len(campaign.manifest.points), 'point')}; {made}")
    typer.echo(overview.text(campaign.summary(), campaign.columns))
    for answer in campaign.answers:
        typer.echo(answer.words)
    failed = campaign.failed()
    for row in failed.head(_SHOWN_FAILURES).iter_rows(named=True):
        typer.echo(f"failed: {row['error']}")
        typer.echo(f"  run again: {row['replay']}")
    if len(failed) > _SHOWN_FAILURES:
        typer.echo(f"… and {count(len(failed) - _SHOWN_FAILURES)} more failed runs; --retry makes them again")
    where = shlex.quote(campaign.url)
    typer.echo(f"campaign: {campaign.url}")
    shown = f"skybraid report {where}" if report is None else report
    typer.echo(f"report: {shown}; figures: skybraid plot {where}")


def _number(number: int, what: str) -> str:
    return f"{count(number)} {what}" if number == 1 else f"{count(number)} {what}s"


def _line(status: Status) -> str:
    there = status.done + status.cached
    text = f"{count(there)} of {count(status.total)} runs done"
    if status.cached:
        text += f" ({count(status.cached)} before)"
    text += f", {count(status.failed)} failed"
    return text if not status.left_s else f"{text}, {span(float(f'{max(status.left_s, 0.0):.2g}'))} left"


@contextlib.contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[Status], None]]:
    """Returns a progress callback: a bar on a terminal, else a line every five seconds and one at the end."""
    if not shown:
        yield lambda _: None
    elif sys.stderr.isatty():
        columns = (rich_progress.BarColumn(), rich_progress.TextColumn("{task.description}"))
        console = rich_console.Console(stderr=True)
        with rich_progress.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("checking the points", total=1.0)
            yield lambda status: bar.update(task, completed=status.share, description=_line(status))
    else:
        printed_s, line = time.monotonic(), ""

        def report(status: Status) -> None:
            nonlocal printed_s, line
            line = _line(status)
            if time.monotonic() - printed_s >= _LINE_EVERY_S:
                printed_s = time.monotonic()
                typer.echo(line, err=True)

        yield report
        if line:
            typer.echo(line, err=True)

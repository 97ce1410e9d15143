"""Command `run`: simulates a scenario and judges it."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.late import reports, runs
from skybraid.cli.options import (
    MET,
    NOT_MET,
    AsJson,
    Kept,
    Live,
    Out,
    Overrides,
    Pcap,
    Plugins,
    Quiet,
    Report,
    Seed,
    assignment,
    blaming,
    listed,
    load_plugins,
    print_json,
)
from skybraid.cli.output import print_results
from skybraid.cli.progress import progress
from skybraid.cli.served import both, page
from skybraid.model import tables as tables_
from skybraid.model.errors import ScenarioError
from skybraid.model.folder import result_folder
from skybraid.model.provenance import MAX_RUNS, seeds_from, seeds_text
from skybraid.model.scenario import Scenario
from skybraid.model.statistics import Verdict


def run(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO")],
    seed: Seed = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds on all cores, judged together: 1..100 or 3,5,8.", metavar="A..B")
    ] = None,
    set_: Overrides = None,
    out: Out = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Keep the summary only: no tables, little memory.")
    ] = False,
    tables: Kept = None,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Also keep the scheduler's decisions, for `explain`.")
    ] = False,
    pcap: Pcap = False,
    report: Report = False,
    live: Live = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a scenario and judge it. Exit code: 0 all requirements met, 1 not, 2 bad input.

    Example: skybraid run first.toml --report
    """
    load_plugins(plugin)
    if summary and tables:
        raise ScenarioError("--summary, --tables: found both, expected one of them")
    chosen = Scenario.load(scenario, [assignment(text) for text in set_ or []])
    numbers = None if seeds is None else seeds_from(seeds, max_seeds=MAX_RUNS)
    label = str(chosen.seed if seed is None else seed) if numbers is None else seeds_text(numbers)
    kept = [] if summary else listed(tables, "--tables")
    if decisions:
        sampled = [] if numbers is not None and len(numbers) > 1 else [*tables_.SAMPLED]
        kept = [*(sampled if kept is None else kept), "decisions"]
    if not quiet:
        for warning in chosen.warnings():
            typer.echo(f"note: {warning}", err=True)

    def watch(so_far: runs.SoFar) -> None:
        if served is not None:
            served.fill(lambda: "" if (results := so_far()) is None else reports.verdicts_so_far(results))

    with (
        page(chosen.name, shown=live) as served,
        progress(shown=not quiet) as report_progress,
        blaming(plugin),
        result_folder(out, chosen.name, label) as folder,
    ):
        results = runs.run(
            chosen,
            seed=seed,
            seeds=numbers,
            tables=kept,
            out=folder,
            pcap=pcap,
            progress=both(report_progress, served, "simulating"),
            watch=watch,
        )
        if served is not None:
            served.finish(reports.html(results))
    for notice in results.notices if not quiet else ():
        typer.echo(f"note: {notice}", err=True)
    if report and results.folder is not None:
        results.report(results.folder / "report.html")
    if as_json:
        print_json(results.json())
    elif not quiet:
        print_results(results, has_report=report)
    raise typer.Exit(MET if results.verdict is Verdict.MET else NOT_MET)

"""Command `compare`: compares algorithms over one scenario, or two scenarios."""

import json
from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import AsJson, Overrides, Plugins, Quiet, Seed, assignment, blaming, listed, load_plugins
from skybraid.cli.progress import progress
from skybraid.execute import compare as comparing
from skybraid.execute import pairs
from skybraid.model.folder import check_new_file
from skybraid.model.provenance import MAX_RUNS, seeds_from, seeds_text
from skybraid.model.scenario import Scenario
from skybraid.model.seeds import sampled


def compare(
    scenario: Annotated[
        str,
        typer.Argument(help="The scenario; with B also a result's or campaign's folder or URL.", metavar="SCENARIO"),
    ],
    other: Annotated[
        str | None, typer.Argument(help="Another one, to be compared with the first seed by seed.", metavar="B")
    ] = None,
    flow: Annotated[
        str | None, typer.Option(help="Flows whose transport is replaced; by default all.", metavar="A,B")
    ] = None,
    schedulers: Annotated[str | None, typer.Option(help="By default all.", metavar="A,B")] = None,
    congestion: Annotated[str | None, typer.Option(help="By default all.", metavar="A,B")] = None,
    protocols: Annotated[
        str | None, typer.Option(help=f"By default {','.join(comparing.PROTOCOLS)}.", metavar="A,B")
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds for each combination: 1..10 or 3,5,8.", metavar="A..B")
    ] = None,
    set_: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write one row per flow and run: .csv or .parquet.", metavar="FILE")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a scenario with every scheduler and congestion control, or compare two scenarios seed by seed.

    A second scenario, result or campaign B is compared with the first on the seeds and points that both have.
    """
    load_plugins(plugin)
    if out is not None:
        comparing.check_name(out)
        check_new_file(out)
    numbers = None if seeds is None else seeds_from(seeds, max_seeds=MAX_RUNS)
    overrides = [assignment(text) for text in set_ or []]
    if other is not None:
        names = {"flow": flow, "schedulers": schedulers, "congestion": congestion, "protocols": protocols}
        pairs.refuse_more(names)
        with progress(shown=not quiet) as told, blaming(plugin):
            found = pairs.paired(
                scenario,
                other,
                seeds=numbers if seed is None else [seed],
                overrides=overrides,
                progress=told,
            )
        if out is not None:
            comparing.write(found.frame(), out)
        if as_json:
            typer.echo(json.dumps(found.json(), ensure_ascii=False, allow_nan=False))
        elif not quiet:
            typer.echo(f"A: {found.a}\nB: {found.b}\nseeds: {seeds_text(found.seeds)}")
            for words in (*(one.words for one in found.differences), *(f"note: {note}" for note in found.notes)):
                typer.echo(f"  {words}")
        return
    chosen = Scenario.load(scenario, overrides)
    if numbers is not None and len(numbers) > 1:
        chosen, notices = sampled(chosen)
        for notice in notices if not quiet else ():
            typer.echo(f"note: {notice}", err=True)
    with progress(shown=not quiet) as told, blaming(plugin):
        frame = comparing.compare(
            chosen,
            flows=listed(flow, "--flow"),
            protocols=comparing.PROTOCOLS if protocols is None else listed(protocols, "--protocols") or [],
            schedulers=listed(schedulers, "--schedulers"),
            congestion=listed(congestion, "--congestion"),
            seed=seed,
            seeds=numbers,
            progress=told,
        )
    if out is not None:
        comparing.write(frame, out)
    if as_json:
        typer.echo(json.dumps(frame.to_dicts(), ensure_ascii=False, allow_nan=False))
    elif not quiet:
        typer.echo(comparing.text(frame))

"""Command `explain`: causes of misses, and remedies."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.late import explaining
from skybraid.cli.options import AsJson, Plugins, blaming, load_plugins, print_json, seconds
from skybraid.model.results import Results


def explain(
    result: Annotated[Path, typer.Argument(help="A result folder, as `run` wrote it.", metavar="RESULT")],
    flow: Annotated[str | None, typer.Option(help="Only this flow.", metavar="FLOW")] = None,
    no_runs: Annotated[bool, typer.Option("--no-runs", help="Only count causes; run no changes.")] = False,
    runs_for: Annotated[str, typer.Option(help="Start no further run after this time.", metavar="TIME")] = "2min",
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Explain why requirements were missed, what would change the verdict, and how the paths were used.

    Example: skybraid explain runs/first-1
    """
    load_plugins(plugin)
    wall_s = seconds("--runs-for", runs_for) or 0.0
    budget = None if no_runs else explaining.Budget(wall_s=wall_s)
    with blaming(plugin):
        explained = explaining.explain(Results.open(result), flow, budget)
    if as_json:
        print_json({"flows": [one.to_dict() for one in explained]})
        return
    typer.echo("\n\n".join(explaining.text(one) for one in explained))

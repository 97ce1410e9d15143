"""Command `judge`: judges the required link performance of a result or of gateways' logs."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.late import logs, performance
from skybraid.cli.options import MET, NOT_MET, AsJson, Quiet, print_json
from skybraid.cli.output import coloured
from skybraid.model.errors import ScenarioError
from skybraid.model.requirements import headline
from skybraid.model.results import Results
from skybraid.model.statistics import Verdict


def judge(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Folder of a result with messages, or the logs of both gateways.", metavar="RESULT|LOG LOG"
        ),
    ],
    rlp: Annotated[
        str,
        typer.Option(
            help='Required link performance: \'{ expiration = "1s", continuity = "99%" }\', or a file of its keys.',
            metavar="TABLE|FILE",
        ),
    ],
    flow: Annotated[str, typer.Option(help="The flow, or the class of a gateway.")] = "control",
    sender: Annotated[str, typer.Option("--from", help="With logs: the sending side, ground or aircraft.")] = "ground",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge the required link performance of a stored result or of the logs of both gateways.

    Exit code: 0 every parameter met, 1 not, 2 bad input.

    Example: skybraid judge runs/first-1 --rlp rlp.toml --flow control
    """
    if sender not in performance.SIDES:
        raise ScenarioError(f"--from: found `{sender}`; expected {' or '.join(performance.SIDES)}")
    required = performance.read_rlp(rlp, flow)
    files = [Path(one) for one in source]
    if len(files) > 1 or logs.is_log(files[0]):
        judged = performance.judge_logs([logs.GatewayLog.read(file) for file in files], required, sender)
    else:
        judged = performance.judge_results(Results.open(files[0]), required)
    if as_json:
        print_json({"requirements": [one.to_dict() for one in judged]})
    elif not quiet:
        for one in judged:
            typer.echo(f"  {one.flow}, {one.metric}: {coloured(one.verdict)}. {one.words}.")
        typer.echo(headline(judged))
    raise typer.Exit(MET if all(one.verdict is Verdict.MET for one in judged) else NOT_MET)

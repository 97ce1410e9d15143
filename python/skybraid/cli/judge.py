"""Command `judge`: judges the required link performance of a result or of gateways' logs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skybraid.assess.link import SIDES, judge_logs, judge_results, read_rlp
from skybraid.cli.options import MET, NOT_MET, AsJson, Quiet, print_json
from skybraid.cli.output import coloured
from skybraid.model.errors import ScenarioError
from skybraid.model.heavy import Late
from skybraid.model.requirements import headline
from skybraid.model.results import Results
from skybraid.model.statistics import Verdict

if TYPE_CHECKING:
    from skybraid.show.report import logs
else:
    logs = Late("skybraid.show.report.logs")


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
    sender: Annotated[str, typer.Option("--from", help="Of logs: the side that sends, ground or aircraft.")] = "ground",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Judge the required link performance of a stored result or of the logs of both gateways.

    Exit code: 0 every parameter met, 1 not, 2 bad input.

    Example: skybraid judge runs/first-1 --rlp rlp.toml --flow control
    """
    if sender not in SIDES:
        raise ScenarioError(f"--from: found `{sender}`; expected {' or '.join(SIDES)}")
    required = read_rlp(rlp, flow)
    files = [Path(one) for one in source]
    if len(files) > 1 or logs.is_log(files[0]):
        judged = judge_logs([logs.GatewayLog.read(file) for file in files], required, sender)
    else:
        judged = judge_results(Results.open(files[0]), required)
    if as_json:
        print_json({"requirements": [one.to_dict() for one in judged]})
    elif not quiet:
        for one in judged:
            typer.echo(f"  {one.flow}, {one.metric}: {coloured(one.verdict)}. {one.words}.")
        typer.echo(headline(judged))
    raise typer.Exit(MET if all(one.verdict is Verdict.MET for one in judged) else NOT_MET)

"""The command that flies published studies again: `reproduce`."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 the command's parameters are read at run time
from typing import TYPE_CHECKING, Annotated

import typer

from skybraid.errors import ScenarioError
from skybraid.options import MET, NOT_MET, AsJson, Quiet, progress
from skybraid.requirements import span
from skybraid.studies import Scorecard, Study, reproduce, studies
from skybraid.studies.claims import Holds
from skybraid.studies.scorecard import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skybraid.studies import Row

_COLOURS: dict[str, str] = {Holds.YES: typer.colors.GREEN, Holds.NO: typer.colors.RED, Holds.OPEN: typer.colors.YELLOW}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(name="reproduce")(_reproduce)


def _reproduce(
    paper: Annotated[str | None, typer.Argument(help="A study's name; by default all.", metavar="PAPER")] = None,
    experiment: Annotated[
        list[str] | None, typer.Argument(help="Its experiments, such as PED-E09; by default all.", metavar="ID")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A quick look: fewer seeds, shorter runs.")] = False,
    reading: Annotated[
        str | None, typer.Option(help="How to read what the paper leaves open: text, repo.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep finished runs and the scorecard here; what is kept is not flown again.", metavar="DIR"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; by default one a core.", metavar="N", min=1)
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--studies", help="Where studies lie, instead of scenarios/studies.", metavar="DIR")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fly the experiments of a published study again and say which of its findings hold.

    Exit code: 0 if every claim that does not hold is explained, 1 if one is not, 2 bad input.
    """
    known = studies(folder)
    chosen = [study for study in known if paper in (None, study.paper)]
    if not chosen:
        raise ScenarioError(f"reproduce: found {paper}, expected one of {', '.join(study.paper for study in known)}")
    if list_:
        _list(chosen, experiment or [], as_json=as_json)
        return
    cards = []
    for study in chosen:
        named = reading if reading is None or reading in study.readings or paper is not None else None
        with progress(shown=not quiet, doing=f"reproducing {study.paper}") as told:
            place = None if out is None else out / study.paper if paper is None else out
            card = reproduce(
                study, experiment or [], reading=named, quick=quick, out=place, workers=workers, progress=told
            )
        cards.append(card)
        if not as_json and not quiet:
            _tell(card)
    if as_json:
        found = [card.to_dict() for card in cards]
        typer.echo(json.dumps(found if paper is None else found[0], indent=1, ensure_ascii=False, allow_nan=False))
    unexplained = any(row.unexplained for card in cards for row in card.rows)
    raise typer.Exit(NOT_MET if unexplained else MET)


def _list(chosen: Sequence[Study], ids: Sequence[str], *, as_json: bool) -> None:
    rows = []
    for study in chosen:
        experiments = study.experiments()
        for name in ids:
            if name not in experiments:
                raise ScenarioError(f"reproduce {study.paper}: found {name}, expected some of {', '.join(experiments)}")
        rows += [
            {"id": one.id, "paper": study.paper, "figure": one.figure, "finding": one.finding}
            for one in experiments.values()
            if not ids or one.id in ids
        ]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    for study in chosen:
        typer.echo(f"{study.paper}: {study.author}, {study.title}")
        for name, each in study.readings.items():
            typer.echo(f"  reading {name}{' (default)' if name == study.reading else ''}: {each.about}")
        for one in rows:
            if one["paper"] == study.paper:
                typer.echo(f"  {one['id']}  {one['figure']:<8}  {one['finding']}")


def _tell(card: Scorecard) -> None:
    """Prints a scorecard."""
    kind = ", QUICK LOOK: fewer seeds and shorter runs than the study's" if card.quick else ""
    typer.echo(f"{card.paper}: {card.title} (reading {card.reading}{kind})")
    typer.echo(
        f"  {'id':<8} {'verdict':<16} {'claims':<7} {'theirs':>8} {'ours':>8} {'low':>8} {'high':>8} {'ratio':>6}  "
        "finding"
    )
    for row in card.rows:
        numbers = " ".join(f"{number(value):>8}" for value in (row.theirs, row.ours, row.low, row.high))
        typer.echo(
            f"  {row.id:<8} {_coloured(row.verdict)} {f'{row.held}/{len(row.claims)}':<7} {numbers} "
            f"{number(row.ratio):>6}  {row.figure}: {row.finding}"
        )
    for row in card.rows:
        for line in _reasons(row):
            typer.echo(line)
    for words, ratio in card.comparisons.items():
        interval = f" ({number(ratio['low'])} to {number(ratio['high'])})" if "low" in ratio else ""
        typer.echo(f"ours / published, {words}: median {number(ratio['median'])}{interval} of {ratio['points']} points")
    held = sum(row.verdict == Holds.YES for row in card.rows)
    open_ = sum(row.verdict == Holds.OPEN for row in card.rows)
    claims = sum(len(row.claims) for row in card.rows)
    claims_held = sum(row.held for row in card.rows)
    typer.echo(
        f"{held} of {len(card.rows)} experiments hold whole, {open_} cannot be judged; {claims_held} of {claims} "
        f"claims hold. {card.runs} runs ({card.kept} kept from before) in {span(card.wall_s)}"
    )


def _reasons(row: Row) -> list[str]:
    return [f"{row.id}: {row.why}"] if row.why else []


def _coloured(verdict: str) -> str:
    return typer.style(f"{verdict:<16}", fg=_COLOURS.get(verdict), bold=True)

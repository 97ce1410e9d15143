"""The command `reproduce`: chooses experiments, runs them and reports the verdicts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skybraid.cli.emulate import enter_sandbox
from skybraid.cli.options import MET, NOT_MET, AsJson, Quiet, seconds
from skybraid.cli.progress import tally
from skybraid.execute.emulation import lacks
from skybraid.gateway import flight, playing
from skybraid.model.errors import EmulationError, ScenarioError, SkybraidError, likely
from skybraid.model.folder import RUNS, write_whole
from skybraid.model.formatting import span
from skybraid.model.heavy import Late
from skybraid_studies.engine import emulating, kept, reproducing, scorecard
from skybraid_studies.engine.claims import Holds, Role
from skybraid_studies.engine.index import Entry, entries
from skybraid_studies.engine.points import SIMULATION, Point
from skybraid_studies.engine.runner import Form, Plan, PlanProgress, Selection, plan, run_plan
from skybraid_studies.engine.scorecard import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skybraid_studies.engine import page
    from skybraid_studies.engine.experiment import Experiment, Study
    from skybraid_studies.engine.reproducing import Scorecard
    from skybraid_studies.engine.runner import ReportProgress
    from skybraid_studies.engine.scorecard import Row
else:
    page = Late("skybraid_studies.engine.page")

ROWS = "rows.json"
"""File of the scorecard's rows."""

_COLOURS: dict[str, str] = {Holds.YES: typer.colors.GREEN, Holds.NO: typer.colors.RED, Holds.OPEN: typer.colors.YELLOW}

_TELLING = 0.01
"""Share of the runs from which on the remaining time is estimated."""


OUT = RUNS / "reproduce"
"""Default folder of finished runs and scorecards."""


def reproduce(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies and experiments, such as palazzi2007 or PED-E09; by default all.", metavar="[PAPER] [ID]..."
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the experiments, and exit.")] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick/--full", help="A quick look: fewer values and seeds, shorter runs; or the studies' own."),
    ] = False,
    emulate: Annotated[
        bool,
        typer.Option("--emulate", help="Run emulations in real time under this machine's kernel: short, few seeds."),
    ] = False,
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Run in real time with two gateways, skybraid-node, over emulated links.")
    ] = False,
    max_time: Annotated[
        str, typer.Option(help="In real time: take no longer; fewer seeds, then fewer experiments.", metavar="TIME")
    ] = "30min",
    reading: Annotated[
        str | None, typer.Option(help="Interpretation of the paper's open points: text, repo.", metavar="NAME")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Keep finished runs, scorecards and figures here; what is kept is not run again.", metavar="DIR"
        ),
    ] = OUT,
    workers: Annotated[
        int | None, typer.Option(help="Parallel runs; by default one per core.", metavar="N", min=1)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--studies", help="Folder of the studies, instead of those installed.", metavar="DIR"),
    ] = None,
    kept_: Annotated[
        bool, typer.Option("--kept", help="Run nothing; show the kept results that the studies' pages quote.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Write the rows into the studies' kept results, in place of those there.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run the experiments of published studies and report which of their findings hold.

    Exit code: 0 if every claim that does not hold is explained, 1 if one is not, a run failed or an experiment has no
    file, 2 bad input or no emulator here, 130 interrupted; finished runs are kept.

    Example: skybraid reproduce --quick
    """
    request = Request(
        words=tuple(words or ()),
        quick=quick,
        emulate=emulate,
        gateway=gateway,
        max_time=max_time,
        reading=reading,
        out=out,
        workers=workers,
        folder=folder,
        keep=keep,
        as_json=as_json,
        quiet=quiet,
    )
    raise typer.Exit(list_experiments(request) if list_ else show_kept(request) if kept_ else run(request))


@dataclass(frozen=True, slots=True)
class Request:
    """Words and options of the command.

    Attributes:
        words: names of studies and experiments; empty: all.
        quick: whether to use fewer values and seeds, and shorter runs.
        emulate: whether to run in real time.
        gateway: whether to run in real time with two gateways for the transports.
        max_time: maximum duration of real-time runs, such as "30min".
        reading: name of the reading of papers; None: default of each study.
        out: folder of finished runs, scorecards and figures.
        workers: number of parallel runs; None: one per core.
        folder: folder of the studies; None: the installed ones.
        keep: whether the rows replace those of the studies' kept results.
        as_json: whether to print rows as JSON.
        quiet: whether to print only errors.
    """

    words: tuple[str, ...]
    quick: bool
    emulate: bool
    gateway: bool
    max_time: str
    reading: str | None
    out: Path
    workers: int | None
    folder: Path | None
    keep: bool
    as_json: bool
    quiet: bool


def run(request: Request) -> int:
    """Runs the experiments and returns the exit code.

    Raises:
        ScenarioError: a file or an argument is invalid.
        EmulationError: this machine cannot emulate.
        ResultError: the output cannot be written, or kept results cannot be read.
        KeyboardInterrupt: Ctrl-C; finished runs are kept.
    """
    form = _form(request)
    chosen = _ready(request, form)
    clock = time.perf_counter()
    planned = _plan(chosen, form, request)
    with tally(shown=not request.quiet, doing="emulating" if form.real_time else "reproducing") as tell:
        report: ReportProgress | None = None if tell is None else lambda now: tell(now.share, _words(now))
        run_plan(planned, folder=request.out, workers=request.workers, report_progress=report)
    cards = [
        reproducing.judged(planned, each, time.perf_counter() - clock, chosen.index).keep(
            request.out / each.study.paper
        )
        for each in planned.selections
    ]
    if request.keep:
        for each, card in zip(planned.selections, cards, strict=True):
            for name, data in kept.merged(each.study, card.to_dict()).items():
                write_whole(each.study.folder / kept.FOLDER / name, data)
    rows = _rows(chosen, cards, form)
    page.write(rows, {each.paper: f"{each.author}, {each.title}" for each in chosen.studies}, request.out / page.PAGE)
    as_json = [row.to_dict() for row in rows]
    write_whole(request.out / ROWS, reproducing.json_text(as_json))
    if request.as_json:
        typer.echo(json.dumps(as_json, indent=1, ensure_ascii=False, allow_nan=False))
    elif not request.quiet:
        for card in cards:
            _print_scorecard(card, form)
        _conclude(rows, planned, request.out)
    return NOT_MET if any(row.unexplained or row.failed for row in rows) else MET


def _ready(request: Request, form: Form) -> _Chosen:
    """Returns the experiments to run, and prepares the machine for real-time runs.

    Raises:
        ScenarioError: an argument is invalid, or the rows would not fit the kept results.
        EmulationError: this machine cannot run in real time.
    """
    if request.quick and request.emulate:
        raise ScenarioError("--emulate: found --quick too, expected one of them; emulated runs are short anyway")
    if request.gateway and (request.quick or request.emulate):
        other = "--quick" if request.quick else "--emulate"
        raise ScenarioError(f"--gateway: found {other} too, expected one of them")
    chosen = _chosen(request)
    if request.emulate:
        chosen = _emulated(chosen, named=bool(chosen.ids))
        if lacking := lacks():
            raise EmulationError(f"reproduce --emulate: this machine lacks {lacking}; see skybraid doctor")
        enter_sandbox()
    if request.gateway:
        chosen = _playable(_emulated(chosen, named=bool(chosen.ids), option="--gateway"), named=bool(chosen.ids))
        if lacking := flight.missing():
            raise EmulationError(f"reproduce --gateway: this machine lacks {lacking}")
    if request.keep and not form.real_time:
        for each in chosen.selections:
            kept.check_mergeable(each.study, each.reading, [one.id for one in each.experiments], quick=form.quick)
    return chosen


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Studies and experiments named by the command's arguments.

    Attributes:
        studies: all available studies.
        selections: experiments to run, by study.
        missing: experiments of the index without a file.
        ids: ids of experiments named explicitly.
        index: all entries by id.
    """

    studies: Sequence[Study]
    selections: Sequence[Selection]
    missing: Sequence[Entry]
    ids: Sequence[str]
    index: Mapping[str, Entry]


def _chosen(request: Request) -> _Chosen:
    """Resolves the arguments to studies and experiments.

    Raises:
        ScenarioError: an argument names neither, or no chosen study has the reading.
    """
    words, known, index = (
        request.words,
        reproducing.studies(request.folder),
        entries(reproducing.place_of(request.folder)),
    )
    papers = [study.paper for study in known] + [paper for paper in _papers(index) if not _has(known, paper)]
    named = [word for word in words if word in papers]
    ids = list(dict.fromkeys(word.upper() for word in words if word not in papers))
    wanted = [study for study in known if not named or study.paper in named]
    chosen = _of_reading(wanted, request.reading, is_strict=bool(words))
    experiments = {study.paper: study.experiments(name) for study, name in chosen}
    present = {one: paper for paper, found in experiments.items() for one in found}
    absent = [one for one in index.values() if one.id not in present and (not named or one.paper in named)]
    for one in ids:
        if one not in present and one not in {each.id for each in absent}:
            _refuse(one, named, papers, [*present, *(each.id for each in absent)])
    of_ids = {present[one] for one in ids if one in present}
    selections = []
    for study, name in chosen:
        own = [one for one in ids if present.get(one) == study.paper]
        if ids and study.paper not in of_ids:
            continue
        selections.append(reproducing.selection(study, own, name))
    return _Chosen(known, selections, [one for one in absent if not ids or one.id in ids], ids, index)


def _of_reading(wanted: Sequence[Study], reading: str | None, *, is_strict: bool) -> list[tuple[Study, str]]:
    """Returns studies with their readings: the requested one, if the study has it, else its default."""
    if reading is not None:
        having = [study for study in wanted if reading in study.readings]
        if not having or (is_strict and len(wanted) == 1 and having != list(wanted)):
            names = dict.fromkeys(name for study in wanted for name in study.readings)
            raise ScenarioError(f"--reading: found {reading}, expected one of {', '.join(names)}")
    return [(study, reading if reading in study.readings else study.reading) for study in wanted]


def _refuse(word: str, named: Sequence[str], papers: Sequence[str], ids: Sequence[str]) -> None:
    if named:
        raise ScenarioError(f"reproduce {' '.join(named)}: found {word}, expected some of {', '.join(ids)}")
    raise ScenarioError(
        f"reproduce: found {word.lower()}, expected one of {', '.join(papers)}, or an experiment of `--list`"
        f"{likely(word, ids)}"
    )


def _papers(index: Mapping[str, Entry]) -> list[str]:
    return list(dict.fromkeys(one.paper for one in index.values()))


def _has(studies: Sequence[Study], paper: str) -> bool:
    return any(study.paper == paper for study in studies)


def _emulated(chosen: _Chosen, *, named: bool, option: str = "--emulate") -> _Chosen:
    """Returns the experiments to emulate: those named, else those that are emulations in their papers.

    Raises:
        ScenarioError: there are no such experiments.
    """
    if named:
        return chosen
    selections = []
    for each in chosen.selections:
        own = [one for one in each.experiments if one.id in chosen.index and chosen.index[one.id].type == "emulation"]
        if own:
            selections.append(replace(each, experiments=own))
    if not selections:
        papers = ", ".join(each.study.paper for each in chosen.selections)
        raise ScenarioError(f"{option}: found no emulation in {papers}; other experiments are emulated if named by id")
    return replace(chosen, selections=selections, missing=[one for one in chosen.missing if one.type == "emulation"])


def _form(request: Request) -> Form:
    if request.gateway:
        return Form.GATEWAY
    return Form.EMULATED if request.emulate else Form.QUICK if request.quick else Form.FULL


def _playable(chosen: _Chosen, *, named: bool) -> _Chosen:
    """Returns the experiments for gateways: those named, else those with a series that gateways support.

    Raises:
        ScenarioError: there are no such experiments.
    """
    if named:
        return chosen
    selections = []
    for each in chosen.selections:
        own = [one for one in each.experiments if _has_play(each, one)]
        if own:
            selections.append(replace(each, experiments=own))
    if not selections:
        papers = ", ".join(each.study.paper for each in chosen.selections)
        raise ScenarioError(f"--gateway: found nothing in {papers} that gateways can play; try lee2021mutran")
    return replace(chosen, selections=selections, missing=[])


def _has_play(selection: Selection, experiment: Experiment) -> bool:
    for series in experiment.series:
        if series.measure is not None:
            try:
                scenario = selection.study.scenario(experiment, series, 0.0, selection.reading, quick=True)
                playing.play(scenario, playing.DATA)
            except SkybraidError:
                continue
            return True
    return False


def _plan(chosen: _Chosen, form: Form, request: Request) -> Plan:
    if not form.real_time:
        return plan(chosen.selections, form=form, folder=request.out)
    planned = emulating.affordable(chosen.selections, seconds("--max-time", request.max_time) or 0.0, request.out, form)
    if not request.quiet:
        runs = sum(isinstance(job, Point) and job.driver != SIMULATION for job in planned.missing)
        at_once = (request.workers or 1) if form is Form.GATEWAY else 1
        how = "one at a time" if at_once == 1 else f"{at_once} at a time"
        how_long = f"{runs} runs in real time, {how}: about {span(emulating.estimate_s(planned) / at_once)}"
        typer.echo(f"{how_long}; {len(planned.kept)} kept from before", err=True)
    return planned


def _rows(chosen: _Chosen, cards: Sequence[Scorecard], form: Form) -> list[Row]:
    """Returns all rows in the order of the index; rows of other experiments follow those of their paper."""
    absent = [scorecard.missing(entry, form) for entry in chosen.missing]
    rows = [row for card in cards for row in card.rows] + absent
    places = {name: place for place, name in enumerate(chosen.index)}
    papers = list(dict.fromkeys([*_papers(chosen.index), *(row.paper for row in rows)]))
    return sorted(rows, key=lambda row: (papers.index(row.paper), places.get(row.id, len(places))))


def _words(now: PlanProgress) -> str:
    left = f", {span(round(now.left_s, 0))} left" if _TELLING <= now.share < 1 and now.left_s >= 1 else ""
    return f"{now.done} of {now.runs} runs and calculations done, {now.kept} kept from before{left}"


def list_experiments(request: Request) -> int:
    """Lists all experiments, those without a file included; returns the exit code.

    Raises:
        ScenarioError: a file or an argument is invalid.
    """
    chosen = _chosen(request)
    rows: list[dict[str, Any]] = []
    for each in chosen.selections:
        for one in each.experiments:
            entry = chosen.index.get(one.id)
            row = {"id": one.id, "paper": each.study.paper, "type": entry.type if entry else "", "figure": one.figure}
            rows.append(row | {"finding": one.finding, "missing": False})
    for entry in chosen.missing:
        row = {"id": entry.id, "paper": entry.paper, "type": entry.type, "figure": ""}
        rows.append(row | {"finding": entry.line, "missing": True})
    places = {name: place for place, name in enumerate(chosen.index)}
    rows.sort(key=lambda row: (places.get(row["id"], len(places)), row["id"]))
    if request.as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return MET
    for paper in dict.fromkeys([*_papers(chosen.index), *(row["paper"] for row in rows)]):
        own = [row for row in rows if row["paper"] == paper]
        study = next((study for study in chosen.studies if study.paper == paper), None)
        if not own:
            continue
        typer.echo(f"{paper}: {study.author}, {study.title}" if study else f"{paper}: no files")
        for name, reading in study.readings.items() if study else ():
            typer.echo(f"  reading {name}{' (default)' if study and name == study.reading else ''}: {reading.about}")
        for row in own:
            missing = "missing: " if row["missing"] else ""
            typer.echo(f"  {row['id']}  {row['type']:<10}  {row['figure']:<10}  {missing}{row['finding']}")
    absent = sum(row["missing"] for row in rows)
    typer.echo(f"{_experiments(len(rows))}{f', {absent} without a file' if absent else ''}")
    return MET


def show_kept(request: Request) -> int:
    """Prints the kept rows of the studies, in the requested or default reading; returns the exit code.

    Raises:
        ScenarioError: an argument names neither a study nor an experiment, or no study has kept this reading.
        ResultError: kept results cannot be read.
    """
    chosen = _chosen(replace(request, reading=None))
    rows: list[dict[str, Any]] = []
    for each in chosen.selections:
        have = kept.names(each.study)
        name = request.reading or each.study.reading
        if name in have:
            rows += [row for row in kept.stored_rows(each.study, name) if not chosen.ids or row["id"] in chosen.ids]
    if not rows:
        raise ScenarioError(f"--kept: found no kept results of {request.reading or 'these studies'}")
    if request.as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return MET
    for row in rows:
        held = f"{row['claims_held']}/{row['claims']}"
        typer.echo(f"{row['id']:<8} {_coloured(row['verdict'])} {held:<7} {row['role']:<8} {row['kept']}")
    counted = [row for row in rows if row["role"] == Role.FINDING]
    own = [row for row in counted if not row["further"]]
    typer.echo(
        f"{sum(row['claims_held'] for row in counted)} of {sum(row['claims'] for row in counted)} claims hold, "
        f"{sum(row['verdict'] == Holds.YES for row in own)} of {len(own)} experiments; "
        f"{sum(row['check'] for row in rows)} more are checks"
    )
    return MET


def _print_scorecard(card: Scorecard, form: Form) -> None:
    """Prints a scorecard."""
    kind = {
        Form.FULL: "",
        Form.QUICK: ", QUICK LOOK: fewer values and seeds and shorter runs than the study's",
        Form.EMULATED: ", EMULATED in real time: shorter runs and fewer seeds than the study's",
        Form.GATEWAY: ", BY GATEWAYS in real time: fewer seeds than the study's",
    }[form]
    typer.echo(f"{card.paper}: {card.title} (reading {card.reading}{kind})")
    typer.echo(
        f"  {'id':<8} {'verdict':<16} {'claims':<7} {'theirs':>8} {'ours':>8} {'low':>8} {'high':>8} {'ratio':>6}  "
        "finding"
    )
    for row in card.rows:
        numbers = " ".join(f"{number(value):>8}" for value in (row.theirs, row.ours, row.low, row.high))
        typer.echo(
            f"  {row.id:<8} {_coloured(row.verdict)} {f'{row.held}/{len(row.counted)}':<7} {numbers} "
            f"{number(row.ratio):>6}  {row.figure}: {row.finding}"
        )
    for row in card.rows:
        if row.why:
            typer.echo(f"{row.id}: {row.why}")
    for words, ratio in card.comparisons.items():
        interval = f" ({number(ratio['low'])} to {number(ratio['high'])})" if "low" in ratio else ""
        typer.echo(f"ours / published, {words}: median {number(ratio['median'])}{interval} of {ratio['points']} points")
    found = ", ".join(f"{held} of {many} {words}" for words, held, many in page.lead(card.rows))
    typer.echo(f"{found} hold. {card.runs} runs ({card.kept} kept from before) in {span(card.wall_s)}")


def _conclude(rows: Sequence[Row], planned: Plan, out: Path) -> None:
    led = ", ".join(f"{held} of {many} {words}" for words, held, many in page.lead(rows))
    if led:
        typer.echo(f"{led} hold")
    found = ", ".join(f"{verdict}: {count}" for verdict, count in page.counts(rows).items() if count)
    kept = f"{len(planned.kept)} of {len(planned.jobs)} runs and calculations kept from before"
    typer.echo(f"{_experiments(len(rows))}; {found}; {kept}")
    for row in rows:
        if row.failed and row.seeds == 0:
            typer.echo(f"{row.id}: {row.why}")
    typer.echo(f"scorecard: {out / page.PAGE}")


def _coloured(verdict: str) -> str:
    return typer.style(f"{verdict:<16}", fg=_COLOURS.get(verdict, typer.colors.CYAN), bold=True)


def _experiments(number: int) -> str:
    return "1 experiment" if number == 1 else f"{number} experiments"

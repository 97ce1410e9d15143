"""Command `compare`: ranks algorithms over a scenario or over measurements, or compares two scenarios."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skybraid.cli.assess import Measured, answer_json, answer_text
from skybraid.cli.late import (
    assess,
    assess_page,
    candidates,
    comparing,
    drawing,
    formats,
    pairs,
    ranking,
    reports,
    style,
)
from skybraid.cli.measured import Client, Every, InFormat, Lost, Meaning, Zone, read_options
from skybraid.cli.options import (
    AsJson,
    Overrides,
    Page,
    Plugins,
    Quiet,
    Seed,
    assignment,
    blaming,
    listed,
    load_plugins,
    print_json,
    seconds,
)
from skybraid.cli.progress import progress
from skybraid.model.errors import ResultError, ScenarioError
from skybraid.model.folder import check_new_file, write_whole
from skybraid.model.heavy import pl
from skybraid.model.provenance import MAX_RUNS, seeds_from, seeds_text
from skybraid.model.scenario import Scenario
from skybraid.model.seeds import sampled
from skybraid.show.palette import FORMATS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from skybraid.assess import Answer, RankedFlow
    from skybraid.execute.compare import Choice
    from skybraid.execute.ranking import Ranking

_FLIGHT = re.compile(r"[A-Za-z][A-Za-z0-9_,-]*=.+")


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="A scenario; two scenarios, results or campaigns; or measured flights: lte=drive.csv leo=ping.log.",
            metavar="SCENARIO | A B | NAME=FLIGHT...",
        ),
    ],
    flow: Annotated[
        str | None, typer.Option(help="Flows whose transport is replaced; by default all.", metavar="A,B")
    ] = None,
    schedulers: Annotated[str | None, typer.Option(help="Schedulers to rank; by default all.", metavar="A,B")] = None,
    congestion: Annotated[
        str | None, typer.Option(help="Congestion controls to rank; by default all.", metavar="A,B")
    ] = None,
    protocols: Annotated[
        str | None,
        typer.Option(help="Protocols; by default mptcp,mp_dccp and the one that --flow has.", metavar="A,B"),
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds for each combination: 1..10 or 3,5,8.", metavar="A..B")
    ] = None,
    set_: Overrides = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="With flights: requirement, such as 'control: 99% within 300ms'.", metavar="FLOW:REQUIREMENT"
        ),
    ] = None,
    rates: Annotated[
        list[str] | None, typer.Option("--rate", help="With flights: rate of a flow.", metavar="FLOW=RATE")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="With flights: computing time of the runs.", metavar="DURATION")
    ] = None,
    format_: InFormat = None,
    every: Every = None,
    zone: Zone = None,
    meanings: Meaning = None,
    client: Client = "vehicle",
    lost: Lost = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            help="Also write rows (.csv, .parquet), a page (.html), a table (.tex) or a figure (.pdf, .svg, .png).",
            metavar="FILE",
        ),
    ] = None,
    page: Page = None,
    width: Annotated[
        str | None,
        typer.Option(help="Width of figures on paper: 88mm for a column, 180mm for a page.", metavar="LENGTH"),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show all places, not the first ten.")] = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Rank schedulers and congestion controls over a scenario or measured flights, or compare two scenarios.

    Two scenarios, results or campaigns are compared seed by seed on the seeds and points that both have.

    Example: skybraid compare first.toml --seeds 1..5 --out ranking.csv
    """
    load_plugins(plugin)
    files = [*(out or []), *([] if page is None else [page])]
    *endings, last = *comparing.SUFFIXES, ".html", ".tex", *(f".{name}" for name in FORMATS)
    if page is not None and page.suffix != ".html":
        raise ResultError(f"--page: found {page}, expected a name that ends in .html")
    for file in files:
        if file.suffix not in (*endings, last):
            raise ResultError(f"{file}: expected a name that ends in {', '.join(endings)} or {last}")
        check_new_file(file)
    if width is not None and not any(file.suffix.removeprefix(".") in FORMATS for file in files):
        raise ResultError("--width: is for a figure, expected --out FILE.pdf, FILE.svg or FILE.png with it")
    width_mm = None if width is None else style.millimetres("--width", width)
    output = Output(files, None if all_ else ranking.SHOWN, width_mm, as_json=as_json, quiet=quiet)
    choice = comparing.Choice(
        listed(flow, "--flow"),
        listed(protocols, "--protocols"),
        listed(schedulers, "--schedulers"),
        listed(congestion, "--congestion"),
    )
    if all(_FLIGHT.fullmatch(source) and not Path(source).exists() for source in sources):
        of_scenarios = {"seed": seed, "seeds": seeds, "set": set_}
        _refuse(of_scenarios, "measured flights, which have no seeds and no keys")
        options = replace(read_options(zone, meanings, client, lost, every), format=format_)
        measured = Measured.read(sources, require or [], rates or [], options)
        _compare_over_flights(measured, choice, seconds("--budget", budget) or assess.BUDGET_S, output)
        return
    for source in sources:
        _refuse_measurement(Path(source))
    of_flights: dict[str, object] = {"require": require, "rate": rates, "budget": budget, "format": format_}
    of_flights |= {"every": every, "zone": zone, "as": meanings, "lost": lost}
    of_flights |= {"client": None if client == "vehicle" else client}
    _refuse(of_flights, "a scenario, which states its requirements itself")
    numbers = None if seeds is None else seeds_from(seeds, max_seeds=MAX_RUNS)
    overrides = [assignment(text) for text in set_ or []]
    if len(sources) > 2:
        raise ScenarioError(
            f"found {len(sources)} things to compare; expected a scenario, two, or NAME=FLIGHT for each"
        )
    with blaming(plugin):
        if len(sources) == 2:
            pairs.refuse_more(
                {"flow": flow, "schedulers": schedulers, "congestion": congestion, "protocols": protocols}
            )
            _compare_pair(sources, numbers if seed is None else [seed], overrides, output)
        else:
            _compare_algorithms(Scenario.load(sources[0], overrides), choice, seed, numbers, output)


@dataclass(frozen=True)
class Output:
    """Where a comparison goes: files, and the screen as text or JSON.

    Attributes:
        files: new files, by whose endings their form is chosen.
        shown: places on the screen, in tables and figures; None for all.
        width_mm: of figures on paper.
        as_json: whether the screen gets JSON.
        quiet: whether the screen gets nothing else.
    """

    files: Sequence[Path]
    shown: int | None
    width_mm: float | None
    as_json: bool
    quiet: bool


def _compare_over_flights(measured: Measured, choice: Choice, budget_s: float, output: Output) -> None:
    answer, left_out = _over_flights(measured, choice, budget_s, quiet=output.quiet)
    written = _write_answer(answer, output)
    if output.as_json:
        print_json(answer_json(answer) | {"left_out": left_out})
    elif not output.quiet:
        rows = output.shown or max(len(ranked.rows) for ranked in answer.flows)
        typer.echo("\n".join([answer_text(answer, rows, "with --all"), *left_out]))
        _list_written(written)


def _compare_pair(
    sources: Sequence[str], seeds: Sequence[int] | None, overrides: Sequence[tuple[str, str]], output: Output
) -> None:
    for file in output.files:
        comparing.check_name(file)
    with progress(shown=not output.quiet) as report_progress:
        found = pairs.paired(*sources, seeds=seeds, overrides=overrides, progress=report_progress)
    for file in output.files:
        comparing.write(found.frame(), file)
    if output.as_json:
        print_json(found.json())
    elif not output.quiet:
        typer.echo(f"A: {found.a}\nB: {found.b}\nseeds: {seeds_text(found.seeds)}")
        for words in (*(one.words for one in found.differences), *(f"note: {note}" for note in found.notes)):
            typer.echo(f"  {words}")
        _list_written(output.files)


def _compare_algorithms(
    scenario: Scenario, choice: Choice, seed: int | None, seeds: Sequence[int] | None, output: Output
) -> None:
    if seeds is not None and len(seeds) > 1:
        scenario, notices = sampled(scenario)
        for notice in notices if not output.quiet else ():
            typer.echo(f"note: {notice}", err=True)
    with progress(shown=not output.quiet) as report_progress:
        ranked = ranking.rank(scenario, choice, seed=seed, seeds=seeds, progress=report_progress)
    written = _write_ranking(ranked, scenario.name, output)
    if output.as_json:
        print_json(ranked.to_dict())
    elif not output.quiet:
        typer.echo(ranked.text(output.shown))
        _list_written(written)


def _list_written(files: Sequence[Path]) -> None:
    for file in files:
        typer.echo(f"written: {file}")


def _refuse(options: Mapping[str, object], expected: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise ScenarioError(f"--{name}: found it next to {expected}; expected it elsewhere")


def _refuse_measurement(file: Path) -> None:
    """Raises ScenarioError for a measurement in the place of a scenario or a result."""
    if not file.is_file() or file.suffix == ".toml":
        return
    kinds = formats.fitting(formats.Source(file))
    if len(kinds) == 1:
        raise ScenarioError(
            f"{file}: found a measurement ({kinds[0]}) without its network; expected a scenario, or NAME=FLIGHT for "
            f"each flight, such as lte={file}"
        )


def _over_flights(measured: Measured, choice: Choice, budget_s: float, *, quiet: bool) -> tuple[Answer, list[str]]:
    """Ranks all combinations over measured flights; says which could not be run."""
    flows = [one.flow for one in measured.wanted]
    for name in choice.flows or []:
        if name not in flows:
            raise ScenarioError(f"--flow: found {name}; expected some of {', '.join(flows)}")
    transports, left_out = candidates.combined([one.name for one in measured.networks], choice.combinations())
    if not transports:
        raise ScenarioError(f"found no combination that these networks can run; {'; '.join(left_out)}")
    wanted = [one for one in measured.wanted if choice.flows is None or one.flow in choice.flows]
    with progress(shown=not quiet) as report_progress:
        answer = assess.assess(
            measured.networks,
            wanted,
            budget_s,
            report_progress,
            choices=[transports] * len(wanted),
            finalists=ranking.SHOWN,
        )
    return answer, left_out


def _write_ranking(found: Ranking, name: str, output: Output) -> list[Path]:
    """Writes each file, and returns those that were: a figure may be one for each requirement."""
    written: list[Path] = []
    for file in output.files:
        if file.suffix in comparing.SUFFIXES:
            comparing.write(found.frame, file)
        elif file.suffix == ".html":
            write_whole(file, reports.compared_html(f"Transports over {name}", found.frame).encode())
        elif file.suffix == ".tex":
            write_whole(file, found.latex(output.shown).encode())
        else:
            drawn = [(one.flow, at) for at, one in enumerate(found.places[0].requirements) if one.metric != "integrity"]
            if not drawn:
                raise ResultError(f"{file}: the scenario requires nothing; a figure shows what is required")
            for number, (flow, at) in enumerate(drawn):
                written.append(style.save(_figure_of(found, at, output), _numbered(file, flow, number, len(drawn))))
            continue
        written.append(file)
    return written


def _figure_of(found: Ranking, at: int, output: Output) -> Figure:
    bars = []
    for place in found.places[: output.shown]:
        one = place.requirements[at]
        bars.append(drawing.Bar(place.name, one.estimate, one.low, one.high))
    first = found.places[0].requirements[at]
    target = first.deadline_ms if first.metric in ("percentile", "expiration") else first.target
    return drawing.intervals(bars, first.metric, first.flow, target, output.width_mm)


def _write_answer(answer: Answer, output: Output) -> list[Path]:
    written: list[Path] = []
    for file in output.files:
        if file.suffix in comparing.SUFFIXES:
            rows = [
                {
                    "flow": flow["flow"],
                    "required": flow["required"],
                    "place": place,
                    "transport": " = ".join(row["names"]),
                }
                | {name: value for name, value in row.items() if name != "names"}
                for flow in answer_json(answer)["flows"]
                for place, row in enumerate(flow["transports"], start=1)
            ]
            comparing.write(pl.DataFrame(rows, infer_schema_length=None), file)
        elif file.suffix == ".html":
            write_whole(file, assess_page.assess_html(answer).encode())
        elif file.suffix == ".tex":
            write_whole(file, "\n".join(_latex_of(flow, output.shown) for flow in answer.flows).encode())
        else:
            for number, flow in enumerate(answer.flows):
                bars = [drawing.Bar(row.name, *row.reached) for row in flow.rows[: output.shown]]
                figure = drawing.intervals(
                    bars, flow.wanted.metric, flow.wanted.flow, flow.wanted.target, output.width_mm
                )
                written.append(style.save(figure, _numbered(file, flow.wanted.flow, number, len(answer.flows))))
            continue
        written.append(file)
    return written


def _latex_of(flow: RankedFlow, shown: int | None) -> str:
    goodput = flow.wanted.metric == "goodput"
    scale, unit = (1e-6, "Mbit/s") if goodput else (100.0, "%")
    heads = ["", "transport", f"{flow.wanted.flow} [{unit}]", "95 % interval", "p99 [ms]", "verdict"]
    rows: list[list[Any]] = []
    for at, row in enumerate(flow.rows[:shown], start=1):
        judged = row.judged
        ends = f"{scale * judged.low:.4g} to {scale * judged.high:.4g}"
        rows.append([at, row.name, f"{scale * judged.estimate:.5g}", ends, f"{row.delay_p99_ms:.4g}", row.outcome])
    return ranking.latex_table(heads, [[str(cell) for cell in row] for row in rows])


def _numbered(file: Path, name: str, number: int, count: int) -> Path:
    return file if count == 1 else file.with_stem(f"{file.stem}-{number + 1}-{name}")

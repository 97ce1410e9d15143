"""The command `skybraid`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from skybraid import (
    __version__,
    algorithms,
    chavali,
    control,
    emulate_cli,
    interruption,
    orbit_cli,
    registry,
    report_cli,
    reproduce_cli,
    sweep_cli,
    video_cli,
)
from skybraid import compare as compare_room
from skybraid import explain as explain_room
from skybraid import live as live_room
from skybraid import network as network_room
from skybraid import probe as probe_room
from skybraid import tables as table_files
from skybraid import traces as traces_room
from skybraid.campaign import run as fly
from skybraid.campaigns import pairs as paired_room
from skybraid.doctor import conclusions, examine
from skybraid.errors import ResultError, ScenarioError, SkybraidError, unknown
from skybraid.folder import RUNS, check_new_file, default_folder, remove_left_over, write_whole
from skybraid.options import (
    BAD_INPUT,
    INTERRUPTED,
    MET,
    NOT_MET,
    TERMINATED,
    AsJson,
    Kept,
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
    progress,
    seconds,
    tell,
)
from skybraid.provenance import MAX_RUNS, seeds_from, seeds_text
from skybraid.results import Results
from skybraid.scenario import Scenario
from skybraid.seeds import sampled
from skybraid.statistics import Verdict

KINDS = ("schedulers", "congestion", "protocols", "reordering", "links", "traffic", "rate_control")

app = typer.Typer(
    help="Simulates a remotely piloted flight over several networks and says whether the connection is good enough.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(traces_room.app, name="trace")
app.add_typer(live_room.ctl, name="ctl")
emulate_cli.register(app)
orbit_cli.register(app)
report_cli.register(app)
reproduce_cli.register(app)
sweep_cli.register(app)
video_cli.register(app)
app.add_typer(probe_room.app, name="probe")
app.command(name="import-lines")(chavali.import_lines)
app.command(name="network")(network_room.command)

ResultFolder = Annotated[Path, typer.Argument(help="A result folder, as `run` wrote it.", metavar="RESULT")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"skybraid {__version__}")
        raise typer.Exit


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO")],
    seed: Seed = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds on all cores, judged together: 1..100 or 3,5,8.", metavar="A..B")
    ] = None,
    set_: Overrides = None,
    out: Out = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Keep no tables: the judgement alone, in little memory.")
    ] = False,
    tables: Kept = None,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Also keep why the scheduler chose as it did, for `explain`.")
    ] = False,
    pcap: Pcap = False,
    report: Report = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a scenario and judge it. Exit code: 0 all requirements met, 1 not, 2 bad input."""
    load_plugins(plugin)
    if summary and tables:
        raise ScenarioError("--summary, --tables: found both, expected one of them")
    chosen = Scenario.load(scenario, [assignment(text) for text in set_ or []])
    numbers = None if seeds is None else seeds_from(seeds, max_seeds=MAX_RUNS)
    label = str(chosen.seed if seed is None else seed) if numbers is None else seeds_text(numbers)
    kept = [] if summary else listed(tables, "--tables")
    if decisions:
        sampled = [] if numbers is not None and len(numbers) > 1 else [*table_files.SAMPLED]
        kept = [*(sampled if kept is None else kept), "decisions"]
    if not quiet:
        for warning in chosen.warnings():
            typer.echo(f"note: {warning}", err=True)
    with progress(shown=not quiet) as told, blaming(plugin):
        results = fly(
            chosen,
            seed=seed,
            seeds=numbers,
            tables=kept,
            out=default_folder(chosen.name, label) if out is None else out,
            pcap=pcap,
            progress=told,
        )
    for notice in results.notices if not quiet else ():
        typer.echo(f"note: {notice}", err=True)
    if report and results.folder is not None:
        results.report(results.folder / "report.html")
    if as_json:
        typer.echo(json.dumps(results.json(), ensure_ascii=False, allow_nan=False))
    elif not quiet:
        tell(results, has_report=report)
    raise typer.Exit(MET if results.verdict is Verdict.MET else NOT_MET)


@app.command()
def compare(
    scenario: Annotated[
        str,
        typer.Argument(help="The scenario; with B also a result's or campaign's folder or URL.", metavar="SCENARIO"),
    ],
    other: Annotated[
        str | None, typer.Argument(help="Another one, to be compared with the first flight by flight.", metavar="B")
    ] = None,
    flow: Annotated[
        str | None, typer.Option(help="Flows whose transport is replaced; by default all.", metavar="A,B")
    ] = None,
    schedulers: Annotated[str | None, typer.Option(help="By default all.", metavar="A,B")] = None,
    congestion: Annotated[str | None, typer.Option(help="By default all.", metavar="A,B")] = None,
    protocols: Annotated[
        str | None, typer.Option(help=f"By default {','.join(compare_room.PROTOCOLS)}.", metavar="A,B")
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several seeds for each combination: 1..10 or 3,5,8.", metavar="A..B")
    ] = None,
    set_: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write a row each flow and flight: .csv or .parquet.", metavar="FILE")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fly a scenario with every scheduler and congestion control; or hold two against one another, flight by flight.

    A second scenario, result or campaign B is compared with the first on the seeds and points that both have.
    """
    load_plugins(plugin)
    if out is not None:
        compare_room.check_name(out)
        check_new_file(out)
    numbers = None if seeds is None else seeds_from(seeds, max_seeds=MAX_RUNS)
    overrides = [assignment(text) for text in set_ or []]
    if other is not None:
        names = {"flow": flow, "schedulers": schedulers, "congestion": congestion, "protocols": protocols}
        paired_room.refuse_more(names)
        with progress(shown=not quiet) as told, blaming(plugin):
            found = paired_room.paired(
                scenario,
                other,
                seeds=numbers if seed is None else [seed],
                overrides=overrides,
                progress=told,
            )
        if out is not None:
            compare_room.write(found.frame(), out)
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
        frame = compare_room.compare(
            chosen,
            flows=listed(flow, "--flow"),
            protocols=compare_room.PROTOCOLS if protocols is None else listed(protocols, "--protocols") or [],
            schedulers=listed(schedulers, "--schedulers"),
            congestion=listed(congestion, "--congestion"),
            seed=seed,
            seeds=numbers,
            progress=told,
        )
    if out is not None:
        compare_room.write(frame, out)
    if as_json:
        typer.echo(json.dumps(frame.to_dicts(), ensure_ascii=False, allow_nan=False))
    elif not quiet:
        typer.echo(compare_room.text(frame))


@app.command()
def explain(
    result: ResultFolder,
    flow: Annotated[str | None, typer.Option(help="Only this flow.", metavar="FLOW")] = None,
    no_runs: Annotated[bool, typer.Option("--no-runs", help="Make no runs that show what would have helped.")] = False,
    runs_for: Annotated[str, typer.Option(help="Time after which no further run begins.", metavar="TIME")] = "2min",
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Explain requirements that are not met, by causes and by runs that try changes; then the use of the paths."""
    load_plugins(plugin)
    wall_s = seconds("--runs-for", runs_for) or 0.0
    budget = None if no_runs else explain_room.Budget(wall_s=wall_s)
    with blaming(plugin):
        explained = explain_room.explain(Results.open(result), flow, budget)
    if as_json:
        typer.echo(json.dumps([one.to_dict() for one in explained], ensure_ascii=False, allow_nan=False))
        return
    typer.echo("\n\n".join(explain_room.text(one) for one in explained))


@app.command(name="list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help=", ".join(KINDS) + "; by default the names of all.", metavar="KIND")
    ] = None,
    name: Annotated[
        str | None, typer.Argument(help="One of them alone; a link with every number and its source.", metavar="NAME")
    ] = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List what a scenario may name, with units, defaults and sources."""
    load_plugins(plugin)
    if kind is None:
        entries = {kind: _entries(kind) for kind in KINDS}
        if as_json:
            typer.echo(json.dumps(entries, ensure_ascii=False))
            return
        for listed, named in entries.items():
            typer.echo(f"{listed}: {', '.join(entry['name'] for entry in named)}")
        return
    if kind not in KINDS:
        raise ScenarioError(unknown("list", kind, KINDS))
    known = _entries(kind)
    chosen = [entry for entry in known if name in (None, entry["name"])]
    if not chosen:
        raise ScenarioError(unknown(f"list {kind}", str(name), [entry["name"] for entry in known]))
    if as_json:
        typer.echo(json.dumps(chosen if name is None else chosen[0], ensure_ascii=False))
        return
    for entry in chosen:
        typer.echo(_entry(entry, whole=name is not None))
    if kind == "links" and name is None:
        typer.echo("Every number of one with its source: skybraid list links NAME")


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the scenario, or the path of its file.", metavar="NAME")],
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario to start from."""
    path = Path(name) if name.endswith(".toml") else Path(f"{name}.toml")
    if path.exists():
        raise ResultError(f"{path}: found a file, expected a new name; nothing was changed")
    template = Path(__file__).with_name("templates") / "scenario.toml"
    title = path.stem.replace("-", " ").replace("_", " ")
    title = json.dumps(title[:1].upper() + title[1:], ensure_ascii=False)[1:-1]
    text = template.read_text(encoding="utf-8").replace("@NAME@", title).replace("@FILE@", str(path))
    write_whole(path, text.encode())
    if not quiet:
        typer.echo(path)
        typer.echo(f"fly it with: skybraid run {shlex.quote(str(path))}", err=True)


@app.command(name="check-plugin")
def check_plugin(
    file: Annotated[Path, typer.Argument(help="A Python file with algorithms of your own.", metavar="FILE")],
    quiet: Quiet = False,
) -> None:
    """Run algorithms of your own through random situations. Exit code: 0 all keep to their interface, 1 not."""
    load_plugins([file])
    failed = False
    for class_ in algorithms.load(file):
        name = getattr(class_, "__name__", str(class_))
        try:
            algorithms.check(class_)
        except algorithms.AlgorithmError as error:
            failed = True
            typer.echo(f"error: {error}", err=True)
        else:
            if not quiet:
                typer.echo(f"{name}: keeps to its interface")
    raise typer.Exit(NOT_MET if failed else MET)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has, and what mends the rest.

    Exit code: 0 if `skybraid run` works, 1 if it does not.
    """
    checks = examine()
    if as_json:
        fields = ("name", "needed_for", "present", "found", "mend")
        typer.echo(json.dumps([{field: getattr(check, field) for field in fields} for check in checks]))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            typer.echo(f"{'ok     ' if check.present else 'missing'}  {check.name:{width}}  {check.found}")
            if check.mend:
                typer.echo(f"         {'':{width}}  mend: {check.mend}")
        for line in conclusions(checks):
            typer.echo(line)
    if not all(check.present for check in checks if check.needed_for == "run"):
        raise typer.Exit(NOT_MET)


@app.command()
def clean(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of results; by default runs/ and the current one.", metavar="FOLDER")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Remove leftovers of killed runs: unfinished results, control sockets without an emulation.

    What a running process is writing stays.
    """
    folders = [RUNS, Path()] if folder is None else [folder]
    if folder is not None and not folder.is_dir():
        raise ResultError(f"{folder}: found no folder, expected one with results")
    found = [*control.sweep(), *(path for one in folders for path in remove_left_over(one))]
    for path in found:
        if not quiet:
            typer.echo(f"removed {path}")
    if not found and not quiet:
        typer.echo("nothing is left over")


def main() -> None:
    """Runs the command line and leaves with its exit code; errors are reported in plain words."""
    interruption.catch_sigterm()
    try:
        app(prog_name="skybraid")
    except SystemExit as leaving:
        if _broken_off(leaving):
            typer.echo("interrupted: nothing was written, earlier results are as they were", err=True)
        if leaving.code == INTERRUPTED and interruption.was_terminated():
            sys.exit(TERMINATED)
        raise
    except SkybraidError as error:
        _refuse(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}")
    except MemoryError:
        _refuse("not enough memory; `skybraid run --summary` needs least")
    except Exception as error:
        # Of a table that was overwritten inside; importing polars for its classes would delay every command.
        if type(error).__module__ != "polars.exceptions":
            raise
        _refuse(f"a table cannot be read: {str(error).partition(chr(10))[0]}")


def _broken_off(leaving: SystemExit) -> bool:
    """Whether Ctrl-C ended a command, rather than a command that itself leaves with that code."""
    cause = getattr(leaving.__context__, "__cause__", None)
    return leaving.code == INTERRUPTED and isinstance(cause, KeyboardInterrupt)


def _entries(kind: str) -> list[dict[str, Any]]:
    return registry(kind) + algorithms.entries(kind)


def _refuse(words: str) -> NoReturn:
    typer.echo(f"error: {words}", err=True)
    sys.exit(BAD_INPUT)


def _entry(entry: dict[str, Any], *, whole: bool) -> str:
    title = f"{entry['name']}: {entry['summary']}"
    if "text" in entry:
        return f"{title}\n\n{entry['text'].rstrip()}" if whole else title
    lines = [title, f"    source: {entry['source']}"]
    for parameter in entry["parameters"]:
        unit = f" [{parameter['unit']}]" if parameter["unit"] else ""
        summary = f": {parameter['summary']}" if parameter["summary"] else ""
        lines.append(f"    {parameter['name']}{unit} = {parameter['default']}{summary}")
    if entry["linux"]:
        lines.append(f'    with compat = "linux": {entry["linux"]}')
    return "\n".join(lines)

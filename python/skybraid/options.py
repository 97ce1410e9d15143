"""What the commands share: options, exit codes, progress, and the words in which a result is told."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from skybraid import algorithms
from skybraid.errors import ScenarioError, SkybraidError
from skybraid.misses import main_cause, refusals
from skybraid.provenance import seeds_text
from skybraid.requirements import count, headline, microseconds, span
from skybraid.statistics import Verdict
from skybraid.summary import video_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from skybraid.campaign import Progress
    from skybraid.results import Results

MET, NOT_MET, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Seed = Annotated[int | None, typer.Option(help="Root of the randomness, instead of the scenario's.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Replace a key of the scenario; may be repeated.", metavar="KEY=VALUE"),
]
Out = Annotated[Path | None, typer.Option(help="New folder for the result; by default one below runs/.", metavar="DIR")]
Kept = Annotated[
    str | None,
    typer.Option("--tables", help="Tables to keep: messages,subflows,links,decisions,packets.", metavar="A,B"),
]
Pcap = Annotated[bool, typer.Option("--pcap", help="Also write packet captures for Wireshark.")]
Report = Annotated[bool, typer.Option("--report", help="Also write the report into the result.")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", help="A Python file with algorithms of your own; may be repeated.", metavar="FILE"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def assignment(text: str) -> tuple[str, str]:
    """Key and value of a `--set`."""
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise ScenarioError(f"--set: found {text}, expected KEY=VALUE, for example path.lte.uplink.rate=5Mbit/s")
    return key.strip(), value.strip()


def listed(text: str | None, option: str) -> list[str] | None:
    """Names between commas, at least one, which an option was given."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ScenarioError(f"{option}: found nothing, expected names with commas between")
    return names


def seconds(option: str, text: str | None) -> float | None:
    """A time such as "60s" in s."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min|h)\s*", text)
    if found is None or float(found[1]) == 0:
        raise ScenarioError(f"{option}: found {text}, expected a time above zero with its unit, for example 60s")
    return float(found[1]) * _UNITS_S[found[2]]


def tell(results: Results, *, has_report: bool) -> None:
    """Prints a result: what was flown, how each requirement fared, where it lies."""
    one = len(results.seeds) == 1
    flights, seeds = ("1 flight", "seed") if one else (f"{len(results.seeds)} flights", "seeds")
    typer.echo(
        f"{results.name}: {flights}, {span(results.simulated_s)} {_pace(results)}, {seeds} {seeds_text(results.seeds)}"
    )
    emulation = results.flights[0].emulation
    if emulation is not None:
        for line in timing(emulation):
            typer.echo(f"  {line}")
        for node, proxy in emulation.get("proxies", {}).items():
            typer.echo(f"  {node}: {split(proxy)}")
        for node, program in emulation.get("programs", {}).items():
            see = f", see {node}.err" if program["exit"] else ""
            typer.echo(f"  {node}: {program['command']}: {ended(program)}{see}")
    if results.flows:
        for requirement in results.requirements:
            typer.echo(f"  {requirement.flow}: {coloured(requirement.verdict)}. {requirement.words}.")
            cause = main_cause(requirement, results.flows[requirement.flow])
            if cause is not None:
                typer.echo(f"    {cause}")
            if requirement.members is not None:
                typer.echo(f"    each by itself: {requirement.members.words(requirement.metric)}")
        for name, flow in results.flows.items():
            if flow.video is not None:
                typer.echo(f"  {name}: {video_words(flow.video)}.")
            refused = refusals(flow)
            if refused is not None:
                typer.echo(f"  {name}: {refused}.")
        typer.echo(headline(results.requirements))
    else:
        for line in link_lines(results.links()):
            typer.echo(f"  {line}")
    if results.folder is not None:
        typer.echo(f"result: {results.folder}")
        page = results.folder / "report.html"
        typer.echo(f"report: {page}" if has_report else f"report: skybraid report {results.folder}")


def _pace(results: Results) -> str:
    if results.driver == "emulation":
        return "emulated in real time"
    speed = results.simulated_s / results.wall_s if results.wall_s > 0 else 0.0
    return f"simulated in {results.wall_s:.2f} s ({count(round(speed))} × real time)"


def timing(emulation: dict[str, Any]) -> list[str]:
    """How well an emulation kept real time, in a line, what is to be known of it, and a warning if it is doubtful."""
    late = emulation["lateness_us"]
    kept = (
        f"packets left their link late by {microseconds(late['p50'])} (median), {microseconds(late['p99'])} (p99), "
        f"{microseconds(late['max'])} (most); the emulator itself lost {count(emulation['emulator_losses'])}"
    )
    told = [kept, *(f"note: {note}" for note in emulation.get("notes", ()))]
    if not emulation["doubtful"]:
        return told
    return [*told, typer.style(f"WARNING: the numbers are doubtful: {emulation['doubtful']}", fg="red", bold=True)]


def ended(program: dict[str, Any]) -> str:
    """How a program ended, in words."""
    return "stopped at the end" if program["stopped"] else f"exit code {program['exit']}"


def split(proxy: dict[str, Any]) -> str:
    """What a proxy did, in words."""
    opened = proxy["opened"]
    connections = "1 connection" if opened == 1 else f"{count(opened)} connections"
    told = f"{connections} split"
    if opened:
        told += f", {size(proxy['to_server_bytes'])} to the server side, {size(proxy['to_client_bytes'])} to the client"
    for key, words in (("reset", "ended by a reset"), ("failed", "never connected")):
        if proxy[key]:
            told += f"; {count(proxy[key])} {words}"
    return told


def link_lines(links: list[dict[str, Any]]) -> list[str]:
    """What each direction of each path delivered and lost, a line each."""
    return [
        f"{link['path']} {link['direction']}: {count(link.get('delivered', 0))} packets delivered, "
        f"{size(link.get('delivered_bytes', 0))}{_losses(link)}"
        for link in links
    ]


def _losses(link: dict[str, Any]) -> str:
    causes = {name.removeprefix("lost_"): number for name, number in link.items() if name.startswith("lost_")}
    lost = ", ".join(f"{count(number)} {cause}" for cause, number in causes.items() if number)
    return f"; lost: {lost}" if lost else "; none lost"


def size(number: float) -> str:
    """A number of bytes as "1.23 MB"."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.0f} B"


def coloured(verdict: Verdict) -> str:
    """A verdict in its colour, where the output is a terminal."""
    colours = {Verdict.MET: typer.colors.GREEN, Verdict.NOT_MET: typer.colors.RED}
    return typer.style(str(verdict), fg=colours.get(verdict, typer.colors.YELLOW), bold=True)


def load_plugins(plugins: list[Path] | None) -> None:
    """Loads files with algorithms of the user's own; what they raise is told as theirs."""
    for file in plugins or []:
        try:
            algorithms.load(file)
        except SkybraidError:
            raise
        except Exception as error:  # noqa: BLE001 the file may raise anything
            _blame(error, [file])


def _blame(error: Exception, plugins: list[Path]) -> NoReturn:
    """Leaves with the error of an algorithm of the user's own: where it arose, then the frames of its file."""
    told = traceback.TracebackException.from_exception(error)
    files = {str(file.resolve()) for file in plugins}
    own = next((place for place, frame in enumerate(told.stack) if frame.filename in files), None)
    if own is not None:
        told.stack = traceback.StackSummary.from_list(told.stack[own:])
        last = [frame for frame in told.stack if frame.filename in files][-1]
        words = f"{Path(last.filename).name}:{last.lineno}: {type(error).__name__}: {error}"
        typer.echo(f"error: {words}", err=True)
    elif isinstance(error, SyntaxError):
        told.stack = traceback.StackSummary()
        typer.echo(f"error: {Path(error.filename or plugins[0]).name}:{error.lineno}: {error.msg}", err=True)
    typer.echo("".join(told.format()).rstrip(), err=True)
    raise typer.Exit(BAD_INPUT) from error


@contextlib.contextmanager
def blaming(plugins: list[Path] | None) -> Iterator[None]:
    """Takes what an algorithm of the user's own raises for that algorithm's fault."""
    try:
        yield
    except (SkybraidError, OSError, MemoryError):
        raise
    except Exception as error:
        if plugins:
            _blame(error, plugins)
        raise


@contextlib.contextmanager
def progress(*, shown: bool, doing: str = "simulating") -> Iterator[Progress | None]:
    """A bar with the time left on a terminal, a line every tenth where standard error goes elsewhere."""
    with tally(shown=shown, doing=doing, timed=True) as told:
        yield None if told is None else lambda share: told(share, "")


@contextlib.contextmanager
def tally(*, shown: bool, doing: str, timed: bool = False) -> Iterator[Callable[[float, str], None] | None]:
    """The same for those who tell words with each share; `timed` has the bar tell the time left in their place."""
    if not shown:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        last = TimeRemainingColumn() if timed else TextColumn("{task.fields[words]}")
        columns = (TextColumn(doing), BarColumn(), TaskProgressColumn(), last)
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(doing, total=1.0, words="")
            yield lambda share, words: bar.update(task, completed=share, words=words)
    else:
        told = -1

        def tell_tenths(share: float, words: str) -> None:
            nonlocal told
            tenth = int(share * 10)
            if tenth > told:
                told = tenth
                typer.echo(f"{doing}: {tenth * 10} %{f', {words}' if words else ''}", err=True)

        yield tell_tenths

"""Command `new`: writes a commented scenario or a user-defined algorithm to start from."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.options import AsJson, Quiet, print_json
from skybraid.model.errors import ResultError, ScenarioError, SkybraidError, unknown
from skybraid.model.folder import write_whole
from skybraid.model.heavy import np
from skybraid.model.scenario import Scenario
from skybraid.traces import formats
from skybraid.traces.importing import import_files, load, scenario_lines
from skybraid.traces.series import TraceError

_STARTS = Path(__file__).with_name("starts")
_PATHS, _FLOWS = "# paths:", "# flows:"

_ASSUMED_SPEED = ', speed = "20m/s" }   # the file has no times; the speed is assumed'
_MAX_TRACK_S = 86400

_MEASURED_DELAY = {
    "lte-aerial": ("uplink.harq", "downlink.harq", "drx"),
    "starlink": ("reconfiguration",),
}
"""Effects of a preset that a measured delay holds already."""


def new(
    name: Annotated[str, typer.Argument(help="Name of the scenario, or the path of its file.", metavar="NAME")],
    like: Annotated[
        str | None,
        typer.Option(
            help="Starting point: two-networks (the default), remote-piloting, video or route; of a file NAME.py, "
            "scheduler (the default) or congestion.",
            metavar="START",
        ),
    ] = None,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            help="Path that replays measurements; join several files by +; may be repeated.", metavar="PATH=FILE[+FILE]"
        ),
    ] = None,
    track: Annotated[
        Path | None,
        typer.Option(help="Route of the aircraft: GPX, KML, CSV or a plan of QGroundControl.", metavar="FILE"),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario or an algorithm as a starting point.

    A NAME that ends in .py is a file with a scheduler or a congestion control. With --trace, the paths of a scenario
    are those given. Files of measuring tools are imported next to the scenario, as `skybraid trace import` does.

    Example: skybraid new first --like video
    """
    path = Path(name) if name.endswith((".toml", ".py")) else Path(f"{name}.toml")
    if path.stem == path.name:
        raise ScenarioError(f"new: found `{name}`, expected a name such as first, first.toml or mine.py")
    if path.exists():
        raise ResultError(f"{path}: found a file, expected a new name; nothing was changed")
    algorithm = path.suffix == ".py"
    ending = ".py.txt" if algorithm else ".toml"
    known = sorted(file.name.removesuffix(ending) for file in _STARTS.glob(f"*{ending}"))
    like = like or ("scheduler" if algorithm else "two-networks" if track is None else "route")
    if like not in known:
        raise ScenarioError(unknown("--like", like, known))
    imported: list[Path] = []
    text = _filled((_STARTS / f"{like}{ending}").read_text(encoding="utf-8"), path)
    for option, given in (("--trace", trace), ("--track", track)):
        if given and algorithm:
            raise ScenarioError(f"{option}: found a file NAME.py, expected a scenario")
    if track is not None:
        text = _along(track, text, path, like)
    if trace:
        before, _, rest = text.partition(_PATHS)
        rest = rest.partition(_FLOWS)[2].replace("path.leo.", f"path.{_named(trace[-1])[0]}.")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            paths = "\n".join(_path(*_named(one), path.parent, imported) for one in trace)
            text = f"{before}{_PATHS} as measured, the same in both directions\n\n{paths}\n{_FLOWS}{rest}"
            Scenario(text, str(path))
        except SkybraidError:
            for file in imported:
                file.unlink()
            raise
    write_whole(path, text.encode())
    if as_json:
        print_json({"algorithm" if algorithm else "scenario": str(path), "like": like})
    elif not quiet:
        for written in (*imported, path):
            typer.echo(written)
        what, command = ("check", "check-plugin") if algorithm else ("run", "run")
        typer.echo(f"{what} it with: skybraid {command} {shlex.quote(str(path))}", err=True)


def _along(track: Path, text: str, path: Path, like: str) -> str:
    """Returns the scenario `route` with the track of a file and its duration.

    Raises:
        ScenarioError: the file is not a track, or the starting point has no track.
    """
    before, found, after = text.partition("track = {")
    if not found:
        raise ScenarioError(f"--track: found it with --like {like}; expected --like route")
    file = json.dumps(Path(os.path.relpath(track, path.parent)).as_posix())
    # Without the waypoints, and without the line that says how to name a file.
    after = after.split("\n", 2)[2]
    timed, paced = (f"{before}track = {{ file = {file}{speed}\n{after}" for speed in (" }", _ASSUMED_SPEED))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text, scenario = timed, Scenario(timed, str(path))
    except ScenarioError:
        text, scenario = paced, Scenario(paced, str(path))
    ((_, _, *places),) = scenario.native.tracks([float(second) for second in range(_MAX_TRACK_S)])
    moving_s = 1 + max(int(np.flatnonzero(np.diff(axis))[-1:].sum()) for axis in places)
    return re.sub("duration = .*", f'duration = "{moving_s}s"', text, count=1)


def _filled(text: str, path: Path) -> str:
    """Returns the text of a starting point with the new file's name filled in: as a title, verbatim and as one word."""
    title = path.stem.replace("-", " ").replace("_", " ")
    title = json.dumps(title[:1].upper() + title[1:], ensure_ascii=False)[1:-1]
    word = re.sub(r"\W+", "_", path.stem).strip("_").lower() or "mine"
    return text.replace("@NAME@", title).replace("@FILE@", shlex.quote(str(path))).replace("@WORD@", word)


def _named(text: str) -> tuple[str, list[Path]]:
    name, equals, files = text.partition("=")
    if not equals or not name or not files:
        raise ScenarioError(f"--trace: found {text}, expected PATH=FILE, for example lte=drive.csv")
    return name, [Path(file) for file in files.split("+")]


def _path(name: str, files: list[Path], folder: Path, imported: list[Path]) -> str:
    """Returns the lines of a path that replays measurements; adds the files that it writes to `imported`.

    Raises:
        ScenarioError: a file has no column that a path can replay.
    """
    lines = [line for file in files for line in _replayed(file, folder, imported)]
    preset = "starlink" if any(word in name.lower() for word in ("leo", "starlink", "sat", "dish")) else "lte-aerial"
    if any(".delay" in line for line in lines):
        lines += [f'{key} = "off"' for key in _MEASURED_DELAY[preset]]
    head = f'[path.{name}]\npreset = "{preset}"'.ljust(40)
    return f"{head}  # assumed; fills in what was not measured\n" + "\n".join(lines) + "\n"


def _replayed(file: Path, folder: Path, imported: list[Path]) -> list[str]:
    try:
        if "csv" in formats.fitting(formats.Source(file)):
            measured = [(file, one) for one in load(file, "csv")]
        else:
            measured = import_files([file], folder / f"{file.name}.csv")
            imported += [at for at, _ in measured]
    except TraceError as error:
        raise ScenarioError(f"--trace: {error}") from error
    lines = []
    for at, one in measured:
        place = json.dumps(Path(os.path.relpath(at, folder)).as_posix())
        lines += [line.replace(json.dumps(at.name), place) for line in scenario_lines(one, at)]
    if not lines:
        raise ScenarioError(
            f"--trace: {file}: found no column of a rate, a delay or a loss, expected one with its unit"
        )
    return [line.replace(" }", ", repeat = true }") for line in lines]

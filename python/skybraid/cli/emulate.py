"""Commands `emulate`, `shell` and `link`; each re-executes itself inside a sandbox first."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skybraid import _core
from skybraid.cli.late import emulation as emulating
from skybraid.cli.late import reports
from skybraid.cli.live import view
from skybraid.cli.options import (
    INTERRUPTED,
    JSON_SCHEMA,
    MET,
    NOT_MET,
    AsJson,
    Kept,
    Live,
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
    print_json,
    seconds,
)
from skybraid.cli.output import print_results
from skybraid.cli.progress import progress
from skybraid.cli.served import listen_outside, page
from skybraid.execute import control, interruption
from skybraid.model.errors import ScenarioError
from skybraid.model.folder import result_folder
from skybraid.model.formatting import span
from skybraid.model.scenario import Scenario, read_stream
from skybraid.model.statistics import Verdict
from skybraid.show.words import link_lines

if TYPE_CHECKING:
    from skybraid._core import Emulation, Program, Run
    from skybraid.execute.emulation import Options
    from skybraid.execute.pool import Progress
    from skybraid.model.results import Results
    from skybraid.show.live import LivePage

DIRECTIONS = ("uplink", "downlink")

_STDIN = "-"
_MAX_DURATION = "8760h"

ScenarioFile = Annotated[
    str, typer.Argument(help="The scenario, a TOML file; - for standard input.", metavar="SCENARIO")
]
Ipv6 = Annotated[bool, typer.Option("--ipv6", help="Let the flows use IPv6 instead of IPv4.")]
Precise = Annotated[bool, typer.Option("--precise", help="Busy-wait on one core for exact departure times.")]
GroundProgram = Annotated[
    str | None, typer.Option("--ground", help="A shell command to run on the ground; it starts first.", metavar="CMD")
]


def emulate(
    scenario: ScenarioFile,
    seed: Seed = None,
    set_: Overrides = None,
    out: Out = None,
    tables: Kept = None,
    pcap: Pcap = False,
    report: Report = False,
    plugin: Plugins = None,
    vehicle: Annotated[
        str | None,
        typer.Option(help="A shell command to run in the vehicle; when it ends, the run ends.", metavar="CMD"),
    ] = None,
    ground: GroundProgram = None,
    limit: Annotated[
        str | None, typer.Option("--for", help="End these commands after this time: 60s, 5min.", metavar="TIME")
    ] = None,
    precise: Precise = False,
    ipv6: Ipv6 = False,
    iperf3: Annotated[
        bool, typer.Option("--iperf3", help="Also write flows over the kernel's TCP or MPTCP as iperf3 --json would.")
    ] = False,
    keep_privileges: Annotated[
        bool, typer.Option("--keep-privileges", help="Keep root's privileges in commands that root starts.")
    ] = False,
    live: Live = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    file: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a scenario in real time over real sockets and judge it.

    With --vehicle or --ground, commands run over its links in place of its flows. `skybraid doctor` says whether this
    machine can do it.

    Exit code: 0 all requirements met, 1 not, 2 bad input, 130 interrupted, 143 terminated; with commands 0 if all that
    ended by themselves ended with 0, else 1.

    Example: skybraid emulate first.toml --set duration=30s --report
    """
    options = emulating.Options(precise, ipv6, vehicle, ground, seconds("--for", limit), iperf3, keep_privileges)
    if iperf3 and options.programs:
        raise ScenarioError(
            "--iperf3: found programs, expected the scenario's flows; `iperf3 --json` prints its own results"
        )
    if options.limit_s is not None and not options.programs:
        raise ScenarioError(
            "--for: found no program, expected --vehicle or --ground; --set duration=… shortens a scenario"
        )
    if live and not _core.inside_sandbox():
        listen_outside()
    enter_sandbox()
    load_plugins(plugin)
    chosen = _scenario(scenario, set_, file)
    if not quiet:
        for warning in chosen.warnings(emulated=True):
            typer.echo(f"note: {warning}", err=True)
    label = str(chosen.seed if seed is None else seed)
    whole_s = options.limit_s if options.programs else chosen.duration_s
    with (
        page(chosen.name, shown=live) as served,
        _reporting(chosen.name, served, whole_s, shown=not quiet) as report_progress,
        blaming(plugin),
        result_folder(out, chosen.name, f"emulated {label}") as folder,
    ):
        results = emulating.emulate_here(
            chosen,
            options,
            seed=seed,
            tables=[] if tables == "" else listed(tables, "--tables"),
            out=folder,
            pcap=pcap,
            progress=report_progress,
        )
        if served is not None:
            served.finish(reports.html(results))
    if not quiet:
        for note in (results.flights[0].emulation or {}).get("notes", []):
            typer.echo(f"note: {note}", err=True)
    if report and results.folder is not None:
        results.report(results.folder / "report.html")
    if as_json:
        print_json(results.json())
    elif not quiet:
        print_results(results, has_report=report)
    _leave(results, options, chosen)


def _leave(results: Results, options: Options, scenario: Scenario) -> None:
    emulation = results.flights[0].emulation or {}
    whole_s = options.limit_s if options.programs else scenario.duration_s
    after = span(results.simulated_s) + ("" if whole_s is None else f" of {span(whole_s)}")
    if emulation.get("interrupted"):
        typer.echo(f"interrupted after {after}: the result holds what was seen so far", err=True)
        raise typer.Exit(INTERRUPTED)
    if not options.programs and emulation.get("stopped_s") is not None:
        typer.echo(f"note: stopped after {after}; the verdict is on what was seen so far", err=True)
    if options.programs:
        ends = [program["exit"] for program in emulation["programs"].values()]
        raise typer.Exit(MET if all(end in (0, None) for end in ends) else NOT_MET)
    raise typer.Exit(MET if results.verdict is Verdict.MET else NOT_MET)


def shell(
    scenario: Annotated[str | None, typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO")] = None,
    node: Annotated[str, typer.Option(help="Where the shell is: vehicle or ground.", metavar="NODE")] = "vehicle",
    join: Annotated[
        str | None,
        typer.Option(help="Open it in a running emulation, by its name or number.", metavar="NAME|PID"),
    ] = None,
    seed: Seed = None,
    set_: Overrides = None,
    ipv6: Ipv6 = False,
) -> None:
    """Open a shell in the vehicle, over a scenario's links. Exit code: the shell's.

    Example: skybraid shell first.toml --node vehicle
    """
    if (scenario is None) == (join is None):
        raise ScenarioError("shell: expected either a SCENARIO or --join with the name of a running emulation")
    if join is not None:
        _join(join, node)
    enter_sandbox()
    chosen = _scenario(str(scenario), set_, None)
    with _running(chosen, seed, ipv6=ipv6) as emulation:
        argv, prompt = _interactive(node)
        _introduce(chosen, emulation, "vehicle" if node == "ground" else "ground")
        program = emulation.start(node, argv, prompt, None)
        _, code = _carry(emulation, program, {})
    raise typer.Exit(code)


def link(
    command: Annotated[list[str], typer.Argument(help="A program and its arguments.", metavar="-- CMD …")],
    rate: Annotated[str | None, typer.Option(help="Capacity of both directions: 10Mbit/s.")] = None,
    delay: Annotated[str | None, typer.Option(help="One-way delay of both: 30ms.")] = None,
    loss: Annotated[str | None, typer.Option(help="Loss of both: 1%.")] = None,
    queue: Annotated[int | None, typer.Option(help="Packets that may wait, in both.")] = None,
    uplink_rate: Annotated[str | None, typer.Option(help="Capacity from the command, instead of --rate.")] = None,
    uplink_delay: Annotated[str | None, typer.Option(help="Delay from the command, instead of --delay.")] = None,
    uplink_loss: Annotated[str | None, typer.Option(help="Loss from the command, instead of --loss.")] = None,
    downlink_rate: Annotated[str | None, typer.Option(help="Capacity to the command, instead of --rate.")] = None,
    downlink_delay: Annotated[str | None, typer.Option(help="Delay to the command, instead of --delay.")] = None,
    downlink_loss: Annotated[str | None, typer.Option(help="Loss to the command, instead of --loss.")] = None,
    ground: GroundProgram = None,
    seed: Seed = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a program behind one link. Exit code: the program's.

    Example: skybraid link --rate 10Mbit/s --delay 30ms -- bash
    """
    chosen = link_scenario(
        {"rate": rate, "delay": delay, "loss": loss},
        {"rate": uplink_rate, "delay": uplink_delay, "loss": uplink_loss},
        {"rate": downlink_rate, "delay": downlink_delay, "loss": downlink_loss},
        queue,
    )
    enter_sandbox()
    answer = _stdout_to_stderr() if as_json else None
    with _running(chosen, seed, nested=control.depth()) as emulation:
        others: dict[str, Program] = {}
        if ground is not None:
            # The terminal's keys are for the program in the vehicle alone.
            others["ground"] = emulation.start(
                "ground", emulating.shell_command(f"exec </dev/null\n{ground}"), {}, None
            )
            emulating.await_listener(others["ground"])
        program = emulation.start("vehicle", command, {}, None)
        run, code = _carry(emulation, program, others)
    if answer is not None:
        totals = {"command": command, "exit": code, "seconds": run.simulated_s, "links": run.link_stats()}
        os.write(
            answer,
            json.dumps({"schema": JSON_SCHEMA, **totals, "emulation": run.emulation}, allow_nan=False).encode() + b"\n",
        )
    elif not quiet:
        for line in link_lines(run.link_stats()):
            typer.echo(line, err=True)
    raise typer.Exit(code)


def link_scenario(
    both: dict[str, str | None], uplink: dict[str, str | None], downlink: dict[str, str | None], queue: int | None
) -> Scenario:
    """Builds a scenario of one path, `link`, without flows.

    Raises:
        ScenarioError: a rate is missing, or a value is not correct.
    """
    path: dict[str, Any] = {}
    for direction, own in zip(DIRECTIONS, (uplink, downlink), strict=True):
        chosen = {key: own[key] or both[key] for key in own if own[key] or both[key]}
        if "rate" not in chosen:
            raise ScenarioError(f"link: found no rate of the {direction}, expected --rate or --{direction}-rate")
        values: dict[str, Any] = chosen | ({"loss": {"uniform": chosen["loss"]}} if "loss" in chosen else {})
        path[direction] = values | ({} if queue is None else {"queue": {"packets": queue}})
    return Scenario.build({"name": "link", "duration": _MAX_DURATION, "path": {"link": path}}, "link")


def enter_sandbox() -> None:
    """Continues inside a sandbox; outside, this never returns."""
    if not _core.inside_sandbox():
        raise typer.Exit(control.rerun_inside())
    interruption.catch_sigterm()
    signal.signal(signal.SIGHUP, signal.default_int_handler)


def _scenario(name: str, set_: list[str] | None, file: str | None) -> Scenario:
    overrides = [assignment(text) for text in set_ or []]
    if name != _STDIN:
        scenario = Scenario.load(name, overrides)
    else:
        scenario = Scenario(read_stream(sys.stdin), file or "scenario.toml", overrides)
    scenario.native.needs_two_hosts()
    return scenario


@contextlib.contextmanager
def _reporting(name: str, served: LivePage | None, whole_s: float | None, *, shown: bool) -> Iterator[Progress | None]:
    if served is not None:
        with view(control.own_label(name), served, whole_s, shown=shown) as report_progress:
            yield report_progress
    else:
        with progress(shown=shown and whole_s is not None, doing="emulating") as report_progress:
            yield report_progress


@contextlib.contextmanager
def _running(scenario: Scenario, seed: int | None, *, ipv6: bool = False, nested: int = 0) -> Iterator[Emulation]:
    number = scenario.seed if seed is None else seed
    with control.own_socket(scenario.name) as socket:
        # What runs in a shell is the user's own affair, another emulation inside of it too.
        emulation = _core.Emulation(
            scenario.native, number, [], control=str(socket), ipv6=ipv6, nested=nested, keep_privileges=True
        )
        control.publish_namespaces(socket, emulation)
        yield emulation


def _carry(emulation: Emulation, program: Program, others: dict[str, Program]) -> tuple[Run, int]:
    """Runs the links until the program ends; returns its exit code. Ctrl-C goes to the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = emulation.carry([program], None, None)
    finally:
        for other in others.values():
            other.stop()
        code = program.stop()
    return run, code


def _stdout_to_stderr() -> int:
    """Reserves standard output for the result and returns it; the program's output goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def _interactive(node: str) -> tuple[list[str], dict[str, str]]:
    """Command of the user's shell, with a prompt that names the node."""
    command = os.environ.get("SHELL") or "/bin/sh"
    mark = f"({node}) "
    prompt = {"PS1": mark + os.environ.get("PS1", "$ ")}
    if Path(command).name == "bash":
        # Set before each prompt, as the user's own settings come after the environment.
        prompt = {"PROMPT_COMMAND": f"PS1=\"{mark}${{PS1#'{mark}'}}\""}
    return [command], prompt


def _introduce(scenario: Scenario, emulation: Emulation, other: str) -> None:
    name = control.own_label(scenario.name)
    addresses = emulation.environment("vehicle")
    for path in scenario.paths:
        suffix = re.sub("[^A-Za-z0-9]", "_", path).upper()
        vehicle, ground = (addresses[f"SKYBRAID_{node}_{suffix}"] for node in ("VEHICLE", "GROUND"))
        typer.echo(f"{path}: vehicle {vehicle}, ground {ground}", err=True)
    typer.echo(f"a shell at the {other}, from another terminal: skybraid shell --join {name} --node {other}", err=True)
    typer.echo(f"cut a path: skybraid ctl --name {name} cut {shlex.quote(scenario.paths[0])}", err=True)


def _join(name: str, node: str) -> None:
    """Enters a running emulation's node; never returns."""
    spaces, variables = control.namespaces_of(control.find(name), node)
    argv, prompt = _interactive(node)
    raise typer.Exit(_core.enter(spaces, argv, {**os.environ, **variables, **prompt}))

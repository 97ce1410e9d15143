"""Emulation: a scenario in real time, with links between network namespaces, real sockets and real programs."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid import _core
from skybraid.execute import control
from skybraid.execute.runs import Driver, Keep, run_all, seeds_of
from skybraid.model import algorithms
from skybraid.model.errors import EmulationError
from skybraid.model.results import Results
from skybraid.model.scenario import Scenario
from skybraid.video.flows import with_clips

if TYPE_CHECKING:
    from skybraid._core import Emulation, Program, Run
    from skybraid.execute.pool import Progress, Report

_LISTENING_S = 1.0
_LOOK_S = 0.02
_TCP_LISTENS = "0A"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of an emulation.

    Attributes:
        precise: use a core for accurate timing.
        ipv6: let flows use IPv6.
        vehicle: shell command to run in the vehicle. With `vehicle` or `ground`, no flow of the scenario is run.
        ground: shell command to run on the ground.
        limit_s: maximum duration of the programs in s; None: until the vehicle's program ends, or the ground's if the
            vehicle has none.
        iperf3: also write one file in iperf3's format for each flow over the kernel's TCP or MPTCP.
        keep_privileges: programs that root starts keep all of root's rights, and may write to root's home.
    """

    precise: bool = False
    ipv6: bool = False
    vehicle: str | None = None
    ground: str | None = None
    limit_s: float | None = None
    iperf3: bool = False
    keep_privileges: bool = False

    @property
    def programs(self) -> dict[str, str]:
        """Programs by node; the ground's comes first."""
        both = {"ground": self.ground, "vehicle": self.vehicle}
        return {node: command for node, command in both.items() if command is not None}

    def words(self) -> tuple[str, ...]:
        """Returns the options as words of the command line."""
        switches = {
            "--precise": self.precise,
            "--ipv6": self.ipv6,
            "--iperf3": self.iperf3,
            "--keep-privileges": self.keep_privileges,
        }
        words = [word for word, on in switches.items() if on]
        for node, command in self.programs.items():
            words += [f"--{node}", command]
        if self.limit_s is not None:
            words += ["--for", f"{self.limit_s:g}s"]
        return tuple(words)


def emulate(
    scenario: Scenario | str | os.PathLike[str],
    *,
    seed: int | None = None,
    tables: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    pcap: bool = False,
    precise: bool = False,
    ipv6: bool = False,
    vehicle: str | None = None,
    ground: str | None = None,
    limit_s: float | None = None,
    iperf3: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Runs a scenario in real time over real sockets, with its links between network namespaces, and judges it.

    `skybraid emulate` does the work in a process with a sandbox.

    Args:
        scenario: a `Scenario`, or the path of its file.
        seed: root of the links' random streams; the scenario's by default.
        tables: tables to keep: messages, subflows, links, packets; by default the first three.
        out: folder to write the result into; None keeps it in memory.
        pcap: also write packet captures; needs `out`.
        precise: use a core for accurate timing.
        ipv6: let flows use IPv6.
        vehicle: shell command to run in the vehicle instead of the scenario's flows.
        ground: shell command to run on the ground; it is started first.
        limit_s: maximum duration of these programs in s.
        iperf3: also write `iperf3-FLOW.json`, in the form of `iperf3 --json`, for each flow that the kernel's TCP or
            MPTCP carried; needs `out`.
        progress: receives the completed share, at each tenth.

    Raises:
        ScenarioError: the scenario or `seed` is invalid.
        EmulationError: the emulator cannot start, continue or write; the message is that of the command.
        KeyboardInterrupt: Ctrl-C; the result so far is in `out`.
    """
    chosen = scenario if isinstance(scenario, Scenario) else Scenario.load(scenario)
    chosen.native.needs_two_hosts()
    (number,) = seeds_of(chosen, seed, None)
    options = Options(precise, ipv6, vehicle, ground, limit_s, iperf3)
    words = ["-", "--file", chosen.file, "--seed", str(number), *options.words()]
    for key, value in chosen.overrides:
        words += ["--set", f"{key}={value}"]
    if tables is not None:
        words += ["--tables", ",".join(tables)]
    for name, wanted, what in (("pcap", pcap, "the captures"), ("iperf3", iperf3, "its files")):
        if wanted and out is None:
            raise EmulationError(f"{name}: found no result folder, expected `out` to put {what} into")
    if pcap:
        words.append("--pcap")
    if out is not None:
        _command([*words, "--out", os.fspath(out)], chosen.text, progress)
        return Results.open(out)
    with tempfile.TemporaryDirectory(prefix="skybraid-result-") as aside:
        folder = Path(aside) / "result"
        _command([*words, "--out", str(folder)], chosen.text, progress)
        results = Results.open(folder)
        results.tables.read()
    return replace(results, folder=None)


def _command(words: list[str], text: str, progress: Progress | None) -> None:
    """Runs `skybraid emulate` in a child process, with the scenario's text as its input."""
    quiet = [] if progress is not None else ["--quiet"]
    command = [*control.command(), "emulate", *words, *quiet]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as scenario,
        subprocess.Popen(
            command, stdin=scenario, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        ) as process,
    ):
        scenario.write(text)
        scenario.seek(0)
        try:
            errors = _listen(process, progress)
        except BaseException:
            process.terminate()
            raise
        code = process.wait()
    if code not in (0, 1):
        words_ = "\n".join(errors).removeprefix("error: ") or f"skybraid emulate ended with exit code {code}"
        raise EmulationError(words_)


def _listen(process: subprocess.Popen[str], progress: Progress | None) -> list[str]:
    errors = []
    for line in process.stderr or ():
        tenth = re.fullmatch(r"emulating: (\d+) %\n", line)
        if tenth is None:
            errors.append(line.rstrip("\n"))
        elif progress is not None:
            progress(int(tenth[1]) / 100)
    return errors


def emulate_here(
    scenario: Scenario,
    options: Options,
    *,
    seed: int | None = None,
    tables: Sequence[str] | None = None,
    out: Path | None = None,
    pcap: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Emulates a scenario from inside the sandbox.

    Raises:
        ScenarioError: `seed` or `tables` is invalid.
        EmulationError, OSError: a requirement of the emulator is missing.
        ResultError: `out` is not empty or cannot be written; nothing is left behind.
    """
    kept = ["links"] if options.programs and tables is None else tables
    driver = _programs(scenario, options) if options.programs else emulator(scenario, options)
    return run_all(scenario, driver, seeds_of(scenario, seed, None), Keep(kept, out, pcap), progress)


def emulator(scenario: Scenario, options: Options) -> Driver:
    """Returns the emulator of a scenario, which runs its flows in real time, inside the sandbox."""

    def make(
        seed: int, tables: list[str], report: Report, folder: Path | None, captures: Path | None
    ) -> tuple[Run, dict[str, Any] | None]:
        with control.own_socket(scenario.name) as socket:
            emulation = _emulation(scenario, options, seed, tables, captures, socket)
            run = emulation.fly(report)
        return run, _without_iperf3(run.emulation or {}, folder)

    return Driver("emulation", make, scenario.duration_s, "emulate", options.words(), keeps=True)


def _without_iperf3(facts: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Writes a file in iperf3's format for each flow that supports it; adds a note for every other flow."""
    if "iperf3" not in facts:
        return facts
    kept = {name: value for name, value in facts.items() if name != "iperf3"}
    texts = facts["iperf3"]
    if folder is not None:
        for flow, text in texts.items():
            indented = json.dumps(json.loads(text), indent="\t", ensure_ascii=False)
            (folder / f"iperf3-{flow}.json").write_text(indented + "\n", encoding="utf-8")
    others = [
        f"flow `{flow}` has no iperf3-{flow}.json: {stack} carried it, and only the kernel's TCP and MPTCP have one"
        for flow, stack in facts["stacks"].items()
        if flow not in texts
    ]
    return kept | {"notes": [*facts["notes"], *others]}


def _programs(scenario: Scenario, options: Options) -> Driver:
    def make(
        seed: int, tables: list[str], report: Report, folder: Path | None, captures: Path | None
    ) -> tuple[Run, dict[str, Any] | None]:
        with control.own_socket(scenario.name) as socket:
            emulation = _emulation(scenario, options, seed, tables, captures, socket)
            started: dict[str, Program] = {}
            try:
                for node, command in options.programs.items():
                    started[node] = emulation.start(node, shell_command(command), {}, _output(folder, node))
                    if node == "ground":
                        await_listener(started[node])
                awaited = started.get("vehicle") or started["ground"]
                run = emulation.carry([awaited], options.limit_s, report)
                ends = {node: program.poll() for node, program in started.items()}
            finally:
                for program in started.values():
                    program.stop()
        outcome = {
            node: {"command": command, "exit": ends[node], "stopped": ends[node] is None}
            for node, command in options.programs.items()
        }
        return run, (run.emulation or {}) | {"programs": outcome}

    duration_s = math.inf if options.limit_s is None else options.limit_s
    return Driver("emulation", make, duration_s, "emulate", options.words(), keeps=True)


def _emulation(
    scenario: Scenario, options: Options, seed: int, tables: list[str], captures: Path | None, socket: Path
) -> Emulation:
    emulation = _core.Emulation(
        with_clips(scenario),
        seed,
        tables,
        precise=options.precise,
        captures=None if captures is None else str(captures),
        control=str(socket),
        ipv6=options.ipv6,
        iperf3=options.iperf3,
        keep_privileges=options.keep_privileges,
        algorithms=(algorithms.registered(algorithms.SCHEDULERS), algorithms.registered(algorithms.CONGESTION)),
    )
    control.publish_namespaces(socket, emulation)
    return emulation


def shell_command(command: str) -> list[str]:
    """Returns the command line that runs a command through the shell."""
    return ["sh", "-c", command]


def _output(folder: Path | None, node: str) -> tuple[str, str] | None:
    return None if folder is None else (str(folder / f"{node}.out"), str(folder / f"{node}.err"))


def await_listener(program: Program) -> None:
    """Waits until a socket is bound in a program's node, the program has ended, or a second has passed.

    A client that is started right after its server would otherwise be refused.
    """
    deadline = time.monotonic() + _LISTENING_S
    while time.monotonic() < deadline and program.poll() is None and not _someone_listens(program.pid):
        time.sleep(_LOOK_S)


def _someone_listens(pid: int) -> bool:
    for table in ("tcp", "tcp6", "udp", "udp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        if any(table.startswith("udp") or line.split()[3] == _TCP_LISTENS for line in lines):
            return True
    return False


def lacks() -> str:
    """Returns what the emulator lacks on this machine and how to fix it; empty if nothing is missing."""
    missing = [one for one in _core.capabilities() if one["needed"] and not one["present"]]
    return "; ".join(f"{one['name']} (found {one['found']}; {one['fix']})" for one in missing)

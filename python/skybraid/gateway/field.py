"""Test field for gateways: a running emulation with programs and sockets in both nodes.

The emulator is the command `skybraid emulate` in a separate process; its links are controlled through its control
socket. Root is required to enter the nodes' namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypedDict, Unpack

from skybraid.execute import control, emulation
from skybraid.model.errors import EmulationError

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_NETWORK, _NEW_TIME = 0x4000_0000, 0x80
_DIE_WITH_PARENT = 1
_FIRST = -15
_MAX_START_S = 20.0
_MAX_DURATION = "8760h"
_DONE = "is what it ended with"


class Streams(TypedDict, total=False):
    """Standard streams and working folder of a program, as in `subprocess`."""

    stdin: int | None
    stdout: int | IO[bytes] | None
    stderr: int | IO[bytes] | None
    cwd: Path | None


_QUIET: Streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Node:
    """Network namespace for programs and sockets: one end of the emulator's links, or the machine itself.

    Args:
        namespace: file of the network namespace; None: that of this process.
        environment: additional environment variables of its programs.
    """

    def __init__(self, namespace: str | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.environment = dict(environment or {})
        self._descriptor = None if namespace is None else os.open(namespace, os.O_RDONLY)

    def close(self) -> None:
        """Closes the network namespace."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def socket(self, kind: int = socket.SOCK_DGRAM, family: int = socket.AF_INET, protocol: int = 0) -> socket.socket:
        """Opens a socket in the node without moving this process."""
        made: list[socket.socket | BaseException] = []

        def make() -> None:
            try:
                self._enter()
                made.append(socket.socket(family, kind, protocol))
            except OSError as error:
                made.append(error)

        # A network namespace belongs to a thread, so only this thread leaves the machine's.
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        (found,) = made
        if isinstance(found, BaseException):
            raise found
        return found

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        clock_ahead_s: int = 0,
        first: bool = False,
        **streams: Unpack[Streams],
    ) -> subprocess.Popen[bytes]:
        """Starts a program in the node, to be killed with this process; returns its process.

        Args:
            command: the program and its arguments.
            environment: environment variables in addition to those of the node.
            clock_ahead_s: offset of its monotonic clock from the machine's, as between two machines.
            first: whether to raise its priority above the machine's other work.
            streams: standard streams as in `subprocess`; by default none.
        """
        return subprocess.Popen(
            command,
            env=os.environ | self.environment | dict(environment or {}),
            preexec_fn=lambda: self._prepare(clock_ahead_s, first=first),
            **(_QUIET | streams),
        )

    def run(self, *command: str) -> str:
        """Runs a program in the node; returns its output.

        Raises:
            EmulationError: the program failed; the message has its error output.
        """
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=30)
        if process.returncode != 0:
            raise EmulationError(f"{' '.join(command)}: exit code {process.returncode}: {err.decode().strip()}")
        return out.decode()

    def _enter(self) -> None:
        if self._descriptor is not None and _LIBC.setns(self._descriptor, _NEW_NETWORK) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _prepare(self, clock_ahead_s: int, *, first: bool) -> None:
        self._enter()
        if first:
            go_first()
        if clock_ahead_s:
            _shift_clock(clock_ahead_s)
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


class Shell:
    """Shell in a node, which runs commands without forking this process: that would stop all its threads."""

    def __init__(self, node: Node) -> None:
        self._process = node.start(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command: str) -> str:
        """Runs a command line; returns its output.

        Raises:
            EmulationError: the command failed.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f'{command}\necho "$? {_DONE}"\n'.encode())
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            text = line.decode()
            if text.rstrip().endswith(_DONE):
                if text.split()[0] != "0":
                    raise EmulationError(f"{command}: exit code {text.split()[0]}: {''.join(lines).strip()}")
                return "".join(lines)
            lines.append(text)
        raise EmulationError(f"{command}: the shell has ended")

    def close(self) -> None:
        """Kills the shell."""
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()


def go_first() -> None:
    """Raises the priority of this thread and its children, if permitted."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)


def _shift_clock(ahead_s: int) -> None:
    """Moves this single-threaded process into its own time namespace (time_namespaces(7))."""
    if _LIBC.unshare(_NEW_TIME) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/timens_offsets").write_text(f"monotonic {ahead_s} 0\nboottime {ahead_s} 0\n", encoding="ascii")
    # Only children enter the new namespace by default.
    place = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
    if _LIBC.setns(place, _NEW_TIME) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(place)


def missing_requirement() -> str:
    """Returns the requirement that this machine lacks, or an empty string."""
    if not sys.platform.startswith("linux"):
        return f"found {sys.platform}, expected Linux"
    if os.geteuid() != 0:
        return "found an ordinary user, expected root: programs go in and out of network namespaces"
    return emulation.lacks()


class Field:
    """Running emulation of a scenario's links.

    Args:
        scenario: scenario file.
        folder: existing folder for the result and the control socket.
        seed: random seed of the links; default: that of the scenario.
        overrides: `KEY=VALUE` pairs of `--set`.

    Raises:
        EmulationError: the emulation does not start.
    """

    def __init__(
        self,
        scenario: Path,
        folder: Path,
        *,
        seed: int | None = None,
        overrides: Sequence[str] = (),
        precise: bool = False,
    ) -> None:
        self._folder = folder
        self._errors = folder / "emulator.err"
        sockets = folder / "control"
        command = [*control.command(), "emulate", str(scenario), "--out", str(folder / "emulation")]
        command += ["--vehicle", "sleep infinity", "--for", _MAX_DURATION, "--tables", "links"]
        command += [] if seed is None else ["--seed", str(seed)]
        command += ["--precise"] if precise else []
        for override in overrides:
            command += ["--set", override]
        here = Node()
        with self._errors.open("wb") as errors:
            environment = {control.FOLDER: str(sockets)}
            self._process = here.start(command, environment=environment, stderr=errors, first=True)
        try:
            running = self._await(sockets)
            self._client = control.Client(running.socket)
            self._lock = threading.Lock()
            places = {node: control.namespaces_of(running, node) for node in ("vehicle", "ground")}
        except BaseException:
            self._end()
            raise
        self.vehicle, self.ground = (Node(spaces[-1], around) for spaces, around in places.values())
        self.paths = [str(path["path"]) for path in self.ask(do="status")["paths"]]

    def addresses(self, node: str) -> dict[str, str]:
        """Returns the addresses of `vehicle` or `ground`, by path."""
        around = self.vehicle.environment
        return {path: around[f"SKYBRAID_{node.upper()}_{path.upper().replace('-', '_')}"] for path in self.paths}

    def ask(self, **request: object) -> dict[str, Any]:
        """Sends the emulator a request, as `skybraid ctl` does; returns the response.

        Raises:
            EmulationError: the emulator refuses it.
        """
        with self._lock:
            return self._client.ask(**request)

    def set(
        self,
        path: str,
        direction: str | None = None,
        *,
        rate: str | None = None,
        delay: str | None = None,
        loss: str | None = None,
    ) -> None:
        """Changes parameters of a path from now on, in both directions unless `direction` is given."""
        self.ask(do="set", path=path, direction=direction, rate=rate, delay=delay, loss=loss)

    def cut(self, path: str) -> None:
        """Takes a path down in both directions."""
        self.ask(do="cut", path=path)

    def restore(self, path: str) -> None:
        """Ends a cut."""
        self.ask(do="restore", path=path)

    def reset(self, path: str) -> None:
        """Resets a path to the scenario's parameters."""
        self.ask(do="reset", path=path)

    def close(self) -> None:
        """Ends the emulation."""
        with contextlib.suppress(EmulationError):
            self.ask(do="stop")
        self._client.close()
        self._end()
        for node in (self.vehicle, self.ground):
            node.close()

    def _end(self) -> None:
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _await(self, sockets: Path) -> control.Running:
        deadline = time.monotonic() + _MAX_START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            for path in sockets.glob("*.sock") if sockets.is_dir() else ():
                name, _, number = path.stem.rpartition("-")
                running = control.Running(name, number, path)
                with contextlib.suppress(EmulationError, OSError), control.Client(path) as client:
                    if client.ask(do="status")["at_s"] > 0 and path.with_suffix(".json").exists():
                        return running
            time.sleep(0.02)
        said = self._errors.read_text(encoding="utf-8", errors="replace").strip()
        raise EmulationError(f"the emulator did not begin: {said or 'it said nothing'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

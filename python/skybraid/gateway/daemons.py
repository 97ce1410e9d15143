"""Gateway processes: keys, configuration files, start, status and stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from skybraid.model.errors import EmulationError

if TYPE_CHECKING:
    from typing import IO

    from skybraid.gateway.field import Node

PROGRAM = "SKYBRAID_NODE"
"""Environment variable: path of the program `skybraid-node`, if it is not in its build folder."""

PORT = 9417
"""Port on which the ground station listens."""

STATUS_PORT = 9418

_UP_S, _DOWN_S, _ANSWER_S = 30.0, 5.0, 2.0
_KEY = re.compile(r"[A-Za-z0-9+/]{43}=")
_TICKS = os.sysconf("SC_CLK_TCK")


def binary() -> Path | None:
    """Returns the path of `skybraid-node`: from `SKYBRAID_NODE`, else the newest local build, else from PATH."""
    named = os.environ.get(PROGRAM)
    if named and named not in ("vehicle", "ground"):
        return Path(named) if Path(named).is_file() else None
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target"))
    built = [file for kind in (".", "release", "debug") if (file := target / kind / "skybraid-node").is_file()]
    if built:
        return max(built, key=lambda file: file.stat().st_mtime)
    found = shutil.which("skybraid-node")
    return None if found is None else Path(found)


@dataclass(slots=True)
class Daemon:
    """Gateway process.

    Attributes:
        program: `skybraid-node`.
        node: network node of the process.
        file: configuration file.
        status_port: port of its status page, on the node's loopback.
        wrapper: command prefix, such as `prlimit --nofile=40`.
        clock_ahead_s: offset of its monotonic clock from the machine's.
    """

    program: Path
    node: Node
    file: Path
    status_port: int = STATUS_PORT
    wrapper: tuple[str, ...] = ()
    clock_ahead_s: int = 0
    process: subprocess.Popen[bytes] | None = None
    _errors: IO[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """Process id.

        Raises:
            EmulationError: the process does not run.
        """
        if self.process is None or self.process.poll() is not None:
            raise EmulationError(f"{self.file}: the gateway does not run: {self.said()}")
        return self.process.pid

    def start(self, *, wait: bool = True) -> float:
        """Starts the process; returns the time in s until it answered (without `wait`, until it existed)."""
        began = time.monotonic()
        self._errors = self.file.with_suffix(".err").open("ab")
        self.process = self.node.start(
            [*self.wrapper, str(self.program), "gateway", str(self.file)],
            stdout=self._errors,
            stderr=self._errors,
            cwd=self.file.parent,
            clock_ahead_s=self.clock_ahead_s,
            first=True,
        )
        if wait:
            self.until(lambda _: True, _UP_S)
        return time.monotonic() - began

    def stop(self) -> int:
        """Stops the process like systemd, and kills it after a timeout; returns its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(_DOWN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process = None
        if self._errors is not None:
            self._errors.close()
        return code

    def said(self) -> str:
        """Returns the output on its standard streams."""
        with contextlib.suppress(OSError):
            return self.file.with_suffix(".err").read_text(encoding="utf-8", errors="replace").strip()
        return ""

    def status(self) -> dict[str, Any]:
        """Returns the status: a snapshot of the state with `verdict`, `alarms`, `edges` and `log`.

        Raises:
            EmulationError: the process does not answer, or has no state yet.
        """
        state: dict[str, Any] = json.loads(self.get("/status.json"))
        if "uptime_ms" not in state:
            raise EmulationError(f"{self.file}: it has no state yet")
        return state

    def metrics(self) -> dict[str, float]:
        """Returns the metrics by name and labels."""
        found = {}
        for line in self.get("/metrics").splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = float(value)
        return found

    def get(self, path: str) -> str:
        """Returns the body of a path of its HTTP server.

        Raises:
            EmulationError: the process does not answer, or with an error.
        """
        try:
            with self.node.socket(socket.SOCK_STREAM) as link:
                link.settimeout(_ANSWER_S)
                link.connect(("127.0.0.1", self.status_port))
                link.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = b"".join(iter(lambda: link.recv(65536), b""))
        except OSError as error:
            raise EmulationError(f"{self.file}: no answer: {error}") from error
        head, _, body = answer.partition(b"\r\n\r\n")
        line = head.partition(b"\r\n")[0].decode()
        if " 200 " not in f"{line} ":
            raise EmulationError(f"{self.file}: {path}: found {line}, expected 200")
        return body.decode()

    def until(self, holds: Callable[[dict[str, Any]], bool], max_s: float) -> dict[str, Any]:
        """Waits until a condition holds for the status; returns that status.

        Raises:
            EmulationError: the condition did not hold in time, or the process has ended.
        """
        deadline = time.monotonic() + max_s
        last: object = "no answer"
        while time.monotonic() < deadline:
            _ = self.pid
            with contextlib.suppress(EmulationError):
                last = state = self.status()
                if holds(state):
                    return state
            time.sleep(0.02)
        raise EmulationError(f"{self.file}: it did not come true within {max_s} s: {last}; {self.said()}")

    def until_linked(self, paths: int, max_s: float = _UP_S) -> None:
        """Waits until a session is established and `paths` paths are up in both directions."""
        self.until(
            lambda state: (
                state["session"] and sum(one["incoming"] == one["outgoing"] == "up" for one in state["paths"]) >= paths
            ),
            max_s,
        )

    def memory_bytes(self) -> int:
        """Returns the resident memory in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self) -> int:
        """Returns the number of open file descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def cpu_s(self) -> float:
        """Returns the CPU time in s."""
        text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return (int(text[11]) + int(text[12])) / _TICKS


def key(program: Path, file: Path) -> str:
    """Generates a private key in a file; returns the public key.

    Raises:
        EmulationError: `skybraid-node keygen` failed.
    """
    done = subprocess.run([str(program), "keygen", str(file)], capture_output=True, text=True, timeout=10, check=False)
    found = _KEY.findall(done.stdout + done.stderr)
    if done.returncode != 0 or not found or not file.is_file():
        raise EmulationError(f"skybraid-node keygen {file}: {done.stderr.strip() or done.stdout.strip()}")
    return str(found[-1])


def configure_pair(
    program: Path,
    folder: Path,
    nodes: tuple[Node, Node],
    paths: Mapping[str, Mapping[str, Any]],
    *,
    aircraft: Mapping[str, Any] | None = None,
    ground: Mapping[str, Any] | None = None,
    status_ports: tuple[int, int] = (STATUS_PORT, STATUS_PORT),
) -> tuple[Daemon, Daemon]:
    """Writes keys and configuration files of an aircraft and its ground station; returns both daemons.

    Args:
        program: `skybraid-node`.
        folder: folder for keys, configuration files and logs.
        nodes: nodes of the aircraft and of the ground.
        paths: tables of the aircraft's file by path name; `remote` is the ground's listening address.
        aircraft: additional tables of the aircraft's file.
        ground: additional tables of the ground's file; its paths are merged with those of `paths`.
        status_ports: status ports of the aircraft and of the ground.
    """
    sides = ("aircraft", "ground")
    public = {side: key(program, folder / f"{side}.key") for side in sides}
    listening = {name: {"listen": path["remote"]} for name, path in paths.items()}
    own = {"aircraft": {"path": {name: dict(path) for name, path in paths.items()}}, "ground": {"path": listening}}
    more = {"aircraft": dict(aircraft or {}), "ground": dict(ground or {})}
    daemons = []
    for side, other, node, port in zip(sides, sides[::-1], nodes, status_ports, strict=True):
        text: dict[str, Any] = {"name": side, "side": side, "key": f"{side}.key", "peer": public[other]}
        text |= own[side] | {"status": {"listen": f"127.0.0.1:{port}"}}
        for name, table in more[side].items():
            text[name] = text[name] | dict(table) if isinstance(text.get(name), dict) else table
        file = folder / f"{side}.toml"
        file.write_text(tomli_w.dumps(text), encoding="utf-8")
        daemons.append(Daemon(program, node, file, port))
    return daemons[0], daemons[1]


def in_emulator(addresses: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns the aircraft's path tables for an emulator's links.

    Args:
        addresses: addresses of the ground by path; the vehicle's interfaces have the paths' names.
    """
    return {path: {"interface": path, "remote": f"{address}:{PORT}"} for path, address in addresses.items()}

"""Control of running emulations: location of their sockets, and a client.

A socket is named `NAME-PID.sock` after the scenario and the process that was started. Requests and answers are JSON
objects, one per line. `NAME-PID.json` next to the socket has the namespaces of the nodes. The owner keeps the socket
open, so a socket that nobody answers is a leftover.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from skybraid import _core
from skybraid.model.errors import EmulationError

if TYPE_CHECKING:
    from skybraid._core import Emulation

FOLDER = "SKYBRAID_CONTROL"
"""Environment: where control sockets lie; inside a sandbox the user's number is another one than outside."""

LABEL = "SKYBRAID_PID"
"""Environment: number of the process that was started, as it is outside of the sandbox."""

DEPTH = "SKYBRAID_DEPTH"
"""Environment: how many emulations surround a program; each node has it in its environment."""

_ANSWER_S = 5.0
_MAX_NAME = 40
_MAX_START_S = 60.0
_SUFFIX = ".sock"
_PLACES = ".json"


class EndedError(EmulationError):
    """The emulation at the other end has ended."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running emulation.

    Attributes:
        name: the scenario's name, as in the socket's name.
        pid: id of the process that was started; nested emulations add theirs after a dot.
        socket: address of the socket.
    """

    name: str
    pid: str
    socket: Path

    @property
    def label(self) -> str:
        """Name and process id, as `--name` takes them."""
        return f"{self.name}-{self.pid}"


def folder() -> Path:
    """Returns the folder of this user's control sockets: `$XDG_RUNTIME_DIR/skybraid`, else `/tmp/skybraid-UID`."""
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "skybraid"
    return Path("/tmp/skybraid" if sys.platform == "win32" else f"/tmp/skybraid-{os.getuid()}")


def own_label(name: str) -> str:
    """Returns the label of this process's emulation of scenario `name`, with the id of the user's process."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_MAX_NAME].strip("-") or "emulation"
    return f"{slug}-{os.environ.get(LABEL, os.getpid())}"


def environment() -> dict[str, str]:
    """Returns the environment of the command inside the sandbox: folder of the sockets and number of the emulation."""
    outer = os.environ.get(LABEL)
    number = str(os.getpid()) if outer is None else f"{outer}.{os.getpid()}"
    return {FOLDER: str(folder()), LABEL: number}


def depth() -> int:
    """Returns the number of emulations around this process."""
    return int(os.environ.get(DEPTH, "0"))


@contextlib.contextmanager
def own_socket(name: str) -> Iterator[Path]:
    """Yields the path of this emulation's socket and removes it afterwards; also removes leftovers of others.

    Raises:
        EmulationError: the folder cannot be created, or belongs to another user.
    """
    place = folder()
    _make(place)
    sweep()
    path = place / f"{own_label(name)}{_SUFFIX}"
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            _remove(path)


def _make(place: Path) -> None:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = place.lstat()
    except OSError as error:
        raise EmulationError(f"{place}: cannot make the folder of control sockets: {error.strerror}") from error
    if place.is_symlink() or not place.is_dir() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise EmulationError(
            f"{place}: found a place that others can write to, expected a folder of your own; "
            "remove it or set XDG_RUNTIME_DIR"
        )


def running() -> list[Running]:
    """Returns all emulations of this user that answer."""
    return [one for one in _sockets() if _answers(one.socket)]


def sweep() -> list[Path]:
    """Removes the sockets of emulations that have ended, and returns their paths."""
    gone = [one.socket for one in _sockets() if not _answers(one.socket)]
    for path in gone:
        _remove(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in folder().glob(f"*{_PLACES}"):
            # One that is as old as this and has no socket never came to have one.
            if not path.with_suffix(_SUFFIX).exists() and time.time() - path.stat().st_mtime > _MAX_START_S:
                path.unlink(missing_ok=True)
    return gone


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(_PLACES).unlink(missing_ok=True)


def publish_namespaces(path: Path, emulation: Emulation) -> None:
    """Writes the namespaces of an emulation's nodes into a file next to its socket, for `shell --join`.

    Args:
        path: path of the socket.
        emulation: the emulation.
    """
    here = {FOLDER: str(path.parent.absolute()), LABEL: path.stem.rpartition("-")[2]}
    places = {
        node: {
            "namespace": emulation.namespace(node),
            "environment": emulation.environment(node) | here,
        }
        for node in dict.fromkeys([*emulation.nodes, "ground"])
    }
    path.with_suffix(_PLACES).write_text(json.dumps(places), encoding="utf-8")


def namespaces_of(running: Running, node: str) -> tuple[list[str], dict[str, str]]:
    """Returns a node's namespaces in a running emulation, as files below /proc, and its programs' environment.

    The namespaces are the user namespace, if there is one, and the network namespace.

    Raises:
        EmulationError: there is no such node, or the emulation has ended.
    """
    with Client(running.socket) as client:
        process = Path("/proc") / str(client.peer())
    try:
        places: dict[str, Any] = json.loads(running.socket.with_suffix(_PLACES).read_text(encoding="utf-8"))
        if node not in places:
            raise EmulationError(f"--node: found {node}, expected one of {', '.join(places)}")
        user = process / "ns" / "user"
        users = [] if user.samefile("/proc/self/ns/user") else [str(user)]
    except OSError as error:
        raise EmulationError(f"{running.label}: its namespaces cannot be entered: {error}") from error
    found = places[node]
    return [*users, str(process / "fd" / Path(found["namespace"]).name)], found["environment"]


def _sockets() -> list[Running]:
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(folder().iterdir()):
            name, dash, pid = path.name.removesuffix(_SUFFIX).rpartition("-")
            if path.name.endswith(_SUFFIX) and dash and path.is_socket():
                found.append(Running(name, pid, path))
    return found


def _answers(path: Path) -> bool:
    """Whether a socket is listened on; one that was just bound may not be yet."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def find(name: str | None) -> Running:
    """Returns the running emulation with this name or number, or the only one.

    Raises:
        EmulationError: no emulation matches, or several do; the message lists them.
    """
    there = running()
    chosen = [one for one in there if name is None or name in (one.name, one.pid, one.label)]
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(one.label for one in there) or "none"
    if name is None and chosen:
        raise EmulationError(f"found {len(chosen)} running emulations, expected --name with one of them: {listed}")
    if chosen:
        raise EmulationError(f"--name: found {len(chosen)} that are called {name}, expected one of {listed}")
    if name is None:
        raise EmulationError("found no running emulation; `skybraid emulate` or `skybraid shell` begins one")
    raise EmulationError(f"--name: found {name}, expected a running emulation: {listed}")


class Client:
    """Connection to a running emulation, as a context manager.

    Raises:
        EmulationError: on entry, if the emulation no longer answers.
    """

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_S)
        try:
            self._socket.connect(str(socket_path))
        except OSError as error:
            self._socket.close()
            raise EmulationError(f"{socket_path}: the emulation does not answer: {error.strerror or error}") from error
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def ask(self, **request: object) -> dict[str, Any]:
        """Sends a request and returns the answer.

        Raises:
            EmulationError: the emulation refuses the request (the message is its answer), or has ended.
        """
        given = {key: value for key, value in request.items() if value is not None}
        try:
            self._socket.sendall(json.dumps(given).encode() + b"\n")
        except OSError as error:
            raise self._ended() from error
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Returns the next line that the emulation sends."""
        try:
            line = self._lines.readline()
        except OSError as error:
            raise self._ended() from error
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if not answer.get("ok"):
            raise EmulationError(str(answer.get("error", "the emulation refuses without a word")))
        return answer

    def peer(self) -> int:
        """Id of the process at the other end, in this process's namespace."""
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, _peer_option(), size))
        return int(pid)

    def close(self) -> None:
        """Closes the connection."""
        self._lines.close()
        self._socket.close()

    def _ended(self) -> EndedError:
        return EndedError(f"{self._path.stem}: the emulation has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _peer_option() -> int:
    if not sys.platform.startswith("linux"):
        raise EmulationError("only Linux has emulations")
    return socket.SO_PEERCRED


def rerun_inside() -> int:
    """Runs this process's command line again inside a sandbox, and returns its exit code."""
    return _core.reenter([*command(), *sys.argv[1:]], environment())


def command() -> list[str]:
    """Returns the command line of this installation's `skybraid`."""
    # `-m` looks into the current folder first; where this process does not, a module there must not be taken for ours.
    aside = [] if sys.path[0] in ("", os.getcwd()) else ["-P"]  # noqa: PTH109 as sys.path has it
    return [sys.executable, *aside, "-m", "skybraid"]

"""Flight of a scenario by two gateways over the emulator's links, in its own process.

One clock stamps the writing of a message at the vehicle and its arrival on the ground; of control the kernel says
when it arrived, so that this program's own turns do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import math
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.gateway.daemons import binary, both, in_emulator
from skybraid.gateway.field import Field, Node, lacks
from skybraid.gateway.playing import CONTROL, DATA, PORTS, Play, play
from skybraid.model.errors import EmulationError, Interrupted
from skybraid.model.heavy import np
from skybraid.model.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

NS_PER_S = 1_000_000_000
MESSAGES, FACTS = "messages.npz", "facts.json"

_AROUND_S, _LINKED_S, _LAST_S = 60.0, 10.0, 1.0
_TICK_S, _BURST, _BUFFER_BYTES = 0.001, 200, 4_000_000
_TIMESTAMPNS = 35  # SO_TIMESTAMPNS of Linux
_SLACK_NS = 50_000
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of a flow, like those of a simulated run."""

    flow: str
    bytes_delivered: int
    delays_s: NDArray[np.float64]

    def delay_quantile(self, share: float) -> float:
        """Quantile of the delays in ms; NaN without deliveries."""
        return float(np.quantile(self.delays_s, share)) * 1e3 if self.delays_s.size else math.nan


@dataclass(frozen=True, slots=True)
class Flown:
    """Outcome of a flight, with the interface of a finished run for readers of `messages`.

    Attributes:
        simulated_s: simulated duration.
        wall_s: wall-clock duration.
        facts: figures reported by the gateways and the emulator.
        sent_ns: by flow, when each message was written, since the links' beginning.
        delivered_ns: by flow, when each arrived first; negative for never.
        message_bytes: by flow.
    """

    simulated_s: float
    wall_s: float
    facts: Mapping[str, Any]
    sent_ns: Mapping[str, NDArray[np.int64]]
    delivered_ns: Mapping[str, NDArray[np.int64]]
    message_bytes: Mapping[str, int]

    def columns(self, table: str) -> dict[str, Any]:
        """The columns of `messages`.

        Raises:
            EmulationError: another table is asked for.
        """
        if table != "messages":
            raise EmulationError(f"found the table {table}, expected messages: gateways record nothing else")
        names = list(self.sent_ns)
        lengths = [self.sent_ns[name].size for name in names]
        delivered_ns = np.concatenate([self.delivered_ns[name] for name in names])
        return {
            "flow": (np.repeat(np.arange(len(names), dtype=np.uint8), lengths), names),
            "sent_ns": np.concatenate([self.sent_ns[name] for name in names]),
            "delivered_ns": (delivered_ns, delivered_ns >= 0),
            "bytes": np.repeat(np.array([self.message_bytes[name] for name in names], dtype=np.uint32), lengths),
        }

    def flow_stats(self) -> list[Stats]:
        """Statistics of each flow."""
        found = []
        for name, sent_ns in self.sent_ns.items():
            came = self.delivered_ns[name] >= 0
            delays_s = (self.delivered_ns[name][came] - sent_ns[came]) / NS_PER_S
            found.append(Stats(name, int(came.sum()) * self.message_bytes[name], delays_s))
        return found

    def group_stats(self) -> list[Stats]:
        """Empty: there are no groups."""
        return []


def missing() -> str:
    """Requirement that this machine lacks, or None."""
    return "the program skybraid-node (make node, or SKYBRAID_NODE)" if binary() is None else lacks()


def fly(scenario: Scenario, seed: int, judged: str, report: Callable[[float], bool] = lambda _: True) -> Flown:
    """Flies a scenario with two gateways.

    Args:
        scenario: see `skybraid.gateway.playing`.
        seed: of the links.
        judged: the flow that is looked at.
        report: called with the elapsed time in s; returns whether to continue.

    Raises:
        CannotPlayError: gateways cannot play it.
        EmulationError: this machine cannot, or a gateway did not do what it should.
        Interrupted: `report` said so.
    """
    how = play(scenario, judged)
    if lacking := missing():
        raise EmulationError(f"this machine lacks {lacking}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="skybraid-gateway-") as place:
        folder = Path(place)
        file = folder / "scenario.toml"
        file.write_text(scenario.toml(), encoding="utf-8")
        command = [sys.executable, "-m", __spec__.name, str(file), str(seed), judged, str(folder)]
        process = Node().start(command, stderr=subprocess.PIPE)
        try:
            _await(process, scenario.duration_s, report)
        finally:
            if process.poll() is None:
                process.kill()
            said = process.communicate()[1].decode(errors="replace").strip()
        if process.returncode != 0:
            raise EmulationError(said or f"exit code {process.returncode}")
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        with np.load(folder / MESSAGES) as kept:
            sent = {name: kept[f"{name}_sent_ns"] for name in how.flows}
            delivered = {name: kept[f"{name}_delivered_ns"] for name in how.flows}
    sizes = {name: one.message_bytes for name, one in how.flows.items()}
    return Flown(scenario.duration_s, time.monotonic() - began, facts, sent, delivered, sizes)


def _await(process: subprocess.Popen[bytes], length_s: float, report: Callable[[float], bool]) -> None:
    began = time.monotonic()
    while process.poll() is None:
        past_s = time.monotonic() - began
        if not report(min(past_s, length_s)):
            raise Interrupted
        if past_s > length_s + _AROUND_S:
            raise EmulationError(f"gateways did not end within {length_s + _AROUND_S:g} s")
        time.sleep(0.2)


class _Ends:
    """Sockets of a flow at both ends, and the messages written and delivered."""

    def __init__(self, field: Field, name: str, how: Play, began_ns: int) -> None:
        self.flow, self.to = how.flows[name], ("127.0.0.1", PORTS[name])
        self.writer, self.reader = field.vehicle.socket(), field.ground.socket()
        self.reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self.stamped = name == CONTROL
        if self.stamped:
            self.reader.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
        self.reader.bind(self.to)
        for one in (self.writer, self.reader):
            one.setblocking(False)
        self.began_ns = began_ns
        self.sent_ns: list[int] = []
        self.came_ns: dict[int, int] = {}
        self.again = 0
        self.strange = 0
        self._due_ns = began_ns + round(self.flow.start_s * NS_PER_S)
        self._rest = bytes(self.flow.message_bytes - 8)

    def late(self, now_ns: int) -> None:
        """Skips messages due before now, when the gateways were not up yet."""
        step_ns = self.flow.interval_s * NS_PER_S
        missed = max(0, math.ceil((now_ns - self._due_ns) / step_ns))
        self._due_ns += round(missed * step_ns)

    def write(self, now_ns: int) -> None:
        """Writes due messages; after a pause of this program at most a burst."""
        step_ns = round(self.flow.interval_s * NS_PER_S)
        for _ in range(_BURST):
            if self._due_ns > now_ns:
                return
            number = len(self.sent_ns)
            self.sent_ns.append(time.time_ns() - self.began_ns)
            with contextlib.suppress(OSError):
                self.writer.sendto(struct.pack("!Q", number) + self._rest, self.to)
            self._due_ns += step_ns

    def read(self) -> None:
        """Reads delivered messages."""
        while True:
            try:
                data, about, _, _ = self.reader.recvmsg(2048, 64 if self.stamped else 0)
            except BlockingIOError:
                return
            at_ns = _stamp_ns(about) if self.stamped else time.time_ns()
            if len(data) != self.flow.message_bytes or data[8:] != self._rest:
                self.strange += 1
                continue
            (number,) = struct.unpack_from("!Q", data)
            if number in self.came_ns:
                self.again += 1
            else:
                self.came_ns[number] = at_ns - self.began_ns

    def close(self) -> None:
        """Closes the sockets."""
        self.writer.close()
        self.reader.close()


def _stamp_ns(about: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in about:
        if level == socket.SOL_SOCKET and kind == _TIMESTAMPNS:
            seconds, rest = struct.unpack("@ll", data[:16])
            return int(seconds) * NS_PER_S + int(rest)
    return time.time_ns()


def _carry(field: Field, how: Play, folder: Path, length_s: float) -> dict[str, Any]:
    """Flies within a running field; returns the facts and records the messages."""
    program = binary()
    if program is None:
        raise EmulationError("the program skybraid-node is missing")
    began_ns = time.time_ns() - round(field.ask(do="status")["at_s"] * NS_PER_S)
    addresses = {path: to for path, to in field.addresses("ground").items() if path in how.paths}
    local = {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}
    classes = {DATA: "bulk", CONTROL: "control"}
    aircraft, ground = both(
        program,
        folder,
        (field.vehicle, field.ground),
        in_emulator(addresses),
        aircraft={**how.tables, "udp": {name: {"listen": to, "class": classes[name]} for name, to in local.items()}},
        ground={**how.tables, "udp": {name: {"send_to": to, "class": classes[name]} for name, to in local.items()}},
    )
    ends = {name: _Ends(field, name, how, began_ns) for name in how.flows}
    try:
        for daemon in (ground, aircraft):
            daemon.start()
        aircraft.until_linked(len(how.paths), _LINKED_S)
        for one in ends.values():
            one.late(time.time_ns())
        _pump(list(ends.values()), began_ns + round(length_s * NS_PER_S))
        states = {daemon.file.stem: daemon.status() for daemon in (aircraft, ground)}
        spent = {daemon.file.stem: daemon.cpu_s() for daemon in (aircraft, ground)}
    finally:
        for daemon in (aircraft, ground):
            daemon.stop()
        for one in ends.values():
            one.close()
    arrays: dict[str, Any] = {}
    for name, one in ends.items():
        arrays[f"{name}_sent_ns"] = np.array(one.sent_ns, dtype=np.int64)
        arrays[f"{name}_delivered_ns"] = np.array(
            [one.came_ns.get(number, -1) for number in range(len(one.sent_ns))], dtype=np.int64
        )
    np.savez(folder / MESSAGES, **arrays)
    return {
        "words": how.words,
        "again": {name: one.again for name, one in ends.items()},
        "strange": {name: one.strange for name, one in ends.items()},
        "cpu_s": spent,
        "states": states,
    }


def _pump(ends: list[_Ends], end_ns: int) -> None:
    """Writes and reads once per millisecond until the end, then drains."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
    readers = [one.reader for one in ends]
    while (now_ns := time.time_ns()) < end_ns:
        for one in ends:
            one.write(now_ns)
            one.read()
        rest_s = _TICK_S - (time.time_ns() - now_ns) / NS_PER_S
        if rest_s > 0:
            time.sleep(rest_s)
    until = time.monotonic() + _LAST_S
    while (left_s := until - time.monotonic()) > 0:
        select.select(readers, [], [], left_s)
        for one in ends:
            one.read()


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("judged")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    scenario = Scenario.load(given.scenario)
    how = play(scenario, given.judged)
    with Field(given.scenario, given.folder, seed=given.seed) as field:
        facts = _carry(field, how, given.folder, scenario.duration_s)
    summary = json.loads((given.folder / "emulation" / "summary.json").read_text(encoding="utf-8"))
    facts["emulation"] = summary["flights"][0]["emulation"]
    (given.folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    _main()

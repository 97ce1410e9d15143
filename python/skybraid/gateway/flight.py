"""Flight of a scenario by two gateways over the emulator's links, in a separate process.

One clock stamps a message at the vehicle and on the ground. Control messages have the kernel's arrival time, so that
the scheduling of this program does not count.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.gateway.daemons import binary, configure_pair, in_emulator
from skybraid.gateway.field import Field, Node, missing_requirement
from skybraid.gateway.playing import CONTROL, DATA, PORTS, Play, play
from skybraid.model.errors import EmulationError, Interrupted
from skybraid.model.heavy import np
from skybraid.model.scenario import Scenario

if TYPE_CHECKING:
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
    """Statistics of a flow, with the interface of a simulated run's."""

    flow: str
    bytes_delivered: int
    delays_s: NDArray[np.float64]

    def delay_quantile(self, share: float) -> float:
        """Returns a quantile of the delays in ms; NaN without deliveries."""
        return float(np.quantile(self.delays_s, share)) * 1e3 if self.delays_s.size else math.nan


@dataclass(frozen=True, slots=True)
class GatewayRun:
    """Outcome of a flight, with the interface of a finished run for readers of `messages`.

    Attributes:
        simulated_s: simulated duration in s.
        wall_s: wall-clock duration in s.
        facts: figures reported by the gateways and the emulator.
        sent_ns: writing time of each message since the start of the links, by flow.
        delivered_ns: time of the first delivery of each message, by flow; negative: never.
        message_bytes: size of a message in bytes, by flow.
    """

    simulated_s: float
    wall_s: float
    facts: Mapping[str, Any]
    sent_ns: Mapping[str, NDArray[np.int64]]
    delivered_ns: Mapping[str, NDArray[np.int64]]
    message_bytes: Mapping[str, int]

    def columns(self, table: str) -> dict[str, Any]:
        """Returns the columns of the table `messages`.

        Raises:
            EmulationError: another table is requested.
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
        """Returns the statistics of each flow."""
        found = []
        for name, sent_ns in self.sent_ns.items():
            came = self.delivered_ns[name] >= 0
            delays_s = (self.delivered_ns[name][came] - sent_ns[came]) / NS_PER_S
            found.append(Stats(name, int(came.sum()) * self.message_bytes[name], delays_s))
        return found

    def group_stats(self) -> list[Stats]:
        """Returns an empty list: there are no groups."""
        return []


def missing() -> str:
    """Returns the requirement that this machine lacks, or an empty string."""
    return "the program skybraid-node (make node, or SKYBRAID_NODE)" if binary() is None else missing_requirement()


def fly(scenario: Scenario, seed: int, judged: str, report: Callable[[float], bool] = lambda _: True) -> GatewayRun:
    """Runs a scenario with two gateways.

    Args:
        scenario: scenario that `skybraid.gateway.playing` supports.
        seed: random seed of the links.
        judged: evaluated flow.
        report: callback with the elapsed time in s; returns whether to continue.

    Raises:
        CannotPlayError: gateways do not support the scenario.
        EmulationError: the machine lacks a requirement, or a gateway failed.
        Interrupted: `report` returned False.
    """
    setup = play(scenario, judged)
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
            sent = {name: kept[f"{name}_sent_ns"] for name in setup.flows}
            delivered = {name: kept[f"{name}_delivered_ns"] for name in setup.flows}
    sizes = {name: one.message_bytes for name, one in setup.flows.items()}
    return GatewayRun(scenario.duration_s, time.monotonic() - began, facts, sent, delivered, sizes)


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
    """Sockets of a flow at both ends, and its messages written and delivered."""

    def __init__(self, field: Field, name: str, setup: Play, began_ns: int) -> None:
        self.flow, self.to = setup.flows[name], ("127.0.0.1", PORTS[name])
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
        """Skips messages that were due before the gateways were up."""
        step_ns = self.flow.interval_s * NS_PER_S
        missed = max(0, math.ceil((now_ns - self._due_ns) / step_ns))
        self._due_ns += round(missed * step_ns)

    def write(self, now_ns: int) -> None:
        """Writes due messages, at most `_BURST` after a pause of this program."""
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


def _carry(field: Field, setup: Play, folder: Path, length_s: float) -> dict[str, Any]:
    """Runs the gateways in a running field; returns the facts and saves the messages."""
    program = binary()
    if program is None:
        raise EmulationError("the program skybraid-node is missing")
    began_ns = time.time_ns() - round(field.ask(do="status")["at_s"] * NS_PER_S)
    addresses = {path: to for path, to in field.addresses("ground").items() if path in setup.paths}
    local = {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}
    classes = {DATA: "bulk", CONTROL: "control"}
    aircraft, ground = configure_pair(
        program,
        folder,
        (field.vehicle, field.ground),
        in_emulator(addresses),
        aircraft={**setup.tables, "udp": {name: {"listen": to, "class": classes[name]} for name, to in local.items()}},
        ground={**setup.tables, "udp": {name: {"send_to": to, "class": classes[name]} for name, to in local.items()}},
    )
    ends = {name: _Ends(field, name, setup, began_ns) for name in setup.flows}
    try:
        for daemon in (ground, aircraft):
            daemon.start()
        aircraft.until_linked(len(setup.paths), _LINKED_S)
        for end in ends.values():
            end.late(time.time_ns())
        _pump(list(ends.values()), began_ns + round(length_s * NS_PER_S))
        states = {daemon.file.stem: daemon.status() for daemon in (aircraft, ground)}
        spent = {daemon.file.stem: daemon.cpu_s() for daemon in (aircraft, ground)}
    finally:
        for daemon in (aircraft, ground):
            daemon.stop()
        for end in ends.values():
            end.close()
    arrays: dict[str, Any] = {}
    for name, end in ends.items():
        arrays[f"{name}_sent_ns"] = np.array(end.sent_ns, dtype=np.int64)
        arrays[f"{name}_delivered_ns"] = np.array(
            [end.came_ns.get(number, -1) for number in range(len(end.sent_ns))], dtype=np.int64
        )
    np.savez(folder / MESSAGES, **arrays)
    return {
        "words": setup.words,
        "again": {name: end.again for name, end in ends.items()},
        "strange": {name: end.strange for name, end in ends.items()},
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
    args = parser.parse_args()
    scenario = Scenario.load(args.scenario)
    setup = play(scenario, args.judged)
    with Field(args.scenario, args.folder, seed=args.seed) as field:
        facts = _carry(field, setup, args.folder, scenario.duration_s)
    summary = json.loads((args.folder / "emulation" / "summary.json").read_text(encoding="utf-8"))
    facts["emulation"] = summary["flights"][0]["emulation"]
    (args.folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    _main()

"""Nothing stale and fair shares, in real time: gateways that are stopped, and components that send 26,000 a second.

    python tests/gateway/stale.py stop      # a minute
    python tests/gateway/stale.py flood     # two minutes, on a quiet machine

Two daemons over two paths of loopback, in a network namespace of their own. Commands go both ways at 50 Hz; their ages
count from the moment before they are written to the kernel's stamp at their receiver. Ends with 1 where one is older
than the deadline, or where a flood costs others a message or 5 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import tty
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from skybraid.gateway import Node, binary, configure_pair
from skybraid.gateway.field import go_first

if TYPE_CHECKING:
    from types import TracebackType

DEADLINE_MS = 1000.0
"""Of control, unless a file says otherwise."""

INTERVAL_S = 0.02
"""Between two commands of a sender."""

FLOOD_HZ = 26_000
ALLOWED_MS = 5.0
"""What a flood may add to the 99th percentile of others."""

COMMAND = 76
"""COMMAND_LONG, of which each counts."""

OWN, FLOODER = 1, 190
"""Components: of genuine commands, and of the flood."""

SO_TIMESTAMPNS = 35
WAN, VEHICLE, PILOT, FEED, SHUT = 9417, 14540, 14550, 5760, 5761
"""Ports: of the ground's paths, of MAVLink on either side, of TCP in the aircraft, of nobody."""

ENDS = ("udp", "tcp", "serial", "tun")
BATCH = 26


def frame(system: int, component: int, number: int) -> bytes:
    """Returns a COMMAND_LONG with a number as parameters; gateways leave its checksum to receivers."""
    head = struct.pack("<BBBBBBB", 0xFD, 32, 0, 0, number & 0xFF, system, component)
    return head + COMMAND.to_bytes(3, "little") + struct.pack("<I", number) + bytes([9]) * 28 + b"\xab\xcd"


@dataclass
class Talk:
    """Numbered commands from one program to another.

    Attributes:
        sender: the program's socket.
        receiver: the other program's, which has the kernel stamp what arrives.
        system: of the commands.
        sent_ns: when each was written, by number.
        came_ns: number and arrival of each that was delivered, by the wall clock.
    """

    sender: socket.socket
    receiver: socket.socket
    system: int
    sent_ns: list[int] = field(default_factory=list)
    came_ns: list[tuple[int, int]] = field(default_factory=list)

    def send(self) -> None:
        """Writes the next command."""
        number = len(self.sent_ns)
        self.sent_ns.append(time.time_ns())
        self.sender.send(frame(self.system, OWN, number))

    def receive(self) -> None:
        """Reads delivered commands."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, control, _, _ = self.receiver.recvmsg(2048, 256)
                if len(data) > 14 and data[5] == self.system and data[6] == OWN:
                    (seconds, nanoseconds) = struct.unpack("qq", control[0][2][:16])
                    (number,) = struct.unpack("<I", data[10:14])
                    self.came_ns.append((number, seconds * 1_000_000_000 + nanoseconds))

    def ages_ms(self, first: int = 0) -> np.ndarray:
        """Returns the ages at delivery of commands from a number on, in ms."""
        return np.array([(at - self.sent_ns[number]) / 1e6 for number, at in self.came_ns if number >= first])


class Pair:
    """Two gateways on loopback with a program at each.

    Args:
        folder: for all that is written.
        end: what the aircraft has besides, to be flooded.
    """

    def __init__(self, folder: Path, end: str = "udp") -> None:
        program = binary()
        assert program is not None, "found no skybraid-node: make node, or name it by SKYBRAID_NODE"
        listening = {"udp_listen": f"127.0.0.1:{VEHICLE}"}
        aircraft: dict[str, object] = {"mavlink": [listening]}
        ground: dict[str, object] = {"mavlink": [{"udp_listen": f"127.0.0.1:{PILOT}"}]}
        self.master: int | None = None
        if end == "tcp":
            aircraft["mavlink"] = [listening, {"tcp_listen": f"127.0.0.1:{FEED}"}]
        elif end == "serial":
            self.master, slave = pty.openpty()
            tty.setraw(slave)
            aircraft["mavlink"] = [listening, {"serial": os.ttyname(slave), "baud": 4_000_000}]
        elif end == "tun":
            aircraft["tun"] = {"name": "air", "address": "10.77.1.1/24"}
            ground["tun"] = {"name": "gnd", "address": "10.77.2.1/24"}
        paths = {
            name: {"address": f"127.0.0.{last}", "remote": f"127.0.0.1:{WAN}"}
            for name, last in (("lte", 2), ("sat", 3))
        }
        here = Node()
        self.aircraft, self.ground = configure_pair(
            program, folder, (here, here), paths, aircraft=aircraft, ground=ground, status_ports=(9418, 9419)
        )
        self.vehicle, self.pilot = program_at(VEHICLE), program_at(PILOT)
        self.down, self.up = Talk(self.vehicle, self.pilot, 1), Talk(self.pilot, self.vehicle, 255)

    def __enter__(self) -> Self:
        self.ground.start()
        self.aircraft.start()
        self.aircraft.until_linked(2)
        self.ground.until_linked(2)
        # Who has never written is not known.
        for _ in range(3):
            self.vehicle.send(frame(1, 2, 0))
            self.pilot.send(frame(255, 2, 0))
            time.sleep(0.2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.aircraft.stop()
        self.ground.stop()

    def talk(self, seconds: float) -> None:
        """Sends and receives commands both ways for `seconds`."""
        end = next_at = time.monotonic()
        end += seconds
        while (now := time.monotonic()) < end:
            if now >= next_at:
                next_at += INTERVAL_S
                self.down.send()
                self.up.send()
            select.select([self.vehicle, self.pilot], [], [], max(0.0, next_at - time.monotonic()))
            self.down.receive()
            self.up.receive()


def program_at(port: int) -> socket.socket:
    """Returns a program's socket at a gateway's port."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    link.connect(("127.0.0.1", port))
    link.setblocking(False)
    return link


def stop(stops: list[tuple[str, float]]) -> list[str]:
    """Stops one gateway after the other for a while; returns failures."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder, Pair(Path(folder)) as pair:
        pair.talk(2)
        for side, seconds in stops:
            began = len(pair.down.sent_ns)
            gateway = getattr(pair, side)
            before = gateway.status()
            os.kill(gateway.pid, signal.SIGSTOP)
            try:
                pair.talk(seconds)
            finally:
                os.kill(gateway.pid, signal.SIGCONT)
            pair.talk(1.5)
            fresh = len(pair.down.sent_ns)
            pair.talk(2)
            pair.talk(0.3)
            after = gateway.status()
            late = sum(state["classes"][0]["late"] for state in (after,)) - before["classes"][0]["late"]
            for talk, way in ((pair.down, "to the ground"), (pair.up, "to the aircraft")):
                ages = talk.ages_ms(began)
                stale = int(np.sum(ages > DEADLINE_MS))
                came = {number for number, _ in talk.came_ns}
                lost = sum(number not in came for number in range(fresh, fresh + 90))
                print(f"{side} stopped for {seconds} s, {way}: {len(ages)} delivered, oldest {ages.max():.0f} ms, "
                      f"{stale} stale, {late} late there, {lost} of 90 lost afterwards")  # fmt: skip
                if stale or lost:
                    wrong.append(f"{side} stopped for {seconds} s, {way}: {stale} stale, {lost} lost afterwards")
            if seconds > 1.2 and late == 0:
                wrong.append(f"{side} stopped for {seconds} s: nothing was counted as late")
    return wrong


class IoVec(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Header(ctypes.Structure):
    """`struct mmsghdr` on 64 bits."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("iov", ctypes.POINTER(IoVec)),
        ("iov_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    )


def pour(end: str, seconds: float, descriptor: int) -> None:
    """Writes the flooder's commands to an end at the flood's rate."""
    one = frame(1, FLOODER, 7)
    libc = ctypes.CDLL(None)
    if end in ("udp", "tun"):
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.connect(("127.0.0.1", VEHICLE) if end == "udp" else ("10.77.1.99", SHUT))
        buffer = ctypes.create_string_buffer(one, len(one))
        vector = IoVec(ctypes.addressof(buffer), len(one))
        headers = (Header * BATCH)()
        for header in headers:
            header.iov, header.iov_count = ctypes.pointer(vector), 1
    elif end == "tcp":
        stream = socket.create_connection(("127.0.0.1", FEED))
        stream.setblocking(False)
    else:
        os.set_blocking(descriptor, False)
    began, written = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        if written >= elapsed * FLOOD_HZ:
            time.sleep(0.0005)
            continue
        written += BATCH
        with contextlib.suppress(BlockingIOError):
            if end in ("udp", "tun"):
                libc.sendmmsg(link.fileno(), headers, BATCH, 0)
            elif end == "tcp":
                stream.sendall(one * BATCH)
            else:
                os.write(descriptor, one * BATCH)


def flood(ends: list[str], seconds: float) -> list[str]:
    """Floods one end of the aircraft after the other; returns failures."""
    wrong: list[str] = []
    for end in ends:
        with tempfile.TemporaryDirectory() as folder, Pair(Path(folder), end) as pair:
            pair.talk(1)
            begins = [len(pair.down.sent_ns)]
            pair.talk(seconds)
            begins.append(len(pair.down.sent_ns))
            keep = () if pair.master is None else (pair.master,)
            command = [sys.executable, __file__, "pour", end, str(seconds + 0.5), str(pair.master or 0)]
            with subprocess.Popen(command, pass_fds=keep) as source:
                draining = threading.Event()
                if pair.master is not None:
                    threading.Thread(target=drain, args=(pair.master, draining), daemon=True).start()
                time.sleep(0.3)
                begins[1] = len(pair.down.sent_ns)
                pair.talk(seconds)
                until = len(pair.down.sent_ns)
                source.wait()
                draining.set()
            pair.talk(1.5)
            status = pair.aircraft.status()
            poured = [one for one in status["sources"] if one["component"] == FLOODER]
            if end == "tun":
                # Packets to addresses that are not the peer's are read and refused.
                poured = [{"channel": "tun", "written": status["tun"]["refused_outgoing"]}]
            flooder = max(poured, key=lambda one: int(one["written"]), default=None)
            if flooder is None or flooder["written"] < FLOOD_HZ:
                wrong.append(f"{end}: the flood did not come: {flooder}")
            print(f"{end}: the flood's counters: {flooder}")
            for talk, way in ((pair.down, "to the ground"), (pair.up, "to the aircraft")):
                came = dict(reversed(talk.came_ns))
                ages = {number: (at - talk.sent_ns[number]) / 1e6 for number, at in came.items()}
                alone = [ages[number] for number in range(begins[0], begins[1]) if number in ages]
                flooded = [ages[number] for number in range(begins[1], until) if number in ages]
                lost = until - begins[1] - len(flooded)
                p99 = [float(np.quantile(part, 0.99)) if part else float("nan") for part in (alone, flooded)]
                print(f"{end}, {way}: p99 {p99[0]:.2f} ms alone, {p99[1]:.2f} with the flood; {lost} lost")
                if lost or not p99[1] - p99[0] < ALLOWED_MS:
                    wrong.append(f"{end}, {way}: {lost} lost, p99 {p99[0]:.2f} ms and {p99[1]:.2f}")
    return wrong


def drain(descriptor: int, ended: threading.Event) -> None:
    """Reads a gateway's output from a device, as an autopilot does."""
    while not ended.is_set():
        if select.select([descriptor], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                os.read(descriptor, 65536)


def main() -> int:
    """Runs the command line's tests in a network namespace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("stop", "flood", "pour"))
    parser.add_argument("more", nargs="*", help="ends to flood: udp, tcp, serial, tun")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each flood")
    given = parser.parse_args()
    if given.what == "pour":
        pour(given.more[0], float(given.more[1]), int(given.more[2]))
        return 0
    if "SKYBRAID_STALE_INSIDE" not in os.environ:
        os.environ["SKYBRAID_STALE_INSIDE"] = "1"
        inside = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, *sys.argv]
        os.execvp("unshare", ["unshare", "--net", *inside])
    go_first()
    if given.what == "stop":
        wrong = stop([(side, s) for s in (1.5, 1.9, 10.0) for side in ("ground", "aircraft")])
    else:
        wrong = flood(given.more or list(ENDS), given.seconds)
    print("\n".join(wrong) or "nothing was stale, and nobody lost to another")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

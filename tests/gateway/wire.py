"""Paths between two machines whose frames pass through a program, with faults that the emulator's links lack.

Reordering and copies by the network, holes for packets above or below a size in one direction, queues of half a
minute, payloads changed under a valid checksum, ICMP that lies, and recordings that are sent again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.gateway import Node
from skybraid.gateway.field import go_first

if TYPE_CHECKING:
    from collections.abc import Sequence

_ETHTOOL, _GET_ALL_FRAMES = 0x8946, 0x0003
_OFFLOADS = (0x2C, 0x24, 0x1F, 0x19, 0x17)
"""GRO, GSO, TSO, scatter-gather and checksums of linux/ethtool.h: a frame is then a packet as it is on a line."""
_OUTGOING = 4
_IPV4, _IPV6, _UDP, _ICMPV6 = 0x0800, 0x86DD, 17, 58
_ETHERNET_BYTES = 14
_FIRST_PORT = 20_000


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a path.

    Attributes:
        delay_s: one way, in s.
        loss: share of packets.
        reorder: share that is late by up to `late_s`.
        late_s: the same, in s.
        copies: share that comes twice.
        max_bytes: IP packets above are dropped.
        min_bytes: IP packets below are dropped.
        rate_bps: of the bottleneck; 0 for none.
        queue_s: of the bottleneck.
        corrupt: share whose payload is changed under a valid UDP checksum.
        unreachable: share that is answered by an ICMP "port unreachable".
        ports: number of source ports of an address translation (IPv4), which draws one for each packet and accepts
            answers to all of them; 0 for no translation.
    """

    delay_s: float = 0.02
    loss: float = 0.0
    reorder: float = 0.0
    late_s: float = 0.0
    copies: float = 0.0
    max_bytes: int = 65535
    min_bytes: int = 0
    rate_bps: float = 0.0
    queue_s: float = 0.2
    corrupt: float = 0.0
    unreachable: float = 0.0
    ports: int = 0


class _Direction:
    """State of one direction."""

    def __init__(self, here: socket.socket, there: socket.socket) -> None:
        self.here, self.there = here, there
        self.way = Way()
        self.free_at = self.last_at = 0.0
        self.counts = dict.fromkeys(("carried", "dropped", "copied", "reordered", "corrupted", "refused"), 0)


class _Wire:
    """Runs until its standard input ends."""

    def __init__(self, paths: Sequence[tuple[str, str, str]], seed: int) -> None:
        self._random = random.Random(seed)
        self._ways: dict[tuple[str, str], _Direction] = {}
        for name, near, far in paths:
            ends = [_frames(near), _frames(far)]
            self._ways[name, "up"] = _Direction(ends[0], ends[1])
            self._ways[name, "down"] = _Direction(ends[1], ends[0])
        self._later: list[tuple[float, int, socket.socket, bytes]] = []
        self._numbers = itertools.count()
        self._translations: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Carries frames."""
        by_socket = {way.here.fileno(): way for way in self._ways.values()}
        commands, rest = sys.stdin.fileno(), b""
        while True:
            patience = max(0.0, self._later[0][0] - time.monotonic()) if self._later else 0.5
            ready, _, _ = select.select([*by_socket, commands], [], [], min(patience, 0.5))
            for one in ready:
                if one != commands:
                    self._take(by_socket[one])
                    continue
                read = os.read(commands, 65536)
                if not read:
                    return
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                _, _, there, frame = heapq.heappop(self._later)
                with contextlib.suppress(OSError):
                    there.send(frame)

    def _translated(self, direction: _Direction, frame: bytes) -> bytes:
        """Returns a frame as an address translation passes it on, without its checksum."""
        at = _udp_at(frame)
        if at is None or int.from_bytes(frame[12:14]) != _IPV4:
            return frame
        source, target = struct.unpack_from(">HH", frame, at)
        if direction.way.ports:
            outer = _FIRST_PORT + self._random.randrange(direction.way.ports)
            self._translations[direction.there.fileno(), outer] = source
            source = outer
        inner = self._translations.get((direction.here.fileno(), target))
        if inner is None and not direction.way.ports:
            return frame
        ports = struct.pack(">HH", source, inner or target)
        return frame[:at] + ports + frame[at + 4 : at + 6] + bytes(2) + frame[at + 8 :]

    def _obey(self, words: dict[str, Any]) -> None:
        if words:
            way = self._ways[words["path"], words["way"]]
            way.way = Way(**words["set"])
        print(json.dumps({" ".join(key): way.counts for key, way in self._ways.items()}), flush=True)

    def _take(self, direction: _Direction) -> None:
        for _ in range(64):
            try:
                frame, sender = direction.here.recvfrom(65535)
            except (BlockingIOError, InterruptedError, OSError):
                return
            if sender[2] != _OUTGOING:
                self._carry(direction, frame)

    def _carry(self, direction: _Direction, frame: bytes) -> None:
        way, draw, counts, now = direction.way, self._random.random, direction.counts, time.monotonic()
        if _finds_neighbours(frame) and way.loss < 1:
            # A network beyond the next hop has no part in that.
            heapq.heappush(self._later, (now, next(self._numbers), direction.there, frame))
            return
        sized = not way.min_bytes <= len(frame) - _ETHERNET_BYTES <= way.max_bytes
        at = now
        if way.rate_bps:
            at = max(direction.free_at, now)
            if at - now > way.queue_s:
                counts["dropped"] += 1
                return
            direction.free_at = at = at + len(frame) * 8 / way.rate_bps
        if draw() < way.loss or sized:
            counts["dropped"] += 1
            return
        if draw() < way.unreachable and (answer := _unreachable(frame)):
            counts["refused"] += 1
            heapq.heappush(self._later, (now, next(self._numbers), direction.here, answer))
        frame = self._translated(direction, frame)
        if draw() < way.corrupt and (spoilt := _corrupted(frame, self._random)):
            counts["corrupted"] += 1
            frame = spoilt
        # A delay that shrinks does not reorder.
        direction.last_at = at = max(at + way.delay_s, direction.last_at)
        if draw() < way.reorder:
            counts["reordered"] += 1
            at += draw() * way.late_s
        counts["carried"] += 1
        heapq.heappush(self._later, (at, next(self._numbers), direction.there, frame))
        if draw() < way.copies:
            counts["copied"] += 1
            heapq.heappush(self._later, (at + draw() * 0.01, next(self._numbers), direction.there, frame))


def _frames(interface: str) -> socket.socket:
    """Returns a socket for all frames of an interface."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_GET_ALL_FRAMES))
    opened.setsockopt(socket.SOL_SOCKET, 33, 8_000_000)  # SO_RCVBUFFORCE
    opened.bind((interface, 0))
    opened.setblocking(False)
    return opened


def _finds_neighbours(frame: bytes) -> bool:
    """Whether a frame is of ARP, or of neighbour discovery (RFC 4861)."""
    kind = int.from_bytes(frame[12:14])
    return kind != _IPV4 and (kind != _IPV6 or (frame[20] == _ICMPV6 and 133 <= frame[54] <= 137))


def _udp_at(frame: bytes) -> int | None:
    """Returns the offset of a frame's UDP header."""
    kind = int.from_bytes(frame[12:14])
    if kind == _IPV4 and frame[23] == _UDP:
        return _ETHERNET_BYTES + (frame[14] & 15) * 4
    return _ETHERNET_BYTES + 40 if kind == _IPV6 and frame[20] == _UDP else None


def checksum(words: bytes) -> int:
    """Returns the checksum of the internet (RFC 1071)."""
    words += bytes(len(words) % 2)
    total: int = sum(struct.unpack(f">{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _corrupted(frame: bytes, drawn: random.Random) -> bytes | None:
    """Returns a frame with bits of its UDP payload changed under a valid checksum."""
    at = _udp_at(frame)
    if at is None or len(frame) <= at + 8:
        return None
    bad = bytearray(frame)
    for place in drawn.sample(range(8 * (at + 8), 8 * len(frame)), drawn.randint(1, 8)):
        bad[place // 8] ^= 1 << place % 8
    addresses = bytes(bad[26:34]) if int.from_bytes(frame[12:14]) == _IPV4 else bytes(bad[22:54])
    length = struct.unpack_from(">H", bad, at + 4)[0]
    bad[at + 6 : at + 8] = bytes(2)
    found = checksum(addresses + struct.pack(">HH", _UDP, length) + bytes(bad[at : at + length]))
    bad[at + 6 : at + 8] = (found or 0xFFFF).to_bytes(2)
    return bytes(bad)


def _unreachable(frame: bytes) -> bytes | None:
    """Returns the ICMP "port unreachable" in answer to a frame."""
    if _udp_at(frame) is None:
        return None
    ethernet = frame[6:12] + frame[0:6] + frame[12:14]
    if int.from_bytes(frame[12:14]) == _IPV4:
        quoted = frame[14 : 14 + 28]
        body = struct.pack(">BBHI", 3, 3, 0, 0) + quoted
        body = body[:2] + checksum(body).to_bytes(2) + body[4:]
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, 1, 0, frame[30:34], frame[26:30])
        return ethernet + head[:10] + checksum(head).to_bytes(2) + head[12:] + body
    body = struct.pack(">BBHI", 1, 4, 0, 0) + frame[14 : 14 + 200]
    addresses = frame[38:54] + frame[22:38]
    found = checksum(addresses + struct.pack(">II", len(body), _ICMPV6) + body)
    head = struct.pack(">IHBB", 6 << 28, len(body), _ICMPV6, 64) + addresses
    return ethernet + head + body[:2] + found.to_bytes(2) + body[4:]


class Wires:
    """Two namespaces, `air` and `ground`, with a path for each name, and the program between them.

    Args:
        paths: their names; the interfaces are named so at both ends.
        ipv6: paths have addresses of IPv6 alone.
        seed: of what the program draws.
    """

    def __init__(self, paths: Sequence[str], *, ipv6: bool = False, seed: int = 1) -> None:
        self.paths, self.ipv6 = tuple(paths), ipv6
        self._names = {end: f"wire-{os.getpid()}-{end}" for end in ("air", "between", "ground")}
        try:
            for name in self._names.values():
                _ip("netns", "add", name)
            self.air, self.between, self.ground = (Node(f"/run/netns/{name}") for name in self._names.values())
            for node in (self.air, self.ground):
                node.run("ip", "link", "set", "lo", "up")
            for path in self.paths:
                self._build(path)
            wired = [(path, f"{path}-a", f"{path}-g") for path in self.paths]
            command = [sys.executable, str(Path(__file__)), json.dumps(wired), str(seed)]
            self._process = self.between.start(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, first=True
            )
            for path in self.paths:
                self.set(path)
        except BaseException:
            self.close()
            raise

    def _build(self, path: str) -> None:
        for node, end in ((self.air, "air"), (self.ground, "ground")):
            peer = f"{path}-{end[0]}"
            where = ("netns", self._names[end], "type", "veth", "peer", peer, "netns", self._names["between"])
            _ip("link", "add", path, *where)
            plain(node, path)
            plain(self.between, peer)
            self.between.run("sysctl", "-qw", f"net.ipv6.conf.{peer}.disable_ipv6=1")
            own = f"net.ipv6.conf.{path}"
            node.run("sysctl", "-qw", f"{own}.accept_dad=0" if self.ipv6 else f"{own}.disable_ipv6=1")
            node.run("ip", "link", "set", path, "up")
            node.run("ip", "address", "add", f"{self.address(path, end)}/{64 if self.ipv6 else 24}", "dev", path)
            self.between.run("ip", "link", "set", peer, "up")

    def address(self, path: str, end: str) -> str:
        """Returns the address of an end, `air` or `ground`, on a path."""
        number, last = self.paths.index(path), {"air": 1, "ground": 2}[end]
        return f"fd00:{number + 1}::{last}" if self.ipv6 else f"10.9.{number}.{last}"

    def remotes(self, port: int = 9417) -> dict[str, dict[str, str]]:
        """Returns the paths of the aircraft's file."""
        form = "[{}]:{}" if self.ipv6 else "{}:{}"
        return {
            path: {"interface": path, "remote": form.format(self.address(path, "ground"), port)} for path in self.paths
        }

    def set(self, path: str, way: str | None = None, **changes: Any) -> None:
        """Sets a direction (`up` is from the aircraft; both if there is none) to `Way` with these changes."""
        for one in (way,) if way else ("up", "down"):
            self._ask({"path": path, "way": one, "set": asdict(replace(Way(), **changes))})

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns what was done to frames so far."""
        return self._ask({})

    def _ask(self, words: dict[str, Any]) -> dict[str, dict[str, int]]:
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        given.write(json.dumps(words).encode() + b"\n")
        given.flush()
        found: dict[str, dict[str, int]] = json.loads(answers.readline())
        return found

    def close(self) -> None:
        """Stops the program and removes the namespaces."""
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.communicate()
        for node in ("air", "between", "ground"):
            if hasattr(self, node):
                getattr(self, node).close()
        for name in self._names.values():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def plain(node: Node, interface: str) -> None:
    """Disables the offloads of an interface."""
    with node.socket() as asked:
        for command in _OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value)) + bytes(8)
            with contextlib.suppress(OSError):
                fcntl.ioctl(asked, _ETHTOOL, request)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", type=json.loads)
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    go_first()
    _Wire(given.paths, given.seed).run()


if __name__ == "__main__":
    _main()

"""Hostile relay between two gateways.

It forges, cuts short, repeats, reorders, flips bits, and cuts paths.

A path is `honest` when every datagram that comes in goes on unchanged, though maybe late, next to what is made up; of
another one a share is changed on the way, which loses it.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

HOST = "127.0.0.1"
KINDS = ("flipped", "truncated", "longer", "replayed", "crossed", "reflected", "forged", "handshake", "noise")
"""Packets that an attacker injects."""

_HISTORY, _BUFFER_BYTES = 4000, 4_000_000
_SEALED, _HANDSHAKE = 0x30, 0x34  # version 1, kinds 4 and 5


@dataclass(frozen=True, slots=True)
class Way:
    """A path through the relay.

    Attributes:
        front: port that the aircraft sends to.
        back: port of the ground.
        inject: how many made-up datagrams follow one that goes on, on average; at most 1.
        spoil: share that is changed on the way; 0 for an honest path.
        reorder: share that is late by up to `late_s`.
        late_s: the same, in s.
    """

    front: int
    back: int
    inject: float = 0.0
    spoil: float = 0.0
    reorder: float = 0.0
    late_s: float = 0.03


@dataclass(slots=True)
class _Path:
    way: Way
    front: socket.socket
    back: socket.socket
    aircraft: tuple[str, int] | None = None
    cut: bool = False
    history: tuple[deque[bytes], deque[bytes]] = field(
        default_factory=lambda: (deque(maxlen=_HISTORY), deque(maxlen=_HISTORY))
    )


class _Relay:
    """Runs until SIGTERM; takes lists of cut paths on its standard input, a line each."""

    def __init__(self, ways: Sequence[Way], seed: int) -> None:
        self._random = random.Random(seed)
        self._paths = []
        for way in ways:
            ends = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
            for one in ends:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
                one.setblocking(False)
            ends[0].bind((HOST, way.front))
            ends[1].bind((HOST, 0))
            self._paths.append(_Path(way, ends[0], ends[1]))
        self._later: list[tuple[float, int, _Path, bool, bytes]] = []
        self._numbers = itertools.count()
        self.injected: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.carried, self.spoilt, self.dropped = [0, 0], [0, 0], [0, 0]
        self.stopped = False

    def run(self) -> None:
        """Forwards datagrams until it is stopped."""
        ends = [(path, up) for path in self._paths for up in (True, False)]
        sockets = {(path.front if up else path.back).fileno(): (path, up) for path, up in ends}
        commands = sys.stdin.fileno()
        while not self.stopped:
            patience = max(0.0, self._later[0][0] - time.monotonic()) if self._later else 0.1
            ready, _, _ = select.select([*sockets, commands], [], [], min(patience, 0.1))
            for one in ready:
                if one == commands:
                    self._obey(sys.stdin.readline())
                else:
                    self._take(*sockets[one])
            now = time.monotonic()
            while self._later and self._later[0][0] <= now:
                _, _, path, up, data = heapq.heappop(self._later)
                self._pass(path, up, data)

    def _obey(self, line: str) -> None:
        if not line:
            self.stopped = True
            return
        cut = json.loads(line)
        for number, path in enumerate(self._paths):
            path.cut = number in cut

    def _take(self, path: _Path, up: bool) -> None:
        one = path.front if up else path.back
        for _ in range(64):
            try:
                data, sender = one.recvfrom(65535)
            except (BlockingIOError, ConnectionError):
                return
            if up:
                path.aircraft = sender
            if path.cut:
                self.dropped[up] += 1
                continue
            if self._random.random() < path.way.spoil:
                self.spoilt[up] += 1
                kind = self._random.choice(("flipped", "truncated", "longer"))
                self._inject(path, up, data, kind)
            elif self._random.random() < path.way.reorder:
                due = time.monotonic() + self._random.random() * path.way.late_s
                heapq.heappush(self._later, (due, next(self._numbers), path, up, data))
            else:
                self._pass(path, up, data)
            if self._random.random() < path.way.inject:
                self._inject(path, up, data, self._random.choice(KINDS))

    def _pass(self, path: _Path, up: bool, data: bytes) -> None:
        if self._send(path, up, data):
            self.carried[up] += 1
            # Only of what went on is a repetition one.
            path.history[up].append(data)

    def _send(self, path: _Path, up: bool, data: bytes) -> bool:
        to = (HOST, path.way.back) if up else path.aircraft
        if to is None:
            return False
        try:
            (path.back if up else path.front).sendto(data, to)
        except (BlockingIOError, ConnectionError):
            return False
        return True

    def _inject(self, path: _Path, up: bool, data: bytes, kind: str) -> None:
        draw = self._random
        match kind:
            case "flipped":
                bad = bytearray(data)
                for place in draw.sample(range(8 * len(data)), draw.randint(1, 8)):
                    bad[place // 8] ^= 1 << place % 8
                data = bytes(bad)
            case "truncated":
                data = data[: draw.randrange(len(data))]
            case "longer":
                data += draw.randbytes(draw.randint(1, 40))
            case "replayed":
                if not path.history[up]:
                    return
                data = draw.choice(path.history[up])
            case "crossed":
                other = draw.choice(self._paths)
                if other is path or not other.history[up]:
                    return
                data = draw.choice(other.history[up])
            case "reflected":
                up = not up
            case "forged":
                # All that is readable is right: session, path, a number to come.
                number = int.from_bytes(data[4:10]) + draw.randint(1, 100)
                data = bytes([_SEALED]) + data[1:4] + number.to_bytes(6) + draw.randbytes(max(len(data) - 10, 16))
            case "handshake":
                data = bytes([_HANDSHAKE]) + draw.randbytes(draw.randint(1, 200))
            case _:
                data = draw.randbytes(draw.randint(0, 1400))
        if self._send(path, up, data):
            self.injected[up][kind] += 1


class Relay:
    """Relay in a child process.

    Args:
        ways: the paths.
        seed: of what the enemy does.
    """

    def __init__(self, ways: Sequence[Way], seed: int = 1) -> None:
        words = json.dumps([asdict(way) for way in ways])
        command = [sys.executable, str(Path(__file__)), words, str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def cut(self, paths: Sequence[int]) -> None:
        """Cuts these paths both ways and restores all others."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(paths)) + "\n")
        self._process.stdin.flush()

    def stop(self) -> dict[str, Any]:
        """Stops the relay; returns `injected` (by kind), `carried`, `spoilt`, `dropped`, downlink first."""
        said, _ = self._process.communicate(timeout=10)
        found: dict[str, Any] = json.loads(said)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ways", type=json.loads)
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    relay = _Relay([Way(**way) for way in given.ways], given.seed)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    relay.run()
    counts = {name: getattr(relay, name) for name in ("injected", "carried", "spoilt", "dropped")}
    print(json.dumps(counts))


if __name__ == "__main__":
    _main()

"""Gateways under attack and over an hour: deliveries, counters and costs.

python tests/gateway/enemies.py attack --seconds 120
python tests/gateway/enemies.py flood --seconds 5 --rounds 5
python tests/gateway/enemies.py soak --minutes 60
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import select
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import flood
from relay import HOST, Relay, Way
from skybraid.gateway import Daemon, Node, binary, configure_pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

PATHS = ("honest", "crooked")
CONTROL_HZ, CONTROL_BYTES = 50, 100
FULL_BYTES = 1200

_BUFFER_BYTES = 8_000_000
_PATIENCE_S = 1.5
_WARM_SHARE = 0.5
_MOST_KB_PER_H = 1024.0


def free_ports(number: int) -> list[int]:
    """Returns free UDP ports of loopback."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            one.bind((HOST, 0))
            found.append(int(one.getsockname()[1]))
        return found


def free_tcp_ports(number: int) -> list[int]:
    """Returns free TCP ports of loopback."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            one = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            one.bind((HOST, 0))
            found.append(int(one.getsockname()[1]))
        return found


def message(stream: int, number: int, size: int) -> bytes:
    """Returns the content of a message, which follows from its stream and number."""
    head = struct.pack("!BQ", stream, number)
    return (head + hashlib.blake2b(head).digest() * (size // 64 + 1))[:size]


@dataclass(slots=True)
class Stream:
    """Messages in one direction through two gateways.

    Attributes:
        number: tells it from others.
        size: of a message in bytes.
        rate_hz: messages a second; 0 for as many as a caller writes.
        to: the port that takes them.
        at: the port that they come out of.
    """

    number: int
    size: int
    rate_hz: float
    to: int
    at: int
    written: int = 0
    came: Counter[int] = field(default_factory=Counter)
    delays_ms: list[float] = field(default_factory=list)
    changed: int = 0
    refused: int = 0
    _reader: socket.socket = field(init=False)
    _writer: socket.socket = field(init=False)
    _due: float = field(init=False)
    _sent: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._writer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._reader.bind((HOST, self.at))
        for one in (self._reader, self._writer):
            one.setblocking(False)
        self._due = time.monotonic()

    @property
    def lost(self) -> list[int]:
        """Numbers of messages that did not arrive."""
        return [number for number in range(self.written) if number not in self.came]

    @property
    def twice(self) -> int:
        """Arrivals beyond the first."""
        return self.came.total() - len(self.came)

    def begin(self) -> None:
        """Starts the schedule of the stream now."""
        self._due = time.monotonic()

    def step(self) -> None:
        """Writes due messages and reads arrived ones."""
        now = time.monotonic()
        self._due = max(self._due, now - 0.2)
        while self.rate_hz and self._due <= now:
            self.write()
            self._due += 1 / self.rate_hz
        self.read()

    def write(self) -> None:
        """Writes the next message."""
        try:
            self._writer.sendto(message(self.number, self.written, self.size), (HOST, self.to))
        except OSError:
            self.refused += 1
            return
        self._sent[self.written] = time.monotonic()
        self.written += 1

    def read(self) -> None:
        """Reads arrived messages."""
        while True:
            try:
                data = self._reader.recv(65535)
            except BlockingIOError:
                return
            at = time.monotonic()
            stream, number = struct.unpack_from("!BQ", data) if len(data) >= 9 else (-1, -1)
            if stream != self.number or data != message(stream, number, self.size) or number >= self.written:
                self.changed += 1
                continue
            self.came[number] += 1
            if (since := self._sent.pop(number, None)) is not None:
                self.delays_ms.append((at - since) * 1e3)

    def forget(self) -> None:
        """Reduces records to sums, so that the memory of this program does not grow."""
        if len(self.delays_ms) > 100_000:
            del self.delays_ms[:50_000]

    def close(self) -> None:
        """Closes the sockets."""
        self._reader.close()
        self._writer.close()

    def outcome(self) -> dict[str, Any]:
        """Returns what arrived of the stream."""
        return {
            "written": self.written,
            "lost": len(self.lost),
            "twice": self.twice,
            "changed": self.changed,
            "delay_ms": {str(share): round(float(np.quantile(self.delays_ms, share)), 3) for share in (0.5, 0.99, 1.0)}
            if self.delays_ms
            else {},
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """A stream that is wanted: `class_` of the gateway, `up` (from the aircraft) or down."""

    name: str
    class_: str
    up: bool
    size: int
    rate_hz: float


CONTROL = (
    Kind("control-up", "control", up=True, size=CONTROL_BYTES, rate_hz=CONTROL_HZ),
    Kind("control-down", "control", up=False, size=CONTROL_BYTES, rate_hz=CONTROL_HZ),
)


class Pair:
    """Two gateways over loopback, with streams through them.

    Args:
        folder: for keys, files and what the gateways say.
        ways: the ground's port and the port that the aircraft sends to, by path.
        kinds: the streams.
        common: tables of both files.
    """

    def __init__(
        self,
        folder: Path,
        ways: Mapping[str, tuple[int, int]],
        kinds: Sequence[Kind],
        common: Mapping[str, Any] | None = None,
    ) -> None:
        program = binary()
        assert program is not None, "skybraid-node is missing"
        tables: dict[str, dict[str, Any]] = {"aircraft": {}, "ground": {}}
        self.streams: dict[str, Stream] = {}
        for number, kind in enumerate(kinds):
            to, at = free_ports(2)
            ends = ("aircraft", "ground") if kind.up else ("ground", "aircraft")
            tables[ends[0]][kind.name] = {"listen": f"{HOST}:{to}", "class": kind.class_}
            tables[ends[1]][kind.name] = {"send_to": f"{HOST}:{at}", "class": kind.class_}
            self.streams[kind.name] = Stream(number, kind.size, kind.rate_hz, to, at)
        paths = {name: {"address": HOST, "remote": f"{HOST}:{front}"} for name, (_, front) in ways.items()}
        ground = {"path": {name: {"listen": f"{HOST}:{back}"} for name, (back, _) in ways.items()}}
        here, status = Node(), free_tcp_ports(2)
        self.aircraft, self.ground = configure_pair(
            program,
            folder,
            (here, here),
            paths,
            aircraft={**(common or {}), "udp": tables["aircraft"]},
            ground={**(common or {}), **ground, "udp": tables["ground"]},
            status_ports=(status[0], status[1]),
        )
        self._paths = len(ways)

    @property
    def daemons(self) -> tuple[Daemon, Daemon]:
        """Aircraft and ground."""
        return self.aircraft, self.ground

    def start(self) -> None:
        """Starts both gateways and waits for all paths."""
        for one in (self.ground, self.aircraft):
            one.start()
        self.aircraft.until_linked(self._paths)
        for stream in self.streams.values():
            stream.begin()

    def pump(self, seconds: float) -> None:
        """Runs the streams for `seconds`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for stream in self.streams.values():
                stream.step()
            time.sleep(0.001)

    def drain(self, seconds: float = _PATIENCE_S) -> None:
        """Reads messages that are still in flight."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for stream in self.streams.values():
                stream.read()
            time.sleep(0.005)

    def refused(self) -> dict[str, Counter[str]]:
        """Returns the number of foreign datagrams that each end refused, by reason."""
        return {one.file.stem: Counter(one.status()["refused"]) for one in self.daemons}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self.daemons:
            one.stop()
        for stream in self.streams.values():
            stream.close()


def attack(seconds: float, seed: int = 1) -> dict[str, Any]:
    """Runs control both ways and video through a hostile relay; one path loses nothing."""
    ports = free_ports(4)
    ways = [
        Way(ports[2], ports[0], inject=0.9, spoil=0.0, reorder=0.2),
        Way(ports[3], ports[1], inject=0.9, spoil=0.5, reorder=0.2),
    ]
    kinds = (*CONTROL, Kind("video", "video", up=True, size=FULL_BYTES, rate_hz=100))
    with tempfile.TemporaryDirectory() as place, Relay(ways, seed) as relay:
        named = {name: (way.back, way.front) for name, way in zip(PATHS, ways, strict=True)}
        with Pair(Path(place), named, kinds) as pair:
            pair.start()
            pair.pump(seconds)
            pair.drain()
            # From here on nothing more comes, so that what one end received is compared with what was sent.
            relay.cut(range(len(ways)))
            time.sleep(0.3)
            streams = {name: stream.outcome() for name, stream in pair.streams.items()}
            states = {one.file.stem: one.status() for one in pair.daemons}
        did = relay.stop()
    found: dict[str, Any] = {"seconds": seconds, "streams": streams, "sessions": states["ground"]["sessions"]}
    for end, other, up in (("ground", "aircraft", True), ("aircraft", "ground", False)):
        accepted = sum(path["incoming_datagrams"] for path in states[end]["paths"])
        refused = sum(states[end]["refused"].values())
        bad = did["injected"][up]
        found[end] = {
            "sent_to_it": sum(path["outgoing_datagrams"] for path in states[other]["paths"]),
            "brought": did["carried"][up],
            "lost": did["spoilt"][up],
            "bad": bad,
            "bad_in_all": sum(bad.values()),
            "accepted": accepted,
            "refused": states[end]["refused"],
            "refused_in_all": refused,
            "unaccounted": did["carried"][up] + sum(bad.values()) - accepted - refused,
        }
    return found


def session_of(port: int, patience_s: float = 3.0) -> bytes:
    """Returns the session's number from datagrams to a loopback port, as an eavesdropper reads it."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as tap:
        tap.bind(("lo", 0))
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if not select.select([tap], [], [], 0.1)[0]:
                continue
            frame = tap.recv(2048)
            if len(frame) > 45 and frame[12:14] == b"\x08\x00" and frame[23] == 17:
                (to,) = struct.unpack_from("!H", frame, 36)
                if to == port and frame[42] >> 2 == 0x0C:
                    return frame[43:45]
    raise AssertionError(f"nothing sealed went to port {port}")


def drops(port: int) -> int:
    """Returns the number of datagrams to a UDP port that its full socket buffer dropped."""
    found = 0
    for line in Path("/proc/net/udp").read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if int(words[1].partition(":")[2], 16) == port:
            found += int(words[12])
    return found


def _throughput(pair: Pair, seconds: float) -> float:
    """Returns the goodput in Mbit/s of the stream `full` at maximum load."""
    stream = pair.streams["full"]
    before = len(stream.came)
    began = time.monotonic()
    pair.pump(seconds)
    return (len(stream.came) - before) * stream.size * 8 / (time.monotonic() - began) / 1e6


def flooded(seconds: float, rounds: int, rate_per_s: float = 1e5, offered_hz: float = 5000) -> dict[str, Any]:
    """Measures a stream of 1200 B while garbage is sent alternately to the ground's port and to an unused one."""
    back, nobody = free_ports(2)
    kinds = (*CONTROL, Kind("full", "bulk", up=True, size=FULL_BYTES, rate_hz=offered_hz))
    quiet: list[float] = []
    loud: list[float] = []
    rates: list[float] = []
    accounts: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory() as place,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        Pair(Path(place), {"only": (back, back)}, kinds) as pair,
    ):
        # A socket that nobody reads: a closed port would answer, and slow the sender down.
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sink.bind((HOST, nobody))
        pair.start()
        pair.pump(2)
        for _ in range(rounds):
            for port, found in ((nobody, quiet), (back, loud)):
                session = session_of(back)
                refused, dropped = pair.refused()["ground"].total(), drops(back)
                storm = flood.start((HOST, port), rate_per_s, seconds + 0.5, session)
                pair.pump(0.3)
                found.append(_throughput(pair, seconds))
                sent = storm.wait()
                pair.drain(0.3)
                if port == back:
                    rates.append(sent["sent"] / sent["seconds"])
                    refused = pair.refused()["ground"].total() - refused
                    accounts.append({"sent": sent["sent"], "refused": refused, "dropped": drops(back) - dropped})
        pair.drain()
        streams = {name: stream.outcome() for name, stream in pair.streams.items()}
    share = median(loud) / median(quiet)
    return {
        "quiet_mbps": [round(one, 2) for one in quiet],
        "loud_mbps": [round(one, 2) for one in loud],
        "share": round(share, 4),
        "garbage_per_s": [round(one) for one in rates],
        "accounts": accounts,
        "streams": streams,
        "load": os.getloadavg(),
    }


def slope(at_s: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Growth an hour by least squares, and half of its 95 % interval from the slopes of four parts in a row.

    The parts' slopes, not the samples, are taken to be independent: memory is what it was a moment ago.
    """
    if len(at_s) < 4 * 3:
        return float("nan"), float("nan")
    hours = np.array(at_s) / 3600
    parts = np.array_split(np.arange(len(hours)), 4)
    own = [float(np.polyfit(hours[part], np.array(values, dtype=float)[part], 1)[0]) for part in parts]
    whole = float(np.polyfit(hours, np.array(values, dtype=float), 1)[0])
    student_of_four = 3.182
    return whole, student_of_four * float(np.std(own, ddof=1)) / 2


def soak(minutes: float, every_s: float, out: Path | None) -> dict[str, Any]:
    """Runs mixed traffic with cuts and new keys every 10 s; samples the gateways' memory, descriptors and CPU."""
    ports = free_ports(4)
    ways = [Way(ports[2], ports[0], inject=0.05, reorder=0.02), Way(ports[3], ports[1], inject=0.05, reorder=0.02)]
    kinds = (
        *CONTROL,
        Kind("video", "video", up=True, size=FULL_BYTES, rate_hz=100),
        Kind("telemetry", "telemetry", up=True, size=60, rate_hz=40),
        Kind("bulk-up", "bulk", up=True, size=FULL_BYTES, rate_hz=50),
        Kind("bulk-down", "bulk", up=False, size=600, rate_hz=20),
    )
    draw, samples = random.Random(1), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as place, Relay(ways) as relay:
        named = {name: (way.back, way.front) for name, way in zip(PATHS, ways, strict=True)}
        common = {"session": {"rekey": "10s"}, "log": {"file": "log.jsonl"}}
        with Pair(Path(place), named, kinds, common) as pair:
            pair.start()
            began = time.monotonic()
            cuts, sample_at, cut_at, back_at = 0, began, began + 5, float("inf")
            while (now := time.monotonic()) < began + 60 * minutes:
                if now >= cut_at:
                    relay.cut([draw.randrange(2)])
                    cuts, cut_at, back_at = cuts + 1, float("inf"), now + draw.uniform(0.5, 3)
                elif now >= back_at:
                    relay.cut([])
                    # A path is on probation for a second; the next cut may be of the other one.
                    cut_at, back_at = now + draw.uniform(3, 8), float("inf")
                if now >= sample_at:
                    sample_at += every_s
                    samples.append(_sample(pair, now - began))
                    if out is not None:
                        out.write_text(json.dumps(_verdict(samples, pair, cuts)), encoding="utf-8")
                pair.pump(0.05)
                for stream in pair.streams.values():
                    stream.forget()
            relay.cut([])
            pair.drain()
            found = _verdict(samples, pair, cuts)
            found["relay"] = relay.stop()
    if out is not None:
        out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def _sample(pair: Pair, at_s: float) -> dict[str, Any]:
    return {"at_s": at_s} | {
        one.file.stem: {"rss": one.memory_bytes(), "descriptors": one.descriptors(), "cpu_s": one.cpu_s()}
        for one in pair.daemons
    }


def _judged(kilobytes: float, half: float) -> str:
    """Whether memory grows by more than 1 MB an hour."""
    if kilobytes + half <= _MOST_KB_PER_H:
        return "steady"
    return "grows" if kilobytes - half > _MOST_KB_PER_H else "cannot be judged"


def _verdict(samples: Sequence[dict[str, Any]], pair: Pair, cuts: int) -> dict[str, Any]:
    found: dict[str, Any] = {"minutes": samples[-1]["at_s"] / 60, "cuts": cuts}
    warm = samples[int(len(samples) * _WARM_SHARE) :]
    at_s = [one["at_s"] for one in warm]
    for daemon in pair.daemons:
        end = daemon.file.stem
        kilobytes, half = slope(at_s, [one[end]["rss"] / 1024 for one in warm])
        descriptors = [one[end]["descriptors"] for one in warm]
        used_s = samples[-1][end]["cpu_s"] - samples[0][end]["cpu_s"]
        past_s = samples[-1]["at_s"] - samples[0]["at_s"]
        found[end] = {
            "rss_kB": [samples[0][end]["rss"] // 1024, warm[0][end]["rss"] // 1024, warm[-1][end]["rss"] // 1024],
            "rss_kB_per_h": [round(kilobytes, 1), round(half, 1)],
            "descriptors": [min(descriptors), max(descriptors), descriptors[-1]],
            "cpu_percent": round(100 * used_s / past_s, 2) if past_s else None,
            "memory": _judged(kilobytes, half),
            "descriptors_grow": descriptors[-1] > descriptors[0],
        }
    ends = [found[daemon.file.stem] for daemon in pair.daemons]
    found["grows"] = any(one["memory"] == "grows" or one["descriptors_grow"] for one in ends)
    found["streams"] = {name: stream.outcome() for name, stream in pair.streams.items()}
    found["samples"] = list(samples)
    return found


def main() -> None:
    """Runs one of the tests and prints its outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("attack", "flood", "soak"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds between samples of the soak")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    match given.what:
        case "attack":
            found = attack(given.seconds, given.seed)
        case "flood":
            found = flooded(given.seconds, given.rounds)
        case _:
            found = soak(given.minutes, given.every, given.out)
    print(json.dumps({name: value for name, value in found.items() if name != "samples"}, indent=1))
    if given.what == "soak" and found["grows"]:
        sys.exit(1)


if __name__ == "__main__":
    main()

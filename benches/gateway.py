"""Speed of two gateways, compared with a bare UDP socket over the same loopback.

    python benches/gateway.py [--paths 1] [--quick] [--parts delays messages video cpu tcp]

Goals are ratios within one run, since the machine differs from run to run.

Both daemons, the sender and the receiver are processes of this machine. What is sent and received goes through
sendmmsg and recvmmsg, and the generator is measured alone first: where it is the bottleneck, the numbers say nothing.
On two cores four processes share them; medians are the figures to use. Video and telemetry go over MP-DCCP with CUBIC:
round trips here take tens of microseconds, less than the processes take to wake up, and `ccid5`, which keeps no more
in flight than a round trip holds, waits for them. Their queue is longer than usual: at 700 Mbit/s 400 datagrams are
5 ms, less than the scheduler's slices when four processes share two cores.

Delays are measured for one datagram per millisecond, each waking sleeping processors, and back to back, where they
stay awake; beside both stand two relays in the gateways' place, which do nothing but pass datagrams on: what two more
processes on the way cost on this machine. TCP crosses the TUN interfaces of two namespaces (`tunnel.py`), which takes
root. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tunnel

from skybraid.gateway import Daemon, Node, binary, configure_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBC = ctypes.CDLL(None, use_errno=True)
BATCH, SLOT = 64, 2048
BUFFER_BYTES = 32 << 20
SO_RCVBUFFORCE = 33
WAIT_FOR_ONE = 0x10000
STAMP = 16
"""Bytes at the head of a datagram: its number and when it was sent, in ns."""

QUEUE = 4000
"""Datagrams of video and telemetry that may wait."""

FRAMES_HZ = 30
"""Frames of video a second, each sent at once."""

GOALS = {"delay": 1.01, "messages": 0.40, "video": 0.35, "cpu": 0.05, "tcp": 1.7}
"""Round trips over two gateways by those over two relays; control messages and video by those of a bare socket; cores
of both gateways; TCP goodput by that of two bare forwarders."""


class IoVec(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class MsgHdr(ctypes.Structure):
    """`struct msghdr` on 64 bits, followed by the length of `struct mmsghdr`."""

    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("iov", ctypes.POINTER(IoVec)),
        ("iov_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    ]


class Batch:
    """Buffers for the datagrams of one system call.

    Args:
        length: size of each datagram or buffer in bytes.
    """

    def __init__(self, length: int) -> None:
        self.buffer = np.zeros((BATCH, SLOT), dtype=np.uint8)
        self.stamps = self.buffer[:, :STAMP].view(np.uint64)
        self.vectors = (IoVec * BATCH)()
        self.headers = (MsgHdr * BATCH)()
        for place in range(BATCH):
            self.vectors[place] = IoVec(self.buffer[place].ctypes.data, length)
            self.headers[place].iov = ctypes.pointer(self.vectors[place])
            self.headers[place].iov_count = 1

    def send(self, link: socket.socket, count: int) -> int:
        """Sends the first `count` datagrams; returns the number sent."""
        return max(int(LIBC.sendmmsg(link.fileno(), self.headers, count, 0)), 0)

    def receive(self, link: socket.socket) -> int:
        """Receives at least one datagram; returns their number, 0 at the socket's timeout."""
        return max(int(LIBC.recvmmsg(link.fileno(), self.headers, BATCH, WAIT_FOR_ONE, None)), 0)


def send(port: int, length: int, rate: float, seconds: float, bursts_hz: float = 0) -> None:
    """Sends numbered datagrams at a rate, evenly or in `bursts_hz` bursts per second."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect(("127.0.0.1", port))
    batch = Batch(length)
    total, sent = int(rate * seconds), 0
    numbers = np.arange(BATCH, dtype=np.uint64)
    began = time.monotonic_ns()
    while sent < total:
        elapsed_s = (time.monotonic_ns() - began) / 1e9
        due = int((int(elapsed_s * bursts_hz) + 1) * rate / bursts_hz) if bursts_hz else int(elapsed_s * rate) + 1
        count = min(due - sent, total - sent, BATCH)
        if count <= 0:
            time.sleep(max(1 / (bursts_hz or rate) - 6e-5, 5e-5) / (10 if bursts_hz else 1))
            continue
        batch.stamps[:count, 0] = numbers[:count] + np.uint64(sent)
        batch.stamps[:count, 1] = time.monotonic_ns()
        sent += batch.send(link, count)
    print(json.dumps({"sent": sent, "seconds": (time.monotonic_ns() - began) / 1e9}))


def receive(port: int, idle_s: float) -> None:
    """Receives until nothing arrives for `idle_s`; prints the number, the duration and the delays."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    link.bind(("127.0.0.1", port))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, np.array([10, 0], dtype=np.int64).tobytes())
    batch = Batch(SLOT)
    print("ready", flush=True)
    count = length = 0
    first = last = 0
    delays: list[np.ndarray] = []
    while taken := batch.receive(link):
        now = time.monotonic_ns()
        if not count:
            first = now
            short = np.array([int(idle_s), int(idle_s % 1 * 1e6)], dtype=np.int64)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, short.tobytes())
        last, count = now, count + taken
        length = int(batch.headers[0].sent)
        if count < 100_000:
            delays.append(now - batch.stamps[:taken, 1].astype(np.int64))
    all_us = np.concatenate(delays) / 1e3 if delays else np.array([np.nan])
    p50, p99 = np.quantile(all_us, [0.5, 0.99])
    seconds = max((last - first) / 1e9, 1e-9)
    print(json.dumps({"received": count, "seconds": seconds, "bytes": length, "p50_us": p50, "p99_us": p99}))


def echo(port: int, back: int) -> None:
    """Sends every datagram back, to a port or to its sender."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind(("127.0.0.1", port))
    print("ready", flush=True)
    while True:
        data, sender = link.recvfrom(SLOT)
        link.sendto(data, ("127.0.0.1", back) if back else sender)


def relay(port: int, to: int) -> None:
    """Forwards datagrams, and forwards answers to the sender of the last datagram."""
    near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    near.bind(("127.0.0.1", port))
    far = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    far.connect(("127.0.0.1", to))
    waiting = select.epoll()
    for link in (near, far):
        waiting.register(link.fileno(), select.EPOLLIN)
    data, sender = bytearray(SLOT), ("127.0.0.1", 0)
    print("ready", flush=True)
    while True:
        for ready, _ in waiting.poll():
            if ready == near.fileno():
                length, sender = near.recvfrom_into(data)
                far.send(memoryview(data)[:length])
            else:
                near.sendto(memoryview(data)[: far.recv_into(data)], sender)


def ping(port: int, length: int, count: int, pause_s: float) -> None:
    """Prints the round-trip times of datagrams, each sent `pause_s` after the previous answer."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.settimeout(1)
    link.connect(("127.0.0.1", port))
    times_us = []
    for number in range(count):
        data = number.to_bytes(8, "little").ljust(length, b"p")
        began = time.perf_counter_ns()
        link.send(data)
        with contextlib.suppress(TimeoutError):
            while link.recv(SLOT) != data:
                pass
            times_us.append((time.perf_counter_ns() - began) / 1e3)
        if pause_s:
            time.sleep(pause_s)
    p50, p99 = np.quantile(times_us[count // 10 :], [0.5, 0.99])
    print(json.dumps({"p50_us": p50, "p99_us": p99, "answered": len(times_us)}))


def myself(*arguments: object) -> subprocess.Popen[bytes]:
    """Starts another part of this file in a child process."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return Node().start(command, stdout=subprocess.PIPE, stderr=None, first=True)


@contextlib.contextmanager
def serving(*arguments: object) -> Iterator[None]:
    """Runs another part of this file while the block is active."""
    server = myself(*arguments)
    assert server.stdout is not None
    server.stdout.readline()
    try:
        yield
    finally:
        server.kill()
        server.wait()


def round_trip_us(to: int, answers: int, back: int, count: int, pause_s: float) -> tuple[float, float]:
    """Returns median and 99th percentile of round trips over an echo, each as the median of three runs."""
    with serving("--echo", answers, back):
        answer = [json.loads(myself("--ping", to, 200, count, pause_s).communicate()[0]) for _ in range(3)]
    return float(np.median([one["p50_us"] for one in answer])), float(np.median([one["p99_us"] for one in answer]))


@dataclass(frozen=True)
class Seen:
    """Result of a load."""

    sent: int
    received: int
    seconds: float
    length: int
    p50_us: float
    p99_us: float

    @property
    def rate(self) -> float:
        """Received datagrams per second."""
        return (self.received - 1) / self.seconds if self.received > 1 else 0.0


def load(into: int, out: int, length: int, rate: float, seconds: float) -> Seen:
    """Sends to one port and receives at another, in two child processes."""
    receiver = myself("--receive", out)
    assert receiver.stdout is not None
    receiver.stdout.readline()
    sender = myself("--send", into, length, rate, seconds, 0)
    answer = json.loads(sender.communicate()[0])
    seen = json.loads(receiver.stdout.read())
    receiver.wait()
    return Seen(answer["sent"], seen["received"], seen["seconds"], length, seen["p50_us"], seen["p99_us"])


def free(count: int) -> list[int]:
    """Returns free ports."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


@contextlib.contextmanager
def pair(paths: int) -> Iterator[tuple[Daemon, Daemon, dict[str, tuple[int, int, int]]]]:
    """Runs two gateways over loopback.

    Yields, by class, the ports into the aircraft's gateway, out of the ground's and back.
    """
    program = binary()
    assert program is not None, "found no skybraid-node: make node, or name it by SKYBRAID_NODE"
    names = ("control", "telemetry", "video")
    air, ground_page, wan, *rest = free(3 + 3 * len(names))
    ports = {name: (rest[3 * at], rest[3 * at + 1], rest[3 * at + 2]) for at, name in enumerate(names)}
    addresses = {f"p{at}": {"remote": f"127.0.0.1:{wan}", "address": f"127.0.0.{at + 2}"} for at in range(paths)}
    inward = {name: {"listen": f"127.0.0.1:{into}", "class": name} for name, (into, _, _) in ports.items()}
    outward = {
        name: {"send_to": f"127.0.0.1:{out}", "listen": f"127.0.0.1:{back}", "class": name}
        for name, (_, out, back) in ports.items()
    }
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder:
        here = Node()
        aircraft, ground = configure_pair(
            program,
            Path(folder),
            (here, here),
            addresses,
            common={"class": {name: {"congestion": "cubic", "queue": QUEUE} for name in ("telemetry", "video")}},
            aircraft={"udp": inward},
            ground={"udp": outward},
            status_ports=(air, ground_page),
        )
        try:
            ground.start()
            aircraft.start()
            aircraft.until_linked(paths)
            time.sleep(1.5)
            yield aircraft, ground, ports
        finally:
            aircraft.stop()
            ground.stop()


def most(
    into: int, out: int, length: int, rates: list[float], seconds: float, share: float
) -> tuple[float, Seen | None]:
    """Finds the highest of the rates at which `share` of the datagrams arrives.

    Returns the received rate and the load.
    """
    best: Seen | None = None
    for rate in rates:
        seen = load(into, out, length, rate, seconds)
        print(f"    {rate:9,.0f} a second offered: {seen.received / seen.sent:8.3%} arrived, {seen.rate:,.0f} a second")
        if seen.received < share * seen.sent:
            break
        best = seen
        if seen.rate < 0.93 * rate:
            break
    return (best.rate if best else 0.0), best


def main() -> None:
    """Measures and prints all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure")
    parser.add_argument("--send", nargs=5, type=float, help=argparse.SUPPRESS)
    parser.add_argument("--receive", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--echo", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--relay", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ping", nargs=4, type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        port, length, rate, seconds, bursts_hz = given.send
        send(int(port), int(length), rate, seconds, bursts_hz)
        return
    if given.echo:
        echo(*given.echo)
    if given.relay:
        relay(*given.relay)
    if given.ping:
        port, length, count, pause_s = given.ping
        ping(int(port), int(length), int(count), pause_s)
        return
    if given.receive:
        receive(given.receive, 0.7)
        return
    sys.exit(0 if measure(given.paths, 1.0 if given.quick else 3.0, given.parts) else 1)


def measure(paths: int, seconds: float, parts: list[str]) -> bool:
    """Measures the requested parts; returns whether every goal is met."""
    version = subprocess.run([str(binary()), "--version"], capture_output=True, text=True, check=False).stdout.strip()
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}"
    print(f"{version} over {paths} loopback path{'s' * (paths > 1)}; {machine}")
    met = [part(paths, seconds) for name, part in PARTS.items() if name in parts]
    return all(met)


def delays(paths: int, seconds: float) -> bool:
    """Measures round trips over a bare socket, two relays and two gateways.

    Returns whether gateways add no more than relays.
    """
    met = []
    bare, first, second = free(3)
    paces = {"every millisecond": (0.001, int(1000 * seconds)), "back to back": (0.0, int(10_000 * seconds))}
    with pair(paths) as (_, _, ports):
        for pace, (pause_s, count) in paces.items():
            alone = round_trip_us(bare, bare, 0, count, pause_s)
            with serving("--relay", first, second), serving("--relay", second, bare):
                relayed = round_trip_us(first, bare, 0, count, pause_s)
            print(f"  200 B {pace}, p50 and p99 of half of the round trip: {shown_us(alone)} over a bare socket")
            print(f"    {shown_us(relayed)} over two relays")
            for name in ("control", "telemetry"):
                found = round_trip_us(*ports[name], count, pause_s)
                ratio, goal = found[0] / relayed[0], ""
                if name == "control":
                    met.append(ratio <= GOALS["delay"])
                    goal = f" (goal: {GOALS['delay']:.2f})"
                print(f"    {shown_us(found)} as {name}: p50 {ratio:.2f} times two relays{goal}")
    return all(met)


def shown_us(round_trip: tuple[float, float]) -> str:
    """Formats half of the median and of the 99th percentile."""
    return f"{round_trip[0] / 2:.1f}, {round_trip[1] / 2:.1f} µs"


def messages(paths: int, seconds: float) -> bool:
    """Measures the maximum rate of control and telemetry.

    Returns whether control reaches its share of a bare socket's rate.
    """
    (bare,) = free(1)
    print("  messages of 200 B over a bare socket:")
    alone, _ = most(bare, bare, 200, [50e3, *range(100_000, 400_000, 50_000)], seconds, 0.9999)
    print(f"  most without loss: {alone:,.0f} a second")
    share = {}
    with pair(paths) as (_, _, ports):
        for name in ("control", "telemetry"):
            # Windows of MP-DCCP grow from ten packets, and the queue does not hold what waits for that.
            enough = 1.0 if name == "control" else 0.999
            rate, _ = most(*ports[name][:2], 200, [20e3, *range(40_000, 200_000, 10_000)], seconds, enough)
            share[name] = rate / max(alone, 1)
            goal = f" (goal: {GOALS['messages']:.2f})" if name == "control" else ""
            print(f"  {name}: {rate:,.0f} a second, {share[name]:.2f} of a bare socket{goal}")
    return share["control"] >= GOALS["messages"]


def video(paths: int, seconds: float) -> bool:
    """Measures the maximum rate of video; returns whether it reaches its share of a bare socket's rate."""
    (bare,) = free(1)
    rates = [rate * 1e6 / 8 / 1200 for rate in (100, *range(300, 1500, 75), *range(1500, 3000, 250))]
    print("  datagrams of 1200 B over a bare socket:")
    alone, _ = most(bare, bare, 1200, rates[:3] + rates[3::3], seconds, 0.9999)
    print(f"  most without loss: {alone * 9600 / 1e6:,.0f} Mbit/s")
    with pair(paths) as (_, _, ports):
        rate, _ = most(*ports["video"][:2], 1200, rates, seconds, 0.999)
    share = rate / max(alone, 1)
    print(f"  video: {rate * 9600 / 1e6:,.0f} Mbit/s, {share:.2f} of a bare socket (goal: {GOALS['video']:.2f})")
    return share >= GOALS["video"]


def cost(paths: int, seconds: float) -> bool:
    """Measures the gateways' share of a core; returns whether it meets the goal with 50 control messages per second."""
    in_all = {}
    with pair(paths) as (aircraft, ground, ports):
        for control in (1000, 50):
            used = cpu(aircraft, ground, ports, max(seconds * 2, 4), control)
            in_all[control] = sum(used.values())
            shown = ", ".join(f"{name} {share:.1%}" for name, share in used.items())
            goal = f" (goal: under {GOALS['cpu']:.0%})" if control == 50 else ""
            print(
                f"  CPU at 10 Mbit/s of video in {FRAMES_HZ} frames and {control} control messages of 125 B a second: "
                f"{shown} of a core, {in_all[control]:.1%} in all{goal}"
            )
    return in_all[50] < GOALS["cpu"]


def tcp(_: int, seconds: float) -> bool:
    """Measures TCP through TUN interfaces; returns whether gateways carry more than per-packet forwarders."""
    return tunnel.measure(seconds, GOALS["tcp"])


PARTS = {"delays": delays, "messages": messages, "video": video, "cpu": cost, "tcp": tcp}


def cpu(
    aircraft: Daemon, ground: Daemon, ports: dict[str, tuple[int, int, int]], seconds: float, control: float
) -> dict[str, float]:
    """Returns each gateway's share of a core at 10 Mbit/s of video and `control` messages per second."""
    loads = {"video": (1200, 10e6 / 9600, FRAMES_HZ), "control": (125, control, 0)}
    receivers = [myself("--receive", ports[name][1]) for name in loads]
    time.sleep(0.5)
    senders = [
        myself("--send", ports[name][0], length, rate, seconds + 2, bursts_hz)
        for name, (length, rate, bursts_hz) in loads.items()
    ]
    time.sleep(1)
    before, began = {one.file.stem: one.cpu_s() for one in (aircraft, ground)}, time.monotonic()
    time.sleep(seconds)
    after, took_s = {one.file.stem: one.cpu_s() for one in (aircraft, ground)}, time.monotonic() - began
    for one in (*senders, *receivers):
        one.send_signal(signal.SIGKILL)
        one.wait()
    return {name: (after[name] - before[name]) / took_s for name in before}


if __name__ == "__main__":
    main()

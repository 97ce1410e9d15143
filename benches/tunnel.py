"""TCP through the TUN interfaces of two gateways, compared with two bare forwarders.

    python benches/tunnel.py [--seconds 3]

Two network namespaces with a veth pair between them; needs root. A forwarder passes each packet of its TUN interface on
as a UDP datagram, and each datagram back, one system call for each: no offloads, no seals, nothing else. Both tunnels
have the same MTU, and are measured in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from skybraid.gateway import Node, binary, configure_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

MTU = 1280
"""Of the TUN interfaces of both tunnels, which is what gateways have by default."""

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
TURNS = 3
CHUNK = 256 << 10
BURST = 64
PORT, WIRE_PORT, FORWARDED_PORT = 5001, 9417, 9418
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def forward(near: str, far: str, address: str) -> None:
    """Forwards packets between a TUN interface and a UDP socket, one by one."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"bare0", IFF_TUN | IFF_NO_PI))
    for words in (f"addr add {address}/24 dev bare0", f"link set bare0 mtu {MTU} up"):
        subprocess.run(["ip", *words.split()], check=True)
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for forced in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
        link.setsockopt(socket.SOL_SOCKET, forced, 16 << 20)
    link.bind((near, FORWARDED_PORT))
    link.connect((far, FORWARDED_PORT))
    link.setblocking(False)
    waiting = select.epoll()
    waiting.register(tun, select.EPOLLIN)
    waiting.register(link.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    while True:
        for ready, _ in waiting.poll():
            with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
                for _ in range(BURST):
                    if ready == tun:
                        link.send(os.read(tun, 2048))
                    else:
                        os.write(tun, link.recv(2048))


def sink(address: str) -> None:
    """Accepts connections and prints the goodput of each in bit/s."""
    listener = socket.create_server((address, PORT))
    print("ready", flush=True)
    room = bytearray(CHUNK)
    while True:
        link, _ = listener.accept()
        taken, began, last = 0, 0.0, 0.0
        while length := link.recv_into(room):
            # Slow start is not what is measured.
            last = time.monotonic()
            began = began or last
            taken += length if last - began > 0.5 else 0
        print(8 * taken / max(last - began - 0.5, 1e-9), flush=True)


def pour(address: str, seconds: float) -> None:
    """Writes to a connection as fast as it accepts data."""
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    link.connect((address, PORT))
    chunk, until = bytes(CHUNK), time.monotonic() + seconds
    while time.monotonic() < until:
        link.sendall(chunk)


def myself(node: Node, *arguments: object) -> subprocess.Popen[bytes]:
    """Starts another part of this file in a child process."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return node.start(command, stdout=subprocess.PIPE, stderr=None, first=True)


def line(process: subprocess.Popen[bytes]) -> str:
    """Returns the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@contextlib.contextmanager
def namespaces() -> Iterator[tuple[Node, Node]]:
    """Creates two network namespaces with a veth pair between them: 10.9.0.1 and 10.9.0.2."""
    with contextlib.ExitStack() as stack:
        holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        for holder in holders:
            stack.callback(holder.wait)
            stack.callback(holder.kill)
        mine = Path("/proc/self/ns/net").readlink()
        while any(Path(f"/proc/{holder.pid}/ns/net").readlink() == mine for holder in holders):
            time.sleep(0.01)
        nodes = [Node(f"/proc/{holder.pid}/ns/net") for holder in holders]
        for node in nodes:
            stack.callback(node.close)
        nodes[0].run("ip", *f"link add wire type veth peer name wire netns {holders[1].pid}".split())
        for last, node in enumerate(nodes, start=1):
            for words in ("link set lo up", f"addr add 10.9.0.{last}/24 dev wire", "link set wire up"):
                node.run("ip", *words.split())
        yield nodes[0], nodes[1]


def goodput_bps(nodes: tuple[Node, Node], address: str, seconds: float) -> float:
    """Returns the goodput of a connection from the first node to an address of the second."""
    taker = myself(nodes[1], "--sink", address)
    try:
        line(taker)
        myself(nodes[0], "--pour", address, seconds + 0.5).wait()
        return float(line(taker))
    finally:
        taker.kill()
        taker.wait()


def measure(seconds: float, goal: float) -> bool:
    """Prints both goodputs and their ratio; returns whether the ratio meets the goal."""
    if os.geteuid() != 0:
        print("  TCP through TUN interfaces: not measured, since it takes root")
        return True
    program = binary()
    assert program is not None, "found no skybraid-node: make node, or name it by SKYBRAID_NODE"
    addresses = {"bare forwarders": "10.78.0.2", "gateways": "10.77.0.2"}
    found: dict[str, list[float]] = {name: [] for name in addresses}
    with namespaces() as nodes, tempfile.TemporaryDirectory(prefix="tunnel-bench-") as folder:
        forwarders = [
            myself(node, "--forward", f"10.9.0.{last}", f"10.9.0.{3 - last}", f"10.78.0.{last}")
            for last, node in enumerate(nodes, start=1)
        ]
        aircraft, ground = configure_pair(
            program,
            Path(folder),
            nodes,
            {"wire": {"interface": "wire", "remote": f"10.9.0.2:{WIRE_PORT}"}},
            common={"class": {"bulk": {"congestion": "cubic", "queue": 4000}}},
            aircraft={"tun": {"address": "10.77.0.1/24", "mtu": f"{MTU}B"}},
            ground={"tun": {"address": "10.77.0.2/24", "mtu": f"{MTU}B"}},
        )
        try:
            for forwarder in forwarders:
                line(forwarder)
            ground.start()
            aircraft.start()
            aircraft.until_linked(1)
            time.sleep(2)
            for _ in range(TURNS):
                for name, address in addresses.items():
                    found[name].append(goodput_bps(nodes, address, seconds))
        finally:
            aircraft.stop()
            ground.stop()
            for forwarder in forwarders:
                forwarder.send_signal(signal.SIGKILL)
                forwarder.wait()
    for name, rates in found.items():
        print(f"  TCP through two {name} over veth: {', '.join(f'{rate / 1e6:,.0f}' for rate in rates)} Mbit/s")
    bare, gateways = (float(np.median(rates)) for rates in found.values())
    print(f"  gateways carry {gateways / bare:.2f} times what bare forwarders do (goal: {goal:.1f})")
    return gateways >= goal * bare


def main() -> None:
    """Measures and prints, or runs another part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--forward", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--sink", help=argparse.SUPPRESS)
    parser.add_argument("--pour", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.forward:
        forward(*given.forward)
    if given.sink:
        sink(given.sink)
    if given.pour:
        pour(given.pour[0], float(given.pour[1]))
        return
    sys.exit(0 if measure(given.seconds, 1.7) else 1)


if __name__ == "__main__":
    main()

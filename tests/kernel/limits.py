"""The emulator's limits, after Chavali (2022), figures 4.6 to 4.8.

4.6: UDP over a link of 50 Mbit/s with 20 Mbit/s more offered keeps the rate from the first second on. 4.7: round-trip
times of 10 to 60 ms, measured minus configured, beside the machine's own over loopback. 4.8: the two directions of a
link do not touch one another, over UDP and over TCP. `make kernel` runs it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import skybraid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Line = tuple[str, bool]

UDP = '{ protocol = "udp", paths = ["link"] }'
TCP = '{ protocol = "tcp", congestion = "cubic", stack = "kernel", paths = ["link"] }'

HEADERS = 1472 / 1500
"""Share of an IP packet of 1500 bytes that a datagram carries."""


def emulated(text: str, tables: list[str]) -> skybraid.Results:
    """Emulates a scenario's text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "limits.toml"
        file.write_text(text, encoding="utf-8")
        return skybraid.emulate(file, tables=tables)


def duplex(seconds: int, rates_mbps: tuple[float, float], offered_mbps: tuple[float, float], transport: str) -> str:
    """Emulates a link with a rate and a flow for each direction, uplink first."""
    packet = "1472B" if transport == UDP else "1400B"
    flows = "".join(
        f'[flow.{name}]\nfrom = "{host}"\ntransport = {transport}\n'
        f'traffic = {{ kind = "cbr", rate = "{offered}Mbit/s", packet = "{packet}" }}\n'
        for name, host, offered in zip(("up", "down"), ("vehicle", "ground"), offered_mbps, strict=True)
    )
    return (
        f'duration = "{seconds}s"\n[path.link]\nuplink.rate = "{rates_mbps[0]}Mbit/s"\n'
        f'downlink.rate = "{rates_mbps[1]}Mbit/s"\nuplink.delay = "10ms"\ndownlink.delay = "10ms"\n{flows}'
    )


def by_second(results: skybraid.Results, direction: str, seconds: int) -> NDArray[np.float64]:
    """Returns the rate of delivered IP packets in Mbit/s, for each second."""
    rows = results.tables["links"].filter(pl.col("direction") == direction)
    second = ((rows["time_ns"] - 1) // 1_000_000_000).to_numpy().clip(0, seconds - 1)
    megabits = np.zeros(seconds)
    np.add.at(megabits, second, rows["delivered_bytes"].to_numpy() * 8e-6)
    return megabits


def warm_up() -> Iterator[Line]:
    """Figure 4.6."""
    seconds = 10
    results = emulated(duplex(seconds, (50, 50), (70, 1), UDP), ["links"])
    rates = by_second(results, "uplink", seconds)
    # The first packets take 10 ms to arrive.
    expected = np.r_[50 * 0.99, np.full(seconds - 1, 50.0)]
    near = np.abs(rates / expected - 1) <= 0.002
    later = f"{rates[1:].min():.3f} to {rates[1:].max():.3f}"
    yield f"4.6  UDP, 50 Mbit/s: {rates[0]:.3f} Mbit/s in the first second, then {later}", bool(near.all())


def loopback_ms(count: int = 300) -> float:
    """Returns the median round-trip time in ms of datagrams between two processes over loopback, one every 10 ms."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
    ):
        echo.bind(("127.0.0.1", 0))
        probe.connect(echo.getsockname())
        child = os.fork()
        while child == 0:
            echo.sendto(*echo.recvfrom(64))
        trips_ms = []
        try:
            for _ in range(count):
                time.sleep(0.01)
                sent = time.monotonic()
                probe.send(bytes(64))
                probe.recv(64)
                trips_ms.append((time.monotonic() - sent) * 1e3)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return float(np.median(trips_ms))


def round_trips() -> Iterator[Line]:
    """Figure 4.7: an emulated round trip takes at most 0.1 ms more than its delays and the machine's own round trip.

    The flows begin at different parts of 10 ms, so that their frames are not due together.
    """
    floor_ms = loopback_ms()
    spans = range(10, 61, 5)
    paths = "".join(
        f'[path.p{span}]\nuplink.rate = "1Gbit/s"\ndownlink.rate = "1Gbit/s"\n'
        f'uplink.delay = "{span / 2}ms"\ndownlink.delay = "{span / 2}ms"\n'
        f'[flow.f{span}]\nfrom = "vehicle"\nstart = "{10 * span / 55:.2f}ms"\n'
        f'traffic = {{ kind = "ping", every = "10ms" }}\n'
        f'transport = {{ protocol = "udp", paths = ["p{span}"] }}\n'
        for span in spans
    )
    results = emulated(f'duration = "3.1s"\n{paths}', ["messages"])
    rows = results.tables["messages"].filter(pl.col("delivered_ns").is_not_null())
    for span in spans:
        answers = rows.filter(pl.col("flow") == f"f{span}.answer")
        over_ms = (answers["delivered_ns"] - answers["sent_ns"]).to_numpy() / 1e6 - span
        middle, high = np.median(over_ms), np.quantile(over_ms, 0.99)
        trips = f"{len(over_ms)} pings, median {middle:+.3f} ms, p99 {high:+.3f} ms; {floor_ms:.3f} ms over loopback"
        yield (
            f"4.7  round trip of {span} ms: {trips}",
            bool(middle <= floor_ms + 0.1 and over_ms.min() >= -0.04),
        )


def apart(transport: str, figure: str) -> Iterator[Line]:
    """Figure 4.8: the downlink keeps what it has, whatever the uplink carries."""
    seconds = 4
    rates = (10, 40, 70, 100) if transport == UDP else (30, 60, 90, 120)
    for rate in rates:
        down = 60 if transport == UDP else 20
        results = emulated(duplex(seconds, (rate, 40), (rate + 20, down), transport), [])
        flows = results.flows
        up_mbps, down_mbps = (flows[name].goodput_bps / 1e6 for name in ("up", "down"))
        limit = rate * HEADERS if transport == UDP else rate * 0.92
        kept = 40 * HEADERS if transport == UDP else 20
        # Slow start and the way through the queue take their share of 4 s.
        near = 0.02 if transport == UDP else 0.12
        yield (
            f"{figure} {rate} Mbit/s up: {up_mbps:.2f} of {limit:.2f} up, {down_mbps:.2f} of {kept:.2f} Mbit/s down",
            abs(up_mbps / limit - 1) <= near and abs(down_mbps / kept - 1) <= 0.02,
        )


def main() -> int:
    """Prints one line per measurement. Exit code: 0 all hold, 1 not."""
    failed = 0
    for lines in (warm_up(), round_trips(), apart(UDP, "4.8a UDP,"), apart(TCP, "4.8b TCP,")):
        for text, holds in lines:
            failed += not holds
            sys.stdout.write(f"{text}  {'holds' if holds else 'DOES NOT HOLD'}\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

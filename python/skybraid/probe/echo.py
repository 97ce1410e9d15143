"""UDP echo: server and client."""

import asyncio
import secrets
import socket
import struct
import time
from typing import cast

from skybraid.probe.measure import Address, ProbeError, RefusedError, Row, addresses, explained_errors, format_address

_HEAD = struct.Struct("!4sIQ")
_MARK = b"SKYP"

MIN_BYTES = _HEAD.size
"""Minimum size of an echo in bytes: a mark, a number and a random id of the client."""

MAX_BYTES = 65_507


class Echo(asyncio.DatagramProtocol):
    """Echo server: returns every datagram to its sender."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        """Sends the datagram back to its sender."""
        self._transport.sendto(data, addr)


class _Asker(asyncio.DatagramProtocol):
    """Echo client: records send and return times in s of the monotonic clock."""

    def __init__(self, count: int) -> None:
        self.series = secrets.randbits(64)
        self.sent: list[float] = []
        self.back: list[float | None] = [None] * count
        self.answered = 0
        self.done = asyncio.Event()
        self.error: OSError | None = None

    def datagram_received(self, data: bytes, addr: object) -> None:  # noqa: ARG002 the interface of asyncio
        now = time.perf_counter()
        if len(data) < MIN_BYTES:
            return
        mark, number, series = _HEAD.unpack_from(data)
        if mark == _MARK and series == self.series and number < len(self.back) and self.back[number] is None:
            self.back[number] = now
            self.answered += 1
            if self.answered == len(self.back):
                self.done.set()

    def error_received(self, exc: Exception) -> None:
        # Refused by the other end (ICMP); after earlier replies, the server has just ended.
        if isinstance(exc, OSError):
            self.error = exc
        if not self.answered:
            self.done.set()


async def ping(run: int, host: str, port: int, *, every_s: float, count: int, size: int, timeout_s: float) -> list[Row]:
    """Sends `count` datagrams of `size` bytes, one per `every_s`; returns one row each, `rtt_ms` None if lost.

    After the last datagram, replies are awaited for `timeout_s`.

    Raises:
        ProbeError: the server refused, is unreachable, or returned no datagram.
    """
    failure: ProbeError | None = None
    for where in await addresses(host, port, socket.SOCK_DGRAM):
        try:
            return await _ping(run, where, every_s=every_s, count=count, size=size, timeout_s=timeout_s)
        except RefusedError as error:
            failure = error
    raise failure or ProbeError(f"{host}: no address")


async def _ping(run: int, where: Address, *, every_s: float, count: int, size: int, timeout_s: float) -> list[Row]:
    loop = asyncio.get_running_loop()
    family, address = where
    name = format_address("udp", address)
    with explained_errors(name, timeout_s):
        transport, asker = await loop.create_datagram_endpoint(
            lambda: _Asker(count), family=family, remote_addr=address[:2]
        )
        try:
            began = time.perf_counter()
            for number in range(count):
                if (early_s := began + number * every_s - time.perf_counter()) > 0:
                    await asyncio.sleep(early_s)
                if asker.error and not asker.answered:
                    raise asker.error
                asker.sent.append(time.perf_counter())
                transport.sendto(_HEAD.pack(_MARK, number, asker.series).ljust(size, b"\0"))
            try:
                async with asyncio.timeout(timeout_s):
                    await asker.done.wait()
            except TimeoutError:
                if not asker.answered:
                    raise
            if asker.error and not asker.answered:
                raise asker.error
        finally:
            transport.close()
    return [
        {
            "run": run,
            "number": number + 1,
            "sent_s": round(sent - began, 6),
            "rtt_ms": None if back is None else round((back - sent) * 1e3, 3),
        }
        for number, (sent, back) in enumerate(zip(asker.sent, asker.back, strict=True))
    ]

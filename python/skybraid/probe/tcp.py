"""Connection establishment and web pages over TCP and Multipath TCP."""

import asyncio
import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

from skybraid.probe.measure import Address, ProbeError, Row, addresses, explained_errors, format_address, mbps, ms
from skybraid.probe.site import Place, objects_of

MPTCP = getattr(socket, "IPPROTO_MPTCP", 262)

# From linux/mptcp.h: level and option of getsockopt, and the flag of a fallback to TCP.
_SOL_MPTCP, _MPTCP_INFO, _FALLBACK = 284, 1, 1
_INFO_BYTES = 12

_CHUNK = 1 << 16
_BUFFER = 1 << 20


@dataclass(slots=True)
class Connection:
    """Open connection and the duration of its establishment."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    socket: socket.socket
    connect_ms: float
    name: str

    def subflows(self) -> int:
        """Returns the number of subflows; 0 for plain TCP or after fallback."""
        if self.socket.proto != MPTCP:
            return 0
        try:
            info = self.socket.getsockopt(_SOL_MPTCP, _MPTCP_INFO, _INFO_BYTES)
        except OSError:
            return 0
        flags = int.from_bytes(info[8:12], sys.byteorder)
        return 0 if flags & _FALLBACK else info[0] + 1

    async def close(self) -> None:
        """Closes the connection, ignoring errors."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            return


@dataclass(frozen=True, slots=True)
class Answer:
    """Response: times of its first and last byte (s, monotonic clock), its size and, if HTML, its text."""

    first_s: float
    last_s: float
    size: int
    page: str = ""


def new_socket(family: socket.AddressFamily, *, mptcp: bool) -> socket.socket:
    """Creates a non-blocking TCP or MPTCP socket with TCP_NODELAY.

    Raises:
        ProbeError: MPTCP is requested and the kernel lacks it.
    """
    try:
        made = socket.socket(family, socket.SOCK_STREAM, MPTCP if mptcp else socket.IPPROTO_TCP)
    except OSError as error:
        if mptcp and error.errno in (errno.EPROTONOSUPPORT, errno.EINVAL, errno.ENOPROTOOPT):
            raise ProbeError(
                "--mptcp: found a kernel without MPTCP, expected CONFIG_MPTCP and net.mptcp.enabled=1; "
                "`skybraid doctor` says more"
            ) from error
        raise
    made.setblocking(False)
    return made


async def connect(target: Address, *, mptcp: bool, timeout_s: float) -> Connection:
    """Opens a connection.

    Raises:
        ProbeError: the server refused, is unreachable or does not answer.
    """
    family, address = target
    name = format_address("mptcp" if mptcp else "tcp", address)
    with explained_errors(name, timeout_s):
        opened = new_socket(family, mptcp=mptcp)
        try:
            async with asyncio.timeout(timeout_s):
                began = time.perf_counter()
                await _established(opened, address)
                took_ms = ms(began, time.perf_counter())
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                reader, writer = await asyncio.open_connection(sock=opened, limit=_BUFFER)
        except BaseException:
            opened.close()
            raise
    return Connection(reader, writer, opened, took_ms, name)


async def _established(opened: socket.socket, address: tuple[Any, ...]) -> None:
    """Waits for the handshake. asyncio's own method resolves the address again, which fails for MPTCP."""
    with contextlib.suppress(BlockingIOError):
        opened.connect(address)
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(opened, writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(opened)
    if error := opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))


async def connect_to(host: str, port: int, *, mptcp: bool, timeout_s: float) -> tuple[Connection, Address]:
    """Opens a connection to the first address of a host that accepts it; returns both.

    Raises:
        ProbeError: no address accepts; the message has the error of each.
    """
    failures: list[ProbeError] = []
    for where in await addresses(host, port, socket.SOCK_STREAM):
        try:
            return await connect(where, mptcp=mptcp, timeout_s=timeout_s), where
        except ProbeError as error:
            failures.append(error)
    if len({type(failure) for failure in failures}) == 1:
        raise type(failures[0])("; ".join(str(failure) for failure in failures))
    raise ProbeError("; ".join(str(failure) for failure in failures))


async def establish(run: int, host: str, port: int, *, mptcp: bool, timeout_s: float) -> list[Row]:
    """Returns one row with the establishment time of a connection.

    Raises:
        ProbeError: the connection fails.
    """
    connection, _ = await connect_to(host, port, mptcp=mptcp, timeout_s=timeout_s)
    protocol = "mptcp" if connection.subflows() else "tcp"
    await connection.close()
    return [{"run": run, "connect_ms": connection.connect_ms, "protocol": protocol}]


async def load(run: int, place: Place, *, parallel: int, mptcp: bool, timeout_s: float) -> list[Row]:
    """Returns one row with the times of a page: connection, first byte, and the last byte of its last object.

    Objects are fetched like in a browser, over up to `parallel` persistent connections, including that of the page. All
    times count from the start of the first connection's establishment.

    Raises:
        ProbeError: the page or one of its objects is unavailable, or does not arrive within `timeout_s`.
    """
    first, where = await connect_to(place.host, place.port, mptcp=mptcp, timeout_s=timeout_s)
    began = time.perf_counter() - first.connect_ms / 1e3
    opened = [first]
    with explained_errors(place.url, timeout_s):
        try:
            async with asyncio.timeout(timeout_s):
                page = await fetch(first, place.authority, place.target)
                waiting = objects_of(page.page, place.url)
                answers = [page]
                count = len(waiting)
                waiting.reverse()

                async def work(connection: Connection | None) -> None:
                    while waiting:
                        if connection is None:
                            connection = await connect(where, mptcp=mptcp, timeout_s=timeout_s)
                            opened.append(connection)
                            continue
                        answers.append(await fetch(connection, place.authority, waiting.pop()))

                workers = [first, *[None] * (min(parallel, count) - 1)] if count else []
                await _all(work(connection) for connection in workers)
                subflows = first.subflows()
        finally:
            for connection in opened:
                await connection.close()
    last_s = max(answer.last_s for answer in answers)
    size = sum(answer.size for answer in answers)
    return [
        {
            "run": run,
            "connect_ms": first.connect_ms,
            "ttfb_ms": ms(began, page.first_s),
            "page_ms": ms(began, last_s),
            "goodput_mbps": mbps(size, last_s - began),
            "objects": count,
            "bytes": size,
            "connections": len(opened),
            "protocol": "mptcp" if subflows else "tcp",
            "subflows": max(1, subflows),
        }
    ]


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs all concurrently; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def fetch(connection: Connection, authority: str, target: str) -> Answer:
    """Sends one GET over HTTP/1.1; returns its response.

    Raises:
        ProbeError: the status is not 200, or the response is not HTTP.
        EOFError, OSError: the connection ended.
    """
    request = f"GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: skybraid\r\nAccept: */*\r\n\r\n"
    connection.writer.write(request.encode("ascii", "replace"))
    reader = connection.reader
    head = await reader.readexactly(1)
    first_s = time.perf_counter()
    head += await reader.readuntil(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    version, _, words = status.partition(" ")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if not version.startswith("HTTP/1."):
        raise ProbeError(f"{connection.name}: found {status[:40]!r}, expected an answer of HTTP/1.1")
    is_page = fields.get("content-type", "").startswith("text/")
    size, text = await _body(reader, fields, keep=is_page)
    if not words.startswith("200"):
        more = f" ({text.strip()[:200]})" if text else f" to {fields['location']}" if "location" in fields else ""
        raise ProbeError(f"{connection.name}: {target}: answered {words}{more}, expected 200")
    return Answer(first_s, time.perf_counter(), size, text)


async def _body(reader: asyncio.StreamReader, fields: dict[str, str], *, keep: bool) -> tuple[int, str]:
    """Reads a body of a stated length, in chunks, or until the end; returns its size and, with `keep`, its text."""
    kept = bytearray()

    async def take(length: int) -> None:
        while length:
            found = await reader.read(min(length, _CHUNK))
            if not found:
                raise EOFError
            length -= len(found)
            if keep:
                kept.extend(found)

    size = 0
    if fields.get("transfer-encoding", "").lower() == "chunked":
        while length := int((await reader.readline()).split(b";")[0] or b"0", 16):
            await take(length)
            await reader.readline()
            size += length
        while (await reader.readline()).strip():
            continue
    elif "content-length" in fields:
        size = int(fields["content-length"])
        await take(size)
    else:
        while found := await reader.read(_CHUNK):
            size += len(found)
            kept += found if keep else b""
    return size, kept.decode("utf-8", "replace")


def joined(url: str, objects: int | None, size: str | None) -> str:
    """Returns the URL of a page of `probe serve`, with a number and a size of objects, if given."""
    if objects is None and size is None:
        return url
    asked = [f"objects={objects}"] if objects is not None else []
    asked += [f"bytes={size}"] if size is not None else []
    return urljoin(url, f"/page?{'&'.join(asked)}")

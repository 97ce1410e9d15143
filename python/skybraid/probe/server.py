"""Server of `probe serve`: HTTP/1.1 over TCP and MPTCP, UDP echo, and HTTP/3 over QUIC."""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable
from types import ModuleType

from skybraid.probe.echo import Echo
from skybraid.probe.measure import ProbeError
from skybraid.probe.site import REASONS, Site
from skybraid.probe.tcp import MPTCP

_CHUNK = bytes(1 << 16)
_ATTEMPTS = 20


class Server:
    """Server for all probes, on one port number; QUIC uses the next one."""

    def __init__(self, host: str, port: int, site: Site, think_s: float) -> None:
        self._host, self._port, self._site, self._think_s = host, port, site, think_s
        self._open: set[asyncio.Task[None]] = set()

    async def run(self, announce: Callable[[str], None]) -> None:
        """Serves until SIGTERM or SIGINT; `announce` receives a line with the addresses once all sockets are ready.

        Raises:
            ProbeError: the address or the port is not available.
        """
        loop = asyncio.get_running_loop()
        stop_requested = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop_requested.set)
        # Imported before binding, since requests that arrive during the import would be answered late.
        over_quic = quic_module()
        stream, datagram, quic = self._bind()
        async with contextlib.AsyncExitStack() as stack:
            server = await asyncio.start_server(self._accepted, sock=stream)
            stack.callback(server.close)
            echo, _ = await loop.create_datagram_endpoint(Echo, sock=datagram)
            stack.callback(echo.close)
            protocols = "HTTP/1.1 over MPTCP and TCP" if stream.proto == MPTCP else "HTTP/1.1 over TCP"
            where = f"{_bracketed(self._host)}:{stream.getsockname()[1]}"
            words = f"{protocols} and UDP echo on {where}"
            if over_quic is None:
                quic.close()
                words += "; no HTTP/3 without pip install 'skybraid[quic]'"
            else:
                port = quic.getsockname()[1]
                transport = await over_quic.listen(quic, self._site, self._think_s)
                stack.callback(transport.close)
                words += f", HTTP/3 on UDP port {port}"
            announce(words)
            await stop_requested.wait()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def _bind(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        """Binds a stream and a datagram socket to one port, a datagram socket to the next; port 0 finds free ones."""
        try:
            family, *_, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise ProbeError(f"--host: found {self._host}, expected an address of this machine") from error
        for attempt in range(_ATTEMPTS):
            bound: list[socket.socket] = []
            try:
                bound.append(_listening(family, address))
                port = bound[0].getsockname()[1]
                bound += [_datagrams(family, (address[0], port + more, *address[2:])) for more in (0, 1)]
            except OSError as error:
                for socket_ in bound:
                    socket_.close()
                if self._port == 0 and error.errno == errno.EADDRINUSE and attempt + 1 < _ATTEMPTS:
                    continue
                ports = f"ports {self._port} and {self._port + 1} of {self._host}"
                mend = "another --port may be free" if error.errno == errno.EADDRINUSE else "try --host 0.0.0.0"
                raise ProbeError(f"{ports}: cannot listen: {error.strerror}; {mend}") from error
            return bound[0], bound[1], bound[2]
        raise AssertionError

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with contextlib.suppress(OSError):
            # asyncio sets it for TCP only.
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._converse(reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers consecutive requests until the client has no more."""
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, version = head[0].split(" ")
            fields = {
                name.strip().lower(): value.strip().lower() for name, _, value in (line.partition(":") for line in head)
            }
            if self._think_s > 0:
                await asyncio.sleep(self._think_s)
            found = self._site.look(method, target)
            stays = version == "HTTP/1.1" and fields.get("connection") != "close"
            lines = (
                f"HTTP/1.1 {found.status} {REASONS[found.status]}",
                f"Content-Type: {found.kind}",
                f"Content-Length: {found.size}",
                f"Connection: {'keep-alive' if stays else 'close'}",
            )
            writer.write("\r\n".join((*lines, "", "")).encode() + found.text)
            left = found.filling
            while left:
                await writer.drain()
                piece = min(left, len(_CHUNK))
                writer.write(_CHUNK[:piece])
                left -= piece
            await writer.drain()
            if not stays:
                return


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    """Returns a listening MPTCP socket, which also accepts TCP, or a TCP socket if the kernel lacks MPTCP."""
    socket_ = None
    with contextlib.suppress(OSError):
        socket_ = socket.socket(family, socket.SOCK_STREAM, MPTCP)
    socket_ = socket_ or socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _both_families(socket_)
        socket_.bind(address)
        socket_.listen(128)
        socket_.setblocking(False)
    except BaseException:
        socket_.close()
        raise
    return socket_


def _datagrams(family: int, address: tuple[object, ...]) -> socket.socket:
    socket_ = socket.socket(family, socket.SOCK_DGRAM)
    try:
        _both_families(socket_)
        socket_.bind(address)
        socket_.setblocking(False)
    except BaseException:
        socket_.close()
        raise
    return socket_


def _both_families(socket_: socket.socket) -> None:
    """Makes an IPv6 socket on all addresses accept IPv4."""
    if socket_.family == socket.AF_INET6:
        socket_.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)


def quic_module() -> ModuleType | None:
    """Returns the module `skybraid.probe.quic`, or None if its extra is not installed."""
    try:
        from skybraid.probe import quic
    except ModuleNotFoundError:
        return None
    return quic

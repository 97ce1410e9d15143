"""Transport of RTP and RTCP: datagrams on one or two ports, or a framed connection (RFC 4571)."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from skybraid import _core
from skybraid.model.errors import VideoError

_MPTCP = 262
_CONNECT_S = 10.0
_AGAIN_S = 0.2
_BUFFER_BYTES = 4 << 20
_READ_BYTES = 1 << 16


class Address(NamedTuple):
    """Address to send to or listen on."""

    host: str
    port: int


def address(text: str, *, listening: bool = False) -> Address:
    """Parses `HOST:PORT` or `[IPV6]:PORT`; a listener may omit the host.

    Raises:
        VideoError: the text is no address.
    """
    host, found, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16 or not (listening or (found and host)):
        like = "a port, or HOST:PORT" if listening else "HOST:PORT"
        raise VideoError(f"address: found {text}, expected {like}, for example 192.0.2.1:5004")
    return Address(host, int(port))


class Link(Protocol):
    """Transport of packets."""

    def handles(self) -> list[socket.socket]:
        """Returns the sockets for `select`."""

    def read(self, ready: socket.socket) -> Iterator[bytes]:
        """Yields all pending packets of a socket."""

    def media(self, packet: bytes) -> None:
        """Sends an RTP packet."""

    def report(self, packet: bytes) -> None:
        """Sends an RTCP packet; a listener sends to the last sender."""

    @property
    def ended(self) -> bool:
        """Whether the peer has closed the connection."""

    def close(self) -> None:
        """Closes the sockets."""


class Datagrams:
    """Transport over UDP; `to` is the peer's address if known in advance."""

    def __init__(self, media: socket.socket, reports: socket.socket | None, to: Address | None) -> None:
        self._media, self._reports = media, reports
        self._sockets = [media] if reports is None else [media, reports]
        self._to = self._report_to = None
        if to is not None:
            self._to = _resolved(to, media)
            self._report_to = self._to if reports is None else _resolved(Address(to.host, to.port + 1), media)
        self._by = media if reports is None else reports
        for one in self._sockets:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self.ended = False

    def handles(self) -> list[socket.socket]:
        """Returns the sockets for `select`."""
        return self._sockets

    def read(self, ready: socket.socket) -> Iterator[bytes]:
        """Yields all pending packets of a socket."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data, sender = ready.recvfrom(_READ_BYTES)
                except ConnectionRefusedError:
                    continue
                if self._to is None and _core.is_rtcp(data):
                    self._report_to, self._by = sender, ready
                yield data

    def media(self, packet: bytes) -> None:
        """Sends an RTP packet."""
        self._send(self._media, packet, self._to)

    def report(self, packet: bytes) -> None:
        """Sends an RTCP packet."""
        if self._report_to is not None:
            self._send(self._by, packet, self._report_to)

    def _send(self, by: socket.socket, packet: bytes, to: object) -> None:
        # Without a listener or a route, the camera continues.
        with contextlib.suppress(OSError):
            by.sendto(packet, to)  # type: ignore[call-overload]

    def close(self) -> None:
        """Closes the sockets."""
        for one in self._sockets:
            one.close()


class Connection:
    """Transport over TCP or MPTCP with length framing (RFC 4571)."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(True)
        self._connection = connection
        self._come = bytearray()
        self.ended = False

    def handles(self) -> list[socket.socket]:
        """Returns the sockets for `select`."""
        return [] if self.ended else [self._connection]

    def read(self, ready: socket.socket) -> Iterator[bytes]:
        """Yields all pending packets of a socket."""
        try:
            data = ready.recv(4 * _READ_BYTES)
        except ConnectionError:
            data = b""
        self.ended = not data
        self._come += data
        place = 0
        while place + 2 <= len(self._come):
            end = place + 2 + int.from_bytes(self._come[place : place + 2], "big")
            if end > len(self._come):
                break
            yield bytes(self._come[place + 2 : end])
            place = end
        del self._come[:place]

    def media(self, packet: bytes) -> None:
        """Sends an RTP packet."""
        try:
            self._connection.sendall(len(packet).to_bytes(2, "big") + packet)
        except ConnectionError:
            self.ended = True

    def report(self, packet: bytes) -> None:
        """Sends an RTCP packet."""
        self.media(packet)

    def close(self) -> None:
        """Closes the sockets."""
        self._connection.close()


def _resolved(to: Address, by: socket.socket) -> tuple[object, ...]:
    try:
        found = socket.getaddrinfo(to.host, to.port, by.family, socket.SOCK_DGRAM)
    except OSError as error:
        raise VideoError(f"{to.host}:{to.port}: found no such host: {error.strerror}") from error
    return found[0][4]


def towards(to: Address, *, one_port: bool) -> Link:
    """Creates a transport that sends datagrams to a receiver.

    Raises:
        VideoError: there is no such host.
    """
    try:
        family = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_DGRAM)[0][0]
    except OSError as error:
        raise VideoError(f"{to.host}:{to.port}: found no such host: {error.strerror}") from error
    media = socket.socket(family, socket.SOCK_DGRAM)
    return Datagrams(media, None if one_port else socket.socket(family, socket.SOCK_DGRAM), to)


def connected(to: Address, *, mptcp: bool) -> Link:
    """Connects, retrying until the receiver has started.

    Raises:
        VideoError: no receiver answers.
    """
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            family, *_, where = socket.getaddrinfo(to.host, to.port, type=socket.SOCK_STREAM)[0]
            connection = socket.socket(family, socket.SOCK_STREAM, _MPTCP if mptcp else 0)
            try:
                connection.connect(where)
            except OSError:
                connection.close()
                raise
            return Connection(connection)
        except OSError as error:
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() >= deadline:
                raise VideoError(f"{to.host}:{to.port}: found no receiver: {error.strerror}") from error
            time.sleep(_AGAIN_S)


def _bound(listen: Address, kind: socket.SocketKind, protocol: int = 0) -> socket.socket:
    try:
        family = socket.AF_INET
        if listen.host:
            family = socket.getaddrinfo(listen.host, listen.port, type=kind)[0][0]
        bound = socket.socket(family, kind, protocol)
        try:
            if kind == socket.SOCK_STREAM:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((listen.host, listen.port))
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise VideoError(f"{listen.host or '*'}:{listen.port}: cannot listen: {error.strerror}") from error
    return bound


def at(listen: Address) -> Link:
    """Creates a transport that listens on a port and the next one.

    Raises:
        VideoError: a port is not available.
    """
    media = _bound(listen, socket.SOCK_DGRAM)
    try:
        reports = _bound(Address(listen.host, listen.port + 1), socket.SOCK_DGRAM)
    except VideoError:
        media.close()
        raise
    return Datagrams(media, reports, None)


def listener(listen: Address, *, mptcp: bool) -> socket.socket:
    """Returns a socket that listens for a connection.

    Raises:
        VideoError: the port is not available.
    """
    listener = _bound(listen, socket.SOCK_STREAM, _MPTCP if mptcp else 0)
    listener.listen(1)
    return listener

"""HTTP/3 over QUIC with aioquic, client and server; a single path, certificates are not verified."""

import asyncio
import datetime
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamReset
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from skybraid.probe.measure import Address, ProbeError, Row, addresses, explained_errors, format_address, mbps, ms
from skybraid.probe.site import Place, Resource, Site, objects_of
from skybraid.probe.tcp import Answer

MAX_BYTES = 64_000_000
"""Maximum size in bytes of a response over QUIC, which aioquic holds in memory."""

# Enough for 1 Gbit/s over 130 ms before the windows have grown.
_WINDOW = 1 << 24

_PIECE = 1_000_000
_AT_ONCE = 4


def _configuration(*, client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=client,
        alpn_protocols=H3_ALPN,
        max_data=_WINDOW,
        max_stream_data=_WINDOW,
        verify_mode=ssl.CERT_NONE if client else None,
    )


def _certified(configuration: QuicConfiguration) -> QuicConfiguration:
    """Returns the configuration with a self-signed certificate, which the probes do not verify."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skybraid probe serve")])
    now = datetime.datetime.now(datetime.UTC)
    configuration.certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    configuration.private_key = key
    return configuration


class _Server(QuicConnectionProtocol):
    def __init__(self, connection: QuicConnection, site: Site, think_s: float) -> None:
        super().__init__(connection)
        self._site, self._think_s = site, think_s
        self._http = H3Connection(connection)

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated):
            return
        for found in self._http.handle_event(event):
            if isinstance(found, HeadersReceived):
                asyncio.get_running_loop().call_later(self._think_s, self._answer, found)

    def _answer(self, request: HeadersReceived) -> None:
        fields = dict(request.headers)
        resource = self._site.look(fields.get(b":method", b"").decode(), fields.get(b":path", b"/").decode())
        if resource.size > MAX_BYTES:
            words = f"found {resource.size} bytes, expected at most {MAX_BYTES} over QUIC\n"
            resource = Resource(413, "text/plain; charset=utf-8", words.encode())
        headers = {":status": resource.status, "content-type": resource.kind, "content-length": resource.size}
        encoded = [(name.encode(), str(value).encode()) for name, value in headers.items()]
        if self._closed.is_set():
            return
        self._http.send_headers(request.stream_id, encoded)
        self._http.send_data(request.stream_id, resource.text + bytes(resource.filling), end_stream=True)
        self.transmit()


async def listen(listening: socket.socket, site: Site, think_s: float) -> asyncio.DatagramTransport:
    """Serves HTTP/3 on a bound socket until the transport is closed."""
    configuration = _certified(_configuration(client=False))
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicServer(
            configuration=configuration,
            create_protocol=lambda connection, **_: _Server(connection, site, think_s),
        ),
        sock=listening,
    )
    return transport


class _Response:
    """Request, and the part of its response received so far."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self.status = ""
        self.is_text = False
        self.first_s: float | None = None
        self.size = 0
        self.text = bytearray()
        self.on_bytes = on_bytes
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def take(self, event: H3Event) -> None:
        now = time.perf_counter()
        self.first_s = now if self.first_s is None else self.first_s
        if isinstance(event, HeadersReceived):
            fields = dict(event.headers)
            self.status = fields.get(b":status", b"").decode()
            self.is_text = fields.get(b"content-type", b"").startswith(b"text/")
        if isinstance(event, DataReceived):
            self.size += len(event.data)
            self.on_bytes(len(event.data))
            if self.is_text:
                self.text += event.data
        ended = isinstance(event, HeadersReceived | DataReceived) and event.stream_ended
        if ended and not self.answer.done():
            text = self.text.decode("utf-8", "replace")
            if self.status != "200":
                self.answer.set_exception(ProbeError(f"answered {self.status} ({text.strip()[:200]}), expected 200"))
            else:
                self.answer.set_result(Answer(self.first_s, now, self.size, text))


class _Client(QuicConnectionProtocol):
    def __init__(self, connection: QuicConnection) -> None:
        super().__init__(connection)
        # Created at once, since a later one would miss the first events of the other end.
        self._http = H3Connection(connection)
        self._asked: dict[int, _Response] = {}
        self.error: Exception | None = None
        self.established = asyncio.get_running_loop().create_future()

    def get(
        self, authority: str, target: str, on_bytes: Callable[[int], None] = lambda _: None
    ) -> asyncio.Future[Answer]:
        """Sends a request; calls `on_bytes` with the number of body bytes as they arrive."""
        stream = self._quic.get_next_available_stream_id()
        asked = self._asked[stream] = _Response(on_bytes)
        fields = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": target}
        self._http.send_headers(stream, [(a.encode(), b.encode()) for a, b in fields.items()], end_stream=True)
        self._transmit_soon()
        return asked.answer

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated):
            words = event.reason_phrase or f"error {event.error_code:#x}"
            self._fail(ConnectionError(words))
        if isinstance(event, StreamReset) and event.stream_id in self._asked:
            self._fail(ConnectionError("reset"))
        for found in self._http.handle_event(event):
            if isinstance(found, HeadersReceived | DataReceived) and found.stream_id in self._asked:
                self._asked[found.stream_id].take(found)

    def error_received(self, exc: Exception) -> None:
        self._fail(exc)

    def _fail(self, error: Exception) -> None:
        self.error = error
        for waiting in (self.established, *(asked.answer for asked in self._asked.values())):
            if not waiting.done():
                waiting.set_exception(error)
                # Some requests may no longer be awaited.
                waiting.exception()


@asynccontextmanager
async def _connected(host: str, where: Address, timeout_s: float) -> AsyncIterator[tuple[_Client, float, float]]:
    """Yields an established connection, the start of its establishment (s) and its duration (ms)."""
    loop = asyncio.get_running_loop()
    family, address = where
    configuration = _configuration(client=True)
    configuration.server_name = host
    transport, client = await loop.create_datagram_endpoint(
        lambda: _Client(QuicConnection(configuration=configuration)), family=family, remote_addr=address[:2]
    )
    try:
        began = time.perf_counter()
        client.connect(transport.get_extra_info("peername"))
        waited = loop.create_task(client.wait_connected())
        async with asyncio.timeout(timeout_s):
            await asyncio.wait({waited, client.established}, return_when=asyncio.FIRST_COMPLETED)
        connect_ms = ms(began, time.perf_counter())
        if client.error is not None:
            waited.cancel()
            raise client.error
        await waited
        yield client, began, connect_ms
    finally:
        client.close()
        transport.close()


async def _resolve(host: str, port: int) -> Address:
    return (await addresses(host, port, socket.SOCK_DGRAM))[0]


async def load(run: int, place: Place, *, timeout_s: float) -> list[Row]:
    """Returns one row with the times of a page over HTTP/3, all its objects requested at once on one connection.

    All times count from the start of the connection's establishment.

    Raises:
        ProbeError: the page or one of its objects is unavailable, or does not arrive within `timeout_s`.
    """
    address = await _resolve(place.host, place.port)
    with explained_errors(format_address("quic", address[1]), timeout_s):
        async with _connected(place.host, address, timeout_s) as (client, began, connect_ms):
            async with asyncio.timeout(timeout_s):
                page = await client.get(place.authority, place.target)
                objects = objects_of(page.page, place.url)
                answers = [page, *await asyncio.gather(*(client.get(place.authority, target) for target in objects))]
    last_s = max(answer.last_s for answer in answers)
    size = sum(answer.size for answer in answers)
    return [
        {
            "run": run,
            "connect_ms": connect_ms,
            "ttfb_ms": ms(began, page.first_s),
            "page_ms": ms(began, last_s),
            "goodput_mbps": mbps(size, last_s - began),
            "objects": len(objects),
            "bytes": size,
            "connections": 1,
            "protocol": "quic",
            "subflows": 1,
        }
    ]


async def bulk(run: int, host: str, port: int, *, for_s: float, timeout_s: float) -> list[Row]:
    """Returns one row with the goodput of a download of `for_s`, counted from the first byte.

    Raises:
        ProbeError: nothing arrives, or the connection ends early.
    """
    address = await _resolve(host, port)
    place = Place("", host, port, f"/bytes/{_PIECE}")
    size = 0

    def on_bytes(more: int) -> None:
        nonlocal size
        size += more

    with explained_errors(format_address("quic", address[1]), timeout_s):
        async with _connected(host, address, timeout_s) as (client, began, connect_ms):
            asked = {client.get(place.authority, place.target, on_bytes) for _ in range(_AT_ONCE)}
            async with asyncio.timeout(timeout_s):
                done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            first_s = min(task.result().first_s for task in done)
            until = first_s + for_s
            while (left_s := until - time.perf_counter()) > 0:
                asked |= {client.get(place.authority, place.target, on_bytes) for _ in range(_AT_ONCE - len(asked))}
                done, asked = await asyncio.wait(asked, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            took_s, got = time.perf_counter() - first_s, size
    return [
        {
            "run": run,
            "connect_ms": connect_ms,
            "ttfb_ms": ms(began, first_s),
            "seconds": round(took_s, 3),
            "bytes": got,
            "goodput_mbps": mbps(got, took_s),
        }
    ]

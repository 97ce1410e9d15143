"""Camera and screen programs: an encoded clip sent as RTP in real time, received, decoded and timed.

RTP is sent over UDP with RTCP on the next port, or both on one port (RFC 5761), or over a TCP or MPTCP connection, each
packet preceded by its length (RFC 4571). The capture time of a picture is computed from its RTP time stamp and the pair
of NTP and RTP time in the sender's reports (RFC 3550, 6.4.1); the time code identifies the picture on the screen.
Latencies are valid between programs on one machine, or on machines with synchronised clocks.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import secrets
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

from skybraid import _core
from skybraid.model.errors import VideoError
from skybraid.video import timecode
from skybraid.video.decode import Decoder, luma
from skybraid.video.sockets import Connection, at, connected, listener, towards

if TYPE_CHECKING:
    import socket
    from typing import TextIO

    from skybraid._core import RtcpPart, RtpFrame
    from skybraid.video.encode import Encoded
    from skybraid.video.sockets import Address, Link

PACKET_BYTES = 1200
"""Maximum size of an RTP packet in bytes, as in scenarios."""

COLUMNS = ("frame", "timestamp", "captured_ns", "shown_ns", "latency_ns", "damaged")
"""Columns of the rows, one row per picture; see `Row`."""

_NAME = "skybraid@video"
_NTP_S = 2_208_988_800
"""Seconds from 1900, the epoch of NTP, to 1970."""

_REPORT_NS = 1_000_000_000
_FAREWELL_S = 2.0
_FAREWELL_EVERY_S = 0.3
_LOOK_S = 0.2
_MAX_PACKET_BYTES = 65_000
_MAX_DECODING = 32
"""Maximum number of frames in the decoder."""


@dataclass(slots=True)
class Sent:
    """Counters of a sender, and the receiver's last report.

    Attributes:
        frames: sent frames.
        packets: sent RTP packets.
        lost: lost packets reported by the receiver; None without a report.
        round_trip_s: round-trip time of the last report in s; None without one.
    """

    frames: int = 0
    packets: int = 0
    lost: int | None = None
    round_trip_s: float | None = None


def send(
    encoded: Encoded,
    to: Address,
    *,
    tcp: bool = False,
    mptcp: bool = False,
    one_port: bool = False,
    packet_bytes: int = PACKET_BYTES,
    duration_s: float | None = None,
) -> Sent:
    """Sends an encoded clip to a receiver, the packets of each frame together at its capture time.

    Args:
        encoded: clip to play, repeated if `duration_s` is longer.
        to: address of the receiver; its reports are expected on the next port, unless `one_port`.
        tcp: whether to use a TCP connection.
        mptcp: whether to use an MPTCP connection.
        one_port: whether RTCP uses the same port (RFC 5761); over a connection it always does.
        packet_bytes: maximum size of an RTP packet in bytes, header included.
        duration_s: time to play in s; default: the clip once.

    Raises:
        VideoError: no receiver answers, or `packet_bytes` is invalid.
    """
    if not 100 <= packet_bytes <= _MAX_PACKET_BYTES:
        raise VideoError(f"packet: found {packet_bytes} B, expected 100 B to {_MAX_PACKET_BYTES} B")
    link = connected(to, mptcp=mptcp) if tcp or mptcp else towards(to, one_port=one_port)
    camera = _Camera(encoded, link, packet_bytes)
    frames = len(encoded) if duration_s is None else max(1, round(duration_s * encoded.fps))
    try:
        return camera.play(frames)
    finally:
        link.close()


class _Camera:
    def __init__(self, encoded: Encoded, link: Link, packet_bytes: int) -> None:
        self._encoded, self._link = encoded, link
        self._ssrc, sequence, self._base = (secrets.randbits(bits) for bits in (32, 16, 32))
        codec = encoded.settings.codec
        self._sender = _core.RtpSender(codec, packet_bytes, self._ssrc, sequence, _NAME)
        self._sent = Sent()
        self._start_ns = self._reported_ns = 0
        self._bye = False

    def play(self, frames: int) -> Sent:
        self._start_ns = time.monotonic_ns()
        self._report()
        for number in range(frames):
            packets = self._packets(number)
            self._until(self._start_ns + self._encoded.captured_ns(number))
            for packet in packets:
                self._link.media(packet)
            self._sent.frames += 1
            self._sent.packets = self._sender.packets
            if self._link.ended or self._bye:
                break
        self._farewell()
        return self._sent

    def _packets(self, number: int) -> list[bytes]:
        timestamp = self._base + round(number * _core.RTP_CLOCK_HZ / self._encoded.fps) & 0xFFFF_FFFF
        return self._sender.frame(self._encoded.units(number % len(self._encoded)), timestamp)

    def _until(self, at_ns: int) -> None:
        """Waits, while sending a report each second and reading those of the receiver."""
        while (now_ns := time.monotonic_ns()) < at_ns and not self._link.ended:
            if now_ns - self._reported_ns >= _REPORT_NS:
                self._report()
            self._read_reports((at_ns - now_ns) / 1e9)
        if time.monotonic_ns() - self._reported_ns >= _REPORT_NS:
            self._report()

    def _read_reports(self, max_s: float) -> None:
        ready, _, _ = select.select(self._link.handles(), [], [], max(0.0, max_s))
        for one in ready:
            for data in self._link.read(one):
                for part in _core.rtcp_parts(data, ntp(time.time_ns())) if _core.is_rtcp(data) else ():
                    if part.kind == "receiver" and part.source == self._ssrc:
                        self._sent.lost, self._sent.round_trip_s = part.lost, part.round_trip_s
                    self._bye |= part.kind == "bye"

    def _report(self, *, bye: bool = False) -> None:
        self._reported_ns = time.monotonic_ns()
        passed = (self._reported_ns - self._start_ns) * _core.RTP_CLOCK_HZ // 1_000_000_000
        now = self._base + passed & 0xFFFF_FFFF
        self._link.report(self._sender.report(ntp(time.time_ns()), now, bye))

    def _farewell(self) -> None:
        """Sends BYE until the receiver answers, so that packets in flight arrive."""
        deadline = time.monotonic() + _FAREWELL_S
        said = 0.0
        while (now := time.monotonic()) < deadline and not self._bye and not self._link.ended:
            if now - said >= _FAREWELL_EVERY_S:
                self._report(bye=True)
                said = now
            self._read_reports(min(deadline, said + _FAREWELL_EVERY_S) - now)


def sdp(encoded: Encoded, to: Address, *, one_port: bool = False) -> str:
    """Returns the session description of a stream over UDP, for players (RFC 8866; RFC 6184 and 7798, section 7).

    Args:
        encoded: clip that `send` plays.
        to: address of the receiver.
        one_port: whether RTCP uses the same port.
    """
    codec = encoded.settings.codec
    first = encoded.units(0)
    if codec == "h265":
        names = {32: "sprop-vps", 33: "sprop-sps", 34: "sprop-pps"}
        sets = {unit[0] >> 1 & 0x3F: base64.b64encode(unit).decode() for unit in first}
        words = [f"{name}={sets[kind]}" for kind, name in names.items() if kind in sets]
    else:
        sets = {unit[0] & 0x1F: base64.b64encode(unit).decode() for unit in first}
        profile = next((unit[1:4].hex().upper() for unit in first if unit[0] & 0x1F == 7), None)
        words = ["packetization-mode=1"]
        if profile is not None and 8 in sets:
            words += [f"profile-level-id={profile}", f"sprop-parameter-sets={sets[7]},{sets[8]}"]
    family = "IP6" if ":" in to.host else "IP4"
    pt = _core.RTP_PAYLOAD_TYPE
    lines = ["v=0", f"o=- 0 0 IN {family} {to.host}", "s=Skybraid", f"c=IN {family} {to.host}", "t=0 0"]
    lines += [f"m=video {to.port} RTP/AVP {pt}", f"a=rtpmap:{pt} {codec.upper()}/{_core.RTP_CLOCK_HZ}"]
    lines += [f"a=fmtp:{pt} {'; '.join(words)}", f"a=framerate:{float(encoded.fps):g}"]
    lines += ["a=rtcp-mux"] if one_port else []
    return "\r\n".join(lines) + "\r\n"


@dataclass(frozen=True, slots=True)
class Row:
    """Picture shown on the screen.

    Attributes:
        frame: number in its time code; None if there is none, it is unreadable, or nothing was decoded.
        timestamp: RTP time stamp of the decoded frame, 32 bits.
        captured_ns: capture time of the visible picture in ns since 1970; None before a sender's report.
        shown_ns: display time in ns since 1970.
        damaged: whether a part of the frame or of a reference frame is missing.
    """

    frame: int | None
    timestamp: int
    captured_ns: int | None
    shown_ns: int
    damaged: bool

    @property
    def latency_ns(self) -> int | None:
        """Latency from camera to screen in ns."""
        return None if self.captured_ns is None else self.shown_ns - self.captured_ns


@dataclass(slots=True)
class Received:
    """Counters of a receiver.

    Attributes:
        rows: one row per picture.
        packets: received RTP packets.
        lost: lost RTP packets.
    """

    rows: list[Row] = field(default_factory=list)
    packets: int = 0
    lost: int = 0


class Receiver:
    """Receiver of a stream, which listens from construction on.

    Args:
        listen: address to listen on.
        codec: codec of the stream, "h264" or "h265".
        jitter_buffer_s: maximum time in the jitter buffer in s, that of the packet with the least delay.
        tcp: whether to wait for a TCP connection.
        mptcp: whether to wait for an MPTCP or TCP connection.
        decode: whether to decode and read the time codes; needs PyAV.
        out: CSV file to which rows are written as they arrive.

    Raises:
        VideoError: the address is not available.
    """

    def __init__(
        self,
        listen: Address,
        *,
        codec: str = "h264",
        jitter_buffer_s: float = 0.15,
        tcp: bool = False,
        mptcp: bool = False,
        decode: bool = True,
        out: TextIO | None = None,
    ) -> None:
        if codec not in ("h264", "h265"):
            raise VideoError(f"codec: found {codec}, expected one of h264, h265")
        self._codec, self._decode, self._out = codec, decode, out
        self._length_ns = round(jitter_buffer_s * 1e9)
        self._ssrc = secrets.randbits(32)
        self._stopped = threading.Event()
        self._listener: socket.socket | None = None
        self._link: Link | None = None
        if tcp or mptcp:
            self._listener = listener(listen, mptcp=mptcp)
        else:
            self._link = at(listen)

    def stop(self) -> None:
        """Ends `run`; may be called from another thread or a signal handler."""
        self._stopped.set()

    def run(self, limit_s: float | None = None) -> Received:
        """Receives until the sender's BYE or `stop`.

        Args:
            limit_s: maximum time to receive in s.

        Raises:
            OSError: the rows cannot be written.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        screen = _Screen(self._codec, decode=self._decode, out=self._out)
        received = Received(screen.rows)
        try:
            link = self._link or self._accepted(deadline)
            if link is not None:
                _Stream(self._codec, self._length_ns, self._ssrc, link, screen, received).run(self._stopped, deadline)
        finally:
            screen.end()
            self.close()
        return received

    def close(self) -> None:
        """Closes the sockets."""
        for one in (self._listener, self._link):
            if one is not None:
                one.close()

    def _accepted(self, deadline: float | None) -> Link | None:
        assert self._listener is not None
        self._listener.settimeout(_LOOK_S)
        while not self._stopped.is_set() and (deadline is None or time.monotonic() < deadline):
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self._link = Connection(connection)
                return self._link
        return None


class _Stream:
    """Stream of one source: its packets, their reception reports, and its frames for the screen."""

    def __init__(self, codec: str, length_ns: int, ssrc: int, link: Link, screen: _Screen, received: Received) -> None:
        self._codec, self._length_ns, self._ssrc = codec, length_ns, ssrc
        self._link, self._screen, self._received = link, screen, received
        self._source: int | None = None
        self._report: RtcpPart | None = None
        self._receiver: _core.RtpReceiver | None = None
        self._lost = 0
        self._ended = False

    def run(self, stopped: threading.Event, deadline: float | None) -> None:
        report_ns = time.monotonic_ns() + _REPORT_NS
        while not (stopped.is_set() or self._ended or self._link.ended or self._screen.failed):
            now_ns = time.monotonic_ns()
            if deadline is not None and now_ns >= deadline * 1e9:
                break
            if now_ns >= report_ns:
                self._send_report()
                report_ns = now_ns + _REPORT_NS
            next_ns = None if self._receiver is None else self._receiver.next_ns()
            wake_ns = min(report_ns, now_ns + int(_LOOK_S * 1e9), report_ns if next_ns is None else next_ns)
            ready, _, _ = select.select(self._link.handles(), [], [], max(0, wake_ns - now_ns) / 1e9)
            for one in ready:
                for data in self._link.read(one):
                    self._take(time.monotonic_ns(), data)
            if self._receiver is not None:
                self._screen.show(self._receiver.frames(time.monotonic_ns()))
        self._end_source()
        self._received.lost = self._lost
        self._send_report(bye=True)

    def _take(self, now_ns: int, data: bytes) -> None:
        if _core.is_rtcp(data):
            for part in _core.rtcp_parts(data, 0):
                if part.kind == "sender":
                    self._reported(now_ns, part)
                elif part.kind == "bye":
                    self._ended |= part.ssrc == self._source
            return
        source = _core.RtpReceiver.source_of(data)
        if source is None:
            return
        if self._receiver is None or source != self._source:
            self._end_source()
            self._screen.clock = None
            self._source = source
            self._receiver = _core.RtpReceiver(self._codec, self._length_ns, self._ssrc, source, _NAME)
        self._received.packets += 1
        self._receiver.take(now_ns, data)
        self._clock(self._receiver)

    def _end_source(self) -> None:
        """Shows the remaining frames of a source: at the end, or when its sender has restarted."""
        if self._receiver is not None:
            self._screen.show(self._receiver.flush())
            self._screen.drain()
            self._lost += self._receiver.lost

    def _reported(self, now_ns: int, report: RtcpPart) -> None:
        self._report = report
        if self._receiver is not None and report.ssrc == self._source:
            self._receiver.take_report(now_ns, report.ntp)
            self._clock(self._receiver)

    def _clock(self, receiver: _core.RtpReceiver) -> None:
        """Sets the screen's capture clock from this source's last report."""
        if self._report is not None and self._report.ssrc == self._source:
            self._screen.clock = receiver.ticks(self._report.timestamp), _unix_ns(self._report.ntp)
            self._report = None

    def _send_report(self, *, bye: bool = False) -> None:
        if self._receiver is not None:
            self._link.report(self._receiver.report(time.monotonic_ns(), bye))


class _Screen:
    """Thread that decodes frames, shows each when due, and logs it."""

    def __init__(self, codec: str, *, decode: bool, out: TextIO | None) -> None:
        self.rows: list[Row] = []
        self.clock: tuple[int, int] | None = None
        self.failed: BaseException | None = None
        self._codec, self._decode = codec, decode
        self._writer = None if out is None else csv.writer(out, lineterminator="\n")
        self._out = out
        self._frames: SimpleQueue[RtpFrame | threading.Event | None] = SimpleQueue()
        self._unclocked: list[tuple[int | None, int, int, bool]] = []
        self._last: tuple[int | None, int] = None, 0
        self._write(COLUMNS)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def show(self, frames: list[RtpFrame]) -> None:
        for frame in frames:
            self._frames.put(frame)

    def drain(self) -> None:
        """Waits until all frames are on the screen."""
        done = threading.Event()
        self._frames.put(done)
        while not done.wait(_LOOK_S) and self._thread.is_alive():
            pass

    def end(self) -> None:
        """Shows the remaining frames.

        Raises:
            OSError: the rows could not be written.
        """
        self._frames.put(None)
        self._thread.join()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            self._decode_all()
        except BaseException as error:  # noqa: BLE001 `end` raises it where it can be caught
            self.failed = error

    def _decode_all(self) -> None:
        if not self._decode:
            for frame in self._queued_frames():
                self._display(frame, None)
            self._flush()
            return
        decoder = Decoder(self._codec)
        decoding: dict[int, RtpFrame] = {}
        for number, frame in enumerate(self._queued_frames()):
            decoding[number] = frame
            for picture in decoder.push(number, frame.units):
                self._display(decoding.pop(picture.pts or 0, frame), timecode.read(luma(picture)))
            if len(decoding) > _MAX_DECODING:
                del decoding[next(iter(decoding))]
        for picture in decoder.end():
            if (picture.pts or 0) in decoding:
                self._display(decoding.pop(picture.pts or 0), timecode.read(luma(picture)))
        self._flush()

    def _queued_frames(self) -> Iterator[RtpFrame]:
        while (found := self._frames.get()) is not None:
            if isinstance(found, threading.Event):
                found.set()
            else:
                yield found

    def _display(self, frame: RtpFrame, code: int | None) -> None:
        wait_ns = frame.due_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        # A lost picture is replaced by the previous one, which keeps its capture time.
        if code is None or code != self._last[0]:
            self._last = code, frame.ticks
        self._unclocked.append((code, self._last[1], time.time_ns(), not frame.intact))
        if self.clock is not None:
            self._flush()

    def _flush(self) -> None:
        for code, ticks, shown_ns, damaged in self._unclocked:
            captured_ns = None
            if self.clock is not None:
                captured_ns = self.clock[1] + (ticks - self.clock[0]) * 1_000_000_000 // _core.RTP_CLOCK_HZ
            row = Row(code, ticks & 0xFFFF_FFFF, captured_ns, shown_ns, damaged)
            self.rows.append(row)
            self._write((row.frame, row.timestamp, captured_ns, shown_ns, row.latency_ns, str(damaged).lower()))
        self._unclocked.clear()

    def _write(self, cells: tuple[object, ...]) -> None:
        if self._writer is not None and self._out is not None:
            self._writer.writerow(cells)
            self._out.flush()


def ntp(unix_ns: int) -> int:
    """Returns the NTP time stamp of a time in ns since 1970: seconds since 1900 in the upper 32 of 64 bits."""
    return ((unix_ns + _NTP_S * 1_000_000_000) << 32) // 1_000_000_000


def _unix_ns(ntp: int) -> int:
    return (ntp * 1_000_000_000 >> 32) - _NTP_S * 1_000_000_000

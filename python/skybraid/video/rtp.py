"""RTP and RTCP on the wire: packets, payloads of H.264 and H.265, sender and receiver reports.

Source: RFC 3550 (RTP and RTCP), RFC 6184 (H.264, packetisation mode 1), RFC 7798 (H.265), RFC 5761 (both on one port).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CLOCK_HZ = 90_000
"""Of the time stamps of video (RFC 6184, 8.2.1; RFC 7798, 7.1)."""

PAYLOAD_TYPE = 96
"""The first that has no meaning of its own (RFC 3551, 3)."""

_HEADER = struct.Struct("!BBHII")
_VERSION = 2 << 6
_MARKER = 0x80
_SENDER_REPORT, _RECEIVER_REPORT, _DESCRIPTION, _BYE = 200, 201, 202, 203
_CONTROL = range(192, 224)
_CNAME = 1
_FIRST, _LAST = 0x80, 0x40
_AGGREGATED = {"h264": 24, "h265": 48}
_FRAGMENT = {"h264": 28, "h265": 49}
_NTP_S = 2_208_988_800
"""From 1900, where NTP counts from, to 1970."""


@dataclass(frozen=True, slots=True)
class Packet:
    """RTP packet.

    Attributes:
        marker: the last packet of a frame.
        sequence: one more than the packet before, 16 bits.
        timestamp: when the frame was taken, in ticks of `CLOCK_HZ`, 32 bits.
        ssrc: of its source, 32 bits.
        payload: a NAL unit, part of one, or several.
    """

    marker: bool
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes

    def to_bytes(self) -> bytes:
        """Serialises the packet with a header of 12 bytes."""
        second = PAYLOAD_TYPE | (_MARKER if self.marker else 0)
        return _HEADER.pack(_VERSION, second, self.sequence, self.timestamp, self.ssrc) + self.payload

    @classmethod
    def of(cls, data: bytes) -> Packet | None:
        """Parses a packet; None if invalid. Skips CSRCs, extension and padding."""
        if len(data) < _HEADER.size or data[0] & 0xC0 != _VERSION:
            return None
        first, second, sequence, timestamp, ssrc = _HEADER.unpack_from(data)
        begin, end = _HEADER.size + 4 * (first & 0x0F), len(data)
        if first & 0x10:
            begin += 4 + 4 * int.from_bytes(data[begin + 2 : begin + 4], "big")
        if first & 0x20:
            end -= data[-1]
        return cls(bool(second & _MARKER), sequence, timestamp, ssrc, data[begin:end]) if begin < end else None


class Unwrapped:
    """Unwraps sequence numbers of a fixed width."""

    def __init__(self, bits: int) -> None:
        self._cycle = 1 << bits
        self.newest: int | None = None

    def near(self, number: int) -> int:
        """Unwraps a number to the one nearest to the newest."""
        if self.newest is None:
            return number
        half = self._cycle // 2
        return self.newest + (number - self.newest + half) % self._cycle - half

    def take(self, number: int) -> int:
        """Unwraps a number and updates the newest."""
        found = self.near(number)
        self.newest = found if self.newest is None else max(self.newest, found)
        return found


def payloads(codec: str, unit: bytes, most: int) -> Iterator[bytes]:
    """Packetises a NAL unit into payloads of a maximum size: whole if it fits, else fragmented (FU-A, FU)."""
    if len(unit) <= most:
        yield unit
        return
    head = 2 if codec == "h265" else 1
    if codec == "h265":
        number = unit[0] >> 1 & 0x3F
        before = bytes([unit[0] & 0x81 | _FRAGMENT[codec] << 1, unit[1]])
    else:
        number = unit[0] & 0x1F
        before = bytes([unit[0] & 0xE0 | _FRAGMENT[codec]])
    room = most - head - 1
    for begin in range(head, len(unit), room):
        first = _FIRST if begin == head else 0
        last = _LAST if begin + room >= len(unit) else 0
        yield before + bytes([first | last | number]) + unit[begin : begin + room]


def units(codec: str, packets: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Depacketises payloads into NAL units; drops units with a missing fragment (RFC 6184, section 5.8).

    Args:
        codec: "h264" or "h265".
        packets: the number of each, which goes on, and its payload; ascending.
    """
    head = 2 if codec == "h265" else 1
    parts: list[bytes] = []
    expected: int | None = None
    for number, payload in packets:
        if len(payload) <= head:
            continue
        kind = payload[0] >> 1 & 0x3F if codec == "h265" else payload[0] & 0x1F
        if kind == _FRAGMENT[codec]:
            flags = payload[head]
            if flags & _FIRST:
                parts = [_unit_head(codec, payload)]
            elif expected != number:
                parts = []
            if parts:
                parts.append(payload[head + 1 :])
                expected = number + 1
                if flags & _LAST:
                    yield b"".join(parts)
                    parts = []
            continue
        parts = []
        if kind == _AGGREGATED[codec]:
            yield from _aggregated(payload[head:])
        else:
            yield payload


def beginning(codec: str, payload: bytes) -> bytes:
    """First bytes of the NAL unit that starts in a payload; empty for a continued fragment."""
    head = 2 if codec == "h265" else 1
    kind = payload[0] >> 1 & 0x3F if codec == "h265" else payload[0] & 0x1F
    if kind == _FRAGMENT[codec] and len(payload) > head:
        return _unit_head(codec, payload) + payload[head + 1 : head + 17] if payload[head] & _FIRST else b""
    if kind == _AGGREGATED[codec]:
        return next(_aggregated(payload[head:]), b"")
    return payload


def _unit_head(codec: str, fragment: bytes) -> bytes:
    if codec == "h265":
        return bytes([fragment[0] & 0x81 | (fragment[2] & 0x3F) << 1, fragment[1]])
    return bytes([fragment[0] & 0xE0 | fragment[1] & 0x1F])


def _aggregated(data: bytes) -> Iterator[bytes]:
    place = 0
    while place + 2 < len(data):
        size = int.from_bytes(data[place : place + 2], "big")
        if size == 0 or place + 2 + size > len(data):
            return
        yield data[place + 2 : place + 2 + size]
        place += 2 + size


@dataclass(frozen=True, slots=True)
class SenderReport:
    """Sender report (RFC 3550, section 6.4.1).

    Attributes:
        ssrc: of the sender.
        ntp: when it was sent, as a time stamp of NTP: seconds since 1900 in the upper 32 of 64 bits.
        timestamp: the same time in ticks of the media.
        packets: sent so far.
        bytes: of payload sent so far.
    """

    ssrc: int
    ntp: int
    timestamp: int
    packets: int
    octets: int

    def to_bytes(self) -> bytes:
        """Serialises the RTCP packet."""
        counts = self.packets & 0xFFFF_FFFF, self.octets & 0xFFFF_FFFF
        return _control(_SENDER_REPORT, 0, struct.pack("!IQIII", self.ssrc, self.ntp, self.timestamp, *counts))


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """Receiver report on one source (RFC 3550, section 6.4.2).

    Attributes:
        ssrc: of the receiver.
        source: of which it tells.
        fraction_lost: of the packets since the report before, in 1/256.
        lost: packets so far; below zero with copies.
        highest: the highest number, in 32 bits.
        jitter: mean deviation of transit times in ticks.
        last_report: middle 32 bits of the NTP time of the source's last report; 0 without one.
        delay: since that came, in 1/65536 s.
    """

    ssrc: int
    source: int
    fraction_lost: int
    lost: int
    highest: int
    jitter: int
    last_report: int
    delay: int

    def to_bytes(self) -> bytes:
        """Serialises the RTCP packet."""
        lost = max(-0x80_0000, min(self.lost, 0x7F_FFFF)) & 0xFF_FFFF
        words = self.fraction_lost << 24 | lost, self.highest & 0xFFFF_FFFF, self.jitter, self.last_report, self.delay
        return _control(_RECEIVER_REPORT, 1, struct.pack("!7I", self.ssrc, self.source, *words))

    def round_trip_s(self, ntp: int) -> float | None:
        """Round-trip time in s, for the source that receives this report at an NTP time."""
        away = (middle(ntp) - self.last_report - self.delay) & 0xFFFF_FFFF
        return away / 65536 if self.last_report and away < 1 << 31 else None


@dataclass(frozen=True, slots=True)
class Bye:
    """BYE of a source (RFC 3550, section 6.6)."""

    ssrc: int

    def to_bytes(self) -> bytes:
        """Serialises the RTCP packet."""
        return _control(_BYE, 1, struct.pack("!I", self.ssrc))


def description(ssrc: int, name: str) -> bytes:
    """SDES packet with a source's canonical name (RFC 3550, section 6.5)."""
    text = name.encode()[:255]
    items = bytes([_CNAME, len(text)]) + text
    return _control(_DESCRIPTION, 1, struct.pack("!I", ssrc) + items + bytes(4 - len(items) % 4))


def is_control(data: bytes) -> bool:
    """Whether a packet is RTCP, where both share one port (RFC 5761, section 4)."""
    return len(data) >= 4 and data[1] in _CONTROL


def control(data: bytes) -> Iterator[SenderReport | ReceiverReport | Bye]:
    """Parses the parts of an RTCP packet; of a report only the first block."""
    place = 0
    while place + 8 <= len(data) and data[place] & 0xC0 == _VERSION:
        end = place + 4 + 4 * int.from_bytes(data[place + 2 : place + 4], "big")
        part, count, kind = data[place + 4 : end], data[place] & 0x1F, data[place + 1]
        if kind == _SENDER_REPORT and len(part) >= 24:
            yield SenderReport(*struct.unpack_from("!IQIII", part))
        elif kind == _RECEIVER_REPORT and count and len(part) >= 28:
            ssrc, source, second, *others = struct.unpack_from("!7I", part)
            lost = (second & 0xFF_FFFF ^ 0x80_0000) - 0x80_0000
            yield ReceiverReport(ssrc, source, second >> 24, lost, *others)
        elif kind == _BYE and count and len(part) >= 4:
            yield Bye(*struct.unpack_from("!I", part))
        place = end


def _control(kind: int, count: int, data: bytes) -> bytes:
    return struct.pack("!BBH", _VERSION | count, kind, len(data) // 4) + data


def ntp(unix_ns: int) -> int:
    """Converts ns since 1970 to an NTP time stamp."""
    return ((unix_ns + _NTP_S * 1_000_000_000) << 32) // 1_000_000_000


def unix_ns(ntp_: int) -> int:
    """Converts an NTP time stamp to ns since 1970."""
    return (ntp_ * 1_000_000_000 >> 32) - _NTP_S * 1_000_000_000


def middle(ntp_: int) -> int:
    """Middle 32 bits of an NTP time stamp, in 1/65536 s."""
    return ntp_ >> 16 & 0xFFFF_FFFF


class Reception:
    """Reception statistics of one source (RFC 3550, A.3 and A.8)."""

    def __init__(self) -> None:
        self._numbers = Unwrapped(16)
        self._first: int | None = None
        self._before = (0, 0)
        self._received = 0
        self._transit: int | None = None
        self._jitter = 0.0
        self._report: tuple[int, int] | None = None

    @property
    def lost(self) -> int:
        """Cumulative packets lost; negative with duplicates."""
        return self._expected() - self._received

    def took(self, packet: Packet, now_ns: int) -> None:
        """Records a received packet."""
        number = self._numbers.take(packet.sequence)
        self._first = number if self._first is None else min(self._first, number)
        self._received += 1
        transit = now_ns * CLOCK_HZ // 1_000_000_000 - packet.timestamp
        if self._transit is not None:
            away = (transit - self._transit + (1 << 31)) % (1 << 32) - (1 << 31)
            self._jitter += (abs(away) - self._jitter) / 16
        self._transit = transit

    def reported(self, report: SenderReport, now_ns: int) -> None:
        """Records a sender report."""
        self._report = middle(report.ntp), now_ns

    def report(self, ssrc: int, source: int, now_ns: int) -> ReceiverReport:
        """Returns the receiver report on this source and starts the next interval."""
        expected, received = self._expected() - self._before[0], self._received - self._before[1]
        self._before = self._expected(), self._received
        fraction = max(0, expected - received) * 256 // expected if expected > 0 else 0
        last, delay = 0, 0
        if self._report is not None:
            last, delay = self._report[0], (now_ns - self._report[1]) * 65536 // 1_000_000_000
        highest = self._numbers.newest or 0
        return ReceiverReport(ssrc, source, min(fraction, 255), self.lost, highest, int(self._jitter), last, delay)

    def _expected(self) -> int:
        newest = self._numbers.newest
        return 0 if newest is None or self._first is None else newest - self._first + 1

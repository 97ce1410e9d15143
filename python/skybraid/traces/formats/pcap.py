"""Captures of both ends: the one-way delay and the loss of each packet.

Source: the pcap format (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng); RFC 791, 8200. A packet is the
same at both ends if its protocol, its IPv4 identification and its data agree (TCP: sequence and acknowledgement number
too); addresses, ports, checksums, TTL and DSCP may change on the way. Both clocks must agree to much less than the
delay. A packet that occurs several times at one end is left out and counted.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skybraid.traces.formats.source import MAX_ROWS, Options, Source, from_zero
from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
    b"\xa1\xb2\xc3\xd4": (">", 1e-6),
    b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
    b"\xa1\xb2\x3c\x4d": (">", 1e-9),
}
_NG = b"\x0a\x0d\x0d\x0a"
_TCP, _UDP = 6, 17


@dataclass(frozen=True)
class _Packet:
    """A packet: when it was seen in s since 1970, its TTL, its addresses, and what it is known by."""

    at_s: float
    ttl: int
    ends: bytes
    key: bytes


def recognises(source: Source) -> bool:
    """Whether the file is a capture."""
    return source.data[:4] in _MAGICS or source.data[:4] == _NG


def read(source: Source, options: Options) -> list[Measurement]:
    """Matches the packets of both captures, by direction; this file is the vehicle's unless the options differ.

    Raises:
        TraceError: there is no second capture, one is invalid, nothing matches, or the clocks disagree.
    """
    if options.peer is None:
        source.fail(None, "a capture of one end", "--peer with the capture of the other end")
    other = Source(options.peer)
    if not recognises(other):
        other.fail(None, "another format", "a capture (pcap or pcapng) of the other end")
    here, there = list(_packets(source)), list(_packets(other))
    own, twice = _unique(here)
    its, twice_there = _unique(there)
    common = own.keys() & its.keys()
    if not common:
        source.fail(None, f"no packet of {other.path}", "captures of both ends at the same time")
    directions: dict[bytes, list[bytes]] = {}
    for key in common:
        directions.setdefault(own[key].ends, []).append(key)
    sent = {ends for ends, keys in directions.items() if _is_sent(own, its, keys)}
    measurements = []
    for forward, direction in ((True, options.sent), (False, options.received)):
        begun, ended = (own, its) if forward else (its, own)
        # Addresses may differ at both ends, so a lost packet is known by the addresses that its flow has at its sender.
        flows = {begun[key].ends for key in common if (own[key].ends in sent) == forward}
        packets = sorted((one for one in begun.values() if one.ends in flows), key=lambda one: one.at_s)
        # What left before the other capture began or after it ended says nothing.
        first_s, last_s = min(one.at_s for one in ended.values()), max(one.at_s for one in ended.values())
        packets = [one for one in packets if first_s - 10 <= one.at_s <= last_s]
        if not packets:
            continue
        ambiguous = twice + twice_there
        measurements.append(_measurement(source, other, direction, packets, ended, ambiguous))
    return measurements


def _is_sent(own: dict[bytes, _Packet], its: dict[bytes, _Packet], keys: list[bytes]) -> bool:
    """Whether packets of one flow went from here to there: routers lower the TTL, and time passes."""
    lowered = np.median([own[key].ttl - its[key].ttl for key in keys])
    if lowered != 0:
        return bool(lowered > 0)
    return float(np.median([its[key].at_s - own[key].at_s for key in keys])) > 0


def _measurement(
    source: Source, other: Source, direction: str, packets: list[_Packet], ended: dict[bytes, _Packet], ambiguous: int
) -> Measurement:
    arrivals = [ended.get(one.key) for one in packets]
    delay_ms = np.array(
        [np.inf if to is None else 1e3 * (to.at_s - one.at_s) for one, to in zip(packets, arrivals, strict=True)]
    )
    if (delay_ms < 0).any():
        row = int(np.argmin(delay_ms))
        source.fail(None, f"{delay_ms[row]:g} ms {direction} to {other.path}", "clocks that agree at both ends")
    times_s = np.array([one.at_s for one in packets])
    # Two packets of one stamp: the later one is a nanosecond later.
    times_s = times_s[0] + np.maximum.accumulate(times_s - times_s[0] - 1e-9 * np.arange(len(packets)))
    times_s = times_s + 1e-9 * np.arange(len(packets))
    start_s = packets[0].at_s
    relative = from_zero(source, times_s - times_s[0] + 1e-9 * np.arange(len(packets)), [1] * len(packets))
    notes = [f"{len(packets)} packets, {int(np.isinf(delay_ms).sum())} lost"]
    if ambiguous:
        notes.append(f"{ambiguous} packets left out that occur several times in a capture")
    columns = (
        Column("delay", "ms", delay_ms, direction),
        Column("loss", "%", np.where(np.isinf(delay_ms), 100.0, 0.0), direction),
    )
    name = f"{source.path} and {other.path}"
    return Measurement(name, relative, columns, start_s, None, is_sampled=False, label=direction, notes=tuple(notes))


def _unique(packets: list[_Packet]) -> tuple[dict[bytes, _Packet], int]:
    counts = Counter(one.key for one in packets)
    found = {one.key: one for one in packets if counts[one.key] == 1}
    return found, len(packets) - len(found)


def _packets(source: Source) -> Iterator[_Packet]:
    frames = _pcapng(source) if source.data[:4] == _NG else _pcap(source)
    for count, (at_s, link, frame) in enumerate(frames):
        if count >= MAX_ROWS:
            source.fail(None, f"more than {MAX_ROWS} packets", "fewer")
        found = _packet(at_s, _network_layer(link, frame))
        if found is not None:
            yield found


def _pcap(source: Source) -> Iterator[tuple[float, int, bytes]]:
    data = source.data
    order, tick_s = _MAGICS[data[:4]]
    if len(data) < 24:
        source.fail(None, f"{len(data)} bytes", "a header of 24 bytes")
    link = struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF
    place = 24
    while place + 16 <= len(data):
        seconds, ticks, kept, _ = struct.unpack_from(f"{order}IIII", data, place)
        place += 16
        if place + kept > len(data):
            # A capture that was broken off ends inside a packet.
            return
        yield seconds + ticks * tick_s, link, data[place : place + kept]
        place += kept


def _pcapng(source: Source) -> Iterator[tuple[float, int, bytes]]:
    data, place, order = source.data, 0, "<"
    interfaces: list[tuple[int, float]] = []
    while place + 12 <= len(data):
        if data[place : place + 4] == _NG:
            order = "<" if data[place + 8 : place + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, length = struct.unpack_from(f"{order}II", data, place)
        if length < 12 or length % 4 or place + length > len(data):
            if length < 12 or length % 4:
                source.fail(None, f"a block of {length} bytes at byte {place}", "pcapng's blocks")
            return
        body = data[place + 8 : place + length - 4]
        if kind == 1 and len(body) >= 8:
            interfaces.append((struct.unpack_from(f"{order}H", body)[0], _tick_s(order, body[8:])))
        elif kind == 6 and len(body) >= 20:
            interface, high, low, kept, _ = struct.unpack_from(f"{order}IIIII", body)
            if interface >= len(interfaces):
                source.fail(None, f"interface {interface} at byte {place}", "an interface described before")
            link, tick_s = interfaces[interface]
            yield ((high << 32) | low) * tick_s, link, body[20 : 20 + kept]
        place += length


def _tick_s(order: str, options: bytes) -> float:
    """Returns the resolution of an interface's stamps in s (option 9, `if_tsresol`)."""
    place = 0
    while place + 4 <= len(options):
        code, length = struct.unpack_from(f"{order}HH", options, place)
        if code == 9 and length >= 1 and place + 5 <= len(options):
            value = options[place + 4]
            return 2.0 ** -(value & 0x7F) if value & 0x80 else 10.0**-value
        place += 4 + length + (-length) % 4
        if code == 0:
            break
    return 1e-6


def _network_layer(link: int, frame: bytes) -> bytes:
    """Returns the IP packet of a frame; empty for another one."""
    if link == 1:
        place = 12
        while frame[place : place + 2] in (b"\x81\x00", b"\x88\xa8"):
            place += 4
        return frame[place + 2 :] if frame[place : place + 2] in (b"\x08\x00", b"\x86\xdd") else b""
    headers = {0: 4, 12: 0, 14: 0, 101: 0, 108: 4, 113: 16, 228: 0, 229: 0, 276: 20}
    return frame[headers[link] :] if link in headers else b""


def _packet(at_s: float, packet: bytes) -> _Packet | None:
    """Returns what a packet is known by; None for what is no whole IP packet with data of its own."""
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        size = 4 * (packet[0] & 15)
        total = struct.unpack_from(">H", packet, 2)[0] or len(packet)
        if size < 20 or len(packet) < size:
            return None
        protocol, ttl = packet[9], packet[8]
        # Fragments after the first have no ports; the offset is part of what a packet is known by.
        identity = packet[4:6] + bytes([packet[6] & 0x3F, packet[7]])
        ends, data = packet[12:20], packet[size:total]
        is_first = packet[6] & 0x1F == 0 and packet[7] == 0
    elif len(packet) >= 40 and packet[0] >> 4 == 6:
        protocol, ttl, identity = packet[6], packet[7], b""
        ends, data, is_first = packet[8:40], packet[40 : 40 + struct.unpack_from(">H", packet, 4)[0]], True
    else:
        return None
    if is_first and protocol == _UDP and len(data) >= 8:
        ends, data = ends + data[:4], data[8:]
    elif is_first and protocol == _TCP and len(data) >= 20:
        ends, data = ends + data[:4], data[4:12] + data[12:14] + data[20:]
    digest = hashlib.blake2b(bytes([protocol]) + identity + data, digest_size=12).digest()
    return _Packet(at_s, ttl, ends, digest)

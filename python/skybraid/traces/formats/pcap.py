"""Captures of both ends: the one-way delay and the loss of each packet.

Source: the pcap format (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng); RFC 791, 8200. A packet is the
same at both ends if its protocol, its IPv4 identification and the first bytes of its data agree (TCP: sequence and
acknowledgement number too); addresses, ports, checksums, TTL and DSCP may change on the way, captures may be cut
(`tcpdump -s 96`), and network cards may join and split segments of TCP: a segment counts by its first byte. Both clocks
must agree to much less than the delay. A packet that occurs several times at one end is left out and counted.
"""

from __future__ import annotations

import bisect
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.formats.clocks import clock_notes
from skybraid.traces.formats.source import MAX_ROWS, Options, Source, from_zero
from skybraid.traces.measurement import Column, Measurement

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

_MAGICS = {
    b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
    b"\xa1\xb2\xc3\xd4": (">", 1e-6),
    b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
    b"\xa1\xb2\x3c\x4d": (">", 1e-9),
}
_NG = b"\x0a\x0d\x0d\x0a"
_TCP, _UDP = 6, 17
_KEPT = 64
"""Bytes of a packet's data that identify it."""

_MTU = 1500
"""Bytes above which a TCP segment was merged or will be split by the card."""


_STAMP_S = 2e-6
"""Uncertainty of stamps in s."""


@dataclass(frozen=True)
class _Packet:
    """Packet of a capture.

    Attributes:
        at_s: capture time in s since 1970.
        ttl: time to live, or hop limit.
        ends: addresses and ports.
        head: identifying header fields, to be compared with the first bytes of `data`.
        data: the first bytes after the headers.
        is_cut: whether the capture truncated `data`.
        segment: first sequence number and length of a TCP segment.
    """

    at_s: float
    ttl: int
    ends: bytes
    head: bytes
    data: bytes
    is_cut: bool
    segment: tuple[int, int] | None = None


def recognises(source: Source) -> bool:
    """Whether the file is a capture."""
    return source.data[:4] in _MAGICS or source.data[:4] == _NG


def read(source: Source, options: Options) -> list[Measurement]:
    """Matches the packets of two captures by direction; this file is the vehicle's unless the options differ.

    Raises:
        TraceError: there is no second capture, one is invalid, nothing matches, or the clocks disagree.
    """
    if options.peer is None:
        source.fail(
            None,
            "a capture of one end",
            "--peer with the capture of the other end (fit, assess: vehicle.pcap+ground.pcap)",
        )
    other = Source(options.peer)
    if not recognises(other):
        other.fail(None, "another format", "a capture (pcap or pcapng) of the other end")
    here, there = list(_packets(source)), list(_packets(other))
    for capture, packets in ((source, here), (other, there)):
        if not packets:
            links = ", ".join(str(link) for link in sorted({link for _, link, _ in _frames(capture)}))
            found = f"no whole IP packet (link layer {links})" if links else "no packet with its time"
            capture.fail(None, found, "a capture of the link, of IPv4 or IPv6, over Ethernet, PPP or `-i any`")
    # Truncated packets are compared by the bytes that both captures have.
    data_bytes = min([len(one.data) for one in (*here, *there) if one.is_cut], default=_KEPT)
    local, local_duplicates = _unique(here, data_bytes)
    remote, remote_duplicates = _unique(there, data_bytes)
    common = local.keys() & remote.keys()
    if not common:
        source.fail(None, f"no packet of {other.path}", "captures of both ends at the same time")
    if all(local[key].at_s == remote[key].at_s for key in common):
        other.fail(None, "the same packets at the very same times", "the capture of the other end")
    directions: dict[bytes, list[bytes]] = {}
    for key in common:
        directions.setdefault(local[key].ends, []).append(key)
    sent = {ends for ends, keys in directions.items() if _is_sent(local, remote, keys)}
    measurements = []
    for forward, direction in ((True, options.sent), (False, options.received)):
        sender, receiver = (local, remote) if forward else (remote, local)
        # Addresses may differ at both ends, so a lost packet is identified by the sender's addresses of its flow.
        flows = {sender[key].ends for key in common if (local[key].ends in sent) == forward}
        packets = sorted((one for one in sender.values() if one.ends in flows), key=lambda one: one.at_s)
        arrivals = _arrivals(sender, receiver, packets, data_bytes)
        took_s = [to_s - one.at_s for one, to_s in zip(packets, arrivals, strict=True) if np.isfinite(to_s)]
        if not took_s:
            continue
        # A packet sent before the other capture began, or in flight when it ended, is not lost.
        first_s = min(one.at_s for one in receiver.values())
        last_s = max(one.at_s for one in receiver.values()) - float(np.quantile(took_s, 0.99))
        counted = [
            (one, to_s)
            for one, to_s in zip(packets, arrivals, strict=True)
            if np.isfinite(to_s) or first_s <= one.at_s <= last_s
        ]
        packets, arrivals = [one for one, _ in counted], [to_s for _, to_s in counted]
        ambiguous = local_duplicates + remote_duplicates
        measurements.append(_measurement(source, other, direction, packets, arrivals, ambiguous))
    if len(measurements) > 1:
        first, second = ((_sent_s(one), one.columns[0].values) for one in measurements)
        notes = clock_notes(first, second)
        measurements = [replace(one, notes=(*one.notes, *notes)) for one in measurements]
    return measurements


def _sent_s(measurement: Measurement) -> Floats:
    return measurement.times_s + (measurement.start_unix_s or 0.0)


def _is_sent(local: dict[bytes, _Packet], remote: dict[bytes, _Packet], keys: list[bytes]) -> bool:
    """Whether packets of a flow went from `local` to `remote`: routers lower the TTL, and time passes."""
    lowered = np.median([local[key].ttl - remote[key].ttl for key in keys])
    if lowered != 0:
        return bool(lowered > 0)
    return float(np.median([remote[key].at_s - local[key].at_s for key in keys])) > 0


def _measurement(
    source: Source, other: Source, direction: str, packets: list[_Packet], arrivals_s: list[float], ambiguous: int
) -> Measurement:
    delay_ms = np.array([1e3 * (to_s - one.at_s) for one, to_s in zip(packets, arrivals_s, strict=True)])
    # A stamp in microseconds may be truncated, and is rounded as seconds since 1970.
    delay_ms = np.where((delay_ms < 0) & (delay_ms > -1e3 * _STAMP_S), 0.0, delay_ms)
    if (delay_ms < 0).any():
        row = int(np.argmin(delay_ms))
        source.fail(None, f"{delay_ms[row]:g} ms {direction} to {other.path}", "clocks that agree at both ends")
    times_s = np.array([one.at_s for one in packets])
    # Of two packets with the same stamp, the second is a nanosecond later.
    times_s = times_s[0] + np.maximum.accumulate(times_s - times_s[0] - 1e-9 * np.arange(len(packets)))
    times_s = times_s + 1e-9 * np.arange(len(packets))
    start_s = packets[0].at_s
    relative = from_zero(source, times_s - times_s[0] + 1e-9 * np.arange(len(packets)), [1] * len(packets))
    notes = [f"{direction}: {len(packets)} packets, {int(np.isinf(delay_ms).sum())} lost"]
    if ambiguous:
        notes.append(f"{ambiguous} packets left out that occur several times in a capture")
    split = sum(one.segment is not None and one.segment[1] > _MTU for one in packets)
    if split:
        notes.append(
            f"{split} segments of TCP were captured before the sender's card split them, so that what was lost of them "
            "but their first packet is unknown (ethtool -K IF tso off gso off)"
        )
    columns = (
        Column("delay", "ms", delay_ms, direction),
        Column("loss", "%", np.where(np.isinf(delay_ms), 100.0, 0.0), direction),
    )
    name = f"{source.path} and {other.path}"
    return Measurement(name, relative, columns, start_s, None, is_sampled=False, label=direction, notes=tuple(notes))


def _unique(packets: list[_Packet], data_bytes: int) -> tuple[dict[bytes, _Packet], int]:
    keys = [one.head + one.data[:data_bytes] for one in packets]
    counts = Counter(keys)
    found = {key: one for key, one in zip(keys, packets, strict=True) if counts[key] == 1}
    return found, len(packets) - len(found)


def _arrivals(
    sender: dict[bytes, _Packet], receiver: dict[bytes, _Packet], packets: list[_Packet], data_bytes: int
) -> list[float]:
    """Returns the arrival time of each packet in s since 1970; infinity: never.

    A TCP segment that the receiver's card merged into the previous one arrived with that one.
    """
    flows = {one.ends: receiver[key].ends for key, one in sender.items() if key in receiver}
    joined: dict[bytes, list[tuple[int, int, float]]] = {}
    for one in receiver.values():
        if one.segment is not None and one.segment[1] > _MTU:
            joined.setdefault(one.ends, []).append((*one.segment, one.at_s))
    for spans in joined.values():
        spans.sort()
    found = []
    for one in packets:
        to = receiver.get(one.head + one.data[:data_bytes])
        at_s = np.inf if to is None else to.at_s
        if to is None and one.segment is not None and (spans := joined.get(flows[one.ends], [])):
            first = one.segment[0]
            place = bisect.bisect_left(spans, (first, 0, 0.0)) - 1
            start, length, seen_s = spans[max(place, 0)]
            if start < first < start + length and seen_s >= one.at_s:
                at_s = seen_s
        found.append(at_s)
    return found


def _packets(source: Source) -> Iterator[_Packet]:
    for count, (at_s, link, frame) in enumerate(_frames(source)):
        if count >= MAX_ROWS:
            source.fail(None, f"more than {MAX_ROWS} packets", "fewer")
        found = _packet(at_s, _network_layer(link, frame))
        if found is not None:
            yield found


def _frames(source: Source) -> Iterator[tuple[float, int, bytes]]:
    """Yields the time in s since 1970, the number of the link layer and the bytes of each frame."""
    return _pcapng(source) if source.data[:4] == _NG else _pcap(source)


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
            # An interrupted capture ends inside a packet.
            return
        yield seconds + ticks * tick_s, link, data[place : place + kept]
        place += kept


def _pcapng(source: Source) -> Iterator[tuple[float, int, bytes]]:
    data, place, order = source.data, 0, "<"
    interfaces: list[tuple[int, float, int]] = []
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
            interfaces.append((struct.unpack_from(f"{order}H", body)[0], *_clock(order, body[8:])))
        elif kind == 6 and len(body) >= 20:
            interface, high, low, kept, _ = struct.unpack_from(f"{order}IIIII", body)
            if interface >= len(interfaces):
                source.fail(None, f"interface {interface} at byte {place}", "an interface described before")
            link, tick_s, offset_s = interfaces[interface]
            yield offset_s + ((high << 32) | low) * tick_s, link, body[20 : 20 + kept]
        place += length


def _clock(order: str, options: bytes) -> tuple[float, int]:
    """Returns the resolution of an interface's stamps in s (option 9, `if_tsresol`), and their offset in s (option 14).

    Without these options they are 1 us and 0 s.
    """
    tick_s, offset_s, place = 1e-6, 0, 0
    while place + 4 <= len(options):
        code, length = struct.unpack_from(f"{order}HH", options, place)
        if code == 9 and length >= 1 and place + 5 <= len(options):
            value = options[place + 4]
            tick_s = 2.0 ** -(value & 0x7F) if value & 0x80 else 10.0**-value
        if code == 14 and length == 8 and place + 12 <= len(options):
            (offset_s,) = struct.unpack_from(f"{order}q", options, place + 4)
        place += 4 + length + (-length) % 4
        if code == 0:
            break
    return tick_s, offset_s


def _network_layer(link: int, frame: bytes) -> bytes:
    """Returns the IP packet of a frame; empty for other frames."""
    if link == 1:
        place = 12
        while frame[place : place + 2] in (b"\x81\x00", b"\x88\xa8"):
            place += 4
        return frame[place + 2 :] if frame[place : place + 2] in (b"\x08\x00", b"\x86\xdd") else b""
    headers = {0: 4, 12: 0, 14: 0, 101: 0, 108: 4, 113: 16, 228: 0, 229: 0, 276: 20}
    return frame[headers[link] :] if link in headers else b""


def _packet(at_s: float, packet: bytes) -> _Packet | None:
    """Parses an IP packet with data of its own; None for any other packet."""
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        size = 4 * (packet[0] & 15)
        # With segmentation offload, segments above 64 KiB have no length.
        total = struct.unpack_from(">H", packet, 2)[0] or len(packet)
        if size < 20 or len(packet) < size:
            return None
        protocol, ttl = packet[9], packet[8]
        # Fragments after the first have no ports; the offset is part of the packet's identity.
        identity = packet[4:6] + bytes([packet[6] & 0x3F, packet[7]])
        ends, data = packet[12:20], packet[size:total]
        is_first = packet[6] & 0x1F == 0 and packet[7] == 0
    elif len(packet) >= 40 and packet[0] >> 4 == 6:
        protocol, ttl, identity, size = packet[6], packet[7], b"", 40
        total = 40 + struct.unpack_from(">H", packet, 4)[0]
        ends, data, is_first = packet[8:40], packet[40:total], True
    else:
        return None
    is_cut, segment = len(packet) < total, None
    if is_first and protocol == _UDP and len(data) >= 8:
        ends, data = ends + data[:4], data[8:]
    elif is_first and protocol == _TCP and len(data) >= 20:
        offset = 4 * (data[12] >> 4)
        length = total - size - offset
        ends, sequence = ends + data[:4], data[4:8]
        # Flags and acknowledgement of a segment with data may come from others that a card merged into it.
        identity, data = identity + (sequence if length else data[4:14]), data[offset:]
        segment = (int.from_bytes(sequence, "big"), length) if length else None
    return _Packet(at_s, ttl, ends, bytes([protocol]) + identity, data[:_KEPT], is_cut and len(data) < _KEPT, segment)

"""Telemetry logs of ground stations (`.tlog`): MAVLink packets, each preceded by its time of arrival.

Source: MAVLink's packet serialisation (versions 1 and 2) and message set common: RADIO_STATUS (109), RADIO (166 of
ardupilotmega), GLOBAL_POSITION_INT (33). A stamp is big-endian, in us since 1970. Each sender numbers its packets from
0 to 255; a missing number is a packet lost on the way here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.heavy import np
from skybraid.traces.formats.damage import sound_stamps
from skybraid.traces.formats.source import MAX_ROWS
from skybraid.traces.measurement import Column, Imported, MeasuredTrack, Measurement

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Options, Source

_POSITION, _RADIO_STATUS, _RADIO = 33, 109, 166
_EXTRA = {_POSITION: 104, _RADIO_STATUS: 185, _RADIO: 21}
"""Byte that the layout of each message adds to the checksum; other packets are accepted by position."""

_MAX_MISSED = 128
"""Number of missing numbers from which on a sender has restarted rather than lost packets."""

_GROUND = 200


class _Packet(NamedTuple):
    at_s: float
    sequence: int
    sender: tuple[int, int]
    kind: int
    payload: bytes


def recognises(source: Source) -> bool:
    """Whether the file begins with stamped MAVLink packets."""
    data = source.data[:600]
    if len(data) < 16 or data[8] not in (0xFE, 0xFD):
        return False
    year_2000_us, year_2100_us = 946684800 * 10**6, 4102444800 * 10**6
    stamp = int.from_bytes(data[:8], "big")
    return year_2000_us < stamp < year_2100_us


def read(source: Source, options: Options) -> list[Imported]:
    """Reads the loss by sender and second, the radio's values, and the track.

    Raises:
        TraceError: there is no packet, or the clock was set back.
    """
    packets = list(_packets(source))
    if not packets:
        source.fail(None, "no MAVLink packet", "stamped packets as ground stations log them")
    packets = _with_times(source, packets)
    found: list[Imported] = []
    del options
    found.append(_loss(source, packets))
    radio = _radio(source, packets)
    if radio is not None:
        found.append(radio)
    track = _track(source, packets)
    if track is not None:
        found.append(track)
    return found


def _packets(source: Source) -> Iterator[_Packet]:
    data, place = source.data, 0
    while place + 16 <= len(data):
        stamp = struct.unpack_from(">Q", data, place)[0] & ((1 << 60) - 1)
        start, length = place + 8, data[place + 9]
        if data[start] == 0xFE:
            head, kind, numbers = 6, data[start + 5], data[start + 2 : start + 5]
            end = start + head + length + 2
        elif data[start] == 0xFD and start + 10 <= len(data):
            head, numbers = 10, data[start + 4 : start + 7]
            kind = int.from_bytes(data[start + 7 : start + 10], "little")
            end = start + head + length + 2 + (13 if data[start + 2] & 1 else 0)
        else:
            place += 1
            continue
        if end > len(data):
            place += 1
            continue
        body = data[start + 1 : start + head + length]
        checksum = struct.unpack_from("<H", data, start + head + length)[0]
        if kind in _EXTRA and _crc(body + bytes([_EXTRA[kind]])) != checksum:
            place += 1
            continue
        payload = data[start + head : start + head + length]
        yield _Packet(stamp * 1e-6, numbers[0], (numbers[1], numbers[2]), kind, payload)
        place = end


def _with_times(source: Source, packets: list[_Packet]) -> list[_Packet]:
    """Returns packets in order of time; a packet with a damaged stamp is placed between its neighbours.

    Raises:
        TraceError: the clock was set back.
    """
    at_s = np.array([packet.at_s for packet in packets])
    sound = np.flatnonzero(sound_stamps(source, at_s, "taken as between their neighbours"))
    at_s = np.interp(np.arange(len(at_s)), sound, at_s[sound])
    return [packets[at]._replace(at_s=float(at_s[at])) for at in np.argsort(at_s, kind="stable")]


def _crc(data: bytes) -> int:
    """Returns the checksum of MAVLink (ITU X.25, CRC-16/MCRF4XX)."""
    crc = 0xFFFF
    for byte in data:
        mixed = (byte ^ crc) & 0xFF
        mixed ^= (mixed << 4) & 0xFF
        crc = (crc >> 8) ^ (mixed << 8) ^ (mixed << 3) ^ (mixed >> 4)
    return crc


def _loss(source: Source, packets: list[_Packet]) -> Measurement:
    """Returns the loss of the busiest sender per second; in a second without a packet, everything was lost."""
    start_s = packets[0].at_s
    counts = Counter(packet.sender for packet in packets)
    sender = counts.most_common(1)[0][0]
    own = [packet for packet in packets if packet.sender == sender]
    seconds = int(packets[-1].at_s - start_s) + 1
    if seconds > MAX_ROWS:
        source.fail(None, f"stamps {seconds} s apart", f"at most {MAX_ROWS} s: is a stamp damaged?")
    arrived, missed = np.zeros(seconds), np.zeros(seconds)
    before: _Packet | None = None
    for packet in own:
        arrived[int(packet.at_s - start_s)] += 1
        if before is not None and (skipped := (packet.sequence - before.sequence - 1) % 256) < _MAX_MISSED:
            # Missing packets were due between the two that arrived.
            due_s = np.linspace(before.at_s, packet.at_s, skipped + 2)[1:-1] - start_s
            np.add.at(missed, due_s.astype(np.int64), 1)
        before = packet
    total = arrived + missed
    share = np.where(total > 0, 100 * missed / np.maximum(total, 1), 100.0)
    # By convention, ground stations have system ids from 200 on (255, 250 …), vehicles lower ones.
    direction = "uplink" if sender[0] < _GROUND else "downlink"
    notes = (
        f"sender {sender[0]}.{sender[1]}: {len(own)} packets arrived, {int(missed.sum())} numbers missing",
        "a second without a packet counts as lost; the delay of telemetry is not known from a log of one end",
    )
    columns = (Column("loss", "%", share, direction),)
    times_s = np.arange(seconds, dtype=np.float64)
    return Measurement(str(source.path), times_s, columns, start_s, float(seconds), label="loss", notes=notes)


def _radio(source: Source, packets: list[_Packet]) -> Measurement | None:
    """Returns the values of the telemetry radio, at both ends of its link."""
    rows: list[tuple[float, tuple[int, ...]]] = []
    for packet in packets:
        if packet.kind in (_RADIO_STATUS, _RADIO):
            # rxerrors, fixed, rssi, remrssi, txbuf, noise, remnoise; version 2 truncates trailing zeros.
            values = struct.unpack_from("<HHBBBBB", packet.payload.ljust(9, b"\0"))
            if not rows or packet.at_s > rows[-1][0]:
                rows.append((packet.at_s, values))
    if not rows:
        return None
    table = np.array([values for _, values in rows], dtype=np.float64)
    names = ("rxerrors", "fixed", "rssi", "remote rssi", "transmit buffer", "noise", "remote noise")
    units = ("packets", "packets", "device", "device", "%", "device", "device")
    columns = tuple(Column(name, unit, table[:, at]) for at, (name, unit) in enumerate(zip(names, units, strict=True)))
    times_s = np.array([at_s for at_s, _ in rows])
    return Measurement(str(source.path), times_s - times_s[0], columns, rows[0][0], None, False, label="radio")


def _track(source: Source, packets: list[_Packet]) -> MeasuredTrack | None:
    rows: list[tuple[float, float, float, float]] = []
    for packet in packets:
        if packet.kind != _POSITION:
            continue
        _, latitude, longitude, altitude = struct.unpack_from("<Iiii", packet.payload.ljust(28, b"\0"))
        if (latitude, longitude) == (0, 0):
            # An autopilot sends zeros before its first fix.
            continue
        if not rows or packet.at_s > rows[-1][0]:
            rows.append((packet.at_s, latitude * 1e-7, longitude * 1e-7, altitude * 1e-3))
    if len(rows) < 2:
        return None
    times_s, latitude_deg, longitude_deg, altitude_m = np.array(rows).T
    notes = ("altitudes are above mean sea level",)
    return MeasuredTrack(
        str(source.path), times_s - times_s[0], latitude_deg, longitude_deg, altitude_m, float(times_s[0]), notes
    )

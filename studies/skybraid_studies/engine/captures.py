"""Captures of simulated connections: TCP packets with MPTCP options."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from skybraid.execute.runs import run
from skybraid.model.scenario import Scenario

MP_CAPABLE, MP_JOIN, DSS = 0, 1, 2
"""Subtypes of MPTCP's options, RFC 8684, section 8."""

_MPTCP = 30
_ENHANCED_PACKET = 6


class Packet(NamedTuple):
    """A captured packet.

    Attributes:
        at: time in ns.
        syn: whether it is a SYN.
        payload: payload length in bytes.
        options: MPTCP options by subtype.
        sequence: sequence number.
        acknowledged: acknowledgement number.
    """

    at: int
    syn: bool
    payload: int
    options: dict[int, bytes]
    sequence: int
    acknowledged: int


def captured(text: str, paths: Sequence[str], end: str = "vehicle", seed: int = 1) -> list[list[Packet]]:
    """Returns the packets of each path of a run, captured at one end."""
    with tempfile.TemporaryDirectory() as folder:
        run(Scenario(text, "captured.toml"), seed=seed, tables=[], out=Path(folder) / "result", pcap=True)
        captures = Path(folder) / "result" / "pcap"
        return [list(packets((captures / f"{name}-{end}.pcapng").read_bytes())) for name in paths]


def packets(capture: bytes) -> Iterator[Packet]:
    """Parses a pcapng file of raw IPv4 with TCP; yields its packets."""
    place = 0
    while place < len(capture):
        kind, length = (int.from_bytes(capture[place + at : place + at + 4], "little") for at in (0, 4))
        if kind == _ENHANCED_PACKET:
            high, low, size = (int.from_bytes(capture[place + at : place + at + 4], "little") for at in (12, 16, 20))
            yield _packet(high << 32 | low, capture[place + 28 : place + 28 + size])
        place += length


def _packet(at: int, packet: bytes) -> Packet:
    ip_length = 4 * (packet[0] & 15)
    tcp = packet[ip_length:]
    header = 4 * (tcp[12] >> 4)
    found: dict[int, bytes] = {}
    place = 20
    while place < header:
        kind = tcp[place]
        size = 1 if kind < 2 else tcp[place + 1]
        if kind == _MPTCP:
            found[tcp[place + 2] >> 4] = tcp[place : place + size]
        place += size
    sequence, acknowledged = (int.from_bytes(tcp[place : place + 4], "big") for place in (4, 8))
    payload = int.from_bytes(packet[2:4], "big") - ip_length - header
    return Packet(at, bool(tcp[13] & 2), payload, found, sequence, acknowledged)

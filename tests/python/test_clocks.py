"""Clocks of both ends that move against each other, and stamps with an offset."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from skybraid.traces import Measurement, load
from skybraid.traces.formats import Options
from test_trace_import import ethernet, measured, pcap, values, write

MOVED = "the clocks of both ends moved by"
GROUND = b"\x0a\0\0\x03"


def captures(folder: Path, offset_s: Callable[[float], float], down_ms: Callable[[float], float]) -> list[Measurement]:
    """Captures of packets both ways over ten minutes: 20 ms up, `down_ms` down; the ground's clock is ahead."""
    here, there = [], []
    for at in range(600):
        at_s = 1000.0 + at
        jitter_s = 1e-4 * (at % 7)
        here.append((at_s, ethernet(at, b"up %d" % at, 64)))
        there.append((at_s + 0.02 + jitter_s + offset_s(at), ethernet(at, b"up %d" % at, 61)))
        there.append((at_s + 0.5 + offset_s(at), ethernet(at, b"down %d" % at, 64, GROUND)))
        here.append((at_s + 0.5 + 1e-3 * down_ms(at) + jitter_s, ethernet(at, b"down %d" % at, 61, GROUND)))
    paths = [write(folder, name, pcap(sorted(packets))) for name, packets in (("a", here), ("b", there))]
    return [one for one in load(paths[0], None, Options(peer=paths[1])) if isinstance(one, Measurement)]


@pytest.mark.parametrize(
    ("offset_s", "down_ms", "is_moved"),
    [
        (lambda at: 50e-6 * (at - 300), lambda _: 40.0, True),
        (lambda at: 0.005 * (at > 300), lambda _: 40.0, True),
        (lambda _: 0.0, lambda _: 40.0, False),
        (lambda _: 0.01, lambda _: 40.0, False),
        # A longer route of one direction is none of the clocks.
        (lambda _: 0.0, lambda at: 40.0 + 15 * (at > 300), False),
    ],
    ids=["drift of 50 ppm", "step", "agree", "constant", "other route"],
)
def test_clocks_of_captures_that_move_are_said(
    offset_s: Callable[[float], float], down_ms: Callable[[float], float], is_moved: bool, tmp_path: Path
) -> None:
    found = captures(tmp_path, offset_s, down_ms)
    assert len(found) == 2
    for one in found:
        assert any(MOVED in note for note in one.notes) == is_moved


@pytest.mark.parametrize("drift", [0.0, 50e-6])
def test_clocks_of_irtt_that_move_are_said(drift: float, tmp_path: Path) -> None:
    trips = []
    for number in range(200):
        there_ns = int((0.02 + 1e-4 * (number % 5) + drift * number) * 1e9)
        sent = {"send": {"wall": 0, "monotonic": number * 10**9}}
        delay = {"send": there_ns, "receive": 40_000_000 - there_ns + 100_000 * (number % 5), "rtt": 40_000_000}
        trips.append({"seqno": number, "lost": "false", "timestamps": {"client": sent, "server": {}}, "delay": delay})
    path = write(tmp_path, "a.json", json.dumps({"round_trips": trips}))
    assert any(MOVED in note for note in measured(path, one_way=True).notes) == (drift > 0)
    assert not any(MOVED in note for note in measured(path).notes)


def pcapng(packets: list[tuple[float, bytes]], offset_s: int) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        body += b"\0" * (-len(body) % 4)
        return struct.pack("<II", kind, 12 + len(body)) + body + struct.pack("<I", 12 + len(body))

    # if_tsresol: 1 ns; if_tsoffset in s.
    options = struct.pack("<HHB3xHHqHH", 9, 1, 9, 14, 8, offset_s, 0, 0)
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(
        1, struct.pack("<HHI", 1, 0, 0) + options
    )
    for at_s, frame in packets:
        ticks = round((at_s - offset_s) * 1e9)
        data += block(6, struct.pack("<IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame)) + frame)
    return data


def test_stamps_of_pcapng_may_have_an_offset(tmp_path: Path) -> None:
    sent = [(1000.0 + at, ethernet(at, b"%d" % at, 64)) for at in range(5)]
    received = [(at_s + 0.05, ethernet(at, b"%d" % at, 61)) for at, (at_s, _) in enumerate(sent)]
    here, there = write(tmp_path, "a", pcapng(sent, 900)), write(tmp_path, "b", pcap(received))
    one = measured(here, peer=there)
    assert values(one, "uplink delay") == pytest.approx([50] * 5, abs=0.01)
    assert one.start_unix_s == pytest.approx(1000.0)

"""RTP and RTCP of cameras and screens, byte by byte, as Python uses the engine's."""

import random

import pytest

from skybraid import _core

MS = 1_000_000


def payloads(codec: str, unit: bytes, max_payload: int) -> list[bytes]:
    sender = _core.RtpSender(codec, max_payload + 12, 7, 0, "a@b")
    return [packet[12:] for packet in sender.frame([unit], 0)]


# Source: RFC 3550, 5.1.
def test_a_frame_ends_with_the_packet_that_has_the_marker() -> None:
    sender = _core.RtpSender("h264", 20, 0xCAFEBABE, 0xFFFF, "a@b")
    packets = sender.frame([b"\x67\x01", b"\x41\x9a"], 0x89ABCDEF)
    assert [packet.hex() for packet in packets] == ["8060ffff89abcdefcafebabe6701", "80e0000089abcdefcafebabe419a"]
    assert (sender.packets, sender.payload_bytes) == (2, 4)
    assert [_core.RtpReceiver.source_of(packet) for packet in packets] == [0xCAFEBABE] * 2


@pytest.mark.parametrize("text", ["", "80e01234", "40e0123489abcdefcafebabe41", "9f" * 20])
def test_what_is_no_packet_of_rtp_has_no_source(text: str) -> None:
    assert _core.RtpReceiver.source_of(bytes.fromhex(text)) is None


# Source: RFC 6184, 5.8: an IDR slice of NRI 3 (0x65) has the indicator 0x7c; RFC 7798, 4.4.3: type 49 and S, E, FuType.
@pytest.mark.parametrize(
    ("codec", "unit", "max_payload", "expected"),
    [
        ("h264", "6501020304", 5, ["6501020304"]),
        ("h264", "6501020304050607", 5, ["7c85010203", "7c05040506", "7c4507"]),
        ("h265", "26010102030405", 6, ["620193010203", "6201530405"]),
    ],
)
def test_a_unit_goes_alone_or_in_fragments(codec: str, unit: str, max_payload: int, expected: list[str]) -> None:
    assert [one.hex() for one in payloads(codec, bytes.fromhex(unit), max_payload)] == expected


# Source: RFC 3550, 6.4.1, 6.5 and 6.6; 4 for the time of NTP, whose second 2 208 988 800 is that of 1970.
def test_reports_are_those_of_the_standard() -> None:
    ntp = (2_208_988_801 << 32) + (1 << 31)
    sender = _core.RtpSender("h264", 1200, 0xCAFEBABE, 0, "a@b")
    sender.frame([b"\x41\x9a\x00"], 0)
    compound = sender.report(ntp, 90_000, True)
    assert compound.hex(" ", 4) == (
        "80c80006 cafebabe 83aa7e81 80000000 00015f90 00000001 00000003 "
        "81ca0003 cafebabe 01036140 62000000 81cb0001 cafebabe"
    )
    assert _core.is_rtcp(compound)
    report, bye = _core.rtcp_parts(compound, 0)
    assert (report.kind, report.ssrc, report.ntp, report.timestamp) == ("sender", 0xCAFEBABE, ntp, 90_000)
    assert (bye.kind, bye.ssrc) == ("bye", 0xCAFEBABE)


def test_the_sender_learns_losses_and_the_round_trip() -> None:
    ntp = 1000 << 32
    sender = _core.RtpSender("h264", 15, 9, 0, "a@b")
    receiver = _core.RtpReceiver("h264", 150 * MS, 2, 9, "c@d")
    packets = sender.frame([b"\x41\x9a\x00"] * 8, 0)
    for packet in packets[:3] + packets[5:]:
        receiver.take(0, packet)
    receiver.take_report(0, ntp)
    (part,) = _core.rtcp_parts(receiver.report(500 * MS, False), ntp + (1 << 32))
    # The receiver held the report for half a second: the way took half a second more.
    assert (part.kind, part.ssrc, part.source, part.lost) == ("receiver", 2, 9, 2)
    assert part.round_trip_s == pytest.approx(0.5)
    assert receiver.lost == 2


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_frames_come_with_their_units_and_the_time_they_are_due(codec: str) -> None:
    unit = {"h264": b"\x65\x88\x80", "h265": b"\x26\x01\x80"}[codec] + bytes(2000)
    sender = _core.RtpSender(codec, 1200, 9, 0xFFFE, "a@b")
    receiver = _core.RtpReceiver(codec, 150 * MS, 2, 9, "c@d")
    for packet in sender.frame([unit], 900):
        receiver.take(20 * MS, packet)
    (frame,) = receiver.frames(20 * MS)
    assert (frame.units, frame.complete, frame.intact) == ([unit], True, True)
    assert (frame.due_ns, frame.ticks) == (170 * MS, receiver.ticks(900))
    assert receiver.next_ns() is None
    assert receiver.flush() == []


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_nothing_that_comes_on_the_port_is_taken_amiss(codec: str) -> None:
    choose = random.Random(3550)
    receiver = _core.RtpReceiver(codec, 50 * MS, 2, 9, "c@d")
    for number in range(5000):
        data = bytearray(choose.randbytes(choose.randrange(0, 40)))
        data[:1] = bytes([0x80 | choose.choice((0, 0, 0, 0x10, 0x20, 0x01))])
        # Near one another, so that frames are made of them.
        data[2:8] = (number + choose.randrange(-3, 3) & 0xFFFF).to_bytes(2, "big") + (300 * number).to_bytes(4, "big")
        _core.rtcp_parts(bytes(data), 0)
        receiver.take(number * MS, bytes(data))
        receiver.frames(number * MS)
        receiver.report(number * MS, False)
    # What is given up is not kept.
    assert len(receiver.flush()) < 100

"""A camera and a screen as programs: RTP and RTCP byte by byte, and the jitter buffer."""

import random

import pytest

from skybraid.video import rtp
from skybraid.video.jitter import JitterBuffer

MS = 1_000_000


# Source: RFC 3550, 5.1.
def test_the_header_of_rtp_has_version_marker_type_number_time_and_source() -> None:
    packet = rtp.Packet(marker=True, sequence=0x1234, timestamp=0x89ABCDEF, ssrc=0xCAFEBABE, payload=b"\x41\x9a")
    assert packet.to_bytes().hex() == "80e0123489abcdefcafebabe419a"
    assert rtp.Packet.of(packet.to_bytes()) == packet


def test_sources_extension_and_padding_are_no_payload() -> None:
    data = bytes.fromhex("b2601234 89abcdef cafebabe 00000001 00000002 bede0001 01020304 419a 000003".replace(" ", ""))
    found = rtp.Packet.of(data)
    assert found is not None
    assert (found.marker, found.payload) == (False, b"\x41\x9a")


@pytest.mark.parametrize("text", ["", "80e01234", "40e0123489abcdefcafebabe41", "9f" * 20])
def test_what_is_no_packet_of_rtp_is_none(text: str) -> None:
    assert rtp.Packet.of(bytes.fromhex(text)) is None


# Source: RFC 6184, 5.8: an IDR slice of NRI 3 (0x65) has the indicator 0x7c; RFC 7798, 4.4.3: type 49 and S, E, FuType.
@pytest.mark.parametrize(
    ("codec", "unit", "most", "expected"),
    [
        ("h264", "6501020304", 5, ["6501020304"]),
        ("h264", "6501020304050607", 5, ["7c85010203", "7c05040506", "7c4507"]),
        ("h265", "26010102030405", 6, ["620193010203", "6201530405"]),
    ],
)
def test_a_unit_goes_alone_or_in_fragments(codec: str, unit: str, most: int, expected: list[str]) -> None:
    found = list(rtp.payloads(codec, bytes.fromhex(unit), most))
    assert [one.hex() for one in found] == expected
    assert list(rtp.units(codec, enumerate(found))) == [bytes.fromhex(unit)]
    assert bytes.fromhex(unit).startswith(rtp.beginning(codec, found[0])[:5])


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_units_of_which_a_packet_is_lost_are_left_out_and_the_others_are_as_they_were(codec: str) -> None:
    choose = random.Random(6184)
    for _ in range(300):
        head = {"h264": b"\x41", "h265": b"\x02\x01"}[codec]
        sent = [head + choose.randbytes(choose.randrange(1, 400)) for _ in range(5)]
        packets = [(place, part) for place, unit in enumerate(sent) for part in rtp.payloads(codec, unit, 50)]
        lost = {number for number in range(len(packets)) if choose.random() < 0.05}
        arrived = [(number, part) for number, (_, part) in enumerate(packets) if number not in lost]
        hit = {packets[number][0] for number in lost}
        assert list(rtp.units(codec, arrived)) == [unit for place, unit in enumerate(sent) if place not in hit]


# Source: RFC 6184, 5.7.1 (STAP-A); RFC 7798, 4.4.2.
@pytest.mark.parametrize(("codec", "head"), [("h264", "78"), ("h265", "6001")])
def test_units_that_share_a_packet_are_told_apart(codec: str, head: str) -> None:
    payload = bytes.fromhex(head + "0003674201" + "000268ce")
    assert list(rtp.units(codec, [(0, payload)])) == [b"\x67\x42\x01", b"\x68\xce"]
    assert rtp.beginning(codec, payload) == b"\x67\x42\x01"


# Source: RFC 3550, 6.4.1 and 6.6; 4 for the time of NTP, whose second 2 208 988 800 is that of 1970.
def test_reports_are_those_of_the_standard_and_are_read_again() -> None:
    sender = rtp.SenderReport(0xCAFEBABE, rtp.ntp(1_500_000_000), 90_000, 7, 700)
    assert sender.to_bytes().hex() == "80c80006cafebabe83aa7e81800000000001 5f9000000007000002bc".replace(" ", "")
    receiver = rtp.ReceiverReport(1, 2, 64, -3, 0x10005, 9, 0x7E818000, 0x8000)
    compound = sender.to_bytes() + rtp.description(2, "a@b") + receiver.to_bytes() + rtp.Bye(2).to_bytes()
    assert list(rtp.control(compound)) == [sender, receiver, rtp.Bye(2)]
    assert rtp.is_control(compound)
    assert not rtp.is_control(rtp.Packet(True, 0, 0, 0, b"x").to_bytes())
    # Half a second after the sender's report, the receiver held it for half: the way took half a second more.
    assert receiver.round_trip_s(sender.ntp + (1 << 32)) == pytest.approx(0.5)
    assert rtp.unix_ns(sender.ntp) == 1_500_000_000


# Source: RFC 3550, A.3: eight of ten expected came, and the numbers went beyond 16 bits.
def test_a_receiver_counts_what_is_lost_over_the_end_of_the_numbers() -> None:
    reception = rtp.Reception()
    for number in [0xFFFA, 0xFFFB, 0xFFFC, 0xFFFE, 0xFFFF, 0, 2, 3]:
        reception.took(rtp.Packet(False, number, 0, 2, b"x"), 0)
    report = reception.report(1, 2, 0)
    assert (report.lost, report.fraction_lost, report.highest) == (2, 2 * 256 // 10, 0x10003)
    assert reception.report(1, 2, 0).fraction_lost == 0


# The jitter buffer.

SLICE = {True: b"\x65\x88\x80", False: b"\x41\x9a\x00"}
"""The first bytes of an IDR slice and of another one, each of a frame's first block."""


def play(arrivals: list[tuple[float, int]], frames: int = 8) -> list[tuple[float, bool]]:
    """Ten frames a second of two packets, a key frame every four; what arrives, as (ms, packet). Gives when shown and
    whether undamaged."""
    buffer = JitterBuffer("h264", 150 * MS)
    packets = []
    for number in range(frames):
        first, last = rtp.payloads("h264", SLICE[number % 4 == 0] + bytes([number + 1]) * 60, 40)
        for place, payload in enumerate((first, last)):
            sequence, timestamp = (2 * number + place + 0xFFFD) & 0xFFFF, (9000 * number - 100) & 0xFFFF_FFFF
            packets.append(rtp.Packet(place == 1, sequence, timestamp, 7, payload))
    shown: list[tuple[float, bool]] = []
    times = sorted({float(at) for at, _ in arrivals} | set(map(float, range(0, 2000, 10))))
    for now in times:
        for at, number in arrivals:
            if at == now:
                buffer.put(int(at * MS), packets[number])
        for frame in buffer.take(int(now * MS)):
            at = max(now, round(frame.due_ns / MS, 3), shown[-1][0] if shown else 0.0)
            shown.append((at, frame.intact))
    return shown


# By hand, as in the simulator: the least transit is 20 ms, so frame n is due at 100 n + 20 + 150 ms.
def test_frames_are_shown_when_they_are_due_and_late_ones_when_they_are_whole() -> None:
    arrivals = [(20, 0), (25, 1), (130, 2), (140, 3), (420, 4), (450, 5), (451, 6), (451, 7)]
    assert play([(float(at), number) for at, number in arrivals]) == [
        (170, True),
        (270, True),
        (450, True),
        (470, True),
    ]


def test_a_frame_with_a_gap_is_given_up_when_due_and_damages_those_up_to_the_next_key_frame() -> None:
    arrivals = [(20.0 + 100 * (number // 2), number) for number in range(16) if number != 3]
    assert play(arrivals) == [(100 * n + 170, n not in (1, 2, 3)) for n in range(8)]


def test_a_frame_that_is_lost_as_a_whole_is_not_shown_and_a_key_frame_heals_what_its_loss_did() -> None:
    arrivals = [(20.0 + 100 * (number // 2), number) for number in range(16) if number not in (6, 7)]
    assert play(arrivals) == [(100 * n + 170, True) for n in range(8) if n != 3]


@pytest.mark.parametrize("stuck", [0, 3])
def test_a_frame_whose_end_stays_away_is_waited_for_as_long_as_nothing_later_comes(stuck: int) -> None:
    arrivals = [(20.0 + 100 * (number // 2), number) for number in range(16)]
    arrivals = [(max(at, 900.0) if number > 2 * stuck else at, number) for at, number in arrivals]
    shown = play(arrivals)
    assert shown[stuck] == (900, True)
    assert len(shown) == 8
    assert all(intact for _, intact in shown)


def test_packets_that_come_out_of_order_or_twice_make_the_same_frames() -> None:
    arrivals = [(20.0 + 100 * (number // 2) + 60 * (1 - number % 2), number) for number in range(16)]
    twice = arrivals + [(at + 15, number) for at, number in arrivals]
    assert play(twice) == play(arrivals)
    assert [intact for _, intact in play(arrivals)] == [True] * 8


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_nothing_that_comes_on_the_port_is_taken_amiss(codec: str) -> None:
    choose = random.Random(3550)
    buffer, reception = JitterBuffer(codec, 50 * MS), rtp.Reception()
    parsed = 0
    for number in range(20_000):
        data = bytearray(choose.randbytes(choose.randrange(0, 40)))
        data[:1] = bytes([0x80 | choose.choice((0, 0, 0, 0x10, 0x20, 0x01))])
        # Near one another, so that frames are made of them.
        data[2:8] = (number + choose.randrange(-3, 3) & 0xFFFF).to_bytes(2, "big") + (300 * number).to_bytes(4, "big")
        list(rtp.control(bytes(data)))
        packet = rtp.Packet.of(bytes(data))
        if packet is not None:
            parsed += 1
            reception.took(packet, number * MS)
            buffer.put(number * MS, packet)
        buffer.take(number * MS)
        reception.report(1, 2, number * MS).to_bytes()
    assert parsed > 5000
    # What is given up is not kept.
    assert len(buffer.flush()) < 100

"""Logs as people have them: cut off by an interruption, of other versions of a tool, with numbers of unknown units."""

import math
from pathlib import Path

import pytest

from skybraid.traces import MeasuredTrack, TraceError, load
from skybraid.traces.formats import Options, Source, recognise
from skybraid.traces.formats.source import CUT
from test_trace_import import GPX, PING_WINDOWS, measured, values, write

LINUX = """\
PING 8.8.8.8 (8.8.8.8) 56(84) bytes of data.
64 bytes from 8.8.8.8: icmp_seq=1 ttl=55 time=12.1 ms
64 bytes from 8.8.8.8: icmp_seq=2 ttl=55 time=11.1 ms
"""


class TestPing:
    @pytest.mark.parametrize(
        "end", ["64 bytes from 8.8.8.8: icmp_s", "64 bytes from 8.8.8.8: icmp_seq=3 ttl=55 time=1"]
    )
    def test_a_reply_that_was_cut_off_is_left_out(self, end: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", LINUX + end))
        assert values(one, "rtt") == [12.1, 11.1]
        assert CUT in one.notes

    def test_a_reply_without_its_unit_is_no_shorter_time(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", LINUX + "64 bytes from 8.8.8.8: icmp_seq=3 ttl=55 time=123"))
        assert values(one, "rtt") == [12.1, 11.1]

    @pytest.mark.parametrize(
        "line", ["no answer yet for icmp_seq={}", "From 10.0.0.254 icmp_seq={} Destination Host Unreachable"]
    )
    def test_probes_without_an_answer_at_the_end_are_lost(self, line: str, tmp_path: Path) -> None:
        text = LINUX + "".join(f"{line.format(number)}\n" for number in (3, 4, 5))
        assert values(measured(write(tmp_path, "a", text)), "rtt") == [12.1, 11.1, *3 * [math.inf]]
        # Without its beginning too, and where numbers of 16 bits begin again.
        text = "64 bytes from 8.8.8.8: icmp_seq=65535 ttl=55 time=12.1 ms\n" + line.format(0) + "\n"
        assert values(measured(write(tmp_path, "b", text)), "rtt") == [12.1, math.inf]

    def test_stamps_of_the_repeated_hour_lose_no_probe(self, tmp_path: Path) -> None:
        whens = ["02:59:59", "02:00:00", "02:00:01"]
        lines = [
            f"2026-10-25 {w} 64 bytes from 8.8.8.8: icmp_seq={at} ttl=5 time=9 ms" for at, w in enumerate(whens, 1)
        ]
        one = measured(write(tmp_path, "a", "\n".join(lines) + "\n"), zone="Europe/Zurich")
        assert one.times_s.tolist() == pytest.approx([0, 1, 2])
        with pytest.raises(TraceError, match="found a stamp 3599 s before the one above it"):
            load(write(tmp_path, "a", "\n".join(lines) + "\n"))

    def test_a_date_without_a_zone_is_said_to_be_utc(self, tmp_path: Path) -> None:
        line = "2026-10-25 02:59:59 64 bytes from 8.8.8.8: icmp_seq=1 ttl=5 time=9 ms\n"
        assert "zone" in measured(write(tmp_path, "a", line)).notes[0]
        assert measured(write(tmp_path, "a", line), zone="UTC").notes == ()

    def test_freebsd_numbers_its_probes_of_ipv6_from_zero(self, tmp_path: Path) -> None:
        lines = ["PING(56=40+8+8 bytes) 2001:db8::2 --> 2001:db8::1"]
        lines += [f"16 bytes from 2001:db8::1, icmp_seq={at} hlim=58 time=12.5 ms" for at in (0, 2)]
        lines += ["", "--- a ping statistics ---", "4 packets transmitted, 2 packets received, 50.0% packet loss"]
        path = write(tmp_path, "a", "\n".join(lines) + "\n")
        assert recognise(Source(path)) == "ping-bsd"
        assert values(measured(path), "rtt") == [12.5, math.inf, 12.5, math.inf]

    def test_windows_goes_on_after_statistics_of_ctrl_break(self, tmp_path: Path) -> None:
        replies = "".join(f"Reply from 8.8.8.8: bytes=32 time={ms}ms TTL=117\n" for ms in (14, 15))
        end = "\nPing statistics for 8.8.8.8:\n    Packets: Sent = 5, Received = 4, Lost = 1 (20% loss),\n"
        one = measured(write(tmp_path, "a", f"{PING_WINDOWS}Control-Break\n{replies}{end}"))
        assert values(one, "rtt") == [12.0, math.inf, 1.0, 14.0, 15.0]

    def test_a_line_of_windows_that_was_cut_off_is_no_timeout(self, tmp_path: Path) -> None:
        text = "Pinging a with 32 bytes of data:\nReply from 8.8.8.8: bytes=32 time=12ms TTL=117\n"
        one = measured(write(tmp_path, "a", text + "Reply from 8.8.8.8: byt"))
        assert (values(one, "rtt"), one.notes[0]) == ([12.0], CUT)
        assert values(measured(write(tmp_path, "b", text + "Request timed out.")), "rtt") == [12.0, math.inf]


class TestTables:
    def test_a_last_row_that_was_cut_off_is_left_out(self, tmp_path: Path) -> None:
        text = "time,rtt_ms,dl_mbps\n2026-10-25T02:59:58Z,1,2\n2026-10-25T02:59:59Z,5"
        one = measured(write(tmp_path, "a", text))
        assert (values(one, "rtt"), one.notes) == ([1.0], (CUT,))
        with pytest.raises(TraceError, match="a:3: found 2 cells; expected 3"):
            load(write(tmp_path, "a", text + "\n"))

    def test_a_time_without_a_unit_is_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="a:1: found `time` without a unit; expected one in its heading"):
            load(write(tmp_path, "a", "time,rtt_ms\n0.0,12\n0.5,13\n"))

    def test_a_unit_after_a_number_is_not_passed_over(self, tmp_path: Path) -> None:
        options = Options(every_s=1.0, columns={"1": "downlink rate [Mbit/s]"})
        with pytest.raises(TraceError, match="a:1: found `12 K`; expected a number in Mbit/s without its unit"):
            load(write(tmp_path, "a", "12 K\n13 K\n"), "values", options)
        (one,) = load(write(tmp_path, "a", "12 Mbit/s\n13 Mbit/s\n"), "values", options)
        assert not isinstance(one, MeasuredTrack)
        assert values(one, "downlink rate") == [12.0, 13.0]


def test_a_missing_altitude_is_taken_from_its_neighbours(tmp_path: Path) -> None:
    (whole,) = load(write(tmp_path, "a.gpx", GPX))
    first, rest = GPX.split("<ele>", 1)
    (one,) = load(write(tmp_path, "b.gpx", first + rest.split("</ele>", 1)[1]))
    assert isinstance(whole, MeasuredTrack)
    assert isinstance(one, MeasuredTrack)
    assert one.altitude_m[0] == one.altitude_m[1] == whole.altitude_m[1] > 0
    assert any("altitudes are missing" in note for note in one.notes)

"""Logs as people have them: cut off by an interruption, of other versions of a tool, with numbers of unknown units."""

import json
import math
import struct
from pathlib import Path

import pytest

from skybraid.traces import MeasuredTrack, TraceError, import_files, load, read, stats
from skybraid.traces.formats import Options, Source, recognise
from skybraid.traces.formats.source import CUT
from skybraid.traces.measurement import gaps_of
from test_trace_import import DISH_CSV, GPX, IPERF3_TEXT, PING_WINDOWS, iperf3, irtt, measured, values, write

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

    def test_a_zone_of_several_places_is_asked_for(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a", "[2026-05-13 10:00:00 CST] 64 bytes from 8.8.8.8: icmp_seq=1 ttl=55 time=12.1 ms\n")
        with pytest.raises(TraceError, match="a: found the zone `CST`; expected --zone"):
            load(path)
        assert measured(path, zone="Asia/Shanghai").start_unix_s == pytest.approx(1778637599.9879)

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

    @pytest.mark.parametrize(
        ("lines", "count", "every_s"),
        [
            (
                "\n--- 8.8.8.8 ping statistics ---\n5 packets transmitted, 0 received, time 4099ms\n",
                5,
                1.02475,
            ),
            ("no answer yet for icmp_seq=1\nno answer yet for icmp_seq=2\n", 2, 1.0),
            ("From 10.0.0.1 icmp_seq=1 Destination Host Unreachable\n", 1, 1.0),
        ],
    )
    def test_a_log_without_any_reply_is_an_outage(self, lines: str, count: int, every_s: float, tmp_path: Path) -> None:
        stamp = "[2023-05-13 10:44:47.5] "
        heading = LINUX.splitlines(keepends=True)[0]
        one = measured(write(tmp_path, "a", stamp + heading + lines), zone="UTC")
        assert (values(one, "rtt"), values(one, "round_trip_loss")) == ([math.inf] * count, [100] * count)
        assert one.times_s == pytest.approx([every_s * at for at in range(count)])
        assert one.start_unix_s == 1683974687.5
        assert f"none of {count} probes was answered" in one.notes[0]
        with pytest.raises(TraceError, match="expected a reply"):
            load(write(tmp_path, "a", heading))
        path = write(tmp_path, "a.csv", "time [s],rtt [ms]\n0,inf\n1,inf\n")
        with pytest.raises(TraceError, match=r"a.csv, rtt: found 2 s without a path; expected a rtt"):
            stats(read(path))

    @pytest.mark.parametrize("tool", ["ping", "ping-bsd", "fping"])
    def test_a_pause_of_the_tool_is_a_gap(self, tool: str, tmp_path: Path) -> None:
        forms = {
            "ping": ("64 bytes from 8.8.8.8: icmp_seq={} ttl=55 time=10 ms", LINUX.splitlines()[0]),
            "ping-bsd": (
                "64 bytes from 8.8.8.8: icmp_seq={} ttl=55 time=10.0 ms",
                "PING 8.8.8.8 (8.8.8.8): 56 data bytes",
            ),
            "fping": ("8.8.8.8 : [{}], 64 bytes, 10.0 ms (10.0 avg, 0% loss)", ""),
        }
        form, heading = forms[tool]
        lines = [f"[{1683992966 + at + (3600 if at > 20 else 0)}.5] {form.format(at + 1)}" for at in range(40)]
        path = write(tmp_path, "a", "\n".join([heading, *lines, ""]))
        one = measured(path, tool)
        # Only the BSDs count from 0, so that one probe was lost.
        lost = int(tool == "ping-bsd")
        assert [(gap.start_s, gap.end_s) for gap in gaps_of(one)] == [pytest.approx((lost + 21, lost + 3621), abs=0.01)]
        with pytest.raises(TraceError, match="1 gap"):
            import_files([path], tmp_path / "a.csv", tool)

    def test_stamps_without_a_year_continue_after_new_year(self, tmp_path: Path) -> None:
        days = ["Dec 31 23:59:59", "Jan  1 00:00:00", "Jan  1 00:00:01"]
        reply = "64 bytes from 8.8.8.8: icmp_seq={} ttl=55 time=10 ms"
        lines = [f"{day} {reply.format(at + 1)}" for at, day in enumerate(days)]
        one = measured(write(tmp_path, "a", "\n".join([LINUX.splitlines()[0], *lines, ""])))
        assert one.times_s == pytest.approx([0, 1, 2])

    def test_of_several_replies_of_fping_the_first_counts(self, tmp_path: Path) -> None:
        lines = [f"8.8.8.8 : [{at}], 64 bytes, {ms} ms (12 avg, 0% loss)" for at, ms in ((0, 12), (1, 14), (0, 33))]
        assert values(measured(write(tmp_path, "a", "\n".join([*lines, ""]))), "rtt") == [12, 14]

    def test_windows_goes_on_after_statistics_of_ctrl_break(self, tmp_path: Path) -> None:
        replies = "".join(f"Reply from 8.8.8.8: bytes=32 time={ms}ms TTL=117\n" for ms in (14, 15))
        end = "\nPing statistics for 8.8.8.8:\n    Packets: Sent = 5, Received = 4, Lost = 1 (20% loss),\n"
        one = measured(write(tmp_path, "a", f"{PING_WINDOWS}Control-Break\n{replies}{end}"))
        assert values(one, "rtt") == [12.0, math.inf, 1.0, 14.0, 15.0]

    def test_a_line_of_windows_that_was_cut_off_is_no_timeout(self, tmp_path: Path) -> None:
        text = "Pinging a with 32 bytes of data:\nReply from 8.8.8.8: bytes=32 time=12ms TTL=117\n"
        one = measured(write(tmp_path, "a", text + "Reply from 8.8.8.8: byt"))
        assert (values(one, "rtt"), one.notes[-1]) == ([12.0], CUT)
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


def test_a_point_without_a_fix_is_no_place_on_the_equator(tmp_path: Path) -> None:
    form = '<trkpt lat="{}" lon="{}"><ele>400</ele><time>2026-05-13T10:00:0{}Z</time></trkpt>'
    places = [(0, 0), (47.1, 8.5), (0, 0), (47.2, 8.5)]
    points = "".join(form.format(*place, at) for at, place in enumerate(places))
    text = '<gpx xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{}</trkseg></trk></gpx>'
    (one,) = load(write(tmp_path, "a.gpx", text.format(points)))
    assert isinstance(one, MeasuredTrack)
    assert (one.times_s.tolist(), one.latitude_deg.tolist()) == ([0, 2], [47.1, 47.2])
    assert one.notes == ("2 of 4 points left out, at 0, 0 without a fix",)
    with pytest.raises(TraceError, match="found only points at 0, 0; expected points with a fix"):
        load(write(tmp_path, "b.gpx", text.format(form.format(0, 0, 1))))


def test_a_missing_altitude_is_taken_from_its_neighbours(tmp_path: Path) -> None:
    (whole,) = load(write(tmp_path, "a.gpx", GPX))
    first, rest = GPX.split("<ele>", 1)
    (one,) = load(write(tmp_path, "b.gpx", first + rest.split("</ele>", 1)[1]))
    assert isinstance(whole, MeasuredTrack)
    assert isinstance(one, MeasuredTrack)
    assert one.altitude_m[0] == one.altitude_m[1] == whole.altitude_m[1] > 0
    assert any("altitudes are missing" in note for note in one.notes)


class TestOtherTools:
    def test_a_stream_of_iperf3_that_was_cut_off_is_kept(self, tmp_path: Path) -> None:
        report = json.loads(iperf3())
        events = [{"event": "start", "data": report["start"]}]
        events += [{"event": "interval", "data": one} for one in report["intervals"]]
        text = "\n".join(map(json.dumps, events))
        one = measured(write(tmp_path, "a", text[:-20]))
        whole = values(measured(write(tmp_path, "b", text)), "uplink rate")
        assert values(one, "uplink rate") == whole[:-1]
        assert CUT in one.notes

    def test_a_report_that_was_cut_off_keeps_its_intervals(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.json", iperf3()[:-120]))
        assert values(one, "uplink rate") == [94.4]
        assert "the file was cut off: what came before is used" in one.notes
        assert values(measured(write(tmp_path, "b.json", irtt()[:-200])), "rtt") == [48.0, math.inf]

    @pytest.mark.parametrize("form", ["{}\n{}", "[{}, {}]", '{}\n{{"start": {{}}, "error": "unable to connect"}}\n{}'])
    def test_tests_of_iperf3_keep_the_time_between_them(self, form: str, tmp_path: Path) -> None:
        text = form.format(iperf3(), iperf3().replace("1683995463", "1683995473"))
        one = measured(write(tmp_path, "a.json", text))
        assert values(one, "uplink rate") == [94.4, 5.24, 94.4, 5.24]
        assert one.times_s.tolist() == [0, 1, 10, 11]
        assert len(gaps_of(one)) == 1

    @pytest.mark.parametrize("keep", ["", " sec "])
    def test_logs_of_iperf3_with_times_are_one_series(self, keep: str, tmp_path: Path) -> None:
        text, rows = "", 0
        for hour in (10, 11):
            for line in IPERF3_TEXT.splitlines():
                rows = (rows + (" sec " in line)) % 5
                text += f"Wed May 13 {hour}:00:{rows:02d} 2026 {line}\n" if keep in line else ""
        one = measured(write(tmp_path, "a", text))
        assert values(one, "uplink rate") == 2 * [94.4, 5.24, 0.0]
        assert one.times_s.tolist() == [0, 1, 2, 3600, 3601, 3602]

    def test_logs_of_iperf3_without_times_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="a: found 2 tests without their times; expected one test in a file"):
            load(write(tmp_path, "a", 2 * IPERF3_TEXT))

    def test_mtr_split_is_no_series(self, tmp_path: Path) -> None:
        text = "1 10.0.0.1 0 1 1 0 0 0\n2 ???\n1 10.0.0.1 0 2 2 0 0 0\n"
        with pytest.raises(TraceError, match=r"a: found mtr --split.*; expected each probe: mtr --raw TARGET > FILE"):
            load(write(tmp_path, "a", text))

    def test_a_rate_that_is_no_number_is_named(self, tmp_path: Path) -> None:
        report = json.loads(iperf3())
        report["intervals"][1]["sum"]["bits_per_second"] = None
        with pytest.raises(TraceError, match=r"a: found intervals\[1\] with a rate of None bit/s"):
            load(write(tmp_path, "a", json.dumps(report)))

    def test_a_reply_of_mtr_that_was_cut_off_is_no_loss(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", "x 0 1\np 0 1105 1\nx 0 2\np 0 1205 2\nx 0 3\np 0 11"))
        assert (values(one, "rtt"), one.notes[-1]) == ([1.105, 1.205], CUT)

    def test_a_dishs_row_is_whole_or_an_error_with_its_line(self, tmp_path: Path) -> None:
        row = DISH_CSV.splitlines()[1]
        short, wrong = row[: row.rindex(",")], row.replace("35.5", "-35.5")
        assert wrong != row
        head = DISH_CSV.splitlines()[0]
        assert CUT in measured(write(tmp_path, "a", f"{DISH_CSV}{short}")).notes
        for line, found in ((short, "[0-9]+ cells"), (wrong, "-35.5 as pop_ping_latency_ms")):
            with pytest.raises(TraceError, match=f"b:2: found {found}"):
                load(write(tmp_path, "b", f"{head}\n{line}\n"))

    @pytest.mark.parametrize("end", ['{"dishGetStatus": {"dev', ""])
    def test_a_status_of_a_dish_that_was_cut_off_is_left_out(self, end: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", self.statuses(1000, 1001) + end))
        assert values(one, "rtt") == [35.5, 35.5]
        assert (CUT in one.notes) == (end != "")

    def test_a_dish_that_was_started_again_is_another_clock(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="a:3: found a status 996 s before the one above it"):
            load(write(tmp_path, "a", self.statuses(1000, 1001, 5, 6)))

    @staticmethod
    def statuses(*uptimes_s: int) -> str:
        reports = [{"deviceState": {"uptimeS": str(at_s)}, "popPingLatencyMs": 35.5} for at_s in uptimes_s]
        return "".join(json.dumps({"dishGetStatus": report}) + "\n" for report in reports)

    def test_a_line_of_fping_that_was_cut_off_is_said(self, tmp_path: Path) -> None:
        text = "8.8.8.8 : [0], 64 bytes, 12.3 ms (12.3 avg, 0% loss)\n8.8.8.8 : [1], 64 bytes, 1"
        one = measured(write(tmp_path, "a", text))
        assert values(one, "rtt") == [12.3]
        assert CUT in one.notes

    def test_a_capture_of_another_link_layer_is_named(self, tmp_path: Path) -> None:
        capture = (
            struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 105) + struct.pack("<IIII", 1, 0, 4, 4) + b"wifi"
        )
        path = write(tmp_path, "a.pcap", capture)
        with pytest.raises(TraceError, match=r"found no whole IP packet \(link layer 105\)"):
            load(path, None, Options(peer=path))


class TestLogsOfAircraft:
    START_US = 1_778_666_400 * 10**6

    def telemetry(self, *damaged: tuple[int, int]) -> bytes:
        """Returns fifty packets, ten a second, with some of their stamps replaced."""
        stamps_us = [self.START_US + number * 100_000 for number in range(50)]
        for number, at_us in damaged:
            stamps_us[number] = at_us
        packets = [
            struct.pack(">QBBBBBB", at_us, 0xFE, 9, number, 1, 1, 0) + bytes(11)
            for number, at_us in enumerate(stamps_us)
        ]
        return b"".join(packets)

    @pytest.mark.parametrize(
        "damaged",
        [
            [(20, START_US // 100)],
            [(20, START_US + 3600 * 10**6)],
            [(20, 0), (21, 1)],
            [(49, (1 << 60) - 1)],
        ],
    )
    def test_a_damaged_stamp_is_between_its_neighbours(self, damaged: list[tuple[int, int]], tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", self.telemetry(*damaged)))
        assert values(one, "uplink loss") == [0.0] * 5
        assert f"{len(damaged)} of 50 stamps are damaged: taken as between their neighbours" in one.notes

    def test_a_pause_of_telemetry_is_no_damage(self, tmp_path: Path) -> None:
        later = [(number, self.START_US + (600 + number) * 10**6) for number in range(25, 50)]
        one = measured(write(tmp_path, "a", self.telemetry(*later)))
        assert one.length_s == 650
        assert not any("damaged" in note for note in one.notes)

    def test_a_clock_that_was_set_back_is_refused(self, tmp_path: Path) -> None:
        earlier = [(number, self.START_US + (number - 3600) * 10**6) for number in range(25, 50)]
        with pytest.raises(TraceError, match=r"a: found a clock that was set back by 3577.4 s"):
            load(write(tmp_path, "a", self.telemetry(*earlier)))

    def test_a_damaged_stamp_of_ardupilot_loses_one_message(self, tmp_path: Path) -> None:
        def layout(number: int, length: int, name: bytes, form: bytes, columns: bytes) -> bytes:
            return b"\xa3\x95\x80" + struct.pack("<BB4s16s64s", number, length, name, form, columns)

        stamps_us = [second * 10**6 if second != 7 else 1 << 60 for second in range(20)]
        radio = b"".join(b"\xa3\x95\x83" + struct.pack("<QB", at_us, 200) for at_us in stamps_us)
        log = layout(128, 89, b"FMT", b"BBnNZ", b"Type,Length,Name,Format,Columns")
        log += layout(131, 12, b"RAD", b"QB", b"TimeUS,RSSI") + radio
        one = measured(write(tmp_path, "a.bin", log))
        assert one.times_s.tolist() == [second for second in range(20) if second != 7]
        assert "1 of 20 stamps are damaged: their messages are left out" in one.notes


class TestSeriesWithUnits:
    TEXT = "time [s],rate [Mbit/s],rtt [ms]\n0,12,30\n1,{},40\n2,14,50\n"

    @pytest.mark.parametrize("cell", ["", "nan", "NA", "-"])
    def test_a_cell_without_a_value_is_a_gap(self, cell: str, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", f"# starts at 2026-05-13T10:00:00.000Z\n{self.TEXT.format(cell)}")
        one = measured(path)
        assert one.start_unix_s == 1778666400.0
        assert [(gap.start_s, gap.end_s) for gap in gaps_of(one)] == [(1.0, 2.0)]
        assert values(one, "rtt") == [30, 40, 50]

    def test_decimal_commas_between_semicolons_are_read(self, tmp_path: Path) -> None:
        text = self.TEXT.format(13).replace(",", ";").replace("12;", "12,5;")
        assert values(measured(write(tmp_path, "a.csv", text)), "rate") == [12.5, 13.0, 14.0]

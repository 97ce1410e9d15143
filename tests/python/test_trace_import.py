"""Files of measuring tools: each format's values, units, gaps and lost probes, and what is refused."""

import contextlib
import gzip
import json
import math
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from conftest import Command
from skybraid import Scenario, run
from skybraid.cli.trace import app
from skybraid.traces import MeasuredTrack, Measurement, TraceError, import_files, join, load, read
from skybraid.traces.flights import read_flight
from skybraid.traces.formats import FORMATS, Options, Source, recognise
from test_traces import MEASUREMENTS, needs_measurements

PING_LINUX = """\
PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.
[1683995463.500000] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=44 time=78.0 ms
[1683995465.440000] 64 bytes from 10.0.0.1: icmp_seq=3 ttl=44 time=40.0 ms

--- 10.0.0.1 ping statistics ---
4 packets transmitted, 2 received, 50% packet loss, time 3003ms
"""
PING_MACOS = """\
PING 8.8.8.8 (8.8.8.8): 56 data bytes
Request timeout for icmp_seq 0
64 bytes from 8.8.8.8: icmp_seq=1 ttl=117 time=13.125 ms
Request timeout for icmp_seq 2
64 bytes from 8.8.8.8: icmp_seq=2 ttl=117 time=1104.500 ms
64 bytes from 8.8.8.8: icmp_seq=3 ttl=117 time=12.500 ms

--- 8.8.8.8 ping statistics ---
5 packets transmitted, 3 packets received, 40.0% packet loss
round-trip min/avg/max/stddev = 12.500/376.708/1104.500/514.633 ms
"""
PING_WINDOWS = """\

Pinging 8.8.8.8 with 32 bytes of data:
Reply from 8.8.8.8: bytes=32 time=12ms TTL=117
Request timed out.
Reply from 8.8.8.8: bytes=32 time<1ms TTL=117

Ping statistics for 8.8.8.8:
    Packets: Sent = 3, Received = 2, Lost = 1 (33% loss),
Approximate round trip times in milli-seconds:
    Minimum = 1ms, Maximum = 12ms, Average = 6ms
"""
PING_GERMAN = """\

Ping wird ausgeführt für 8.8.8.8 mit 32 Bytes Daten:
Antwort von 8.8.8.8: Bytes=32 Zeit=12ms TTL=117
Zeitüberschreitung der Anforderung.

Ping-Statistik für 8.8.8.8:
    Pakete: Gesendet = 2, Empfangen = 1, Verloren = 1
    (50% Verlust),
"""
MTR_RAW = """\
x 0 33000
h 0 192.168.1.1
p 0 1200 33000
x 1 33001
h 1 8.8.8.8
p 1 13105 33001
x 0 33002
x 1 33003
p 0 1100 33002
x 0 33004
x 1 33005
p 1 14000 33005
"""
MTR_CSV = """\
Mtr_Version,Start_Time,Status,Host,Hop,Ip,Loss%,Snt, ,Last,Avg,Best,Wrst,StDev,
MTR.0.95,1755251700,OK,8.8.8.8,1,192.168.0.1,0.00,60,0,0.22,0.26,0.22,0.56,0.05
MTR.0.95,1755251700,OK,8.8.8.8,2,8.8.8.8,5.00,60,0,12.22,13.50,11.22,40.56,2.05
Mtr_Version,Start_Time,Status,Host,Hop,Ip,Loss%,Snt, ,Last,Avg,Best,Wrst,StDev,
MTR.0.95,1755251760,OK,8.8.8.8,1,192.168.0.1,0.00,60,0,0.22,0.26,0.22,0.56,0.05
MTR.0.95,1755251760,OK,8.8.8.8,2,8.8.8.8,100.0,60,0,0.00,0.00,0.00,0.00,0.00
"""
IPERF3_TEXT = """\
Connecting to host 10.0.0.1, port 5201
[  5] local 10.0.0.2 port 47182 connected to 10.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  11.2 MBytes  94.4 Mbits/sec    0    208 KBytes
[  5]   1.00-2.00   sec   640 KBytes  5.24 Mbits/sec    3   1.41 KBytes
[  5]   2.00-3.00   sec  0.00 Bytes  0.00 bits/sec    1   1.41 KBytes
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-3.00   sec  11.8 MBytes  33.1 Mbits/sec    4             sender
[  5]   0.00-3.04   sec  11.5 MBytes  31.7 Mbits/sec                  receiver

iperf Done.
"""
IPERF3_UDP = """\
Connecting to host 10.0.0.1, port 5201
Reverse mode, remote host 10.0.0.1 is sending
[  5] local 10.0.0.2 port 47182 connected to 10.0.0.1 port 5201
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-1.00   sec  1.12 MBytes  9.38 Mbits/sec  0.041 ms  50/1000 (5%)
[  5]   1.00-2.00   sec  1.19 MBytes  10.0 Mbits/sec  0.050 ms  0/1000 (0%)
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-2.00   sec  2.38 MBytes  10.0 Mbits/sec  0.000 ms  0/2000 (0%)  sender
[  5]   0.00-2.00   sec  2.31 MBytes  9.69 Mbits/sec  0.050 ms  50/2000 (2.5%)  receiver
"""
NUTTCP = """\
   11.1875 MB /   1.00 sec =   93.8473 Mbps     0 retrans
    5.3682 MB /   0.50 sec =   90.0482 Mbps     3 retrans

   16.8750 MB /   1.54 sec =   91.9218 Mbps 1 %TX 4 %RX 3 retrans 12.28 msRTT
"""
NUTTCP_UDP = """\
    5.3682 MB /   1.00 sec =   45.0241 Mbps    40 /  5537 ~drop/pkt  0.72 ~%loss
    5.7549 MB /   1.00 sec =   48.2740 Mbps    -2 /  5893 ~drop/pkt -0.03 ~%loss
"""
OOKLA_CSV = """\
"server name","server id","idle latency","idle jitter","packet loss","download","upload","download bytes"
"Example","1234","12.5","0.9","0","12500000","2500000","100000000"
"Example","1234","15.5","1.9","1.5","1250000","250000","10000000"
"""
SIVEL_CSV = """\
Server ID,Sponsor,Server Name,Timestamp,Distance,Ping,Download,Upload,Share,IP Address
1234,Example,Bern,2026-05-13T10:00:00.123456Z,3.2,22.5,51234567.8,10234567.1,,192.0.2.1
1234,Example,Bern,2026-05-13T10:15:00.123456Z,3.2,25.5,41234567.8,9234567.1,,192.0.2.1
"""
LIBRESPEED_CSV = """\
Timestamp,Server Name,Address,Ping,Jitter,Download,Upload,Share,IP
2026-05-13T10:00:00Z,Example,http://example.org,22.5,1.1,51.23,10.2,,192.0.2.1
2026-05-13T10:15:00Z,Example,http://example.org,25.5,1.2,41.23,9.2,,192.0.2.1
"""
OOKLA_JSON = """\
{"type":"result","timestamp":"2026-05-13T10:00:00Z","ping":{"jitter":0.9,"latency":12.5},\
"download":{"bandwidth":12500000,"bytes":1},"upload":{"bandwidth":2500000,"bytes":1},"packetLoss":0}
{"type":"result","timestamp":"2026-05-13T10:10:00Z","ping":{"jitter":0.9,"latency":14.5},\
"download":{"bandwidth":1250000,"bytes":1},"upload":{"bandwidth":250000,"bytes":1},"packetLoss":2}
"""
DISH_CSV = """\
datetimestamp_utc,pop_ping_drop_rate,pop_ping_latency_ms,downlink_throughput_bps,uplink_throughput_bps,snr
2026-05-13T10:00:01,0,35.5,1500000.0,200000.0,
2026-05-13T10:00:02,1,,0.0,0.0,
2026-05-13T10:00:03,0.05,45.5,2500000.0,300000.0,
"""
DATED = """\
time,dl_mbps,ul_mbps,rtt_ms,loss_pct,cell
2026-05-13T12:00:00+02:00,20.5,5.5,40,0,17
2026-05-13T12:00:01+02:00,21.5,NA,41,5,17
2026-05-13T12:00:02+02:00,22.5,6.5,42,0,18
2026-05-13T12:00:03+02:00,22.5,6.5,42,0,18
2026-05-13T12:00:13+02:00,10.5,1.5,90,10,19
"""
GPX = """\
<?xml version="1.0"?>
<gpx version="1.1" creator="x" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>
<trkpt lat="47.0" lon="7.4"><ele>550</ele><time>2026-05-13T10:00:00Z</time></trkpt>
<trkpt lat="47.1" lon="7.5"><ele>650</ele><time>2026-05-13T10:01:00Z</time></trkpt>
</trkseg></trk></gpx>
"""
KML = """\
<kml xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2"><Placemark><gx:Track>
<when>2026-05-13T10:00:00Z</when><when>2026-05-13T10:01:00Z</when>
<gx:coord>7.4 47.0 550</gx:coord><gx:coord>7.5 47.1 650</gx:coord></gx:Track></Placemark></kml>
"""


def irtt() -> str:
    """Three probes of 20 ms: 48 ms, lost on the way back, 52 ms."""
    trips = []
    for number, (lost, send, receive) in enumerate([("false", 20, 28), ("true_down", 0, 0), ("false", 22, 30)]):
        client = {"send": {"wall": 1683995463 * 10**9 + number * 20_000_000, "monotonic": 100 + number * 20_000_000}}
        delay = {"send": send * 10**6, "receive": receive * 10**6, "rtt": (send + receive) * 10**6}
        trip = {"seqno": number, "lost": lost, "timestamps": {"client": client, "server": {}}, "ipdv": {}}
        trips.append(trip | {"delay": delay if lost == "false" else {}})
    return json.dumps({"version": {"irtt": "0.9.1"}, "round_trips": trips})


IPERF2_CSV = """\
20260513100001,10.0.0.2,42132,10.0.0.1,5001,3,0.0-1.0,1310720,10485760
20260513100002,10.0.0.2,42132,10.0.0.1,5001,3,1.0-2.0,0,0
20260513100002,10.0.0.2,42132,10.0.0.1,5001,3,0.0-2.0,1310720,5242880
"""
TEST_CONNECTION = """

   Destination: 8.8.8.8

Ping Source           Address                   Latency BufferSize Status
                                                   (ms)        (B)
---- ------           -------                   ------- ---------- ------
   1 DESKTOP-A        8.8.8.8                        12         32 Success
   2 DESKTOP-A        *                               *          * TimedOut
   3 DESKTOP-A        8.8.8.8                         0         32 Success
"""


def iperf3(*, reverse: int = 0, protocol: str = "TCP", server: bool = False) -> str:
    sums = [
        {"start": 0, "end": 1.0, "seconds": 1.0, "bytes": 1, "bits_per_second": 9.0e7, "omitted": True},
        {"start": 0, "end": 1.0, "seconds": 1.0, "bytes": 1, "bits_per_second": 9.44e7, "omitted": False},
        {"start": 1.0, "end": 2.0, "seconds": 1.0, "bytes": 1, "bits_per_second": 5.24e6, "omitted": False},
    ]
    heard = [one | {"lost_packets": 50, "packets": 1000, "lost_percent": 5} for one in sums]
    if protocol == "UDP":
        sums = heard if reverse else [one | {"packets": 1000} for one in sums]
    start = {
        "version": "iperf 3.16",
        "timestamp": {"time": "x", "timesecs": 1683995463},
        "test_start": {"protocol": protocol, "reverse": reverse, "num_streams": 1},
    }
    intervals = [{"streams": [], "sum": one} for one in sums]
    report = {"start": start, "intervals": intervals, "end": {}}
    if server:
        report["server_output_json"] = {"intervals": [{"streams": [], "sum": one} for one in heard]}
    return json.dumps(report, indent="\t")


def dish_history() -> str:
    rings = {
        "popPingDropRate": [0.0, 0.5, 1.0, 0.0, 0.0],
        "popPingLatencyMs": [20.0, 30.0, 999.0, 40.0, 10.0],
        "downlinkThroughputBps": [1e6, 2e6, 3e6, 4e6, 5e6],
        "uplinkThroughputBps": [1e5, 2e5, 3e5, 4e5, 5e5],
    }
    return json.dumps({"apiVersion": "9", "dishGetHistory": {"current": "7"} | rings})


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def measured(path: Path, format: str | None = None, **options: object) -> Measurement:  # noqa: A002
    one = load(path, format, Options(**options))[0]  # type: ignore[arg-type]
    assert isinstance(one, Measurement)
    return one


def values(one: Measurement, name: str) -> list[float]:
    return [round(float(value), 6) for value in one.column(name).values]


SAMPLES: dict[str, tuple[str, str | bytes]] = {
    "ping": ("linux.txt", PING_LINUX),
    "ping-bsd": ("macos.txt", PING_MACOS),
    "ping-windows": ("windows.txt", PING_WINDOWS),
    "fping": ("fping.txt", "8.8.8.8 : [0], 64 bytes, 20.0 ms (20.0 avg, 0% loss)\n8.8.8.8 : [1], timed out\n"),
    "test-connection": ("powershell.txt", TEST_CONNECTION),
    "mtr": ("raw.txt", MTR_RAW),
    "irtt": ("irtt.json", irtt()),
    "iperf3": ("iperf3.json", iperf3()),
    "iperf3-text": ("iperf3.txt", IPERF3_TEXT),
    "iperf2": ("iperf2.csv", IPERF2_CSV),
    "nuttcp": ("nuttcp.txt", NUTTCP),
    "speedtest": ("sivel.csv", SIVEL_CSV),
    "starlink": ("dish.csv", DISH_CSV),
    "dated": ("dated.csv", DATED),
    "track": ("flight.gpx", GPX),
    "csv": ("units.csv", "time [s],delay [ms]\n0,1\n1,2\n"),
    "mahimahi": ("numbers.txt", "0\n1\n1\n5\n9\n"),
    "hypatia": ("rtt.txt", "0,1000000.0000000000\n100,2000000.0000000000\n"),
}


class TestRecognition:
    @pytest.mark.parametrize("name", SAMPLES)
    def test_a_sample_is_of_its_own_format_alone(self, name: str, tmp_path: Path) -> None:
        assert recognise(Source(write(tmp_path, *SAMPLES[name]))) == name

    @pytest.mark.parametrize(
        ("name", "content", "expected"),
        [
            ("german.txt", PING_GERMAN, "ping-windows"),
            ("utf16.txt", PING_WINDOWS.encode("utf-16"), "ping-windows"),
            ("mtr.csv", MTR_CSV, "mtr"),
            ("udp.txt", IPERF3_UDP, "iperf3-text"),
            ("nuttcp-udp.txt", NUTTCP_UDP, "nuttcp"),
            ("ookla.csv", OOKLA_CSV, "speedtest"),
            ("ookla.jsonl", OOKLA_JSON, "speedtest"),
            ("libre.csv", LIBRESPEED_CSV, "speedtest"),
            ("history.json", dish_history(), "starlink"),
            ("track.kml", KML, "track"),
            ("irtt.json.gz", gzip.compress(irtt().encode()), "irtt"),
        ],
    )
    def test_variants_are_recognised(self, name: str, content: str | bytes, expected: str, tmp_path: Path) -> None:
        assert recognise(Source(write(tmp_path, name, content))) == expected

    @pytest.mark.parametrize(
        "content", ["0\n1\n0\n0\n1\n", "0\n0\n0\n1\n1\n1\n", "5\n3\n4\n", "words\nof no tool\n", "1,29,60\n2,36,40\n"]
    )
    def test_no_guess_is_made_of_what_may_be_anything(self, content: str, tmp_path: Path) -> None:
        path = write(tmp_path, "unknown.txt", content)
        with pytest.raises(TraceError, match=r"unknown.txt: found .* begins? with.*expected --format") as error:
            load(path)
        assert all(name in str(error.value) for name in FORMATS)

    def test_flags_are_not_read_as_opportunities(self, tmp_path: Path) -> None:
        path = write(tmp_path, "flags.txt", "0\n1\n0\n1\n")
        with pytest.raises(TraceError, match="found one whole number a line; expected --format mahimahi"):
            read(path)

    def test_an_unknown_format_lists_those_there_are(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="--format: found `pong`; expected one of csv, parquet"):
            load(write(tmp_path, "a.txt", "1"), "pong")


class TestPing:
    def test_linux_keeps_lost_probes_and_the_date(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", PING_LINUX))
        assert values(one, "rtt") == [78.0, math.inf, 40.0, math.inf]
        assert values(one, "round_trip_loss") == [0.0, 100.0, 0.0, 100.0]
        assert one.start_unix_s == pytest.approx(1683995463.5 - 0.078, abs=1e-5)

    def test_linux_without_stamps_takes_the_summarys_time(self, tmp_path: Path) -> None:
        lines = ["PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data."]
        lines += [f"64 bytes from 10.0.0.1: icmp_seq={at} ttl=64 time=10.0 ms" for at in (1, 2, 4)]
        lines += ["", "--- 10.0.0.1 ping statistics ---"]
        lines += ["4 packets transmitted, 3 received, 25% packet loss, time 609ms"]
        one = measured(write(tmp_path, "a", "\n".join(lines)))
        assert one.times_s.tolist() == pytest.approx([0, 0.203, 0.406, 0.609])
        # What `date` writes before each line is no count of packets.
        lines = [f"Tue Nov 24 17:16:{39 + at} UTC 2026 {line}" for at, line in enumerate(lines)]
        assert values(measured(write(tmp_path, "b", "\n".join(lines))), "rtt") == [10.0, 10.0, math.inf, 10.0]

    def test_a_log_cut_at_its_beginning_loses_nothing_there(self, tmp_path: Path) -> None:
        lines = [f"64 bytes from 10.0.0.1: icmp_seq={at} ttl=64 time=10.0 ms" for at in (500, 502)]
        lines += ["--- 10.0.0.1 ping statistics ---", "503 packets transmitted, 490 received, 3% packet loss"]
        one = measured(write(tmp_path, "a", "\n".join(lines)))
        assert values(one, "rtt") == [10.0, math.inf, 10.0, math.inf]

    def test_macos_counts_a_late_reply_and_both_ends(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", PING_MACOS), every_s=0.5)
        assert values(one, "rtt") == [math.inf, 13.125, 1104.5, 12.5, math.inf]
        assert one.times_s.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]

    @pytest.mark.parametrize("text", [PING_WINDOWS, PING_WINDOWS.encode("utf-16")])
    def test_windows_probes_follow_after_their_timeouts(self, text: str | bytes, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", text))
        assert values(one, "rtt") == [12.0, math.inf, 1.0]
        assert one.times_s.tolist() == [0.0, 1.0, 6.0]

    def test_windows_in_german_is_read_alike(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", PING_GERMAN.encode("cp1252")))
        assert values(one, "rtt") == [12.0, math.inf]

    def test_windows_statistics_must_agree_with_the_lines(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="found 3 probes; expected 4 as the statistics say"):
            load(write(tmp_path, "a", PING_WINDOWS.replace("Sent = 3", "Sent = 4")))

    @pytest.mark.parametrize(
        ("heading", "reply", "summary"),
        [
            (
                "PING a (a) 56(84) Bytes an Daten.",
                "64 Bytes von a: icmp_seq={} ttl=55 Zeit={} ms",
                "4 Pakete übertragen",
            ),
            (
                "PING a (a) 56(84) octets de données.",
                "64 octets de 10.0.0.8 : icmp_seq={} ttl=55 temps={} ms",
                "4 paquets",
            ),
            ("PING a (a) 56(84) バイトのデータ", "64 バイト応答 送信元 a: icmp_seq={} ttl=55 時間={}ミリ秒", "送信 4"),
            (
                "PING ::1(::1) 56 data bytes",
                "64 bytes from ::1: icmp_seq={} ttl=55 time={} ms",
                "4 packets transmitted",
            ),
        ],
    )
    def test_linux_is_read_in_any_language(self, heading: str, reply: str, summary: str, tmp_path: Path) -> None:
        lines = [heading, reply.format(1, "12.5"), reply.format(3, "104"), "", "--- a ---", summary, ""]
        one = measured(write(tmp_path, "a", "\n".join(lines)))
        assert values(one, "rtt") == [12.5, math.inf, 104.0, math.inf]

    def test_busybox_numbers_its_probes_from_zero(self, tmp_path: Path) -> None:
        lines = ["PING a (10.0.0.1): 56 data bytes"]
        lines += [f"64 bytes from 10.0.0.1: seq={at} ttl=55 time=1{at}.000 ms" for at in (0, 1, 3)]
        assert values(measured(write(tmp_path, "a", "\n".join(lines))), "rtt") == [10.0, 11.0, math.inf, 13.0]

    def test_a_log_without_its_beginning_lost_nothing_there(self, tmp_path: Path) -> None:
        lines = [f"64 bytes from 10.0.0.1: icmp_seq={at} ttl=55 time=10.0 ms" for at in (65534, 65535, 1)]
        assert values(measured(write(tmp_path, "a", "\n".join(lines))), "rtt") == [10.0, 10.0, math.inf, 10.0]

    @pytest.mark.parametrize(
        ("stamp", "start_unix_s"),
        [
            ("Wed May 13 10:00:{:02} UTC 2026: ", 1778666400),
            ("2026-05-13T12:00:{:02}+0200 ", 1778666400),
            ("May 13 10:00:{:02} ", None),
            ("[10:00:{:02}] ", None),
        ],
    )
    def test_stamps_of_scripts_are_the_clock(self, stamp: str, start_unix_s: float | None, tmp_path: Path) -> None:
        # Two probes a second, stamped in whole seconds, and a pause of eight seconds.
        seconds = [0, 0, 1, 1, 10, 10]
        lines = [stamp.format(0) + "PING a (10.0.0.1) 56(84) bytes of data."]
        lines += [
            f"{stamp.format(second)}64 bytes from 10.0.0.1: icmp_seq={at} ttl=55 time=0.0 ms"
            for at, second in enumerate(seconds, start=1)
        ]
        one = measured(write(tmp_path, "a", "\n".join(lines)))
        assert one.times_s.tolist() == pytest.approx([0, 0.5, 1, 1.5, 10, 10.5], abs=1e-5)
        assert one.start_unix_s == (None if start_unix_s is None else pytest.approx(start_unix_s, abs=1e-4))

    def test_windows_in_russian_with_stamps_of_powershell(self, tmp_path: Path) -> None:
        lines = [
            f"05/13/2026 10:00:{second:02} - {text}"
            for second, text in (
                (1, "Ответ от 8.8.8.8: число байт=32 время=100мс TTL=117"),
                (6, "Превышен интервал ожидания для запроса."),
                (7, "Ответ от 8.8.8.8: число байт=32 время=200мс TTL=117"),
            )
        ]
        one = measured(write(tmp_path, "a", "\r\n".join(lines).encode("cp866")))
        assert values(one, "rtt") == [100.0, math.inf, 200.0]
        # The lost probe left between its neighbours.
        assert one.times_s.tolist() == pytest.approx([0, 2.95, 5.9], abs=1e-5)

    @pytest.mark.parametrize("stamp", ["[1778666400.{}0000] ", ""])
    def test_fping_keeps_what_timed_out(self, stamp: str, tmp_path: Path) -> None:
        texts = [
            "64 bytes, 20.0 ms (20.0 avg, 0% loss)",
            "timed out (20.0 avg, 50% loss)",
            "64 bytes, 30.0 ms (25 avg, 0% loss)",
        ]
        lines = [f"{stamp.format(at)}8.8.8.8 : [{at}], {text}" for at, text in enumerate(texts)]
        one = measured(write(tmp_path, "a", "\n".join(lines)))
        assert values(one, "rtt") == [20.0, math.inf, 30.0]
        assert one.times_s[2] == pytest.approx(0.19 if stamp else 2.0, abs=1e-4)


class TestMtr:
    def test_the_first_round_beyond_the_target_is_no_series(self, tmp_path: Path) -> None:
        rounds = "".join(f"x 0 {at}\np 0 {at} {at}\n" for at in (10, 11, 12))
        one = measured(write(tmp_path, "a", "x 1 9\nh 1 10.0.0.1\np 1 44 9\n" + rounds))
        assert values(one, "rtt") == [0.01, 0.011, 0.012]

    def test_raw_follows_the_last_hop_probe_by_probe(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", MTR_RAW))
        assert values(one, "rtt") == [13.105, math.inf, 14.0]

    def test_reports_one_after_another_are_a_series(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", MTR_CSV))
        assert values(one, "rtt") == [13.5, math.inf]
        assert values(one, "round_trip_loss") == [5.0, 100.0]
        assert one.times_s.tolist() == [0.0, 60.0]

    def test_a_report_is_no_series_and_several_are_one(self, tmp_path: Path) -> None:
        report = (
            "Start: 2026-05-13T12:0{}:00+0200\n"
            "HOST: me       Loss%   Snt   Last   Avg  Best  Wrst StDev\n"
            "  1.|-- 10.0.0.1  0.0%     3    0.1   0.1   0.1   0.1   0.0\n"
            "  2.|-- 10.0.0.2 {}%     3    9.1  13.5   9.1  20.1   0.0\n"
        )
        with pytest.raises(TraceError, match="averages over one time; expected a series: `mtr --raw"):
            load(write(tmp_path, "a", report.format(0, "0.0")))
        one = measured(write(tmp_path, "b", report.format(0, "10.0") + report.format(1, "100.0")))
        assert (values(one, "rtt"), values(one, "round_trip_loss")) == ([13.5, math.inf], [10.0, 100.0])
        assert (one.times_s.tolist(), one.start_unix_s) == ([0.0, 60.0], 1778666400.0)

    def test_reports_in_json_have_no_times(self, tmp_path: Path) -> None:
        hubs = [{"count": 1, "host": "10.0.0.2", "Loss%": 10.0, "Snt": 5, "Avg": 13.5}]
        path = write(tmp_path, "a.json", 2 * (json.dumps({"report": {"mtr": {}, "hubs": hubs}}, indent=4) + "\n"))
        with pytest.raises(TraceError, match="no times of the reports; expected --every"):
            load(path)
        one = measured(path, every_s=60.0)
        assert (values(one, "rtt"), one.times_s.tolist()) == ([13.5, 13.5], [0.0, 60.0])


class TestIperf3AndNuttcp:
    def test_both_directions_of_json_without_the_key_bidir(self, tmp_path: Path) -> None:
        report = json.loads(iperf3())
        for interval in report["intervals"]:
            interval["sum_bidir_reverse"] = interval["sum"] | {"bits_per_second": 1e6}
        up, down = load(write(tmp_path, "a.json", json.dumps(report)))
        assert isinstance(up, Measurement)
        assert isinstance(down, Measurement)
        assert values(up, "uplink rate") == [94.4, 5.24]
        assert values(down, "downlink rate") == [1.0, 1.0]

    def test_stamps_and_the_reverse_mode_of_text(self, tmp_path: Path) -> None:
        lines = IPERF3_UDP.splitlines()
        one = measured(write(tmp_path, "a", "\n".join(f"Wed May 13 10:00:01 2026 {line}" for line in lines)))
        assert values(one, "downlink rate") == [9.38, 10.0]
        assert one.start_unix_s == 1778666400.0

    def test_the_servers_log_is_taken_where_it_follows(self, tmp_path: Path) -> None:
        client = IPERF3_TEXT.replace("Retr  Cwnd", "Total Datagrams")
        server = "Accepted connection from 10.0.0.2, port 1\n" + "\n".join(IPERF3_UDP.splitlines()[3:6])
        one = measured(write(tmp_path, "a", f"{client}\nServer output:\n{server}\n"))
        assert values(one, "uplink rate") == [9.38, 10.0]
        assert values(one, "uplink loss") == [5.0, 0.0]

    def test_an_interrupted_test_keeps_its_intervals(self, tmp_path: Path) -> None:
        report = json.loads(iperf3())
        # Its server writes the last interval twice, and a moment at the end that empties the buffers.
        last = report["intervals"][-1]["sum"]
        report["intervals"] += [{"sum": last}, {"sum": last | {"start": 2.0, "end": 2.005, "bits_per_second": 9e9}}]
        report["error"] = "the client has terminated"
        one = measured(write(tmp_path, "a.json", json.dumps(report)))
        assert values(one, "uplink rate") == [94.4, 5.24]
        assert "the test ended early: the client has terminated" in one.notes
        doubled = IPERF3_TEXT.splitlines()
        doubled.insert(6, doubled[5])
        assert values(measured(write(tmp_path, "b", "\n".join(doubled))), "uplink rate") == [94.4, 5.24, 0.0]

    def test_of_udp_both_ways_the_received_one_is_read(self, tmp_path: Path) -> None:
        offered = json.loads(iperf3(protocol="UDP"))
        for interval in offered["intervals"]:
            interval["sum_bidir_reverse"] = interval["sum"] | {"lost_packets": 50}
        (one,) = load(write(tmp_path, "a.json", json.dumps(offered)))
        assert isinstance(one, Measurement)
        assert [column.name for column in one.columns] == ["downlink rate", "downlink loss"]
        assert "the uplink left out: a UDP sender knows only what it offered" in one.notes
        lines = [
            "Connecting to host 10.0.0.1, port 5201",
            "[ ID][Role] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams",
            "[  5][TX-C]   0.00-1.00   sec  1.79 MBytes  15.0 Mbits/sec            1294  ",
            "[  7][RX-C]   0.00-1.00   sec  1.70 MBytes  14.2 Mbits/sec  0.009 ms  65/1300 (5%)  ",
        ]
        assert values(measured(write(tmp_path, "b", "\n".join(lines))), "downlink loss") == [5.0]

    def test_a_server_that_sends_has_retransmissions(self, tmp_path: Path) -> None:
        server = IPERF3_TEXT.replace("Connecting to host 10.0.0.1, port 5201", "Accepted connection from 10.0.0.2")
        assert values(measured(write(tmp_path, "a", server)), "downlink rate") == [94.4, 5.24, 0.0]
        receives = server.replace("Retr", "")
        assert values(measured(write(tmp_path, "b", receives)), "uplink rate") == [94.4, 5.24, 0.0]

    @pytest.mark.parametrize(
        "lines",
        [
            ["[  3]  0.0- 1.0 sec  1.12 MBytes  9.44 Mbits/sec", "[  3]  1.0- 2.0 sec   640 KBytes  5.24 Mbits/sec"],
            [
                "[  1] 0.0000-1.0000 sec  1.1 MBytes  9.44 Mbits/sec",
                "[  1] 1.0000-2.0000 sec  1 MBytes  5.24 Mbits/sec",
            ],
        ],
    )
    def test_the_summary_of_iperf_2_is_no_interval(self, lines: list[str], tmp_path: Path) -> None:
        summary = lines[0].replace("1.0 sec", "2.0 sec").replace("1.0000 sec", "2.0000 sec")
        text = "\n".join(["Client connecting to 10.0.0.1, TCP port 5001", *lines, summary])
        assert values(measured(write(tmp_path, "a", text)), "uplink rate") == [9.44, 5.24]

    def test_csv_of_iperf_2_has_its_dates(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", IPERF2_CSV), zone="Europe/Zurich")
        assert values(one, "uplink rate") == [10.48576, 0.0]
        assert one.start_unix_s == 1778659200.0
        later = IPERF2_CSV.replace("2026051310", "2026051311")
        assert measured(write(tmp_path, "b", IPERF2_CSV + later)).times_s.tolist() == [0, 1, 3600, 3601]
        heard = IPERF2_CSV.replace(",0,0\n", ",0,0,0.0,0,0,0.0,0\n").replace("10485760", "10485760,0.04,3,100,3.0,0")
        assert values(measured(write(tmp_path, "c", heard)), "uplink loss") == [3.0, 100.0]

    def test_nuttcp_for_programs_and_its_receiver(self, tmp_path: Path) -> None:
        lines = ["nuttcp-r: v6.1.2: socket"]
        lines += [f"megabytes=1.8 real_sec=1.00 rate_Mbps={rate} drop=5 pkt=200 data_loss=2.5" for rate in (15, 17)]
        one = measured(write(tmp_path, "a", "\n".join(lines)))
        assert values(one, "downlink rate") == [15.0, 17.0]
        assert values(one, "downlink loss") == [2.5, 2.5]


class TestPowerShell:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
    def test_timeouts_are_lost_probes(self, encoding: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", TEST_CONNECTION.encode(encoding)))
        # No reply takes no time; version 7 waits 5 s before the next probe.
        assert values(one, "rtt") == [12.0, math.inf, 1.0]
        assert one.times_s.tolist() == [0, 1, 7]

    def test_version_5_has_errors_in_place_of_lost_probes(self, tmp_path: Path) -> None:
        row = "HOST-A        8.8.8.8         8.8.8.8                                  32       {}       \n"
        head = "Source        Destination     IPV4Address      IPV6Address            Bytes    Time(ms) \n"
        lost = "Test-Connection : Testing connection to computer '8.8.8.8' failed: Error\nAt line:1 char:1\n"
        one = measured(write(tmp_path, "a", head + row.format(12) + lost + row.format(14)))
        assert values(one, "rtt") == [12.0, math.inf, 14.0]
        one = measured(write(tmp_path, "b", head + row.format(12) + row.format(14)))
        assert "5.1 writes no row of a lost probe" in one.notes[-1]


class TestIrtt:
    def test_round_trips_and_losses(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", irtt()))
        assert values(one, "rtt") == [48.0, math.inf, 52.0]
        assert one.times_s == pytest.approx([0.0, 0.02, 0.04])
        assert "there: 0, on the way back: 1" in one.notes[0]

    def test_one_way_delays_only_where_clocks_agree(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", irtt()), one_way=True)
        assert values(one, "downlink delay") == [28.0, math.inf, 30.0]
        assert values(one, "uplink loss") == [0.0, 0.0, 0.0]
        assert values(one, "downlink loss") == [0.0, 100.0, 0.0]

    def test_clocks_that_disagree_are_refused(self, tmp_path: Path) -> None:
        report = json.loads(irtt())
        report["round_trips"][2]["delay"]["send"] = -5_000_000
        with pytest.raises(TraceError, match=r"found -5 ms one way.*expected agreeing clocks"):
            load(write(tmp_path, "a", json.dumps(report)), None, Options(one_way=True))


class TestRates:
    def test_iperf3_of_a_client_on_the_vehicle_is_the_uplink(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", iperf3()))
        assert values(one, "uplink rate") == [94.4, 5.24]
        assert one.notes == ("1 intervals left out, which iperf3 --omit marked",)

    def test_iperf3_reversed_is_the_downlink(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", iperf3(reverse=1, protocol="UDP")))
        assert values(one, "downlink rate") == [94.4, 5.24]
        assert values(one, "downlink loss") == [5.0, 5.0]

    @pytest.mark.parametrize("client", ["vehicle", "ground"])
    def test_what_a_udp_sender_offered_is_no_rate(self, client: str, tmp_path: Path) -> None:
        path = write(tmp_path, "a", iperf3(protocol="UDP"))
        with pytest.raises(TraceError, match="UDP intervals of the sender; expected the receiver's"):
            load(path, None, Options(client=client))
        heard = measured(write(tmp_path, "b", iperf3(protocol="UDP", server=True)), client=client)
        assert values(heard, f"{'uplink' if client == 'vehicle' else 'downlink'} loss") == [5, 5]

    def test_iperf3_text_has_the_intervals_without_the_sums(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", IPERF3_TEXT))
        assert values(one, "uplink rate") == [94.4, 5.24, 0.0]
        assert one.length_s == 3.0

    def test_iperf3_text_of_udp_has_its_loss(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", IPERF3_UDP))
        assert values(one, "downlink rate") == [9.38, 10.0]
        assert values(one, "downlink loss") == [5.0, 0.0]

    def test_streams_of_iperf3_text_count_once(self, tmp_path: Path) -> None:
        text = (
            "[  5]   0.00-1.00   sec  1.0 MBytes  8.0 Mbits/sec    0    208 KBytes\n"
            "[  7]   0.00-1.00   sec  1.0 MBytes  9.0 Mbits/sec    0    208 KBytes\n"
            "[SUM]   0.00-1.00   sec  2.0 MBytes  17.0 Mbits/sec    0\n"
            "[  5]   1.00-2.00   sec  1.0 MBytes  1.0 MBytes/sec    0    208 KBytes\n"
        )
        # iperf's units.c: 1000 for bits, 1024 for bytes.
        assert values(measured(write(tmp_path, "a", text)), "uplink rate") == [17.0, 8.388608]

    def test_nuttcp_leaves_the_last_line_out(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", NUTTCP))
        assert values(one, "uplink rate") == [93.8473, 90.0482]
        assert (one.times_s.tolist(), one.length_s) == ([0.0, 1.0], 1.5)

    def test_nuttcp_of_udp_has_its_loss(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a", NUTTCP_UDP))
        assert values(one, "uplink loss") == pytest.approx([100 * 40 / 5537, 0.0], abs=1e-6)


class TestSpeedTests:
    def test_ookla_counts_bytes_and_needs_times(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", OOKLA_CSV)
        with pytest.raises(TraceError, match="no times of the tests; expected --every"):
            load(path)
        one = measured(path, every_s=900.0)
        assert values(one, "downlink rate") == [100.0, 10.0]
        assert values(one, "uplink rate") == [20.0, 2.0]
        assert values(one, "round_trip_loss") == [0.0, 1.5]

    @pytest.mark.parametrize(
        ("text", "down"),
        [(SIVEL_CSV, [51.234568, 41.234568]), (LIBRESPEED_CSV, [51.23, 41.23]), (OOKLA_JSON, [100.0, 10.0])],
    )
    def test_each_tool_has_its_own_unit(self, text: str, down: list[float], tmp_path: Path) -> None:
        assert values(measured(write(tmp_path, "a", text)), "downlink rate") == down

    @pytest.mark.parametrize(
        "text",
        [
            json.dumps({"download": 5e7, "upload": 1e7, "ping": 22.5, "timestamp": "2026-05-13T10:00:00Z"}),
            json.dumps(
                [{"timestamp": "2026-05-13T10:00:00Z", "ping": 22.5, "jitter": 1, "download": 50, "upload": 10}]
            ),
            json.dumps(json.loads(OOKLA_JSON.splitlines()[0]), indent=4),
        ],
    )
    def test_json_of_each_tool(self, text: str, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.json", text))
        assert one.start_unix_s == 1778666400.0
        assert values(one, "downlink rate")[0] in (50.0, 100.0)
        assert values(one, "uplink rate")[0] in (10.0, 20.0)


class TestDish:
    def test_statuses_one_after_another_are_a_series(self, tmp_path: Path) -> None:
        def status(uptime_s: int, drop: float) -> str:
            values = {"popPingDropRate": drop, "popPingLatencyMs": 30.5, "downlinkThroughputBps": 2e6}
            return json.dumps({"dishGetStatus": {"deviceState": {"uptimeS": str(uptime_s)}} | values}, indent=2)

        text = "\n".join([status(100, 0.0), status(100, 0.0), status(101, 1.0), status(103, 0.5)])
        one = measured(write(tmp_path, "a.json", text))
        assert one.times_s.tolist() == [0, 1, 3]
        assert values(one, "rtt") == [30.5, math.inf, 30.5]
        assert values(one, "round_trip_loss") == [0, 100, 50]

    def test_a_second_of_dropped_pings_is_a_lost_one(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", DISH_CSV))
        assert values(one, "rtt") == [35.5, math.inf, 45.5]
        assert values(one, "round_trip_loss") == [0.0, 100.0, 5.0]
        assert values(one, "downlink carried") == [1.5, 0.0, 2.5]

    def test_a_ring_begins_with_its_oldest_second(self, tmp_path: Path) -> None:
        # Seven values were written into a ring of five: the newest is at 7 - 1 mod 5 = 1.
        one = measured(write(tmp_path, "a.json", dish_history()))
        assert values(one, "rtt") == [math.inf, 40.0, 10.0, 20.0, 30.0]

    def test_a_zero_is_left_out_and_a_lost_latency_is_minus_one(self, tmp_path: Path) -> None:
        states: list[dict[str, object]] = [{"popPingLatencyMs": 30.5}, {"popPingLatencyMs": -1, "popPingDropRate": 1}]
        reports = [{"dishGetStatus": own | {"deviceState": {"uptimeS": str(9 + at)}}} for at, own in enumerate(states)]
        one = measured(write(tmp_path, "a.json", json.dumps(reports)))
        assert values(one, "rtt") == [30.5, math.inf]

    def test_names_of_protobuf_with_dates_are_a_series(self, tmp_path: Path) -> None:
        own = {"pop_ping_drop_rate": 0.5, "pop_ping_latency_ms": 40.5}
        rows = [own | {"datetimestamp_utc": f"2026-05-13T10:00:0{at}"} for at in range(3)]
        one = measured(write(tmp_path, "a.json", "\n".join(map(json.dumps, rows))))
        assert (one.start_unix_s, values(one, "rtt")) == (1778666400.0, [40.5] * 3)

    def test_a_status_without_latencies_has_its_losses(self, tmp_path: Path) -> None:
        report = {"dishGetStatus": {"deviceState": {"uptimeS": "9"}, "popPingDropRate": 0.5}}
        one = measured(write(tmp_path, "a.json", json.dumps(report)))
        assert [column.name for column in one.columns] == ["round_trip_loss", "downlink carried", "uplink carried"]


class TestDates:
    def test_columns_gaps_and_cells_without_a_value(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", DATED))
        assert [column.name for column in one.columns] == ["downlink rate", "uplink rate", "rtt", "loss"]
        assert one.notes == ("columns left out: cell (--as 'NAME=downlink rate [Mbit/s]')",)
        assert one.start_unix_s == 1778666400.0

    def test_gaps_are_never_filled_in_silence(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", DATED)
        with pytest.raises(TraceError, match="2 gaps without measurements, the longest of 9 s at 4 s; expected --gaps"):
            import_files([path], tmp_path / "out.csv")

    @pytest.mark.parametrize(
        ("gaps", "times_s", "rates"),
        [
            ("outage", [0, 1, 2, 3, 4, 13], [20.5, 21.5, 22.5, 22.5, 0.0, 10.5]),
            ("hold", [0, 1, 2, 3, 13], [20.5, 21.5, 22.5, 22.5, 10.5]),
        ],
    )
    def test_a_gap_becomes_what_the_user_says(
        self, gaps: str, times_s: list[float], rates: list[float], tmp_path: Path
    ) -> None:
        import_files([write(tmp_path, "a.csv", DATED)], tmp_path / "out.csv", gaps=gaps)
        trace = read(tmp_path / "out.csv", "downlink rate")
        # Two rows more end the last value after its own second.
        assert trace.times_s[:-2].tolist() == times_s
        assert trace.values[:-2].tolist() == rates
        assert trace.length_s() == pytest.approx(14.0, abs=1e-5)
        up = read(tmp_path / "out.csv", "uplink rate")
        assert up.values[1] == (0.0 if gaps == "outage" else 5.5)

    def test_split_writes_a_file_for_each_part(self, tmp_path: Path) -> None:
        written = import_files([write(tmp_path, "a.csv", DATED)], tmp_path / "parts", gaps="split")
        lengths = [len(one.times_s) for _, one in written]
        assert ([path.name for path, _ in written], lengths) == (["a-1.csv", "a-2.csv", "a-3.csv"], [1, 2, 1])

    def test_local_times_need_their_zone(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", DATED.replace("+02:00", ""))
        with pytest.raises(
            TraceError, match=r"a.csv:2: found .* without a zone; expected a zone in the file, or --zone"
        ):
            load(path)
        assert measured(path, zone="Europe/Zurich").start_unix_s == 1778666400.0

    def test_the_hour_that_autumn_repeats_is_its_second_one(self, tmp_path: Path) -> None:
        whens = ["02:59:59", "02:00:00", "02:59:59", "03:00:00"]
        text = "time;rtt_ms\n" + "".join(f"2026-10-25 {when};40\n" for when in whens)
        one = measured(write(tmp_path, "a.csv", text), zone="Europe/Zurich")
        assert one.times_s.tolist() == [0, 1, 3600, 3601]
        assert one.start_unix_s == 1792889999.0
        with pytest.raises(TraceError, match=r"a.csv:3: found a step of -3599 s; expected increasing times"):
            load(write(tmp_path, "a.csv", text), None, Options(zone="UTC"))

    def test_a_heading_without_a_unit_is_asked_for(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", "date,value\n2026-05-13T10:00:00Z,5\n2026-05-13T10:00:01Z,6\n")
        with pytest.raises(TraceError, match="expected quantity and unit in a heading"):
            load(path)
        one = measured(path, columns={"value": "downlink rate [kbit/s]"})
        assert values(one, "downlink rate") == [0.005, 0.006]

    def test_one_value_a_line_needs_every_and_as(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.txt", "10\n20\n")
        with pytest.raises(TraceError, match="expected --every"):
            load(path, "values")
        one = measured(path, "values", every_s=0.5, columns={"1": "uplink rate [Mbit/s]"})
        assert (values(one, "uplink rate"), one.length_s) == ([10.0, 20.0], 1.0)


def ethernet(identity: int, payload: bytes, ttl: int, source: bytes = b"\x0a\0\0\x01") -> bytes:
    udp = struct.pack(">HHHH", 5000, 6000, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), identity, 0, ttl, 17, 0, source, b"\x0a\0\0\x02")
    return b"\x02" * 12 + b"\x08\x00" + ip + udp


def pcap(packets: list[tuple[float, bytes]]) -> bytes:
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for at_s, frame in packets:
        seconds = int(at_s)
        data += struct.pack("<IIII", seconds, round((at_s - seconds) * 1e6), len(frame), len(frame)) + frame
    return data


def segment(sequence: int, data: bytes, identity: int, ttl: int) -> bytes:
    tcp = struct.pack(">HHIIBBHHH", 5000, 6000, sequence, 1, 0x50, 0x10, 1000, 0, 0) + data
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), identity, 0, ttl, 6, 0, b"\x0a\0\0\x01", b"\x0a\0\0\x02")
    return b"\x02" * 12 + b"\x08\x00" + ip + tcp


class TestOwnTables:
    @pytest.mark.parametrize(
        ("heading", "row", "zone"),
        [
            ("Zeit;Download (Mbit/s);Latenz (ms)", "13.05.2026 12:00:0{};20,5;40,25", "Europe/Zurich"),
            ("Date,Time,DL (Mbps),Ping (ms)", "05/13/2026,10:00:0{},20.5,40.25", "UTC"),
            ("date,time,DL (Mbps),Ping (ms)", "13/05/2026,10:00:0{},20.5,40.25", "UTC"),
            ("Timestamp,DL (Mbps),Ping (ms)", "5/13/2026 10:00:0{} AM,20.5,40.25", "UTC"),
            ("time,DL (Mbps),Ping (ms)", "20260513T100000.{}Z,20.5,40.25", None),
            ("time,DL (Mbps),Ping (ms)", "2026-05-13 12:00:0{} CEST,20.5,40.25", None),
            ("Timestamp,NetworkMode,DL_bitrate,UL_bitrate,PINGAVG", "2026.05.13_10.00.0{},5G,20500,900,40.25", "UTC"),
            ("Date,ConnType,Download,Upload,Latency", "2026-05-13 10:00:0{},Lte,20500,900,40.25", "UTC"),
        ],
    )
    def test_dates_and_decimals_of_many_places(self, heading: str, row: str, zone: str | None, tmp_path: Path) -> None:
        text = "\n".join([heading, *(row.format(at) for at in range(5))])
        one = measured(write(tmp_path, "a.csv", text), zone=zone)
        assert one.start_unix_s == 1778666400.0
        assert values(one, "downlink rate") == [20.5] * 5
        assert values(one, "rtt") == [40.25] * 5

    def test_a_day_that_may_be_a_month_is_not_guessed(self, tmp_path: Path) -> None:
        text = "time,dl_mbps\n05/06/2026 10:00:00,1\n05/06/2026 10:00:01,2\n"
        with pytest.raises(
            TraceError, match=r"a.csv:2: found `05/06/2026 10:00:00`; expected dates that begin with the year"
        ):
            load(write(tmp_path, "a.csv", text), None, Options(zone="UTC"))

    def test_a_row_longer_than_its_headings_is_no_table(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"a.txt: found text that begins with `iperf 3.12`"):
            load(write(tmp_path, "a.txt", "iperf 3.12\nWed May 13 10:00:01 2026 Connecting to host\n"))

    def test_seconds_from_the_start_need_no_dates(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", "elapsed_ms,dl_mbps,up\n0,1.5,9\n500,2.5,9\n1000,3.5,9\n"))
        assert one.times_s.tolist() == [0, 0.5, 1.0]
        assert values(one, "downlink rate") == [1.5, 2.5, 3.5]

    def test_a_column_that_was_hardly_measured_is_left_out(self, tmp_path: Path) -> None:
        rows = "\n".join(f"{at},{20 + at},{40 if at % 10 == 0 else '-'}" for at in range(20))
        one = measured(write(tmp_path, "a.csv", f"seconds,dl_mbps,rtt_ms\n{rows}\n"))
        assert [column.name for column in one.columns] == ["downlink rate"]
        assert "`rtt_ms` left out: 90 % of its rows were not measured" in " ".join(one.notes)

    def test_a_decimal_comma_is_not_taken_for_two_columns(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.txt", "41,57\n40,25\n")
        with pytest.raises(TraceError, match=r"a.txt:1: found `41,57`; expected a decimal point"):
            load(path, "values", Options(every_s=1.0, columns={"1": "downlink rate [Mbit/s]"}))

    def test_a_capital_b_is_a_byte(self, tmp_path: Path) -> None:
        one = measured(write(tmp_path, "a.csv", "seconds,dl_MBps,Upload (KB/s)\n0,2.5,250\n1,2.5,250\n"))
        assert (values(one, "downlink rate"), values(one, "uplink rate")) == ([20.0, 20.0], [2.0, 2.0])

    def test_a_comma_that_may_be_of_thousands_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.csv", 'seconds,dl_kbps\n0,"49,482"\n1,"20,000"\n')
        with pytest.raises(TraceError, match=r"a.csv:2: found `49,482`; expected a number without commas"):
            load(path)

    def test_rows_of_one_minute_are_spread_over_it(self, tmp_path: Path) -> None:
        # From 10:00:40 on, each second.
        whens = [f"13.05.2026 10:{(40 + at) // 60:02};{20 + at}" for at in range(100)]
        one = measured(write(tmp_path, "a.csv", "\n".join(["Zeit;Ping (ms)", *whens])), zone="UTC")
        assert one.start_unix_s == 1778666440.0
        assert np.diff(one.times_s) == pytest.approx([1.0] * 99)

    def test_a_round_trip_takes_time(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match=r"a.csv:3: found 0 as rtt; expected 0 to 9e\+09 ms \(lost: --lost 0\)"):
            load(write(tmp_path, "a.csv", "seconds,rtt_ms\n0,20\n1,0\n"))

    def test_marks_of_lost_probes_are_read_or_named(self, tmp_path: Path) -> None:
        text = "seconds,rtt_ms\n0,20\n1,timeout\n2,9999\n3,9999\n"
        one = measured(write(tmp_path, "a.csv", text))
        assert values(one, "rtt") == [20, math.inf, 9999, 9999]
        assert one.notes == ("2 rows have 9999, far above all others; if lost: --lost 9999",)

    def test_an_empty_line_between_numbers_is_no_value(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.txt", "\n10\n\n30\n\n")
        one = measured(path, "values", every_s=1.0, columns={"1": "uplink rate [Mbit/s]"})
        assert values(one, "uplink rate") == pytest.approx([10.0, math.nan, 30.0], nan_ok=True)


class TestPcap:
    def test_segments_that_cards_split_and_join_are_found(self, tmp_path: Path) -> None:
        data = [bytes([1 + n]) * 3000 for n in range(4)]
        sent = [(100.0 + n, segment(3000 * n, data[n], 10 * n, 64)) for n in range(4)]
        # The first is split, the next two are joined to one, the last is lost.
        received = [
            (100.05, segment(0, data[0][:1448], 0, 60)),
            (100.06, segment(1448, data[0][1448:], 1, 60)),
            (102.05, segment(3000, data[1] + data[2], 10, 60)),
            (110.0, segment(50_000, b"later", 99, 60)),
        ]
        sent.append((109.9, segment(50_000, b"later", 99, 64)))
        here, there = write(tmp_path, "here.pcap", pcap(sent)), write(tmp_path, "there.pcap", pcap(received))
        found = values(measured(here, peer=there), "uplink delay")
        assert found == pytest.approx([50, 1050, 50, math.inf, 100], abs=0.01)

    def test_captures_that_were_cut_and_began_later(self, tmp_path: Path) -> None:
        sent = [(100.0 + n, ethernet(n, bytes([n]) * 400, 64)) for n in range(20)]
        received = [(at_s + 0.05, ethernet(n, bytes([n]) * 400, 61)) for n, (at_s, _) in enumerate(sent) if n > 8]
        cut = b"".join(
            struct.pack("<IIII", int(at_s), round(at_s % 1 * 1e6), 80, len(frame)) + frame[:80]
            for at_s, frame in received
        )
        here = write(tmp_path, "here.pcap", pcap(sent))
        there = write(tmp_path, "there.pcap", pcap([])[:24] + cut)
        assert values(measured(here, peer=there), "uplink delay") == pytest.approx([50] * 11, abs=0.01)
        flight = read_flight(f"{here}+{there}")
        assert flight.length_s == pytest.approx(11.0, abs=0.1)
        with pytest.raises(TraceError, match="at the very same times; expected the capture of the other end"):
            read_flight(f"{here}+{here}")

    def test_delay_and_loss_of_each_packet_behind_a_nat(self, tmp_path: Path) -> None:
        sent = [(100.0 + 0.1 * n, ethernet(n, b"payload %d" % n, 64)) for n in range(5)]
        # The NAT has another address; the third packet is lost, the fourth takes longer.
        late = {3: 0.08}
        received = [
            (at_s + late.get(n, 0.05), ethernet(n, b"payload %d" % n, 61, b"\xc0\0\x02\x01"))
            for n, (at_s, _) in enumerate(sent)
            if n != 2
        ]
        here, there = write(tmp_path, "here.pcap", pcap(sent)), write(tmp_path, "there.pcap", pcap(received))
        one = measured(here, peer=there)
        assert values(one, "uplink delay") == pytest.approx([50, 50, math.inf, 80, 50], abs=0.01)
        assert values(one, "uplink loss") == [0, 0, 100, 0, 0]
        assert one.times_s == pytest.approx([0, 0.1, 0.2, 0.3, 0.4], abs=1e-5)

    def test_one_capture_alone_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path, "here.pcap", pcap([(100.0, ethernet(1, b"a", 64))]))
        with pytest.raises(TraceError, match="a capture of one end; expected --peer"):
            load(path)

    def test_clocks_that_disagree_are_refused(self, tmp_path: Path) -> None:
        here = write(tmp_path, "here.pcap", pcap([(100.0 + n, ethernet(n, b"%d" % n, 64)) for n in range(3)]))
        there = write(tmp_path, "there.pcap", pcap([(99.0 + n, ethernet(n, b"%d" % n, 60)) for n in range(3)]))
        with pytest.raises(TraceError, match=r"-1000 ms uplink.*expected clocks that agree"):
            load(here, None, Options(peer=there))

    def test_what_a_card_split_is_said_to_be_unknown(self, tmp_path: Path) -> None:
        here = write(
            tmp_path, "here.pcap", pcap([(100.0 + n, segment(9000 * n, b"a" * 3000, n, 64)) for n in range(3)])
        )
        there = write(
            tmp_path, "there.pcap", pcap([(100.1 + n, segment(9000 * n, b"a" * 1400, n, 60)) for n in range(3)])
        )
        one = measured(here, peer=there)
        assert "3 segments of TCP were captured before the sender's card split them" in " ".join(one.notes)


class TestTracks:
    @pytest.mark.parametrize(("name", "text"), [("a.gpx", GPX), ("a.kml", KML)])
    def test_a_track_is_one_that_scenarios_read(self, name: str, text: str, tmp_path: Path) -> None:
        (track,) = load(write(tmp_path, name, text))
        assert isinstance(track, MeasuredTrack)
        assert track.latitude_deg.tolist() == [47.0, 47.1]
        assert track.altitude_m.tolist() == [550.0, 650.0]
        import_files([tmp_path / name], tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_text().splitlines()[-1] == "60,7.5,47.1,650".replace("7.5,47.1", "47.1,7.5")

    def test_entities_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="entities"):
            load(write(tmp_path, "a.gpx", '<!DOCTYPE gpx [<!ENTITY a "b">]><gpx></gpx>'), "track")

    def test_placemarks_with_times_are_a_track(self, tmp_path: Path) -> None:
        places = "".join(
            f"<Placemark><TimeStamp><when>2026-05-13T10:0{at}:00Z</when></TimeStamp>"
            f"<Point><coordinates>7.4,47.{at},550</coordinates></Point></Placemark>"
            for at in range(3)
        )
        (one,) = load(write(tmp_path, "a.kml", f'<kml xmlns="http://www.opengis.net/kml/2.2">{places}</kml>'))
        assert isinstance(one, MeasuredTrack)
        assert one.latitude_deg.tolist() == pytest.approx([47.0, 47.1, 47.2])

    def test_a_route_without_times_says_how_it_is_used(self, tmp_path: Path) -> None:
        text = "<kml><Placemark><LineString><coordinates>7,47,0 8,47,0</coordinates></LineString></Placemark></kml>"
        with pytest.raises(TraceError, match="a route without times; expected times; use it as it is: track ="):
            load(write(tmp_path, "a.kml", text))

    def test_a_track_without_altitudes_says_so(self, tmp_path: Path) -> None:
        (one,) = load(write(tmp_path, "a.gpx", re.sub("<ele>.*?</ele>", "", GPX)))
        assert "no altitudes: the track is at 0 m" in one.notes


def test_missing_mavlink_numbers_were_due_in_between(tmp_path: Path) -> None:
    def packet(at_s: float, sequence: int) -> bytes:
        # Of a type whose checksum is unknown to the reader.
        return struct.pack(">Q", int((1778666400 + at_s) * 1e6)) + bytes([0xFE, 1, sequence, 1, 1, 250, 0, 0, 0])

    sent = [(0.1 * at, at) for at in range(50) if not 12 <= at < 38]
    one = measured(write(tmp_path, "a.tlog", b"".join(packet(*each) for each in sent)))
    assert values(one, "uplink loss") == pytest.approx([0, 80, 100, 80, 0])


@needs_measurements
class TestTelemetry:
    def test_a_ground_stations_log_agrees_with_pymavlink(self) -> None:
        mavutil = pytest.importorskip("pymavlink.mavutil")
        path = next((MEASUREMENTS / "aux_mavlink_tlog").glob("*.tlog"))
        log = mavutil.mavlink_connection(str(path))
        places, radios = [], 0
        with contextlib.closing(log):
            while (message := log.recv_match(type=["GLOBAL_POSITION_INT", "RADIO_STATUS", "RADIO"])) is not None:
                if message.get_type() == "GLOBAL_POSITION_INT":
                    places.append((message.lat * 1e-7, message.lon * 1e-7))
                else:
                    radios += 1
        found = {"track" if isinstance(one, MeasuredTrack) else one.label: one for one in load(path)}
        fixes = [place for place in places if place != (0, 0)]
        if fixes:
            track = found["track"]
            assert isinstance(track, MeasuredTrack)
            assert len(track.times_s) >= 0.99 * len(fixes)
            assert track.latitude_deg[0] == pytest.approx(fixes[0][0], abs=1e-6)
            assert track.longitude_deg[-1] == pytest.approx(fixes[-1][1], abs=1e-6)
        assert ("radio" in found) == (radios > 0)
        assert "loss" in found


def dataflash(folder: Path) -> Path:
    """A log of two fixes and two values of the radio, as ArduPilot writes them."""

    def described(kind: int, length: int, name: bytes, form: bytes, columns: bytes) -> bytes:
        return b"\xa3\x95\x80" + struct.pack("<BB4s16s64s", kind, length, name, form, columns)

    data = described(128, 89, b"FMT", b"BBnNZ", b"Type,Length,Name,Format,Columns")
    data += described(130, 3 + 32, b"GPS", b"QBBIHLLef", b"TimeUS,I,Status,GMS,GWk,Lat,Lng,Alt,Spd")
    data += described(131, 3 + 15, b"RAD", b"QBBBBBH", b"TimeUS,RSSI,RemRSSI,TxBuf,Noise,RemNoise,RxErrors")
    for second in range(2):
        fix = (10**6 * (5 + second), 0, 3, 36_000_000 + 1000 * second, 2418)
        data += b"\xa3\x95\x82" + struct.pack("<QBBIHiiif", *fix, 470000000 + second, 74000000, 55000, 12.0)
        data += b"\xa3\x95\x83" + struct.pack("<QBBBBBH", 10**6 * (5 + second), 180, 170, 90, 40, 41, second)
    return write(folder, "flight.bin", data)


class TestAutopilots:
    def test_a_dataflash_log_has_radio_and_track(self, tmp_path: Path) -> None:
        path = dataflash(tmp_path)
        radio, track = load(path)
        assert isinstance(radio, Measurement)
        assert isinstance(track, MeasuredTrack)
        assert values(radio, "rssi") == [180.0, 180.0]
        assert values(radio, "rxerrors") == [0.0, 1.0]
        assert track.latitude_deg == pytest.approx([47.0, 47.0000001], abs=1e-9)
        assert track.altitude_m == pytest.approx([550.0, 550.0])
        # Week 2418 of GPS began on 2026-05-10; 10 hours later, less 18 leap seconds.
        assert track.start_unix_s == 1778371200 + 36000 - 18

    def test_it_agrees_with_pymavlink(self, tmp_path: Path) -> None:
        reader = pytest.importorskip("pymavlink.DFReader")
        log = reader.DFReader_binary(str(dataflash(tmp_path)))
        fix = log.recv_match(type="GPS")
        log.filehandle.close()
        assert (fix.Lat, fix.Alt) == pytest.approx((47.0, 550.0))

    def test_a_ulog_has_radio_and_track(self, tmp_path: Path) -> None:
        pytest.importorskip("pyulog")
        definitions = [
            b"radio_status:uint64_t timestamp;uint8_t rssi;uint8_t remote_rssi;uint8_t noise;uint8_t remote_noise;",
            b"vehicle_gps_position:uint64_t timestamp;uint64_t time_utc_usec;int32_t lat;int32_t lon;int32_t alt;%s"
            % b"uint8_t fix_type;",
        ]

        def message(kind: bytes, body: bytes) -> bytes:
            return struct.pack("<HB", len(body), kind[0]) + body

        data = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0) + message(b"B", bytes(40))
        data += b"".join(message(b"F", text) for text in definitions)
        data += message(b"A", struct.pack("<BH", 0, 0) + b"radio_status")
        data += message(b"A", struct.pack("<BH", 0, 1) + b"vehicle_gps_position")
        for second in range(2):
            at_us = 10**6 * (5 + second)
            data += message(b"D", struct.pack("<HQBBBB", 0, at_us, 180, 170, 40, 41))
            fix = struct.pack("<HQQiiiB", 1, at_us, at_us + 1778666400 * 10**6, 470000000, 74000000 + second, 550000, 3)
            data += message(b"D", fix)
        radio, track = load(write(tmp_path, "a.ulg", data))
        assert isinstance(radio, Measurement)
        assert isinstance(track, MeasuredTrack)
        assert values(radio, "remote rssi") == [170.0, 170.0]
        assert track.altitude_m.tolist() == [550.0, 550.0]
        assert track.start_unix_s == 1778666405.0

    def test_a_damaged_ulog_is_an_error_of_the_file(self, tmp_path: Path) -> None:
        pytest.importorskip("pyulog")
        with pytest.raises(TraceError, match=r"a\.ulg: found"):
            load(write(tmp_path, "a.ulg", b"ULog\x01\x12\x35\x01" + bytes(9)))

    def test_losses_of_a_ulog_are_those_of_each_second(self, tmp_path: Path) -> None:
        pytest.importorskip("pyulog")
        counts = [[(0, 0), (1, 1), (2, 2)], [(10, 0), (28, 2), (28, 22)]]

        def message(kind: bytes, body: bytes) -> bytes:
            return struct.pack("<HB", len(body), kind[0]) + body

        columns = b"uint64_t timestamp;uint32_t rx_message_count;uint32_t rx_message_lost_count;"
        data = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0) + message(b"B", bytes(40))
        data += message(b"F", b"telemetry_status:" + columns)
        for link, rows in enumerate(counts):
            data += message(b"A", struct.pack("<BH", link, link) + b"telemetry_status")
            for second, row in enumerate(rows):
                data += message(b"D", struct.pack("<HQII", link, 10**6 * second, *row))
        one = measured(write(tmp_path, "a.ulg", data))
        assert (values(one, "downlink loss"), one.length_s) == ([10.0, 100.0], 2.0)


@needs_measurements
class TestMeasured:
    def test_pings_of_linux_that_were_really_made(self) -> None:
        path = MEASUREMENTS / "aux_mmsys24_starlink" / "isl-ping-gw-lagos-230911-172603-0.1s-60min.txt"
        # Rows of time, number and round trip, without headings; -1 stands for a lost probe.
        with pytest.raises(TraceError, match=r"60min.txt:83: found -1 as rtt"):
            load(path, "dated", Options(columns={"3": "rtt [ms]"}))
        one = measured(path, "dated", columns={"3": "rtt [ms]"}, lost=-1.0)
        table = np.loadtxt(path)
        assert int(np.isinf(one.column("rtt").values).sum()) == int((table[:, 2] == -1).sum()) > 0
        # The folder's SOURCE.txt states a median of 108 ms over 2.6 h.
        assert float(np.median(one.column("rtt").values)) == pytest.approx(108, rel=0.01)
        assert one.length_s == pytest.approx(2.6 * 3600, rel=0.15)

    def test_iperf3_that_was_really_run(self) -> None:
        for path in (MEASUREMENTS / "aux_mmsys24_starlink").glob("*iperf3*.json"):
            one = measured(path)
            assert one.length_s > 100
            assert 1 < float(np.median(one.columns[0].values)) < 500


class TestImport:
    def test_the_value_of_a_lost_probe_is_the_users_to_name(self, tmp_path: Path) -> None:
        path = write(tmp_path, "ping.csv", "time [s],rate [Mbit/s],rtt [ms]\n0,-1,40\n1,5,-1\n2,6,-1.0\n")
        with pytest.raises(TraceError, match=r"ping.csv:2: found -1 as rate"):
            load(path, "csv", Options(lost=-1))
        path.write_text(path.read_text().replace("0,-1,40", "0,4,40"))
        one = measured(path, lost=-1)
        assert one.column("rtt").values.tolist() == [40, math.inf, math.inf]
        assert one.column("rate").values.tolist() == [4, 5, 6]

    def test_the_written_file_runs_in_a_scenario_as_printed(self, tmp_path: Path) -> None:
        path = write(tmp_path, "ping.txt", PING_LINUX)
        result = CliRunner().invoke(app, ["import", str(path), "--out", str(tmp_path / "link.csv")])
        assert result.exit_code == 0, result.output
        lines = [line.strip() for line in result.output.splitlines() if "trace =" in line]
        assert len(lines) == 4
        text = 'duration = "3s"\n[path.lte]\n' + "\n".join(lines) + "\n"
        text += 'uplink.rate = "10Mbit/s"\ndownlink.rate = "10Mbit/s"\n'
        text += '[flow.data]\nfrom = "vehicle"\ntraffic = { kind = "cbr", rate = "80kbit/s", packet = "100B" }\n'
        text += 'transport = { protocol = "udp" }\nrequire = { deadline = "300ms", share = "50%" }\n'
        results = run(Scenario(text, str(tmp_path / "flight.toml")))
        # Half of the probes were lost, one of them in the last second.
        assert results.requirements[0].estimate == pytest.approx(0.5, abs=0.35)

    def test_half_a_round_trip_and_a_loss_each_way(self, tmp_path: Path) -> None:
        import_files([write(tmp_path, "a", MTR_CSV)], tmp_path / "out.csv")
        assert read(tmp_path / "out.csv", "delay").values.tolist() == [6.75, math.inf]
        one_way = read(tmp_path / "out.csv", "loss").values / 100
        assert 1 - (1 - one_way) ** 2 == pytest.approx([0.05, 1.0], abs=1e-6)

    def test_the_end_of_the_last_value_is_kept(self, tmp_path: Path) -> None:
        import_files([write(tmp_path, "a", PING_WINDOWS.replace("time<1ms", "time=3ms"))], tmp_path / "out.csv")
        assert read(tmp_path / "out.csv", "rtt").length_s() == pytest.approx(7.0, abs=1e-5)

    def test_no_file_is_written_over(self, tmp_path: Path) -> None:
        path = write(tmp_path, "a.txt", PING_LINUX)
        with pytest.raises(TraceError, match="found two measurements `a`; expected a folder for each"):
            import_files([path, path], tmp_path)
        import_files([path], tmp_path / "out.csv")
        with pytest.raises(TraceError, match="exists already; expected a new file"):
            import_files([path], tmp_path / "out.csv")

    def test_joined_series_keep_their_moments(self, tmp_path: Path) -> None:
        later = PING_LINUX.replace("16839954", "16839954").replace("63.500000", "64.500000").replace("65.44", "66.44")
        one, other = write(tmp_path, "a", PING_LINUX), write(tmp_path, "b", later)
        joined = join([("att", one), ("leo", other)], tmp_path / "out.csv")
        att, leo = read(tmp_path / "out.csv", "att rtt"), read(tmp_path / "out.csv", "leo rtt")
        assert joined.start_unix_s == pytest.approx(1683995463.5 - 0.078 + 1.0, abs=1e-5)
        # One second into the first log its second probe is on the way; the other log begins there.
        assert math.isinf(att.values[0])
        assert leo.values[0] == 78.0

    def test_series_without_a_common_time_are_refused(self, tmp_path: Path) -> None:
        other = write(tmp_path, "b", PING_LINUX.replace("16839954", "16849954"))
        with pytest.raises(TraceError, match="found no time in common"):
            join([("a", write(tmp_path, "a", PING_LINUX)), ("b", other)], tmp_path / "out.csv")
        with pytest.raises(TraceError, match="found no dates"):
            join([("a", write(tmp_path, "c", PING_MACOS))], tmp_path / "out.csv")

    def test_the_command_says_what_is_wrong(self, skybraid: Command, tmp_path: Path) -> None:
        write(tmp_path, "a.txt", "hello\n")
        result = skybraid("trace", "import", "a.txt", "--out", "b.csv", "--json")
        assert result.returncode == 2
        assert json.loads(result.stdout)["error"] in result.stderr

    def test_the_command_prints_json(self, skybraid: Command, tmp_path: Path) -> None:
        write(tmp_path, "ping.log", PING_MACOS)
        result = skybraid("trace", "import", "ping.log", "--out", "link.csv", "--json")
        (file,) = json.loads(result.stdout)["files"]
        assert (file["file"], file["columns"]) == ("link.csv", ["rtt [ms]", "round_trip_loss [%]"])
        assert file["scenario"][0].startswith("uplink.delay = { trace =")


MUTABLE = [(name, content.encode() if isinstance(content, str) else content) for name, content in SAMPLES.values()]
MUTABLE += [("a.pcap", pcap([(1.0, ethernet(1, b"a", 64))])), ("b.jsonl", OOKLA_JSON.encode())]
MUTABLE += [("c.json", dish_history().encode()), ("d.kml", KML.encode()), ("e.csv", MTR_CSV.encode())]


class TestFuzz:
    @settings(
        max_examples=400, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(data=st.data())
    def test_damaged_files_are_errors_of_the_file(self, data: st.DataObject, tmp_path: Path) -> None:
        name, content = data.draw(st.sampled_from(MUTABLE))
        changed = bytearray(content)
        for _ in range(data.draw(st.integers(1, 6))):
            place = data.draw(st.integers(0, max(len(changed) - 1, 0)))
            match data.draw(st.sampled_from(["set", "cut", "insert", "digits"])):
                case "set" if changed:
                    changed[place] = data.draw(st.integers(0, 255))
                case "cut":
                    del changed[place : place + data.draw(st.integers(1, 20))]
                case "insert":
                    changed[place:place] = data.draw(st.binary(max_size=8))
                case _:
                    changed[place:place] = data.draw(st.sampled_from([b"9" * 30, b"-1", b"nan", b"1e999", b"\n", b"0"]))
        path = tmp_path / name
        path.write_bytes(bytes(changed))
        options = Options(every_s=1.0, zone="UTC", peer=path)
        for format_ in [None, *FORMATS]:
            try:
                for one in load(path, format_, options):
                    assert np.isfinite(one.times_s).all()
                    assert (np.diff(one.times_s) > 0).all()
            except TraceError as error:
                words = str(error)
            else:
                continue
            assert name in words or "--format" in words

"""Camera and screen as programs: over loopback, with other projects' programs, over links and gateways."""

import csv
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import av
import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import Command
from marks import needs_emulator, needs_gateway, needs_namespaces
from skybraid import _core
from skybraid.cli import app
from skybraid.gateway import Field, binary, configure_pair
from skybraid.gateway.daemons import in_emulator
from skybraid.model.errors import VideoError
from skybraid.video import clips, pipeline, timecode
from skybraid.video.decode import luma
from skybraid.video.encode import Encoded, Encoding, encode
from skybraid.video.pipeline import Received, Receiver, Sent
from skybraid.video.sockets import Address, address

WIDTH, HEIGHT, FRAMES = 240, 136, 75
RATE_BPS = 600e3
MS = 1_000_000

LINK = """
name = "One link"
duration = "4s"

[path.lte]
uplink.rate = "4Mbit/s"
uplink.delay = "40ms"
downlink.rate = "4Mbit/s"
downlink.delay = "40ms"
"""

FLOW = """
[flow.video]
from = "vehicle"
traffic = { kind = "video", rate = "600kbit/s", fps = 30, jitter_buffer = "JITTER" }
transport = { protocol = "udp", scheduler = "single" }
"""


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def h264(clip: clips.Clip) -> Encoded:
    return encode(clip, Encoding(codec="h264", rate_bps=RATE_BPS))


@pytest.fixture(params=["h264", "h265"])
def encoded(request: pytest.FixtureRequest, clip: clips.Clip) -> Encoded:
    return encode(clip, Encoding(codec=request.param, rate_bps=RATE_BPS))


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """Returns a free port whose successor is free too."""
    while True:
        with socket.socket(socket.AF_INET, kind) as first, socket.socket(socket.AF_INET, kind) as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def carried(encoded: Encoded, seconds: float, jitter_buffer_s: float = 0.05, **how: Any) -> tuple[Sent, Received]:
    connected = {name: value for name, value in how.items() if name in ("tcp", "mptcp")}
    port = free_port(socket.SOCK_STREAM if connected else socket.SOCK_DGRAM)
    codec = encoded.settings.codec
    receiver = Receiver(Address("127.0.0.1", port), codec=codec, jitter_buffer_s=jitter_buffer_s, **connected)
    sent: list[Sent] = []
    camera = threading.Thread(
        target=lambda: sent.append(pipeline.send(encoded, Address("127.0.0.1", port), duration_s=seconds, **how))
    )
    camera.start()
    received = receiver.run(20)
    camera.join()
    return sent[0], received


def latencies_ms(received: Received) -> list[float]:
    return [row.latency_ns / MS for row in received.rows if row.latency_ns is not None]


@pytest.mark.parametrize("how", [{}, {"one_port": True}, {"tcp": True}, {"mptcp": True}], ids=str)
def test_every_picture_is_shown_once_undamaged_and_when_due(h264: Encoded, how: dict[str, bool]) -> None:
    if "mptcp" in how and not has_mptcp():
        pytest.skip("this kernel has no MPTCP")
    sent, received = carried(h264, 1.2, **how)
    assert sent.frames == 36
    assert [row.frame for row in received.rows] == list(range(36))
    assert not any(row.damaged for row in received.rows)
    assert (sent.packets, sent.lost) == (received.packets, 0)
    assert sent.round_trip_s is not None
    assert sent.round_trip_s < 0.1
    captured = [row.captured_ns for row in received.rows if row.captured_ns is not None]
    assert np.diff(captured).tolist() == pytest.approx([1e9 / 30] * 35, abs=30_000)
    assert 49 < median(latencies_ms(received)) < 65


def has_mptcp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    except OSError:
        return False
    return True


def test_a_clip_goes_on_from_its_beginning_and_h265_is_shown_too(clip: clips.Clip) -> None:
    encoded = encode(clip, Encoding(codec="h265", rate_bps=RATE_BPS))
    _, received = carried(encoded, (FRAMES + 5) / 30)
    assert [row.frame for row in received.rows] == [*range(FRAMES), *range(5)]
    assert not any(row.damaged for row in received.rows)


def test_damage_is_reported_until_the_next_key_frame(
    h264: Encoded,
) -> None:
    port = free_port()
    receiver = Receiver(Address("127.0.0.1", port), jitter_buffer_s=0.03)
    found: list[Received] = []
    screen = threading.Thread(target=lambda: found.append(receiver.run(20)))
    screen.start()
    start_ns = time.time_ns()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        sender = _core.RtpSender("h264", 412, 9, 0, "test")
        for number in range(45):
            while time.time_ns() < start_ns + h264.captured_ns(number):
                time.sleep(0.001)
            out.sendto(sender.report(pipeline.ntp(start_ns), 0, False), ("127.0.0.1", port + 1))
            packets = sender.frame(h264.units(number), 3000 * number)
            # Frame 10 loses its end, so that nothing of its only slice is decoded.
            for packet in packets[:-1] if number == 10 else packets:
                out.sendto(packet, ("127.0.0.1", port))
        out.sendto(sender.report(pipeline.ntp(start_ns), 0, True), ("127.0.0.1", port + 1))
    screen.join()
    rows = found[0].rows
    assert found[0].lost == 1
    by_frame = {row.frame: row for row in rows if row.frame is not None}
    assert all(row.damaged == (10 <= row.timestamp // 3000 < 30) for row in rows)
    assert {*range(10), *range(30, 45)} <= set(by_frame)
    assert all(
        row.captured_ns == pytest.approx(start_ns + h264.captured_ns(row.frame or 0), abs=20_000)
        for row in by_frame.values()
    )


# Programs of others.


def test_ffmpegs_player_plays_what_the_camera_sends(encoded: Encoded, tmp_path: Path) -> None:
    to = Address("127.0.0.1", free_port())
    file = tmp_path / "video.sdp"
    file.write_text(pipeline.sdp(encoded, to), encoding="utf-8")
    camera = threading.Timer(0.5, lambda: pipeline.send(encoded, to, duration_s=1.2))
    camera.start()
    codes: list[int | None] = []
    options = {"protocol_whitelist": "file,udp,rtp", "analyzeduration": "300000"}
    with av.open(str(file), options=options, timeout=5) as player:
        assert player.streams.video[0].codec_context.width == WIDTH
        for frame in player.decode(video=0):
            codes.append(timecode.read(luma(frame)))
            if codes[-1] == 30:
                break
    camera.join()
    assert codes == list(range(31))


def test_what_ffmpegs_library_sends_is_shown(encoded: Encoded) -> None:
    port, codec = free_port(), encoded.settings.codec
    receiver = Receiver(Address("127.0.0.1", port), codec=codec, jitter_buffer_s=0.05)
    kind = "hevc" if codec == "h265" else codec
    found: list[Received] = []
    screen = threading.Thread(target=lambda: found.append(receiver.run(20)))
    screen.start()
    with (
        av.open(str(encoded.file), format=kind) as source,
        av.open(f"rtp://127.0.0.1:{port}", "w", format="rtp", options={"rtpflags": "send_bye"}) as out,
    ):
        stream = out.add_stream_from_template(source.streams.video[0])
        # This is the moment that its reports name as the stream's first.
        out.start_encoding()
        start = time.monotonic()
        for number, packet in enumerate(source.demux(video=0)):
            if number == 40:
                break
            time.sleep(max(0.0, start + number / 30 - time.monotonic()))
            packet.time_base, packet.stream = Fraction(1, _core.RTP_CLOCK_HZ), stream
            packet.pts = packet.dts = 3000 * number
            out.mux(packet)
    screen.join()
    rows = found[0].rows
    assert [row.frame for row in rows] == list(range(40))
    assert not any(row.damaged for row in rows)
    assert 45 < median(latencies_ms(found[0])) < 70


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_what_the_program_ffmpeg_sends_is_shown(h264: Encoded) -> None:
    port = free_port()
    receiver = Receiver(Address("127.0.0.1", port), jitter_buffer_s=0.1)
    words = ["ffmpeg", "-v", "error", "-re", "-f", "h264", "-r", "30", "-i", str(h264.file), "-c", "copy", "-f", "rtp"]
    with subprocess.Popen([*words, f"rtp://127.0.0.1:{port}"], stdout=subprocess.DEVNULL):
        received = receiver.run(6)
    assert [row.frame for row in received.rows] == list(range(FRAMES))
    assert not any(row.damaged for row in received.rows)


def contained(encoded: Encoded, file: Path) -> None:
    """Returns the bitstream in a container with the time of each picture."""
    with av.open(str(encoded.file), format="h264") as source, av.open(str(file), "w") as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            packet.time_base, packet.stream = Fraction(1, _core.RTP_CLOCK_HZ), stream
            packet.pts = packet.dts = 3000 * number
            if packet.size:
                out.mux(packet)


@pytest.mark.skipif(shutil.which("gst-launch-1.0") is None, reason="GStreamer is not installed")
def test_what_gstreamer_sends_is_shown(h264: Encoded, tmp_path: Path) -> None:
    file, port = tmp_path / "clip.mp4", free_port()
    contained(h264, file)
    receiver = Receiver(Address("127.0.0.1", port), jitter_buffer_s=0.05)
    words = f"""gst-launch-1.0 -q rtpbin name=rtp filesrc location={file} ! qtdemux ! h264parse
        ! rtph264pay config-interval=-1 mtu=1200 pt=96 ! rtp.send_rtp_sink_0
        rtp.send_rtp_src_0 ! udpsink host=127.0.0.1 port={port}
        rtp.send_rtcp_src_0 ! udpsink host=127.0.0.1 port={port + 1} sync=false async=false"""
    with subprocess.Popen(words.split(), stdout=subprocess.DEVNULL):
        received = receiver.run(8)
    assert [row.frame for row in received.rows] == list(range(FRAMES))
    assert not any(row.damaged for row in received.rows)
    assert 45 < median(latencies_ms(received)) < 70


@pytest.mark.skipif(shutil.which("gst-launch-1.0") is None, reason="GStreamer is not installed")
def test_gstreamer_shows_what_the_camera_sends(h264: Encoded, tmp_path: Path) -> None:
    to, file = Address("127.0.0.1", free_port()), tmp_path / "pictures"
    caps = "application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96"
    words = f"""gst-launch-1.0 -q -e udpsrc port={to.port} timeout=1000000000 caps={caps} ! rtpjitterbuffer latency=100
        ! rtph264depay ! h264parse ! avdec_h264 ! videoconvert ! video/x-raw,format=GRAY8 ! filesink location={file}"""
    with subprocess.Popen(words.split(), stdout=subprocess.DEVNULL) as player:
        time.sleep(1)
        pipeline.send(h264, to)
        time.sleep(1)
        player.send_signal(signal.SIGINT)
    pictures = np.frombuffer(file.read_bytes(), np.uint8).reshape(-1, HEIGHT, WIDTH)
    assert [timecode.read(picture) for picture in pictures] == list(range(FRAMES))


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_finds_nothing_amiss_in_what_the_camera_sends(encoded: Encoded, tmp_path: Path) -> None:
    port = free_port()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as media,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reports,
    ):
        media.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        media.bind(("127.0.0.1", port))
        reports.bind(("127.0.0.1", port + 1))
        pipeline.send(encoded, Address("127.0.0.1", port), duration_s=0.3)
        came = [(port + place, data) for place, one in enumerate((media, reports)) for data in waiting(one)]
    capture = tmp_path / "camera.pcap"
    write_capture(capture, came)
    kind = "H264" if encoded.settings.codec == "h264" else "H265"
    words = ["tshark", "-r", capture, "-d", f"udp.port=={port},rtp", "-d", f"udp.port=={port + 1},rtcp"]
    words += [
        "-o",
        f"{kind.lower()}.dynamic.payload.type:{_core.RTP_PAYLOAD_TYPE}",
        "-T",
        "fields",
        "-E",
        "separator=;",
    ]
    for name in ("frame.protocols", "rtp.marker", "rtp.timestamp", "rtcp.pt", "_ws.expert.group"):
        words += ["-e", name]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True, timeout=60).stdout
    rows = [line.split(";") for line in result.splitlines()]
    of_media = [row for row in rows if row[0].endswith(f"rtp:{kind.lower()}")]
    assert len(of_media) == sum(where == port for where, _ in came) > 9
    assert sum(row[1] in ("1", "True") for row in of_media) == 9
    assert len({row[2] for row in of_media}) == 9
    # A sender's report with the description of its source, and at the end that it has gone.
    assert [row[3] for row in rows if "rtcp" in row[0]][:1] == ["200,202"]
    assert "200,202,203" in [row[3] for row in rows]
    # It does not decode slices; nothing is malformed or out of sequence.
    undecoded = str(0x0500_0000)
    assert {group for row in rows for group in row[4].split(",")} <= {"", undecoded}


def waiting(one: socket.socket) -> list[bytes]:
    one.setblocking(False)
    found = []
    try:
        while True:
            found.append(one.recv(65535))
    except BlockingIOError:
        return found


def write_capture(file: Path, datagrams: list[tuple[int, bytes]]) -> None:
    """Writes datagrams between loopback ports as a capture of raw IP packets."""
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for number, (port, payload) in enumerate(datagrams):
        size = 28 + len(payload)
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, size, number, 0, 64, 17, 0, b"\x7f\0\0\1", b"\x7f\0\0\1")
        packet = ip + struct.pack("!HHHH", 40000, port, size - 20, 0) + payload
        data += struct.pack("<IIII", 0, number, len(packet), len(packet)) + packet
    file.write_bytes(data)


# What is refused.


@pytest.mark.parametrize("text", ["", "5004", "host", ":5004", "host:0", "host:70000", "host:rtp", "host:5004 "[:4]])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(VideoError, match="expected HOST:PORT, for example"):
        address(text)
    assert address("[fe80::1]:5004") == ("fe80::1", 5004)
    assert address("5004", listening=True) == ("", 5004)


def test_the_commands_say_what_is_wrong(clip: clips.Clip, tmp_path: Path) -> None:
    send = ("video", "send", str(clip.file), "--rate", "600kbit/s")
    receive = ("video", "receive", "--out", str(tmp_path / "f.csv"), "--listen")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for words, said in (
            ((*send, "--to", "nowhere"), "found nowhere, expected HOST:PORT"),
            ((*send, "--to", "127.0.0.1:9", "--packet", "99"), "found 99 B, expected 100 B"),
            ((*send, "--to", "127.0.0.1:9", "--tcp", "--sdp", "x.sdp"), "--sdp: found a connection, expected UDP"),
            ((*receive, f"127.0.0.1:{port}"), "cannot listen: Address already in use"),
            ((*receive, "127.0.0.1:5004", "--codec", "av1"), "found av1, expected one of h264, h265"),
        ):
            done = CliRunner().invoke(app, words)
            assert isinstance(done.exception, VideoError)
            assert said in str(done.exception)


# Over emulated links.


def simulated_ms(encoded: Encoded, jitter_buffer: str) -> float:
    """Returns the simulated median latency in ms of the same clip over the same link."""
    scenario = _core.Scenario.parse(LINK + FLOW.replace("JITTER", jitter_buffer), "link.toml")
    frames = [(bool(frame.key), [len(unit) for unit in frame.units]) for frame in encoded.frames]
    columns: dict[str, Any] = scenario.with_clip("video", frames).run(1, ["frames"]).columns("frames")
    latencies, shown = columns["latency_ns"]
    return float(np.median(latencies[shown])) / MS


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def median_ms(rows: list[dict[str, str]]) -> float:
    return median(int(row["latency_ns"]) / MS for row in rows)


@needs_emulator
def test_emulated_pictures_are_as_late_as_the_simulator_says(
    skybraid_process: Command, clip: clips.Clip, h264: Encoded, tmp_path: Path
) -> None:
    scenario = tmp_path / "link.toml"
    scenario.write_text(LINK, encoding="utf-8")
    program = f"{sys.executable} -m skybraid video"
    ground = f"{program} receive --listen 5004 --out frames.csv --jitter-buffer 1ms"
    vehicle = f"{program} send {clip.file} --rate 600kbit/s --for 3s --to $SKYBRAID_GROUND:5004"
    done = skybraid_process("emulate", scenario, "--out", "result", "--ground", ground, "--vehicle", vehicle)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "frames.csv")
    # A screen that is started on a busy machine may miss the first pictures; then a key frame makes it whole.
    damaged = [row["damaged"] for row in rows]
    assert len(rows) > 50
    assert set(damaged[damaged.index("false") :]) == {"false"}
    assert median_ms(rows) == pytest.approx(simulated_ms(h264, "1ms"), rel=0.1)


PROGRAM = binary()


@needs_namespaces
@needs_gateway
def test_through_two_gateways_pictures_come_as_early_as_without_them(
    clip: clips.Clip, h264: Encoded, tmp_path: Path
) -> None:
    assert PROGRAM is not None
    scenario = tmp_path / "link.toml"
    scenario.write_text(LINK, encoding="utf-8")
    with Field(scenario, tmp_path) as field:
        daemons = configure_pair(
            PROGRAM,
            tmp_path,
            (field.vehicle, field.ground),
            in_emulator(field.addresses("ground")),
            aircraft={"udp": {"video": {"listen": "127.0.0.1:5600"}}},
            ground={"udp": {"video": {"send_to": "127.0.0.1:5604"}}},
        )
        direct = flown(field, clip, f"{field.addresses('ground')['lte']}:5004", 5004, tmp_path / "direct.csv")
        try:
            for daemon in daemons:
                daemon.start()
            for daemon in daemons:
                daemon.until_linked(1)
            # A gateway's port takes datagrams of every kind, so RTCP goes on RTP's own.
            through = flown(field, clip, "127.0.0.1:5600", 5604, tmp_path / "through.csv", "--one-port")
        finally:
            for daemon in daemons:
                daemon.stop()
    for rows in (direct, through):
        assert [int(row["frame"]) for row in rows] == list(range(60))
        assert {row["damaged"] for row in rows} == {"false"}
    assert median_ms(direct) == pytest.approx(simulated_ms(h264, "40ms"), rel=0.1)
    assert median_ms(through) == pytest.approx(median_ms(direct), rel=0.1)


def flown(field: Field, clip: clips.Clip, to: str, listen: int, out: Path, *more: str) -> list[dict[str, str]]:
    """Sends two seconds of the clip from the vehicle to the ground."""
    program = [sys.executable, "-m", "skybraid", "video"]
    words = ["receive", "--listen", str(listen), "--out", str(out), "--jitter-buffer", "40ms"]
    screen = field.ground.start([*program, *words])
    until(lambda: out.exists() and out.stat().st_size > 0)
    camera = field.vehicle.start(
        [*program, "send", str(clip.file), "--rate", "600kbit/s", "--for", "2s", "--to", to, *more]
    )
    assert camera.wait(30) == 0
    assert screen.wait(10) == 0
    return rows_of(out)


def until(holds: Callable[[], bool], longest_s: float = 20.0) -> None:
    deadline = time.monotonic() + longest_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)

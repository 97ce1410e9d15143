"""The emulator as its users run it: flights in real time, programs, control, nothing left behind."""

import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

import skybraid as package
from conftest import Command
from marks import needs_emulator
from skybraid import EmulationError, Results, Scenario, Verdict
from skybraid.cli import ctl as ctl_command
from skybraid.execute import control

FLIGHT = """
name = "In real time"
duration = "2s"
seed = 3

[path.near]
uplink.rate = "20Mbit/s"
uplink.delay = "20ms"
downlink.rate = "20Mbit/s"
downlink.delay = "20ms"

[path.far]
uplink.rate = "20Mbit/s"
uplink.delay = "60ms"
downlink.rate = "20Mbit/s"
downlink.delay = "60ms"

[flow.video]
from = "vehicle"
traffic = { kind = "cbr", rate = "2Mbit/s", packet = "1000B" }
transport = { protocol = "udp", scheduler = "round_robin" }
require = { deadline = "150ms", share = "75%" }

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant" }
require = { deadline = "150ms", share = "75%" }
"""

ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 5000))
while True:
    data, sender = server.recvfrom(2000)
    server.sendto(data, sender)
"""
"""Sends every datagram back."""

PROBE = """
import os, socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(2)
client.connect((os.environ["SKYBRAID_GROUND"], 5000))
times = []
for _ in range(11):
    sent = time.monotonic()
    client.send(bytes(100))
    client.recv(2000)
    times.append(time.monotonic() - sent)
print(round(1000 * sorted(times)[5], 3))
"""
"""Prints the median round-trip time in ms."""

NUMBERED = """
import os, socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((os.environ["SKYBRAID_GROUND"], 5000))
client.setblocking(False)
log, number = open(sys.argv[1], "a", buffering=1), 0
while not os.path.exists(sys.argv[1] + ".end") and number < 6000:
    number += 1
    client.send(str(number).encode())
    print("sent", number, file=log)
    time.sleep(0.01)
    try:
        while True:
            print("came", client.recv(2000).decode(), file=log)
    except OSError:
        pass
"""
"""Sends a numbered datagram every 10 ms, and logs each that was sent and each that came back, until told to end."""


pytestmark = needs_emulator


def program(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


@pytest.fixture(autouse=True)
def own_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of control sockets apart from that of other emulations."""
    folder = tmp_path / "control"
    monkeypatch.setenv(control.FOLDER, str(folder))
    return folder


@pytest.fixture
def flight(tmp_path: Path) -> Path:
    file = tmp_path / "flight.toml"
    file.write_text(FLIGHT, encoding="utf-8")
    return file


Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts the command in a process group of its own, as a terminal does, and ends what a test has left running."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "skybraid", *map(str, arguments)]
        process = subprocess.Popen(
            words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(what: Callable[[], bool], longest_s: float = 120) -> None:
    deadline = time.monotonic() + longest_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def flies(folder: Path) -> bool:
    """Whether the emulation of this folder of sockets answers and its time runs."""
    for one in control.running():
        with control.Client(one.socket) as client:
            return bool(client.ask(do="status")["at_s"] > 0.2)
    return False


def processes_with(word: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in place.read_bytes() and int(place.parent.name) != os.getpid():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def packets(link: str, text: str) -> int:
    """How many packets a link delivered, as the command tells it."""
    found = re.search(rf"{link}: (\d+) packets delivered", text)
    assert found, text
    return int(found[1])


def interfaces() -> set[str]:
    return {folder.name for folder in Path("/sys/class/net").iterdir()}


def test_a_flight_in_real_time_is_judged_like_a_simulated_one(
    skybraid_process: Command, flight: Path, tmp_path: Path
) -> None:
    done = skybraid_process("emulate", flight, "--out", "result", "--report", "--pcap")
    assert done.returncode == 0, done.stderr
    assert "In real time: 1 flight, 2 s emulated in real time, seed 3" in done.stdout
    assert "packets left their link late by" in done.stdout
    assert "video: met. " in done.stdout
    assert "All 2 requirements are met." in done.stdout
    results = Results.open(tmp_path / "result")
    assert results.driver == "emulation"
    assert set(results.tables) >= {"messages", "links"}
    # 2 Mbit/s of 1000 B for 2 s, minus what is under way at the end.
    assert 480 <= results.flows["video"].delivered <= 500
    delay_ms = results.flows["video"].delay_ms["p50"]
    assert delay_ms is not None
    assert 20 <= delay_ms < 75
    emulation = results.flights[0].emulation
    assert emulation is not None
    assert emulation["lateness_us"]["p50"] >= 0
    assert set(emulation["stacks"]) == {"video", "control"}
    assert list((tmp_path / "result" / "pcap").iterdir())
    page = (tmp_path / "result" / "report.html").read_text(encoding="utf-8")
    assert "Emulated in real time" in page
    assert "lost by the emulator" in page
    assert results.provenance["replay"] == f"skybraid emulate {flight} --seed 3"


SPLIT = """
name = "Split"
duration = "2s"

[path.near]
uplink.rate = "20Mbit/s"
uplink.delay = "10ms"
downlink.rate = "20Mbit/s"
downlink.delay = "10ms"

[path.far]
uplink.rate = "20Mbit/s"
uplink.delay = "20ms"
downlink.rate = "20Mbit/s"
downlink.delay = "20ms"

[flow.single]
from = "vehicle"
traffic = { kind = "cbr", rate = "4Mbit/s", packet = "1000B" }
transport = { profile = "linux", protocol = "tcp", paths = ["near"], congestion = "cubic", stack = "kernel" }

[flow.several]
from = "ground"
traffic = { kind = "cbr", rate = "2Mbit/s", packet = "1000B" }
transport = { profile = "linux", protocol = "mptcp", scheduler = "linux", congestion = "cubic", stack = "kernel" }

[flow.control]
from = "ground"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "125B" }
transport = { protocol = "udp", scheduler = "redundant" }

[testbed]
path.near.proxy.vehicle = { congestion = "reno" }
"""


def test_kernel_flows_are_reported_as_by_iperf3(skybraid_process: Command, tmp_path: Path) -> None:
    (tmp_path / "split.toml").write_text(SPLIT, encoding="utf-8")
    done = skybraid_process("emulate", "split.toml", "--out", "result", "--iperf3", "--tables", "links", "--report")
    results = Results.open(tmp_path / "result")
    assert {file.name for file in (tmp_path / "result").glob("iperf3-*")} == {
        "iperf3-single.json",
        "iperf3-several.json",
    }
    for flow, control_name in (("single", "cubic"), ("several", "cubic")):
        answer = json.loads((tmp_path / "result" / f"iperf3-{flow}.json").read_text(encoding="utf-8"))
        assert answer.keys() == {"start", "intervals", "end"}
        end = answer["end"]
        assert end["sender_tcp_congestion"] == control_name
        # The run's two seconds.
        assert [one["sum"]["end"] for one in answer["intervals"]] == [1, 2]
        assert end["sum_received"]["bytes"] == sum(one["streams"][0]["received_bytes"] for one in answer["intervals"])
        assert end["sum_sent"]["bytes"] == sum(one["sum"]["bytes"] for one in answer["intervals"])
        # Part of a message may have arrived when the run ends.
        whole = results.flows[flow].delivered * 1000
        assert 0 <= end["sum_received"]["bytes"] - whole < 1000
        assert end["sum_received"]["bytes"] <= end["sum_sent"]["bytes"] <= results.flows[flow].sent * 1000
        assert end["sum_received"]["bits_per_second"] == pytest.approx(results.flows[flow].goodput_bps, rel=0.01)
        # Windows and round-trip times need the samples, which are taken although their table is not kept.
        assert end["streams"][0]["sender"]["max_snd_cwnd"] > 0
        assert end["streams"][0]["sender"]["mean_rtt"] > 0
    assert "subflows" not in list(results.tables)
    assert "sum_received" not in (tmp_path / "result" / "summary.json").read_text(encoding="utf-8")
    assert "--iperf3" in results.provenance["replay"]
    emulation = results.flights[0].emulation or {}
    assert "iperf3" not in emulation
    notes = emulation["notes"]
    assert [line for line in done.stderr.splitlines() if "note: flow" in line] == [f"note: {note}" for note in notes]
    assert any("`several` uses MPTCP over path `near`" in note for note in notes)
    assert any("`control` has no iperf3-control.json: skybraid udp carried it" in note for note in notes)
    assert re.search(r"near-vp: 2 connections split, \S+ [kM]B to the server side, ", done.stdout)
    page = (tmp_path / "result" / "report.html").read_text(encoding="utf-8")
    assert "proxy near-vp" in page
    assert "uses MPTCP over path" in page


def test_flows_without_an_iperf3_form_are_refused(skybraid_process: Command, flight: Path) -> None:
    done = skybraid_process("emulate", flight, "--iperf3", "--vehicle", "true")
    assert done.returncode == 2
    assert "--iperf3: found programs, expected the scenario's flows" in done.stderr
    with pytest.raises(EmulationError, match="iperf3: found no result folder"):
        package.emulate(flight, iperf3=True)


def test_python_flies_it_too_and_keeps_it_in_memory(flight: Path) -> None:
    shares: list[float] = []
    results = package.emulate(Scenario.load(flight).with_("duration", "1s"), tables=["links"], progress=shares.append)
    assert results.driver == "emulation"
    assert results.folder is None
    assert results.tables["links"].height > 0
    assert shares[-1] == 1
    assert results.provenance["replay"].endswith("--set 'duration=\"1s\"'")
    with pytest.raises(EmulationError, match="tables: found nonsense"):
        package.emulate(flight, tables=["nonsense"])


def test_programs_run_over_the_links_and_what_they_print_is_kept(
    skybraid_process: Command, flight: Path, tmp_path: Path
) -> None:
    done = skybraid_process(
        "emulate", flight, "--out", "result", "--ground", program(ECHO), "--vehicle", f"{program(PROBE)}; exit 3"
    )
    assert done.returncode == 1, done.stderr
    assert "exit code 3" in done.stdout
    assert "stopped at the end" in done.stdout
    # The probe's and a few of the kernel's own.
    assert 11 <= packets("near uplink", done.stdout) < 25
    median_ms = float((tmp_path / "result" / "vehicle.out").read_text(encoding="utf-8"))
    assert 40 <= median_ms < 60
    results = Results.open(tmp_path / "result")
    assert results.flows == {}
    assert results.tables["links"].height > 0
    assert {"vehicle.err", "ground.out", "ground.err"} <= {file.name for file in (tmp_path / "result").iterdir()}
    assert "Programs over the links" in results.report(tmp_path / "page.html").read_text(encoding="utf-8")


def test_programs_of_root_lose_its_privileges_unless_they_are_kept(skybraid_process: Command, flight: Path) -> None:
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text(encoding="utf-8").split() != ["0", "0", "4294967295"]:
        pytest.skip("only root of the machine has privileges to keep")
    home = Path(pwd.getpwuid(0).pw_dir)
    file = home / f".skybraid-test-{os.getpid()}"
    command = f"grep -E 'CapEff|NoNewPrivs' /proc/self/status; touch {file} && echo home"

    def printed(*options: str) -> list[str]:
        done = skybraid_process("emulate", flight, "--vehicle", command, "--for", "5s", "--out", *options)
        assert done.returncode in (0, 1), done.stderr
        output = flight.parent / options[0] / "vehicle.out"
        return output.read_text(encoding="utf-8").replace("\t", " ").splitlines()

    try:
        # CAP_NET_BIND_SERVICE (10), CAP_NET_ADMIN (12) and CAP_NET_RAW (13).
        assert printed("confined") == ["CapEff: 0000000000003400", "NoNewPrivs: 1"]
        assert not file.exists()
        own = re.search(r"CapEff:\s+(\w+)", Path("/proc/self/status").read_text(encoding="utf-8"))
        assert own is not None
        assert printed("kept", "--keep-privileges") == [f"CapEff: {own[1]}", "NoNewPrivs: 0", "home"]
        assert file.exists()
    finally:
        file.unlink(missing_ok=True)


def test_programs_end_when_their_time_is_over(skybraid_process: Command, flight: Path) -> None:
    done = skybraid_process("emulate", flight, "--out", "result", "--vehicle", "sleep 600", "--for", "1s", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["emulation"]["programs"]["vehicle"] == {"command": "sleep 600", "exit": None, "stopped": True}


def test_a_cut_path_brings_nothing_until_it_is_restored(
    begin: Begin, flight: Path, tmp_path: Path, own_sockets: Path
) -> None:
    log = tmp_path / "log"
    vehicle = f"{program(NUMBERED)} {shlex.quote(str(log))}"
    process = begin("emulate", flight, "--out", "result", "--ground", program(ECHO), "--vehicle", vehicle)

    def numbers(what: str) -> list[int]:
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(what) and line[-1].isdigit()]

    until(lambda: bool(numbers("came")))
    with control.Client(control.find("in-real-time").socket) as client:

        def lost() -> int:
            return sum(client.ask(do="status")["paths"][0]["uplink"]["lost"].values())

        client.ask(do="cut", path="near")
        first, before = numbers("sent")[-1] + 1, lost()
        until(lambda: lost() >= before + 30)
        status = client.ask(do="status")
        client.ask(do="restore", path="near")
        restored = numbers("sent")[-1]
    assert [path["uplink"]["up"] for path in status["paths"]] == [False, True]
    until(lambda: max(numbers("came")) > restored)
    log.with_suffix(".end").touch()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    # The emulator takes datagrams in order, so that the first after the cut are among those lost.
    assert not set(range(first + 1, first + 20)) & set(numbers("came"))


def ctl(*arguments: str) -> str:
    """What `skybraid ctl` prints, run in this process."""
    done = CliRunner().invoke(ctl_command.app, arguments)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_control_changes_a_link_and_says_what_it_does_not_know(
    skybraid_process: Command, begin: Begin, flight: Path, own_sockets: Path
) -> None:
    with pytest.raises(EmulationError, match="found no running emulation"):
        ctl("status")
    begin("emulate", flight, "--out", "result", "--vehicle", "sleep 60")
    until(lambda: flies(own_sockets))
    assert ctl("set", "far", "--rate", "1Mbit/s", "--direction", "uplink") == "far uplink: rate 1Mbit/s\n"
    status = json.loads(ctl("--name", "in-real-time", "status", "--json"))
    assert ctl("status", "--name", "in-real-time", "--json")
    assert [status["paths"][1][direction]["rate_bps"] for direction in ("uplink", "downlink")] == [1e6, 20e6]
    assert ctl("cut", "near") == "near: cut\n"
    until(lambda: re.search(r"near uplink: down [\d.]+ s, 20 Mbit/s, –, loss", ctl("status")) is not None)
    assert ctl("reset", "near") == "near: as the scenario says\n"
    until(lambda: "near uplink: up" in ctl("status"))
    wrong = skybraid_process("ctl", "cut", "sideways")
    assert wrong.returncode == 2
    assert "sideways" in wrong.stderr
    assert "near" in wrong.stderr
    assert "far" in wrong.stderr
    assert json.loads(ctl("stop", "--json"))["ok"]


def test_a_live_page_is_seen_from_outside_the_sandbox(begin: Begin, flight: Path, tmp_path: Path) -> None:
    seen = program("import os; print(*os.listdir('/proc/self/fd'), 'SKYBRAID_LIVE_LISTENER' in os.environ)")
    process = begin("emulate", flight, "--live", "--out", "result", "--vehicle", f"{seen}; sleep 60")
    address = next(line.split()[-1] for line in process.stderr or () if line.startswith("live: "))
    until(lambda: len(json.load(urlopen(f"{address}status", timeout=60))["points"]) > 1)
    assert json.loads(ctl("stop", "--json"))["ok"]
    until(lambda: json.load(urlopen(f"{address}status", timeout=60))["finished"])
    assert b"Provenance" in urlopen(f"{address}report", timeout=60).read()
    assert (tmp_path / "result" / "vehicle.out").read_text().split() == ["0", "1", "2", "3", "False"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_keep_what_was_seen_and_leave_nothing(
    begin: Begin, flight: Path, tmp_path: Path, own_sockets: Path, number: signal.Signals, code: int
) -> None:
    before = interfaces()
    flight.write_text(FLIGHT.replace('duration = "2s"', 'duration = "60s"'), encoding="utf-8")
    process = begin("emulate", flight, "--out", "result")
    until(lambda: flies(own_sockets))
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    assert "of 60 s: the result holds what was seen so far" in err
    results = Results.open(tmp_path / "result")
    assert 0 < results.simulated_s < 10
    video = results.flows["video"]
    assert video.delivered > 0
    assert (video.lost, video.sent) == (0, video.delivered + video.in_flight)
    assert video.goodput_bps == pytest.approx(2e6, rel=0.3)
    assert all(requirement.verdict is not Verdict.NOT_MET for requirement in results.requirements)
    assert not list(own_sockets.iterdir())
    until(lambda: not processes_with(str(flight)))
    assert interfaces() == before


def test_leftovers_of_a_killed_emulation_are_removed(
    skybraid_process: Command, begin: Begin, flight: Path, tmp_path: Path, own_sockets: Path
) -> None:
    before = interfaces()
    process = begin("emulate", flight, "--out", "runs/result", "--vehicle", "sleep 987654")
    until(lambda: flies(own_sockets))
    assert processes_with("987654")
    process.kill()
    process.wait()
    until(lambda: not processes_with("987654") and not processes_with(str(flight)))
    assert interfaces() == before
    assert len(list(own_sockets.glob("*.sock"))) == 1
    swept = skybraid_process("clean")
    assert swept.stdout.count("removed ") == 2
    assert not list(own_sockets.iterdir())
    assert not list((tmp_path / "runs").iterdir())
    assert skybraid_process("clean").stdout == "nothing is left over\n"


def test_cleaning_leaves_a_running_emulation_alone(
    skybraid_process: Command, begin: Begin, flight: Path, tmp_path: Path, own_sockets: Path
) -> None:
    begin("emulate", flight, "--out", "runs/result", "--vehicle", "sleep 60")
    until(lambda: flies(own_sockets))
    assert skybraid_process("clean").stdout == "nothing is left over\n"
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert control.running()


def test_a_full_disk_is_a_plain_error(skybraid_process: Command, flight: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        for kept in (("--tables", "messages,packets"), ("--tables", "links", "--pcap")):
            done = skybraid_process("emulate", flight, "--out", disk / "result", *kept, "--quiet")
            assert done.returncode == 2
            assert done.stderr.startswith("error: ")
            assert "No space left on device" in done.stderr
            assert "Traceback" not in done.stderr
            assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_link_delays_a_program_and_returns_its_exit_code(skybraid_process: Command) -> None:
    behind = ("link", "--rate", "10Mbit/s", "--delay", "30ms", "--ground", program(ECHO), "--")
    done = skybraid_process(*behind, sys.executable, "-c", PROBE)
    assert done.returncode == 0, done.stderr
    # 142 B at 10 Mbit/s take 0.1 ms each way.
    assert 60.2 <= float(done.stdout) < 75
    assert 11 <= packets("link uplink", done.stderr) < 25
    assert skybraid_process("link", "--rate", "1Mbit/s", "--", "sh", "-c", "exit 7").returncode == 7


def test_links_in_one_another_add_up(skybraid_process: Command) -> None:
    inner = (sys.executable, "-m", "skybraid", "link", "--rate", "10Mbit/s", "--delay", "30ms", "--quiet", "--")
    probe = PROBE.replace('os.environ["SKYBRAID_GROUND"]', "sys.argv[1]")
    words = shlex.join([*inner, sys.executable, "-c", probe])
    outer = ("link", "--rate", "10Mbit/s", "--delay", "20ms", "--quiet", "--ground", program(ECHO), "--")
    done = skybraid_process(*outer, "sh", "-c", f'{words} "$SKYBRAID_GROUND"')
    assert done.returncode == 0, done.stderr
    assert 100 <= float(done.stdout) < 120


def test_links_go_side_by_side_in_vehicle_and_ground(
    begin: Begin, flight: Path, tmp_path: Path, own_sockets: Path
) -> None:
    begin("emulate", flight, "--out", "result", "--vehicle", "sleep 60", "--ground", program(ECHO))
    until(lambda: flies(own_sockets))
    link = shlex.join(
        [sys.executable, "-m", "skybraid", "link", "--rate", "10Mbit/s", "--delay", "30ms", "--quiet", "--"]
    )
    far = PROBE.replace('os.environ["SKYBRAID_GROUND"]', '"10.0.0.2"')
    for node, code, min_ms in (("vehicle", far, 100), ("ground", PROBE, 60)):
        beside = f"{link} sleep 5 & sleep 2; {link} {program(code)}\n"
        done = in_shell(tmp_path, beside, "--join", "in-real-time", "--node", node)
        assert done.returncode == 0, done.stderr
        assert min_ms <= float(done.stdout) < min_ms + 30


@pytest.mark.parametrize("node", ["vehicle", "ground"])
def test_a_program_that_is_killed_leaves_a_result(
    skybraid_process: Command, flight: Path, tmp_path: Path, node: str
) -> None:
    other = "ground" if node == "vehicle" else "vehicle"
    words = (f"--{node}", "sleep 0.5; kill -9 $$", f"--{other}", "sleep 1.5", "--for", "5s")
    done = skybraid_process("emulate", flight, "--out", "result", *words)
    assert done.returncode == 1, done.stderr
    assert f"{node}: sleep 0.5; kill -9 $$: exit code 137" in done.stdout
    emulation = Results.open(tmp_path / "result").flights[0].emulation
    assert emulation is not None
    assert emulation["programs"][node] == {"command": "sleep 0.5; kill -9 $$", "exit": 137, "stopped": False}


def in_shell(tmp_path: Path, commands: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """What a shell of Skybraid's prints and leaves with when it is given these commands."""
    words = [sys.executable, "-m", "skybraid", "shell", *map(str, arguments)]
    variables = {**os.environ, "SHELL": "/bin/sh"}
    return subprocess.run(
        words, cwd=tmp_path, env=variables, input=commands, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_shell_is_in_the_vehicle_and_another_joins_it_on_the_ground(
    begin: Begin, flight: Path, tmp_path: Path, own_sockets: Path
) -> None:
    commands = "echo at $SKYBRAID_NODE; tail -n +3 /proc/self/net/dev; exit 5\n"
    alone = in_shell(tmp_path, commands, flight)
    assert alone.returncode == 5, alone.stderr
    assert "near: vehicle 10.0.0.1, ground 10.0.0.2" in alone.stderr
    assert "at vehicle" in alone.stdout
    begin("emulate", flight, "--out", "result", "--vehicle", "sleep 60")
    until(lambda: flies(own_sockets))
    joined = in_shell(tmp_path, commands, "--join", "in-real-time", "--node", "ground")
    assert joined.returncode == 5, joined.stderr
    assert "at ground" in joined.stdout
    assert {line.split(":")[0].strip() for line in joined.stdout.splitlines()[1:]} == {"lo", "near", "far"}
    assert "expected one of vehicle, ground" in in_shell(tmp_path, "", "--join", "in-real-time", "--node", "x").stderr


def test_a_link_without_a_rate_is_refused(skybraid_process: Command) -> None:
    done = skybraid_process("link", "--uplink-rate", "1Mbit/s", "--", "true")
    assert done.returncode == 2
    assert "no rate of the downlink, expected --rate or --downlink-rate" in done.stderr


def test_json_of_a_link_is_one_value_beside_what_the_program_prints(skybraid_process: Command) -> None:
    done = skybraid_process("link", "--rate", "1Mbit/s", "--json", "--", "echo", "words of the program")
    assert done.returncode == 0, done.stderr
    assert {"schema", "command", "exit", "seconds", "links", "emulation"} == set(json.loads(done.stdout))
    assert "words of the program" in done.stderr


def test_an_ordinary_user_flies_too(flight: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming another user needs root and setpriv")
    place = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    try:
        shutil.copy(flight, place / "flight.toml")
        os.chown(place, 65534, 65534)
        variables = {
            **os.environ,
            control.FOLDER: str(place / "control"),
            "HOME": str(place),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

        def as_user(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*user, *words], cwd=place, env=variables, capture_output=True, text=True, timeout=120, check=False
            )

        here = f"python3.{sys.version_info.minor}"
        # Another user may not be able to read a Python below somebody's home.
        again = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', 'import skybraid']))"
        pythons = [python for python in (sys.executable, f"/usr/bin/{here}") if Path(python).exists()]
        readable = [python for python in pythons if as_user(python, "-c", again).returncode == 0]
        if not readable:
            pytest.skip("another user cannot read this Python")
        done = as_user(readable[0], "-m", "skybraid", "emulate", "flight.toml", "--out", "result", "--quiet")
        if "cannot make a user namespace" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        assert (place / "result" / "summary.json").stat().st_uid == 65534
    finally:
        shutil.rmtree(place)

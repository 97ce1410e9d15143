"""Probes measure over loopback what the other end does.

The server is a process of its own; the probes run within the tests, through the command line.
"""

import asyncio
import csv
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ports import free_ports
from skybraid.cli import main
from skybraid.probe.measure import ProbeError, repeat, seconds, size_bytes, spread
from skybraid.probe.server import quic_module
from skybraid.probe.site import Site, objects_of, place

THINK_MS = 20

needs_quic = pytest.mark.skipif(quic_module() is None, reason="aioquic is not installed: pip install 'skybraid[quic]'")


@dataclass
class Done:
    """What a command printed, and its exit code."""

    returncode: object
    stdout: str
    stderr: str


Probe = Callable[..., Done]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Probe:
    """Runs `skybraid probe …` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["skybraid", "probe", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        return Done(left.value.code or 0, *capsys.readouterr())

    return command


def has_mptcp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
    except OSError:
        return False
    return True


needs_mptcp = pytest.mark.skipif(not has_mptcp(), reason="the kernel has no MPTCP")


def started(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """`probe serve` on a free port, and that port; QUIC's is in the line that it printed."""
    words = [sys.executable, "-m", "skybraid", "probe", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"on \S+:(\d+)", line)
    if found is None:
        process.kill()
        pytest.fail(f"serve printed {line!r}, {process.communicate()[1]}")
    return process, int(found[1])


def ended(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    """Ends a server; its exit code and what it said on standard error."""
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where a server answers that thinks for 20 ms."""
    process, number = started("--think", f"{THINK_MS}ms", "--objects", "8", "--bytes", "30kB")
    yield number
    code, errors = ended(process)
    assert (code, errors) == (0, "")


@pytest.fixture
def silent() -> Iterator[int]:
    """A port of TCP and UDP that takes what comes and never answers."""
    (port,) = free_ports(1)
    with (
        socket.create_server(("127.0.0.1", port)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
    ):
        datagrams.bind(("127.0.0.1", port))
        yield port


@pytest.fixture
def closed() -> int:
    """A port that nobody listens on."""
    return free_ports(1)[0]


def quic_port(port: int) -> int:
    return port + 1


def measured(done: Done) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert {"probe", "target", "summary", "samples", "failures"} <= found.keys()
    assert isinstance(found, dict)
    return found


# Round trips.


def test_every_echo_comes_back(probe: Probe, port: int) -> None:
    found = measured(probe("ping", "127.0.0.1", port, "--count", 40, "--every", "5ms", "--json"))
    assert (found["count"], found["lost"]) == (40, 0)
    assert found["summary"]["rtt_ms"].keys() == {"min", "p50", "p95", "p99", "max"}
    # The last one leaves 39 intervals of 5 ms after the first.
    assert found["samples"][-1]["sent_s"] >= 0.195
    assert all(0 < sample["rtt_ms"] < 1000 for sample in found["samples"])


def test_echoes_cross_ipv6_too_and_carry_as_much_as_they_are_told(probe: Probe, port: int) -> None:
    done = probe("ping", "::1", port, "--count", 3, "--bytes", "1400")
    assert done.returncode == 0
    assert done.stdout.startswith(f"::1 port {port}: 3 datagrams of 1400 bytes every 10ms, 0 lost (0 %)\n")


def test_a_round_trip_is_the_time_that_the_other_end_takes(probe: Probe) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as slow:
        slow.bind(("127.0.0.1", 0))

        def answer() -> None:
            for number in range(4):
                data, back = slow.recvfrom(2000)
                threading.Event().wait(0.03)
                # The third is lost.
                if number != 2:
                    slow.sendto(data, back)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        asked = ("--count", 4, "--every", "100ms", "--timeout", "500ms", "--json")
        found = measured(probe("ping", "127.0.0.1", slow.getsockname()[1], *asked))
        thread.join(5)
    assert (found["count"], found["lost"]) == (4, 1)
    assert found["samples"][2]["rtt_ms"] is None
    assert found["summary"]["rtt_ms"]["min"] >= 30


# Connections.


def test_a_row_for_each_connection(probe: Probe, port: int, tmp_path: Path) -> None:
    asked = ("connect", "127.0.0.1", port, "--runs", 5, "--out", "connections.csv", "--json")
    found = measured(probe(*asked))
    assert [sample["run"] for sample in found["samples"]] == [1, 2, 3, 4, 5]
    assert {sample["protocol"] for sample in found["samples"]} == {"tcp"}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "connections.csv").read_text())))
    assert [float(row["connect_ms"]) for row in rows] == [sample["connect_ms"] for sample in found["samples"]]


@needs_mptcp
def test_multipath_tcp_is_told_from_a_fall_back_to_tcp(probe: Probe, port: int) -> None:
    found = measured(probe("connect", "127.0.0.1", port, "--mptcp", "--runs", 2, "--json"))
    assert {sample["protocol"] for sample in found["samples"]} == {"mptcp"}
    with socket.create_server(("127.0.0.1", 0)) as plain:
        done = probe("connect", "127.0.0.1", plain.getsockname()[1], "--mptcp", "--runs", 2, "--json")
    assert {sample["protocol"] for sample in measured(done)["samples"]} == {"tcp"}


# Pages.


def test_a_page_waits_for_the_server_once_per_round_of_objects(probe: Probe, port: int) -> None:
    found = measured(probe("http", f"http://127.0.0.1:{port}/", "--parallel", 4, "--json"))
    (sample,) = found["samples"]
    assert sample.keys() >= {"connect_ms", "ttfb_ms", "page_ms", "goodput_mbps", "objects", "bytes", "connections"}
    assert sample["connect_ms"] < sample["ttfb_ms"] < sample["page_ms"]
    assert sample["ttfb_ms"] >= THINK_MS
    # Eight objects over four connections: two rounds after the page's own.
    assert sample["page_ms"] >= 3 * THINK_MS
    assert (sample["objects"], sample["connections"]) == (8, 4)
    assert sample["bytes"] > 8 * 30_000
    assert sample["goodput_mbps"] == pytest.approx(sample["bytes"] * 8e-3 / sample["page_ms"], rel=1e-3)


def test_one_connection_waits_for_the_server_once_per_answer(probe: Probe, port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    done = probe("http", url, "--objects", 3, "--bytes", "1kB", "--parallel", 1, "--json")
    (sample,) = measured(done)["samples"]
    assert (sample["objects"], sample["connections"]) == (3, 1)
    assert sample["page_ms"] >= 4 * THINK_MS


def test_an_object_has_the_size_that_its_name_says(probe: Probe, port: int) -> None:
    done = probe("http", f"http://[::1]:{port}/bytes/3MB", "--runs", 2, "--json")
    assert [sample["bytes"] for sample in measured(done)["samples"]] == [3_000_000, 3_000_000]


@needs_mptcp
def test_pages_load_over_multipath_tcp(probe: Probe, port: int) -> None:
    (sample,) = measured(probe("http", f"http://127.0.0.1:{port}/", "--mptcp", "--json"))["samples"]
    assert (sample["protocol"], sample["subflows"]) == ("mptcp", 1)


def test_pages_of_other_servers_are_read_too_chunked_or_until_the_end(probe: Probe) -> None:
    answers = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n3;x=y\r\n678\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n" + bytes(1000),
    ]
    for answer, size in zip(answers, (8, 1000), strict=True):
        with socket.create_server(("127.0.0.1", 0)) as listening:

            def serve(listening: socket.socket = listening, answer: bytes = answer) -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(2000)
                    connection.sendall(answer)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            done = probe("http", f"http://127.0.0.1:{listening.getsockname()[1]}/", "--json")
            thread.join(5)
        assert measured(done)["samples"][0]["bytes"] == size


# QUIC.


@needs_quic
def test_http_3_asks_for_all_objects_at_once(probe: Probe, port: int) -> None:
    found = measured(probe("http3", f"https://127.0.0.1:{quic_port(port)}/", "--runs", 2, "--json"))
    for sample in found["samples"]:
        assert sample["connect_ms"] < sample["ttfb_ms"] < sample["page_ms"]
        assert sample["ttfb_ms"] >= sample["connect_ms"] + THINK_MS
        assert sample["page_ms"] >= sample["connect_ms"] + 2 * THINK_MS
        assert (sample["objects"], sample["connections"], sample["protocol"]) == (8, 1, "quic")
        assert sample["bytes"] > 8 * 30_000


@needs_quic
def test_bulk_over_quic_lasts_as_long_as_it_is_told(probe: Probe, port: int) -> None:
    found = measured(probe("quic-bulk", "::1", quic_port(port), "--for", "300ms", "--json"))
    (sample,) = found["samples"]
    assert sample["seconds"] >= 0.3
    assert sample["bytes"] > 0
    assert sample["goodput_mbps"] == pytest.approx(sample["bytes"] * 8e-6 / sample["seconds"], rel=0.01)


@needs_quic
def test_an_answer_other_than_200_over_http_3_is_said(probe: Probe, port: int) -> None:
    done = probe("http3", f"https://127.0.0.1:{quic_port(port)}/none")
    assert done.returncode == 2
    assert "answered 404 (expected /, /page?objects=10&bytes=50kB or /bytes/1MB), expected 200" in done.stderr


def test_without_aioquic_the_extra_is_named(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it were not installed: its name leads nowhere.
    monkeypatch.setitem(sys.modules, "aioquic", None)
    for name in [name for name in sys.modules if name.startswith("aioquic.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "skybraid.probe.quic", raising=False)
    monkeypatch.delattr("skybraid.probe.quic", raising=False)
    done = probe("http3", "https://127.0.0.1:1/")
    assert done.returncode == 2
    assert done.stderr == "error: QUIC: found no aioquic, expected it with pip install 'skybraid[quic]'\n"


# What goes wrong.

REFUSED = [
    ("ping", "127.0.0.1", "{port}"),
    ("connect", "127.0.0.1", "{port}", "--runs", "1"),
    ("http", "http://127.0.0.1:{port}/"),
    pytest.param(("http3", "https://127.0.0.1:{port}/"), marks=needs_quic),
    pytest.param(("quic-bulk", "127.0.0.1", "{port}"), marks=needs_quic),
]


@pytest.mark.parametrize("words", REFUSED)
def test_a_port_that_nobody_listens_on_is_refused_at_once(probe: Probe, closed: int, words: tuple[str, ...]) -> None:
    done = probe(*(word.format(port=closed) for word in words), "--wait", "0s", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["exit"]) == (2, 2)
    assert f"127.0.0.1:{closed}: refused, nothing listens there; start `skybraid probe serve`" in answer["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [case for case in REFUSED if case != REFUSED[1]])
def test_silence_is_said_with_how_long_it_lasted(probe: Probe, silent: int, words: tuple[str, ...]) -> None:
    done = probe(*(word.format(port=silent) for word in words), "--timeout", "300ms")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no answer within 0.3 s" in done.stderr
    assert str(silent) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_that_is_not_there_yet_is_waited_for(probe: Probe, closed: int) -> None:
    def listen() -> None:
        threading.Event().wait(1.0)
        with socket.create_server(("127.0.0.1", closed)) as late:
            late.accept()[0].close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    done = probe("connect", "127.0.0.1", closed, "--runs", 1, "--wait", "20s")
    thread.join(5)
    assert done.returncode == 0


def test_an_answer_other_than_200_is_said_with_its_words(probe: Probe, port: int) -> None:
    done = probe("http", f"http://127.0.0.1:{port}/none")
    assert done.returncode == 2
    assert "/none: answered 404 Not Found (expected /, /page?objects=10&bytes=50kB or /bytes/1MB)" in done.stderr


def test_a_connection_that_ends_too_early_is_said(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(2000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        done = probe("http", f"http://127.0.0.1:{listening.getsockname()[1]}/")
        thread.join(5)
    assert done.returncode == 2
    assert "closed the connection before its answer was complete" in done.stderr


def test_runs_that_fail_are_told_and_the_others_kept() -> None:
    async def one(run: int) -> list[dict[str, float | int | str | None]]:
        if run == 2:
            raise ProbeError("the second failed")
        return [{"run": run}]

    rows, failures = asyncio.run(repeat(3, 0, one))
    assert rows == [{"run": 1}, {"run": 3}]
    assert failures == ["the second failed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ping", "127.0.0.1", "--every", "10"), "--every: found 10, expected a time with its unit"),
        (("ping", "127.0.0.1", "--bytes", "3"), "--bytes: found 3, expected 16 to 65507"),
        (("http", "ftp://127.0.0.1/"), "found no http URL, expected http://HOST:PORT/"),
        (("http", "http://127.0.0.1:99999/"), "Port out of range"),
        (("serve", "--bytes", "5 apples"), "--bytes: found 5 apples, expected a size with its unit"),
        (("serve", "--host", "192.0.2.1", "--port", "0"), "cannot listen"),
        (("ping", "no-such-host.invalid"), "no-such-host.invalid: no such host"),
    ],
)
def test_wrong_words_are_refused_with_what_was_expected(probe: Probe, words: tuple[str, ...], message: str) -> None:
    done = probe(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_quietly_at_a_signal_despite_a_connection(number: signal.Signals) -> None:
    process, port = started()
    with socket.create_connection(("127.0.0.1", port)):
        assert ended(process, number) == (0, "")


def test_a_port_in_use_is_said(probe: Probe, port: int) -> None:
    done = probe("serve", "--port", port)
    assert done.returncode == 2
    assert f"ports {port} and {port + 1} of ::: cannot listen: Address already in use" in done.stderr


# Parts.


def test_quantities_need_units_but_bytes_may_do_without() -> None:
    assert seconds("10ms", "--every") == pytest.approx(0.01)
    assert seconds("1.5 s", "--every") == 1.5
    assert [size_bytes(text, "--bytes") for text in ("56", "50kB", "1KiB", "1.5MB")] == [56, 50_000, 1024, 1_500_000]


def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed() -> None:
    assert spread([float(number) for number in range(1, 101)]) == {
        "min": 1,
        "p50": 50,
        "p95": 95,
        "p99": 99,
        "max": 100,
    }
    assert spread([7.0]) == {"min": 7, "p50": 7, "p95": 7, "p99": 7, "max": 7}


def test_a_pages_objects_are_those_that_a_browser_loads() -> None:
    page = """<img src="/a.png"><script src="b.js"></script><link rel="stylesheet" href="c.css?v=1">
    <link rel="canonical" href="/no"><a href="/no">no</a><img src="http://elsewhere/no.png">"""
    assert objects_of(page, "http://here:80/folder/") == ["/a.png", "/folder/b.js", "/folder/c.css?v=1"]


def test_a_site_answers_with_as_many_objects_as_asked() -> None:
    found = Site().look("GET", "/page?objects=3&bytes=2kB")
    assert objects_of(found.text.decode(), "http://x/") == [f"/bytes/2000?object={number}" for number in (1, 2, 3)]
    assert Site().look("GET", "/page?objects=1e9").status == 400
    assert Site().look("POST", "/").status == 405
    assert place("http://[::1]:8080/", "http", 80).authority == "[::1]:8080"

"""The gateway's live page in a browser without a network: two daemons on loopback, looked at, cut and ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chromium import Chromium, browser
from marks import needs_gateway
from ports import free_ports
from skybraid.gateway import Daemon, Node, binary, configure_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

BROWSER = browser()
PROGRAM = binary()

pytestmark = [
    needs_gateway,
    pytest.mark.skipif(BROWSER is None, reason="found no Chromium or Chrome; SKYBRAID_BROWSER may name one"),
]

ARTEFACTS = Path(os.environ.get("SKYBRAID_ARTEFACTS", Path(__file__).parents[2] / "target" / "gateway-screenshots"))

HEARTBEAT = bytes.fromhex("fe09000101000000000002035104039f5c")
"""A frame of MAVLink 1 with its message number 0; a gateway forwards it, whatever its checksum."""

TEXT = "document.getElementById('{}').textContent"
VERDICT = TEXT.format("verdict")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon, int]]:
    """An aircraft and its ground station, linked over two paths, and the aircraft's port for MAVLink."""
    assert PROGRAM is not None
    lte, dish, mavlink, air_page, ground_page = free_ports(5)
    paths: dict[str, dict[str, Any]] = {
        "lte": {"remote": f"127.0.0.1:{lte}"},
        "dish": {"remote": f"127.0.0.1:{dish}", "address": "127.0.0.2"},
    }
    here = Node()
    aircraft, ground = configure_pair(
        PROGRAM,
        tmp_path,
        (here, here),
        paths,
        aircraft={"mavlink": [{"udp_listen": f"127.0.0.1:{mavlink}"}]},
        ground={"mavlink": [{"udp_connect": "127.0.0.1:9"}]},
        status_ports=(air_page, ground_page),
    )
    try:
        ground.start()
        aircraft.start()
        ground.until_linked(2)
        yield aircraft, ground, mavlink
    finally:
        aircraft.stop()
        ground.stop()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    assert BROWSER is not None
    with Chromium(BROWSER, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_page_shows_the_link_its_loss_and_its_end(pair: tuple[Daemon, Daemon, int], window: Chromium) -> None:
    aircraft, ground, mavlink = pair
    window.look(width=390, height=844)
    window.send("Page.navigate", url=f"http://127.0.0.1:{ground.status_port}/")
    window.until("document.readyState === 'complete' && !!document.getElementById('verdict')")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as autopilot:
        for number in range(50):
            frame = HEARTBEAT[:2] + bytes([number]) + HEARTBEAT[3:]
            autopilot.sendto(frame, ("127.0.0.1", mavlink))
    window.until(f"/Control arrives in .* over 2 of 2 paths/.test({VERDICT})")
    window.until("document.querySelectorAll('#history polyline').length >= 3")
    assert window.run(VERDICT).startswith("✓")
    assert window.run("[...document.querySelectorAll('#paths h3')].map((one) => one.textContent)") == ["dish", "lte"]
    assert "● up" in window.run(TEXT.format("paths"))
    assert "mavlink" in window.run(TEXT.format("channels"))
    assert "Connected" in window.run(TEXT.format("events"))
    assert "%" in window.run(TEXT.format("shares"))
    for name, width, dark in (("phone", 390, False), ("phone-dark", 390, True), ("desk", 1280, False)):
        window.look(width=width, height=844, dark=dark)
        window.run("new Promise((done) => setTimeout(done, 700))")
        assert window.run("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} scrolls sideways"
        window.shoot(ARTEFACTS / f"{name}.png")
    # Colours are never the only sign.
    aircraft.kill()
    window.until(f"/✕ Nothing has been heard from the aircraft for/.test({VERDICT})")
    assert "✕ down" in window.run(TEXT.format("paths"))
    window.until(f"/nothing gets through/.test({TEXT.format('alarms')})")
    ground.stop()
    window.until(f"/The gateway has not answered this page/.test({VERDICT})")
    assert window.run("document.body.classList.contains('stale')")
    ground.start()
    window.until(f"/Nothing has been heard from the aircraft yet/.test({VERDICT})")
    window.until("!document.body.classList.contains('stale')")
    # It asks its own gateway alone.
    assert {url.split("/")[2] for url in window.requests} == {f"127.0.0.1:{ground.status_port}"}
    assert [problem for problem in window.problems if "ERR_CONNECTION_REFUSED" not in problem] == []


def test_status_and_metrics_are_those_of_the_page(pair: tuple[Daemon, Daemon, int]) -> None:
    _, ground, _ = pair
    base = f"http://127.0.0.1:{ground.status_port}"
    assert PROGRAM is not None
    result = subprocess.run([PROGRAM, "status", "--url", base, "--json"], capture_output=True, check=False, timeout=120)
    assert result.returncode == 0
    status = json.loads(result.stdout)
    assert status["session"]
    assert status["verdict"]["level"] == "good"
    with urllib.request.urlopen(f"{base}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    assert 'skybraid_path_state{path="lte",direction="incoming",state="up"} 1' in text.splitlines()
    rtt = {path["name"]: path["rtt_ms"] / 1000 for path in status["paths"]}
    for name, value in rtt.items():
        (line,) = (line for line in text.splitlines() if line.startswith(f'skybraid_path_rtt_seconds{{path="{name}"}}'))
        assert 0 < float(line.split()[1]) < 0.2
        assert 0 < value < 0.2

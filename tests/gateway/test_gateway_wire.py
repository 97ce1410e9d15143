"""Gateways over slow, bloated or narrow networks: control, and the status page."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from marks import needs_gateway, needs_namespaces

pytest.importorskip("pymavlink", reason="pymavlink is not installed: make dev")

from pilot import MESSAGES, Loop, usual
from skybraid.gateway import binary, configure_pair
from wire import Wires

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [needs_namespaces, needs_gateway]

PATHS = ("dish", "lte1", "lte2")
IN_TIME_MS = 300.0


class Flown:
    """Two gateways over wires, with control both ways and video up."""

    def __init__(self, folder: Path, wires: Wires) -> None:
        program = binary()
        assert program is not None
        self.wires = wires
        self.aircraft, self.ground = configure_pair(
            program,
            folder,
            (wires.air, wires.ground),
            wires.remotes(),
            aircraft={
                "messages": MESSAGES,
                "mavlink": [{"udp_listen": "127.0.0.1:14540"}],
                "udp": {"video": {"listen": "127.0.0.1:5600"}},
            },
            ground={
                "messages": MESSAGES,
                "mavlink": [{"udp_listen": "127.0.0.1:14550"}],
                "udp": {"video": {"send_to": "127.0.0.1:5601"}},
            },
        )
        ends = ((wires.air.socket(), ("127.0.0.1", 14540)), (wires.ground.socket(), ("127.0.0.1", 14550)))
        self.loop = Loop(*ends, streams=usual(), command_every_s=None)
        self._video, self._shown = wires.air.socket(), wires.ground.socket()
        self._shown.bind(("127.0.0.1", 5601))
        self._shown.setblocking(False)

    def close(self) -> None:
        """Ends the gateways."""
        for daemon in (self.aircraft, self.ground):
            daemon.stop()
        for end in self.loop.ends.values():
            end.link.close()
        self._video.close()
        self._shown.close()

    def film(self, seconds: float, rate_bps: float) -> int:
        """Sends video for a time; returns how many packets of 1,200 B arrived meanwhile."""
        begin, sent, shown = time.monotonic(), 0, 0
        while (now := time.monotonic()) < begin + seconds:
            while sent < (now - begin) * rate_bps / 9_600:
                self._video.sendto(bytes(1_200), ("127.0.0.1", 5600))
                sent += 1
            with contextlib.suppress(BlockingIOError):
                while self._shown.recv(2_000):
                    shown += 1
            time.sleep(0.002)
        return shown

    def in_time(self, stream: str, begin_ns: int, end_ns: int) -> float:
        """Returns the share of a stream's messages that arrived in time."""
        sent = sum(begin_ns <= at < end_ns for at in self.loop.streams[stream].sent_ns)
        _, delays_ms = self.loop.streams[stream].delays(begin_ns, end_ns)
        return float((delays_ms <= IN_TIME_MS).sum()) / sent


@pytest.fixture
def flown(tmp_path: Path) -> Iterator[Flown]:
    with contextlib.closing(Wires(PATHS)) as wires:
        flown = Flown(tmp_path, wires)
        try:
            for daemon in (flown.ground, flown.aircraft):
                daemon.start()
            for daemon in (flown.ground, flown.aircraft):
                daemon.until_linked(len(PATHS))
            with flown.loop:
                flown.film(2, 1.5e6)
                yield flown
        finally:
            flown.close()


def test_video_that_no_uplink_carries_leaves_control_in_time(flown: Flown) -> None:
    for path in PATHS:
        flown.wires.set(path, "up", rate_bps=200e3, queue_s=1)
    flown.film(3, 1.5e6)
    begin_ns = time.monotonic_ns()
    shown = flown.film(10, 1.5e6)
    end_ns = time.monotonic_ns()
    flown.film(1, 1.5e6)
    assert flown.in_time("down", begin_ns, end_ns) > 0.95
    # Control and probes leave about 125 of 200 kbit/s of each uplink, which is 39 packets a second in total.
    assert shown > 10 * 39 / 4


def test_video_is_back_within_a_second_of_an_outage(flown: Flown) -> None:
    for path in PATHS:
        flown.wires.set(path, loss=1)
    flown.film(12, 1.5e6)
    for path in PATHS:
        flown.wires.set(path)
    flown.film(1, 1.5e6)
    assert flown.film(2, 1.5e6) > 0.9 * 2 * 1.5e6 / 9_600


def test_the_page_counts_no_path_with_a_queue_of_seconds(flown: Flown) -> None:
    flown.wires.set("lte1", delay_s=4)
    time.sleep(10)
    state = flown.ground.status()
    assert "over 2 of 3 paths" in state["verdict"]["text"], state["verdict"]
    assert any(alarm.startswith("lte1") and "too long for control" in alarm for alarm in state["alarms"])
    for path in ("dish", "lte2"):
        flown.wires.set(path, loss=1)
    verdict: dict[str, Any] = flown.ground.until(lambda state: state["verdict"]["level"] == "bad", 3)["verdict"]
    assert "too late" in verdict["text"]


def test_a_path_that_passes_only_probes_raises_an_alarm(flown: Flown) -> None:
    flown.wires.set("lte1", min_bytes=120)
    found = flown.ground.until(lambda state: any("lte1" in alarm and "lost" in alarm for alarm in state["alarms"]), 5)
    assert found["verdict"]["level"] == "limited"


def test_a_source_port_for_each_packet_costs_no_control(flown: Flown) -> None:
    for path in PATHS:
        flown.wires.set(path, "up", ports=4_000)
    flown.film(1, 1.5e6)
    begin_ns = time.monotonic_ns()
    flown.film(5, 1.5e6)
    end_ns = time.monotonic_ns()
    flown.film(1, 1.5e6)
    for stream in ("up", "down"):
        assert flown.in_time(stream, begin_ns, end_ns) > 0.99
    assert flown.ground.status()["verdict"]["level"] == "good"

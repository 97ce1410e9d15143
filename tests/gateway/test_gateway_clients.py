"""Ground stations of other projects fly a scripted vehicle through two gateways over LTE and Starlink."""

from __future__ import annotations

import collections
import json
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from marks import needs_gateway, needs_namespaces

pytest.importorskip("pymavlink", reason="pymavlink is not installed: make dev")

from clients import MavProxy, has_mavsdk, mavproxy, run_mavsdk
from pilot import INTERVAL_S, End, Stream
from skybraid.gateway import Field, binary, configure_pair
from skybraid.gateway.daemons import in_emulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "scenarios" / "remote-piloting.toml"
VEHICLE = ROOT / "tests" / "gateway" / "vehicle.py"

PROGRAM = binary()

pytestmark = [needs_namespaces, needs_gateway]


@dataclass
class Link:
    """A vehicle, its gateway, the emulated networks and the gateway on the ground."""

    field: Field
    record: Path

    def heard(self) -> list[dict[str, Any]]:
        """Messages that reached the vehicle."""
        lines = self.record.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.heard() if one["type"] == kind]

    def until(self, holds: Callable[[], bool], longest_s: float = 10) -> None:
        deadline = time.monotonic() + longest_s
        while not holds():
            assert time.monotonic() < deadline, "it did not reach the vehicle"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    folder = tmp_path_factory.mktemp("clients")
    assert PROGRAM is not None
    with Field(SCENARIO, folder, seed=1) as field:
        daemons = configure_pair(
            PROGRAM,
            folder,
            (field.vehicle, field.ground),
            in_emulator(field.addresses("ground")),
            aircraft={"mavlink": [{"udp_listen": "127.0.0.1:14540"}]},
            ground={
                "mavlink": [
                    {"udp_connect": "127.0.0.1:14550"},
                    {"tcp_listen": "127.0.0.1:5760"},
                    {"udp_listen": "127.0.0.1:14600"},
                ]
            },
        )
        record = folder / "vehicle.jsonl"
        vehicle = field.vehicle.start(
            [sys.executable, str(VEHICLE), "--to", "127.0.0.1:14540", "--record", str(record)]
        )
        try:
            for daemon in daemons:
                daemon.start()
            for daemon in daemons:
                daemon.until_linked(2)
            yield Link(field, record)
        finally:
            vehicle.send_signal(signal.SIGTERM)
            vehicle.wait(10)
            for daemon in daemons:
                daemon.stop()


def seen_twice(link: Link, kinds: tuple[str, ...]) -> list[Any]:
    """Returns messages that reached the vehicle twice: same sender, number and content.

    A sender's numbers wrap after 256 messages, so only copies that came within ten seconds are compared.
    """
    last: dict[str, int] = {}
    again = []
    for one in link.heard():
        if one["type"] in kinds:
            same = json.dumps([one["from"], one["seq"], one["type"], one["fields"]])
            if same in last and one["at_ns"] - last[same] < 10e9:
                again.append(one)
            last[same] = one["at_ns"]
    return again


COMMANDS = ("COMMAND_LONG", "COMMAND_INT", "PARAM_SET", "MISSION_COUNT", "MISSION_ITEM_INT", "SET_MODE")


@pytest.mark.skipif(mavproxy() is None, reason="MAVProxy is not installed: make dev")
def test_each_command_of_mavproxy_arrives_once(link: Link, tmp_path: Path) -> None:
    plan = tmp_path / "plan.txt"
    rows = ["QGC WPL 110", "0\t1\t0\t16\t0\t0\t0\t0\t48.0\t11.0\t0\t1"]
    rows += [f"{n}\t0\t3\t16\t0\t0\t0\t0\t48.{n:04d}\t11.{n:04d}\t{20 + n}\t1" for n in range(1, 9)]
    plan.write_text("\n".join(rows) + "\n", encoding="utf-8")
    with MavProxy(link.field.ground, "tcp:127.0.0.1:5760", tmp_path) as pilot:
        pilot.expect("online system 1")
        pilot.expect("Received 8 parameters")
        pilot.put("arm throttle")
        pilot.expect("ARMED")
        pilot.put("param set WPNAV_SPEED 600")
        link.until(lambda: bool(link.of("PARAM_SET")))
        pilot.put("param fetch WPNAV_SPEED")
        pilot.expect("WPNAV_SPEED = 600")
        pilot.put(f"wp load {plan}")
        pilot.expect("Loaded 9 waypoints")
        pilot.expect("Sent all 9 waypoints", 30)
        pilot.put(f"wp save {tmp_path / 'back.txt'}")
        pilot.expect("Saved 9 waypoints", 30)
        pilot.put("disarm")
        pilot.expect("DISARMED")
    arms = [one["fields"] for one in link.of("COMMAND_LONG") if one["fields"]["command"] == 400]
    assert [(one["param1"], one["confirmation"]) for one in arms] == [(1, 0), (0, 0)]
    back = [line.split("\t") for line in (tmp_path / "back.txt").read_text(encoding="utf-8").splitlines()[1:]]
    for number, row in enumerate(back[1:], start=1):
        assert [float(row[place]) for place in (8, 9, 10)] == pytest.approx(
            [48 + number / 1e4, 11 + number / 1e4, 20 + number]
        )
    assert seen_twice(link, COMMANDS) == []


@pytest.mark.skipif(not has_mavsdk(), reason="mavsdk is not installed: make dev")
def test_each_command_of_a_mavsdk_mission_arrives_once(link: Link, tmp_path: Path) -> None:
    stream = Stream("manual", "manual", "ground")
    over = threading.Event()

    def stick() -> None:
        with link.field.ground.socket() as out:
            end = End("ground", out, ("127.0.0.1", 14600))
            while not over.wait(INTERVAL_S):
                stream.sent_ns.append(end.say(stream.message(len(stream.sent_ns))))
                end.hear()
            time.sleep(1)

    before = len(link.of("COMMAND_LONG"))
    thread = threading.Thread(target=stick)
    thread.start()
    try:
        answer = run_mavsdk(link.field.ground, "udpin://0.0.0.0:14550", tmp_path)
    finally:
        over.set()
        thread.join()
    assert answer["parameter"] == 2500
    assert answer["mission"] == answer["uploaded"]
    commands = collections.Counter(
        (one["fields"]["command"], one["fields"]["param1"], one["fields"]["confirmation"])
        for one in link.of("COMMAND_LONG")[before:]
        if one["fields"]["command"] in (400, 22, 21)
    )
    # Arm, take off, land, disarm: each once.
    assert sorted(commands.values()) == [1, 1, 1, 1], commands
    assert seen_twice(link, COMMANDS) == []
    moved = [(one["fields"]["x"] << 16 | one["fields"]["buttons"], one["at_ns"]) for one in link.of("MANUAL_CONTROL")]
    stream.arrivals = moved
    quality = stream.quality()
    assert quality.sent > 50
    assert quality.lost == []
    assert quality.stale == quality.duplicates == 0

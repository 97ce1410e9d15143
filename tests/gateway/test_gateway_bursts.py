"""Ten thousand commands as fast as a program can write them, over three networks."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from marks import needs_gateway, needs_namespaces
from skybraid.gateway import Field, binary, configure_pair
from skybraid.gateway.daemons import in_emulator

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_namespaces, needs_gateway]

COMMANDS = 10_000
SO_RCVBUFFORCE = 33
"""Of Linux; Python has no name for it."""

SCENARIO = "\n".join(
    [
        'name = "Bursts"',
        'duration = "10min"',
        *(
            f'[path.{name}]\nrate = "{rate}Mbit/s"\ndelay = "30ms"\nqueue = {{ time = "200ms" }}'
            for name, rate in (("dish", 40), ("lte", 20), ("modem", 10))
        ),
    ]
)


def mission_item(number: int) -> bytes:
    """Returns a MAVLink 2 frame of MISSION_ITEM_INT with a number."""
    head = bytes([0xFD, 8, 0, 0, number & 0xFF, 254, 1, 73, 0, 0])
    return head + number.to_bytes(4, "little") + bytes([1, 1, 1, 1, 0, 0])


def read_all(link: socket.socket, seconds: float) -> list[int]:
    """Returns the numbers of mission items that arrive until none arrives for `seconds`."""
    numbers = []
    link.settimeout(seconds)
    with contextlib.suppress(TimeoutError):
        while True:
            frame = link.recv(512)
            if frame[7] == 73:
                numbers.append(int.from_bytes(frame[10:14], "little"))
    return numbers


def test_ten_thousand_commands_arrive_or_are_counted(tmp_path: Path) -> None:
    scenario = tmp_path / "bursts.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    program = binary()
    assert program is not None
    with Field(scenario, tmp_path, seed=1) as field:
        aircraft, ground = configure_pair(
            program,
            tmp_path,
            (field.vehicle, field.ground),
            in_emulator(field.addresses("ground")),
            aircraft={"mavlink": [{"udp_connect": "127.0.0.1:14540"}]},
            ground={"mavlink": [{"udp_listen": "127.0.0.1:14550"}]},
        )
        autopilot, station = field.vehicle.socket(), field.ground.socket()
        try:
            # This program must not be what loses them.
            autopilot.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            autopilot.bind(("127.0.0.1", 14540))
            station.connect(("127.0.0.1", 14550))
            for daemon in (ground, aircraft):
                daemon.start()
            for daemon in (ground, aircraft):
                daemon.until_linked(3)
            time.sleep(1)
            began = time.monotonic()
            for number in range(COMMANDS):
                station.send(mission_item(number))
            wrote_s = time.monotonic() - began
            numbers = read_all(autopilot, 2.0)
            state, other = ground.status(), aircraft.status()
            control, arrived = state["classes"][0], other["classes"][0]
            counted = control["refused"] + control["late"] + arrived["late"] + state["edges"]["local"][0]["unread"]
            outcome = f"written in {wrote_s:.2f} s, {len(numbers)} arrived, {counted} counted, {control}, {arrived}"
            assert numbers == sorted(set(numbers)), outcome
            assert len(numbers) + counted >= 0.99 * COMMANDS, outcome
            assert len(numbers) > 0.9 * COMMANDS, outcome
        finally:
            autopilot.close()
            station.close()
            for daemon in (aircraft, ground):
                daemon.stop()

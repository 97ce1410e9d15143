"""Changes around a gateway: an unplugged device, a removed interface, a second gateway with its key."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import tomllib
import tty
from typing import TYPE_CHECKING

import tomli_w

from marks import needs_gateway, needs_namespaces
from skybraid.gateway import Daemon, binary, configure_pair
from wire import Wires

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Any

pytestmark = [needs_namespaces, needs_gateway]

PATHS = ("dish", "lte")


@contextlib.contextmanager
def linked(
    folder: Path, wires: Wires, aircraft: Mapping[str, Any], ground: Mapping[str, Any]
) -> Iterator[tuple[Daemon, Daemon]]:
    """Runs two connected gateways."""
    program = binary()
    assert program is not None
    pair = configure_pair(program, folder, (wires.air, wires.ground), wires.remotes(), aircraft=aircraft, ground=ground)
    try:
        for daemon in reversed(pair):
            daemon.start()
        pair[0].until_linked(len(PATHS))
        yield pair
    finally:
        for daemon in pair:
            daemon.stop()


def _terminal(link: Path) -> list[int]:
    """Makes a pseudo-terminal with a symbolic link to it; returns the descriptors of both ends."""
    ends = list(os.openpty())
    for end in ends:
        tty.setraw(end)
    link.unlink(missing_ok=True)
    link.symlink_to(os.ttyname(ends[1]))
    return ends


def test_a_serial_device_that_is_gone_is_on_the_page(tmp_path: Path) -> None:
    device = tmp_path / "autopilot"
    ends = _terminal(device)
    aircraft = {"mavlink": [{"serial": str(device)}]}
    ground = {"mavlink": [{"udp_listen": "127.0.0.1:14550"}]}
    with contextlib.closing(Wires(PATHS)) as wires, linked(tmp_path, wires, aircraft, ground) as (gateway, _):
        assert gateway.status()["alarms"] == []
        for end in ends:
            os.close(end)
        device.unlink()
        state = gateway.until(lambda state: state["alarms"] != [], 5)
        assert state["verdict"]["level"] == "limited"
        assert state["alarms"][0].startswith(f"serial {device} ")
        ends = _terminal(device)
        gateway.until(lambda state: state["alarms"] == [] and state["verdict"]["level"] == "good", 5)
        for end in ends:
            os.close(end)


def test_a_tun_interface_that_carries_nothing_is_on_the_page(tmp_path: Path) -> None:
    aircraft, ground = ({"tun": {"address": address}} for address in ("10.77.0.2/24", "10.77.0.1/24"))
    with contextlib.closing(Wires(PATHS)) as wires, linked(tmp_path, wires, aircraft, ground) as (gateway, _):
        for words, alarm in (
            (("link", "set", "skybraid0", "down"), "tun skybraid0 is down"),
            (("address", "flush", "dev", "skybraid0"), "tun skybraid0 has lost its address"),
        ):
            wires.air.run("ip", *words)
            state = gateway.until(lambda state: state["alarms"] != [], 5)
            assert state["alarms"][0].startswith(alarm)
            wires.air.run("ip", "link", "set", "skybraid0", "up")
            if "flush" in words:
                wires.air.run("ip", "address", "add", "10.77.0.2/24", "dev", "skybraid0")
            gateway.until(lambda state: state["alarms"] == [], 5)


def test_a_tun_interface_that_was_removed_is_made_again(tmp_path: Path) -> None:
    aircraft, ground = ({"tun": {"address": address}} for address in ("10.77.0.2/24", "10.77.0.1/24"))
    with contextlib.closing(Wires(PATHS)) as wires, linked(tmp_path, wires, aircraft, ground) as (gateway, _):
        time.sleep(0.5)
        wires.air.run("ip", "link", "delete", "skybraid0")
        deadline = time.monotonic() + 5
        while "10.77.0.2" not in wires.air.run("ip", "-brief", "address"):
            assert time.monotonic() < deadline, gateway.status()["alarms"]
            time.sleep(0.1)
        gateway.until(lambda state: state["alarms"] == [], 5)


def test_clients_that_take_every_descriptor_leave_the_paths_theirs(tmp_path: Path) -> None:
    aircraft = {"mavlink": [{"tcp_listen": "127.0.0.1:5760"}]}
    with contextlib.closing(Wires(PATHS)) as wires, linked(tmp_path, wires, aircraft, {}) as (gateway, ground):
        gateway.stop()
        gateway.wrapper = ("prlimit", "--nofile=40")
        gateway.start()
        gateway.until_linked(len(PATHS))
        with contextlib.ExitStack() as clients:
            for _ in range(60):
                client = clients.enter_context(wires.air.socket(socket.SOCK_STREAM))
                client.settimeout(1)
                with contextlib.suppress(OSError):
                    client.connect(("127.0.0.1", 5760))
            # The socket of a path is opened again with its interface.
            wires.air.run("ip", "link", "set", "dish", "down")
            ground.until(lambda state: any(path["incoming"] == "down" for path in state["paths"]), 5)
            wires.air.run("ip", "link", "set", "dish", "up")
            ground.until_linked(len(PATHS), 10)


def test_of_two_ground_stations_with_one_key_one_keeps_the_session(tmp_path: Path) -> None:
    port = {"udp": {"video": {"listen": "127.0.0.1:5600"}}}
    with contextlib.closing(Wires(PATHS)) as wires, linked(tmp_path, wires, port, port) as (aircraft, ground):
        table = tomllib.loads(ground.file.read_text(encoding="utf-8"))
        for path in table["path"].values():
            path["listen"] = path["listen"].replace(":9417", ":9517")
        table |= {"status": {"listen": "127.0.0.1:9518"}, "udp": {"video": {"listen": "127.0.0.1:5700"}}}
        file = tmp_path / "second.toml"
        file.write_text(tomli_w.dumps(table), encoding="utf-8")
        second = Daemon(ground.program, wires.ground, file, 9518)
        # One of the paths leads to the second one.
        leads = aircraft.file.read_text(encoding="utf-8").replace(f"{wires.address('lte', 'ground')}:9417", "LTE")
        leads = leads.replace("LTE", f"{wires.address('lte', 'ground')}:9517")
        aircraft.stop()
        aircraft.file.write_text(leads, encoding="utf-8")
        try:
            second.start()
            aircraft.start()
            aircraft.until(lambda state: any("two gateways" in alarm for alarm in state["alarms"]), 20)
            before = aircraft.status()["peer_restarts"]
            time.sleep(5)
            assert aircraft.status()["peer_restarts"] - before <= 1
        finally:
            second.stop()

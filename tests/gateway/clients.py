"""Drives ground stations of other projects: MAVProxy at its prompt, and mavsdk as a program."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from skybraid.gateway import Node

MODULES = "log,wp,param,arm,mode,rc,cmdlong,misc,link"
"""Of MAVProxy: those that are needed; without its file transfers it asks for parameters one by one."""


def mavproxy() -> Path | None:
    """Returns the path of MAVProxy: next to this Python, or on PATH."""
    candidate = Path(sys.executable).with_name("mavproxy.py")
    if candidate.is_file():
        return candidate
    found = shutil.which("mavproxy.py")
    return None if found is None else Path(found)


def has_mavsdk() -> bool:
    """Whether mavsdk and its server are installed."""
    return importlib.util.find_spec("mavsdk") is not None


class MavProxy:
    """MAVProxy in a node, at its prompt.

    Args:
        node: where it runs.
        master: what it connects to, in its own words.
        folder: for what it keeps and prints.
    """

    def __init__(self, node: Node, master: str, folder: Path) -> None:
        program = mavproxy()
        assert program is not None
        self._out = folder / "mavproxy.out"
        self._at = 0
        # Another folder than the user's, so that no start-up script of theirs is read.
        environment = {"HOME": str(folder), "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(program), f"--master={master}", f"--default-modules={MODULES}"]
        command += [f"--state-basedir={folder}", "--logfile=flight.tlog", "--source-system=255"]
        with self._out.open("wb") as out:
            self._process = node.start(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=folder, environment=environment
            )

    def put(self, line: str) -> None:
        """Types a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def said(self) -> str:
        """Returns all output so far."""
        return self._out.read_text(encoding="utf-8", errors="replace")

    def expect(self, words: str, longest_s: float = 20.0) -> str:
        """Waits for `words` in the output after the previous match; returns the output up to them."""
        deadline = time.monotonic() + longest_s
        while time.monotonic() < deadline:
            text = self.said()
            found = text.find(words, self._at)
            if found >= 0:
                before = text[self._at : found + len(words)]
                self._at = found + len(words)
                return before
            assert self._process.poll() is None, text
            time.sleep(0.05)
        raise AssertionError(f"MAVProxy did not say {words!r} after: {self.said()[self._at :]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def run_mavsdk(node: Node, address: str, folder: Path, longest_s: float = 60.0) -> dict[str, Any]:
    """Flies the vehicle with mavsdk in a node and returns its record.

    Args:
        node: where it runs.
        address: to connect to: `udpin://0.0.0.0:14550`.
        folder: for what it prints.
        longest_s: how long it may take.
    """
    out = folder / "mavsdk.out"
    with out.open("wb") as opened:
        process = node.start([sys.executable, __file__, address], stdout=opened, stderr=opened, cwd=folder)
        try:
            code = process.wait(longest_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    text = out.read_text(encoding="utf-8", errors="replace")
    assert code == 0, f"mavsdk: exit code {code}: {text}"
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


async def _fly(address: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mavsdk import System
        from mavsdk.mission_raw import MissionItem
    vehicle = System(sysid=246)
    began = time.monotonic()
    await vehicle.connect(system_address=address)
    async for state in vehicle.core.connection_state():
        if state.is_connected:
            break
    found: dict[str, Any] = {"connected_s": time.monotonic() - began}
    async for health in vehicle.telemetry.health():
        if health.is_global_position_ok and health.is_home_position_ok:
            break
    await vehicle.param.set_param_float("RTL_ALT", 2500.0)
    found["parameter"] = await vehicle.param.get_param_float("RTL_ALT")
    items = [
        MissionItem(n, 6, 16, int(n == 0), 1, 0, 0, 0, 0, 480_000_000 + 1000 * n, 110_000_000, 20.0, 0)
        for n in range(12)
    ]
    await vehicle.mission_raw.upload_mission(items)
    back = await vehicle.mission_raw.download_mission()
    found["mission"] = [[one.seq, one.command, one.x, one.y, one.z] for one in back]
    found["uploaded"] = [[one.seq, one.command, one.x, one.y, one.z] for one in items]
    await vehicle.action.arm()
    async for armed in vehicle.telemetry.armed():
        if armed:
            break
    await vehicle.action.set_takeoff_altitude(12)
    await vehicle.action.takeoff()
    await vehicle.action.land()
    await vehicle.action.disarm()
    await vehicle.mission_raw.clear_mission()
    found["took_s"] = time.monotonic() - began
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_fly(sys.argv[1]))))

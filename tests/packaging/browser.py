"""A headless Chromium, driven over its debugging pipe without a package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of a Chromium; closed at the end of a `with` block."""

    def __init__(self, profile: Path) -> None:
        to_read, to_write = os.pipe(), os.pipe()

        def wire() -> None:
            # The program reads commands from 3 and writes answers to 4.
            commands, answers = os.dup(to_read[0]), os.dup(to_write[1])
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command = [str(PROGRAM), *options, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._commands, self._answers = os.fdopen(to_read[1], "wb"), os.fdopen(to_write[0], "rb")
        os.close(to_read[0])
        os.close(to_write[1])
        self._session: str | None = None
        self._number, self._buffer = 0, b""
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._commands.close()
        self._answers.close()

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Calls a method of the debugging protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return dict(answer["result"])
            self._notice(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._answers.fileno(), 1 << 16)
            assert read, "the browser has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _notice(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            entry = event["params"]["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")

    def open(self, address: str) -> None:
        """Opens an address."""
        self.call("Page.navigate", url=address)

    def value(self, program: str) -> Any:
        """Returns the value of an expression on the page."""
        result = self.call("Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 120) -> None:
        """Waits until an expression on the page is true."""
        end = time.monotonic() + seconds
        while not self.value(condition):
            assert time.monotonic() < end, (condition, self.problems)
            time.sleep(0.1)

    def show(self, width: int, height: int, *, dark: bool = False) -> None:
        """Sets the size of the window in CSS pixels, and light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """Writes a picture of the whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))

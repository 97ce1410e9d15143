"""A headless Chromium, driven through the DevTools protocol over a pipe; it needs nothing but the browser."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PIPES = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
"""The browser reads its commands from descriptor 3 and answers on 4."""

_LEFT = "Inspected target navigated or closed"


class NavigatedError(Exception):
    """The page was left while it was asked."""


def browser() -> str | None:
    """Where a browser is; `SKYBRAID_BROWSER` names another one."""
    named = os.environ.get("SKYBRAID_BROWSER")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One page in a browser that has no network but this machine.

    Attributes:
        requests: addresses that the page asked for.
        problems: what the console was told in red, and exceptions.
    """

    def __init__(self, program: str, profile: Path) -> None:
        ours, theirs_out = os.pipe()
        theirs_in, self._to = os.pipe()
        self._from = ours
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out)]
        switches = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--force-device-scale-factor=1",
            f"--user-data-dir={profile}",
        ]
        command = [sys.executable, "-c", PIPES, *map(str, ends), program, *switches, "about:blank"]
        self._process = subprocess.Popen(
            command, pass_fds=ends, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (*ends, theirs_in, theirs_out):
            os.close(end)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        os.close(self._to)
        os.close(self._from)

    def send(self, method: str, **parameters: Any) -> Any:
        """Gives a command and waits for its answer; what happens meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            found = self._next()
            if found.get("id") == self._number:
                error = found.get("error")
                if error is not None and error["message"] == _LEFT:
                    raise NavigatedError
                assert error is None, error
                return found["result"]
            self._note(found)

    def _next(self, patience_s: float = 60) -> dict[str, Any]:
        until_s = time.monotonic() + patience_s
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(until_s - time.monotonic(), 0))
            assert ready, "the browser is silent"
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _note(self, answer: dict[str, Any]) -> None:
        of = answer.get("params", {})
        match answer.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(of["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(str(of["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if of["type"] in ("error", "warning"):
                self.problems.append(str([argument.get("value") for argument in of["args"]]))
            case "Log.entryAdded" if of["entry"]["level"] == "error":
                self.problems.append(of["entry"]["text"])

    def run(self, script: str) -> Any:
        """The value of an expression in the page, once it is there."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, patience_s: float = 120) -> None:
        """Waits until an expression holds."""
        end_s = time.monotonic() + patience_s
        while True:
            # A page that was left meanwhile has no answer.
            with contextlib.suppress(NavigatedError):
                if self.run(script):
                    return
            assert time.monotonic() < end_s, f"never came true: {script}"
            time.sleep(0.05)

    def visit(self, address: str, ready: str = "true") -> None:
        """Opens an address and waits until it is there and an expression holds."""
        self.requests.clear()
        self.problems.clear()
        # Until the new page begins, the old one would be asked whether it is ready.
        self.send("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.send("Page.navigate", url=address)
        self.until(f"location.href !== 'about:blank' && document.readyState === 'complete' && ({ready})")

    def open(self, file: Path) -> None:
        """Opens a report and waits until its charts are drawn."""
        self.visit(file.resolve().as_uri(), "document.documentElement.dataset.charts === 'drawn'")
        self.until("Bokeh.documents.every((drawn) => drawn.is_idle)")
        self.rest()

    def rest(self) -> None:
        """Lets the page draw what it has to."""
        self.run("new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 250))")

    def look(self, *, dark: bool = False, width: int = 1000, height: int = 800, media: str = "screen") -> None:
        """The page on a screen of that size and brightness, or on paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.rest()

    def point(self, x: float, y: float, kind: str = "mouseMoved", **more: Any) -> None:
        """Does something with the mouse, at pixels of the window."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """Drags from one place of the window to another."""
        held: dict[str, Any] = {"button": "left", "buttons": 1, "clickCount": 1}
        self.point(*begin)
        self.point(*begin, kind="mousePressed", **held)
        for step in range(1, 9):
            x, y = (one + (other - one) * step / 8 for one, other in zip(begin, end, strict=True))
            self.point(x, y, button="left", buttons=1)
        self.point(*end, kind="mouseReleased", **held)
        self.rest()

    def shoot(self, file: Path) -> bytes:
        """A picture of the whole page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shown = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        data = base64.b64decode(shown["data"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return data

    def paper(self, file: Path) -> bytes:
        """The page as a PDF, as the browser prints it."""
        data = base64.b64decode(
            self.send("Page.printToPDF", printBackground=False, paperWidth=8.27, paperHeight=11.69)["data"]
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return data

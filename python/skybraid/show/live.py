"""Local page that shows a running computation, and then becomes its report."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from skybraid.model.errors import SkybraidError
from skybraid.model.formatting import span
from skybraid.show.palette import COLOURS, DARK_COLOURS

_TEMPLATES = Path(__file__).parent / "templates"

_MAX_POINTS = 1200
"""Maximum points of the charts: ten minutes at two per second."""

_SERIES = 7
"""Colours of the chart's series; further links repeat them with other dashes."""

_FILL_EVERY_S = 3.0
"""Minimum time in s between two readings of the results so far."""

_WATCHED_S = 3.0
"""Time in s without a request after which a browser counts as gone."""

_LINGER_S = 10.0
"""Maximum time in s for which a page outlives its run so that a browser gets the report."""

_LOCAL = ("127.0.0.1", "localhost")


def listen() -> socket.socket:
    """Opens a listening socket on a free port."""
    return socket.create_server((_LOCAL[0], 0))


class LivePage:
    """Web server for one page, on the loopback interface only.

    Attributes:
        address: URL of the page.

    Args:
        title: title of the page.
        listener: listening socket; default: on a free port.
    """

    def __init__(self, title: str, listener: socket.socket | None = None) -> None:
        self._lock, self._filling = threading.Lock(), threading.Lock()
        self._points: deque[dict[str, Any]] = deque(maxlen=_MAX_POINTS)
        self._status: dict[str, Any] = {"title": title, "share": None, "words": "", "finished": False, "report": False}
        self._filler: Callable[[], str] | None = None
        self._filled, self._filled_s = "", 0.0
        self._report: str | None = None
        self._asked_s = 0.0
        self._taken = threading.Event()
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.answer(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
                """Logs nothing."""

        self._server = ThreadingHTTPServer((_LOCAL[0], 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener or listen()
        self._server.daemon_threads = True
        self.address = f"http://{_LOCAL[0]}:{self._server.socket.getsockname()[1]}/"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, share: float | None, words: str, point: dict[str, Any] | None = None) -> None:
        """Reports the progress of the run.

        Args:
            share: completed share, 0 to 1; None: unknown.
            words: text next to the progress bar.
            point: new point of the charts: `at_s` and the values of each link.
        """
        with self._lock:
            self._status |= {"share": share, "words": words}
            if point is not None:
                self._points.append(point)

    def fill(self, filler: Callable[[], str]) -> None:
        """Sets the function that renders the results so far; called on request, at most every 3 s."""
        self._filler = filler

    def finish(self, report: str | None) -> None:
        """Shows the end of the run, and redirects browsers to its report, if any."""
        with self._lock:
            # Browsers request an icon of a served page.
            self._report = report and report.replace("<head>", '<head><link rel="icon" href="data:,">', 1)
            self._status |= {"share": 1.0, "finished": True, "report": report is not None}

    def close(self) -> None:
        """Stops serving once every watching browser has received the end of the run."""
        watched = time.monotonic() - self._asked_s < _WATCHED_S
        if watched and self._status["finished"]:
            self._taken.wait(_LINGER_S)
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answers a browser's request."""
        # Requests under another host name are refused (DNS rebinding).
        if request.headers.get("Host", "").rpartition(":")[0] not in _LOCAL:
            request.send_error(HTTPStatus.FORBIDDEN)
            return
        self._asked_s = time.monotonic()
        path, _, after = request.path.partition("?after=")
        try:
            after_s = float(after or "-inf")
        except ValueError:
            request.send_error(HTTPStatus.BAD_REQUEST)
            return
        match path:
            case "/":
                self._send(request, "text/html", _page(str(self._status["title"])))
            case "/status":
                with self._lock:
                    new = [point for point in self._points if point["at_s"] > after_s]
                    status = json.dumps(self._status | {"points": new})
                self._send(request, "application/json", status)
                if self._status["finished"] and not self._status["report"]:
                    self._taken.set()
            case "/results":
                self._send(request, "text/html", self._results())
            case "/report" if self._report is not None:
                self._send(request, "text/html", self._report)
                self._taken.set()
            case _:
                request.send_error(HTTPStatus.NOT_FOUND)

    def _results(self) -> str:
        if self._filler is None:
            return ""
        # A separate lock, so that the run does not wait for a reader.
        with self._filling:
            if time.monotonic() - self._filled_s >= _FILL_EVERY_S:
                # Nothing can be read before the first part is written.
                with contextlib.suppress(SkybraidError):
                    self._filled = self._filler()
                self._filled_s = time.monotonic()
            return self._filled

    def _send(self, request: BaseHTTPRequestHandler, kind: str, text: str) -> None:
        data = text.encode()
        request.send_response(HTTPStatus.OK)
        request.send_header("Content-Type", f"{kind}; charset=utf-8")
        request.send_header("Content-Length", str(len(data)))
        request.send_header("Cache-Control", "no-store")
        request.end_headers()
        try:
            request.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            return


def _page(title: str) -> str:
    css = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    page = (_TEMPLATES / "live.html").read_text(encoding="utf-8")
    for name, colours in (("light", COLOURS), ("dark", DARK_COLOURS)):
        series = "".join(f"--series-{at}: {colour}; " for at, colour in enumerate(colours[:_SERIES]))
        page = page.replace(f"/* {name} series */", series)
    return page.replace("/* css */", css).replace("%title%", escape(title, quote=False))


def show_emulation(page: LivePage, status: dict[str, Any], whole_s: float | None = None) -> None:
    """Shows the links of an emulation: adds one point in time to each series.

    Args:
        page: live page.
        status: status response of the emulation.
        whole_s: duration of the emulation in s; None: unknown.
    """
    at_s = status["at_s"]
    links = {
        f"{path['path']} {direction}": {
            "up": path[direction]["up"],
            "rate": path[direction]["rate_bps"] / 1e6,
            "load": path[direction]["delivered_bps"] / 1e6,
            "delay": path[direction]["delay_ms"],
            "queue": path[direction]["queue_bytes"] / 1e3,
            "lost": sum(path[direction]["lost"].values()),
        }
        for path in status["paths"]
        for direction in ("uplink", "downlink")
    }
    whole = "" if whole_s is None else f" of {span(whole_s)}"
    share = None if whole_s is None else min(at_s / whole_s, 1.0)
    page.update(share, f"{span(float(int(at_s)))}{whole}", {"at_s": at_s, "links": links})

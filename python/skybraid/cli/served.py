"""Live page of a running command."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from skybraid.cli.late import live
from skybraid.model.formatting import about, percent

if TYPE_CHECKING:
    from skybraid.execute.pool import Progress
    from skybraid.show.live import LivePage

_LISTENER = "SKYBRAID_LIVE_LISTENER"
"""Descriptor of the listening socket that a command inside a sandbox has from the one outside."""

_TOLD_AFTER_S = 1.0
"""Time after which the time left is worth an estimate."""


def listen_outside() -> None:
    """Opens the page's port outside the sandbox, since no browser reaches the network inside."""
    listener = live.listen()
    listener.set_inheritable(True)
    os.environ[_LISTENER] = str(listener.detach())


def _listener() -> socket.socket | None:
    descriptor = os.environ.pop(_LISTENER, None)
    if descriptor is None:
        return None
    listener = socket.socket(fileno=int(descriptor))
    # Programs that run over the links must not have it.
    listener.set_inheritable(False)
    return listener


@contextlib.contextmanager
def page(title: str, *, shown: bool) -> Iterator[LivePage | None]:
    """Serves a live page and prints its address; yields None if no page is wanted."""
    if not shown:
        yield None
        return
    with live.LivePage(title, _listener()) as served:
        typer.echo(f"live: {served.address}", err=True)
        yield served


def both(report_progress: Progress | None, served: LivePage | None, doing: str) -> Progress | None:
    """Progress callback for the terminal and the page."""
    if served is None:
        return report_progress
    begin_s = time.monotonic()

    def report(share: float) -> None:
        if report_progress is not None:
            report_progress(share)
        took_s = time.monotonic() - begin_s
        left = f", {about(took_s / share * (1 - share))} left" if took_s > _TOLD_AFTER_S and 0 < share < 1 else ""
        served.update(share, f"{doing}: {percent(float(f'{share:.2f}'))}{left}")

    return report

"""Live view of a running emulation."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import typer

from skybraid.cli.late import live
from skybraid.execute import control
from skybraid.model.errors import EmulationError
from skybraid.model.formatting import count, microseconds, milliseconds, percent, rate, size, span
from skybraid.model.heavy import rich_console, rich_live, rich_table

if TYPE_CHECKING:
    from skybraid.execute.pool import Progress
    from skybraid.show.live import LivePage

EVERY_S = 0.5
"""How often the view is renewed."""

HEADS = ("path", "direction", "state", "rate", "delay", "loss", "queue", "delivered", "lost")


class Direction(StrEnum):
    """One direction of a path."""

    UPLINK = "uplink"
    DOWNLINK = "downlink"


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the view: one direction of a path at an instant."""

    path: str
    direction: str
    state: str
    rate: str
    delay: str
    loss: str
    queue: str
    delivered: str
    lost: str

    def cells(self) -> tuple[str, ...]:
        """Cells in the order of `HEADS`."""
        return tuple(getattr(self, head) for head in HEADS)


def rows(status: dict[str, Any]) -> list[Row]:
    """Rows of a status: configuration and load of each link."""
    return [
        _row(path["path"], str(direction), path[direction], status["at_s"])
        for path in status["paths"]
        for direction in Direction
    ]


def _row(path: str, direction: str, link: dict[str, Any], now_s: float) -> Row:
    since_s = link.get("down_since_s")
    down = "down" if since_s is None else f"down {max(now_s - since_s, 0):.1f} s"
    causes = [f"{count(number)} {cause}" for cause, number in link["lost"].items() if number]
    return Row(
        path,
        direction,
        "up" if link["up"] else down,
        rate(link["rate_bps"]),
        "–" if link["delay_ms"] is None else milliseconds(link["delay_ms"]),
        percent(link["loss"]),
        size(link["queue_bytes"]),
        rate(link["delivered_bps"]),
        ", ".join(causes) or "–",
    )


def title(status: dict[str, Any], name: str) -> str:
    """Status line: elapsed time and timing accuracy."""
    late, lost = microseconds(status["lateness_p99_ms"] * 1000), count(status["lost_by_emulator"])
    return f"{name}, {span(float(int(status['at_s'])))}: late by {late} (p99), {lost} packets lost by the emulator"


def table(status: dict[str, Any], name: str) -> rich_table.Table:
    """Formats a status as a table for the terminal."""
    drawn = rich_table.Table(title=title(status, name), title_justify="left", title_style="", box=None, pad_edge=False)
    for head in HEADS:
        side: Literal["left", "right"] = "left" if head in ("path", "direction", "state", "lost") else "right"
        drawn.add_column(head, justify=side, no_wrap=True)
    for row in rows(status):
        drawn.add_row(*row.cells(), style=None if row.state == "up" else "red")
    return drawn


def lines(status: dict[str, Any]) -> list[str]:
    """Formats a status as plain lines."""
    return [
        f"{status['at_s']:.1f} s  {row.path} {row.direction}: {row.state}, {row.rate}, {row.delay}, loss {row.loss}, "
        f"queue {row.queue}, delivers {row.delivered}, lost {row.lost}"
        for row in rows(status)
    ]


class View:
    """Shows successive statuses: a table updated in place on a terminal, else plain lines.

    Args:
        name: the emulation's.
        on_stderr: on standard error, where standard output belongs to something else.
    """

    def __init__(self, name: str, *, on_stderr: bool) -> None:
        self._name = name
        self._console = rich_console.Console(stderr=on_stderr)
        self._stderr = on_stderr
        self._live = rich_live.Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        if self._live is not None:
            self._live.start()

    def show(self, status: dict[str, Any]) -> None:
        """Replaces the status shown."""
        if self._live is not None:
            self._live.update(table(status, self._name), refresh=True)
        else:
            for line in lines(status):
                typer.echo(line, err=self._stderr)
            (sys.stderr if self._stderr else sys.stdout).flush()

    def close(self) -> None:
        """Ends the view, leaving the last status visible."""
        if self._live is not None:
            self._live.stop()


@contextlib.contextmanager
def view(name: str, served: LivePage, whole_s: float | None, *, shown: bool) -> Iterator[Progress]:
    """Progress callback that shows this process's own emulation on a page, and on a terminal as a table.

    Args:
        name: the emulation's name, as `ctl --name` takes it.
        served: the page.
        whole_s: duration of the emulation, in s; None where its end is not known.
        shown: whether also on the terminal.
    """
    table = View(name, on_stderr=True) if shown and sys.stderr.isatty() else None
    client: control.Client | None = None
    shown_s = 0.0

    def look(_share: float) -> None:
        nonlocal client, shown_s
        now_s = time.monotonic()
        if now_s - shown_s < EVERY_S:
            return
        shown_s = now_s
        with contextlib.suppress(EmulationError):
            client = client or control.Client(control.find(name).socket)
            status = client.ask(do="status")
            live.show_emulation(served, status, whole_s)
            if table is not None:
                table.show(status)

    try:
        yield look
    finally:
        if table is not None:
            table.close()
        if client is not None:
            client.close()

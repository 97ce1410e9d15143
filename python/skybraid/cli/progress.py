"""Progress of a command: a bar on a terminal, else lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from skybraid.model.heavy import rich_console, rich_progress

if TYPE_CHECKING:
    from skybraid.execute.pool import Progress


@contextlib.contextmanager
def progress(*, shown: bool, doing: str = "simulating") -> Iterator[Progress | None]:
    """Returns a progress callback: a bar with the time left on a terminal, else a line every 10 %."""
    with tally(shown=shown, doing=doing, timed=True) as report_progress:
        yield None if report_progress is None else lambda share: report_progress(share, "")


@contextlib.contextmanager
def tally(*, shown: bool, doing: str, timed: bool = False) -> Iterator[Callable[[float, str], None] | None]:
    """Returns a progress callback that takes a text with each share; `timed` shows the time left instead."""
    if not shown:
        yield None
    elif sys.stderr.isatty():
        text = rich_progress.TextColumn
        last = rich_progress.TimeRemainingColumn() if timed else text("{task.fields[words]}")
        columns = (text(doing), rich_progress.BarColumn(), rich_progress.TaskProgressColumn(), last)
        console = rich_console.Console(stderr=True)
        with rich_progress.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(doing, total=1.0, words="")
            yield lambda share, words: bar.update(task, completed=share, words=words)
    else:
        last_tenth = -1

        def print_tenths(share: float, words: str) -> None:
            nonlocal last_tenth
            tenth = int(share * 10)
            if tenth > last_tenth:
                last_tenth = tenth
                typer.echo(f"{doing}: {tenth * 10} %{f', {words}' if words else ''}", err=True)

        yield print_tenths

"""Page that fills while a command runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import typer

from skybraid.model.heavy import Late
from skybraid.model.requirements import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skybraid.execute.pool import Progress
    from skybraid.show import live
    from skybraid.show.live import LivePage
else:
    # A web server takes 30 ms to import, which a run without a page is spared.
    live = Late("skybraid.show.live")


@contextlib.contextmanager
def page(title: str, *, shown: bool) -> Iterator[LivePage | None]:
    """Serves a page that fills while something runs, and prints its address; None if it is not wanted."""
    if not shown:
        yield None
        return
    with live.LivePage(title) as served:
        typer.echo(f"live: {served.address}", err=True)
        yield served


def both(told: Progress | None, served: LivePage | None, doing: str) -> Progress | None:
    """Progress callback for the terminal and the page."""
    if served is None:
        return told

    def tell(share: float) -> None:
        if told is not None:
            told(share)
        served.tell(share, f"{doing}: {percent(float(f'{share:.3f}'))}")

    return tell

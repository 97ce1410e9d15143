"""Options for what measured files do not state themselves: options of `trace`, `fit` and `assess`."""

from pathlib import Path
from typing import Annotated

import typer

from skybraid.cli.late import formats
from skybraid.cli.options import seconds
from skybraid.model.errors import TraceError

InFormat = Annotated[str | None, typer.Option("--format", help=f"Format: {', '.join(formats.FORMATS)}.")]
Every = Annotated[
    str | None, typer.Option(help="Time between lines or probes of files without times.", metavar="DURATION")
]
Zone = Annotated[str | None, typer.Option(help="Time zone of dates without one, such as Europe/Zurich.")]
Meaning = Annotated[
    list[str] | None,
    typer.Option("--as", help="Quantity of a column: 'NAME=downlink rate [Mbit/s]'.", metavar="NAME=QUANTITY"),
]
Client = Annotated[str, typer.Option(help="Where the measuring client was: vehicle or ground.")]
OneWay = Annotated[bool, typer.Option("--one-way", help="Take one-way delays as measured: the clocks agree.")]
Lost = Annotated[float | None, typer.Option(help="Value of a round trip or delay that marks a lost probe, such as -1.")]
Peer = Annotated[Path | None, typer.Option(help="Capture of the other end.", metavar="FILE")]


def one_of(value: str | None, option: str, known: tuple[str, ...]) -> str | None:
    """Returns the value of an option.

    Raises:
        TraceError: it is none of those known.
    """
    if value is not None and value not in known:
        raise TraceError(f"{option}: found `{value}`; expected one of {', '.join(known)}")
    return value


def read_options(
    zone: str | None, meanings: list[str] | None, client: str, lost: float | None, every: str | None = None
) -> formats.Options:
    """Returns the options of readers.

    Raises:
        TraceError: one is invalid.
    """
    one_of(client, "--client", ("vehicle", "ground"))
    columns: dict[str, str] = {}
    for text in meanings or []:
        name, equals, meaning = text.partition("=")
        if not equals:
            raise TraceError(f"--as: found `{text}`; expected NAME=QUANTITY, such as 'dl=downlink rate [Mbit/s]'")
        columns[name] = meaning
    return formats.Options(zone=zone, client=client, columns=columns, lost=lost, every_s=seconds("--every", every))

"""Writing of flights for scenarios that replay them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS
from skybraid.traces.series import with_end

if TYPE_CHECKING:
    from skybraid.traces.flights import Flight

RATE_MBPS = 20.0
"""Rate in Mbit/s of a path without a measured rate."""

DELAY_MS = 30.0
"""One-way delay in ms of a path without a measured delay."""

_QUANTITIES = (("rate", "Mbit/s", f'"{RATE_MBPS:g}Mbit/s"'), ("delay", "ms", f'"{DELAY_MS:g}ms"'), ("loss", "%", None))


def write_flight(flight: Flight, file: Path) -> None:
    """Writes a flight without gaps as CSV, with columns such as "uplink rate [Mbit/s]"."""
    heads, table = ["time [s]"], [flight.times_s]
    for direction, quantity, unit, values in _series(flight):
        heads.append(f"{direction} {quantity} [{unit}]")
        table.append(values)
    if flight.length_s - 2e-6 > flight.times_s[-1]:
        table = with_end(table, flight.length_s)
    fmt = ["%.9f", *["%.9g"] * (len(table) - 1)]
    np.savetxt(file, np.stack(table, axis=1), fmt=fmt, delimiter=",", header=",".join(heads), comments="")


def path_lines(flight: Flight, file: Path, name: str) -> str:
    """Returns the scenario lines of a path that replays a written flight in a loop.

    Args:
        flight: the written flight.
        file: CSV file next to the scenario.
        name: name of the path.
    """
    lines = [f"[path.{name}]"]
    measured = {(direction, quantity) for direction, quantity, _, _ in _series(flight)}
    for direction in DIRECTIONS:
        for quantity, unit, otherwise in _QUANTITIES:
            if (direction, quantity) in measured:
                keys = (
                    f'trace = "{file.name}", column = "{direction} {quantity} [{unit}]", unit = "{unit}", repeat = true'
                )
                lines.append(f"{direction}.{quantity} = {{ {keys} }}")
            elif otherwise is not None:
                lines.append(f"{direction}.{quantity} = {otherwise}")
    return "\n".join(lines) + "\n"


def _series(flight: Flight) -> list[tuple[str, str, str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]]:
    return [
        (direction, quantity, unit, values)
        for direction in DIRECTIONS
        for quantity, unit, _ in _QUANTITIES
        if (values := flight.values(quantity, direction)) is not None
    ]

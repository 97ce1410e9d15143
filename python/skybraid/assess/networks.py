"""Networks by their measured flights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from skybraid.model.errors import ScenarioError
from skybraid.traces.flights import DIRECTIONS, Flight, read_flight, without_twins
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.formats import Options

HOUR_S = 3600.0
"""Time in s of a long measurement that counts as a flight of its own."""

MIN_FLIGHT_S = 1.0
"""Minimum measured time in s of a flight."""

MINUTE_S = 60.0
"""Flights shorter than this, in s, add up to occasions of this length."""


@dataclass(frozen=True)
class Network:
    """A network and its measured flights.

    Attributes:
        name: the user's name for it.
        flights: flights without gaps, at least one.
        together: name shared by networks that were measured together on the same journeys; "" if measured alone.
    """

    name: str
    flights: tuple[Flight, ...]
    together: str = ""

    @property
    def measured_s(self) -> float:
        """Total duration of the flights in s."""
        return sum(flight.length_s for flight in self.flights)

    @property
    def occasions(self) -> int:
        """Number of independent occasions: one per flight and whole hour; a flight under a minute is a part of one."""
        seen = [min(max(int(one.length_s / HOUR_S), 1), one.length_s / MINUTE_S) for one in self.flights]
        return max(int(sum(seen) + 1e-9), 1)

    def lacks(self, quantity: str, direction: str) -> bool:
        """Whether some flight has no measurement of a quantity in a direction."""
        return self.having(quantity, direction) < len(self.flights)

    def having(self, quantity: str, direction: str) -> int:
        """Returns the number of flights with a measurement of a quantity in a direction."""
        return sum(flight.values(quantity, direction) is not None for flight in self.flights)


def read_networks(texts: Sequence[str], options: Options | None = None) -> list[Network]:
    """Reads `NAME=FLIGHT` for each flight; `A,B=joined.csv` for networks measured together (`trace join`).

    Raises:
        ScenarioError: a text has no name.
        TraceError: a file cannot be read.
    """
    flights: dict[str, list[Flight]] = {}
    together: dict[str, str] = {}
    for text in texts:
        names, equals, files = text.partition("=")
        wanted = [name.strip() for name in names.split(",")]
        if not equals or not all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) for name in wanted):
            raise ScenarioError(f"found `{text}`; expected NAME=FLIGHT, such as lte=drive.csv")
        flight = _read(files, options)
        if len(wanted) == 1 and not any(column.direction in ("", *DIRECTIONS) for column in flight.columns):
            listed = ", ".join(f"`{column.name}`" for column in flight.columns)
            expected = "NAME,NAME=FILE for networks measured together, or --as 'NAME=downlink rate [Mbit/s]'"
            raise TraceError(f"{files}: found {listed}; expected {expected}")
        for name in wanted:
            flights.setdefault(name, []).append(_own(flight, name) if len(wanted) > 1 else flight)
        if len(wanted) > 1:
            together |= dict.fromkeys(wanted, names)
    for name, key in together.items():
        # Flights measured together and alone cannot be mixed: their journeys would not pair.
        partners = key.split(",")
        if len({len(flights[partner]) for partner in partners}) > 1:
            raise ScenarioError(f"{name}: found flights of {key} together and apart; expected all of one kind")
    if not together:
        flights = {name: without_twins(own) for name, own in flights.items()}
    return [Network(name, tuple(own), together.get(name, "")) for name, own in flights.items()]


def _read(files: str, options: Options | None) -> Flight:
    """Reads a flight and removes its pauses.

    Raises:
        TraceError: a file cannot be read, or has less than `MIN_FLIGHT_S` of measurements.
    """
    try:
        flight = read_flight(files, options).without_gaps().without_pauses()
    except TraceError as error:
        if "expected --" not in str(error):
            raise
        hint = f"`skybraid trace import {files} …` takes such options and writes a CSV that is read here"
        raise TraceError(f"{error}; {hint}") from error
    if flight.length_s < MIN_FLIGHT_S:
        found = f"found {flight.length_s:.3g} s of measurements"
        raise TraceError(f"{files}: {found}; expected at least {MIN_FLIGHT_S:g} s")
    return flight


def _own(flight: Flight, name: str) -> Flight:
    """Returns the columns of one network of a joined flight."""
    columns = tuple(
        replace(column, direction=column.direction.removeprefix(name).strip())
        for column in flight.columns
        if column.direction == name or column.direction.startswith(f"{name} ")
    )
    columns = tuple(column for column in columns if column.direction in ("", *DIRECTIONS))
    if not columns:
        listed = ", ".join(column.name for column in flight.columns)
        raise TraceError(f"{flight.name}: found {listed}; expected columns of `{name}`, as `trace join` names them")
    return replace(flight, columns=columns)

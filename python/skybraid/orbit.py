"""Satellites over a position or a track: the serving satellite, its elevation and delay over time.

    from skybraid import orbit

    service = orbit.serve(
        {"constellation": "starlink-550", "gateways": [{"latitude": 47.0, "longitude": 8.0}]},
        {"position": {"latitude": 46.95, "longitude": 7.44, "altitude": "550m"}},
        duration="30min",
    )
    print(service.delays_ms, service.handovers_per_hour)

The tables are those of a scenario's `[path.NAME.orbit]` and `[node.NAME]`; `docs/orbits.md` explains them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tomli_w

import skybraid
from skybraid import _core
from skybraid.model.heavy import np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from skybraid.model.scenario import Scenario

__all__ = ["Delays", "Gap", "Handover", "Service", "Serving", "constellations", "of_path", "plot", "positions", "serve"]


@dataclass(frozen=True, slots=True)
class Serving:
    """Satellite serving from `from_s` until `to_s` (exclusive), in s of the run."""

    satellite: str
    from_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Handover:
    """Handover between satellites at `at_s`, in s of the run, with an interruption of `gap_s`."""

    at_s: float
    gap_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Period without service, from `from_s` for `length_s`."""

    from_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class Delays:
    """One-way delays in ms between the terminal and the other end; the median is weighted by time."""

    min: float
    median: float
    max: float


class Service:
    """Satellite service of a terminal over a run."""

    def __init__(self, native: _core.OrbitService) -> None:
        self._native = native

    @property
    def start(self) -> str:
        """Start of the run in UTC (ISO 8601)."""
        return self._native.start

    @property
    def length_s(self) -> float:
        """Duration of the run in s."""
        return self._native.length_s

    @property
    def warning(self) -> str | None:
        """Warning about a probable mistake, such as element sets of another year."""
        return self._native.warning()

    @cached_property
    def samples(self) -> dict[str, NDArray[Any]]:
        """Service over time, arrays of shape (n,).

        `time_s`, one-way `delay_ms`, `elevation_deg`, number of the `gateway`, and `hops` between satellites. A sample
        holds until the next, or until its satellite's end.
        """
        return self._native.samples()

    @cached_property
    def serving(self) -> list[Serving]:
        """Serving satellites, in order."""
        return [Serving(*span) for span in self._native.serving()]

    @cached_property
    def handovers(self) -> list[Handover]:
        """Handovers without a gap in between."""
        return [Handover(*handover) for handover in self._native.handovers()]

    @cached_property
    def gaps(self) -> list[Gap]:
        """Periods without a serving satellite."""
        return [Gap(*gap) for gap in self._native.gaps()]

    @cached_property
    def rain(self) -> list[Gap]:
        """Periods in which rain blocks all packets."""
        return [Gap(*gap) for gap in self._native.rain()]

    @property
    def delays_ms(self) -> Delays | None:
        """Minimum, median and maximum delay; None without service."""
        delays = self._native.delays_ms()
        return None if delays is None else Delays(*delays)

    @property
    def handovers_per_hour(self) -> float:
        """Handovers per hour of service."""
        return self._native.handovers_per_hour()

    @property
    def served_share(self) -> float:
        """Share of the run in which a satellite serves, 0 to 1."""
        return sum(span.to_s - span.from_s for span in self.serving) / self.length_s

    def csv(self) -> str:
        """Formats the delay as CSV with the columns `time_s` and `delay_ms`."""
        return self._native.csv()

    def hypatia(self) -> str:
        """Formats round trips like Hypatia, one `time_ns,rtt_ns` per line; zero without service."""
        return self._native.hypatia()

    def json(self) -> dict[str, Any]:
        """Converts everything except the samples to a JSON value."""
        delays = self.delays_ms
        return {
            "start": self.start,
            "length_s": self.length_s,
            "served_share": self.served_share,
            "delay_ms": None if delays is None else {"min": delays.min, "p50": delays.median, "max": delays.max},
            "handovers_per_hour": self.handovers_per_hour,
            "serving": [
                {"satellite": span.satellite, "from_s": span.from_s, "to_s": span.to_s} for span in self.serving
            ],
            "handovers": [{"at_s": handover.at_s, "gap_s": handover.gap_s} for handover in self.handovers],
            "gaps": [{"from_s": gap.from_s, "length_s": gap.length_s} for gap in self.gaps],
            "rain": [{"from_s": gap.from_s, "length_s": gap.length_s} for gap in self.rain],
        }


def serve(
    orbit: dict[str, Any],
    terminal: dict[str, Any],
    duration: str,
    other: dict[str, Any] | None = None,
    file: str = "orbit",
) -> Service:
    """Computes the service of a terminal.

    `orbit` is the table of a scenario's `[path.NAME.orbit]`; `terminal` and `other`, the link's other end (the first
    gateway unless given), have `position` or `track`. Files are relative to the folder of `file`, which errors name and
    which need not be there.

    Raises:
        ScenarioError: a table is not correct, or a file cannot be read.
    """
    request = {"duration": duration, "orbit": orbit, "terminal": terminal}
    if other is not None:
        request["other"] = other
    return Service(_core.OrbitService.load(tomli_w.dumps(request), file))


def of_path(scenario: Scenario, path: str | None = None) -> Service:
    """Computes the service of a path or link of a scenario; by default the only one with satellites.

    Raises:
        ScenarioError: there is no such path, or it has no `orbit`.
    """
    return Service(scenario.native.orbit(path))


def constellations() -> dict[str, str]:
    """Named constellations with description and source."""
    return dict(_core.constellations())


def positions(elements: str, unix_s: NDArray[np.float64]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the satellites of element sets (TLE or OMM), and their earth-fixed positions in m.

    `unix_s` are times in s since 1970 in UTC, shape (t,). Positions have the shape (satellites, t, 3) and are NaN once
    a satellite has come down.

    Raises:
        ScenarioError: the elements are not correct.
    """
    names, flat = _core.satellite_positions(elements, np.ascontiguousarray(unix_s, dtype=np.float64))
    return names, flat.reshape(len(names), len(unix_s), 3)


def plot(service: Service) -> Figure:
    """Draws delay, elevation and serving satellite over time; times without service are shaded, and so is rain."""
    return skybraid.plots.passes(service)

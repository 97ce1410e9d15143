"""Factors by which flights of a network differ from those that were seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skybraid.model.heavy import np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skybraid.fit.events import Events
    from skybraid.fit.link import FittedFlight
    from skybraid.fit.process import Process

BETWEEN_LOG = {"rate": 0.4, "delay": 0.1, "jitter": 0.5, "loss": 0.7, "stall": 0.7, "outage": 1.0}
"""Standard deviation of the logarithm of what flights of one network differ in, before any was measured.

Medians of the rate: 0.14 to 1.4 between the journeys of cars (Hu et al., CoNEXT 2023; Laniewski et al., TMA 2024), 0.4
between the halves of a drone's (Baltaci, Cech et al., IMC 2022); of the delay: 0.02 to 0.2, of its 99th percentile:
0.2 to 1.2 (PAM 2025, CICV5G). Times without service per hour: 1.4, 1.5, 2.2 and 1.5 between the journeys of three
carriers and Starlink (CoNEXT 2023), 0.3 of 5G in Ireland; stalls of delays: 0.5 to 0.9 (PAM 2025). A lognormal factor
raises the mean, of 1.4 by too much: with 1.0 it is kept within a quarter.
"""

MAX_LOG = 2.0
"""Largest standard deviation of a logarithm that is written."""

PRIOR_FLIGHTS = 2
"""Flights that `BETWEEN_LOG` counts as."""

MIN_STUDENT = 5
"""Journeys of which Student's t is taken for fewer too: it has no variance below four."""


def spread_of(fitted: Sequence[FittedFlight], events: Sequence[Events | None], journeys: int) -> dict[str, float]:
    """Returns the factors by which a new flight differs from the windows seen, as geometric standard deviations.

    They are those of a smoothed bootstrap (Silverman 1986), and the less journeys were measured, the more of what
    journeys of other networks differ in.
    """
    variances: dict[str, float] = {}
    for quantity in ("rate", "delay"):
        logs = []
        for flight in fitted:
            # A run's factor on the delay is one on its constant part.
            own = [
                process.plus or _median(process) if quantity == "delay" else _median(process)
                for key, process in flight.processes.items()
                if key.endswith(quantity)
            ]
            if own and min(own) > 0:
                logs.append(float(np.mean(np.log(own))))
        if logs:
            variances[quantity] = _smoothing(logs, journeys)
    if "delay" in variances:
        # The tails of the windows are in the windows themselves.
        variances["jitter"] = 0.0
    losses = [math.log(flight.loss) for flight in fitted if flight.loss]
    if losses:
        variances["loss"] = _smoothing(losses, journeys)
    lit = [flight for flight in fitted if not flight.is_dark] or fitted
    for name, rates, counts in (
        ("stall", [flight.stalls_per_s for flight in lit], [len(own.stalls) for own in events if own]),
        ("outage", [flight.outages_per_s for flight in lit], [len(own.outages) for own in events if own]),
    ):
        logs = [math.log(rate) for rate in rates if rate]
        if logs:
            # A count differs by chance alone too: the logarithm of a Poisson number n has the variance 1 / n.
            chance = float(np.mean([1 / (count + 0.5) for count in counts]))
            variances[name] = _smoothing(logs, journeys, chance)
    # The middle of the flights that were seen is not that of the network: by one n-th of their variance.
    share = PRIOR_FLIGHTS / (PRIOR_FLIGHTS + journeys - 1) * (1 + 1 / journeys)
    # Rates alone show times without service as stalls.
    prior = BETWEEN_LOG if "delay" in variances else BETWEEN_LOG | {"stall": BETWEEN_LOG["outage"]}
    return {
        name: math.exp(min(math.sqrt(variance + share * prior[name] ** 2), MAX_LOG))
        for name, variance in variances.items()
    }


def _smoothing(logs: Sequence[float], journeys: int, chance: float = 0.0) -> float:
    """Returns the variance by which logarithms are smoothed, that of chance taken off.

    It is that of a kernel (Silverman 1986), and of few journeys what a drawn one lacks of the variance of the next one:
    Student's t of `n - 1` degrees of freedom has `(n - 1) / (n - 3)` of the measured variance, about a mean that is
    uncertain by an n-th of it, and drawing from n has `(n - 1) / n`.
    """
    if len(logs) < 2:
        return 0.0
    kernel = (1.06 * math.pow(len(logs), -0.2)) ** 2
    count = max(journeys, MIN_STUDENT)
    student = (1 + 1 / count) * (count - 1) / (count - 3) - (count - 1) / count if journeys > 1 else 0.0
    return max(float(np.var(logs, ddof=1)) - chance, 0.0) * max(kernel, student)


def _median(process: Process) -> float:
    return process.plus + float(np.interp(0.5, *np.array(process.table).T))

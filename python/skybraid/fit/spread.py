"""Factors by which flights of a network differ from those that were seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skybraid.fit.events import Events
    from skybraid.fit.link import FittedFlight
    from skybraid.fit.process import Process
    from skybraid.traces.flights import Flight

BETWEEN_LOG = {"rate": 0.65, "delay": 0.1, "jitter": 0.5, "loss": 0.7, "stall": 0.7, "outage": 1.0}
"""Standard deviation of the logarithm of what flights of one network differ in, before any was measured.

Means of the rate over five minutes: 0.13 to 1.2 between the journeys of ten sets (Hu et al., CoNEXT 2023; Laniewski et
al., TMA 2024; Baltaci, Cech et al., IMC 2022; Raca et al., MMSys 2020), whose mean square this is; of the delay: 0.02
to 0.2, of its 99th percentile: 0.2 to 1.2 (PAM 2025, CICV5G). Times without service per hour: 1.4, 1.5, 2.2 and 1.5
between the journeys of three carriers and Starlink (CoNEXT 2023), 0.3 of 5G in Ireland; stalls of delays: 0.5 to 0.9
(PAM 2025). A lognormal factor raises the mean, of 1.4 by too much: with 1.0 it is kept within a quarter.
"""

SHORT_S = 300.0
"""Flights of less than this, in s, say little of slow changes."""

SLOW_LOG = {"rate": 0.6, "delay": 0.05, "jitter": 0.6}
"""Variance of the logarithm of what changes within five minutes, before any was measured.

The mean over T s differs from that over five minutes by `exp(-T / 60 s)` of it, on average of 26 measured sets: of
rates by 0.58 over 3 s, 0.38 over 20 s, 0.22 over a minute and 0.10 over two (0.03 to 1.7, as networks differ).
"""

SLOW_S, OWN_S, HALF_S = 60.0, 24.0, 20.0
"""Time in s in which that falls to 1/e. Of the variance within T s the mean over them differs by `OWN_S / T`: 1.2 of it
measured over 20 s, 0.5 over a minute, 0.18 over two. `HALF_S`: length in s from which on that is the better known one.
"""

MAX_LOG = 2.0
"""Largest standard deviation of a logarithm that is written."""

PRIOR_FLIGHTS = 2
"""Flights that `BETWEEN_LOG` counts as."""

MIN_STUDENT = 5
"""Journeys of which Student's t is taken for fewer too: it has no variance below four."""


def spread_of(
    fitted: Sequence[FittedFlight], flights: Sequence[Flight], events: Sequence[Events | None], journeys: int
) -> dict[str, float]:
    """Returns the factors by which a new flight differs from the windows seen, as geometric standard deviations.

    They are those of a smoothed bootstrap (Silverman 1986), and the less journeys were measured, and the shorter they
    were, the more of what journeys of other networks differ in.

    Args:
        fitted: windows.
        flights: the same as measured.
        events: of each.
        journeys: flights that the windows are of.
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
    mean_s = math.fsum(flight.length_s for flight in flights) / journeys
    return {
        name: math.exp(
            min(math.sqrt(variance + share * (prior[name] ** 2 + _slow(name, flights, mean_s) / 2)), MAX_LOG)
        )
        for name, variance in variances.items()
    }


def _slow(name: str, flights: Sequence[Flight], length_s: float) -> float:
    """Returns the variance of the logarithm of a flight's mean about that over five minutes."""
    if name not in SLOW_LOG or length_s >= SHORT_S:
        return 0.0
    usual = SLOW_LOG[name] * math.exp(-length_s / SLOW_S)
    own = []
    for flight in flights:
        for direction in DIRECTIONS:
            values = flight.values("rate" if name == "rate" else "delay", direction)
            if values is None:
                continue
            if name == "jitter":
                values = values - values.min()
            known = values[np.isfinite(values) & (values > 0)]
            if known.size:
                own.append(float(np.log(known).var()))
    if not own:
        return usual
    weight = length_s / (length_s + HALF_S)
    left = OWN_S * (1 / length_s - 1 / SHORT_S)
    return weight * left * float(np.mean(own)) + (1 - weight) * usual


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

"""Spread between flights: the factors by which other flights of a network differ from the measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.flights import DIRECTIONS

if TYPE_CHECKING:
    from skybraid.fit.events import Events
    from skybraid.fit.link import FittedFlight
    from skybraid.fit.process import Process
    from skybraid.traces.flights import Flight

BETWEEN_LOG = {"rate": 0.65, "delay": 0.1, "jitter": 0.5, "loss": 0.7, "stall": 0.7, "outage": 1.0}
"""Prior standard deviation between flights of one network, of the logarithm of each quantity.

Means of the rate over five minutes: 0.13 to 1.2 between the journeys of ten sets (Hu et al., CoNEXT 2023; Laniewski et
al., TMA 2024; Baltaci, Cech et al., IMC 2022; Raca et al., MMSys 2020), whose mean square this is; of the delay: 0.02
to 0.2, of its 99th percentile: 0.2 to 1.2 (PAM 2025, CICV5G). Times without service per hour: 1.4, 1.5, 2.2 and 1.5
between the journeys of three carriers and Starlink (CoNEXT 2023), 0.3 of 5G in Ireland; stalls of delays: 0.5 to 0.9
(PAM 2025). A lognormal factor raises the mean, of 1.4 by too much: with 1.0 it is kept within a quarter.
"""

SHORT_S = 300.0
"""Length in s below which a flight hardly shows slow changes."""

SLOW_LOG = {"rate": 0.6, "delay": 0.05, "jitter": 0.6}
"""Prior variance of the logarithm of each quantity within five minutes.

The mean over T s differs from that over five minutes by `exp(-T / 60 s)` of it, on average of 26 measured sets: of
rates by 0.58 over 3 s, 0.38 over 20 s, 0.22 over a minute and 0.10 over two (0.03 to 1.7, as networks differ).
"""

SLOW_S, OWN_S, HALF_S = 60.0, 24.0, 20.0
"""Time in s in which that variance falls to 1/e. The mean over T s has `OWN_S / T` of the variance within T s: 1.2 of
it measured over 20 s, 0.5 over a minute, 0.18 over two. `HALF_S`: length in s from which on the measured variance
outweighs the prior.
"""

MAX_LOG = 2.0
"""Maximum standard deviation of a logarithm that is written."""

PRIOR_FLIGHTS = 2
"""Weight of `BETWEEN_LOG`, as a number of flights."""

MIN_STUDENT = 5
"""Minimum number of journeys for Student's t, also used for fewer: its variance is infinite below four."""


def spread_of(
    fitted: Sequence[FittedFlight], flights: Sequence[Flight], events: Sequence[Events | None], journeys: int
) -> dict[str, float]:
    """Returns the factors by which a new flight differs from the windows seen, as geometric standard deviations.

    They are those of a smoothed bootstrap (Silverman 1986), plus a share of the spread of other networks that grows as
    journeys are fewer and shorter.

    Args:
        fitted: fitted windows.
        flights: the same windows as measured.
        events: events of each window.
        journeys: number of flights that were cut into the windows.
    """
    variances: dict[str, float] = {}
    for quantity in ("rate", "delay"):
        logs = []
        for flight in fitted:
            # The factor on a run's delay applies to the constant part.
            medians = [
                process.plus or _median(process) if quantity == "delay" else _median(process)
                for key, process in flight.processes.items()
                if key.endswith(quantity)
            ]
            if medians and min(medians) > 0:
                logs.append(float(np.mean(np.log(medians))))
        if logs:
            variances[quantity] = _smoothing(logs, journeys)
    if "delay" in variances:
        # The windows themselves contain their tails.
        variances["jitter"] = 0.0
    losses = [math.log(flight.loss) for flight in fitted if flight.loss]
    if losses:
        variances["loss"] = _smoothing(losses, journeys)
    lit = [flight for flight in fitted if not flight.is_dark] or fitted
    for name, rates, counts in (
        ("stall", [flight.stalls_per_s for flight in lit], [len(medians.stalls) for medians in events if medians]),
        ("outage", [flight.outages_per_s for flight in lit], [len(medians.outages) for medians in events if medians]),
    ):
        logs = [math.log(rate) for rate in rates if rate]
        if logs:
            # Counts also vary by chance: the logarithm of a Poisson number n has the variance 1 / n.
            chance = float(np.mean([1 / (count + 0.5) for count in counts]))
            variances[name] = _smoothing(logs, journeys, chance)
    # The mean of n measured flights deviates from the network's by one n-th of their variance.
    share = PRIOR_FLIGHTS / (PRIOR_FLIGHTS + journeys - 1) * (1 + 1 / journeys)
    # With rates alone, times without service appear as stalls.
    prior = BETWEEN_LOG if "delay" in variances else BETWEEN_LOG | {"stall": BETWEEN_LOG["outage"]}
    mean_s = math.fsum(flight.length_s for flight in flights) / journeys
    return {
        name: math.exp(
            min(math.sqrt(variance + share * (prior[name] ** 2 + _slow(name, flights, mean_s) / 2)), MAX_LOG)
        )
        for name, variance in variances.items()
    }


def _slow(name: str, flights: Sequence[Flight], length_s: float) -> float:
    """Returns the variance of the logarithm of a flight's mean around the mean over five minutes."""
    if name not in SLOW_LOG or length_s >= SHORT_S:
        return 0.0
    usual = SLOW_LOG[name] * math.exp(-length_s / SLOW_S)
    variances = []
    for flight in flights:
        for direction in DIRECTIONS:
            values = flight.values("rate" if name == "rate" else "delay", direction)
            if values is None:
                continue
            known = values[np.isfinite(values)]
            if name == "jitter":
                known = known - known.min(initial=np.inf)
            known = known[known > 0]
            if known.size:
                variances.append(float(np.log(known).var()))
    if not variances:
        return usual
    weight = length_s / (length_s + HALF_S)
    share = OWN_S * (1 / length_s - 1 / SHORT_S)
    return weight * share * float(np.mean(variances)) + (1 - weight) * usual


def _smoothing(logs: Sequence[float], journeys: int, chance: float = 0.0) -> float:
    """Returns the variance by which logarithms are smoothed, corrected for chance.

    It is the larger of two: that of a kernel (Silverman 1986), and, for few journeys, the variance that drawing from n
    journeys lacks. The next journey has the variance of Student's t with `n - 1` degrees of freedom, `(n - 1) / (n -
    3)` of the measured one, around a mean that is uncertain by an n-th of it; drawing from n has `(n - 1) / n`.
    """
    if len(logs) < 2:
        return 0.0
    kernel = (1.06 * math.pow(len(logs), -0.2)) ** 2
    count = max(journeys, MIN_STUDENT)
    student = (1 + 1 / count) * (count - 1) / (count - 3) - (count - 1) / count if journeys > 1 else 0.0
    return max(float(np.var(logs, ddof=1)) - chance, 0.0) * max(kernel, student)


def _median(process: Process) -> float:
    return process.plus + float(np.interp(0.5, *np.array(process.table).T))

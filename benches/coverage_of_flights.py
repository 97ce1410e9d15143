"""Coverage of intervals from a few flights, if flights differ and misses come in bursts.

Run it as `python benches/coverage_of_flights.py`. Flights are made from a population that is known: their number of
outages differs by a lognormal factor, outages have lengths with a heavy tail. `assess` judges n flights, and its
interval should hold the population's mean share of misses. `fit` is fitted to n flights, and its interval of drawn
flights should hold one more flight's share of late or lost probes, its median and its p99.9. Both say 95 %. The
status is 1 where an interval holds less than 88 % of 100, as `benches/coverage.py` has it of few episodes.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skybraid.assess import parse_wanted
from skybraid.assess.judging import Seen, judge_passes
from skybraid.fit import fit_link
from skybraid.fit.draw import draw_flight
from skybraid.fit.goodness import range_of_next
from skybraid.model.episodes import RunShare
from skybraid.traces.flights import Flight
from skybraid.traces.measurement import Column

RUNS = 100
MIN_COVERED = 0.88
FLIGHT_S = 300
DRAWS = 40
CONTROL = parse_wanted("control: 99% within 300ms")
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Flights of a network.

    Attributes:
        name: of it.
        per_h: outages per hour, at the median.
        differs: standard deviation of its logarithm between flights.
        length_s: median length of an outage.
        tail: standard deviation of its logarithm.
    """

    name: str
    per_h: float
    differs: float
    length_s: float
    tail: float

    def outages(self, random: np.random.Generator) -> Values:
        """Returns starts and ends of one flight's outages in s, shape (n, 2)."""
        rate_per_s = self.per_h / 3600 * math.exp(self.differs * random.standard_normal())
        starts = np.sort(random.uniform(0, FLIGHT_S, random.poisson(rate_per_s * FLIGHT_S)))
        lengths = self.length_s * np.exp(self.tail * random.standard_normal(len(starts)))
        return np.stack([starts, starts + lengths], axis=1)

    def flight(self, random: np.random.Generator, step_s: float = 0.2) -> Flight:
        """Returns the probes of one flight, in s; infinite if lost."""
        times_s = np.arange(0, FLIGHT_S, step_s)
        delay_ms = 25 * math.exp(0.1 * random.standard_normal()) + random.gamma(2.0, 3.0, len(times_s))
        for start_s, end_s in self.outages(random):
            delay_ms[(times_s >= start_s) & (times_s < end_s)] = math.inf
        return Flight("made", times_s, (Column("delay", "ms", delay_ms),), float(FLIGHT_S))


POPULATIONS = (
    Population("bursts of 0.5 s, alike", 60, 0.0, 0.5, 0.5),
    Population("bursts of 2 s, flights differ", 20, 1.0, 2.0, 1.0),
    Population("outages of 10 s, flights differ", 6, 0.7, 10.0, 0.7),
    Population("rare outages, flights differ", 2, 1.0, 3.0, 1.0),
)


def missed(flight: Flight) -> float:
    """Returns the share of probes that were lost or late."""
    delay_ms = flight.values("delay", "uplink")
    assert delay_ms is not None
    return float(np.mean(~(delay_ms <= 300)))


def assessed(one: Population, count: int) -> float:
    """Returns the share of repetitions in which the interval of `assess` contains the population's mean."""
    random = np.random.default_rng(1)
    truth = 1 - float(np.mean([missed(one.flight(random, 0.5)) for _ in range(4000)]))
    inside = 0
    for _ in range(RUNS):
        runs = []
        for _ in range(count):
            delay_ms = one.flight(random, 0.1).columns[0].values
            met = np.isfinite(delay_ms).reshape(-1, 10).sum(axis=1)
            runs.append(Seen(RunShare.of_bins(np.full(FLIGHT_S, 10), met, 1.0), 1e6, 30.0, 90.0))
        judged = judge_passes(CONTROL, [runs], count, apart=False)
        inside += judged.low <= truth <= judged.high
    return inside / RUNS


def values_of(flight: Flight) -> tuple[float, float, float]:
    """Returns the share of misses, and the median and p99.9 of the one-way delay."""
    delay_ms = flight.values("delay", "uplink")
    assert delay_ms is not None
    known = delay_ms[np.isfinite(delay_ms)]
    return missed(flight), float(np.median(known)), float(np.quantile(known, 0.999))


def fitted(one: Population, count: int) -> Values:
    """Returns, for each value, how often the interval of drawn flights contains one more flight."""
    random = np.random.default_rng(2)
    inside = np.zeros(3)
    for _ in range(RUNS):
        link = fit_link([one.flight(random) for _ in range(count)])
        drawn = np.array([values_of(draw_flight(link, FLIGHT_S, random)) for _ in range(DRAWS)])
        low, _, high = range_of_next(drawn)
        value = np.array(values_of(one.flight(random)))
        # A probe of 1500 is the least that a share can differ by.
        inside += (low - 1e-3 * low - 1 / 1500 <= value) & (value <= high + 1e-3 * high + 1 / 1500)
    return inside / RUNS


def rows() -> Iterator[tuple[str, float]]:
    """Yields the name and the coverage of each check."""
    for one in POPULATIONS:
        for count in (1, 3, 5, 10):
            yield f"assess, {count:2} flights, {one.name}", assessed(one, count)
    for one in POPULATIONS[1:]:
        for count in (1, 4):
            names = ("late or lost", "median", "p99.9")
            for name, share in zip(names, fitted(one, count), strict=True):
                yield f"fit, {count} flights, {one.name}: {name}", float(share)


def main() -> int:
    """Prints one row per check; returns the exit status."""
    worst = 1.0
    for name, share in rows():
        worst = min(worst, share)
        print(f"{name:64} {100 * share:5.0f} %{'' if share >= MIN_COVERED else '   LOW'}", flush=True)
    return 0 if worst >= MIN_COVERED else 1


if __name__ == "__main__":
    sys.exit(main())

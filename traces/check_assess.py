"""Coverage of the intervals of `assess` over measured sets.

Run it as `python traces/check_assess.py [SET ...]`. The flights of a set, of seven at least, are taken as its
population: of n of them, drawn with replacement, the interval should hold the mean of all in 95 of 100 cases. What a
flow meets is counted without transports: control within 300 ms by round trips, a video by seconds that carry 10 Mbit/s,
goodput by the rate up to what `assess` offers, for targets of a quarter, a half and all of the set's mean rate.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from build_traces import MissingMeasurementsError, measurement_folder
from fit_series import VIDEO_MBPS
from measured_flights import SETS

from skybraid.assess import Wanted, parse_wanted
from skybraid.assess.judging import Seen, judge_passes
from skybraid.model.episodes import RunShare
from skybraid.traces.flights import DIRECTIONS, Flight

COUNTS = (1, 2, 3, 5, 8)
DRAWS = 200
MIN_FLIGHTS = 7
LATE_MS = 300.0
WANTED = {
    "control": parse_wanted("control: 99% within 300ms"),
    "video": parse_wanted("video: 95% of frames within 300ms"),
}
TARGETS = (0.25, 0.5, 1.0)
"""Required goodput, as parts of the mean rate of all flights."""


class Result(NamedTuple):
    """Result of a flow in a flight.

    Attributes:
        seen: as `assess` has it of a run.
        value: share, or bit/s.
        weight: of the flight in the mean of all.
    """

    seen: Seen
    value: float
    weight: float


def results(flight: Flight) -> dict[str, Result]:
    """Returns the result of each flow, by name and direction."""
    found = {}
    ways = [flight.values("delay", direction) for direction in DIRECTIONS]
    if ways[0] is not None and ways[1] is not None:
        seconds = max(int(flight.length_s), 1)
        places = np.minimum(flight.times_s.astype(int), seconds - 1)
        in_time = ways[0] + ways[1] <= LATE_MS
        trials = np.bincount(places, minlength=seconds)
        met = np.bincount(places, weights=in_time, minlength=seconds)
        found["control"] = of_share(trials, met)
    for direction in DIRECTIONS:
        rates = flight.grid("rate", direction, 1.0)
        if rates is None:
            continue
        trials = np.full(len(rates), 10)
        found[f"video {direction}"] = of_share(trials, trials * (rates >= VIDEO_MBPS))
    return found


def goodputs(flights: Sequence[Flight]) -> Iterator[tuple[str, Wanted, list[Result]]]:
    """Yields the name, the requirement and the result of each flight for each target, where rates were measured."""
    for direction in DIRECTIONS:
        grids = [flight.grid("rate", direction, 1.0) for flight in flights]
        rates = [rate for rate in grids if rate is not None]
        if len(rates) < len(flights):
            continue
        mean_mbps = float(np.mean([rate.mean() for rate in rates]))
        for part in TARGETS:
            wanted = parse_wanted(f"data: {part * mean_mbps:.6f}Mbit/s")
            carried = [1e6 * float(np.minimum(rate, wanted.rate_mbps).mean()) for rate in rates]
            own = [Result(Seen(None, bps, 30.0, 90.0), bps, 1.0) for bps in carried]
            yield f"goodput {direction} {wanted.target * 1e-6:.3g}", wanted, own


def of_share(trials: npt.NDArray[np.int64], met: npt.NDArray[np.float64]) -> Result:
    """Returns a share, counted in seconds."""
    share = RunShare.of_bins(trials, met.astype(int), 1.0)
    return Result(Seen(share, 1e6, 30.0, 90.0), float(met.sum() / trials.sum()), float(trials.sum()))


def covered(wanted: Wanted, own: Sequence[Result], count: int) -> float:
    """Returns the share of draws of `count` flights whose interval contains the mean of all flights."""
    random = np.random.default_rng(count)
    truth = float(np.average([one.value for one in own], weights=[one.weight for one in own]))
    inside = 0
    for _ in range(DRAWS):
        drawn = [own[at].seen for at in random.integers(0, len(own), count)]
        judged = judge_passes(wanted, [drawn], count, apart=False)
        inside += judged.low <= truth <= judged.high
    return inside / DRAWS


def main(arguments: Sequence[str]) -> int:
    """Prints the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description="Hold the intervals of `assess` against measured sets.")
    parser.add_argument("set", nargs="*", choices=[[], *SETS], help="Sets (default: all).")
    total: dict[tuple[str, int], list[float]] = {}
    try:
        folder = measurement_folder()
        for name in parser.parse_args(arguments).set or SETS:
            flights = SETS[name](folder)
            if len(flights) < MIN_FLIGHTS:
                continue
            found = [results(flight) for flight in flights]
            flows = [(flow, WANTED[flow.partition(" ")[0]], [one[flow] for one in found]) for flow in found[0]]
            for flow, wanted, own in [*flows, *goodputs(flights)]:
                shares = [covered(wanted, own, count) for count in COUNTS]
                cells = ", ".join(f"{100 * share:.0f}" for share in shares)
                counts, values = ", ".join(map(str, COUNTS)), [one.value for one in own]
                ends = f"{min(values):.3g} to {max(values):.3g}"
                print(f"{name:22} {flow:24} {len(own):3} flights, {ends}; of {counts}: {cells} %", flush=True)
                for count, share in zip(COUNTS, shares, strict=True):
                    total.setdefault((flow.partition(" ")[0], count), []).append(share)
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for (flow, count), shares in sorted(total.items()):
        mean, worst = 100 * np.mean(shares), 100 * min(shares)
        print(f"{flow}, {count} flights: {mean:.1f} % of {len(shares)} sets, the worst {worst:.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Hold flights drawn from `skybraid fit` against pieces that it has not seen, by numbers that need no transport.

Run it as `python traces/check_draws.py [SET ...]`. As in `check_fit.py`, every other flight predicts the others, and a
half the other one. Of each piece of five minutes: correlation after 1, 5 and 15 s, standard deviation over mean, and
time that carries 10 Mbit/s, of rates; median, 99.9 % and time over 300 ms, of round trips. A value is covered if it is
within the interval that has the next drawn flight in 95 of 100 cases.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from build_traces import MissingMeasurementsError, measurement_folder
from check_fit import RUN_S, folds_of
from fit_series import VIDEO_MBPS, Values
from measured_flights import SETS

from skybraid.fit import fit_link
from skybraid.fit.draw import draw_flight
from skybraid.fit.goodness import range_of_next
from skybraid.fit.link import windows
from skybraid.fit.process import autocorrelation, normal_scores
from skybraid.traces.flights import DIRECTIONS, Flight

DRAWS = 100
LAGS_S = (1, 5, 15)
LATE_MS = 300.0


def numbers(flight: Flight) -> dict[str, float]:
    """What a flight says of its rates and of its round trips."""
    found: dict[str, float] = {}
    for direction in DIRECTIONS:
        rates = flight.grid("rate", direction, 1.0)
        if rates is None:
            continue
        memory = autocorrelation([normal_scores(rates)], list(LAGS_S))
        found |= {f"correlation after {lag_s} s": float(one) for lag_s, one in zip(LAGS_S, memory, strict=True)}
        found["variation"] = float(np.nanstd(rates) / max(float(np.nanmean(rates)), 1e-9))
        found["video, % of time"] = 100 * float(np.mean(rates >= VIDEO_MBPS))
    ways = [flight.values("delay", direction) for direction in DIRECTIONS]
    if ways[0] is not None and ways[1] is not None:
        rtts_ms = ways[0] + ways[1]
        known: Values = rtts_ms[np.isfinite(rtts_ms)]
        if known.size:
            for q in (0.5, 0.999):
                found[f"round trip p{100 * q:g}, ms"] = float(np.quantile(known, q))
        found["late or lost, %"] = 100 * float(np.mean(~(rtts_ms <= LATE_MS)))
    return found


def check(name: str, flights: Sequence[Flight]) -> dict[str, tuple[int, int]]:
    """Print a row for each number; returns how many held-back values are covered, and of how many."""
    inside: dict[str, list[bool]] = {}
    both: dict[str, tuple[list[float], list[float]]] = {}
    folds = folds_of(flights)
    if len(folds) == 1:
        # Each half predicts the other.
        folds += [fold[::-1] for fold in folds]
    for seen, held in folds:
        pieces = windows(held, RUN_S)
        link, random = fit_link(seen), np.random.default_rng(1)
        length_s = min(RUN_S, float(np.median([one.length_s for one in pieces])))
        drawn = [numbers(draw_flight(link, length_s, random)) for _ in range(DRAWS)]
        measured = [numbers(one) for one in pieces]
        for key in {key for one in measured for key in one}:
            made = [one[key] for one in drawn if key in one and np.isfinite(one[key])]
            known = [one[key] for one in measured if key in one and np.isfinite(one[key])]
            if not made:
                continue
            low, _, high = range_of_next(made)
            # A round trip is of two halves that were rounded.
            slack = 1e-3 * abs(high) + 1e-9
            inside.setdefault(key, []).extend(bool(low - slack <= one <= high + slack) for one in known)
            kept = both.setdefault(key, ([], []))
            kept[0].extend(known)
            kept[1].extend(made)
    for key in sorted(inside):
        measured_one, drawn_one = (float(np.median(own)) for own in both[key])
        print(
            f"{name:24} {key:22} {sum(inside[key]):3} of {len(inside[key]):3}   "
            f"measured {measured_one:9.3f}   drawn {drawn_one:9.3f}"
        )
    return {key: (sum(own), len(own)) for key, own in inside.items()}


def main(arguments: Sequence[str]) -> int:
    """Print the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description="Hold drawn flights against what the fit has not seen.")
    parser.add_argument("set", nargs="*", choices=[[], *SETS], help="Sets (default: all).")
    read = parser.parse_args(arguments)
    total: dict[str, list[tuple[int, int]]] = {}
    try:
        folder = measurement_folder()
        for name in read.set or SETS:
            for key, counts in check(name, SETS[name](folder)).items():
                total.setdefault(key, []).append(counts)
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for key in sorted(total):
        inside, count = (sum(own[place] for own in total[key]) for place in (0, 1))
        print(f"{'all':24} {key:22} {inside:3} of {count:3}   {100 * inside / count:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

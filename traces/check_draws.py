"""Compares flights drawn from `skybraid fit` with held-out pieces, without transports.

Run it as `python traces/check_draws.py [SET ...]`. As in `check_fit.py`, every other flight predicts the others, and a
half the other one; with `--left-out` all flights but one predict that one, with `--first 20` the first 20 s of one
flight predict ten pieces of others, for four flights of each set. Of each piece of five minutes: correlation after 1, 5
and 15 s, mean, standard deviation over mean, and time that carries 10 Mbit/s, of rates; median, 99.9 % and time over
300 ms, of round trips; outages of a second and more per hour, and the longest one. A value is covered if it is within
the interval that has the next drawn flight in 95 of 100 cases.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
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
DOWN_MBPS, MIN_DOWN_S = 0.5, 1.0
MIN_COVERED = 0.8
STARTS, PIECES = 4, 10
Fold = tuple[Sequence[Flight], Sequence[Flight]]
"""What is fitted, and what it predicts."""


def numbers(flight: Flight) -> dict[str, float]:
    """Returns the statistics of a flight's rates and round trips."""
    found: dict[str, float] = {}
    for direction in DIRECTIONS:
        rates = flight.grid("rate", direction, 1.0)
        if rates is None:
            continue
        memory = autocorrelation([normal_scores(rates)], list(LAGS_S))
        found |= {f"correlation after {lag_s} s": float(one) for lag_s, one in zip(LAGS_S, memory, strict=True)}
        found["mean, Mbit/s"] = float(np.nanmean(rates))
        found |= outages(~(rates >= DOWN_MBPS), np.arange(len(rates), dtype=np.float64), float(len(rates)))
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
        found |= outages(np.isinf(rtts_ms), flight.times_s, flight.length_s)
    return found


def outages(is_down: npt.NDArray[np.bool_], times_s: Values, length_s: float) -> dict[str, float]:
    """Returns the number of outages of a second or more, and the longest one in s."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_down, [False]]).astype(int)))
    lengths_s = np.append(times_s, length_s)[edges[1::2]] - times_s[edges[::2]]
    lengths_s = lengths_s[lengths_s >= MIN_DOWN_S - 1e-9]
    return {
        "outages per h": len(lengths_s) * 3600 / length_s,
        "longest outage, s": float(lengths_s.max(initial=0.0)),
    }


def all_but_one(flights: Sequence[Flight]) -> Iterator[Fold]:
    """Yields each flight, held out from a fit to the others."""
    for at, held in enumerate(flights):
        yield [one for other, one in enumerate(flights) if other != at], [held]


def first_seconds(flights: Sequence[Flight], first_s: float) -> Iterator[Fold]:
    """Yields the beginning of a flight, and pieces of others."""
    random = np.random.default_rng(1)
    for at in random.permutation(len(flights))[:STARTS]:
        if flights[at].length_s < first_s:
            continue
        others = windows([one for other, one in enumerate(flights) if other != at], RUN_S)
        chosen = random.permutation(len(others))[:PIECES]
        yield [flights[at].part(0, first_s)], [others[place] for place in chosen]


def halves(flights: Sequence[Flight]) -> list[Fold]:
    """Yields every other flight and the rest, in both roles; halves of a single flight."""
    folds = folds_of(flights)
    return folds if len(folds) > 1 else folds + [fold[::-1] for fold in folds]


def check(name: str, folds: Sequence[Fold]) -> dict[str, tuple[int, int]]:
    """Prints one row per statistic; returns the numbers of covered and of all held-out values."""
    inside: dict[str, list[bool]] = {}
    both: dict[str, tuple[list[float], list[float]]] = {}
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
            f"{'   LOW' if np.mean(inside[key]) < MIN_COVERED else ''}",
            flush=True,
        )
    return {key: (sum(own), len(own)) for key, own in inside.items()}


def main(arguments: Sequence[str]) -> int:
    """Prints the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description="Hold drawn flights against what the fit has not seen.")
    parser.add_argument("set", nargs="*", choices=[[], *SETS], help="Sets (default: all).")
    parser.add_argument("--left-out", action="store_true", help="Fit to all flights but one; needs three.")
    parser.add_argument("--first", type=float, metavar="S", help="Fit to the first S seconds of one flight.")
    read = parser.parse_args(arguments)

    def folds(flights: Sequence[Flight]) -> list[Fold]:
        if read.first is not None:
            return list(first_seconds(flights, read.first)) if len(flights) > 2 else []
        if read.left_out:
            return list(all_but_one(flights)) if len(flights) > 2 else []
        return halves(flights)

    total: dict[str, list[tuple[int, int]]] = {}
    try:
        folder = measurement_folder()
        for name in read.set or SETS:
            for key, counts in check(name, folds(SETS[name](folder))).items():
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

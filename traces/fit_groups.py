"""Fits the dependence between the networks of one car, and prints the tables for a scenario.

Run it as `python traces/fit_groups.py`. Starlink and three carriers were measured at the same second (Hu et al.,
CoNEXT 2023). Three layers, each from what the one before leaves over:

- `flights`: of the windows of ten minutes. Where one carrier is bad for long, so are the others.
- `slow`: within the windows, which changes over tens of seconds.
- common outages: the time in which two and three have no service, beyond what the engine makes of the first two.

Networks depend on one another where they are bad, over empty country, and hardly elsewhere: a correlation over all
windows and seconds misses the times for which a second carrier is there. So the first two are those with which three
carriers are below the rate of a video together for as long as measured: `flights` if windows were independent within,
`slow` with the windows' own shares of such seconds. The time of `slow` is that of the correlation between the carriers.
"""

import math
import sys
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from build_traces import MissingMeasurementsError, measurement_folder
from engine_series import fly
from fit_presets import MIN_DRIVE_S, PRESETS
from fit_series import VIDEO_MBPS, Values, carried, column, flights_of, runs_of, time_scales

from skybraid.fit.process import normal_scores

CARRIERS = ("att", "tmobile", "verizon")
NETWORKS = (*CARRIERS, "starlink")
NO_SERVICE_MBPS = 0.1
LAGS_S = (2, 3, 5, 7, 10, 15, 20, 30, 40)
PATHS = ("a", "b", "c")
RUNS = 300
RUN_S = 600
FACTORS, FACTOR_WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
FACTOR_WEIGHTS /= FACTOR_WEIGHTS.sum()
"""Values of a common normal factor with their weights."""


class Correlation(NamedTuple):
    """Rank correlation of flights and of slow parts, and its time in s."""

    flights: float
    slow: float
    time_s: float

    def toml(self, paths: Sequence[str] = PATHS) -> str:
        """Formats the table of a scenario."""
        return (
            f"[[correlation]]\npaths = [{named(paths)}]\n"
            f'flights = {self.flights:.2f}\nslow = {self.slow:.2f}\ntime = "{self.time_s:.2g}s"\n'
        )


def named(paths: Sequence[str]) -> str:
    """Formats names in quotation marks."""
    return ", ".join(f'"{path}"' for path in paths)


def paired_windows(folder: Path) -> list[Values]:
    """Returns rates in Mbit/s of all networks in windows of at most ten minutes, shape (networks, seconds)."""
    text = (folder / "conext23_paired/downlink.csv").read_text()
    times = column(text, "time [s]")
    values = np.array([column(text, f"{name} [Mbit/s]") for name in NETWORKS])
    drives = np.split(np.arange(len(times)), np.flatnonzero(np.diff(times) > 2) + 1)
    return [values[:, rows] for drive in drives for rows in flights_of(drive, MIN_DRIVE_S)]


def rank_correlation(windows: Sequence[Values], one: int, other: int) -> float:
    """Returns the rank correlation of two networks' windows, ordered like flights (Spearman)."""
    ranks = [np.argsort(np.argsort([carried(window[network]) for window in windows])) for network in (one, other)]
    return float(np.corrcoef(ranks)[0, 1])


def correlation(windows: Sequence[Values]) -> Correlation:
    """Returns the correlation of the carriers, equal for each pair."""
    seconds = np.array([window.shape[1] for window in windows])
    below = np.array([(window[: len(CARRIERS)] < VIDEO_MBPS).mean(axis=1) for window in windows])
    together = float(np.average(below.prod(axis=1), weights=seconds))
    worst_first = np.argsort([carried(own) for window in windows for own in window[: len(CARRIERS)]])
    shares, weights = below.ravel()[worst_first], np.repeat(seconds, len(CARRIERS))[worst_first]
    ends = np.cumsum(weights) / weights.sum()

    def of_flights(load_squared: float) -> float:
        known = conditional(ends, load_squared)
        return float(FACTOR_WEIGHTS @ (shares @ np.diff(known, axis=0, prepend=0.0)) ** len(CARRIERS))

    def of_seconds(load_squared: float) -> float:
        known = np.array([conditional(own, load_squared).prod(axis=0) for own in below])
        return float(np.average(known @ FACTOR_WEIGHTS, weights=seconds))

    flights = strength(of_flights, together)
    slow = strength(of_seconds, shares_below(windows, VIDEO_MBPS)[2])
    scales = time_scales([own for window in windows for own in window[: len(CARRIERS)]], 1.0, 120.0)
    return Correlation(ranks_of(flights), ranks_of(min(slow / scales.slow_share, 1.0)), common_time(windows))


def conditional(probabilities: Values, load_squared: float) -> Values:
    """Returns probabilities given each value of a common normal factor, shape (probabilities, factors)."""
    inverse = NormalDist().inv_cdf
    bounds = np.array([inverse(min(max(float(one), 1e-9), 1 - 1e-9)) for one in probabilities])
    scores = (bounds[:, None] - math.sqrt(load_squared) * FACTORS) / math.sqrt(1 - load_squared)
    return np.vectorize(NormalDist().cdf)(scores)


def strength(share: Callable[[float], float], measured: float) -> float:
    """Returns the correlation of normal scores at which an increasing share equals the measured one."""
    low, high = 0.0, 0.99
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) < measured else (low, middle)
    return low


def ranks_of(correlation: float) -> float:
    """Returns the rank correlation of normal variables (Pearson 1907)."""
    return 6 / math.pi * math.asin(correlation / 2)


def common_time(windows: Sequence[Values]) -> float:
    """Returns the decay time in s of the correlation between carriers within windows, by least squares."""
    products, squares = np.zeros(len(LAGS_S)), np.zeros(len(LAGS_S))
    for window in windows:
        scores = np.array([normal_scores(own) for own in window[: len(CARRIERS)]])
        for place, lag in enumerate(LAGS_S):
            later, earlier = scores[:, lag:], scores[:, : scores.shape[1] - lag]
            for one, other in combinations(range(len(CARRIERS)), 2):
                products[place] += (earlier[one] @ later[other] + earlier[other] @ later[one]) / 2
                squares[place] += np.sqrt((scores[one] @ scores[one]) * (scores[other] @ scores[other])) * (
                    later.shape[1] / scores.shape[1]
                )
    lags_s, found = np.array(LAGS_S, dtype=np.float64), products / squares
    times_s = np.geomspace(5, 300, 100)
    decays = np.exp(-lags_s / times_s[:, None])
    sizes = (decays @ found) / (decays**2).sum(axis=1)
    return float(times_s[int(np.argmin(((found - sizes[:, None] * decays) ** 2).sum(axis=1)))])


def shares_below(series: Sequence[Values], mbps: float) -> tuple[float, float, float]:
    """Returns the shares of time in which one, two and three carriers are below a rate."""
    below = np.concatenate([own[: len(CARRIERS)] < mbps for own in series], axis=1)
    pairs = [float(np.mean(below[one] & below[other])) for one, other in combinations(range(len(CARRIERS)), 2)]
    return float(below.mean()), float(np.mean(pairs)), float(below.all(axis=0).mean())


def common_outages(windows: Sequence[Values], modelled: Sequence[Values], paths: Sequence[str] = PATHS) -> str:
    """Returns the table of outages common to the carriers, beyond those that follow from the correlations.

    Of a common process that is down for a share `c` of the time, in whose outages each carrier takes part with the
    probability `q`, two carriers are down together for `c q^2` and three for `c q^3`.
    """
    measured, made = shares_below(windows, NO_SERVICE_MBPS), shares_below(modelled, NO_SERVICE_MBPS)
    two, three = (max(measured[place] - made[place], 0.0) for place in (1, 2))
    gone = [own[: len(CARRIERS)] < NO_SERVICE_MBPS for own in windows]
    pairs = combinations(range(len(CARRIERS)), 2)
    lengths = [length for one, other in pairs for own in gone for length in runs_of(own[one] & own[other])]
    if two == 0 or three == 0:
        return ""
    part = min(three / two, 1.0)
    share = two / part**2
    mean_s = float(np.mean(lengths))
    return (
        f'[[outages]]\npaths = [{named(paths)}]\nup = "{mean_s * (1 - share) / share:.3g}s"\n'
        f'down = {{ mean = "{mean_s:.2g}s" }}\n'
        f'together = "always"\ntakes_part = [{", ".join([f"{part:.2g}"] * len(paths))}]\n'
    )


def correlation_within(windows: Sequence[Values]) -> float:
    """Returns the mean correlation of two carriers' normal scores within windows, weighted by length."""
    found = []
    for window in windows:
        scores = np.corrcoef([normal_scores(own) for own in window[: len(CARRIERS)]])
        found.append(float(scores[np.triu_indices(len(CARRIERS), 1)].mean()))
    return float(np.average(found, weights=[window.shape[1] for window in windows]))


def with_interval(windows: Sequence[Values], one: int, other: int) -> str:
    """Returns a rank correlation with its 90 % interval by resampled windows."""
    random = np.random.default_rng(1)
    drawn = [
        rank_correlation([windows[at] for at in random.integers(0, len(windows), len(windows))], one, other)
        for _ in range(1000)
    ]
    low, high = np.quantile(drawn, [0.05, 0.95])
    return f"{rank_correlation(windows, one, other):5.2f} [{low:.2f}, {high:.2f}]"


def main() -> int:
    """Prints the tables; returns the exit status."""
    try:
        windows = paired_windows(measurement_folder())
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for one, other in combinations(range(len(NETWORKS)), 2):
        names = f"{NETWORKS[one]} and {NETWORKS[other]}"
        print(f"# rank correlation of windows, {names}: {with_interval(windows, one, other)}")
    worst_first = sorted(windows, key=lambda window: sum(carried(own) for own in window[: len(CARRIERS)]))
    third = len(windows) // 3
    worst, others = (correlation_within(own) for own in (worst_first[:third], worst_first[third:]))
    print(
        f"# correlation within the worst {third} of {len(windows)} windows {worst:.2f}, within the others {others:.2f}"
    )
    found = correlation(windows)
    preset = (PRESETS / "lte-car.toml").read_text()
    modelled = [run.down for run in fly(dict.fromkeys(PATHS, preset), RUN_S, range(1, RUNS + 1), found.toml())]
    for mbps in (NO_SERVICE_MBPS, 0.5, 1.0, 2.0, 10.0):
        measured, made = (shares_below(series, mbps) for series in (windows, modelled))
        print(
            f"# below {mbps:4g} Mbit/s: one {100 * measured[0]:.2f} %, two {100 * measured[1]:.3f} %, three "
            f"{100 * measured[2]:.3f} %; by the first two layers {100 * made[0]:.2f} %, {100 * made[1]:.3f} %, "
            f"{100 * made[2]:.3f} %"
        )
    print(found.toml() + common_outages(windows, modelled))
    return 0


if __name__ == "__main__":
    sys.exit(main())

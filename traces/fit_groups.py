"""Fit how the networks of one car depend on one another, and print the tables for a scenario.

Run it as `python traces/fit_groups.py`. Starlink and three carriers were measured at the same second (Hu et al.,
CoNEXT 2023). Three layers, each from what the one before leaves over:

- `flights`: the rank correlation of the windows of ten minutes. Where one carrier is bad for long, so are the others.
- `slow`: the correlation of the normal scores within the windows, which changes over tens of seconds.
- common outages: the time in which all three have less than 1 Mbit/s, beyond what the engine makes of the first two.
"""

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from build_traces import MissingMeasurementsError, measurement_folder
from engine_series import fly
from fit_presets import MIN_DRIVE_S, PRESETS
from fit_series import Values, carried, column, flights_of, normal_scores, runs_of, time_scales

CARRIERS = ("att", "tmobile", "verizon")
NETWORKS = (*CARRIERS, "starlink")
DOWN_MBPS = 1.0
LAGS_S = (2, 3, 5, 7, 10, 15, 20, 30, 40)
PATHS = ("a", "b", "c")
RUNS = 300
RUN_S = 600


class Correlation(NamedTuple):
    """Rank correlation of flights, correlation of slow parts, and its time in s."""

    flights: float
    slow: float
    time_s: float

    def toml(self, paths: Sequence[str] = PATHS) -> str:
        """The table of a scenario."""
        return (
            f"[[correlation]]\npaths = [{named(paths)}]\n"
            f'flights = {self.flights:.2f}\nslow = {self.slow:.2f}\ntime = "{self.time_s:.2g}s"\n'
        )


def named(paths: Sequence[str]) -> str:
    """Names in quotation marks."""
    return ", ".join(f'"{path}"' for path in paths)


def paired_windows(folder: Path) -> list[Values]:
    """Rates in Mbit/s of all networks in windows of ten minutes or less, shape (networks, seconds)."""
    text = (folder / "conext23_paired/downlink.csv").read_text()
    times = column(text, "time [s]")
    values = np.array([column(text, f"{name} [Mbit/s]") for name in NETWORKS])
    drives = np.split(np.arange(len(times)), np.flatnonzero(np.diff(times) > 2) + 1)
    return [values[:, rows] for drive in drives for rows in flights_of(drive, MIN_DRIVE_S)]


def rank_correlation(windows: Sequence[Values], one: int, other: int) -> float:
    """Rank correlation of two networks' windows, ordered as flights are (Spearman)."""
    ranks = [np.argsort(np.argsort([carried(window[network]) for window in windows])) for network in (one, other)]
    return float(np.corrcoef(ranks)[0, 1])


def correlation(windows: Sequence[Values]) -> Correlation:
    """The correlation of the carriers; each pair has the same."""
    pairs = list(combinations(range(len(CARRIERS)), 2))
    flights = float(np.mean([rank_correlation(windows, *pair) for pair in pairs]))
    products, squares = np.zeros(len(LAGS_S)), np.zeros(len(LAGS_S))
    for window in windows:
        scores = np.array([normal_scores(own) for own in window[: len(CARRIERS)]])
        for place, lag in enumerate(LAGS_S):
            later, earlier = scores[:, lag:], scores[:, : scores.shape[1] - lag]
            for one, other in pairs:
                products[place] += (earlier[one] @ later[other] + earlier[other] @ later[one]) / 2
                squares[place] += np.sqrt((scores[one] @ scores[one]) * (scores[other] @ scores[other])) * (
                    later.shape[1] / scores.shape[1]
                )
    lags_s, found = np.array(LAGS_S, dtype=np.float64), products / squares
    times_s = np.geomspace(5, 300, 100)
    decays = np.exp(-lags_s / times_s[:, None])
    sizes = (decays @ found) / (decays**2).sum(axis=1)
    best = int(np.argmin(((found - sizes[:, None] * decays) ** 2).sum(axis=1)))
    scales = time_scales([own for window in windows for own in window[: len(CARRIERS)]], 1.0, 120.0)
    return Correlation(flights, float(sizes[best]) / scales.slow_share, float(times_s[best]))


def shares_below(series: Sequence[Values], mbps: float) -> tuple[float, float, float]:
    """Shares of time in which a carrier, two of them and three of them are below a rate."""
    below = np.concatenate([own[: len(CARRIERS)] < mbps for own in series], axis=1)
    pairs = [float(np.mean(below[one] & below[other])) for one, other in combinations(range(len(CARRIERS)), 2)]
    return float(below.mean()), float(np.mean(pairs)), float(below.all(axis=0).mean())


def common_outages(windows: Sequence[Values], modelled: Sequence[Values], paths: Sequence[str] = PATHS) -> str:
    """The table of the outages that all carriers share, beyond those that correlated rates make."""
    missing = shares_below(windows, DOWN_MBPS)[2] - shares_below(modelled, DOWN_MBPS)[2]
    lengths = [length for own in windows for length in runs_of((own[: len(CARRIERS)] < DOWN_MBPS).all(axis=0))]
    if missing <= 0 or not lengths:
        return ""
    mean_s = float(np.mean(lengths))
    return (
        f"[[outages]]\npaths = [{named(paths)}]\n"
        f'up = "{mean_s * (1 - missing) / missing:.3g}s"\ndown = {{ mean = "{mean_s:.2g}s" }}\ntogether = "always"\n'
    )


def with_interval(windows: Sequence[Values], one: int, other: int) -> str:
    """A rank correlation with the interval of 90 % by windows drawn anew."""
    random = np.random.default_rng(1)
    drawn = [
        rank_correlation([windows[at] for at in random.integers(0, len(windows), len(windows))], one, other)
        for _ in range(1000)
    ]
    low, high = np.quantile(drawn, [0.05, 0.95])
    return f"{rank_correlation(windows, one, other):5.2f} [{low:.2f}, {high:.2f}]"


def main() -> int:
    """Print the tables; returns the exit status."""
    try:
        windows = paired_windows(measurement_folder())
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for one, other in combinations(range(len(NETWORKS)), 2):
        names = f"{NETWORKS[one]} and {NETWORKS[other]}"
        print(f"# rank correlation of windows, {names}: {with_interval(windows, one, other)}")
    found = correlation(windows)
    preset = (PRESETS / "lte-car.toml").read_text()
    modelled = [run.down for run in fly(dict.fromkeys(PATHS, preset), RUN_S, range(1, RUNS + 1), found.toml())]
    for mbps in (0.5, DOWN_MBPS, 2.0, 10.0):
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

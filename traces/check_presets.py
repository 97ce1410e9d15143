"""Hold the fits of `fit_presets.py` against flights that they have not seen.

Run it as `python traces/check_presets.py`. Each family is fitted to every second drive (of the drone's
flights, every second window of ten minutes) and predicts the windows of the others. A held-back value is
covered if it lies within the central 90 % of the family's runs; `ratio` is the measured median over
the predicted one. Outages are runs of at least a second below 0.5 Mbit/s, or without a reply.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from build_traces import MissingMeasurementsError, measurement_folder
from fit_presets import (
    FLIGHT_S,
    Probes,
    Scales,
    Values,
    carried,
    column,
    conext,
    flights_of,
    pam,
    stalls,
    time_scales,
)

RUNS = 300
SPREAD = 1.1
Measure = Callable[[Values], float]


def autoregressive(generator: np.random.Generator, count: int, steps: float) -> Values:
    """A standard normal autoregressive process with this correlation time, in steps."""
    keep = np.exp(-1 / steps) if steps > 0 else 0.0
    noise = generator.standard_normal(count)
    values = np.empty(count)
    values[0] = noise[0]
    for index in range(1, count):
        values[index] = keep * values[index - 1] + np.sqrt(1 - keep**2) * noise[index]
    return values


def process(generator: np.random.Generator, flight: Values, scales: Scales, count: int, step_s: float) -> Values:
    """A run of the process that is fitted to a flight."""
    slow = autoregressive(generator, count, scales.slow / step_s)
    fast = autoregressive(generator, count, scales.fast / step_s)
    score = np.sqrt(scales.slow_share) * slow + np.sqrt(1 - scales.slow_share) * fast
    ordered = np.sort(flight)
    # The ranks of the scores among many are their probabilities.
    edges = np.quantile(generator.standard_normal(200_000), np.linspace(0, 1, 1001))
    place = np.interp(score, edges, np.linspace(0, 1, 1001))
    values: Values = np.quantile(ordered, place)
    return values


def bad_runs_per_hour(values: Values) -> float:
    """Runs of seconds below 0.5 Mbit/s, per hour."""
    bad = np.concatenate(([0], (values < 0.5).astype(int)))
    return float(np.sum(np.diff(bad) == 1)) * 3600 / len(values)


RATES: dict[str, Measure] = {
    "video seconds carried": lambda values: carried(values) - 1e-6 * float(values.mean()),
    "mean of 5 min, Mbit/s": lambda values: float(values[:300].mean()),
    "capacity variation": lambda values: float(values.std() / max(values.mean(), 1e-9)),
    "outages per hour": bad_runs_per_hour,
}


def report(family: str, measure: str, predicted: Sequence[float], measured: Sequence[float]) -> None:
    """Print a row: how many held-back values are covered, and the ratio of the medians."""
    low, high = np.quantile(predicted, [0.05, 0.95])
    covered = float(np.mean([(low - 1e-9 <= value <= high + 1e-9) for value in measured]))
    middle = float(np.median(predicted))
    ratio = float(np.median(measured)) / middle if middle > 0 else float("nan")
    print(
        f"{family:16} {measure:24} {100 * covered:5.0f} % of {len(measured):3}   "
        f"median {np.median(measured):8.3f}   predicted {middle:8.3f} [{low:.3f}, {high:.3f}]   "
        f"ratio {ratio:.2f}"
    )


def check_rates(family: str, fitted: Sequence[Values], held: Sequence[Values]) -> None:
    """Predict the held-back windows of a family from the fitted ones."""
    generator = np.random.default_rng(1)
    scales = time_scales(fitted, 1.0, 120.0)
    runs = []
    for _ in range(RUNS):
        flight = fitted[int(generator.integers(len(fitted)))]
        factor = float(np.exp(np.log(SPREAD) * generator.standard_normal()))
        runs.append(factor * process(generator, flight, scales, FLIGHT_S, 1.0))
    for name, measure in RATES.items():
        report(family, name, [measure(run) for run in runs], [measure(own) for own in held])


def in_time(rtts: Values) -> float:
    """Share of probes whose reply came within 300 ms."""
    return float(np.mean(np.nan_to_num(rtts, nan=np.inf) <= 300))


DELAYS: dict[str, Measure] = {
    "control within 300 ms": in_time,
    "round trip p99.9, ms": lambda rtts: float(np.nanquantile(rtts, 0.999)),
    "loss, %": lambda rtts: 100 * float(np.mean(np.isnan(rtts))),
}


def delay_run(generator: np.random.Generator, train: Sequence[Probes], scales: Scales) -> Values:
    """A run of jitter, stalls and loss fitted to one group of probes."""
    group = train[int(generator.integers(len(train)))]
    lengths, inside = stalls(group)
    usual = float(np.nanmedian(group.rtts))
    calm = np.where(np.isnan(group.rtts) | inside, usual, group.rtts)
    count, step = len(calm), 0.2
    rtts = process(generator, calm, scales, count, step)
    pooled = [length for other in train for length in stalls(other)[0]]
    number = generator.poisson(len(lengths) + 0.5)
    for start in generator.integers(0, count, number):
        length = float(generator.choice(pooled))
        for offset in range(int(length / (step * 1e3)) + 1):
            if start + offset < count:
                waits = length - offset * step * 1e3
                rtts[start + offset] = max(rtts[start + offset], usual + waits)
    lost = generator.random(count) < np.mean(np.isnan(group.rtts))
    return np.where(lost, np.nan, rtts)


def check_delays(family: str, fitted: Sequence[Probes], held: Sequence[Probes]) -> None:
    """Predict round trips, single and over two carriers, of held-back groups."""
    generator = np.random.default_rng(1)
    calm = []
    for group in fitted:
        _, inside = stalls(group)
        gone = np.isnan(group.rtts) | inside
        calm.append(np.where(gone, np.nanmedian(group.rtts), group.rtts))
    scales = time_scales(calm, 0.2, 10.0)
    runs = [delay_run(generator, fitted, scales) for _ in range(RUNS)]
    measured = [group.rtts for group in held]
    for name, measure in DELAYS.items():
        report(family, name, [measure(run) for run in runs], [measure(own) for own in measured])
    both = [np.fmin(a[: len(b)], b[: len(a)]) for a, b in zip(runs[::2], runs[1::2], strict=True)]
    pairs = [np.fmin(a[: len(b)], b[: len(a)]) for a, b in pairwise(measured)]
    report(family, "within 300 ms, two paths", list(map(in_time, both)), list(map(in_time, pairs)))


def main() -> int:
    """Print the table; returns the exit status."""
    try:
        folder = measurement_folder()
        for environment, operator in (("urban", "p2"), ("rural", "p1")):
            for way in ("up", "down"):
                file = folder / f"imc22_drone_lte/{environment}_{operator}_{way}link.csv"
                windows = flights_of(column(file.read_text(), "rate [Mbit/s]"))
                check_rates(f"drone {environment} {way}", windows[::2], windows[1::2])
        for family, names in (("lte-car", ("att", "tmobile", "verizon")), ("starlink-car", ("starlink",))):
            windows_by_drive: dict[str, list[Values]] = {}
            for name in names:
                for window, values in conext(folder, name):
                    drive = window.split("drive ")[1].split(".")[0]
                    windows_by_drive.setdefault(drive, []).append(values)
            drives = sorted(windows_by_drive, key=int)
            fitted = [values for drive in drives[::2] for values in windows_by_drive[drive]]
            held = [values for drive in drives[1::2] for values in windows_by_drive[drive]]
            check_rates(family, fitted, held)
        groups = pam(folder)
        check_delays("lte-car", groups[::2], groups[1::2])
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

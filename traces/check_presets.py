"""Compares the fits of `fit_presets.py` with held-out flights.

Run it as `python traces/check_presets.py [drone lte nr starlink ship paths heights hours]`. Each family is fitted to
four fifths of the drives and predicts the others, five times over, so that each drive is held back once; of fewer than
five drives, or recordings of a drone, to all but one. What is predicted is what the engine does with the fitted preset.

Rows are those of docs/links.md: median measured, by time, and predicted, or means where a median is zero. A held-back
value is covered if it lies within the central 90 % of the family's runs. The ratio has its 90 % interval from resampled
drives: a single split of a few drives cannot tell a factor of 2. Outages are seconds below 0.5 Mbit/s, in runs.
`paths` has three carriers of one car, `heights` handovers of a drone by height, `hours` Starlink capacity by the hour.
"""

import argparse
import csv
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from build_traces import MissingMeasurementsError, measurement_folder
from engine_series import Run, fly
from fit_groups import NO_SERVICE_MBPS, PATHS, common_outages, correlation, paired_windows, shares_below
from fit_presets import (
    FAMILIES,
    MIN_DRIVE_S,
    NR_STEP_S,
    PRESETS,
    RECONFIGURATION,
    Family,
    conext,
    delays_of,
    dish_rates,
    dish_windows,
    drone_recordings,
    handovers_by_height,
    nr_control,
    nr_windows,
    one_way,
    paired,
    pam,
    rate,
    road,
    starlink_delay,
    starlink_rates,
    text_of,
)
from fit_series import (
    FLIGHT_S,
    Flight,
    Values,
    carried,
    flights_of,
    runs_of,
    service_outages,
    thinned,
    time_scales,
    with_service,
)

from skybraid.traces.series import quantile_of

FOLDS = 5
RUNS = 80
PAIRED_RUNS = 200
GROUP_S = 180
CONTROL_S = 90
PIECE_S = 300
SKEWED = ("probes lost, %",)
"""What a few windows have most of: their means say more than their medians."""
T = TypeVar("T")
Measure = Callable[[Values], float | Sequence[float]]
"""Value of a series, or values of its parts."""


class Held(NamedTuple):
    """A value of a flight that was held back from a fold, the drive that it is from, and how long that was.

    Runs draw flights by the time that they took, so that values are weighted by it.
    """

    fold: int
    drive: str
    value: float
    seconds: float


def outages_per_hour(rates: Values) -> float:
    """Returns the number of runs of seconds below 0.5 Mbit/s, per hour."""
    return len(runs_of(rates < 0.5)) * 3600 / len(rates)


def means(rates: Values) -> list[float]:
    """Returns means over pieces of about five minutes, since the first pieces of windows differ from the others."""
    return [float(piece.mean()) for piece in np.array_split(rates, max(1, round(len(rates) / PIECE_S)))]


RATES: dict[str, Measure] = {
    "seconds that carry 10 Mbit/s": lambda rates: carried(rates) - 1e-6 * float(rates.mean()),
    "mean of 5 min, Mbit/s": means,
    "standard deviation / mean": lambda rates: float(rates.std() / max(rates.mean(), 1e-9)),
    "outages per hour": outages_per_hour,
    "seconds in outage, %": lambda rates: 100 * float(np.mean(rates < 0.5)),
}


def in_time(rtts: Values) -> float:
    """Returns the share of probes with a reply within 300 ms."""
    return float(np.mean(np.nan_to_num(rtts, nan=np.inf) <= 300))


def tail(rtts: Values) -> float:
    """Returns the 99.9th percentile of round trips in ms."""
    return float(np.nanquantile(rtts, 0.999)) if np.isfinite(rtts).any() else float("nan")


DELAYS: dict[str, Measure] = {
    "probes within 300 ms": in_time,
    "round trip p99.9, ms": tail,
    "probes lost, %": lambda rtts: 100 * float(np.mean(np.isnan(rtts))),
}


def report(family: str, measure: str, held: Sequence[Held], predicted: Mapping[int, Sequence[float]]) -> None:
    """Prints rows of docs/links.md: both medians or means, number of covered held-out values, and the ratio."""
    bands = {fold: np.nanquantile(own, [0.05, 0.95]) for fold, own in predicted.items()}
    covered = np.mean([bands[one.fold][0] - 1e-9 <= one.value <= bands[one.fold][1] + 1e-9 for one in held])
    known = [one for one in held if math.isfinite(one.value)]
    values, seconds = (np.array([getattr(one, name) for one in known]) for name in ("value", "seconds"))
    every = np.concatenate(list(predicted.values()))
    every = every[np.isfinite(every)]
    # A rare event is in less than half of the flights: their medians are zero, however many there are.
    has_medians = min(quantile_of(values, seconds, 0.5), float(np.median(every))) > 0
    drives = sorted({one.drive for one in known})
    rows = [np.flatnonzero([one.drive == drive for one in known]) for drive in drives]
    for is_median in (True, False) if has_medians and measure in SKEWED else (has_medians,):

        def middle(own: Values, weights: Values, is_median: bool = is_median) -> float:
            return quantile_of(own, weights, 0.5) if is_median else float(np.average(own, weights=weights))

        random = np.random.default_rng(1)
        drawn = []
        for _ in range(400):
            own = np.concatenate([rows[at] for at in random.integers(0, len(drives), len(drives))])
            drawn.append(middle(values[own], seconds[own]))
        low, high = np.quantile(drawn, [0.05, 0.95])
        measured, base = middle(values, seconds), middle(every, np.ones(len(every)))
        ratio = f"{measured / base:.2f} [{low / base:.2f}, {high / base:.2f}]" if base > 0 else ""
        title = measure if is_median else f"{measure} (means)"
        print(
            f"| {family} | {title} | {measured:.3g} | {base:.3g} | {100 * covered:.0f} % of {len(held)} | {ratio} |",
            flush=True,
        )


def values_of(measure: Measure, series: Sequence[Values]) -> list[float]:
    """Returns the values of a measure for each part of each series."""
    return [float(value) for one in series for value in np.atleast_1d(measure(one))]


def split(by_drive: Mapping[str, Sequence[T]], fold: int) -> tuple[list[T], dict[str, Sequence[T]]]:
    """Returns the fitted drives of a fold, and its held-out drives: each `FOLDS`-th one."""
    out = {drive: own for place, (drive, own) in enumerate(by_drive.items()) if place % FOLDS == fold}
    return [one for drive, own in by_drive.items() if drive not in out for one in own], out


def check(
    name: str,
    preset: Callable[[int], str],
    held: Callable[[int], Mapping[str, Sequence[Values]]],
    measures: Mapping[str, Measure],
    of: Callable[[Run], Values],
    length_s: int = FLIGHT_S,
) -> list[list[Values]]:
    """Predict held-back series by the runs of each fold's preset, and print a row for each measure."""
    out = {fold: own for fold in range(FOLDS) if (own := held(fold))}
    runs = {
        fold: [of(run) for run in fly({"a": preset(fold)}, length_s, range(RUNS * fold + 1, RUNS * (fold + 1) + 1))]
        for fold in out
    }
    for title, measure in measures.items():
        values = [
            Held(fold, drive, value, len(one))
            for fold, drives in out.items()
            for drive, own in drives.items()
            for one in own
            for value in values_of(measure, [one])
        ]
        report(name, title, values, {fold: values_of(measure, own) for fold, own in runs.items()})
    return list(runs.values())


def by_drive(folder: Path, names: Sequence[str]) -> dict[str, list[tuple[str, Values]]]:
    """Windows of capacity down by drive."""
    found: dict[str, list[tuple[str, Values]]] = {}
    for name in names:
        for window, values in conext(folder, name):
            found.setdefault(window.split("drive ")[1].split(".")[0], []).append((window, values))
    return found


def series(windows: Mapping[str, Sequence[tuple[str, Values]]]) -> dict[str, list[Values]]:
    """Windows without their names."""
    return {drive: [values for _, values in own] for drive, own in windows.items()}


def check_lte(folder: Path) -> None:
    """Rates of three carriers by drive, and round trips by group of bursts."""
    drives = by_drive(folder, ("att", "tmobile", "verizon"))
    groups = {group.name: [group] for group in pam(folder)}

    def preset(fold: int) -> str:
        fitted = road(split(drives, fold)[0], delays_of(split(groups, fold)[0], 0.2))
        return text_of(FAMILIES["lte-car"], fitted)

    check("lte-car", preset, lambda fold: series(split(drives, fold)[1]), RATES, lambda run: run.down[0])

    def held(fold: int) -> dict[str, list[Values]]:
        return {name: [one.rtts for one in own] for name, own in split(groups, fold)[1].items()}

    runs = check("lte-car", preset, held, DELAYS, lambda run: run.rtts, GROUP_S)
    measured = [own[0].rtts for own in groups.values()]
    pairs = [
        Held(0, str(at), in_time(np.fmin(a[: len(b)], b[: len(a)])), len(a))
        for at, (a, b) in enumerate(pairwise(measured))
    ]
    doubled = [in_time(np.fmin(a, b)) for fold in runs for a, b in zip(fold[::2], fold[1::2], strict=True)]
    report("lte-car", "probes within 300 ms, two paths", pairs, {0: doubled})


def check_starlink(folder: Path) -> None:
    """Checks rates of a dish on a car, by drive."""
    drives = by_drive(folder, ("starlink",))
    delays = thinned(starlink_delay(dish_windows(folder)))

    def preset(fold: int) -> str:
        rates = thinned(one_way(split(drives, fold)[0], 0.075))
        return text_of(FAMILIES["starlink-car"], Family(paired(rates, delays), RECONFIGURATION))

    check("starlink-car", preset, lambda fold: series(split(drives, fold)[1]), RATES, lambda run: run.down[0])


def check_ship(folder: Path) -> None:
    """Checks rates of a fixed dish and round trips of a ship's dish, by windows of ten minutes."""
    rates = {name: [(name, down, up)] for name, down, up in dish_rates(folder, moving=False)}
    trips = {str(at): [own] for at, own in enumerate(dish_windows(folder))}

    def preset(fold: int) -> str:
        flights = thinned(starlink_rates(split(rates, fold)[0]))
        delays = thinned(starlink_delay(split(trips, fold)[0]))
        return text_of(FAMILIES["starlink-ship"], Family(paired(flights, delays), RECONFIGURATION))

    def capacities(fold: int) -> dict[str, list[Values]]:
        return {name: [down for _, down, _ in own] for name, own in split(rates, fold)[1].items()}

    def probes(fold: int) -> dict[str, list[Values]]:
        return {name: [as_probes(*one) for one in own] for name, own in split(trips, fold)[1].items()}

    check("starlink-ship", preset, capacities, RATES, lambda run: run.down[0])
    check("starlink-ship", preset, probes, DELAYS, lambda run: run.rtts)


def as_probes(rtts: Values, drops: Values) -> Values:
    """Five probes a second, as the runs have them, of a dish that tells the share of its own that were lost."""
    lost = np.random.default_rng(1).random(5 * len(rtts)) < np.repeat(drops, 5)
    return np.where(lost, np.nan, np.repeat(rtts, 5))


def check_nr(folder: Path) -> None:
    """Checks rates of a car on 5G by drive, and round trips of control messages by run."""
    drives: dict[str, list[tuple[str, Values]]] = {}
    for name, values in nr_windows(folder):
        drives.setdefault(name.partition(",")[0], []).append((name, values))
    control = {own.name: [own] for own in nr_control(folder)}

    def preset(fold: int) -> str:
        return text_of(FAMILIES["5g-road"], road(split(drives, fold)[0], delays_of(split(control, fold)[0], NR_STEP_S)))

    def probes(fold: int) -> dict[str, list[Values]]:
        return {name: [one.rtts for one in own] for name, own in split(control, fold)[1].items()}

    check("5g-road", preset, lambda fold: series(split(drives, fold)[1]), RATES, lambda run: run.down[0])
    check("5g-road", preset, probes, DELAYS, lambda run: run.rtts, CONTROL_S)


def check_drone(folder: Path) -> None:
    """Checks rates of a drone by windows of ten minutes, for each direction and environment, by recording."""
    for environment, operator in (("urban", "p2"), ("rural", "p1")):
        for way in ("up", "down"):
            recorded = drone_recordings(folder, f"{environment}_{operator}_{way}link")
            windows = {str(at): flights_of(own) for at, own in enumerate(recorded)}

            def preset(
                fold: int, windows: Mapping[str, Sequence[Values]] = windows, environment: str = environment
            ) -> str:
                fitted = split(windows, fold)[0]
                served = [with_service(own) for own in fitted]
                scales = time_scales(served, 1.0, 120.0)
                spans = service_outages([own <= 0 for own in fitted])
                flights = [
                    Flight(str(at), carried(own), len(own), [f"uplink.rate = {rate(served[at], scales)}", *spans[at]])
                    for at, own in enumerate(fitted)
                ]
                common = ['downlink.rate = "10Mbit/s"', 'uplink.delay = "20ms"', 'downlink.delay = "20ms"']
                return text_of(FAMILIES[f"lte-drone-{environment}"], Family(flights, common))

            def held(fold: int, windows: Mapping[str, Sequence[Values]] = windows) -> Mapping[str, Sequence[Values]]:
                return split(windows, fold)[1]

            check(f"lte-drone-{environment}, {way}", preset, held, RATES, lambda run: run.up[0])


def print_heights(folder: Path) -> None:
    """Prints handovers of a drone's modem by height above the ground."""
    for environment in ("urban", "rural"):
        for low, (count, flown_s) in handovers_by_height(folder, environment).items():
            rate_per_s = count / flown_s
            print(f"{environment}, from {low} m on: {count} handovers in {flown_s} s, {rate_per_s:.4f} per s")


def print_hours(folder: Path) -> None:
    """Prints Starlink's downlink capacity on roads in Germany by hour and by day, to show on which it depends."""
    rows = list(csv.DictReader((folder / "osnabrueck_mobile_starlink/road/iperf.csv").open()))
    rows = [row for row in rows if row["download_mbps"]]
    for name, part in (("hour", slice(11, 13)), ("day", slice(0, 10))):
        found: dict[str, list[float]] = {}
        for row in rows:
            found.setdefault(row["timestamp_start"][part], []).append(float(row["download_mbps"]))
        medians = sorted(float(np.median(own)) for own in found.values() if len(own) >= MIN_DRIVE_S)
        sd = float(np.std(np.log(medians), ddof=1))
        print(
            f"{len(medians)} medians by {name}: {medians[0]:.0f} to {medians[-1]:.0f} Mbit/s, factor {np.exp(sd):.2f}"
        )


def check_paths(folder: Path) -> None:
    """Checks seconds in which two and three carriers of one car are down together.

    Nearly all seconds below 1 Mbit/s of all three are from two drives of one day, so that no split can predict them:
    the interval is by resampled drives, and the rows compare the fitted group with its own data.
    """
    windows = paired_windows(folder)
    preset = (PRESETS / "lte-car.toml").read_text()

    def run(groups: str) -> list[Values]:
        return [own.down for own in fly(dict.fromkeys(PATHS, preset), FLIGHT_S, range(1, PAIRED_RUNS + 1), groups)]

    rates = correlation(windows).toml()
    correlated = run(rates)
    modelled = {
        "drawn each by itself": run(""),
        "correlated rates and flights": correlated,
        "with common outages": run(rates + common_outages(windows, correlated)),
    }
    random = np.random.default_rng(1)
    print(f"| carriers | below, Mbit/s | measured, % | {' | '.join(modelled)} |\n{6 * '|---'}|")
    for mbps in (NO_SERVICE_MBPS, 1.0, 2.0, 10.0):
        measured = shares_below(windows, mbps)
        drawn = [
            shares_below([windows[at] for at in random.integers(0, len(windows), len(windows))], mbps)
            for _ in range(400)
        ]
        for place, count in ((1, "two"), (2, "three")):
            low, high = np.quantile([one[place] for one in drawn], [0.05, 0.95])
            cells = [f"{100 * shares_below(own, mbps)[place]:.3f}" for own in modelled.values()]
            shown = f"{100 * measured[place]:.3f} [{100 * low:.3f}, {100 * high:.3f}]"
            print(f"| {count} | {mbps:g} | {shown} | {' | '.join(cells)} |")


def main(arguments: Sequence[str]) -> int:
    """Prints the tables; returns the exit status."""
    checks = {
        "drone": check_drone,
        "lte": check_lte,
        "nr": check_nr,
        "starlink": check_starlink,
        "ship": check_ship,
        "paths": check_paths,
        "heights": print_heights,
        "hours": print_hours,
    }
    parser = argparse.ArgumentParser(description="Hold fits against what they have not seen.")
    parser.add_argument("family", nargs="*", choices=[[], *checks], help="Families (default: all).")
    try:
        folder = measurement_folder()
        for name in parser.parse_args(arguments).family or checks:
            checks[name](folder)
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

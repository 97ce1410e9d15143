"""Fits the families of flights in `crates/link/src/presets` to the original measurements.

Run it as `python traces/fit_presets.py [FAMILY ...]`. The measurements are looked for in
`$SKYBRAID_TRACES`, else in `../shared/traces` from the repository's root. The same measurements give
the same files. Each file states what its numbers were fitted to and what is assumed.

A series of rates or round trips is cut into flights of ten minutes. A flight keeps the quantiles of
its own values; the time scales are those of all flights of a family together, from the
autocorrelation of the normal scores within a flight, since a single flight is too short for them.

Seconds without any service are the outages of a flight and are no values of its rate: in the table of
quantiles they would come one by one, where they last for seconds to minutes, and keep the queue.
"""

import argparse
import csv
import io
import math
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from build_traces import (
    PAM_CARRIERS,
    PAM_PROBES_PER_WINDOW,
    MissingMeasurementsError,
    PingBurst,
    measurement_folder,
    read_ping,
)
from fit_series import (
    FLIGHT_S,
    MIN_DRIVE_S,
    TAIL,
    Flight,
    Probes,
    Values,
    carried,
    column,
    flights_of,
    interval_line,
    length_quantiles,
    outages,
    quantiles,
    rate,
    service_outages,
    stalls,
    thinned,
    time_scales,
    with_service,
)

from skybraid.fit.process import normal_scores

NR_STEP_S = 0.055
"""Time in s between control messages of CICV5G."""

AIR_M = 10.0
"""Height above the ground from which on a drone is in the air."""

OPENING_MBPS = 0.1
"""Rate in Mbit/s below which a second has the packets that open a connection, and no data."""

HEIGHTS_M = (0, 10, 40, 80)
"""Heights above the ground in m from which on a drone's handovers are counted apart."""

PRESETS = Path(__file__).resolve().parent.parent / "crates" / "link" / "src" / "presets"

RECONFIGURATION = [
    'reconfiguration.every = "15s"              # Tanveer et al., HotNets 2023',
    'reconfiguration.phase = "12s"              # Tanveer et al., HotNets 2023: 12, 27, 42, 57 s past the minute',
]


@dataclass(frozen=True)
class Family:
    """Flights of a family, and their common values."""

    flights: list[Flight]
    common: list[str] = field(default_factory=list)


def delays_of(groups: Sequence[Probes], step_s: float, outage_probes: int = 3) -> Family:
    """Returns flights of base delay, jitter, stalls and loss; each direction has half the round trip.

    Lengths of stalls are those of all flights together, their numbers each flight's own. Runs of at least
    `outage_probes` lost probes are outages, which the rates have.
    """
    found = [(group, *stalls(group)) for group in groups]
    calm = [np.where(np.isnan(group.rtts) | inside, np.nanmedian(group.rtts), group.rtts) for group, _, inside in found]
    scales = time_scales(calm, step_s, 10.0 if step_s < 1 else 60.0)
    all_stalls = [length / 1e3 for _, lengths, _ in found for length in lengths]
    flights = []
    for (group, lengths, _), values in zip(found, calm, strict=True):
        seconds = len(group.rtts) * step_s
        base = float(np.quantile(values, 0.01))
        jitter = quantiles(np.maximum(values - base, 0) / 2, TAIL, "ms")
        gone = outages(group.rtts, outage_probes)
        single = float(np.mean(np.isnan(group.rtts))) - sum(gone) / len(group.rtts)
        loss = 1 - np.sqrt(1 - max(0.0, single))
        process = (
            f'{{ process = {jitter}, plus = "{base / 2:.4g}ms", {scales.keys()}, '
            f'step = "{step_s * 1e3:.0f}ms", both_ways = 1.0 }}'
        )
        lines = [f"{way}.delay = {process}" for way in ("uplink", "downlink")]
        lines += [f'{way}.loss = {{ uniform = "{100 * loss:.3g}%" }}' for way in ("uplink", "downlink")]
        if all_stalls:
            lines.append(interval_line("stall", len(lengths), seconds))
        in_time = float(np.mean(np.nan_to_num(group.rtts, nan=np.inf) <= 300))
        flights.append(Flight(group.name, in_time, seconds, lines))
    common = [f"stall.length = {length_quantiles(all_stalls)}"] if all_stalls else []
    return Family(flights, common)


def paired(rates: list[Flight], delays: list[Flight]) -> list[Flight]:
    """Pairs rates and delays that were not measured together, in an unrelated order."""
    delays = thinned(delays, len(rates))
    shuffled = [delays[index] for index in np.random.default_rng(1).permutation(len(delays))]
    return [
        Flight(f"{own.name}; {delay.name}", own.score, own.seconds, own.lines + delay.lines)
        for own, delay in ((own, shuffled[index % len(shuffled)]) for index, own in enumerate(rates))
    ]


def drone(folder: Path, environment: str, operator: str) -> Family:
    """Returns flights of a drone on LTE; delay and handovers are those of the family."""
    flights = {way: drone_rates(folder, environment, operator, way) for way in ("up", "down")}
    served = {way: [with_service(own) for own in pieces] for way, pieces in flights.items()}
    scales = {way: time_scales(pieces, 1.0, 120.0) for way, pieces in served.items()}
    # The two directions were not measured together: windows are paired by rank.
    ordered = {way: sorted(pieces, key=carried) for way, pieces in flights.items()}
    latency = np.genfromtxt(folder / "baltaci2023_inputs/latency_ul.csv", delimiter=",")[:, 1]
    latency = latency[np.isfinite(latency)]
    latency_scales = time_scales([latency], 1.0, 60.0)
    base = float(latency.min())
    delay = (
        f"{{ process = {quantiles(latency - base, TAIL, 'ms')}, "
        f'plus = "{base:.4g}ms", {latency_scales.keys()}, step = "1s" }}'
    )
    found = []
    spans = service_outages([own <= 0 for own in ordered["up"]])
    for number, (up, down, out) in enumerate(zip(ordered["up"], ordered["down"], spans, strict=False)):
        lines = [f"uplink.rate = {rate(with_service(up), scales['up'])}"]
        lines += [f"downlink.rate = {rate(with_service(down), scales['down'])}", *out]
        name = f"window {number + 1} by rank"
        found.append(Flight(name, carried(up) + carried(down), len(up), lines))
    common = [f"uplink.delay = {delay}", f"downlink.delay = {delay}"]
    return Family(found, [*common, drone_handovers(folder, environment), drone_heights(folder, environment)])


def drone_rates(folder: Path, environment: str, operator: str, way: str) -> list[Values]:
    """Returns windows of a drone's rates in Mbit/s, each within a recording."""
    recorded = drone_recordings(folder, f"{environment}_{operator}_{way}link")
    return [window for own in recorded for window in flights_of(own)]


def drone_recordings(folder: Path, name: str) -> list[Values]:
    """Returns a drone's rates in Mbit/s by recording; a file has several recordings in a row.

    The first and the last second of a recording are parts of one: first a few packets that open the connection (less
    than 0.1 Mbit/s), after a second with less than half of the one before. They are left out: no outage is in them. A
    recording that the file has twice counts once.
    """
    rates = column((folder / f"imc22_drone_lte/{name}.csv").read_text(), "rate [Mbit/s]")
    before, last, first = rates[:-2], rates[1:-1], rates[2:]
    seams = np.flatnonzero((first > 0) & (first < OPENING_MBPS) & (last > OPENING_MBPS) & (last < before / 2)) + 2
    found: list[Values] = []
    for piece in np.split(rates, seams):
        own = piece[1:-1]
        if len(own) >= MIN_DRIVE_S and not any(np.array_equal(own, other) for other in found):
            found.append(own)
    return found


def drone_handovers(folder: Path, environment: str) -> str:
    """Returns handovers in the air in an environment, as intervals with both ends in the air."""
    with (folder / "imc22_drone_lte/handovers.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["flight"].lower().startswith(environment)]
    flying = [float(row["height [m]"] or 0) >= AIR_M for row in rows]
    starts = [float(row["start [s]"]) for row in rows]
    intervals = [
        starts[at + 1] - starts[at]
        for at in range(len(rows) - 1)
        if flying[at] and flying[at + 1] and rows[at]["flight"] == rows[at + 1]["flight"]
    ]
    intervals = [interval for interval in intervals if interval > 0]
    durations = [
        float(row["duration [ms]"]) / 1e3 for row, up in zip(rows, flying, strict=True) if up and row["duration [ms]"]
    ]
    with (folder / "imc22_drone_lte/seconds_by_height.csv").open() as file:
        heights = list(csv.DictReader(file))
    days = {row["flight"].rsplit("-", 1)[0] for row in rows}
    flown_s = sum(int(row[day]) for row in heights for day in days if float(row["Altitude"]) >= AIR_M)
    phases = hyperexponential(np.array(intervals))
    # The longest intervals contain time on the ground: their mean is the one that gives the number per second flown.
    known_s = sum(weight * mean for weight, mean in phases[:-1])
    phases[-1] = (phases[-1][0], (flown_s / sum(flying) - known_s) / phases[-1][0])
    listed = ", ".join(f'{{ weight = {weight:.3f}, mean = "{mean:.4g}s" }}' for weight, mean in phases)
    table = quantiles(np.array(durations), (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.98, 0.99), "s")
    return (
        f"handover = {{ interval = {{ exponentials = [{listed}] }}, "
        f'interruption = {{ quantiles = {table} }}, at_least = "50ms" }}'
    )


def drone_heights(folder: Path, environment: str) -> str:
    """Returns factors on the number of handovers by height above ground; one is the mean of the flights in the air."""
    counts = handovers_by_height(folder, environment)
    air = [own for low, own in counts.items() if low >= AIR_M]
    mean = sum(count for count, _ in air) / sum(flown_s for _, flown_s in air)
    listed = ", ".join(f'["{low}m", {count / flown_s / mean:.3g}]' for low, (count, flown_s) in counts.items())
    return f"along.handover.height = [{listed}]"


def handovers_by_height(folder: Path, environment: str) -> dict[int, tuple[int, int]]:
    """Returns handovers and seconds flown from each height in m above ground."""
    with (folder / "imc22_drone_lte/handovers.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["flight"].lower().startswith(environment)]
    with (folder / "imc22_drone_lte/seconds_by_height.csv").open() as file:
        seconds = list(csv.DictReader(file))
    days = {row["flight"].rsplit("-", 1)[0] for row in rows}
    heights = [float(row["height [m]"]) for row in rows if row["height [m]"]]
    found = {}
    for low, high in zip(HEIGHTS_M, (*HEIGHTS_M[1:], math.inf), strict=True):
        inside = [low <= max(height, 0.0) < high for height in heights]
        flown_s = sum(int(row[day]) for row in seconds for day in days if low <= float(row["Altitude"]) < high)
        found[low] = (sum(inside), flown_s)
    return found


def hyperexponential(intervals: Values, phases: int = 3) -> list[tuple[float, float]]:
    """Returns weights and means of a mixture of exponentials, by expectation and maximisation."""
    weights = np.full(phases, 1 / phases)
    means = np.quantile(intervals, (np.arange(phases) + 0.5) / phases) + 1e-3
    for _ in range(500):
        density = weights / means * np.exp(-intervals[:, None] / means)
        share = density / density.sum(axis=1, keepdims=True)
        weights = share.mean(axis=0)
        means = (share * intervals[:, None]).sum(axis=0) / share.sum(axis=0)
    return [(float(weight), float(mean)) for weight, mean in zip(weights, means, strict=True)]


def conext(folder: Path, name: str) -> list[tuple[str, Values]]:
    """Returns windows of downlink capacity of one of the four networks, each within a drive without gaps."""
    text = (folder / "conext23_paired/downlink.csv").read_text()
    times, days = column(text, "time [s]"), column(text, "day")
    values = column(text, f"{name} [Mbit/s]")
    cuts = np.flatnonzero(np.diff(times) > 2) + 1
    found = []
    for index, drive in enumerate(np.split(np.arange(len(values)), cuts)):
        for part, piece in enumerate(flights_of(values[drive], MIN_DRIVE_S)):
            day = int(days[drive[0]])
            found.append((f"{name}, day {day}, drive {index + 1}.{part + 1}", piece))
    return found


def pam(folder: Path, bursts: int = 6) -> list[Probes]:
    """Returns round trips of three carriers, in groups of consecutive bursts of 30 s."""
    found = []
    for carrier in PAM_CARRIERS:
        root = folder / "pam2025_multicarrier_ping" / "trip2_05_13_2023" / "app" / carrier
        read = [read_ping(path) for path in root.rglob("*.out")]
        read.sort(key=lambda burst: burst.start_epoch_ms)
        for start in range(0, len(read), bursts):
            rtts = [rtt for burst in read[start : start + bursts] for rtt in settled(burst)]
            values = np.array([np.nan if rtt is None else rtt for rtt in rtts])
            times = np.arange(len(values), dtype=np.float64) * 0.2
            found.append(Probes(f"{carrier}, bursts from {start + 1}", times, values))
    return found


def settled(burst: PingBurst) -> tuple[float | None, ...]:
    """Returns round trips of the probes whose replies were awaited.

    Those sent in the last second before `ping` ended count as lost in its summary, though they were under way: 66 of
    287 lost probes of trip 2.
    """
    rtts = burst.rtts_ms
    waited = max(len(rtts) - PAM_PROBES_PER_WINDOW, 0)
    after = max((at + 1 for at, rtt in enumerate(rtts) if rtt is not None), default=0)
    return rtts[: max(waited, after)]


def lte_car(folder: Path) -> Family:
    """Returns capacity and round trips of three carriers from cars in the USA."""
    windows = [window for name in ("att", "tmobile", "verizon") for window in conext(folder, name)]
    return road(windows, delays_of(pam(folder), 0.2))


def road(windows: Sequence[tuple[str, Values]], delays: Family) -> Family:
    """Returns flights of measured downlink capacity; the uplink has half of it."""
    return Family(paired(thinned(one_way(windows, 0.5)), delays.flights), delays.common)


def one_way(windows: Sequence[tuple[str, Values]], up_share: float) -> list[Flight]:
    """Returns flights of measured downlink capacity; the uplink has a share of it."""
    served = [with_service(values) for _, values in windows]
    scales = time_scales(served, 1.0, 120.0)
    spans = service_outages([values <= 0 for _, values in windows])
    return [
        Flight(
            name,
            carried(values),
            len(values),
            [
                f"uplink.rate = {rate(own, scales, f', scale = {up_share:g}, both_ways = 0.5')}",
                f"downlink.rate = {rate(own, scales, ', both_ways = 0.5')}",
                *lines,
            ],
        )
        for (name, values), own, lines in zip(windows, served, spans, strict=True)
    ]


def nr_road(folder: Path) -> Family:
    """Returns capacity in Ireland and control messages in China from cars on 5G."""
    return road(nr_windows(folder), delays_of(nr_control(folder), NR_STEP_S))


def nr_rates(folder: Path) -> list[tuple[str, Values]]:
    """Returns a car's downlink capacity in Ireland in Mbit/s, by drive.

    Where the logger tells of its own pings, its rates are of less than a second: below 0.5 Mbit/s in 52 %, 62 % and
    33 % of the rows before, at and after each result, and in 3 to 6 % of the others. These three rows are left out.
    """
    found = []
    with zipfile.ZipFile(folder / "aux_uccmisl_5g/5G-production-dataset.zip") as archive:
        names = sorted(name for name in archive.namelist() if "Download/Driving" in name and "MACOSX" not in name)
        for name in (name for name in names if name.endswith(".csv")):
            rows = list(csv.DictReader(io.StringIO(archive.read(name).decode("latin-1"))))
            values = np.array([float(row["DL_bitrate"] or "nan") * 1e-3 for row in rows])
            answered = np.array([row["PINGAVG"] not in ("", "-") for row in rows])
            near = answered.copy()
            near[:-1] |= answered[1:]
            near[1:] |= answered[:-1]
            found.append((Path(name).stem, values[np.isfinite(values) & ~near]))
    return found


def nr_windows(folder: Path) -> list[tuple[str, Values]]:
    """Returns windows of a car's downlink capacity in Ireland."""
    windows = []
    for name, values in nr_rates(folder):
        pieces = flights_of(values) if len(values) >= FLIGHT_S / 2 else []
        windows += [(f"{name}, part {part + 1}", piece) for part, piece in enumerate(pieces)]
    return windows


def nr_control(folder: Path) -> list[Probes]:
    """Returns round trips of a car's control messages in China, by run."""
    runs = []
    for path in sorted((folder / "cicv5g_rtt").rglob("*.txt")):
        if path.name == "SOURCE.txt" or path.parent.name == "rural":
            continue
        table = np.genfromtxt(path, skip_header=1, usecols=(0, 2))
        times = (table[:, 0] - table[0, 0]) / 1e3
        runs.append(Probes(path.stem, times, table[:, 1]))
    return [run for run in runs if np.median(np.diff(run.times)) < 0.08]


def dish_windows(folder: Path) -> list[tuple[Values, Values]]:
    """Returns round trip in ms and probe loss of a ship's dish, second by second, in windows of ten minutes."""
    rtts, drops = read_dish(folder)
    starts = range(0, len(rtts) - FLIGHT_S + 1, FLIGHT_S)
    return [(rtts[start : start + FLIGHT_S], drops[start : start + FLIGHT_S]) for start in starts]


def starlink_delay(windows: Sequence[tuple[Values, Values]]) -> list[Flight]:
    """Returns flights of a ship's Starlink round trip: steps per epoch, jitter within, loss by seconds."""
    flights = []
    inner: list[Values] = []
    parts: list[tuple[float, Values, Values, Values]] = []
    for own, dropped in windows:
        usable = np.where(np.isfinite(own) & (own > 0), own, np.nanmedian(own))
        epochs = usable.reshape(-1, 15)
        levels = np.quantile(epochs, 0.2, axis=1)
        base = float(levels.min())
        jitter = np.maximum(epochs - levels[:, None], 0).ravel()
        inner.append(jitter)
        parts.append((base, levels - base, jitter, dropped))
    scales = time_scales(inner, 1.0, 15.0)
    for number, (base, steps, jitter, dropped) in enumerate(parts):
        process = (
            f'{{ process = {quantiles(jitter / 2, TAIL, "ms")}, plus = "{base / 2:.4g}ms", '
            f'{scales.keys()}, step = "1s", both_ways = 1.0 }}'
        )
        table = quantiles(steps / 2, (0.1, 0.25, 0.5, 0.75, 0.9), "ms")
        bad = dropped > 0
        lines = [f"{way}.delay = {process}" for way in ("uplink", "downlink")]
        lines.append(f"reconfiguration.delay_step = {{ quantiles = {table} }}")
        if bad.any():
            share = float(bad.mean())
            loss = 1 - np.sqrt(1 - float(dropped[bad].mean()))
            phases = f'on = {{ mean = "{1 / share:.4g}s" }}, off = "1s", off_loss = "{100 * loss:.3g}%"'
            lines += [f"{way}.loss = {{ on_off = {{ {phases} }} }}" for way in ("uplink", "downlink")]
        flights.append(Flight(f"window {number + 1}", -float(np.mean(dropped)), FLIGHT_S, lines))
    return flights


def read_dish(folder: Path) -> tuple[Values, Values]:
    """Returns round trip in ms and probe loss of a Starlink dish, second by second."""
    names = ["dish_status.pop_ping_latency_ms", "dish_status.pop_ping_drop_rate"]
    files = sorted((folder / "fjordlink" / "starlink_2025-01-09").glob("*.parquet.gzip"))
    columns = ["@timestamp", *names]
    table = pl.concat([pl.read_parquet(file, columns=columns) for file in files])
    rtts, drops = (table.sort("@timestamp")[name].to_numpy() for name in names)
    return rtts, np.nan_to_num(drops)


def dish_rates(folder: Path, moving: bool) -> list[tuple[str, Values, Values]]:
    """Returns windows of capacity down and up of Starlink dishes on a car, by name."""
    text = (folder / "osnabrueck_mobile_starlink/road/iperf.csv").read_text()
    down, up = column(text, "download_mbps"), column(text, "upload_mbps")
    speed = column(text, "average_speed")
    keep = np.isfinite(down) & np.isfinite(up) & ((speed > 5) if moving else (speed < 1))
    down, up = down[keep], up[keep]
    pieces = list(zip(flights_of(down), flights_of(up), strict=True))
    named = [(f"road, part {part + 1}", *piece) for part, piece in enumerate(pieces)]
    if moving:
        text = (folder / "osnabrueck_mobile_starlink/autobahn/throughput.csv").read_text()
        down, up = column(text, "download"), column(text, "upload")
        known = np.isfinite(down) & np.isfinite(up)
        more = zip(flights_of(down[known]), flights_of(up[known]), strict=True)
        named += [(f"motorway, part {part + 1}", *piece) for part, piece in enumerate(more)]
    return named


def starlink_rates(windows: Sequence[tuple[str, Values, Values]]) -> list[Flight]:
    """Returns the capacity of Starlink dishes in both directions, measured together."""
    names = [name for name, _, _ in windows]
    pieces = [(down, up) for _, down, up in windows]
    both = [float(np.corrcoef(normal_scores(a), normal_scores(b))[0, 1]) for a, b in pieces]
    gone = [(down <= 0) & (up <= 0) for down, up in pieces]
    served = [[np.where(out, np.nan, way) for way in piece] for piece, out in zip(pieces, gone, strict=True)]
    scales = [time_scales([piece[way] for piece in served], 1.0, 120.0) for way in (0, 1)]
    together = f", both_ways = {max(0.0, float(np.median(both))):.2f}"
    found = []
    for name, own, (own_down, own_up), spans in zip(names, pieces, served, service_outages(gone), strict=True):
        lines = [
            f"uplink.rate = {rate(own_up, scales[1], together)}",
            f"downlink.rate = {rate(own_down, scales[0], together)}",
        ]
        found.append(Flight(name, carried(own[0]), len(own_up), lines + spans))
    return found


def starlink_car(folder: Path) -> Family:
    """Returns Starlink on cars: both directions in Germany; downlink in the USA, with a share of it as uplink."""
    german = starlink_rates(dish_rates(folder, moving=True))
    american = one_way(conext(folder, "starlink"), 0.075)
    rates = thinned(thinned(german, len(german) * 2 // 3) + american)
    return Family(paired(rates, thinned(starlink_delay(dish_windows(folder)))), RECONFIGURATION)


def starlink_ship(folder: Path) -> Family:
    """Returns Starlink at sea: round trip and loss of a ship, capacity of a fixed dish."""
    rates = thinned(starlink_rates(dish_rates(folder, moving=False)))
    return Family(paired(rates, thinned(starlink_delay(dish_windows(folder)))), RECONFIGURATION)


@dataclass(frozen=True)
class Recipe:
    """Recipe of a family's fit.

    spread: geometric standard deviation of a run's factor on the rates. sources: lines of the file's head.
    """

    title: str
    fit: Callable[[Path], Family]
    spread: str
    sources: str


def drone_recipe(environment: str, operator: str, place: str) -> Recipe:
    """Returns the recipe for flights of one operator in one environment."""
    sources = f"""
rates and handovers: {environment} flights of operator {operator.upper()} near Munich (Baltaci, Cech et al., IMC 2022),
windows of ten minutes, on the ground and in the air; handovers above 10 m. Directions are paired by rank. Delay:
one-way latency up of the testbed of Baltaci et al. 2023; that the way down has the same is assumed.
"""
    fit = partial(drone, environment=environment, operator=operator)
    return Recipe(f"LTE of a drone over {place}", fit, "1.3", sources)


LTE_CAR = """
rates down and outages: AT&T, T-Mobile and Verizon in the USA, 2023 (Hu et al., CoNEXT 2023), windows
of ten minutes or less; that the way up has half is assumed (mahimahi's LTE: 0.41, 0.8, 1.2). Delay,
stalls and loss: pings of the same carriers, Boston to Atlanta, 2023 (NUWiNS, PAM 2025), half the round
trip each way. Rates and delays were not measured together.
"""
NR_ROAD = """
rates down and outages: an Irish operator, 2019/20 (Raca et al., MMSys 2020), windows of ten minutes without the
seconds next to the logger's own pings; that the way up has half is assumed. Delay and stalls: control messages from
a car and back in China (Zhang et al., CICV5G, Zenodo 17475688), urban, arterial and weak coverage, half the round
trip each way; a reliable transport carried them, so that loss shows as delay. Rates and delays were not measured
together.
"""
STARLINK_CAR = """
rates and outages: a car in Germany, both directions (Laniewski et al., TMA 2024 and OJCOMS 2025), and a car in
the USA, down (Hu et al., CoNEXT 2023), whose way up is 0.075 of it, as the German medians are. Delay
and loss: a ship's dish (FjordLink), half the round trip each way. They were not measured together.
"""
STARLINK_SHIP = """
rates and outages: a dish that stands, both directions (Laniewski et al., TMA 2024). Delay, loss and steps between
epochs: a ship on Kiel Fjord, 2025-01-09 (FjordLink), half the round trip each way. They were not
measured together.
"""
FAMILIES = {
    "lte-drone-urban": drone_recipe("urban", "p2", "a city"),
    "lte-drone-rural": drone_recipe("rural", "p1", "the country"),
    "lte-car": Recipe("LTE and 5G of a car between cities", lte_car, "1.2", LTE_CAR),
    "5g-road": Recipe("5G of a car on the road", nr_road, "1.2", NR_ROAD),
    "starlink-car": Recipe("Starlink on a car", starlink_car, "1.2", STARLINK_CAR),
    "starlink-ship": Recipe("Starlink on a ship near the coast", starlink_ship, "1.2", STARLINK_SHIP),
}


def text_of(recipe: Recipe, family: Family) -> str:
    """Formats the preset of a family as TOML."""
    head = [
        f"# {recipe.title}: a family of flights, from the worst to the best; each run draws one.",
        "# Fitted by traces/fit_presets.py; docs/links.md has the processes. Sources of every number:",
        *(f"# {line}" for line in recipe.sources.strip().splitlines()),
        'mtu = "1500B"                              # assumed: Ethernet\'s usual size',
        "uplink.queue = { packets = 1000 }          # assumed: length of a Linux interface's queue",
        "downlink.queue = { packets = 1000 }        # as for the uplink",
        f"spread = {{ rate = {recipe.spread}, delay = 1.05 }}   # assumed: between flights that nobody measured",
    ]
    blocks = ["\n".join([*head, *family.common])]
    for flight in thinned(family.flights):
        origin = "# Fitted to the measurements named here, from the sources above."
        lines = [origin, "[[flight]]", f'name = "{flight.name}"', *flight.lines]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the presets; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fit the families of flights.")
    parser.add_argument("family", nargs="*", help="Name of a family (default: all).")
    parser.add_argument("--out", type=Path, default=PRESETS, help="Folder of the presets.")
    read = parser.parse_args(arguments)
    try:
        folder = measurement_folder()
        for name in read.family or FAMILIES:
            recipe = FAMILIES[name]
            (read.out / f"{name}.toml").write_text(text_of(recipe, recipe.fit(folder)), encoding="utf-8")
            print(name)
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

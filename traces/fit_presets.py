"""Fit the families of flights in `crates/link/src/presets` to the original measurements.

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
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import polars as pl
from build_traces import (
    PAM_CARRIERS,
    MissingMeasurementsError,
    measurement_folder,
    read_ping,
)

PRESETS = Path(__file__).resolve().parent.parent / "crates" / "link" / "src" / "presets"

FLIGHT_S = 600
MAX_FLIGHTS = 20
# Drives of less than ten minutes are flights of their own: the shortest ones cross the emptiest country.
MIN_DRIVE_S = 120
VIDEO_MBPS = 10.0
PROBABILITIES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
TAIL = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
STALL_MS = 150.0
MIN_OWN_OUTAGES = 4
# The seconds next to those without service carry 0.85 of the seconds before and after them (CoNEXT 2023).
EDGES_S = 0.3
RECONFIGURATION = [
    'reconfiguration.every = "15s"              # Tanveer et al., HotNets 2023',
    'reconfiguration.phase = "12s"              # Tanveer et al., HotNets 2023: 12, 27, 42, 57 s past the minute',
]

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scales:
    """Time scales of a process, in seconds, and the share of the slow part."""

    slow: float
    fast: float
    slow_share: float

    def keys(self) -> str:
        """The keys of the process."""
        return f'slow = "{self.slow:.3g}s", fast = "{self.fast:.3g}s", slow_share = {self.slow_share:.2f}'


@dataclass
class Flight:
    """What was measured together.

    score: share of seconds that carry the video, or of probes in time; flights are ordered by it.
    seconds: length of the measurement.
    """

    name: str
    score: float
    seconds: float
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Family:
    """Flights of a family, and what is the same in all of them."""

    flights: list[Flight]
    common: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Probes:
    """Round trips in order of sending: times in s, round trips in ms with NaN where no reply came."""

    name: str
    times: Values
    rtts: Values


def normal_scores(values: Values) -> Values:
    """Normal scores of the ranks, NaN where a value is; equal values share their mean rank."""
    scores = np.full(len(values), np.nan)
    known = np.isfinite(values)
    _, inverse, counts = np.unique(values[known], return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    inverse_normal = NormalDist().inv_cdf
    by_rank = np.array([inverse_normal(float(rank) / known.sum()) for rank in middle])
    scores[known] = by_rank[inverse] if len(by_rank) else []
    return scores


def time_scales(flights: Sequence[Values], step_s: float, max_lag_s: float) -> Scales:
    """The scales whose autocorrelation is nearest to that within the flights, by least squares."""
    lags = np.unique(np.round(np.geomspace(1, max_lag_s / step_s, 24)).astype(int))
    products, squares = np.zeros(len(lags)), np.zeros(len(lags))
    for flight in flights:
        scores = normal_scores(flight)
        known = np.isfinite(scores)
        if known.sum() < 2:
            continue
        scores = np.where(known, scores - scores[known].mean(), 0.0)
        variance = float(scores @ scores) / int(known.sum())
        for index, lag in enumerate(lags):
            if lag < len(scores):
                products[index] += scores[:-lag] @ scores[lag:]
                squares[index] += variance * float(np.sum(known[:-lag] & known[lag:]))
    found = products / squares
    best = (np.inf, Scales(1.0, 0.0, 0.5))
    for slow in np.geomspace(4 * step_s, max_lag_s, 30):
        for fast in (0.0, *np.geomspace(0.5 * step_s, slow / 3, 20)):
            of_slow = np.exp(-lags * step_s / slow)
            of_fast = np.exp(-lags * step_s / fast) if fast > 0 else np.zeros(len(lags))
            apart = of_slow - of_fast
            share = float(np.clip((found - of_fast) @ apart / (apart @ apart), 0, 1))
            error = float(np.sum((found - share * of_slow - (1 - share) * of_fast) ** 2))
            if error < best[0]:
                best = (error, Scales(float(slow), float(fast), share))
    return best[1]


def quantiles(values: Values, probabilities: Sequence[float], unit: str) -> str:
    """The quantile table of some values; a share of zeros is kept exactly."""
    zeros = float(np.mean(values <= 0))
    points = [(0.0, float(values.min()))]
    if zeros > 0:
        points = [(0.0, 0.0), (round(zeros, 4), 0.0)]
    points += [(p, float(np.quantile(values, p))) for p in probabilities if p > zeros + 0.005]
    if zeros == 1:
        points[-1] = (0.999, 0.0)
    points.append((1.0, max(float(values.max()), 0.001)))
    return "[" + ", ".join(f'[{p:g}, "{value:.4g}{unit}"]' for p, value in points) + "]"


def flights_of(values: Values, min_s: float = FLIGHT_S / 2) -> list[Values]:
    """Pieces of about ten minutes; one of less than `min_s` seconds is left out."""
    count = max(1, round(len(values) / FLIGHT_S))
    pieces = np.array_split(values, count)
    return [piece for piece in pieces if len(piece) >= min_s]


def thinned(flights: list[Flight], count: int = MAX_FLIGHTS) -> list[Flight]:
    """At most `count` of the flights, from the worst to the best, evenly by the time that they took."""
    ordered = sorted(flights, key=lambda flight: flight.score)
    if len(ordered) <= count:
        return ordered
    ends_s = np.cumsum([flight.seconds for flight in ordered])
    at_s = (np.arange(count) + 0.5) / count * ends_s[-1]
    return [ordered[int(place)] for place in np.searchsorted(ends_s, at_s)]


def runs_of(flags: npt.NDArray[np.bool_]) -> list[int]:
    """Lengths of the runs of true values."""
    edges = np.diff(np.concatenate(([0], flags.astype(int), [0])))
    return [int(length) for length in np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)]


def with_service(values: Values) -> Values:
    """The rates of the seconds with any service, NaN in the others."""
    return np.where(values > 0, values, np.nan)


def service_outages(gone: Sequence[npt.NDArray[np.bool_]]) -> list[list[str]]:
    """Lines of the outages of flights, of which each has the seconds without any service.

    Lengths are a flight's own where it has `MIN_OWN_OUTAGES`, or is down for most of the time, else those of all
    others together. The number is a flight's own and half an outage at the rate of all, so that a short flight
    without one is not safe for ever. Starts are at exponential intervals that give this number, though an outage may
    outlast an interval.
    """
    own = [[length + EDGES_S for length in runs_of(flags)] for flags in gone]
    is_dark = [2 * sum(lengths) > len(flags) for lengths, flags in zip(own, gone, strict=True)]
    lit = [at for at, dark in enumerate(is_dark) if not dark]
    pooled = [length for at in lit for length in own[at]]
    if not pooled:
        return [[] for _ in gone]
    per_s = len(pooled) / sum(len(gone[at]) for at in lit)
    found = []
    for lengths, flags, dark in zip(own, gone, is_dark, strict=True):
        used = np.array(lengths if dark or len(lengths) >= MIN_OWN_OUTAGES else pooled, dtype=np.float64)
        number = len(lengths) / len(flags) if dark else (len(lengths) + 0.5) / (len(flags) + 0.5 / per_s)
        found.append(
            [
                f'outage.interval = {{ mean = "{start_interval(used, 1 / number):.4g}s" }}',
                f"outage.length = {length_quantiles(used.tolist())}",
            ]
        )
    return found


def start_interval(lengths_s: Values, cycle_s: float) -> float:
    """Mean of the exponential interval T between starts of outages for which `E[max(T, L)]` is `cycle_s`."""
    low, high = 0.1, cycle_s
    for _ in range(60):
        middle = (low + high) / 2
        # E[max(T, L)] = E[L] + E[T] E[exp(-L / E[T])]
        if float(np.mean(lengths_s + middle * np.exp(-lengths_s / middle))) > cycle_s:
            high = middle
        else:
            low = middle
    return high


def rate(values: Values, scales: Scales, more: str = "") -> str:
    """A rate process with the quantiles of the finite `values` (Mbit/s); of none, any rate does."""
    known = values[np.isfinite(values)]
    if not known.size:
        known = np.array([1.0])
    return f"{{ process = {quantiles(known, PROBABILITIES, 'Mbit/s')}, {scales.keys()}{more} }}"


def carried(values: Values) -> float:
    """Share of seconds that carry the video, and the mean as a tie-breaker."""
    return float(np.mean(values >= VIDEO_MBPS)) + 1e-6 * float(values.mean())


def column(text: str, name: str) -> Values:
    """A column of a CSV file; empty fields are NaN."""
    rows = csv.DictReader(io.StringIO(text))
    return np.array([float(row[name] or "nan") for row in rows])


def stalls(probes: Probes) -> tuple[list[float], npt.NDArray[np.bool_]]:
    """Peaks of round trips that fall with slope -1, in ms above the median, and the probes in them."""
    inside = np.zeros(len(probes.rtts), dtype=np.bool_)
    lengths: list[float] = []
    usual = float(np.nanmedian(probes.rtts))
    index = 0
    while index < len(probes.rtts):
        peak = probes.rtts[index] - usual
        if not peak > STALL_MS:
            index += 1
            continue
        # Probes sent during the same standstill return together: arrivals within 50 ms.
        arrival = probes.times[index] * 1e3 + probes.rtts[index]
        after = index + 1
        while (
            after < len(probes.rtts) and abs(probes.times[after] * 1e3 + probes.rtts[after] - arrival) < 50 + 0.1 * peak
        ):
            after += 1
        lengths.append(float(peak))
        inside[index:after] = True
        index = after
    return lengths, inside


def outages(rtts: Values, shortest: int) -> list[int]:
    """Lengths of the runs of at least `shortest` lost probes."""
    return [length for length in runs_of(np.isnan(rtts)) if length >= shortest]


def interval_line(table: str, count: int, seconds: float) -> str:
    """The interval of spans seen `count` times in `seconds`; half a span more, as some saw none."""
    return f'{table}.interval = {{ mean = "{seconds / (count + 0.5):.4g}s" }}'


def length_quantiles(lengths_s: Sequence[float]) -> str:
    """The quantile table of lengths of spans."""
    values = np.array(sorted(lengths_s))
    return f"{{ quantiles = {quantiles(values, (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98), 's')} }}"


def delays_of(groups: Sequence[Probes], step_s: float, outage_probes: int = 3) -> Family:
    """Flights of base delay, jitter, stalls and loss; each direction has half the round trip.

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
    """Rates and delays that were not measured together, in an order without relation."""
    delays = thinned(delays, len(rates))
    shuffled = [delays[index] for index in np.random.default_rng(1).permutation(len(delays))]
    return [
        Flight(f"{own.name}; {delay.name}", own.score, own.seconds, own.lines + delay.lines)
        for own, delay in ((own, shuffled[index % len(shuffled)]) for index, own in enumerate(rates))
    ]


def drone(folder: Path, environment: str, operator: str) -> Family:
    """Flights of a drone on LTE; delay and handovers are those of the family."""
    read = {
        way: column(
            (folder / f"imc22_drone_lte/{environment}_{operator}_{way}link.csv").read_text(),
            "rate [Mbit/s]",
        )
        for way in ("up", "down")
    }
    flights = {way: flights_of(values) for way, values in read.items()}
    scales = {way: time_scales(pieces, 1.0, 120.0) for way, pieces in flights.items()}
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
    for number, (up, down) in enumerate(zip(ordered["up"], ordered["down"], strict=False)):
        lines = [f"uplink.rate = {rate(up, scales['up'])}"]
        lines.append(f"downlink.rate = {rate(down, scales['down'])}")
        name = f"window {number + 1} by rank"
        found.append(Flight(name, carried(up) + carried(down), len(up), lines))
    common = [f"uplink.delay = {delay}", f"downlink.delay = {delay}"]
    return Family(found, [*common, drone_handovers(folder, environment)])


def drone_handovers(folder: Path, environment: str) -> str:
    """Handovers of the flights in an environment, in the air and on the ground alike."""
    rows = list(csv.reader((folder / "imc22_drone_lte/handovers.csv").open()))[1:]
    intervals: list[float] = []
    durations: list[float] = []
    flights = sorted({row[0] for row in rows if row[0].lower().startswith(environment)})
    for flight in flights:
        own = [row for row in rows if row[0] == flight]
        starts = np.array([float(row[1]) for row in own])
        intervals += [float(value) for value in np.diff(starts) if value > 0]
        durations += [float(row[2]) / 1e3 for row in own if row[2]]
    phases = hyperexponential(np.array(intervals))
    listed = ", ".join(f'{{ weight = {weight:.3f}, mean = "{mean:.4g}s" }}' for weight, mean in phases)
    table = quantiles(np.array(durations), (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.98, 0.99), "s")
    return (
        f"handover = {{ interval = {{ exponentials = [{listed}] }}, "
        f'interruption = {{ quantiles = {table} }}, at_least = "50ms" }}'
    )


def hyperexponential(intervals: Values, phases: int = 3) -> list[tuple[float, float]]:
    """Weights and means of a mixture of exponentials, by expectation and maximisation."""
    weights = np.full(phases, 1 / phases)
    means = np.quantile(intervals, (np.arange(phases) + 0.5) / phases) + 1e-3
    for _ in range(500):
        density = weights / means * np.exp(-intervals[:, None] / means)
        share = density / density.sum(axis=1, keepdims=True)
        weights = share.mean(axis=0)
        means = (share * intervals[:, None]).sum(axis=0) / share.sum(axis=0)
    return [(float(weight), float(mean)) for weight, mean in zip(weights, means, strict=True)]


def conext(folder: Path, name: str) -> list[tuple[str, Values]]:
    """Windows of capacity down that one of the four networks had, each within a drive without gaps."""
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
    """Round trips of three carriers, in groups of some bursts of 30 s that follow one another."""
    found = []
    for carrier in PAM_CARRIERS:
        root = folder / "pam2025_multicarrier_ping" / "trip2_05_13_2023" / "app" / carrier
        read = [read_ping(path) for path in root.rglob("*.out")]
        read.sort(key=lambda burst: burst.start_epoch_ms)
        for start in range(0, len(read), bursts):
            rtts = [rtt for burst in read[start : start + bursts] for rtt in burst.rtts_ms]
            values = np.array([np.nan if rtt is None else rtt for rtt in rtts])
            times = np.arange(len(values), dtype=np.float64) * 0.2
            found.append(Probes(f"{carrier}, bursts from {start + 1}", times, values))
    return found


def lte_car(folder: Path) -> Family:
    """Cars in the USA: capacity of three carriers, round trips of three carriers."""
    windows = [window for name in ("att", "tmobile", "verizon") for window in conext(folder, name)]
    return road(windows, delays_of(pam(folder), 0.2))


def road(windows: Sequence[tuple[str, Values]], delays: Family) -> Family:
    """Flights of measured capacity down, of which the uplink has half."""
    return Family(paired(thinned(one_way(windows, 0.5)), delays.flights), delays.common)


def one_way(windows: Sequence[tuple[str, Values]], up_share: float) -> list[Flight]:
    """Flights of measured capacity down, of which the uplink has a share."""
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
    """Cars on 5G: capacity in Ireland, control messages in China."""
    windows = []
    with zipfile.ZipFile(folder / "aux_uccmisl_5g/5G-production-dataset.zip") as archive:
        names = sorted(name for name in archive.namelist() if "Download/Driving" in name)
        for name in (name for name in names if name.endswith(".csv")):
            values = column(archive.read(name).decode("latin-1"), "DL_bitrate") * 1e-3
            values = values[np.isfinite(values)]
            pieces = flights_of(values) if len(values) >= FLIGHT_S / 2 else []
            stem = Path(name).stem
            windows += [(f"{stem}, part {part + 1}", piece) for part, piece in enumerate(pieces)]
    runs = []
    for path in sorted((folder / "cicv5g_rtt").rglob("*.txt")):
        if path.name == "SOURCE.txt" or path.parent.name == "rural":
            continue
        table = np.genfromtxt(path, skip_header=1, usecols=(0, 2))
        times = (table[:, 0] - table[0, 0]) / 1e3
        runs.append(Probes(path.stem, times, table[:, 1]))
    runs = [run for run in runs if np.median(np.diff(run.times)) < 0.08]
    return road(windows, delays_of(runs, 0.055))


def starlink_delay(folder: Path) -> list[Flight]:
    """Flights of Starlink's round trip at a ship: steps of the epochs, jitter within, loss in seconds."""
    rtts, drops = read_dish(folder)
    flights = []
    windows = [np.arange(len(rtts))[i : i + FLIGHT_S] for i in range(0, len(rtts), FLIGHT_S)]
    windows = [window for window in windows if len(window) == FLIGHT_S]
    inner: list[Values] = []
    parts: list[tuple[float, Values, Values, Values]] = []
    for window in windows:
        own = rtts[window]
        usable = np.where(np.isfinite(own) & (own > 0), own, np.nanmedian(own))
        epochs = usable.reshape(-1, 15)
        levels = np.quantile(epochs, 0.2, axis=1)
        base = float(levels.min())
        jitter = np.maximum(epochs - levels[:, None], 0).ravel()
        inner.append(jitter)
        parts.append((base, levels - base, jitter, drops[window]))
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
    """Round trip in ms and share of lost probes of a Starlink dish, second by second."""
    names = ["dish_status.pop_ping_latency_ms", "dish_status.pop_ping_drop_rate"]
    files = sorted((folder / "fjordlink" / "starlink_2025-01-09").glob("*.parquet.gzip"))
    columns = ["@timestamp", *names]
    table = pl.concat([pl.read_parquet(file, columns=columns) for file in files])
    rtts, drops = (table.sort("@timestamp")[name].to_numpy() for name in names)
    return rtts, np.nan_to_num(drops)


def starlink_rates(folder: Path, moving: bool) -> list[Flight]:
    """Capacity of Starlink dishes on a car, in both directions where they were measured together."""
    text = (folder / "osnabrueck_mobile_starlink/road/iperf.csv").read_text()
    down, up = column(text, "download_mbps"), column(text, "upload_mbps")
    speed = column(text, "average_speed")
    keep = np.isfinite(down) & np.isfinite(up) & ((speed > 5) if moving else (speed < 1))
    down, up = down[keep], up[keep]
    pieces = list(zip(flights_of(down), flights_of(up), strict=True))
    names = [f"road, part {part + 1}" for part in range(len(pieces))]
    if moving:
        text = (folder / "osnabrueck_mobile_starlink/autobahn/throughput.csv").read_text()
        down, up = column(text, "download"), column(text, "upload")
        known = np.isfinite(down) & np.isfinite(up)
        more = list(zip(flights_of(down[known]), flights_of(up[known]), strict=True))
        names += [f"motorway, part {part + 1}" for part in range(len(more))]
        pieces += more
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
    """Starlink on cars: in Germany both directions, in the USA down, of which the uplink has its share."""
    german = starlink_rates(folder, moving=True)
    american = one_way(conext(folder, "starlink"), 0.075)
    rates = thinned(thinned(german, len(german) * 2 // 3) + american)
    return Family(paired(rates, thinned(starlink_delay(folder))), RECONFIGURATION)


def starlink_ship(folder: Path) -> Family:
    """Starlink at sea: round trip and loss of a ship, capacity of a dish that stands."""
    rates = thinned(starlink_rates(folder, moving=False))
    return Family(paired(rates, thinned(starlink_delay(folder))), RECONFIGURATION)


@dataclass(frozen=True)
class Recipe:
    """How a family is fitted.

    spread: geometric standard deviation of a run's factor on the rates. sources: lines of the file's head.
    """

    title: str
    fit: Callable[[Path], Family]
    spread: str
    sources: str


def drone_recipe(environment: str, operator: str, place: str) -> Recipe:
    """The recipe of the flights of one operator in one environment."""
    sources = f"""
rates and handovers: {environment} flights of operator {operator.upper()} near Munich (Baltaci, Cech et al., IMC 2022),
windows of ten minutes, on the ground and in the air; the directions are paired by rank. Delay:
one-way latency up of the testbed of Baltaci et al. 2023; that the way down has the same is assumed.
"""
    fit = partial(drone, environment=environment, operator=operator)
    return Recipe(f"LTE of a drone over {place}", fit, "1.3", sources)


LTE_CAR = """
rates down: AT&T, T-Mobile and Verizon in the USA, 2023 (Hu et al., CoNEXT 2023), windows of ten
minutes or less; that the way up has half is assumed (mahimahi's LTE: 0.41, 0.8, 1.2). Delay, stalls, outages
and loss: pings of the same carriers, Boston to Atlanta, 2023 (NUWiNS, PAM 2025), half the round trip
each way. Rates and delays were not measured together.
"""
NR_ROAD = """
rates down: an Irish operator, 2019/20 (Raca et al., MMSys 2020), windows of ten minutes; that the way
up has half is assumed. Delay and stalls: control messages from a car and back in China (Zhang et al.,
CICV5G, Zenodo 17475688), urban, arterial and weak coverage, half the round trip each way; a reliable
transport carried them, so that loss shows as delay. Rates and delays were not measured together.
"""
STARLINK_CAR = """
rates: a car in Germany, both directions (Laniewski et al., TMA 2024 and OJCOMS 2025), and a car in
the USA, down (Hu et al., CoNEXT 2023), whose way up is 0.075 of it, as the German medians are. Delay
and loss: a ship's dish (FjordLink), half the round trip each way. They were not measured together.
"""
STARLINK_SHIP = """
rates: a dish that stands, both directions (Laniewski et al., TMA 2024). Delay, loss and steps between
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
    """The preset of a family, as TOML."""
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
    """Write the presets; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fit the families of flights.")
    parser.add_argument("family", nargs="*", help="Name of a family (default: all).")
    parser.add_argument("--out", type=Path, default=PRESETS, help="Folder of the presets.")
    read = parser.parse_args(arguments)
    try:
        folder = measurement_folder()
        for name in read.family or FAMILIES:
            (read.out / f"{name}.toml").write_text(text_of(FAMILIES[name], FAMILIES[name].fit(folder)), encoding="utf-8")
            print(name)
    except (MissingMeasurementsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Laws of measured series: distribution, memory, stalls and outages, as `fit_presets.py` writes them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from skybraid.fit.process import fit_memory

FLIGHT_S = 600
MAX_FLIGHTS = 20
# Drives of less than ten minutes are flights of their own: the shortest ones cross the emptiest country.
MIN_DRIVE_S = 120
VIDEO_MBPS = 10.0
PROBABILITIES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)
TAIL = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
STALL_MS = 150.0
MIN_OWN_OUTAGES = 4
# An outage that begins at any time has as many whole seconds as those seen if it is one second longer.
EDGES_S = 1.0

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scales:
    """Time scales of a process, in seconds, and the share of the slow part."""

    slow: float
    fast: float
    slow_share: float

    def keys(self) -> str:
        """Formats the keys of the process."""
        return f'slow = "{self.slow:.3g}s", fast = "{self.fast:.3g}s", slow_share = {self.slow_share:.2f}'


@dataclass
class Flight:
    """Quantities measured together.

    score: share of seconds that carry the video, or of probes in time; flights are ordered by it.
    seconds: length of the measurement.
    """

    name: str
    score: float
    seconds: float
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Probes:
    """Round trips in order of sending: times in s, round trips in ms, NaN without reply."""

    name: str
    times: Values
    rtts: Values


def time_scales(flights: Sequence[Values], step_s: float, max_lag_s: float) -> Scales:
    """Returns the scales whose autocorrelation is closest to that within the flights."""
    memory = fit_memory(list(flights), step_s, max_lag_s)
    return Scales(memory.slow_s, memory.fast_s, memory.slow_share)


def quantiles(values: Values, probabilities: Sequence[float], unit: str) -> str:
    """Formats the quantile table of values; a share of zeros is kept exactly."""
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
    """Returns pieces of about ten minutes; pieces shorter than `min_s` are dropped."""
    count = max(1, round(len(values) / FLIGHT_S))
    pieces = np.array_split(values, count)
    return [piece for piece in pieces if len(piece) >= min_s]


def thinned(flights: list[Flight], count: int = MAX_FLIGHTS) -> list[Flight]:
    """Returns at most `count` flights, from worst to best, evenly spaced by duration."""
    ordered = sorted(flights, key=lambda flight: flight.score)
    if len(ordered) <= count:
        return ordered
    ends_s = np.cumsum([flight.seconds for flight in ordered])
    at_s = (np.arange(count) + 0.5) / count * ends_s[-1]
    return [ordered[int(place)] for place in np.searchsorted(ends_s, at_s)]


def runs_of(flags: npt.NDArray[np.bool_]) -> list[int]:
    """Returns the lengths of runs of true values."""
    edges = np.diff(np.concatenate(([0], flags.astype(int), [0])))
    return [int(length) for length in np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)]


def with_service(values: Values) -> Values:
    """Returns the rates of seconds with service, NaN in the others."""
    return np.where(values > 0, values, np.nan)


def service_outages(gone: Sequence[npt.NDArray[np.bool_]]) -> list[list[str]]:
    """Returns the lines of flights' outages, given the seconds without service.

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
    """Returns the mean of the exponential interval T between outages for which `E[max(T, L)]` is `cycle_s`."""
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
    """Formats a rate process with the quantiles of the finite `values` (Mbit/s), or any rate if there are none."""
    known = values[np.isfinite(values)]
    if not known.size:
        known = np.array([1.0])
    return f"{{ process = {quantiles(known, PROBABILITIES, 'Mbit/s')}, {scales.keys()}{more} }}"


def carried(values: Values) -> float:
    """Returns the share of seconds that carry the video, and the mean as a tie-breaker."""
    return float(np.mean(values >= VIDEO_MBPS)) + 1e-6 * float(values.mean())


def column(text: str, name: str) -> Values:
    """Returns a column of a CSV file; empty fields are NaN."""
    rows = csv.DictReader(io.StringIO(text))
    return np.array([float(row[name] or "nan") for row in rows])


def stalls(probes: Probes) -> tuple[list[float], npt.NDArray[np.bool_]]:
    """Returns peaks of round trips that fall with slope -1, in ms above the median, and the probes in them."""
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
    """Returns the lengths of runs of at least `shortest` lost probes."""
    return [length for length in runs_of(np.isnan(rtts)) if length >= shortest]


def interval_line(table: str, count: int, seconds: float) -> str:
    """Formats the interval of spans seen `count` times in `seconds`; half a span is added for flights without."""
    return f'{table}.interval = {{ mean = "{seconds / (count + 0.5):.4g}s" }}'


def length_quantiles(lengths_s: Sequence[float]) -> str:
    """Formats the quantile table of lengths of spans."""
    values = np.array(sorted(lengths_s))
    return f"{{ quantiles = {quantiles(values, (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98), 's')} }}"

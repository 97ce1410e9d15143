"""Goodness of fit: held-back flights against flights drawn from the fit and resampled from measured ones."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from skybraid.execute.pool import Gauge, on_all_cores
from skybraid.execute.runs import simulation
from skybraid.fit.draw import draw_flight, resample_flight
from skybraid.fit.link import fit_link, windows
from skybraid.fit.process import autocorrelation, normal_scores
from skybraid.model.heavy import np
from skybraid.model.scenario import Scenario
from skybraid.traces.flights import DIRECTIONS, Flight
from skybraid.traces.replay import path_lines, write_flight
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    import numpy.typing as npt

    from skybraid._core import FlowStats
    from skybraid.execute.pool import Report
    from skybraid.traces.measurement import Floats

RUN_S = 300.0
"""Maximum length in s of a flight run for a verdict: five minutes of Cubic. Held-back flights are cut into such pieces.
"""

MAX_PIECES = 20
"""Maximum number of held-back pieces run for verdicts."""

MIN_ROWS = 8
"""Minimum number of rows of a single flight for predicting one half from the other."""

VIDEO_MBPS = 10.0
CONTROL_MS = 300.0


_LAGS_S = (1.0, 5.0, 15.0)


class Range(NamedTuple):
    """Median and the interval that contains 95 % of the values."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Check:
    """One metric of flights: measured, resampled and fitted.

    Attributes:
        name: name of the metric.
        unit: of all values.
        measured: values of the held-back flights.
        resampled: values of flights resampled in blocks from these.
        fitted: values of flights drawn from the fit.
        is_verdict: whether the metric comes from running transports.
    """

    name: str
    unit: str
    measured: tuple[float, ...]
    resampled: Range
    fitted: Range
    is_verdict: bool = False

    @property
    def inside(self) -> int:
        """Returns the number of measured values within the interval of the fit."""
        slack = 1e-9 + 1e-6 * abs(self.fitted.high)
        return sum(self.fitted.low - slack <= value <= self.fitted.high + slack for value in self.measured)


@dataclass(frozen=True)
class Goodness:
    """All checks of a fit.

    Attributes:
        checks: metrics.
        split: sentence on which flights were fitted and which were held back.
        fitted: drawn flights, for the report.
        measured: held-back flights, for the report.
    """

    checks: tuple[Check, ...]
    split: str
    fitted: tuple[Flight, ...]
    measured: tuple[Flight, ...]


def held_back(
    flights: Sequence[Flight], draws: int = 40, runs: int = 40, progress: Callable[[float], None] | None = None
) -> Goodness:
    """Fits every other flight, or the first half of a single one, and compares the fit with the held-back rest.

    Args:
        flights: one or more flights.
        draws: number of flights drawn from the fit, and of resampled flights.
        runs: number of these flights run with transports; 0: none.
        progress: callback with the completed share.

    Raises:
        TraceError: a half is too short for a fit.
    """
    complete = [flight.without_gaps() for flight in flights]
    if len(complete) == 1 and len(complete[0].times_s) < MIN_ROWS:
        short = f"{len(complete[0].times_s)} rows in {complete[0].length_s:.3g} s"
        raise TraceError(
            f"{complete[0].name}: found {short}; expected {MIN_ROWS} at least, of which half are held back"
        )
    if len(complete) > 1:
        fitted_flights, held_flights = complete[::2], complete[1::2]
        split = (
            f"fitted to {len(fitted_flights)} of {len(complete)} flights, compared with the other {len(held_flights)}"
        )
    else:
        half_s = complete[0].length_s / 2
        fitted_flights, held_flights = [complete[0].part(0.0, half_s)], [complete[0].part(half_s, complete[0].length_s)]
        split = f"fitted to the first {half_s:.0f} s of the one flight, compared with the other {half_s:.0f} s"
    link = fit_link(fitted_flights)
    held_flights = windows(held_flights, RUN_S)
    if len(held_flights) > max(len(complete) // 2, 1):
        split += f" in {len(held_flights)} pieces"
    random = np.random.default_rng(1)
    length_s = float(np.median([flight.length_s for flight in held_flights]))
    fitted = [draw_flight(link, length_s, random) for _ in range(draws)]
    resampled = [resample_flight(held_flights, length_s, random) for _ in range(draws)]
    checks = _checks(
        [_metrics(one) for one in held_flights], [_metrics(one) for one in resampled], [_metrics(one) for one in fitted]
    )
    if runs:
        of_kept = [
            held_flights[int(at)] for at in np.linspace(0, len(held_flights) - 1, min(len(held_flights), MAX_PIECES))
        ]
        groups = (of_kept, resampled[:runs], fitted[:runs])
        found = iter(_run_all([pair for group in groups for pair in _pairs(group)], progress))
        checks += _checks(*([next(found) for _ in group] for group in groups), is_verdict=True)
    return Goodness(tuple(checks), split, tuple(fitted[:3]), tuple(held_flights))


def _pairs(group: Sequence[Flight]) -> list[tuple[Flight, Flight]]:
    """Returns each flight with a second path for duplicated control messages."""
    if len(group) == 1:
        return [(group[0], _second_half(group[0]))]
    return [(flight, group[at - 1]) for at, flight in enumerate(group)]


def _run_all(
    pairs: Sequence[tuple[Flight, Flight]], progress: Callable[[float], None] | None
) -> list[dict[str, float]]:
    gauge = Gauge(len(pairs), 1.0)

    def fly(job: tuple[int, tuple[Flight, Flight]]) -> dict[str, float]:
        number, pair = job
        report = gauge.reporter(number)
        found = verdicts(*pair, lambda _: report(0.0))
        report(1.0)
        return found

    return on_all_cores(fly, list(enumerate(pairs)), gauge, progress)


def verdicts(flight: Flight, other: Flight, report: Report) -> dict[str, float]:
    """Runs transports over a flight: single and duplicated control messages, video, and five minutes of Cubic.

    Args:
        flight: flight, of which the first five minutes are run.
        other: second path of duplicated control messages.
        report: progress callback of each run.
    """
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="skybraid-fit-") as name:
        folder = Path(name)
        length_s = min(RUN_S, flight.length_s, other.length_s)
        control = 'from = "ground"\ntraffic = { kind = "cbr", rate = "40kbit/s", packet = "100B" }\n'
        within = f'require = {{ deadline = "{CONTROL_MS:g}ms", share = "99.9%" }}\n'
        for label, paths, scheduler in (("single", [flight], "single"), ("doubled", [flight, other], "redundant")):
            transport = f'transport = {{ protocol = "udp", scheduler = "{scheduler}" }}\n'
            flow = f"[flow.control]\n{control}{transport}{within}"
            key = f"control within {CONTROL_MS:g} ms, {label}"
            found[key] = 100 * _share(_run(folder, paths, length_s, flow, report), CONTROL_MS)
        if flight.has("rate"):
            traffic = f'traffic = {{ kind = "cbr", rate = "{VIDEO_MBPS:g}Mbit/s", packet = "1200B" }}\n'
            flow = f'[flow.video]\nfrom = "{_sender(flight)}"\n{traffic}transport = {{ protocol = "udp" }}\n{within}'
            key = f"video of {VIDEO_MBPS:g} Mbit/s within {CONTROL_MS:g} ms"
            found[key] = 100 * _share(_run(folder, [flight], length_s, flow, report), CONTROL_MS)
            transport = 'transport = { protocol = "tcp", congestion = "cubic" }\n'
            flow = f'[flow.bulk]\nfrom = "{_sender(flight)}"\ntraffic = {{ kind = "bulk" }}\n{transport}'
            found["goodput of Cubic"] = _run(folder, [flight], length_s, flow, report).goodput_bps * 1e-6
    return found


def _sender(flight: Flight) -> str:
    return "vehicle" if flight.values("rate", "uplink") is not None else "ground"


def _share(stats: FlowStats, within_ms: float) -> float:
    met, trials = stats.met(within_ms)
    return met / trials if trials else float("nan")


def _run(folder: Path, flights: list[Flight], length_s: float, flow: str, report: Report) -> FlowStats:
    text = f'duration = "{length_s:.3f}s"\nseed = 1\n'
    for at, one in enumerate(flights):
        file = folder / f"path{at}.csv"
        write_flight(one, file)
        text += path_lines(one, file, f"path{at}")
    text += flow
    scenario = Scenario(text, str(folder / "flight.toml"))
    native, _ = simulation(scenario).make(1, [], report, None, None)
    return native.flow_stats()[0]


def _second_half(flight: Flight) -> Flight:
    """Returns the second half of a flight, as a second path if there is no second flight."""
    half_s = flight.length_s / 2
    return flight.part(half_s, flight.length_s)


def _metrics(flight: Flight) -> dict[str, float]:
    """Returns metrics of a flight: distribution, memory and durations."""
    found: dict[str, float] = {}
    for direction in DIRECTIONS:
        rate = flight.grid("rate", direction, 1.0)
        if rate is not None:
            for q in (0.05, 0.5, 0.95):
                found[f"{direction} rate, quantile {q:g} [Mbit/s]"] = float(np.nanquantile(rate, q))
            found |= _memory(f"{direction} rate", rate)
            low = rate < VIDEO_MBPS
            found[f"{direction} below {VIDEO_MBPS:g} Mbit/s [% of time]"] = 100 * float(low.mean())
            found[f"{direction} longest below {VIDEO_MBPS:g} Mbit/s [s]"] = float(_longest(low))
    for direction in DIRECTIONS:
        delay = flight.values("delay", direction)
        if delay is None or (direction == "downlink" and flight.values("delay", "uplink") is delay):
            # Half a round trip is the delay of both directions.
            continue
        label = f"{direction} delay"
        known = delay[np.isfinite(delay)]
        if known.size:
            for q in (0.5, 0.95, 0.99):
                found[f"{label}, quantile {q:g} [ms]"] = float(np.quantile(known, q))
        found |= _memory(label, flight.grid("delay", direction, 1.0))
        late = ~(delay <= CONTROL_MS)
        found[f"{label} over {CONTROL_MS:g} ms or lost [% of time]"] = 100 * float(
            np.average(late, weights=np.diff(flight.times_s, append=flight.length_s))
        )
    return found


def _memory(label: str, seconds: Floats | None) -> dict[str, float]:
    if seconds is None:
        return {}
    scores = normal_scores(seconds)
    known = autocorrelation([scores], [int(lag_s) for lag_s in _LAGS_S])
    return {
        f"{label}, correlation after {lag_s:g} s []": float(value) for lag_s, value in zip(_LAGS_S, known, strict=True)
    }


def _longest(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _checks(
    measured: list[dict[str, float]],
    resampled: list[dict[str, float]],
    fitted: list[dict[str, float]],
    *,
    is_verdict: bool = False,
) -> list[Check]:
    names = [name for name in measured[0] if all(name in one for one in (*measured, *resampled[:1], *fitted[:1]))]
    found = []
    for name in names:
        title, _, unit = name.partition(" [")
        values = tuple(one[name] for one in measured if np.isfinite(one[name]))
        ranges = [_range([one[name] for one in group if name in one]) for group in (resampled, fitted)]
        if values and None not in ranges:
            unit = "Mbit/s" if name.startswith("goodput") else "%" if is_verdict else unit.removesuffix("]")
            found.append(Check(title, unit, values, ranges[0], ranges[1], is_verdict))  # type: ignore[arg-type]
    return found


def _range(values: list[float]) -> Range | None:
    known = [value for value in values if np.isfinite(value)]
    return Range(*map(float, range_of_next(known))) if known else None


def range_of_next(draws: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns lower end, middle and upper end of the interval that contains the next draw with 95 % probability.

    After n draws, the next one is below the k-th smallest with probability k / (n + 1) (Weibull 1939).

    Args:
        draws: draws of one quantity, shape (n,), or of m, shape (n, m); NaN are ignored.

    Returns:
        Array of shape (3,) or (3, m).
    """
    return np.asarray(np.nanquantile(np.asarray(draws, float), [0.025, 0.5, 0.975], axis=0, method="weibull"))

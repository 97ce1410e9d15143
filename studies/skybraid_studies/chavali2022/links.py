"""Calculations about links of the study of Chavali (2022), with the links of simulation and emulation."""

from __future__ import annotations

import math
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tomli_w

from skybraid import traces
from skybraid._core import Link, causes
from skybraid_studies.engine.theory import calculation

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROOT = Path(__file__).parents[3]
BASE = Path(__file__).parent / "scenarios" / "table-5-1.toml"
"""The study's scenario."""

FAST = '{way}.rate = "10Gbit/s"\n{way}.queue = "unlimited"\n'

GMM = ((0.8383, 1.9681, 0.2484), (0.1214, 3.9050, 0.9414), (0.0174, 203.1832, 21.2318), (0.0095, 9.3879, 5.6246))
"""Table 4.1: weight, mean and standard deviation in ms, the largest weight first."""

OUTLIER_MS = 250.0
"""Length in ms above which interruptions were excluded from the fit."""


def admitted(
    toml: str, times_s: NDArray[np.floating], size: int, direction: str = "uplink", seed: int = 1, base: str = "."
) -> NDArray[np.float64]:
    """Returns the arrival times in s of packets of one size; NaN if lost."""
    sizes = np.full(len(times_s), size, dtype=np.uint32)
    return Link(toml, direction, seed, base).admit(times_s.astype(np.float64), sizes)[0]


def _both(text: str) -> str:
    return text.format(way="uplink") + text.format(way="downlink")


# Handovers.


@cache
def interruptions_ms(seed: int, count: int = 20_000) -> NDArray[np.float64]:
    """Returns the interruptions of a link in ms: a packet arrives at the start of each and leaves at its end."""
    toml = _both(FAST) + 'handover = { interval = "1s", interruption = { mixture = "lte-aerial" } }\n'
    begun_s = np.arange(1, count + 1) + 1e-6
    return (admitted(toml, begun_s, 40, seed=seed) - begun_s) * 1e3


def mixture_cdf(x: NDArray[np.float64], components: int = len(GMM)) -> NDArray[np.float64]:
    """Returns the distribution of Table 4.1 at `x`: its heaviest components, weights normalised, truncated at zero."""
    chosen = GMM[:components]
    whole = sum(weight for weight, _, _ in chosen)

    def normal(at: NDArray[np.float64], mean: float, sd: float) -> NDArray[np.float64]:
        return np.array([0.5 * (1 + math.erf((each - mean) / sd / math.sqrt(2))) for each in at])

    total = np.zeros(len(x))
    for weight, mean, sd in chosen:
        below = normal(np.zeros(1), mean, sd)[0]
        total += weight / whole * (normal(x, mean, sd) - below) / (1 - below)
    return total


@calculation("chavali.interruption_distance")
def interruption_distance(x: float, seed: int) -> float:
    """Returns the Kolmogorov-Smirnov distance between a link's interruptions below 250 ms and `x` components."""
    found = np.sort(interruptions_ms(seed))
    found = found[found < OUTLIER_MS]
    wanted = mixture_cdf(found, round(x)) / mixture_cdf(np.array([OUTLIER_MS]), round(x))
    steps = np.arange(len(found) + 1) / len(found)
    return float(max(np.abs(steps[1:] - wanted).max(), np.abs(steps[:-1] - wanted).max()))


@calculation("chavali.interruption_mean")
def interruption_mean(_x: float, seed: int) -> float:
    """Returns the mean of a link's interruptions in ms."""
    return float(interruptions_ms(seed).mean())


@calculation("chavali.interruption_sd")
def interruption_sd(_x: float, seed: int) -> float:
    """Returns the standard deviation of a link's interruptions in ms."""
    return float(interruptions_ms(seed).std())


_HANDOVER = """
uplink = {{ rate = "12Mbit/s", delay = "10ms", queue = {{ packets = 50 }} }}
downlink.rate = "12Mbit/s"
handover = {{ interval = "5s", at_least = "1s", interruption = "{ms}ms" }}
"""


def _halted(x: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns times and arrivals in s of packets of 1500 B at 80 % of the rate, around a handover of `x` ms at 5 s."""
    times_s = np.arange(4.0, 8.0, 0.00125)
    return times_s, admitted(_HANDOVER.format(ms=f"{x:g}"), times_s, 1500, seed=seed)


@calculation("chavali.handover_gap")
def handover_gap(x: float, seed: int) -> float:
    """Returns the maximum time in ms between arrivals; 1.25 ms are the packet interval and 1 ms is a service time."""
    _, arrivals_s = _halted(x, seed)
    return float(np.diff(arrivals_s[np.isfinite(arrivals_s)]).max() * 1e3)


@calculation("chavali.handover_lost")
def handover_lost(x: float, seed: int) -> float:
    """Returns the number of packets lost to a handover of `x` ms, one per 1.25 ms, with a queue of 50."""
    return float(np.isnan(_halted(x, seed)[1]).sum())


@calculation("chavali.handover_delay")
def handover_delay(x: float, seed: int) -> float:
    """Returns the maximum delay in ms beyond that of a packet without a handover."""
    times_s, arrivals_s = _halted(x, seed)
    return float(np.nanmax(arrivals_s - times_s) * 1e3 - 11.0)


# DRX and HARQ.

_DRX = (
    _both(FAST)
    + """
drx = {{ inactivity = "200ms", short_cycle = "6ms", short_for = "2298ms", long_cycle = "12ms", long_for = "7848ms",
  listen = "1ms", paging_cycle = "50ms", setup = "70ms", ramp_from = "5Mbit/s", ramp_for = "500ms" }}
""".replace("\n  ", " ")
    .replace("{{", "{")
    .replace("}}", "}")
)


@cache
def _waits_ms(silence_s: float, direction: str, seed: int) -> NDArray[np.float64]:
    """Returns the waits in ms of packets that end silences of a given length, at any phase of a cycle."""
    draws = np.random.default_rng(seed)
    times_s = np.cumsum(silence_s + draws.uniform(0.0, 0.05, 4000))
    return (admitted(_DRX, times_s, 40, direction, seed) - times_s)[1:] * 1e3


@calculation("chavali.drx_down")
def drx_down(x: float, seed: int) -> float:
    """Returns the mean wait in ms of a downlink packet after `x` s of silence."""
    return float(_waits_ms(x, "downlink", seed).mean())


@calculation("chavali.drx_up")
def drx_up(x: float, seed: int) -> float:
    """Returns the mean wait in ms of an uplink packet after `x` s of silence."""
    return float(_waits_ms(x, "uplink", seed).mean())


@calculation("chavali.drx_longest")
def drx_max(x: float, seed: int) -> float:
    """Returns the maximum wait in ms of a downlink packet after `x` s of silence."""
    return float(_waits_ms(x, "downlink", seed).max())


@calculation("chavali.drx_ramp")
def drx_ramp(x: float, seed: int) -> float:
    """Returns the data in Mbit carried by an uplink of 40 Mbit/s in the `x` s after an idle connection resumes."""
    toml = _DRX.replace("10Gbit/s", "40Mbit/s")
    times_s = np.concatenate([[1.0], np.full(4000, 20.0)])
    arrivals_s = admitted(toml, times_s, 1500, seed=seed)[1:]
    return float((arrivals_s <= 20.0 + 0.070 + x).sum()) * 1500 * 8e-6


@calculation("chavali.harq")
def harq(x: float, seed: int) -> float:
    """Returns statistic `x` of a link with a concealed loss of 0.5 %.

    1: lost packets. 2: packets that overtook another. 3: share of repeated packets in %. 4: their median delay in ms.
    """
    toml = _both(FAST) + 'uplink.harq = { loss = "0.5%", round_trip = "8ms", catch_up = "1Gbit/s" }\n'
    times_s = np.arange(200_000) * 0.01
    arrivals_s = admitted(toml, times_s, 1500, seed=seed)
    late_ms = (arrivals_s - times_s) * 1e3
    repeated = late_ms > 4.0
    answers = (
        float(np.isnan(arrivals_s).sum()),
        float((np.diff(arrivals_s) < 0).sum()),
        100 * float(repeated.mean()),
        float(np.median(late_ms[repeated])),
    )
    return answers[round(x) - 1]


@calculation("chavali.harq_order")
def harq_order(_x: float, seed: int) -> float:
    """Returns the number of packets that overtook another with 0.1 ms between packets: many wait for a repeated one."""
    toml = _both(FAST) + 'uplink.harq = { loss = "0.5%", round_trip = "8ms", catch_up = "1Gbit/s" }\n'
    return float((np.diff(admitted(toml, np.arange(200_000) * 1e-4, 1500, seed=seed)) < 0).sum())


# Links of Table 5.1.


@calculation("chavali.lte_down")
def lte_down(x: float, seed: int) -> float:
    """Returns a measurement of LTE's downlink, see `_measured`."""
    return _measured("lte", "downlink", round(x), seed)


@calculation("chavali.lte_up")
def lte_up(x: float, seed: int) -> float:
    """Returns a measurement of LTE's uplink, see `_measured`."""
    return _measured("lte", "uplink", round(x), seed)


@calculation("chavali.satcom_down")
def satcom_down(x: float, seed: int) -> float:
    """Returns a measurement of the satellite's downlink, see `_measured`."""
    return _measured("satcom", "downlink", round(x), seed)


def _measured(path: str, way: str, number: int, seed: int) -> float:
    """Measures a link of the study's scenario with packets; returns quantity `number`.

    1: rate in Mbit/s including headers. 2: one-way delay in ms. 3: loss in %. 4: concealed loss in %. 5: queue capacity
    in packets, including the one in service.
    """
    table = tomllib.loads(BASE.read_text(encoding="utf-8"))["path"][path]
    own = {key: table.get(key) for key in ("rate", "delay", "overhead")} | table.get(way, {})
    on_wire = 1500 + int(str(own.get("overhead") or "0B").removesuffix("B"))
    toml = tomli_w.dumps(table)
    if number in (1, 5):
        # A burst fills the queue at once, and its packets leave at the link's rate.
        link = Link(toml, way, seed)
        arrivals_s, lost = link.admit(np.full(3000, 0.001), np.full(3000, 1500, dtype=np.uint32))
        if number == 5:
            return float((lost != causes().index("queue")).sum())
        return on_wire * 8e-6 / float(np.median(np.diff(arrivals_s[np.isfinite(arrivals_s)])))
    times_s = np.arange(1_000_000) * 0.01
    arrivals_s = admitted(toml, times_s, 1500, way, seed)
    late_ms = (arrivals_s - times_s) * 1e3
    if number == 2:
        rate_mbps = float(str(own["rate"]).removesuffix("Mbit/s"))
        return float(np.nanmedian(late_ms)) - on_wire * 8e-3 / rate_mbps
    if number == 3:
        return 100 * float(np.isnan(arrivals_s).mean())
    return 100 * float(np.nanmean(late_ms > np.nanmedian(late_ms) + 4.0))


# Delays from other sources.

_TRACED = """
uplink = { rate = "10Gbit/s", delay = { trace = "rtt.csv", format = "hypatia" } }
downlink = { rate = "10Gbit/s", delay = { trace = "rtt.csv", format = "hypatia" } }
"""


def _hypatia_ns(seed: int, seconds: int = 200) -> NDArray[np.int64]:
    """Returns a round trip in ns per 100 ms: slow changes, and steps of up to 20 ms at satellite handovers."""
    draws = np.random.default_rng(seed)
    at_s = np.arange(seconds * 10) / 10
    steps = np.repeat(draws.uniform(-10e6, 10e6, seconds // 10), 100)
    return (40e6 + 5e6 * np.sin(at_s / 15) + steps).astype(np.int64)


@calculation("chavali.hypatia")
def hypatia(x: float, seed: int) -> float:
    """Returns statistic `x` of a link that replays a series of round trips.

    1: mean ratio of the sum of both directions to the current round trip. 2: their maximum difference in ms. 3: mean
    difference in ms between half the round trip and its mean over each second; 4: its median over each second,
    truncated to ms.
    """
    rtt_ns = _hypatia_ns(seed)
    if round(x) > 2:
        one_way = rtt_ns.reshape(-1, 10) / 2e6
        each = one_way.mean(axis=1) if round(x) == 3 else np.floor(np.median(one_way, axis=1))
        return float((one_way - each[:, None]).mean())
    with tempfile.TemporaryDirectory() as folder:
        lines = (f"0,{number * 100_000_000},{value}\n" for number, value in enumerate(rtt_ns))
        (Path(folder) / "rtt.csv").write_text("".join(lines), encoding="utf-8")
        times_s = np.arange(len(rtt_ns)) / 10 + 0.05
        there, back = (admitted(_TRACED, times_s, 40, way, seed, folder) - times_s for way in ("uplink", "downlink"))
    both_ms = (there + back) * 1e3
    return float((both_ms / (rtt_ns / 1e6)).mean()) if round(x) == 1 else float(np.abs(both_ms - rtt_ns / 1e6).max())


_STARLINK = ("starlink_leocc/delay_42min.csv", "starlink_fjordlink/vessel_8h.csv")
"""Starlink measurements that are shipped: half of round trips."""


@calculation("chavali.starlink")
def starlink(x: float, _seed: int) -> float:
    """Returns the mean round trip in ms over Starlink in measurement `x`; NaN if it is missing."""
    file = _ROOT / "traces" / _STARLINK[round(x) - 1]
    return 2 * traces.stats(traces.read(file, column="delay")).mean if file.exists() else math.nan

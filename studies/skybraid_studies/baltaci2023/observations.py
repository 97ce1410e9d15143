"""Observations and calculations of the study of Baltaci et al. (2023): remote piloting over LTE and Starlink."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from skybraid._core import Link, read_trace
from skybraid.model.errors import SkybraidError
from skybraid.video import shown
from skybraid.video.flows import MODEL, encoded
from skybraid_studies.baltaci2023.as_published import mapping_rtts
from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, Seen, observation, quantile
from skybraid_studies.engine.readings import measurements
from skybraid_studies.engine.theory import calculation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded

    Array = NDArray[np.float64]

_BINS_S = 1.0
"""Bins of the retransmission rate; the article does not give theirs."""


# Round-trip times and retransmissions of the connection.


def data_rtts(seen: Seen, flow: str, back: str) -> tuple[Array, Array]:
    """When a flow's messages were written, in s, and the round-trip time of each at the level of the connection, in ms.

    That is the time from writing a message to its delivery in order, and the way back of an acknowledgement at that
    moment on the path that completed it: what its link's direction `back` then delays, and the queue before it.
    """
    arrived = seen.messages(flow).filter(pl.col("delivered_ns").is_not_null(), pl.col("path").is_not_null())
    sent = arrived["sent_ns"].to_numpy()
    delivered = arrived["delivered_ns"].to_numpy()
    paths = arrived["path"].cast(pl.String).to_numpy()
    total = (delivered - sent) * MS_PER_NS
    for path in np.unique(paths):
        rows = seen.table("links").filter(pl.col("path") == str(path), pl.col("direction") == back)
        rate = rows["rate_bps"].cast(pl.Float64).to_numpy()
        waits = np.divide(8e3 * rows["queue_bytes"].to_numpy(), rate, out=np.zeros_like(rate), where=rate > 0)
        ways = rows["delay_ns"].cast(pl.Float64).fill_null(0.0).to_numpy() * MS_PER_NS + waits
        own = paths == path
        place = np.searchsorted(rows["time_ns"].to_numpy(), delivered[own], side="right") - 1
        total[own] += ways[np.maximum(place, 0)]
    return sent / NS_PER_S, total


@observation("data_rtt_mean", "messages", "links")
def data_rtt_mean(seen: Seen, flow: str, back: str = "uplink") -> float:
    """Mean round-trip time in ms at the level of the connection, see `data_rtts`."""
    _, found = data_rtts(seen, flow, back)
    return float(found.mean()) if found.size else math.nan


@observation("data_rtt_quantile", "messages", "links")
def data_rtt_quantile(seen: Seen, flow: str, q: float, back: str = "uplink") -> float:
    """What a share `q` of these round-trip times does not exceed, in ms."""
    return quantile(data_rtts(seen, flow, back)[1], q)


@observation("data_rtt_peak", "messages", "links")
def data_rtt_peak(seen: Seen, flow: str, back: str = "uplink") -> float:
    """The largest of these round-trip times in ms."""
    _, found = data_rtts(seen, flow, back)
    return float(found.max()) if found.size else math.nan


@observation("data_rtt_share", "messages", "links")
def data_rtt_share(seen: Seen, flow: str, above_ms: float, back: str = "uplink") -> float:
    """Share of these round-trip times, in %, above `above_ms`."""
    _, found = data_rtts(seen, flow, back)
    return 100 * float(np.mean(found > above_ms)) if found.size else math.nan


def data_resent(seen: Seen, flow: str, copies: int) -> tuple[Array, Array]:
    """Bins' begins in s, and the share (0 to 1) of packets of the connection that were sent again in each.

    A message counts for the bin in which it was written. Packets beyond the scheduler's own number of copies were sent
    again: by the subflow that carried them, or by another.
    """
    messages = seen.messages(flow)
    bins = (messages["sent_ns"].to_numpy() // int(_BINS_S * NS_PER_S)).astype(np.int64)
    many = int(seen.length_s / _BINS_S + 1e-9)
    inside = bins < many
    sent = messages["copies_sent"].to_numpy().astype(float)[inside]
    again = np.bincount(bins[inside], np.maximum(sent - copies, 0.0), minlength=many)
    total = np.bincount(bins[inside], sent, minlength=many)
    kept = total > 0
    return np.flatnonzero(kept).astype(np.float64) * _BINS_S, again[kept] / total[kept]


@observation("data_resent_mean", "messages")
def data_resent_mean(seen: Seen, flow: str, copies: float = 1) -> float:
    """Mean over the bins of the connection's packets sent again, in %, see `data_resent`."""
    _, found = data_resent(seen, flow, round(copies))
    return 100 * float(found.mean()) if found.size else math.nan


@observation("data_resent_quantile", "messages")
def data_resent_quantile(seen: Seen, flow: str, q: float, copies: float = 1) -> float:
    """What a share `q` of the bins does not exceed, in %."""
    return 100 * quantile(data_resent(seen, flow, round(copies))[1], q)


@observation("data_resent_time", "messages")
def data_resent_time(seen: Seen, flow: str, copies: float = 1) -> float:
    """Share of the bins, in %, in which packets of the connection were sent again."""
    _, found = data_resent(seen, flow, round(copies))
    return 100 * float(np.mean(found > 0)) if found.size else math.nan


def scattered(seen: Seen, flow: str, copies: int) -> tuple[Array, Array]:
    """For each bin the median round-trip time of the connection in ms and its packets sent again in %."""
    begins, again = data_resent(seen, flow, copies)
    at_ns, rtts = mapping_rtts(seen, flow)
    at_s = at_ns / NS_PER_S
    found = np.full(begins.size, math.nan)
    bins = (at_s // _BINS_S).astype(np.int64)
    order = np.argsort(bins, kind="stable")
    edges = np.searchsorted(bins[order], np.append(begins / _BINS_S, np.inf))
    for place, (first, last) in enumerate(pairwise(edges)):
        if last > first:
            found[place] = float(np.median(rtts[order[first:last]]))
    known = np.isfinite(found)
    return found[known], 100 * again[known]


@observation("scatter_inside", "messages", "decisions", "packets")
def scatter_inside(seen: Seen, flow: str, copies: float = 1) -> float:
    """Share of the bins, in %, with a round-trip time of 30 to 110 ms and at most 3 % sent again."""
    rtts, again = scattered(seen, flow, round(copies))
    return 100 * float(np.mean((rtts >= 30) & (rtts <= 110) & (again <= 3))) if rtts.size else math.nan


@observation("scatter_high_above_median", "messages", "decisions", "packets")
def scatter_high_above_median(seen: Seen, flow: str, copies: float = 1) -> float:
    """Of the bins with more than 3 % sent again the share, in %, whose round-trip time is above the median."""
    rtts, again = scattered(seen, flow, round(copies))
    many = again > 3
    return 100 * float(np.mean(rtts[many] > np.median(rtts))) if many.any() else math.nan


@observation("scatter_slow_resent", "messages", "decisions", "packets")
def scatter_slow_resent(seen: Seen, flow: str, copies: float = 1) -> float:
    """Of the bins with a round-trip time above 200 ms the share, in %, in which anything was sent again."""
    rtts, again = scattered(seen, flow, round(copies))
    slow = rtts > 200
    return 100 * float(np.mean(again[slow] > 0)) if slow.any() else math.nan


# Frames of video.


def playback(seen: Seen, flow: str) -> tuple[Array, Array, Array]:
    """When each frame was taken and when it was shown, in s, and its playback latency in ms; NaN if never shown."""
    frames = seen.table("frames").filter(pl.col("flow") == flow).sort("frame")
    captured, shown = (frames[name].cast(pl.Float64).fill_null(math.nan) for name in ("captured_ns", "shown_ns"))
    return (
        captured.to_numpy() / NS_PER_S,
        shown.to_numpy() / NS_PER_S,
        (shown - captured).to_numpy() * MS_PER_NS,
    )


def _late(seen: Seen, flow: str, above_ms: float) -> NDArray[np.bool_]:
    """Of each frame that had this long before the end, whether it was shown later than that, or never."""
    captured_s, _, latencies_ms = playback(seen, flow)
    late: NDArray[np.bool_] = ~(latencies_ms[captured_s + above_ms / 1e3 <= seen.length_s] <= above_ms)
    return late


@observation("playback_share", "frames")
def playback_share(seen: Seen, flow: str, above_ms: float = 300) -> float:
    """Share of the frames, in %, that were shown later than `above_ms` after they were taken, or never."""
    late = _late(seen, flow, above_ms)
    return 100 * float(np.mean(late)) if late.size else math.nan


@observation("playback_peak", "frames")
def playback_peak(seen: Seen, flow: str) -> float:
    """The largest playback latency, in s, of a frame that was shown."""
    latencies_ms = playback(seen, flow)[2]
    found = latencies_ms[np.isfinite(latencies_ms)]
    return float(found.max()) / 1e3 if found.size else math.nan


@observation("playback_spikes", "frames")
def playback_spikes(seen: Seen, flow: str, above_ms: float = 300) -> float:
    """How often the playback latency rises above `above_ms`."""
    return float(np.sum(np.diff(_late(seen, flow, above_ms).astype(np.int8), prepend=0) == 1))


@observation("frame_rate_quantile", "frames")
def frame_rate_quantile(seen: Seen, flow: str, q: float) -> float:
    """Frames shown a second that a share `q` of the whole seconds does not exceed, from the first frame on."""
    shown_s = playback(seen, flow)[1]
    shown_s = shown_s[np.isfinite(shown_s)]
    if not shown_s.size:
        return math.nan
    edges = np.arange(shown_s[0], seen.length_s)
    return quantile(np.histogram(shown_s, edges)[0].astype(float), q) if edges.size > 1 else math.nan


def similarity(seen: Seen, flow: str) -> Array:
    """SSIM of each frame that was shown, against the camera's picture of the same frame, as its time code tells it.

    Raises:
        SkybraidError: the flow has no clip, or PyAV is missing.
    """
    return shown.similarity(*_filmed(seen, flow))


def _filmed(seen: Seen, flow: str) -> tuple[Clip, Encoded, dict[str, Any], pl.DataFrame]:
    video = None if seen.scenario is None else seen.scenario.native.videos().get(flow)
    if seen.scenario is None or video is None or video["clip"] == MODEL:
        raise SkybraidError(f"flow.{flow}.traffic: found no clip, expected one whose pictures can be compared")
    clip, made = encoded(flow, video, Path(seen.scenario.file).parent)
    return clip, made, video, seen.table("frames").filter(pl.col("flow") == flow)


@observation("ssim_mean", "frames")
def ssim_mean(seen: Seen, flow: str) -> float:
    """Mean SSIM of the frames that were shown, see `similarity`."""
    found = similarity(seen, flow)
    return float(found.mean()) if found.size else math.nan


@observation("ssim_quantile", "frames")
def ssim_quantile(seen: Seen, flow: str, q: float) -> float:
    """SSIM that a share `q` of the frames that were shown does not exceed."""
    return quantile(similarity(seen, flow), q)


@observation("ssim_share", "frames")
def ssim_share(seen: Seen, flow: str, above: float = 0.5) -> float:
    """Share of the frames that were shown, in %, whose SSIM is above `above`."""
    found = similarity(seen, flow)
    return 100 * float(np.mean(found > above)) if found.size else math.nan


def on_the_screen(seen: Seen, flow: str, worth: Callable[[Array], Array]) -> float:
    """What is on the screen against what the camera has just seen, each time that a frame is due.

    Args:
        seen: the run.
        flow: of the video.
        worth: what counts of an SSIM.

    Returns:
        The mean over the flight of what counts; NaN if nothing was shown.

    Raises:
        SkybraidError: as for `similarity`.
    """
    clip, made, _, frames = _filmed(seen, flow)
    behind = shown.screen_ages(frames, seen.length_s * NS_PER_S)
    if not behind.size:
        return math.nan
    return float(shown.similarity_at(behind, clip, made, worth).mean())


@observation("screen_ssim_mean", "frames")
def screen_ssim_mean(seen: Seen, flow: str) -> float:
    """Mean SSIM of the screen against what the camera has just seen, see `on_the_screen`."""
    return on_the_screen(seen, flow, lambda similar: similar)


@observation("screen_ssim_share", "frames")
def screen_ssim_share(seen: Seen, flow: str, above: float = 0.5) -> float:
    """Share of the flight, in %, in which that SSIM is above `above`."""
    return 100 * on_the_screen(seen, flow, lambda similar: (similar > above).astype(float))


# What the two protocols do, as table 2 has it: each 1 for yes, 0 for no.


def _packets(seen: Seen, flow: str) -> pl.DataFrame:
    return seen.table("packets").filter(pl.col("flow") == flow)


@observation("opens_first", "packets")
def opens_first(seen: Seen, flow: str) -> float:
    """1 if packets of a handshake go before the first data, both ways."""
    rows = _packets(seen, flow)
    data = rows.filter(pl.col("kind") == "data")["in_ns"].min()
    before = rows.filter(pl.col("kind") == "handshake", pl.col("in_ns") < data)
    return float(before["direction"].n_unique() == 2)


@observation("all_arrive", "messages", "packets")
def all_arrive(seen: Seen, flow: str) -> float:
    """1 if links lost data of the flow and yet all its messages but those of the last second arrived."""
    lost = _packets(seen, flow).filter(pl.col("kind") == "data", pl.col("cause").is_not_null()).height
    missing = seen.messages(flow, to_s=seen.length_s - 1)["delivered_ns"].null_count()
    return float(missing == 0) if lost else math.nan


@observation("slows_down", "subflows")
def slows_down(seen: Seen, flow: str) -> float:
    """1 if windows were reduced and what was in flight kept below the largest window."""
    rows = seen.subflows(flow)
    kept = (rows["in_flight_bytes"] <= rows["cwnd_bytes"].max()).all()
    return float(bool(rows["window_reductions"].sum() > 0) and bool(kept))


@observation("sends_again", "subflows")
def sends_again(seen: Seen, flow: str) -> float:
    """1 if the sender took segments for lost and sent some again, 0 if it took some for lost and sent none again."""
    rows = seen.subflows(flow)
    return float(rows["retransmitted"].sum() > 0) if rows["lost"].sum() > 0 else math.nan


@observation("in_order", "messages")
def in_order(seen: Seen, flow: str) -> float:
    """1 if messages were passed on in the order in which they were written."""
    arrived = seen.messages(flow).filter(pl.col("delivered_ns").is_not_null()).sort("id")["delivered_ns"]
    return float((arrived.diff().drop_nulls() >= 0).all())


@observation("late_ratio", "messages")
def late_ratio(seen: Seen, flow: str, one: str, other: str, limit_ms: float = 300) -> float:
    """Late or lost messages of `flow`, as a share, over the product of the shares of `one` and `other`."""
    shares = []
    for name in (flow, one, other):
        found = seen.messages(name, to_s=seen.length_s - limit_ms / 1e3)
        late = ((found["delivered_ns"] - found["sent_ns"]) * MS_PER_NS > limit_ms).fill_null(value=True)
        shares.append(float(np.mean(late.to_numpy())) if late.len() else math.nan)
    both = shares[1] * shares[2]
    return shares[0] / both if both > 0 else math.nan


@observation("single_copies", "messages")
def single_copies(seen: Seen, flow: str) -> float:
    """Of the messages that were lost the share, in %, of which one copy alone was sent."""
    lost = seen.messages(flow, to_s=seen.length_s - 3).filter(pl.col("delivered_ns").is_null())
    return 100 * float(np.mean(lost["copies_sent"].to_numpy() == 1)) if lost.height else math.nan


# Emulated series against their inputs.


def _shipped(name: str) -> Path:
    return Path(__file__).parents[3] / "traces" / name


_INPUTS = {
    "rate_down": ("baltaci2023_inputs/bitrate_dl.csv", "starlink_leocc/downlink.down"),
    "rate_up": ("baltaci2023_inputs/bitrate_ul.csv", "starlink_leocc/downlink.down"),
    "delay_up": ("baltaci2023_inputs/latency_ul.csv", "lte_drive_pam2025/atnt.csv"),
    "terminal": ("baltaci2023_inputs/satdelay_st.csv", "starlink_leocc/delay_42min.csv"),
    "gateway": ("baltaci2023_inputs/satdelay_gw.csv", "starlink_leocc/delay_42min.csv"),
}
"""The authors' inputs and the shipped traces that replace them where they are missing."""

_LENGTH_S = 1800


def _input(name: str, unit: str) -> Array | None:
    """A series of one value a second, in `unit`, or None where there is neither input nor stand-in."""
    theirs, shipped = _INPUTS[name]
    file, column = measurements() / theirs, "2"
    if not file.is_file():
        file, column = _shipped(shipped), "2"
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".down":
        times_s, _ = read_trace(text, "mahimahi", None, None)
        seconds = min(int(times_s[-1]), _LENGTH_S)
        return np.histogram(times_s, np.arange(seconds + 1))[0] * (1504 * 8 / 1e6)
    times_s, values = read_trace(text, "csv", column, unit)
    every = np.searchsorted(times_s - times_s[0], np.arange(min(_LENGTH_S, int(times_s[-1] - times_s[0]))), "right") - 1
    return values[every] / {"Mbit/s": 1e6, "ms": 1e6}[unit]


def _steps(values: Array, unit: str) -> str:
    return "{ steps = [" + ", ".join(f'["{at}s", "{value:.6g}{unit}"]' for at, value in enumerate(values)) + "] }"


def aligned(emulated: Array, series: Array, most: int = 5) -> float:
    """Pearson's correlation of two series after the shift, up to `most` samples either way, that makes it largest."""
    found = []
    for shift in range(-most, most + 1):
        one = emulated[max(shift, 0) : emulated.size + min(shift, 0)]
        other = series[max(-shift, 0) : series.size + min(-shift, 0)]
        length = min(one.size, other.size)
        known = np.isfinite(one[:length]) & np.isfinite(other[:length])
        found.append(float(np.corrcoef(one[:length][known], other[:length][known])[0, 1]))
    return max(found)


def _carried(direction: str, rates: Array, seed: int) -> Array:
    """Mbit/s in each second over a saturated LTE link with these rates."""
    link = Link(f'preset = "lte-aerial"\ndrx = "off"\n{direction}.rate = {_steps(rates, "Mbit/s")}\n', direction, seed)
    sizes, every_s = 1400, 1400 * 8 / (1.2e6 * float(rates.max()))
    times = np.arange(round(rates.size / every_s)).astype(np.float64) * every_s
    arrivals, causes = link.admit(times, np.full(times.size, sizes, np.uint32))
    arrived = arrivals[(causes == 0) & np.isfinite(arrivals)]
    return np.histogram(arrived, np.arange(rates.size + 1))[0] * (sizes * 8 / 1e6)


def _probed(text: str, direction: str, seconds: int, seed: int) -> Array:
    """Mean delay in ms of a probe each 10 ms over a link, in each second."""
    link = Link(text, direction, seed)
    times = np.arange(seconds * 100).astype(np.float64) * 0.01
    arrivals, _ = link.admit(times, np.full(times.size, 100, np.uint32))
    late = (arrivals - times) * 1e3
    with np.errstate(invalid="ignore"):
        mean: Array = np.nanmean(late.reshape(seconds, 100), axis=1)
    return mean


@calculation("baltaci.rate")
@cache
def rate_correlation(x: float, seed: int) -> float:
    """Correlation of what a saturated LTE link carries with its capacity: x = 0 downlink, 1 uplink."""
    name, direction = (("rate_down", "downlink"), ("rate_up", "uplink"))[round(x)]
    rates = _input(name, "Mbit/s")
    return math.nan if rates is None else aligned(_carried(direction, rates, seed), rates)


@calculation("baltaci.latency")
@cache
def latency_correlation(x: float, seed: int) -> float:
    """Correlation of the delays of probes with those of the input: x = 0 LTE's uplink, 1 Starlink's round trip."""
    if round(x) == 0:
        delays = _input("delay_up", "ms")
        if delays is None:
            return math.nan
        text = f'preset = "lte-aerial"\nuplink.delay = {_steps(delays, "ms")}\n'
        return aligned(_probed(text, "uplink", delays.size, seed), delays)
    up, down = _input("terminal", "ms"), _input("gateway", "ms")
    if up is None or down is None:
        return math.nan
    ways = []
    for direction, delays in (("uplink", up), ("downlink", down)):
        text = f'preset = "starlink"\nreconfiguration = "off"\n{direction}.delay = {_steps(delays, "ms")}\n'
        ways.append(_probed(text, direction, delays.size, seed))
    return aligned(ways[0] + ways[1], up + down)


# Lengths of handovers.

_DRAWS = 20_000


@cache
def handover_lengths_ms(seed: int, many: int = _DRAWS) -> Array:
    """Lengths in ms drawn from the mixture of the preset `lte-aerial`, by the link's own sampler."""
    # The mixture is given to a link as its delay, so that each probe's delay is a draw.
    link = Link(
        'uplink.rate = "10Gbit/s"\nuplink.reorder = true\nuplink.delay = { mixture = "lte-aerial" }\n', seed=seed
    )
    times = np.arange(many).astype(np.float64)
    arrivals, _ = link.admit(times, np.full(many, 20, np.uint32))
    return (arrivals - times) * 1e3


def mixture_of_normals(values: Array, many: int, rounds: int = 500) -> tuple[Array, Array, Array]:
    """Weights, means and standard deviations of `many` normals, fitted by expectation maximisation, by ascending mean.

    It begins from equally wide slices of the values' logarithms.
    """
    logs = np.log(np.maximum(values, 1e-9))
    low, high = np.quantile(logs, [0.001, 0.999])
    slices = np.clip(((logs - low) / (high - low) * many).astype(int), 0, many - 1)
    belongs = np.eye(many)[slices] * 0.9 + 0.1 / many
    for _ in range(rounds):
        counts = belongs.sum(axis=0)
        weights, means = counts / values.size, values @ belongs / counts
        sds = np.sqrt(np.maximum(((values[:, None] - means) ** 2 * belongs).sum(axis=0) / counts, 1e-6))
        density = weights / sds * np.exp(-0.5 * ((values[:, None] - means) / sds) ** 2)
        belongs = density / np.maximum(density.sum(axis=1, keepdims=True), 1e-300)
    order = np.argsort(means)
    return weights[order], means[order], sds[order]


@cache
def _clusters(seed: int) -> Array:
    return mixture_of_normals(handover_lengths_ms(seed), 4)[1]


@calculation("baltaci.handover")
def handover(x: float, seed: int) -> float:
    """What is said of the lengths of handovers.

    For x = 1 to 4 the mean in ms of that cluster of a mixture of four normals which is fitted to them; 5 their mean, 6
    their standard deviation, in ms; beyond, the probability that `x` of them show as large a dip if there were one
    mode (Hartigan's dip test).

    Raises:
        SkybraidError: the package of the test is not installed.
    """
    lengths = handover_lengths_ms(seed)
    match round(x):
        case 5:
            return float(lengths.mean())
        case 6:
            return float(lengths.std(ddof=1))
        case many if many > 6:
            return _dip(lengths[:many])
        case cluster:
            return float(_clusters(seed)[cluster - 1])


def _dip(values: Array) -> float:
    try:
        from diptest import diptest
    except ImportError as error:
        raise SkybraidError("the dip test needs the package diptest: pip install 'skybraid-studies[dip]'") from error
    return float(diptest(values)[1])


# What a run costs.

_COST = """
import sys, time
from pathlib import Path
from skybraid import Scenario
scenario = Scenario.load(sys.argv[1]).with_all({"duration": "300s"})
begin = time.process_time()
scenario.native.run(int(sys.argv[2]), ["messages", "subflows", "links"])
spent = time.process_time() - begin
# The peak of `getrusage` is also that of the process that this one was forked from.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(100 * spent / 300, int(peak.split()[1]) / 1024)
"""


@cache
def _cost(seed: int) -> tuple[float, float]:
    scenario = Path(__file__).parent / "scenarios" / "piloting.toml"
    if not scenario.is_file():
        return math.nan, math.nan
    done = subprocess.run(
        [sys.executable, "-c", _COST, str(scenario), str(seed)], capture_output=True, text=True, check=True
    )
    share, memory = (float(each) for each in done.stdout.split())
    return share, memory


@calculation("baltaci.cost")
def cost(x: float, seed: int) -> float:
    """Of five minutes of flight: x = 0 processor time over its length, in % of a core; 1 the process's memory in MB."""
    return _cost(seed)[round(x)]

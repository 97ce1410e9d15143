"""Observations and calculations of the study of Baltaci et al. (2023): remote piloting over LTE and Starlink."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
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
from skybraid_studies.engine.observe import MS_PER_NS, NS_PER_S, RunData, observation, quantile
from skybraid_studies.engine.readings import measurements
from skybraid_studies.engine.theory import calculation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.video.clips import Clip
    from skybraid.video.encode import Encoded

    Array = NDArray[np.float64]

_BINS_S = 1.0
"""Bins of the retransmission rate; the article does not state them."""


# Round-trip times and retransmissions of the connection.


def data_rtts(run: RunData, flow: str, back: str) -> tuple[Array, Array]:
    """Returns the writing times of a flow's messages in s, and their round-trip times at connection level in ms.

    The round-trip time is that from writing to delivery in order, plus the return of an acknowledgement sent at that
    moment on the completing path: delay and queueing of the link's direction `back`.
    """
    arrived = run.messages(flow).filter(pl.col("delivered_ns").is_not_null(), pl.col("path").is_not_null())
    sent = arrived["sent_ns"].to_numpy()
    delivered = arrived["delivered_ns"].to_numpy()
    paths = arrived["path"].cast(pl.String).to_numpy()
    total = (delivered - sent) * MS_PER_NS
    for path in np.unique(paths):
        rows = run.table("links").filter(pl.col("path") == str(path), pl.col("direction") == back)
        rate = rows["rate_bps"].cast(pl.Float64).to_numpy()
        waits = np.divide(8e3 * rows["queue_bytes"].to_numpy(), rate, out=np.zeros_like(rate), where=rate > 0)
        ways = rows["delay_ns"].cast(pl.Float64).fill_null(0.0).to_numpy() * MS_PER_NS + waits
        own = paths == path
        place = np.searchsorted(rows["time_ns"].to_numpy(), delivered[own], side="right") - 1
        total[own] += ways[np.maximum(place, 0)]
    return sent / NS_PER_S, total


@observation("data_rtt_mean", "messages", "links")
def data_rtt_mean(run: RunData, flow: str, back: str = "uplink") -> float:
    """Returns the mean round-trip time in ms at connection level, see `data_rtts`."""
    _, found = data_rtts(run, flow, back)
    return float(found.mean()) if found.size else math.nan


@observation("data_rtt_quantile", "messages", "links")
def data_rtt_quantile(run: RunData, flow: str, q: float, back: str = "uplink") -> float:
    """Returns the quantile `q` of these round-trip times in ms, see `data_rtts`."""
    return quantile(data_rtts(run, flow, back)[1], q)


@observation("data_rtt_peak", "messages", "links")
def data_rtt_peak(run: RunData, flow: str, back: str = "uplink") -> float:
    """Returns the maximum of these round-trip times in ms, see `data_rtts`."""
    _, found = data_rtts(run, flow, back)
    return float(found.max()) if found.size else math.nan


@observation("data_rtt_share", "messages", "links")
def data_rtt_share(run: RunData, flow: str, above_ms: float, back: str = "uplink") -> float:
    """Returns the share of these round-trip times in % that exceed `above_ms`, see `data_rtts`."""
    _, found = data_rtts(run, flow, back)
    return 100 * float(np.mean(found > above_ms)) if found.size else math.nan


def data_resent(run: RunData, flow: str, copies: int) -> tuple[Array, Array]:
    """Returns starts of bins in s, and the share (0 to 1) of the connection's packets sent again in each.

    A message counts in the bin of its writing. Packets beyond the scheduler's `copies` were sent again, by the same or
    another subflow.
    """
    messages = run.messages(flow)
    bins = (messages["sent_ns"].to_numpy() // int(_BINS_S * NS_PER_S)).astype(np.int64)
    many = int(run.length_s / _BINS_S + 1e-9)
    inside = bins < many
    sent = messages["copies_sent"].to_numpy().astype(float)[inside]
    again = np.bincount(bins[inside], np.maximum(sent - copies, 0.0), minlength=many)
    total = np.bincount(bins[inside], sent, minlength=many)
    kept = total > 0
    return np.flatnonzero(kept).astype(np.float64) * _BINS_S, again[kept] / total[kept]


@observation("data_resent_mean", "messages")
def data_resent_mean(run: RunData, flow: str, copies: float = 1) -> float:
    """Returns the mean over the bins of the packets sent again in %, see `data_resent`."""
    _, found = data_resent(run, flow, round(copies))
    return 100 * float(found.mean()) if found.size else math.nan


@observation("data_resent_quantile", "messages")
def data_resent_quantile(run: RunData, flow: str, q: float, copies: float = 1) -> float:
    """Returns the quantile `q` over the bins of the packets sent again in %, see `data_resent`."""
    return 100 * quantile(data_resent(run, flow, round(copies))[1], q)


@observation("data_resent_time", "messages")
def data_resent_time(run: RunData, flow: str, copies: float = 1) -> float:
    """Returns the share of the bins in % with packets sent again, see `data_resent`."""
    _, found = data_resent(run, flow, round(copies))
    return 100 * float(np.mean(found > 0)) if found.size else math.nan


def scattered(run: RunData, flow: str, copies: int) -> tuple[Array, Array]:
    """Returns the median round-trip time in ms and the packets sent again in % of each bin, at connection level."""
    begins, again = data_resent(run, flow, copies)
    at_ns, rtts = mapping_rtts(run, flow)
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
def scatter_inside(run: RunData, flow: str, copies: float = 1) -> float:
    """Returns the share of the bins in % with a round-trip time of 30 to 110 ms and at most 3 % sent again."""
    rtts, again = scattered(run, flow, round(copies))
    return 100 * float(np.mean((rtts >= 30) & (rtts <= 110) & (again <= 3))) if rtts.size else math.nan


@observation("scatter_high_above_median", "messages", "decisions", "packets")
def scatter_high_above_median(run: RunData, flow: str, copies: float = 1) -> float:
    """Returns, of the bins with more than 3 % sent again, the share in % with a round-trip time above the median."""
    rtts, again = scattered(run, flow, round(copies))
    many = again > 3
    return 100 * float(np.mean(rtts[many] > np.median(rtts))) if many.any() else math.nan


@observation("scatter_slow_resent", "messages", "decisions", "packets")
def scatter_slow_resent(run: RunData, flow: str, copies: float = 1) -> float:
    """Returns, of the bins with a round-trip time above 200 ms, the share in % with packets sent again."""
    rtts, again = scattered(run, flow, round(copies))
    slow = rtts > 200
    return 100 * float(np.mean(again[slow] > 0)) if slow.any() else math.nan


# Frames of video.


def playback(run: RunData, flow: str) -> tuple[Array, Array, Array]:
    """Returns capture and display time of each frame in s, and its playback latency in ms; NaN if never shown."""
    frames = run.table("frames").filter(pl.col("flow") == flow).sort("frame")
    captured, shown = (frames[name].cast(pl.Float64).fill_null(math.nan) for name in ("captured_ns", "shown_ns"))
    return (
        captured.to_numpy() / NS_PER_S,
        shown.to_numpy() / NS_PER_S,
        (shown - captured).to_numpy() * MS_PER_NS,
    )


def _late(run: RunData, flow: str, above_ms: float) -> NDArray[np.bool_]:
    """Returns whether each frame due before the end was shown later than `above_ms`, or never."""
    captured_s, _, latencies_ms = playback(run, flow)
    late: NDArray[np.bool_] = ~(latencies_ms[captured_s + above_ms / 1e3 <= run.length_s] <= above_ms)
    return late


@observation("playback_share", "frames")
def playback_share(run: RunData, flow: str, above_ms: float = 300) -> float:
    """Returns the share of frames in % shown later than `above_ms` after capture, or never."""
    late = _late(run, flow, above_ms)
    return 100 * float(np.mean(late)) if late.size else math.nan


@observation("playback_peak", "frames")
def playback_peak(run: RunData, flow: str) -> float:
    """Returns the maximum playback latency in s of the frames shown."""
    latencies_ms = playback(run, flow)[2]
    found = latencies_ms[np.isfinite(latencies_ms)]
    return float(found.max()) / 1e3 if found.size else math.nan


@observation("playback_spikes", "frames")
def playback_spikes(run: RunData, flow: str, above_ms: float = 300) -> float:
    """Returns how often the playback latency rises above `above_ms`."""
    return float(np.sum(np.diff(_late(run, flow, above_ms).astype(np.int8), prepend=0) == 1))


@observation("frame_rate_quantile", "frames")
def frame_rate_quantile(run: RunData, flow: str, q: float) -> float:
    """Returns the quantile `q` over whole seconds of the number of frames shown, from the first frame on."""
    shown_s = playback(run, flow)[1]
    shown_s = shown_s[np.isfinite(shown_s)]
    if not shown_s.size:
        return math.nan
    edges = np.arange(shown_s[0], run.length_s)
    return quantile(np.histogram(shown_s, edges)[0].astype(float), q) if edges.size > 1 else math.nan


def similarity(run: RunData, flow: str) -> Array:
    """Returns the SSIM of each frame shown, against the camera's picture with the same time code.

    Raises:
        SkybraidError: the flow has no clip, or PyAV is missing.
    """
    return shown.similarity(*_filmed(run, flow))


def _filmed(run: RunData, flow: str) -> tuple[Clip, Encoded, dict[str, Any], pl.DataFrame]:
    video = None if run.scenario is None else run.scenario.native.videos().get(flow)
    if run.scenario is None or video is None or video["clip"] == MODEL:
        raise SkybraidError(f"flow.{flow}.traffic: found no clip, expected one whose pictures can be compared")
    clip, made = encoded(flow, video, Path(run.scenario.file).parent)
    return clip, made, video, run.table("frames").filter(pl.col("flow") == flow)


@observation("ssim_mean", "frames")
def ssim_mean(run: RunData, flow: str) -> float:
    """Returns the mean SSIM of the frames shown, see `similarity`."""
    found = similarity(run, flow)
    return float(found.mean()) if found.size else math.nan


@observation("ssim_quantile", "frames")
def ssim_quantile(run: RunData, flow: str, q: float) -> float:
    """Returns the quantile `q` of the SSIM of the frames shown, see `similarity`."""
    return quantile(similarity(run, flow), q)


@observation("ssim_share", "frames")
def ssim_share(run: RunData, flow: str, above: float = 0.5) -> float:
    """Returns the share of frames shown in % with an SSIM above `above`, see `similarity`."""
    found = similarity(run, flow)
    return 100 * float(np.mean(found > above)) if found.size else math.nan


def on_the_screen(run: RunData, flow: str, worth: Callable[[Array], Array]) -> float:
    """Returns the mean worth of the SSIM of the screen against the camera's current picture, whenever a frame is due.

    Args:
        run: data of the run.
        flow: name of the video flow.
        worth: function of an SSIM that is averaged.

    Returns:
        Mean over the run; NaN if nothing was shown.

    Raises:
        SkybraidError: as for `similarity`.
    """
    clip, made, _, frames = _filmed(run, flow)
    behind = shown.screen_ages(frames, run.length_s * NS_PER_S)
    if not behind.size:
        return math.nan
    return float(shown.similarity_at(behind, clip, made, worth).mean())


@observation("screen_ssim_mean", "frames")
def screen_ssim_mean(run: RunData, flow: str) -> float:
    """Returns the mean SSIM of the screen against the camera's current picture, see `on_the_screen`."""
    return on_the_screen(run, flow, lambda similar: similar)


@observation("screen_ssim_share", "frames")
def screen_ssim_share(run: RunData, flow: str, above: float = 0.5) -> float:
    """Returns the share of the run in % in which that SSIM exceeds `above`, see `on_the_screen`."""
    return 100 * on_the_screen(run, flow, lambda similar: (similar > above).astype(float))


# Features of the two protocols in table 2: 1 for yes, 0 for no.


def _packets(run: RunData, flow: str) -> pl.DataFrame:
    return run.table("packets").filter(pl.col("flow") == flow)


@observation("opens_first", "packets")
def opens_first(run: RunData, flow: str) -> float:
    """Returns 1 if handshake packets precede the first data in both directions, else 0."""
    rows = _packets(run, flow)
    data = rows.filter(pl.col("kind") == "data")["in_ns"].min()
    before = rows.filter(pl.col("kind") == "handshake", pl.col("in_ns") < data)
    return float(before["direction"].n_unique() == 2)


@observation("all_arrive", "messages", "packets")
def all_arrive(run: RunData, flow: str) -> float:
    """Returns 1 if links lost data of the flow, but all messages up to the last second arrived, else 0."""
    lost = _packets(run, flow).filter(pl.col("kind") == "data", pl.col("cause").is_not_null()).height
    missing = run.messages(flow, to_s=run.length_s - 1)["delivered_ns"].null_count()
    return float(missing == 0) if lost else math.nan


@observation("slows_down", "subflows")
def slows_down(run: RunData, flow: str) -> float:
    """Returns 1 if windows were reduced and data in flight stayed below the maximum window, else 0."""
    rows = run.subflows(flow)
    kept = (rows["in_flight_bytes"] <= rows["cwnd_bytes"].max()).all()
    return float(bool(rows["window_reductions"].sum() > 0) and bool(kept))


@observation("sends_again", "subflows")
def sends_again(run: RunData, flow: str) -> float:
    """Returns 1 if the sender retransmitted segments declared lost, 0 if it retransmitted none; NaN without losses."""
    rows = run.subflows(flow)
    return float(rows["retransmitted"].sum() > 0) if rows["lost"].sum() > 0 else math.nan


@observation("in_order", "messages")
def in_order(run: RunData, flow: str) -> float:
    """Returns 1 if messages were delivered in the order of writing, else 0."""
    arrived = run.messages(flow).filter(pl.col("delivered_ns").is_not_null()).sort("id")["delivered_ns"]
    return float((arrived.diff().drop_nulls() >= 0).all())


@observation("late_ratio", "messages")
def late_ratio(run: RunData, flow: str, one: str, other: str, limit_ms: float = 300) -> float:
    """Returns the ratio of `flow`'s share of late or lost messages to the product of those of `one` and `other`."""
    shares = []
    for name in (flow, one, other):
        found = run.messages(name, to_s=run.length_s - limit_ms / 1e3)
        late = ((found["delivered_ns"] - found["sent_ns"]) * MS_PER_NS > limit_ms).fill_null(value=True)
        shares.append(float(np.mean(late.to_numpy())) if late.len() else math.nan)
    both = shares[1] * shares[2]
    return shares[0] / both if both > 0 else math.nan


@observation("single_copies", "messages")
def single_copies(run: RunData, flow: str) -> float:
    """Returns the share of lost messages in % of which only one copy was sent."""
    lost = run.messages(flow, to_s=run.length_s - 3).filter(pl.col("delivered_ns").is_null())
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
    """Returns a series of one value per second in `unit`; None if both the input and its replacement are missing."""
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


def aligned(emulated: Array, series: Array, max_shift: int = 5) -> float:
    """Returns the maximum of Pearson's correlation of two series over shifts of up to `most` samples."""
    found = []
    for shift in range(-max_shift, max_shift + 1):
        one = emulated[max(shift, 0) : emulated.size + min(shift, 0)]
        other = series[max(-shift, 0) : series.size + min(-shift, 0)]
        length = min(one.size, other.size)
        known = np.isfinite(one[:length]) & np.isfinite(other[:length])
        found.append(float(np.corrcoef(one[:length][known], other[:length][known])[0, 1]))
    return max(found)


def _carried(direction: str, rates: Array, seed: int) -> Array:
    """Returns the throughput in Mbit/s in each second of a saturated LTE link with these rates."""
    link = Link(f'preset = "lte-aerial"\ndrx = "off"\n{direction}.rate = {_steps(rates, "Mbit/s")}\n', direction, seed)
    sizes, every_s = 1400, 1400 * 8 / (1.2e6 * float(rates.max()))
    times = np.arange(round(rates.size / every_s)).astype(np.float64) * every_s
    arrivals, causes = link.admit(times, np.full(times.size, sizes, np.uint32))
    arrived = arrivals[(causes == 0) & np.isfinite(arrivals)]
    return np.histogram(arrived, np.arange(rates.size + 1))[0] * (sizes * 8 / 1e6)


def _probed(text: str, direction: str, seconds: int, seed: int) -> Array:
    """Returns the mean delay in ms in each second of probes sent every 10 ms over a link."""
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
    """Returns the correlation of a saturated LTE link's throughput with its capacity: x = 0 downlink, 1 uplink."""
    name, direction = (("rate_down", "downlink"), ("rate_up", "uplink"))[round(x)]
    rates = _input(name, "Mbit/s")
    return math.nan if rates is None else aligned(_carried(direction, rates, seed), rates)


@calculation("baltaci.latency")
@cache
def latency_correlation(x: float, seed: int) -> float:
    """Returns the correlation of probe delays with the input: x = 0 LTE uplink, 1 Starlink round trip."""
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
    """Returns random handover lengths in ms of the preset `lte-aerial`, drawn by the link's own sampler."""
    # The mixture is used as a link's delay, so that each probe's delay is one draw.
    link = Link(
        'uplink.rate = "10Gbit/s"\nuplink.reorder = true\nuplink.delay = { mixture = "lte-aerial" }\n', seed=seed
    )
    times = np.arange(many).astype(np.float64)
    arrivals, _ = link.admit(times, np.full(many, 20, np.uint32))
    return (arrivals - times) * 1e3


def mixture_of_normals(values: Array, many: int, rounds: int = 500) -> tuple[Array, Array, Array]:
    """Fits `many` normals by expectation maximisation; returns weights, means and deviations by ascending mean.

    The initial components are equally wide slices of the values' logarithms.
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
    """Returns a statistic of handover lengths.

    x = 1 to 4: mean in ms of that component of a fitted mixture of four normals; 5: mean in ms; 6: standard deviation
    in ms; above: p-value of Hartigan's dip test for unimodality with `x` lengths.

    Raises:
        SkybraidError: the package of the dip test is not installed.
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
    """Returns the cost of five simulated minutes: x = 0 CPU time in % of a core, 1 memory in MB."""
    return _cost(seed)[round(x)]

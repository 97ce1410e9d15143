"""Calculations and observations of the study of MuTran (Lee et al. 2021).

Random calculations make 100 000 trials per seed over independent links; x is the loss probability unless stated
otherwise. Delays over TCP are counted in attempts, over UDP in intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from skybraid.execute.runs import run
from skybraid.model.errors import DomainError
from skybraid.model.scenario import Scenario
from skybraid_studies.engine.observe import NS_PER_S, RunData, arrival_gaps_s, observation
from skybraid_studies.engine.theory import Calculation, calculation
from skybraid_studies.lee2021mutran import mutran
from skybraid_studies.lee2021mutran.mutran import Path

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIALS = 100_000

_TARGET = 2.45
"""Figure 8's target in attempts. The paper prints none; this is μ + σ at a loss of 0.35."""

_FULL_BYTES = 400
"""Minimum size of a data packet in bytes; smaller packets have commands."""

_ATTEMPT_S = 0.02014
"""Duration in s of an attempt to send a command over TCP in `periodic.toml`."""

_CONTROL_BYTES = 40
"""Size of a control packet in bytes, where only ratios matter."""


def _attempts(loss: float, interfaces: int, seed: int) -> NDArray[np.int64]:
    """Returns the number of attempts until the first success: one row per trial, one column per interface."""
    return np.random.default_rng([seed, interfaces]).geometric(1 - loss, size=(_TRIALS, interfaces))


def _tcp_drawn(loss: float, interfaces: int, seed: int) -> float:
    return float(_attempts(loss, interfaces, seed).min(axis=1).mean())


def _udp_drawn(loss: float, interfaces: int, seed: int) -> float:
    return _tcp_drawn(loss, interfaces, seed) - 1


def _register(name: str, of: Callable[[float, int, int], float], counts: tuple[int, ...] = (1, 2, 3)) -> None:
    """Registers a calculation of x, the number of interfaces and a seed as `NAME.1`, `NAME.2` and so on."""

    def calculate(interfaces: int, x: float, seed: int) -> float:
        return of(x, interfaces, seed)

    for interfaces in counts:
        found: Calculation = partial(calculate, interfaces)
        calculation(f"{name}.{interfaces}")(found)


# Figures 5 and 7, equations 10 to 23.
_register("lee.tcp", lambda x, n, _: mutran.expected_tcp_s(1, x, n))
_register("lee.tcp_drawn", _tcp_drawn)
_register("lee.tcp_ratio", lambda x, n, _: mutran.tcp_ratio(x, n))
_register("lee.tcp_ratio_drawn", lambda x, n, seed: _tcp_drawn(x, n, seed) / _tcp_drawn(x, 1, seed))
_register("lee.udp", lambda x, n, _: mutran.udp_delay_in_intervals(x, n))
_register("lee.udp_drawn", _udp_drawn)
_register("lee.udp_ratio", lambda x, n, _: mutran.udp_ratio(x, n))
_register("lee.udp_ratio_drawn", lambda x, n, seed: _udp_drawn(x, n, seed) / _udp_drawn(x, 1, seed))
calculation("lee.tcp_ratio_of_two")(lambda x, _: 1 / (1 + x))
calculation("lee.udp_ratio_of_two")(lambda x, _: x / (1 + x))


# Figure 8.


def _share_drawn(loss: float, interfaces: int, first: int, seed: int) -> float:
    """Returns the share in % of trials within figure 8's target; the first attempt arrives after `first` (0 or 1)."""
    waits = _attempts(loss, interfaces, seed).min(axis=1) - 1 + first
    return 100 * float(np.mean(waits <= _TARGET))


_register("lee.within_tcp", lambda x, n, seed: _share_drawn(x, n, 1, seed))
_register("lee.within_udp", lambda x, n, seed: _share_drawn(x, n, 0, seed))
_register("lee.two_sigma_tcp", lambda x, n, _: mutran.expected_tcp_s(1, x, n) + 2 * mutran.spread_s(1, x, n))
_register("lee.two_sigma_udp", lambda x, n, _: mutran.expected_udp_s(0, 1, x, n) + 2 * mutran.spread_s(1, x, n))


def _target_of_95() -> float:
    return mutran.expected_tcp_s(1, 0.2) + 2 * mutran.spread_s(1, 0.2)


def _target_of_68() -> float:
    return mutran.expected_tcp_s(1, 0.35) + mutran.spread_s(1, 0.35)


def _counted(loss: float, target: float) -> float:
    """Returns the share in % within a target over one interface as in the paper: of a normal delay, two-sided."""
    deviations = (target - mutran.expected_tcp_s(1, loss)) / mutran.spread_s(1, loss)
    return 100 * math.erf(deviations / math.sqrt(2))


calculation("lee.target_of_95")(lambda _, __: _target_of_95())
calculation("lee.target_of_68")(lambda _, __: _target_of_68())
calculation("lee.counted_by_95")(lambda x, _: _counted(x, _target_of_95()))
calculation("lee.counted_by_68")(lambda x, _: _counted(x, _target_of_68()))


# Equations 1 to 9: x is the maximum window in segments.

_RTT_S, _SEGMENT_BYTES = 0.04, 1448.0


@calculation("lee.window_back")
def window_back(x: float, _seed: int) -> float:
    """Returns the maximum window in segments by equation 4, at the rate of equation 3 for `x`."""
    rate = mutran.send_rate_bytes_s(x, _SEGMENT_BYTES, _RTT_S)
    return mutran.largest_window_segments(rate, _SEGMENT_BYTES, _RTT_S)


@calculation("lee.queue_round_trips")
def queue_round_trips(x: float, _seed: int) -> float:
    """Returns the delay of a full sender's queue by equations 2, 3 and 5, in round trips."""
    rate = mutran.send_rate_bytes_s(x, _SEGMENT_BYTES, _RTT_S)
    return mutran.sender_queue_delay_s(mutran.sender_queue_bytes(x, _SEGMENT_BYTES), rate) / _RTT_S


@calculation("lee.reader_round_trips")
def reader_round_trips(x: float, _seed: int) -> float:
    """Returns the bound of the receiver's queueing delay in round trips, for reading 100 times the sending rate."""
    rate = mutran.send_rate_bytes_s(x, _SEGMENT_BYTES, _RTT_S)
    return mutran.receiver_queue_delay_bound_s(rate, _RTT_S, 100 * rate) / _RTT_S


# Appendix A, and paths of unequal delay (LEE-C10): an attempt on the second takes three times as long.

calculation("lee.sum_in_closed_form")(lambda x, _: mutran.sum_of_failures(x, 20))
calculation("lee.sum_of_terms")(lambda x, _: math.fsum(k * x**k for k in range(1, 21)))
calculation("lee.sum_to_the_limit")(lambda x, _: mutran.sum_of_failures(x, 10_000))
calculation("lee.limit_of_the_sum")(lambda x, _: x / (1 - x) ** 2)
calculation("lee.unequal")(lambda x, _: mutran.mean_s([Path.tcp(x, 1), Path.tcp(x, 3)]))
calculation("lee.unequal_together")(lambda x, _: mutran.expected_tcp_s(2, x, 2))


@calculation("lee.unequal_drawn")
def unequal_drawn(x: float, seed: int) -> float:
    """Returns the mean delay of the first copy over paths with attempts of 1 and 3, retransmitted independently."""
    return float((_attempts(x, 2, seed) * [1, 3]).min(axis=1).mean())


# Equations 24 to 29: x is the target in attempts or intervals, at a loss of one half.

_HALF = 0.5


def _at_fewest(x: float, seed: int, *, udp: bool, fewer: int = 0) -> float:
    """Returns the ratio of drawn delay to target with the minimum number of interfaces, or `fewer`; NaN without one."""
    if x <= 1 and not udp:
        return math.nan
    interfaces = (mutran.interfaces_udp if udp else mutran.interfaces_tcp)(x, 1, _HALF) - fewer
    if interfaces < 1:
        return math.nan
    return (_udp_drawn if udp else _tcp_drawn)(_HALF, interfaces, seed) / x


calculation("lee.fewest_tcp")(lambda x, seed: _at_fewest(x, seed, udp=False))
calculation("lee.one_less_tcp")(lambda x, seed: _at_fewest(x, seed, udp=False, fewer=1))
calculation("lee.fewest_udp")(lambda x, seed: _at_fewest(x, seed, udp=True))
calculation("lee.one_less_udp")(lambda x, seed: _at_fewest(x, seed, udp=True, fewer=1))


@calculation("lee.share_at_fewest")
def share_at_fewest(x: float, seed: int) -> float:
    """Returns the share in % within the target `x` (attempts) with the interfaces of equation 26; NaN below 1."""
    return math.nan if x <= 1 else _share_within(x, mutran.interfaces_tcp(x, 1, _HALF), seed)


@calculation("lee.share_at_enough")
def share_at_enough(x: float, seed: int) -> float:
    """Returns the share in % within the target `x` (attempts) with the interfaces required for a share of 99 %."""
    return math.nan if x <= 1 else _share_within(x, mutran.interfaces_for_share(x, 0.99, Path.tcp(_HALF, 1)), seed)


def _share_within(target: float, interfaces: int, seed: int) -> float:
    return 100 * float(np.mean(_attempts(_HALF, interfaces, seed).min(axis=1) <= target))


@calculation("lee.refused")
def refused(_x: float, _seed: int) -> float:
    """Returns how many of three unanswerable questions are refused: a target within one attempt, or certain loss."""
    asked: tuple[Callable[[], int], ...] = (
        lambda: mutran.interfaces_tcp(1, 1, _HALF),
        lambda: mutran.interfaces_udp(0.02, 1, _HALF, network_s=0.02),
        lambda: mutran.interfaces_udp(1, 1, 1.0),
    )
    found = 0
    for ask in asked:
        try:
            ask()
        except DomainError:
            found += 1
    return float(found)


# Equations 30 to 37.


def _bytes_drawn(loss: float, interfaces: int, seed: int) -> float:
    """Returns the bytes of a command if each subflow repeats its copy until it has arrived."""
    return _CONTROL_BYTES * float(_attempts(loss, interfaces, seed).sum(axis=1).mean())


_register("lee.tcp_bytes", lambda x, n, _: mutran.tcp_control_bytes(_CONTROL_BYTES, x, n))
_register("lee.tcp_bytes_drawn", _bytes_drawn)
calculation("lee.total_packets")(lambda x, _: mutran.total_packets(1000, x, 2))


def _udp_by_tcp(loss: float, seed: int, longer: float) -> float:
    """Returns the ratio of UDP's to TCP's drawn delay with two interfaces, at `longer` times equation 36's interval."""
    interval = longer * mutran.longest_udp_interval_s(1, loss, 2)
    return interval * _udp_drawn(loss, 2, seed) / _tcp_drawn(loss, 2, seed)


calculation("lee.at_the_longest")(lambda x, seed: _udp_by_tcp(x, seed, 1))
calculation("lee.at_half_of_it")(lambda x, seed: _udp_by_tcp(x, seed, 0.5))
calculation("lee.at_twice_that")(lambda x, seed: _udp_by_tcp(x, seed, 2))
calculation("lee.udp_rate_printed")(lambda x, _: mutran.udp_control_rate_as_printed_bytes_s(_CONTROL_BYTES, 0.5, x, 2))
calculation("lee.udp_rate")(lambda _, __: mutran.udp_control_rate_bytes_s(_CONTROL_BYTES, 0.5, 2))
calculation("lee.tcp_rate")(lambda x, _: mutran.tcp_control_rate_bytes_s(_CONTROL_BYTES, 1, x, 2))


@calculation("lee.tcp_rate_drawn")
def tcp_rate_drawn(x: float, seed: int) -> float:
    """Returns the ratio of the mean bytes of all copies to the mean time to the first arrival, over two interfaces."""
    return _bytes_drawn(x, 2, seed) / _tcp_drawn(x, 2, seed)


# Sections 3.1, 4.5 and 6.2.1.

calculation("lee.displacement_at_30")(lambda x, _: mutran.displacement_m(30, x))
calculation("lee.displacement_at_15")(lambda x, _: mutran.displacement_m(15, x))
calculation("lee.doppler_at_2400_mhz")(lambda x, _: mutran.doppler_hz(2.4e9, x))


# Prediction of the equations for `periodic.toml` over TCP: an attempt is 20 ms plus a packet of 180 B at 10 Mbit/s.
_register("lee.tcp_simulated", lambda x, n, _: 1e3 * mutran.expected_tcp_s(_ATTEMPT_S, x, n), (1, 2))


# Figure 1: x is 1 for MPTCP, 2 for copies of everything, 3 for plain duplicates, 4 for MuTran over TCP, 5 over UDP.
# A segment is a message, so that packets equal those of the figure.

_FIGURE_1 = """
name = "Figure 1"
duration = "6s"

[path.one]
rate = "1Mbit/s"
delay = "10ms"

[path.two]
rate = "1Mbit/s"
delay = "10ms"

[flow.data]
from = "vehicle"
start = "100ms"
traffic = {{ kind = "bulk", packet = "1200B" }}

[flow.data.transport]
protocol = "mptcp"
scheduler = "{scheduler}"
segment = "1200B"
send_buffer = "64kB"
receive_buffer = "64kB"

[flow.control]
from = "vehicle"
start = "2500ms"
stop = "2501ms"
traffic = {{ kind = "cbr", rate = "1600bit/s", packet = "100B" }}
{control}
"""

_WRITTEN_NS, _TOGETHER_NS = 2_500_000_000, 100_000_000
"""Writing time of figure 1's command, and time within which further packets are copies, not retransmissions."""

_DELAY_NS, _BYTE_NS = 10_000_000, 8_000
"""Delay of figure 1's links, and transmission time of a byte at 1 Mbit/s."""

_SYSTEMS = {
    1: ("low_rtt", 'with = "data"'),
    2: ("redundant", 'with = "data"'),
    3: ("low_rtt", 'with = "data"\ncopies = 2'),
    4: ("mutran", 'with = "data"'),
    5: ("low_rtt", 'transport = { protocol = "udp", scheduler = "redundant" }'),
}


class _Figure1(NamedTuple):
    """Command of figure 1: delay in ms and packets in sending order; and data in Mbit/s."""

    delay_ms: float
    packets: pl.DataFrame
    data_mbps: float


@cache
def _figure_1(system: int, fails: str = "", at_ns: int = 0) -> _Figure1:
    scheduler, control = _SYSTEMS[system]
    text = _FIGURE_1.format(scheduler=scheduler, control=control)
    if fails:
        text += f'\n[[event]]\nat = "{at_ns}ns"\npath.{fails}.loss = {{ uniform = "100%" }}\n'
    tables = run(Scenario(text, "figure-1.toml"), seed=1, tables=["messages", "packets"]).tables
    command = tables["messages"].filter(pl.col("flow") == "control").row(0, named=True)
    arrived = command["delivered_ns"]
    data = tables["messages"].filter(
        pl.col("flow") == "data", pl.col("delivered_ns").is_between(NS_PER_S // 2, _WRITTEN_NS)
    )
    return _Figure1(
        math.inf if arrived is None else (arrived - command["sent_ns"]) / 1e6,
        tables["packets"]
        .filter(pl.col("kind") == "data", pl.col("bytes") < _FULL_BYTES, pl.col("in_ns") >= _WRITTEN_NS)
        .sort("in_ns"),
        float(data["bytes"].sum()) * 8 / 2e6,
    )


def _failed(system: int) -> tuple[_Figure1, _Figure1]:
    """Returns figure 1 without failure, and with the link of the command's first packet failing while it is sent."""
    whole = _figure_1(system)
    first = whole.packets.row(0, named=True)
    half_sent_ns = int(first["out_ns"]) - _DELAY_NS - int(first["bytes"]) * _BYTE_NS // 2
    return whole, _figure_1(system, str(first["path"]), half_sent_ns)


@calculation("lee.figure_1_arrived")
def figure_1_arrived(x: float, _seed: int) -> float:
    """Returns 1 if a copy arrives without retransmission although the link of the first packet fails, else 0."""
    packets = _failed(round(x))[1].packets
    together = packets["in_ns"] <= packets["in_ns"][0] + _TOGETHER_NS
    return float((together & packets["cause"].is_null()).any())


@calculation("lee.figure_1_extra")
def figure_1_extra(x: float, _seed: int) -> float:
    """Returns the additional delay of the command in ms due to that failure."""
    whole, failed = _failed(round(x))
    return failed.delay_ms - whole.delay_ms


@calculation("lee.figure_1_data")
def figure_1_data(x: float, _seed: int) -> float:
    """Returns the data rate in Mbit/s before the failure."""
    return _figure_1(round(x)).data_mbps


# Observations of runs.


@observation("lee.goodput", "messages")
def goodput(run: RunData, flow: str, from_s: float, to_s: float) -> float:
    """Returns the goodput in Mbit/s from `from_s` to `to_s`."""
    arrived = run.messages(flow).filter(
        pl.col("delivered_ns") >= from_s * NS_PER_S, pl.col("delivered_ns") < to_s * NS_PER_S
    )
    return float(arrived["bytes"].sum()) * 8 / (to_s - from_s) / 1e6


@observation("lee.regular", "messages")
def regular(run: RunData, flow: str, from_s: float, to_s: float, within: float = 0.2) -> float:
    """Returns the share in % of times between arrivals whose deviation from the median is at most `within` of it."""
    gaps = arrival_gaps_s(run, flow, from_s, to_s)
    return 100 * float(np.mean(np.abs(gaps / np.median(gaps) - 1) <= within)) if gaps.size else math.nan


@observation("lee.missing", "messages")
def missing(run: RunData, flow: str, from_s: float, to_s: float) -> float:
    """Returns the share in % of messages written from `from_s` to `to_s` that never arrived."""
    written = run.messages(flow, from_s, to_s)
    return 100 * written["delivered_ns"].null_count() / len(written) if len(written) else math.nan


@observation("lee.arrivals", "messages")
def arrivals(run: RunData, flow: str, period_s: float, from_s: float, to_s: float) -> float:
    """Returns the number of arrivals from `from_s` to `to_s`, in % of one per period."""
    at_s = run.messages(flow)["delivered_ns"].drop_nulls().to_numpy() / NS_PER_S
    return 100 * float(np.sum((at_s >= from_s) & (at_s < to_s))) * period_s / (to_s - from_s)


@observation("lee.wait", "messages")
def wait(run: RunData, flow: str, network_s: float, unit_s: float) -> float:
    """Returns the mean time until a message or a later one has arrived, less `network_s`, in units of `unit_s`."""
    written = run.messages(flow).sort("sent_ns")
    through = (written["delivered_ns"].backward_fill() - written["sent_ns"]).drop_nulls()
    mean = through.mean()
    return (mean / NS_PER_S - network_s) / unit_s if isinstance(mean, int | float) else math.nan


@observation("lee.mean_over_peak", "subflows")
def mean_over_peak(run: RunData, flow: str, from_s: float) -> float:
    """Returns the ratio of a window's mean to its maximum, from `from_s` on."""
    windows = run.subflows(flow).filter(pl.col("time_ns") >= from_s * NS_PER_S)["cwnd_bytes"].to_numpy()
    return float(windows.mean() / windows.max()) if windows.size else math.nan


@dataclass(frozen=True, slots=True)
class _Command:
    """Command: its arrival in ns, the delivering path, and paths and arrivals (ns) of its packets."""

    arrived: float
    by: str
    paths: list[str]
    outs: list[float]


def _commands(run: RunData, flow: str, until_s: float) -> list[_Command]:
    """Returns the commands written before `until_s`, each with the packets first sent for it.

    In a connection shared with data, a command's packets are the non-full ones up to the next command.
    """
    written = run.messages(flow, 0, until_s).sort("sent_ns")
    packets = run.table("packets").filter(pl.col("kind") == "data")
    own = packets.filter(pl.col("flow") == flow)
    packets = (own if len(own) else packets.filter(pl.col("bytes") < _FULL_BYTES)).sort("in_ns")
    begins = np.searchsorted(packets["in_ns"].to_numpy(), written["sent_ns"].to_numpy())
    found = []
    for begin, arrived, path, count in zip(
        begins, written["delivered_ns"], written["path"], written["copies_sent"], strict=True
    ):
        rows = packets[int(begin) : int(begin) + int(count)]
        outs = [
            math.inf if lost else float(out)
            for out, lost in rows.select("out_ns", pl.col("cause").is_not_null()).rows()
        ]
        found.append(_Command(math.inf if arrived is None else float(arrived), str(path), rows["path"].to_list(), outs))
    return found


@observation("lee.different_paths", "messages", "packets")
def different_paths(run: RunData, flow: str, until_s: float) -> float:
    """Returns the share in % of commands before `until_s` with several packets, all on different paths."""
    commands = _commands(run, flow, until_s)
    return 100 * float(np.mean([len(one.paths) > 1 and len({*one.paths}) == len(one.paths) for one in commands]))


@observation("lee.first_wins", "messages", "packets")
def first_wins(run: RunData, flow: str, until_s: float) -> float:
    """Returns the share in % of commands before `until_s` delivered by the path of their first packet to arrive."""
    commands = _commands(run, flow, until_s)
    firsts = [
        bool(one.outs) and one.paths[int(np.argmin(one.outs))] == one.by and one.arrived >= min(one.outs)
        for one in commands
    ]
    return 100 * float(np.mean(firsts))


@observation("lee.at_once", "messages", "packets")
def at_once(run: RunData, flow: str, until_s: float) -> float:
    """Returns the share in % of commands before `until_s` delivered on arrival of their first packet."""
    commands = _commands(run, flow, until_s)
    return 100 * float(np.mean([one.arrived == min(one.outs, default=math.inf) for one in commands]))


@observation("lee.full_copies", "messages")
def full_copies(run: RunData, flow: str, copies: float, from_s: float, to_s: float) -> float:
    """Returns the share in % of messages from `from_s` to `to_s` that the sender counts as sent `copies` times."""
    written = run.messages(flow, from_s, to_s)["copies_sent"]
    return 100 * float((written == copies).sum()) / len(written) if len(written) else math.nan


@observation("lee.chosen_paths", "decisions")
def chosen_paths(run: RunData, flow: str, reason: str, until_s: float) -> float:
    """Returns the mean number of paths chosen by the scheduler for a reason before `until_s`."""
    chosen = run.table("decisions").filter(
        pl.col("flow") == flow, pl.col("reason") == reason, pl.col("time_ns") < until_s * NS_PER_S
    )["paths"]
    return float(np.mean([int(paths).bit_count() for paths in chosen])) if len(chosen) else math.nan

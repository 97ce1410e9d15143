"""Calculations about rules of the study of Chavali (2022): windows, BLEST, MPTCP options, scenario lines, ARP."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from skybraid._core import Acked, Congestion, Lost, PathBasics
from skybraid.model.scenario import Scenario
from skybraid.model.tables import frame
from skybraid_studies.chavali2022.lines import LineError, expand, read_lines
from skybraid_studies.chavali2022.links import BASE
from skybraid_studies.engine.captures import DSS, MP_CAPABLE, MP_JOIN, Packet, captured
from skybraid_studies.engine.theory import calculation

SEGMENT = 1000
"""Payload of a segment in bytes."""

CONTROLS = ("lia", "olia", "balia", "wvegas", "reno", "cubic")
"""Congestion controls in the order of the thesis' tables."""

RTTS_S = (0.05, 0.1)
"""Round-trip times in s of the two paths on which windows grow."""

_GROWTH = """
duration = "42s"

[path.one]
rate = "1Gbit/s"
delay = "25ms"
queue = "unlimited"

[path.two]
rate = "1Gbit/s"
delay = "50ms"
queue = "unlimited"

[flow.data]
from = "vehicle"
traffic = {{ kind = "bulk" }}

[flow.data.transport]
protocol = "mptcp"
scheduler = "low_rtt"
congestion = "{control}"
segment = "1000B"
initial_window = 20
initial_threshold = "20kB"
ack_every = 1
proportional_reduction = false
receive_buffer = "64MB"
send_buffer = "64MB"
"""

_BURST = """
[[event]]
at = "20.5s"
path.two.uplink.loss = { uniform = "10%" }

[[event]]
at = "20.6s"
path.two.uplink.loss = []
"""
"""Loss of some packets of the second path in one round trip: one reduction."""


# Windows.


@cache
def _windows(control: str, *, burst: bool) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns times in s, windows and thresholds in segments, by path."""
    scenario = Scenario(_GROWTH.format(control=control) + (_BURST if burst else ""), "growth.toml")
    rows = frame(scenario.native.run(1, ["subflows"]).columns("subflows")).filter(pl.col("side") == "vehicle")
    found = {}
    for path in ("one", "two"):
        of_path = rows.filter(pl.col("path") == path)
        found[path] = (
            of_path["time_ns"].to_numpy() / 1e9,
            of_path["cwnd_bytes"].to_numpy() / SEGMENT,
            of_path["ssthresh_bytes"].to_numpy() / SEGMENT,
        )
    return found


def _at(path: tuple[np.ndarray, np.ndarray, np.ndarray], time_s: float, column: int = 1) -> float:
    return float(path[column][np.searchsorted(path[0], time_s - 1e-9)])


Increase = Callable[[np.ndarray, np.ndarray, int], float]
"""Increase of a path's window by an acknowledgement of one segment, from all windows, all round-trip times, and the
path.
"""


def lia(windows: np.ndarray, rtts_s: np.ndarray, path: int) -> float:
    """Returns the increase of LIA: min(α / w_tot, 1 / w_r)."""
    alpha = windows.sum() * (windows / rtts_s**2).max() / (windows / rtts_s).sum() ** 2
    return float(min(alpha / windows.sum(), 1 / windows[path]))


def olia(windows: np.ndarray, rtts_s: np.ndarray, path: int) -> float:
    """Returns the increase of OLIA without losses, if the best path has the largest window: its second term is zero."""
    return float(windows[path] / rtts_s[path] ** 2 / (windows / rtts_s).sum() ** 2)


def balia(windows: np.ndarray, rtts_s: np.ndarray, path: int) -> float:
    """Returns the increase of BALIA with Σx squared, which is missing in the thesis' Table 3.1."""
    rates = windows / rtts_s
    alpha = rates.max() / rates[path]
    return float(rates[path] / rtts_s[path] / rates.sum() ** 2 * (1 + alpha) / 2 * (4 + alpha) / 5)


def reno(windows: np.ndarray, _rtts_s: np.ndarray, path: int) -> float:
    """Returns the increase of Reno: 1 / w_r."""
    return float(1 / windows[path])


RULES: dict[int, Increase] = {1: lia, 2: olia, 3: balia, 5: reno}


@calculation("chavali.growth_one")
def growth_one(x: float, _seed: int) -> float:
    """Returns the ratio of the faster path's window growth from 10 to 40 s to that of rule `x`."""
    return _growth(round(x))[0]


@calculation("chavali.growth_two")
def growth_two(x: float, _seed: int) -> float:
    """Returns the ratio of the slower path's window growth from 10 to 40 s to that of rule `x`."""
    return _growth(round(x))[1]


@cache
def _growth(control: int) -> tuple[float, ...]:
    found = _windows(CONTROLS[control - 1], burst=False)
    rule, rtts_s = RULES[control], np.array(RTTS_S)
    start = np.array([_at(found[path], 10.0) for path in found])
    windows, step_s = start.copy(), 0.01
    for _ in range(round(30 / step_s)):
        windows = windows + step_s * np.array(
            [windows[path] / rtts_s[path] * rule(windows, rtts_s, path) for path in (0, 1)]
        )
    ours = np.array([_at(found[path], 40.0) for path in found])
    return tuple(float(each) for each in (ours - start) / (windows - start))


@calculation("chavali.decrease")
def decrease(x: float, _seed: int) -> float:
    """Returns the ratio of the slower path's window after a loss to that of rule `x`."""
    control = round(x)
    found = _windows(CONTROLS[control - 1], burst=True)
    before = np.array([_at(found[path], 20.5) for path in found])
    left = _at(found["two"], 21.0, 2) / before[1]
    rates = before / np.array(RTTS_S)
    return float(left) / (1 - min(rates.max() / rates[1], 1.5) / 2 if control == 3 else 0.5)


@calculation("chavali.slower_by")
def slower_by(_x: float, _seed: int) -> float:
    """Returns the rate ratio of the faster to the slower path before a loss with BALIA; above 1.5 it cuts by 3/4."""
    found = _windows("balia", burst=True)
    one, two = (_at(found[path], 20.5) / rtt_s for path, rtt_s in zip(found, RTTS_S, strict=True))
    return one / two


def _control(name: str, window: int) -> Congestion:
    path = PathBasics(
        segment_bytes=SEGMENT, initial_window_bytes=window * SEGMENT, initial_threshold_bytes=0, sack=True
    )
    return Congestion(f'"{name}"', path)


@calculation("chavali.alone")
def single_path_decrease(x: float, _seed: int) -> float:
    """Returns the window after a loss at 100 segments with control `x` on a single path, as a share."""
    control = _control(CONTROLS[round(x) - 1], 100)
    control.on_loss(Lost(now_s=1.0, in_flight_bytes=100 * SEGMENT))
    return control.window_bytes / SEGMENT / 100


CUBIC_RTT_S = 0.5
"""Round-trip time in s above which the cubic curve exceeds NewReno."""


@calculation("chavali.cubic")
def cubic(x: float, _seed: int) -> float:
    """Returns the ratio of CUBIC's window `x` s after a loss at 100 segments to C (t − K)³ + W_max."""
    control = _control("cubic", 100)
    now_s, delivered = 10.0, 0
    control.on_loss(Lost(now_s=now_s, in_flight_bytes=100 * SEGMENT))
    control.on_recovered(now_s)
    first_s = math.nan
    while math.isnan(first_s) or now_s - first_s < x - 1e-9:
        in_flight = control.window_bytes
        now_s += CUBIC_RTT_S * SEGMENT / in_flight
        first_s = now_s if math.isnan(first_s) else first_s
        delivered += SEGMENT
        acked = Acked(
            now_s=now_s,
            bytes=SEGMENT,
            delivered_bytes=delivered,
            srtt_s=CUBIC_RTT_S,
            rtt_s=CUBIC_RTT_S,
            in_flight_bytes=in_flight,
            in_flight_after_bytes=in_flight,
            window_limited=True,
        )
        control.on_ack(acked)
    k_s = math.cbrt(100 * 0.3 / 0.4)
    return control.window_bytes / SEGMENT / (0.4 * (now_s - first_s - k_s) ** 3 + 100)


_VEGAS = """
duration = "60s"

[path.one]
rate = "10Mbit/s"
delay = "20ms"

[path.two]
rate = "5Mbit/s"
delay = "40ms"

[flow.data]
from = "vehicle"
traffic = { kind = "bulk" }
transport = { protocol = "mptcp", scheduler = "low_rtt", congestion = "wvegas", segment = "1000B" }
"""


@cache
def _queued() -> tuple[float, float, float, float]:
    """Returns for wVegas the queued segments, the first path's share of these and of the rates, and the utilisation."""
    run = Scenario(_VEGAS, "vegas.toml").native.run(1, ["subflows"])
    rows = frame(run.columns("subflows")).filter(pl.col("side") == "vehicle", pl.col("time_ns") > 20_000_000_000)
    waiting, rates = [], []
    for path in ("one", "two"):
        of_path = rows.filter(pl.col("path") == path)
        windows, rtts_s = of_path["cwnd_bytes"].to_numpy() / SEGMENT, of_path["srtt_ns"].to_numpy() / 1e9
        base_s = {"one": 0.040, "two": 0.080}[path] + (SEGMENT + 76) * 8e-6 / {"one": 10, "two": 5}[path]
        waiting.append(float((windows * (1 - base_s / rtts_s)).mean()))
        rates.append(float((windows / rtts_s).mean()))
    return (
        sum(waiting),
        waiting[0] / sum(waiting),
        rates[0] / sum(rates),
        rates[0] * (SEGMENT + 76) * 8e-6 / 10,
    )


@calculation("chavali.vegas")
def vegas(x: float, _seed: int) -> float:
    """Returns statistic `x` of wVegas.

    1: queued segments. 2: ratio of the first path's share of these to its share of the rates. 3: utilisation of the
    link.
    """
    total, queued, rate, filled = _queued()
    return (total, queued / rate, filled)[round(x) - 1]


# BLEST.

_BLEST = """
duration = "12s"

[path.fast]
rate = "1Gbit/s"
delay = "10ms"

[path.slow]
rate = "1Gbit/s"
delay = "50ms"

[flow.data]
from = "vehicle"
traffic = {{ kind = "bulk" }}

[flow.data.transport]
protocol = "mptcp"
scheduler = {{ name = "blest", lambda = 1.0, lambda_min = 1.0, lambda_max = 1.0 }}
congestion = "reno"
segment = "1000B"
initial_window = 10
initial_threshold = "10kB"
ack_every = 1
receive_buffer = "{buffer}kB"
"""


@calculation("chavali.blest")
def blest(x: float, _seed: int) -> float:
    """Returns the ratio of BLEST's bound, when it stops using the slow path, to a receive buffer of `x` kB.

    The fast path's window grows by a segment per round trip, and with it the data that this path could send meanwhile,
    MSS · (w + (r − 1) / 2) · r with r = 5, until these and the slow path's data in flight fill the buffer.
    """
    run = Scenario(_BLEST.format(buffer=f"{x:g}"), "blest.toml").native.run(1, ["decisions", "subflows"])
    # Decisions of the scheduler: it sends on the slow path, or waits for the fast one.
    decisions = frame(run.columns("decisions")).filter(pl.col("side") == "vehicle")
    sends = decisions.filter(pl.col("reason") == "no blocking expected", pl.col("paths") == 2)["time_ns"]
    waits = decisions.filter(pl.col("reason") == "blocking expected")["time_ns"]
    if sends.is_empty() or waits.is_empty():
        return math.nan
    last_ns = int(sends[-1])
    rows = frame(run.columns("subflows")).filter(pl.col("side") == "vehicle")

    def then(path: str, column: str) -> float:
        of_path = rows.filter(pl.col("path") == path).drop_nulls(column)
        return float(np.interp(last_ns, of_path["time_ns"].to_numpy(), of_path[column].to_numpy()))

    ratio = then("slow", "srtt_ns") / then("fast", "srtt_ns")
    meanwhile = (then("fast", "cwnd_bytes") + (ratio - 1) / 2 * SEGMENT) * ratio
    return (meanwhile + then("slow", "in_flight_bytes") + SEGMENT) / (x * 1000)


# MPTCP's options.

_SETUP = """
name = "Two paths"
duration = "3s"

[path.one]
rate = "10Mbit/s"
delay = "20ms"

[path.two]
rate = "10Mbit/s"
delay = "20ms"

[flow.data]
from = "vehicle"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "1000B" }
transport = { protocol = "mptcp", scheduler = "round_robin" }
"""

_ADD_ADDR = 3


@calculation("chavali.setup")
def setup(x: float, _seed: int) -> float:
    """Returns 1 if check `x` of Fig. 3.2 (MPTCP set-up) holds in a capture of a simulated connection, else 0."""
    return float(_setup_checks()[round(x) - 1])


@cache
def _setup_checks() -> tuple[bool, ...]:
    paths = ("one", "two")
    first, second = captured(_SETUP, paths)
    told_first, told_second = captured(
        _SETUP.replace('"round_robin"', '"round_robin", path_manager = "announced"'), paths
    )
    plain = captured(_SETUP.replace('"round_robin"', '"round_robin", peer_multipath = false'), paths)
    capable = [one.options[MP_CAPABLE] for one in first if MP_CAPABLE in one.options]
    joins = [one.options[MP_JOIN] for one in second if MP_JOIN in one.options]
    return (
        # MP_CAPABLE opens the connection, and the server's response has a key of 64 bits.
        len(capable) >= 2 and any(len(option) >= 12 for option in capable),
        # MP_JOIN with a token of 32 bits in the SYN, an HMAC of 64 bits in the response, one of 160 in the third
        # packet.
        [len(option) for option in joins[:3]] == [12, 16, 24],
        # The second path carries no data before it has joined.
        all(one.at > min(join.at for join in second if MP_JOIN in join.options) for one in second if one.payload),
        # With announced addresses the second path opens later than without.
        min(one.at for one in told_second) > min(one.at for one in second),
        # ADD_ADDR is in the capture.
        any(_ADD_ADDR in one.options for one in told_first),
        # With a peer without MPTCP, data use TCP on the first path.
        all(DSS not in one.options for one in plain[0] if one.payload) and not plain[1],
    )


# Round-trip times as computed by tshark.

_PERMUTATIONS = (
    ("low_rtt", "lia"),
    ("low_rtt", "reno"),
    ("low_rtt", "cubic"),
    ("blest", "balia"),
    ("round_robin", "lia"),
    ("redundant", "lia"),
)


def tshark_ms(packets: Sequence[Packet]) -> list[float]:
    """Returns round-trip times in ms of a subflow captured at its sender, as in tshark's `tcp.analysis.ack_rtt`.

    Each advancing acknowledgement gives the time since the last transmission of the segment that ends at its number. If
    it closes a hole, that segment arrived long before.
    """
    sent_ns: dict[int, int] = {}
    highest, found = -1, []
    for one in packets:
        if one.payload:
            sent_ns[one.sequence + one.payload] = one.at
        elif one.acknowledged > highest:
            highest = one.acknowledged
            if highest in sent_ns:
                found.append((one.at - sent_ns[highest]) / 1e6)
    return found


@cache
def _recovered_ms(number: int, delay: str, seed: int) -> float:
    scheduler, congestion = _PERMUTATIONS[number - 1]
    base = Scenario.load(BASE).with_all(
        {
            "flow.stream.transport.profile": "linux",
            "flow.stream.transport.scheduler": scheduler,
            "flow.stream.transport.congestion": congestion,
            "path.satcom.delay": delay,
        }
    )
    (satcom,) = captured(base.toml(), ("satcom",), end="ground", seed=seed)
    return max(tshark_ms(satcom), default=math.nan)


@calculation("chavali.longest_as_tshark")
def max_rtt_as_tshark(x: float, seed: int) -> float:
    """Returns the maximum round trip over the satellite in ms, as in tshark, with permutation `x`."""
    return _recovered_ms(round(x), "28ms", seed)


@calculation("chavali.longest_as_tshark_92")
def max_rtt_as_tshark_92(x: float, seed: int) -> float:
    """Returns the maximum round trip as in `longest_as_tshark`, for a satellite round trip of 92 ms."""
    return _recovered_ms(round(x), "46ms", seed)


# Scenario lines, Listing 4.1.

_LISTING = (
    "-N 1 -O LEO -r LTE -c cccc",
    "-N 5 -O LEO -E 10,10 -r SAT -c rrrr",
    "-N 10 -O LEO -E 10,10 -L 0.001 -r MP -S default -c lia -H -W -Y",
)
_ALL = "-N 10 -O LEO -r MP -S default,roundrobin,redundant,blest -c lia,olia,balia,wvegas,reno,cubic"


@calculation("chavali.lines")
def lines(x: float, _seed: int) -> float:
    """Returns property `x` of the conversion of Listing 4.1.

    1: number of scenarios of its three lines. 2: number of scenarios of the line for all permutations. 3: loss of the
    third line in ppm. 4: its number of runs. 5: one-way delay of its satellite in ms. 6: whether `-c cccc` is read as
    the ends' CUBIC. 7: whether an unknown value is refused.
    """
    first, _, third = (expand(line)[0] for line in _LISTING)
    answers: Sequence[Callable[[], float]] = (
        lambda: len(read_lines("\n".join(_LISTING), "listing")),
        lambda: len(read_lines(_ALL, "listing")),
        lambda: 1e4 * float(third["loss_percent"]),
        lambda: float(third["runs"]),
        _satellite_delay_ms,
        lambda: float(first["congestion"] == "cubic" and first["end_congestion"] == "cccc"),
        lambda: float(_refused("-O LEO -S fastest")),
    )
    return float(answers[round(x) - 1]())


def _satellite_delay_ms() -> float:
    """Returns the satellite's one-way delay in ms in the scenario of the listing's third line."""
    (text,) = read_lines(_LISTING[2], "listing").values()
    delay: str = tomllib.loads(text)["path"]["leo"]["downlink"]["delay"]
    return float(delay.removesuffix("ms"))


def _refused(line: str) -> bool:
    try:
        expand(line)
    except LineError:
        return True
    return False


# Forwarding, Table 4.2.

_CLOSED = """
name = "A link that loses all"
duration = "3s"

[path.one]
rate = "10Mbit/s"
delay = "100ms"
loss = { uniform = "100%" }

[flow.data]
from = "vehicle"
traffic = { kind = "cbr", rate = "100kbit/s", packet = "100B" }
"""

_SENDS = """
import socket
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(5):
    out.sendto(b"x", ("10.0.0.2", 9))
    __import__("time").sleep(0.1)
print(open("/proc/net/arp").read())
"""


@calculation("chavali.forwarding")
def forwarding(x: float, _seed: int) -> float:
    """Returns, for a link with total loss, 1: the share of 5 datagrams lost; 2: whether ARP resolved the other end.

    NaN if the machine allows no sandbox.
    """
    return _forwarded()[round(x) - 1]


@cache
def _forwarded() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        scenario, program, out = (Path(folder) / name for name in ("closed.toml", "send.py", "result"))
        scenario.write_text(_CLOSED, encoding="utf-8")
        program.write_text(_SENDS, encoding="utf-8")
        words = [sys.executable, "-m", "skybraid", "emulate", str(scenario), "--out", str(out), "--json"]
        words += ["--vehicle", f"{sys.executable} {program}", "--ground", "sleep 2"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            links = json.loads(done.stdout)["links"]
            log = (out / "vehicle.out").read_text(encoding="utf-8")
        except (OSError, subprocess.TimeoutExpired, ValueError, LookupError):
            return math.nan, math.nan
    uplink = next(link for link in links if link["direction"] == "uplink")
    # The flag 0x2 marks a resolved entry.
    return uplink["lost_random"] / 5, float(any(" 0x2 " in line for line in log.splitlines()))

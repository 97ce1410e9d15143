"""Observations and calculations of the study of Pedrazzi (2020): goodput of applications, error models, paths."""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl

from skybraid._core import Link
from skybraid.model.scenario import Scenario
from skybraid.model.tables import frame
from skybraid_studies.engine.captures import DSS, MP_CAPABLE, MP_JOIN, Packet, captured
from skybraid_studies.engine.measure import belongs
from skybraid_studies.engine.observe import NS_PER_S, RunData, observation
from skybraid_studies.engine.theory import calculation

_LINK = """
uplink.rate = "10Gbit/s"
uplink.queue = "unlimited"
downlink.rate = "10Gbit/s"
uplink.loss = {loss}
"""

_PACKET_BYTES = 1000

_TWO_PATHS = """
name = "Two paths"
duration = "3s"

[path.one]
uplink = { rate = "10Mbit/s", delay = "20ms" }
downlink = { rate = "10Mbit/s", delay = "20ms" }

[path.two]
uplink = { rate = "10Mbit/s", delay = "20ms" }
downlink = { rate = "10Mbit/s", delay = "20ms" }

[flow.data]
from = "vehicle"
traffic = { kind = "cbr", rate = "1Mbit/s", packet = "1000B" }
transport = { protocol = "mptcp", scheduler = "round_robin", join_after = "dss" }
"""

_LINKED = """
name = "Equal subflows"
duration = "40s"

[path.one]
uplink = {{ rate = "1Gbit/s", delay = "50ms" }}
downlink = {{ rate = "1Gbit/s", delay = "50ms" }}

[flow.data]
from = "vehicle"
traffic = {{ kind = "bulk" }}

[flow.data.transport]
protocol = "mptcp"
scheduler = "round_robin"
congestion = "lia"
segment = "1000B"
initial_threshold = "20kB"
ack_every = 1
path_manager = {{ ports = {subflows} }}
"""


_HOSTS = 2
"""Hosts of each protocol in the mixed runs."""

_SECOND = "tcp_again"
"""Flow of the second application on hosts with two."""

_LENGTHS_S = (30.0, 60.0, 120.0, 240.0, 480.0)
"""Lengths of the runs over which goodputs are averaged, as in study.toml."""


@observation("pedrazzi.application", "messages")
def application(run: RunData, flows: list[str]) -> float:
    """Returns the mean goodput in kbit/s of an application's flows on both hosts.

    The author's numbers of mixed runs are such means: for bulk, those of two hosts equal that of a single host, at
    every loss.
    """
    rows = run.table("messages").drop_nulls("delivered_ns").with_columns(pl.col("flow").cast(pl.String))
    names = [name for name in rows["flow"].unique().to_list() if any(belongs(name, each) for each in flows)]
    rows = rows.filter(pl.col("flow").is_in(names))
    applications = _HOSTS * (2 if any(belongs(name, _SECOND) for name in run.flows) else 1)
    found = []
    for length_s in [length for length in _LENGTHS_S if length <= run.length_s] or [run.length_s]:
        bits = 8 * int(rows.filter(pl.col("delivered_ns") <= length_s * NS_PER_S)["bytes"].sum())
        found.append(bits / length_s / 1e3 / applications)
    return float(np.mean(found))


@calculation("pedrazzi.bit_errors")
def bit_errors(x: float, seed: int) -> float:
    """Returns the share (0 to 1) of four million packets of 1000 B lost on a link with bit error rate `x`."""
    return _lost(f"{{ bit_errors = {x!r} }}", np.arange(4_000_000) * 1e-5, seed)


@calculation("pedrazzi.on_off")
def on_off(x: float, seed: int) -> float:
    """Returns the share (0 to 1) of packets, one per 50 ms over 70 000 s, lost with ON 6 s, OFF 1 s and loss `x`."""
    phases = 'on = { mean = "6s", sd = "0.7071s" }, off = { mean = "1s", sd = "0.3162s" }'
    return _lost(f'{{ on_off = {{ {phases}, off_loss = "{100 * x:.12g}%" }} }}', np.arange(1_400_000) * 0.05, seed)


@calculation("pedrazzi.on_time")
def on_time(x: float, seed: int) -> float:
    """Returns the share (0 to 1) of packets lost as in `on_off`, with a mean ON of `x` s and a loss of 1 % in OFF."""
    phases = f'on = {{ mean = "{x:.12g}s", sd = "0.7071s" }}, off = {{ mean = "1s", sd = "0.3162s" }}'
    return _lost(f'{{ on_off = {{ {phases}, off_loss = "1%" }} }}', np.arange(1_400_000) * 0.05, seed)


def _lost(loss: str, times_s: np.ndarray, seed: int) -> float:
    link = Link(_LINK.format(loss=loss), seed=seed)
    # As in the thesis, the rate applies to the payload of 1000 B.
    arrivals_s, _ = link.admit(times_s.astype(np.float64), np.full(len(times_s), _PACKET_BYTES, dtype=np.uint32))
    return float(np.isnan(arrivals_s).mean())


@calculation("pedrazzi.linked_increases")
def linked_increases(x: float, seed: int) -> float:
    """Returns the total growth in segments per round trip of `x` equal subflows' windows, with LIA without losses."""
    scenario = Scenario(_LINKED.format(subflows=round(x)), "linked.toml")
    native = scenario.native.run(seed, ["subflows"])
    rows = frame(native.columns("subflows"))
    sending = rows.filter(rows["side"] == "vehicle")
    at_s = sending["time_ns"].to_numpy() / 1e9
    windows = sending["cwnd_bytes"].to_numpy().astype(float)
    ends = [windows[np.isclose(at_s, time_s)].sum() for time_s in (10.0, 39.0)]
    round_trips = 29.0 / 0.1
    return float((ends[1] - ends[0]) / 1000 / round_trips)


@calculation("pedrazzi.paths")
def paths(x: float, _seed: int) -> float:
    """Returns the number of shortest paths between two hosts with `x` routers per side, found by the simulator."""
    routers = round(x)
    layers = {
        "host_a": 1,
        "router_a": routers,
        "dish_a": 4,
        "satellite": 6,
        "dish_b": 4,
        "router_b": routers,
        "host_b": 1,
    }
    link = {"rate": "500Mbit/s", "delay": "10ms"}
    scenario = Scenario.build(
        {
            "duration": "1s",
            "node": {name: {"count": count} for name, count in layers.items()},
            "link": {f"{one}-{other}": {"from": one, "to": other, **link} for one, other in pairwise(layers)},
            "flow": {"data": {"from": "host_a", "to": "host_b", "traffic": {"kind": "file", "size": "1kB"}}},
        }
    )
    return float(scenario.native.routes(1)[0]["ways"])


@calculation("pedrazzi.options")
def options(x: float, _seed: int) -> float:
    """Returns 1 if check `x` of the thesis on MPTCP's options holds in a capture of a simulated connection, else 0."""
    return float(_checks()[round(x) - 1])


@cache
def _checks() -> tuple[bool, ...]:
    first, second = captured(_TWO_PATHS, ("one", "two"))
    keys = [one.options[MP_CAPABLE][4:12] for one in first if one.syn and len(one.options.get(MP_CAPABLE, b"")) >= 12]
    joins = [one for one in second if one.syn and MP_JOIN in one.options]
    mappings = [one for one in (*first, *second) if DSS in one.options]
    tokens = {hashlib.sha256(key).digest()[:4] for key in keys}
    plain, _ = captured(_TWO_PATHS.replace('"round_robin"', '"round_robin", peer_multipath = false'), ("one", "two"))
    return (
        # A key of 64 bits; a token of 32 bits that is a hash of it.
        len(keys) > 0,
        len(joins) > 0 and joins[0].options[MP_JOIN][4:8] in tokens,
        # Subflows join after a DSS option was seen.
        min(one.at for one in joins) > min(one.at for one in mappings),
        # The length of the option follows from its flags: A, data ACK of 4 B, or 8 B with a; M, mapping with a DSN of 4
        # B, or 8 B with m.
        all(len(one.options[DSS]) == _dss_length(one.options[DSS][3]) for one in mappings),
        # Data have a mapping, and data ACKs are cumulative.
        all(one.options[DSS][3] & 4 for one in mappings if one.payload),
        all(before <= after for before, after in pairwise(_data_acks(first))),
        # With a peer without MPTCP the connection is TCP.
        all(not one.options for one in plain if one.payload),
    )


def _dss_length(flags: int) -> int:
    ack = (8 if flags & 2 else 4) if flags & 1 else 0
    mapping = (8 if flags & 8 else 4) + 4 + 2 if flags & 4 else 0
    return 4 + ack + mapping


def _data_acks(packets: list[Packet]) -> list[int]:
    """Returns the data acknowledgements of the side that sends no data."""
    acks = [one.options[DSS] for one in packets if DSS in one.options and not one.payload]
    return [int.from_bytes(each[4 : 12 if each[3] & 2 else 8], "big") for each in acks if each[3] & 1]

"""Translation of scenarios to gateway configurations.

A scenario of the flows `data` and `control`, from the vehicle to the ground, becomes a UDP port of class `bulk` and one
of class `control`. MPTCP data are sent over the gateway's MP-DCCP with the same scheduler, or in TCP mode over Linux
MPTCP.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from skybraid.gateway.daemons import binary
from skybraid.model.errors import ScenarioError

if TYPE_CHECKING:
    from skybraid.model.scenario import Scenario

DATA, CONTROL = "data", "control"

PORTS = {DATA: 5600, CONTROL: 5601}
"""Loopback ports on which applications send to and receive from a gateway, by flow."""

FULL_BPS = 45e6
"""Offered rate of a flow without a rate, in bit/s: more than the studies' paths carry together."""

NO_STREAM = "a gateway never puts control into the stream of the data"


class CannotPlayError(ScenarioError):
    """A scenario uses a feature that gateways do not support."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages of constant size at a constant rate.

    Attributes:
        bits_per_s: rate of application data in bit/s.
        message_bytes: size of a message in bytes.
        start_s: time of the first message in s.
    """

    bits_per_s: float
    message_bytes: int
    start_s: float

    @property
    def interval_s(self) -> float:
        """Interval between two messages in s."""
        return 8 * self.message_bytes / self.bits_per_s


@dataclass(frozen=True, slots=True)
class Play:
    """Configuration of two gateways for a scenario.

    Attributes:
        paths: names of the paths used.
        tables: tables of both configuration files.
        flows: messages of the applications, by flow.
        words: description of the transports of the flows.
    """

    paths: tuple[str, ...]
    flows: Mapping[str, Flow]
    words: str
    tables: Mapping[str, Any] = field(default_factory=dict)


def play(scenario: Scenario, judged: str = CONTROL) -> Play:
    """Translates a scenario to a configuration of two gateways.

    Args:
        scenario: scenario with the flows `data` and `control`.
        judged: evaluated flow. If it is `data`, the few bytes of control may use another transport.

    Raises:
        CannotPlayError: gateways do not support the scenario.
    """
    tables = tomllib.loads(scenario.toml())
    flows = tables.get("flow", {})
    if set(flows) != {DATA, CONTROL} or any(one.get("from") != "vehicle" for one in flows.values()):
        raise CannotPlayError(f"{scenario.name}: found flows {', '.join(flows)}, expected data and control, both up")
    all_paths = sorted(tables["path"])
    data, control = flows[DATA].get("transport", {}), flows[CONTROL].get("transport", {})
    together = flows[CONTROL].get("with") == DATA
    offered = {name: _flow(one) for name, one in flows.items()}
    used = {DATA: _paths(data, all_paths), CONTROL: all_paths if together else _paths(control, all_paths)}
    scheduler = data.get("scheduler", "low_rtt")
    kind = scheduler["name"] if isinstance(scheduler, dict) else scheduler
    classes: dict[str, Any] = {"bulk": {"scheduler": scheduler}}
    if together and kind == "mutran":
        words = "control over a TCP connection of each path, data over MPTCP of Linux (TCP mode)"
        return Play(tuple(all_paths), offered, words, _tables("tcp"))
    if together and kind == "redundant":
        words = "a copy of everything on each path: data by MP-DCCP and the scheduler redundant, control by UDP"
        return Play(tuple(all_paths), offered, words, _tables("udp", classes))
    if together and judged == CONTROL:
        raise CannotPlayError(NO_STREAM)
    paths = tuple(sorted({*used[DATA], *used[CONTROL]}))
    if used[DATA] == used[CONTROL] and len(paths) == 1:
        return Play(paths, offered, "control by UDP and data by DCCP over one path", _tables("udp"))
    if used[DATA] != used[CONTROL]:
        if any(len(one) != 1 for one in used.values()):
            raise CannotPlayError("a gateway has one path or all of them for a class")
        for flow, name in ((DATA, "bulk"), (CONTROL, "control")):
            classes[name] = {"scheduler": {"name": "single", "path": paths.index(used[flow][0])}}
        words = "data by MP-DCCP on one path alone, control by UDP on the other"
        return Play(paths, offered, words, _tables("udp", classes))
    words = f"a copy of control on each path by UDP, data by MP-DCCP and the scheduler {kind}"
    return Play(paths, offered, words, _tables("udp", classes))


@cache
def program_digest() -> str:
    """Returns a digest of the gateway binary; empty if there is none."""
    program = binary()
    return "" if program is None else hashlib.sha256(program.read_bytes()).hexdigest()[:24]


def _tables(network: str, classes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"network": network} | ({"class": dict(classes)} if classes else {})


def _paths(transport: Mapping[str, Any], all_paths: Sequence[str]) -> list[str]:
    return sorted(transport.get("paths", all_paths))


def _flow(table: Mapping[str, Any]) -> Flow:
    traffic = table["traffic"]
    size = _number(traffic.get("packet", "1200B"), {"B": 1.0})
    rate = FULL_BPS
    if traffic["kind"] == "cbr":
        rate = _number(traffic["rate"], {"Mbit/s": 1e6, "kbit/s": 1e3, "bit/s": 1.0})
    elif traffic["kind"] != "bulk":
        raise CannotPlayError(f"found traffic of kind {traffic['kind']}, expected cbr or bulk")
    start = table.get("start", "0s")
    return Flow(rate, round(size), _number(start, {"ms": 1e-3, "min": 60.0, "s": 1.0}))


def _number(text: str, units: Mapping[str, float]) -> float:
    for unit, factor in units.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise CannotPlayError(f"found {text}, expected a number with one of the units {', '.join(units)}")

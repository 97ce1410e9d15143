"""Rules of the frontier: transports by deadline, with settings chosen on the first half of the measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Transport = dict[str, Any]


def udp(name: str, **keys: Any) -> Transport:  # noqa: ANN401 values of TOML
    """Returns a UDP transport with a scheduler and its keys."""
    return {"protocol": "udp", "scheduler": {"name": name, **keys} if keys else name}


def _hedge(deadline_ms: int) -> Transport:
    return udp("hedge", within=f"{deadline_ms}ms")


EARLY_WARNING = {
    100: {"warn": "40ms", "ack_delay": "10ms"},
    150: {"warn": "43ms", "ack_delay": "10ms"},
    300: {"warn": "150ms", "ack_delay": "40ms"},
}
"""Setting by deadline: the one with the fewest misses among those within an overhead of 30, 20 and 5 %."""


def _early_warning(deadline_ms: int) -> Transport:
    return udp("early_warning", within=f"{deadline_ms}ms", **EARLY_WARNING[deadline_ms])


DEADLINE = {
    100: {},
    150: {},
    300: {"ack_delay": "60ms"},
}
"""Settings by deadline that differ from the defaults: with a budget of 20 % the overhead is within 30, 20 and 5 %."""


def _deadline(deadline_ms: int) -> Transport:
    return udp("deadline", within=f"{deadline_ms}ms", **DEADLINE[deadline_ms])


RULES: dict[str, Callable[[int], Transport]] = {
    "one_path": lambda _: udp("single"),
    "low_rtt": lambda _: udp("low_rtt"),
    "budget": lambda deadline_ms: udp("budget", rtt=f"{2 * deadline_ms}ms"),
    "hedge": _hedge,
    "early_warning": _early_warning,
    "deadline": _deadline,
    "redundant": lambda _: udp("redundant"),
}
"""Rules by increasing overhead."""


def in_rounds(rule: str, deadline_ms: int) -> Transport:
    """Returns a rule for paths that differ only in being up or down: with the deadline, otherwise with defaults."""
    transport = RULES[rule](max(DEADLINE))
    scheduler = transport["scheduler"]
    if isinstance(scheduler, str):
        return transport
    time = {"rtt": f"{2 * deadline_ms}ms"} if rule == "budget" else {"within": f"{deadline_ms}ms"}
    return udp(scheduler["name"], **time)


ORACLE = "oracle"
"""Name of the rule that knows the future, the bound of all rules."""

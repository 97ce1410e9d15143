"""Shared parts of the probes: quantities with units, runs that may fail, error texts, summaries."""

import asyncio
import csv
import io
import math
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from skybraid._core import SkybraidError

Row = dict[str, float | int | str | None]
"""One row of a tidy table; column names include the unit: `connect_ms`, `goodput_mbps`."""

Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""Family and socket address from the resolver."""

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

_TIMES_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RETRY_S = 0.1


class ProbeError(SkybraidError):
    """A measurement is impossible; the message says what was attempted, what was found and how to fix it."""


class RefusedError(ProbeError):
    """Nothing listens at the address, or not yet."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a probe.

    Attributes:
        probe: name of the probe, as on the command line.
        target: address or URL.
        words: description of the measurement, for people.
        rows: tidy table, one row per run, connection or echo.
        failures: errors of the runs that failed.
    """

    probe: str
    target: str
    words: str
    rows: list[Row]
    failures: list[str]

    def summary(self) -> dict[str, dict[str, float]]:
        """Returns minimum, median, 95 % and 99 % quantiles and maximum of each column in ms or Mbit/s."""
        columns = [name for name in (self.rows[0] if self.rows else {}) if name.endswith(("_ms", "_mbps"))]
        numbers = {name: [row[name] for row in self.rows] for name in columns}
        return {name: spread([x for x in found if isinstance(x, int | float)]) for name, found in numbers.items()}

    def json(self) -> dict[str, Any]:
        """Returns the measurement as one JSON object."""
        lost = [row for row in self.rows if row.get("rtt_ms", 0) is None]
        counts = {"count": len(self.rows), "lost": len(lost)} if self.probe == "ping" else {}
        return {
            "probe": self.probe,
            "target": self.target,
            **counts,
            "summary": self.summary(),
            "samples": self.rows,
            "failures": self.failures,
        }

    def csv(self) -> str:
        """Formats the rows as CSV with a header; missing values are empty."""
        text = io.StringIO()
        table = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        return text.getvalue()

    def text(self) -> str:
        """Formats a heading and one line per quantity."""
        names = ("min", *QUANTILES, "max")
        lines = [self.words, " " * 14 + "".join(f"{name:>10}" for name in names)]
        for quantity, found in self.summary().items():
            if found:
                lines.append(f"{quantity:<14}" + "".join(f"{found[name]:>10.4g}" for name in names))
        return "\n".join(lines)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns minimum, quantiles (inverse of the empirical distribution) and maximum; empty without values."""
    if not values:
        return {}
    ordered = sorted(values)
    found = {name: ordered[math.ceil(q * len(ordered)) - 1] for name, q in QUANTILES.items()}
    return {"min": ordered[0], **found, "max": ordered[-1]}


def seconds(text: str, option: str) -> float:
    """Parses a duration such as `10ms`; returns s.

    Raises:
        ProbeError: the text is not a number with a unit of time.
    """
    return _quantity(text, option, _TIMES_S, "a time with its unit, for example 10ms")


def size_bytes(text: str, option: str) -> int:
    """Parses a size such as `50kB`; returns bytes. A bare number is in bytes.

    Raises:
        ProbeError: the text is not a number, or its unit is unknown.
    """
    with_unit = text if not text.isdecimal() else f"{text}B"
    return round(_quantity(with_unit, option, _SIZES, "a size with its unit, for example 50kB"))


def _quantity(text: str, option: str, units: dict[str, Any], expected: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*", text)
    if match is None or match[2] not in units:
        raise ProbeError(f"{option}: found {text}, expected {expected} ({', '.join(units)})")
    return float(match[1]) * float(units[match[2]])


async def addresses(host: str, port: int, kind: socket.SocketKind) -> list[Address]:
    """Returns the addresses of a host, in the order in which to try them.

    Raises:
        ProbeError: the name cannot be resolved.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind)
    except OSError as error:
        raise ProbeError(f"{host}: no such host: {error.strerror}") from error
    return [(family, where) for family, _, _, _, where in found]


def format_address(protocol: str, address: Sequence[Any]) -> str:
    """Formats an address with its protocol."""
    host, port = address[0], address[1]
    return f"{protocol} {f'[{host}]' if ':' in str(host) else host}:{port}"


@contextmanager
def explained_errors(attempt: str, timeout_s: float) -> Iterator[None]:
    """Turns system errors in the block into errors with a plain explanation.

    Raises:
        ProbeError: `attempt` was refused, unreachable, silent for `timeout_s` or cut off.
    """
    try:
        yield
    except TimeoutError as error:
        raise ProbeError(
            f"{attempt}: no answer within {timeout_s:g} s; is the server there, and a path to it?"
        ) from error
    except ConnectionRefusedError as error:
        raise RefusedError(f"{attempt}: refused, nothing listens there; start `skybraid probe serve`") from error
    except (ConnectionError, EOFError) as error:
        raise ProbeError(f"{attempt}: the other end closed the connection before its answer was complete") from error
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise ProbeError(f"{attempt}: found what is not HTTP: {error}") from error
    except OSError as error:
        raise ProbeError(f"{attempt}: unreachable: {error.strerror or error}") from error


async def repeat(runs: int, wait_s: float, one: Callable[[int], Awaitable[list[Row]]]) -> tuple[list[Row], list[str]]:
    """Calls `one` with 1 to `runs`; returns the rows of successful runs and the errors of failed ones.

    Until the first success, runs refused by the server are repeated for up to `wait_s` in total.

    Raises:
        ProbeError: all runs failed.
    """
    until = time.monotonic() + wait_s
    rows: list[Row] = []
    failures: list[ProbeError] = []
    for run in range(1, runs + 1):
        while True:
            try:
                rows += await one(run)
            except ProbeError as error:
                if isinstance(error, RefusedError) and not rows and time.monotonic() < until:
                    await asyncio.sleep(_RETRY_S)
                    continue
                failures.append(error)
            break
    if not rows:
        raise failures[0]
    return rows, [str(failure) for failure in failures]


def ms(since: float, until: float) -> float:
    """Returns the difference of two clock readings in ms, rounded to 1 µs."""
    return round((until - since) * 1e3, 3)


def mbps(size: int, duration_s: float) -> float:
    """Returns the rate in Mbit/s of `size` bytes in `duration_s`."""
    return round(size * 8 / duration_s / 1e6, 6) if duration_s > 0 else 0.0

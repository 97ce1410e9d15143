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
"""One line of a tidy table; the names say the unit: `connect_ms`, `goodput_mbps`."""

Address = tuple[socket.AddressFamily, tuple[Any, ...]]
"""A family and a socket address as the resolver gives them."""

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}

_TIMES_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RETRY_S = 0.1


class ProbeError(SkybraidError):
    """A measurement is impossible; the message says what was tried, what was found and how to fix it."""


class RefusedError(ProbeError):
    """Nothing listens at the address, or not yet."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a probe.

    Attributes:
        probe: its name, as on the command line.
        target: the address or URL.
        words: description of the measurement, for people.
        rows: one each run, connection or echo; shape of a tidy table.
        failures: errors of runs that are not in `rows`.
    """

    probe: str
    target: str
    words: str
    rows: list[Row]
    failures: list[str]

    def summary(self) -> dict[str, dict[str, float]]:
        """Minimum, median, 95 % and 99 % quantiles and maximum of each column in ms or Mbit/s."""
        columns = [name for name in (self.rows[0] if self.rows else {}) if name.endswith(("_ms", "_mbps"))]
        numbers = {name: [row[name] for row in self.rows] for name in columns}
        return {name: spread([x for x in found if isinstance(x, int | float)]) for name, found in numbers.items()}

    def json(self) -> dict[str, Any]:
        """Converts everything to one JSON value."""
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
    """Minimum, quantiles (inverse of the empirical distribution) and maximum; empty without values."""
    if not values:
        return {}
    ordered = sorted(values)
    found = {name: ordered[math.ceil(q * len(ordered)) - 1] for name, q in QUANTILES.items()}
    return {"min": ordered[0], **found, "max": ordered[-1]}


def seconds(text: str, option: str) -> float:
    """Parses a duration such as `10ms`, in s.

    Raises:
        ProbeError: not a number with a unit of time.
    """
    return _quantity(text, option, _TIMES_S, "a time with its unit, for example 10ms")


def size_bytes(text: str, option: str) -> int:
    """Parses a size such as `50kB`, in bytes; a bare number is bytes.

    Raises:
        ProbeError: not a number, or with an unknown unit.
    """
    whole = text if not text.isdecimal() else f"{text}B"
    return round(_quantity(whole, option, _SIZES, "a size with its unit, for example 50kB"))


def _quantity(text: str, option: str, units: dict[str, Any], expected: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*", text)
    if match is None or match[2] not in units:
        raise ProbeError(f"{option}: found {text}, expected {expected} ({', '.join(units)})")
    return float(match[1]) * float(units[match[2]])


async def addresses(host: str, port: int, kind: socket.SocketKind) -> list[Address]:
    """Addresses of a host, in the order in which to try them.

    Raises:
        ProbeError: nobody knows the name.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=kind)
    except OSError as error:
        raise ProbeError(f"{host}: no such host: {error.strerror}") from error
    return [(family, where) for family, _, _, _, where in found]


def named(protocol: str, where: Sequence[Any]) -> str:
    """Formats an address with its protocol."""
    host, port = where[0], where[1]
    return f"{protocol} {f'[{host}]' if ':' in str(host) else host}:{port}"


@contextmanager
def plainly(tried: str, timeout_s: float) -> Iterator[None]:
    """Describes a system error in plain words.

    Raises:
        ProbeError: refused, unreachable, silent for `timeout_s` or cut off; names what was `tried`.
    """
    try:
        yield
    except TimeoutError as error:
        raise ProbeError(
            f"{tried}: no answer within {timeout_s:g} s; is the server there, and a path to it?"
        ) from error
    except ConnectionRefusedError as error:
        raise RefusedError(f"{tried}: refused, nothing listens there; start `skybraid probe serve`") from error
    except (ConnectionError, EOFError) as error:
        raise ProbeError(f"{tried}: the other end closed the connection before its answer was complete") from error
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise ProbeError(f"{tried}: found what is not HTTP: {error}") from error
    except OSError as error:
        raise ProbeError(f"{tried}: unreachable: {error.strerror or error}") from error


async def repeat(runs: int, wait_s: float, one: Callable[[int], Awaitable[list[Row]]]) -> tuple[list[Row], list[str]]:
    """Calls `one` with 1, 2, … and gives the rows of those that went well and what went wrong in the others.

    A server that is not there yet is waited for, `wait_s` in all.

    Raises:
        ProbeError: not one went well.
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
    """Difference of two clock readings in ms, rounded to 1 µs."""
    return round((until - since) * 1e3, 3)


def mbps(size: int, duration_s: float) -> float:
    """Rate of `size` bytes in `duration_s`, in Mbit/s."""
    return round(size * 8 / duration_s / 1e6, 6) if duration_s > 0 else 0.0

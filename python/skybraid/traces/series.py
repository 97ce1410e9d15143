"""Step-wise series of one quantity, and its statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from skybraid.model.errors import TraceError as TraceError
from skybraid.model.heavy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Quantity = Literal["rate", "delay", "loss", "rtt"]

UNIT_OF: dict[Quantity, str] = {"rate": "Mbit/s", "delay": "ms", "loss": "%", "rtt": "ms"}
"""Unit of each quantity in a `Trace`."""

DEADLINE_MS = 300.0
"""Maximum one-way delay of remote piloting in ms (Baltaci et al. 2023, section II)."""

RATE_UNITS = {"bit/s": 1e-6, "kbit/s": 1e-3, "Mbit/s": 1.0, "Gbit/s": 1e3}
RATE_UNITS |= {"bps": 1e-6, "kbps": 1e-3, "Mbps": 1.0, "Gbps": 1e3}
"""Size of each unit of a rate in Mbit/s; the same units as in a scenario's file."""

TIME_UNITS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3}
"""Size of each unit of time in ms."""

LOSS_UNITS = {"%": 1.0, "ppm": 1e-4, "ratio": 100.0}
"""Size of each unit of a loss in %."""


@dataclass(frozen=True)
class Trace:
    """Step-wise series of one quantity.

    Attributes:
        times_s: start of each value in s, strictly increasing from 0; shape (n,).
        values: values in `unit`, shape (n,). A round trip of infinity: there is no path meanwhile.
        quantity: "rate", "delay" (one way), "loss" or "rtt".
        unit: "Mbit/s", "ms" or "%".
        name: source file and column.
        end_s: end of the last value in s; None: it holds as long as the one before it.
    """

    times_s: NDArray[np.float64]
    values: NDArray[np.float64]
    quantity: Quantity
    unit: str
    name: str = ""
    end_s: float | None = None

    def length_s(self) -> float:
        """Length of the trace in s. A single value without an end counts as 1 s."""
        if self.end_s is not None:
            return self.end_s
        if len(self.times_s) == 1:
            return 1.0
        return float(2 * self.times_s[-1] - self.times_s[-2])

    def durations_s(self) -> NDArray[np.float64]:
        """Duration of each value in s; shape (n,)."""
        return np.diff(self.times_s, append=self.length_s())

    def at(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the values at `times_s` in s; both of shape (m,). Outside the trace, the nearest value holds."""
        index = np.searchsorted(self.times_s, times_s, side="right") - 1
        return self.values[np.clip(index, 0, len(self.values) - 1)]

    def quantile(self, q: float) -> float:
        """Returns the smallest value not exceeded during the share `q` (0 to 1) of the time, in `unit`."""
        return quantile_of(self.values, self.durations_s(), q)


@dataclass(frozen=True)
class TraceStats:
    """Time-weighted statistics of a trace in its unit; gaps without a path are left out.

    `share_over_300ms` is the share of time (0 to 1) with a one-way delay above 300 ms; None for other quantities.
    `share_without_path` is the share of time (0 to 1) in such gaps.
    """

    name: str
    quantity: Quantity
    unit: str
    samples: int
    length_s: float
    mean: float
    sd: float
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    share_over_300ms: float | None
    share_without_path: float = 0.0


def with_end(columns: Sequence[NDArray[np.float64]], length_s: float) -> list[NDArray[np.float64]]:
    """Returns columns, times first, with two extra rows that end the last value at `length_s` in s.

    Readers of a file let the last value hold as long as the step before it.
    """
    times_s, *values = columns
    ends_s = length_s - np.array([2e-6, 1e-6])
    return [np.append(times_s, ends_s), *(np.append(column, column[[-1, -1]]) for column in values)]


def quantile_of(values: NDArray[np.float64], weights: NDArray[np.float64], q: float) -> float:
    """Returns the smallest of `values` not exceeded by the share `q` of `weights`."""
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    index = int(np.searchsorted(share, q * share[-1] * (1 - 1e-12)))
    return float(values[order[min(index, len(order) - 1)]])


def stats(trace: Trace) -> TraceStats:
    """Returns the statistics of a trace, each value weighted by its duration.

    Raises:
        TraceError: at no time is there a path.
    """
    durations_s = trace.durations_s()
    there = np.isfinite(trace.values)
    if not there.any():
        raise TraceError(f"{trace.name}: found {trace.length_s():.4g} s without a path; expected a {trace.quantity}")
    values, weights = trace.values[there], durations_s[there]
    mean = float(np.average(values, weights=weights))
    over = None
    if trace.quantity == "delay":
        over = float(weights[values > DEADLINE_MS].sum() / weights.sum())

    def quantile(q: float) -> float:
        return quantile_of(values, weights, q)

    return TraceStats(
        name=trace.name,
        quantity=trace.quantity,
        unit=trace.unit,
        samples=len(trace.values),
        length_s=trace.length_s(),
        mean=mean,
        sd=math.sqrt(float(np.average((values - mean) ** 2, weights=weights))),
        min=float(values.min()),
        p50=quantile(0.50),
        p95=quantile(0.95),
        p99=quantile(0.99),
        max=float(values.max()),
        share_over_300ms=over,
        share_without_path=float(durations_s[~there].sum() / durations_s.sum()),
    )

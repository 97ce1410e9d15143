"""Calculations about Westwood: the response of its congestion control to a given series of acknowledgements.

The control is the one that simulations use. Source of the rates and times: Palazzi 2007, section 2.
"""

from __future__ import annotations

from skybraid._core import Acked, Congestion, Lost, PathBasics
from skybraid_studies.engine.theory import calculation

SEGMENT = 1500
"""Payload of a segment in bytes."""

MIN_RTT_S = 0.5
RATE = 125_000
"""Rate of the path in bytes/s."""

GAP_S = SEGMENT / RATE
"""Time in s between acknowledgements of one segment each at that rate."""

PIPE = RATE * MIN_RTT_S / SEGMENT
"""Capacity of the path without a queue in segments."""

WESTWOOD = '"westwood"'
RENO = '"reno"'


class _Fed:
    """Congestion control with the time and bytes of the acknowledgements given to it."""

    def __init__(self, toml: str, window: float) -> None:
        """Starts with a window in segments."""
        size = round(window * SEGMENT)
        self._control = Congestion(
            toml, PathBasics(segment_bytes=SEGMENT, initial_window_bytes=size, initial_threshold_bytes=0, sack=True)
        )
        self._in_flight = size
        self._now_s = 0.0
        self._delivered = 0

    def acknowledge(self, size: int, gap_s: float, rtt_s: float = MIN_RTT_S) -> None:
        """Gives it an acknowledgement of `size` bytes, `gap_s` after the last one."""
        self._now_s += gap_s
        self._delivered += size
        self._control.on_delivery(
            Acked(
                now_s=self._now_s,
                bytes=size,
                delivered_bytes=self._delivered,
                srtt_s=rtt_s,
                rtt_s=rtt_s,
                in_flight_bytes=self._in_flight,
                in_flight_after_bytes=self._in_flight,
            )
        )

    def fill(self, rate: float = RATE, seconds: float = 20.0) -> _Fed:
        """Gives it one acknowledgement per segment at a rate in bytes/s; returns itself."""
        for _ in range(round(seconds * rate / SEGMENT)):
            self.acknowledge(SEGMENT, SEGMENT / rate)
        return self

    def end_rounds(self) -> None:
        """Sets so much data in flight that no further round trip ends, which freezes the throughput estimate."""
        self._in_flight = 10**12

    def lose(self, *, by_timeout: bool = False) -> tuple[float, float]:
        """Returns window and slow start threshold in segments after a loss."""
        lost = Lost(now_s=self._now_s, in_flight_bytes=self._in_flight)
        if by_timeout:
            self._control.on_timeout(lost)
        else:
            self._control.on_loss(lost)
        return self._control.window_bytes / SEGMENT, self._control.threshold_bytes / SEGMENT

    def estimate(self) -> float:
        """Returns its rate estimate in bytes/s; the object must not be used afterwards."""
        return self.lose()[1] * SEGMENT / MIN_RTT_S


@calculation("westwood_interval")
def interval(x: float, _seed: int) -> float:
    """Returns the time in s covered by a sample, if the window is `x` times the path's capacity and the RTT is doubled.

    The filter has no memory here, so the estimate is the last sample. A large acknowledgement follows a long regular
    series of small ones; the increase of the sample shows the time that it covers.
    """
    fed = _Fed('{ name = "westwood", adaptive_gain = false, tau = "1ms" }', x * PIPE)
    fed.acknowledge(SEGMENT, GAP_S)
    for _ in range(20 * round(max(x, 1) * PIPE)):
        fed.acknowledge(SEGMENT, GAP_S, 2 * MIN_RTT_S)
    fed.end_rounds()
    for _ in range(2 * round(max(x, 1) * PIPE)):
        fed.acknowledge(SEGMENT, GAP_S, 2 * MIN_RTT_S)
    large = 100 * SEGMENT
    fed.acknowledge(large, GAP_S, 2 * MIN_RTT_S)
    return (large - SEGMENT) / (fed.estimate() - RATE)


@calculation("westwood_gain")
def gain(x: float, _seed: int) -> float:
    """Returns the remaining share of the old estimate after a sample, for samples `x` time constants apart."""
    tau_s = 8.0
    fed = _Fed(f'{{ name = "westwood", adaptive_gain = false, tau = "{tau_s}s" }}', PIPE)
    size = round(RATE * x * tau_s)
    for _ in range(10):
        fed.acknowledge(size, x * tau_s)
    fed.acknowledge(2 * size, x * tau_s)
    return 2 - fed.estimate() / RATE


def _after_step(toml: str, x: float) -> float:
    fed = _Fed(toml, PIPE)
    for _ in range(2000):
        fed.acknowledge(SEGMENT // 2, GAP_S)
    for _ in range(round(x / GAP_S)):
        fed.acknowledge(SEGMENT, GAP_S)
    return fed.estimate() / RATE


@calculation("westwood_step")
def step(x: float, _seed: int) -> float:
    """Returns the ratio of estimate to rate `x` s after the rate has doubled: filter only, time constant 0.5 s."""
    return _after_step('{ name = "westwood", adaptive_interval = false, adaptive_gain = false, tau = "500ms" }', x)


@calculation("westwood_step_adaptive")
def step_adaptive(x: float, _seed: int) -> float:
    """Returns the ratio of estimate to rate `x` seconds after the rate has doubled, with adaptive intervals."""
    return _after_step(WESTWOOD, x)


@calculation("westwood_window_after_loss")
def window_after_loss(x: float, _seed: int) -> float:
    """Returns the window in segments after a loss detected by acknowledgements, at a window of `x`."""
    return _Fed(WESTWOOD, x).fill().lose()[0]


@calculation("westwood_threshold_after_loss")
def threshold_after_loss(x: float, _seed: int) -> float:
    """Returns the slow start threshold in segments after a loss detected by acknowledgements, at a window of `x`."""
    return _Fed(WESTWOOD, x).fill().lose()[1]


@calculation("westwood_window_after_timeout")
def window_after_timeout(x: float, _seed: int) -> float:
    """Returns the window in segments after a timeout, at a window of `x`."""
    return _Fed(WESTWOOD, x).fill().lose(by_timeout=True)[0]


@calculation("westwood_threshold_after_timeout")
def threshold_after_timeout(x: float, _seed: int) -> float:
    """Returns the slow start threshold in segments after a timeout, at a window of `x`."""
    return _Fed(WESTWOOD, x).fill().lose(by_timeout=True)[1]


@calculation("westwood_least_threshold")
def min_threshold(x: float, _seed: int) -> float:
    """Returns that threshold for a path with one segment per second, less than two per round-trip time."""
    return _Fed(WESTWOOD, x).fill(SEGMENT, 100).lose(by_timeout=True)[1]


@calculation("reno_window_after_loss")
def reno_window_after_loss(x: float, _seed: int) -> float:
    """Returns New Reno's window in segments after a loss, at a window of `x`."""
    return _Fed(RENO, x).fill().lose()[0]

"""MuTran's equations: the delay of a command whose copies are sent over several interfaces.

Equations 1 to 37 of Lee et al., "MuTran", Sensors 2021, and their general forms. Each function names its equation. The
suffix of a name is its unit: `_s` seconds, `_bytes`, `_bytes_s` bytes per second, `_m` metres, `_hz`. `loss` is the
probability q = 1 − p that a packet does not arrive, 0 ≤ q < 1; `interfaces` is n, 1 or more, all independent.

Where the paper is in error, a function computes the corrected form and says so:

- equations 34 to 36: the inequality is inverted (`longest_udp_interval_s`);
- equation 33: UDP sends each copy once per period and never retransmits (`udp_control_rate_bytes_s`);
- equations 24 to 29 bound an expected delay, which up to half of the commands or more exceed. Adding one, two or three
  standard deviations is a one-sided bound: for a normal distribution 84.1, 97.7 and 99.87 %, not 68, 95 and 99 %.
  Delays are not normal, so `within` returns the actual share.

Every function raises `DomainError`, a `ValueError`, for an argument out of its range.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from skybraid.model.errors import DomainError
from skybraid.model.heavy import pl

LIGHT_M_S = 299_792_458.0
"""Speed of light in metres per second."""

_NEVER = 1e-18
"""Probability of loss below which a command counts as delivered."""


# Components of delay: equations 1 to 9.


def total_delay_s(sender_queue_s: float, network_s: float, receiver_queue_s: float) -> float:
    """Returns equation 1: the sum of the sender's queueing, network and receiver's queueing delay."""
    _not_negative(sender_queue_s=sender_queue_s, network_s=network_s, receiver_queue_s=receiver_queue_s)
    return sender_queue_s + network_s + receiver_queue_s


def sender_queue_delay_s(queue_bytes: float, rate_bytes_s: float) -> float:
    """Returns equation 2: the time to drain a queue of that size."""
    _not_negative(queue_bytes=queue_bytes)
    _positive(rate_bytes_s=rate_bytes_s)
    return queue_bytes / rate_bytes_s


def send_rate_bytes_s(window_segments: float, segment_bytes: float, rtt_s: float) -> float:
    """Returns equation 3: TCP's mean rate for a sawtooth window between W/2 and W segments: 3 W MSS / (4 RTT)."""
    _positive(window_segments=window_segments, segment_bytes=segment_bytes, rtt_s=rtt_s)
    return 3 * window_segments * segment_bytes / (4 * rtt_s)


def largest_window_segments(rate_bytes_s: float, segment_bytes: float, rtt_s: float) -> float:
    """Returns equation 4, the inverse of equation 3: the maximum window W in segments at that mean rate."""
    _positive(rate_bytes_s=rate_bytes_s, segment_bytes=segment_bytes, rtt_s=rtt_s)
    return 4 * rate_bytes_s * rtt_s / (3 * segment_bytes)


def sender_queue_bytes(window_segments: float, segment_bytes: float) -> float:
    """Returns equation 5: the content of the sender's buffer, twice the maximum window: 2 W MSS."""
    _positive(window_segments=window_segments, segment_bytes=segment_bytes)
    return 2 * window_segments * segment_bytes


def sender_queue_bytes_at(rate_bytes_s: float, rtt_s: float) -> float:
    """Returns equation 6: the content of the sender's buffer by the mean rate: 8/3 rate RTT."""
    _positive(rate_bytes_s=rate_bytes_s, rtt_s=rtt_s)
    return 8 * rate_bytes_s * rtt_s / 3


def sender_queue_delay_at_rtt_s(rtt_s: float) -> float:
    """Returns equation 7: the delay of the sender's full buffer, independent of the rate: 8/3 RTT."""
    _positive(rtt_s=rtt_s)
    return 8 * rtt_s / 3


def propagation_s(distance_m: float) -> float:
    """Returns equation 8: distance divided by the speed of light, without medium access and serialisation."""
    _not_negative(distance_m=distance_m)
    return distance_m / LIGHT_M_S


def receiver_queue_delay_s(queue_bytes: float, processing_bytes_s: float) -> float:
    """Returns equation 9: the time to read the receiver's queue."""
    _not_negative(queue_bytes=queue_bytes)
    _positive(processing_bytes_s=processing_bytes_s)
    return queue_bytes / processing_bytes_s


def receiver_queue_delay_bound_s(rate_bytes_s: float, rtt_s: float, processing_bytes_s: float) -> float:
    """Returns equation 9's bound: the receiver holds at most the sender's buffer: 8/3 rate RTT / processing rate."""
    return receiver_queue_delay_s(sender_queue_bytes_at(rate_bytes_s, rtt_s), processing_bytes_s)


# Expected delays: equations 10 to 23.


def tcp_attempt_s(sender_queue_s: float, network_s: float) -> float:
    """Returns delay_rt of equation 10, the delay of one transmission over TCP: sender's queue and network."""
    return total_delay_s(sender_queue_s, network_s, 0)


def sum_of_failures(loss: float, terms: int) -> float:
    """Returns equations 12, 13 and A7: the sum of k q^k for k from 1 to `terms`, in closed form.

    Equation 14 takes the limit of infinitely many terms, q / (1 − q)², which exists only for q below 1.
    """
    _loss(loss)
    if terms < 0:
        raise DomainError(f"terms: found {terms}, expected 0 or more")
    return (terms * loss ** (terms + 2) - (terms + 1) * loss ** (terms + 1) + loss) / (loss - 1) ** 2


def system_success(losses: Iterable[float]) -> float:
    """Returns equation 15: the probability that at least one of several copies arrives.

    `losses` has one probability, from 0 to 1, per interface; equation 16 is the case of equal ones.
    """
    every = list(losses)
    if not every:
        raise DomainError("losses: found none, expected one for each interface")
    for loss in every:
        if not 0 <= loss <= 1:
            raise DomainError(f"losses: found {loss}, expected a probability from 0 to 1")
    return 1 - math.prod(every)


def expected_tcp_s(attempt_s: float, loss: float, interfaces: int = 1, receiver_queue_s: float = 0) -> float:
    """Returns equations 14 (one interface), 17 and 18: the receiver's queueing delay + delay_rt / (1 − q^n).

    All copies are assumed to be retransmitted together. In TCP mode each subflow retransmits independently; if their
    attempts take equally long, the first arrival has the same distribution, else see `Path` and `mean_s`.
    """
    _positive(attempt_s=attempt_s)
    _not_negative(receiver_queue_s=receiver_queue_s)
    return receiver_queue_s + attempt_s / (1 - _all_lost(loss, interfaces))


def expected_udp_s(network_s: float, interval_s: float, loss: float, interfaces: int = 1) -> float:
    """Returns equations 19, 20 (one interface), 22 and 23: delay_net + interval q^n / (1 − q^n).

    A lost command is repeated by the next packet, one interval later.
    """
    _not_negative(network_s=network_s)
    _positive(interval_s=interval_s)
    return network_s + interval_s * udp_delay_in_intervals(loss, interfaces)


def spread_s(period_s: float, loss: float, interfaces: int = 1) -> float:
    """Returns the standard deviation of the delay: period √(q^n) / (1 − q^n), that of a geometric distribution.

    `period_s` is delay_rt over TCP and the interval over UDP.
    """
    _positive(period_s=period_s)
    all_lost = _all_lost(loss, interfaces)
    return period_s * math.sqrt(all_lost) / (1 - all_lost)


def tcp_ratio(loss: float, interfaces: int) -> float:
    """Returns figure 5: the ratio of MuTran's expected delay in TCP mode to one interface's: (1 − q) / (1 − q^n)."""
    return (1 - loss) / (1 - _all_lost(loss, interfaces))


def udp_ratio(loss: float, interfaces: int) -> float:
    """Returns figure 7a: the ratio of MuTran's expected wait in UDP mode to one interface's."""
    return tcp_ratio(loss, interfaces) * loss ** (interfaces - 1)


def udp_delay_in_intervals(loss: float, interfaces: int) -> float:
    """Returns figure 7b: the expected wait in UDP mode in intervals: q^n / (1 − q^n)."""
    all_lost = _all_lost(loss, interfaces)
    return all_lost / (1 - all_lost)


# Number of interfaces: equations 24 to 29.


def interfaces_tcp(target_s: float, attempt_s: float, loss: float, sigmas: float = 0) -> int:
    """Returns equations 24 to 26: the minimum number of interfaces with an expected delay over TCP within `target_s`.

    `sigmas` standard deviations are added to the expected delay before the comparison.

    Raises:
        DomainError: the target does not exceed the delay of a single attempt, which copies cannot reduce.
    """
    _positive(attempt_s=attempt_s)
    _not_negative(sigmas=sigmas)
    _loss(loss)
    if not target_s > attempt_s:
        raise DomainError(f"target_s: found {target_s}, expected more than one attempt of {attempt_s} s")

    def enough(count: int) -> bool:
        return expected_tcp_s(attempt_s, loss, count) + sigmas * spread_s(attempt_s, loss, count) <= target_s

    return _fewest(enough)


def interfaces_udp(target_s: float, interval_s: float, loss: float, network_s: float = 0, sigmas: float = 0) -> int:
    """Returns equations 27 to 29: the minimum number of interfaces with an expected delay over UDP within `target_s`.

    The paper omits the delay of the network, `network_s`.

    Raises:
        DomainError: the target does not exceed the delay of the network.
    """
    _positive(interval_s=interval_s)
    _not_negative(network_s=network_s, sigmas=sigmas)
    _loss(loss)
    if not target_s > network_s:
        raise DomainError(f"target_s: found {target_s}, expected more than the network's {network_s} s")

    def enough(count: int) -> bool:
        expected = expected_udp_s(network_s, interval_s, loss, count)
        return expected + sigmas * spread_s(interval_s, loss, count) <= target_s

    return _fewest(enough)


def interfaces_for_share(target_s: float, share: float, path: Path) -> int:
    """Returns the minimum number of interfaces like `path` with which a share of the commands meets the target.

    A guarantee needs this instead of equations 24 and 27.

    Raises:
        DomainError: not even one attempt arrives within the target, or the share is not between 0 and 1.
    """
    _share(share)
    if path.attempts_within(target_s) == 0:
        raise DomainError(f"target_s: found {target_s}, expected at least {path.first_s}, when the first copy arrives")
    _loss(path.loss)
    return _fewest(lambda count: _reaches(path.loss ** (count * path.attempts_within(target_s)), share))


# General form: unequal paths, and the distribution of the delay.


@dataclass(frozen=True, slots=True)
class Path:
    """Path of a command: attempts arrive at `first_s`, and then every `every_s`, unless lost.

    Attributes:
        loss: probability from 0 to 1 that an attempt is lost, independent of all others.
        first_s: arrival of the first attempt in s after the command, 0 or more.
        every_s: time between attempts in s, above 0.
    """

    loss: float
    first_s: float
    every_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.loss <= 1:
            raise DomainError(f"loss: found {self.loss}, expected a probability from 0 to 1")
        _not_negative(first_s=self.first_s)
        _positive(every_s=self.every_s)

    @classmethod
    def tcp(cls, loss: float, attempt_s: float) -> Path:
        """Returns a subflow that retransmits independently: attempts arrive after 1, 2, 3 … times delay_rt."""
        return cls(loss, attempt_s, attempt_s)

    @classmethod
    def udp(cls, loss: float, network_s: float, interval_s: float) -> Path:
        """Returns a datagram socket: the next periodic packet repeats the command."""
        return cls(loss, network_s, interval_s)

    def attempts_within(self, time_s: float) -> int:
        """Returns the number of attempts that arrive, unless lost, within `time_s` of the command."""
        if time_s < self.first_s:
            return 0
        # A target of three intervals contains three, though 0.3 / 0.1 is slightly less than three in binary.
        return 1 + math.floor((time_s - self.first_s) / self.every_s * (1 + 1e-12))


def within(paths: Sequence[Path], target_s: float) -> float:
    """Returns the probability that the first copy arrives within `target_s`: 1 − Π q_i^(attempts on path i)."""
    _some(paths)
    return 1 - math.prod(path.loss ** path.attempts_within(target_s) for path in paths)


def mean_s(paths: Sequence[Path]) -> float:
    """Returns the expected delay of a command's first copy over unequal paths: the area under P(delay > t).

    Raises:
        DomainError: every path loses everything.
    """
    time_s, pending, area_s = 0.0, 1.0, 0.0
    for arrival_s, loss in _arrivals(paths):
        area_s += pending * (arrival_s - time_s)
        time_s, pending = arrival_s, pending * loss
        if pending < _NEVER:
            break
    return area_s


def quantile_s(paths: Sequence[Path], share: float) -> float:
    """Returns the minimum delay within which at least `share` (0 to 1) of the commands arrives.

    Raises:
        DomainError: every path loses everything, or the share is out of range.
    """
    _share(share)
    arrivals = _arrivals(paths)
    arrival_s, pending = 0.0, 1.0
    while not _reaches(pending, share):
        arrival_s, loss = next(arrivals)
        pending *= loss
    return arrival_s


# Overhead: equations 30 to 37.


def tcp_control_bytes(size_bytes: float, loss: float, interfaces: int = 1) -> float:
    """Returns equations 30 (one interface) and 31: bytes of a command with its retransmissions: n size / p."""
    _positive(size_bytes=size_bytes)
    _all_lost(loss, interfaces)
    return interfaces * size_bytes / (1 - loss)


def udp_control_bytes(size_bytes: float, interfaces: int = 1) -> float:
    """Returns the bytes of all copies of a periodic packet over UDP, which never retransmits: n size."""
    _positive(size_bytes=size_bytes)
    _all_lost(0, interfaces)
    return interfaces * size_bytes


def tcp_control_rate_bytes_s(size_bytes: float, attempt_s: float, loss: float, interfaces: int = 1) -> float:
    """Returns equation 32: bytes per second while a command is delivered: n size (1 − q^n) / (delay_rt p)."""
    return tcp_control_bytes(size_bytes, loss, interfaces) / expected_tcp_s(attempt_s, loss, interfaces)


def udp_control_rate_bytes_s(size_bytes: float, interval_s: float, interfaces: int = 1) -> float:
    """Returns equation 33, corrected: n size / interval.

    The paper uses the bytes of equation 31, which include retransmissions that UDP does not make.
    """
    _positive(interval_s=interval_s)
    return udp_control_bytes(size_bytes, interfaces) / interval_s


def udp_control_rate_as_printed_bytes_s(
    size_bytes: float, interval_s: float, loss: float, interfaces: int = 1
) -> float:
    """Returns equation 33 as printed, for comparison: n size (1 − q^n) / (interval p q^n). It needs a loss above 0."""
    if loss == 0:
        raise DomainError("loss: found 0, expected above 0: the printed equation divides by it")
    expected_s = expected_udp_s(0, interval_s, loss, interfaces)
    return tcp_control_bytes(size_bytes, loss, interfaces) / expected_s


def longest_udp_interval_s(attempt_s: float, loss: float, interfaces: int = 1) -> float:
    """Returns equations 34 to 36, corrected: up to this interval, delay_rt / q^n, UDP is expected to be as fast as TCP.

    The paper prints the inverse inequality, though its text requires a shorter interval. Without loss the result is
    infinite.
    """
    _positive(attempt_s=attempt_s)
    all_lost = _all_lost(loss, interfaces)
    return attempt_s / all_lost if all_lost else math.inf


def total_packets(data: float, control: float, interfaces: int) -> float:
    """Returns equation 37: the number of packets, of which only control is sent n times: data + n control."""
    _not_negative(data=data, control=control)
    _all_lost(0, interfaces)
    return data + interfaces * control


# Effect of a delay in flight.


def displacement_m(speed_m_s: float, delay_s: float) -> float:
    """Returns the distance flown before a command takes effect: 3 m in 100 ms at 30 m/s (section 3.1)."""
    _not_negative(speed_m_s=speed_m_s, delay_s=delay_s)
    return speed_m_s * delay_s


def doppler_hz(carrier_hz: float, speed_m_s: float) -> float:
    """Returns the Doppler shift f_c Δv / c; positive while the ends approach each other."""
    _positive(carrier_hz=carrier_hz)
    return carrier_hz * speed_m_s / LIGHT_M_S


# Curves of the figures.

LOSSES = tuple(step / 100 for step in range(1, 96))
"""Default loss probabilities of the curves: 0.01 to 0.95."""


def figure_5(interfaces: Sequence[int] = (2, 3, 4), losses: Sequence[float] = LOSSES) -> pl.DataFrame:
    """Returns figure 5: `loss`, `interfaces`, `ratio` of the delays in TCP mode; one row per pair."""
    return _curves(interfaces, losses, ratio=tcp_ratio)


def figure_7a(interfaces: Sequence[int] = (2, 3, 4), losses: Sequence[float] = LOSSES) -> pl.DataFrame:
    """Returns figure 7a: `loss`, `interfaces`, `ratio` of the waits in UDP mode."""
    return _curves(interfaces, losses, ratio=udp_ratio)


def figure_7b(interfaces: Sequence[int] = (1, 2, 3), losses: Sequence[float] = LOSSES) -> pl.DataFrame:
    """Returns figure 7b: `loss`, `interfaces`, `delay_intervals`, the wait in UDP mode in intervals."""
    return _curves(interfaces, losses, delay_intervals=udp_delay_in_intervals)


def figure_8(
    target_s: float, attempt_s: float, interval_s: float, network_s: float = 0, losses: Sequence[float] = LOSSES
) -> pl.DataFrame:
    """Returns figure 8: the spread of the delay by loss, for one interface, and for two in either mode.

    Columns: `loss`; `mode` ("single", "tcp", "udp"); `mean_s`; `one_sigma_s`, `two_sigma_s`, `three_sigma_s`, the mean
    plus one to three standard deviations, which the paper takes for 68, 95 and 99 % of the commands; and `within`, the
    actual share within `target_s`.
    """
    rows = []
    for loss in losses:
        for mode, interfaces in (("single", 1), ("tcp", 2), ("udp", 2)):
            if mode == "udp":
                mean, spread = expected_udp_s(network_s, interval_s, loss, interfaces), interval_s
                path = Path.udp(loss, network_s, interval_s)
            else:
                mean, spread = expected_tcp_s(attempt_s, loss, interfaces), attempt_s
                path = Path.tcp(loss, attempt_s)
            sigma = spread_s(spread, loss, interfaces)
            rows.append(
                {
                    "loss": loss,
                    "mode": mode,
                    "mean_s": mean,
                    "one_sigma_s": mean + sigma,
                    "two_sigma_s": mean + 2 * sigma,
                    "three_sigma_s": mean + 3 * sigma,
                    "within": within([path] * interfaces, target_s),
                }
            )
    return pl.DataFrame(rows)


def _curves(interfaces: Sequence[int], losses: Sequence[float], **curve: Callable[[float, int], float]) -> pl.DataFrame:
    rows = [
        {"loss": loss, "interfaces": count} | {name: value(loss, count) for name, value in curve.items()}
        for count in interfaces
        for loss in losses
    ]
    return pl.DataFrame(rows)


def _arrivals(paths: Sequence[Path]) -> Iterator[tuple[float, float]]:
    """Yields the attempts of all paths in order of arrival, each with its loss probability, endlessly."""
    _some(paths)
    alive = [path for path in paths if path.loss < 1]
    if not alive:
        raise DomainError("paths: found a loss of 1 on every path, expected less on at least one")
    coming = [(path.first_s, number, 1) for number, path in enumerate(alive)]
    heapq.heapify(coming)
    while True:
        arrival_s, number, attempt = coming[0]
        path = alive[number]
        yield arrival_s, path.loss
        heapq.heapreplace(coming, (path.first_s + attempt * path.every_s, number, attempt + 1))


def _fewest(enough: Callable[[int], bool]) -> int:
    """Returns the minimum number from 1 on that is enough, for a monotonic condition."""
    most = 1
    while not enough(most):
        most *= 2
    return bisect.bisect_left(range(most + 1), True, lo=1, key=enough)


def _all_lost(loss: float, interfaces: int) -> float:
    """Returns the probability q^n that all copies are lost (equation 16)."""
    _loss(loss)
    if interfaces < 1:
        raise DomainError(f"interfaces: found {interfaces}, expected 1 or more")
    return loss**interfaces


def _loss(loss: float) -> None:
    if not 0 <= loss < 1:
        raise DomainError(f"loss: found {loss}, expected a probability from 0 to below 1")


def _share(share: float) -> None:
    if not 0 < share < 1:
        raise DomainError(f"share: found {share}, expected a share between 0 and 1, both excluded")


def _reaches(pending: float, share: float) -> bool:
    # In binary 1 − 0.99999 is slightly less than 0.1⁵: a share has 16 digits.
    return pending <= 1 - share + 1e-15


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise DomainError(f"{name}: found {value}, expected a finite number above 0")


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise DomainError(f"{name}: found {value}, expected a finite number, 0 or more")


def _some(paths: Sequence[Path]) -> None:
    if not paths:
        raise DomainError("paths: found none, expected at least one")

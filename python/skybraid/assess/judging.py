"""Verdicts over measured flights, with intervals that allow for conditions that were not measured.

Each pass replays every measured second once, so a pass has exactly as much evidence as the measurements. Passes differ
in where replays begin and in how flights are paired; the interval covers the intervals of all passes. In addition:

- Networks differ more between flights than within a flight. After n good flights, a share of `1 - 0.025^(1/n)` of all
  flights may still be bad: far worse than the worst flight measured elsewhere (`BAD_FLIGHT`). After n bad flights, the
  same share may miss nothing. The interval covers both. A single flight gives no bound on the share of bad flights.
  With fewer than `MIN_OCCASIONS` flights of a network, no requirement is met. A goodput has the same allowances: a bad
  flight carries so much less than the others, a perfect one all that is offered.
- With fewer than ten flights, the interval also covers Student's t interval over the flights.
- Networks that were measured at different times may fail together more often than independent ones: observed misses
  count `COINCIDENCE` times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.episodes import RUNS, RunShare, factor_needed, share_interval
from skybraid.model.link_performance import SHARES, judge_integrity
from skybraid.model.statistics import Interval, Verdict, judge_interval, mean_interval

if TYPE_CHECKING:
    from skybraid.assess.wanted import Wanted

MIN_OCCASIONS = 5
"""Minimum number of flights (or hours of long flights) of each network for a requirement to be met; as
`episodes.FEW`."""

BAD_FLIGHT = {"downlink": 0.10, "uplink": 0.50}
"""Assumed share of misses of an unseen bad flight over one network: about three times that of the worst of
fifteen flights that no link was fitted to (97.1 % of control within 300 ms, 80 % of a video of 10 Mbit/s)."""

MAX_FLIGHTS = 5000
"""Maximum number of flights that the output asks for."""

COINCIDENCE = 3.6
"""How many times more often than by chance two carriers failed together, at most (multi-carrier data of PAM 2025)."""


class Seen(NamedTuple):
    """Result of a flow in one run.

    Attributes:
        share: share of messages or frames in time; None for a goodput.
        goodput_bps: application data delivered, in bit/s.
        delay_p50_ms: median one-way delay; NaN if nothing arrived.
        delay_p99_ms: 99th percentile of the one-way delay; NaN if nothing arrived.
        parameters: shares of a required link performance, by metric; None if slots are too long to detect a loss.
    """

    share: RunShare | None
    goodput_bps: float
    delay_p50_ms: float
    delay_p99_ms: float
    parameters: tuple[tuple[str, RunShare | None], ...] = ()


@dataclass(frozen=True)
class Judged:
    """A verdict with its interval.

    Attributes:
        estimate: share from 0 to 1, or bit/s.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        verdict: verdict for the conditions that the flights are a sample of.
        needed_s: measured time in s that would decide the verdict at the present rate of misses; None if decided, too
            close to the target, or covered by `flights_needed`.
        why: reason why an estimate that reaches the target is not met; "" otherwise.
        flights_needed: total number of flights of each network with which the target may be met; None if decided, if no
            number suffices, or if covered by `needed_s`.
    """

    estimate: float
    low: float
    high: float
    verdict: Verdict
    needed_s: float | None
    why: str
    flights_needed: int | None = None


def judge_passes(
    wanted: Wanted, passes: Sequence[Sequence[Seen]], occasions: int, networks: int = 1, *, apart: bool
) -> Judged:
    """Returns the verdict on a transport.

    Args:
        wanted: the requirement.
        passes: runs of each pass; a pass replays each measured second once.
        occasions: smallest number of occasions of a network in use.
        networks: number of networks in use.
        apart: whether the networks in use were measured at different times.
    """
    needed_s: float | None = None
    is_goodput = wanted.metric == "goodput"
    estimate, interval = _goodput(passes) if is_goodput else _share(passes, apart=apart)
    low, high = _with_unseen(wanted, estimate, occasions, networks)
    interval = Interval(max(min(interval.low, low), 0.0), max(interval.high, high))
    verdict = judge_interval(interval.low, interval.high, wanted.target)
    why = ""
    if verdict is Verdict.MET and occasions < MIN_OCCASIONS:
        verdict = Verdict.INCONCLUSIVE
        why = "few flights"
    flights = None
    if verdict is Verdict.INCONCLUSIVE and not is_goodput:
        runs = [one.share for one in passes[0] if one.share is not None and one.share.trials]
        factor = factor_needed(runs, wanted.target) if runs else None
        measured_s = sum(run.span_s for run in runs)
        # If the measured time suffices, the flights are too few.
        needed_s = None if factor is None or factor <= 1 else factor * measured_s
        flights = flights_needed(wanted, estimate, networks)
        if flights is None and occasions < MIN_OCCASIONS:
            flights = MIN_OCCASIONS
        if flights is not None and needed_s is not None:
            # Only the larger of both is reported, in flights as long as the measured ones: it includes the other.
            if flights * measured_s >= needed_s * max(occasions, len(runs)):
                needed_s = None
            else:
                flights = None
    elif verdict is Verdict.INCONCLUSIVE:
        flights = flights_needed(wanted, estimate, networks)
        # If the flights suffice, their goodput differs too much.
        flights = flights if flights is not None and flights > occasions else None
        if flights is None and occasions < MIN_OCCASIONS:
            flights = MIN_OCCASIONS
    return Judged(estimate, interval.low, interval.high, verdict, needed_s, why, flights)


def judge_link_passes(
    wanted: Wanted, passes: Sequence[Sequence[Seen]], occasions: int, networks: int = 1, *, apart: bool
) -> Judged:
    """Returns the verdict on a required link performance: the verdict on its worst parameter, which `why` names.

    The expiration time needs no verdict of its own: if continuity is met, at least that share of the completed
    transactions is within the expiration time.
    """
    found: list[tuple[int, float, Judged]] = []
    for one in wanted.parameters:
        metric, target = str(one["metric"]), float(one["target"])
        if metric == "integrity":
            seen = judge_integrity(one)
            judged = Judged(seen.low or 0.0, seen.low or 0.0, 1.0, seen.verdict or Verdict.INCONCLUSIVE, None, "")
        elif metric in SHARES:
            shares = [[run._replace(share=dict(run.parameters)[metric]) for run in runs] for runs in passes]
            if any(run.share is None for runs in shares for run in runs):
                judged = Judged(0.0, 0.0, 1.0, Verdict.INCONCLUSIVE, None, "flights too long to see a loss")
            else:
                judged = judge_passes(replace(wanted, target=target), shares, occasions, networks, apart=apart)
        else:
            continue
        why = ", ".join(part for part in (metric, judged.why) if part)
        rank = (Verdict.MET, Verdict.INCONCLUSIVE, Verdict.NOT_MET).index(judged.verdict)
        found.append((rank, target - judged.low, replace(judged, why=why)))
    return max(found, key=lambda one: one[:2])[2]


def bad_flight(wanted: Wanted, networks: int) -> float:
    """Returns the assumed share of misses of a bad flight.

    Several networks fail together `COINCIDENCE` times as often as independent ones.
    """
    alone = BAD_FLIGHT[wanted.direction]
    return alone if networks == 1 else float(min(alone, COINCIDENCE * alone**networks))


def unseen_flights(occasions: int) -> float:
    """Returns the largest share of bad flights, with 97.5 % confidence, if none of the measured flights was bad."""
    return 1 - float(0.025 ** (1 / occasions))


def flights_needed(wanted: Wanted, estimate: float, networks: int) -> int | None:
    """Returns the number of good flights with which the requirement would be met; None if no number suffices."""
    numbers = range(MIN_OCCASIONS, MAX_FLIGHTS + 1)
    return next((n for n in numbers if _with_unseen(wanted, estimate, n, networks).low >= wanted.target), None)


def _with_unseen(wanted: Wanted, estimate: float, occasions: int, networks: int) -> Interval:
    """Returns an estimate if as many unseen flights as possible are bad, and if they are perfect.

    A bad flight misses `bad_flight` of the messages, or carries so much less than the others; a perfect one misses
    nothing, or carries all that is offered.
    """
    is_goodput = wanted.metric == "goodput"
    share, worst = unseen_flights(occasions), bad_flight(wanted, networks)
    if is_goodput:
        worst *= estimate
    if occasions == 1:
        worst = estimate
    best = wanted.rate_mbps * 1e6 if is_goodput else 1.0
    return Interval(estimate - worst * share, estimate + max(best - estimate, 0.0) * share)


def _share(passes: Sequence[Sequence[Seen]], *, apart: bool) -> tuple[float, Interval]:
    lows, highs, met, trials = [], [], 0, 0
    for runs in passes:
        shares = [one.share for one in runs if one.share is not None and one.share.trials]
        if not shares:
            return 0.0, Interval(0.0, 1.0)
        seen = share_interval(shares)
        low, high = seen.interval
        if 1 < len(shares) < RUNS:
            between = mean_interval([1 - run.missed / run.trials for run in shares])
            if between is not None:
                low, high = min(low, between.low), max(high, between.high)
        if apart and seen.missed:
            low = 1 - COINCIDENCE * (1 - low)
        lows.append(low)
        highs.append(high)
        trials += seen.trials
        met += seen.trials - seen.missed
    return met / trials, Interval(max(min(lows), 0.0), min(max(highs), 1.0))


def _goodput(passes: Sequence[Sequence[Seen]]) -> tuple[float, Interval]:
    values = [[one.goodput_bps for one in runs] for runs in passes]
    estimate = sum(sum(one) for one in values) / sum(len(one) for one in values)
    ends = [mean_interval(one) for one in values]
    known = [one for one in ends if one is not None]
    if len(known) < len(ends):
        # One flight says nothing of the next one's rate.
        return estimate, Interval(0.0, float("inf"))
    return estimate, Interval(min(one.low for one in known), max(one.high for one in known))

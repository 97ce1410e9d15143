"""Verdicts over measured flights: an interval as honest as the measurements are few.

Each pass replays every measured second once, so that a pass has as much evidence as was measured and no more. Passes
begin at other places and pair the flights otherwise; the interval holds those of all passes. Beyond that:

- Networks differ more between flights than within one. With n flights, all of them good, a share of
  `1 - 0.025^(1/n)` of all flights may be much worse than the worst that was measured elsewhere (`BAD_FLIGHT`), and of
  n bad ones that share of all may miss nothing: the interval allows for these. A single flight says nothing of how bad
  others are. With fewer than `MIN_OCCASIONS` flights of a network nothing is met.
- With fewer than ten flights the interval holds Student's t interval between the flights too.
- Networks that were measured apart may fail together more often than chance has it: seen misses count `COINCIDENCE`
  times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from skybraid.model.episodes import RUNS, RunShare, factor_needed, share_interval
from skybraid.model.link_performance import SHARES, judge_integrity
from skybraid.model.statistics import Interval, Verdict, judge_interval, mean_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skybraid.assess.wanted import Wanted

MIN_OCCASIONS = 5
"""Flights (or hours of long ones) of each network below which nothing is met; as `episodes.FEW`."""

BAD_FLIGHT = {"downlink": 0.10, "uplink": 0.50}
"""Assumed share of misses of an unseen bad flight over one network: about three times as many as in the worst of some
fifteen flights that were held back when links were fitted to others (control within 300 ms 97.1 %, a video of 10 Mbit/s
80 %)."""

MAX_FLIGHTS = 5000
"""Maximum number of flights that the output asks for."""

COINCIDENCE = 3.6
"""How many times more often than by chance two carriers failed together, at most (multi-carrier data of PAM 2025)."""


class Seen(NamedTuple):
    """Result of a flow in one run.

    Attributes:
        share: of messages or frames in time; None of a goodput.
        goodput_bps: application data.
        delay_p50_ms: median one-way delay; NaN where nothing arrived.
        delay_p99_ms: of 99 %.
        parameters: shares of a required link performance, by metric; None: slots too long to see a loss.
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
        low: of the 95 % interval.
        high: of it.
        verdict: over the conditions that the flights are a sample of.
        needed_s: measured time in s that would decide it, if it went on like this; None: decided, too close, or within
            the time of `flights_needed`.
        why: what keeps an estimate that reaches the target from being met; "" otherwise.
        flights_needed: flights of each network in all by which it may be met; None: no number, decided, or within the
            flights of `needed_s`.
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
        passes: the runs of each pass; a pass replays each measured second once.
        occasions: the fewest that were seen of a network in use.
        networks: how many are in use.
        apart: whether networks in use were measured at different times.
    """
    needed_s: float | None = None
    if wanted.metric == "goodput":
        estimate, interval = _goodput(passes)
    else:
        estimate, interval = _share(passes, apart=apart)
        worst = bad_flight(wanted, networks) if occasions > 1 else estimate
        unseen = unseen_flights(occasions)
        low, high = estimate - worst * unseen, estimate + (1 - estimate) * unseen
        interval = Interval(max(min(interval.low, low), 0.0), max(interval.high, high))
    verdict = judge_interval(interval.low, interval.high, wanted.target)
    why = ""
    if verdict is Verdict.MET and occasions < MIN_OCCASIONS:
        verdict = Verdict.INCONCLUSIVE
        why = "few flights"
    flights = None
    if verdict is Verdict.INCONCLUSIVE and wanted.metric != "goodput":
        runs = [one.share for one in passes[0] if one.share is not None and one.share.trials]
        factor = factor_needed(runs, wanted.target) if runs else None
        measured_s = sum(run.span_s for run in runs)
        # Where the time measured would do, it is flights that are too few.
        needed_s = None if factor is None or factor <= 1 else factor * measured_s
        flights = flights_needed(wanted, estimate, networks)
        if flights is None and occasions < MIN_OCCASIONS:
            flights = MIN_OCCASIONS
        if flights is not None and needed_s is not None:
            # Both are needed: the larger one, in flights as long as these, contains the other.
            if flights * measured_s >= needed_s * max(occasions, len(runs)):
                needed_s = None
            else:
                flights = None
    elif verdict is Verdict.INCONCLUSIVE:
        flights = MIN_OCCASIONS if occasions < MIN_OCCASIONS else None
    return Judged(estimate, interval.low, interval.high, verdict, needed_s, why, flights)


def judge_link_passes(
    wanted: Wanted, passes: Sequence[Sequence[Seen]], occasions: int, networks: int = 1, *, apart: bool
) -> Judged:
    """Returns the verdict on a required link performance: that of its worst parameter, which `why` names.

    Continuity within the expiration time implies that this percentile of the completed transactions is within it too.
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
    """Returns the share of misses of a bad flight: over several networks, they fail together `COINCIDENCE` times."""
    alone = BAD_FLIGHT[wanted.direction]
    return alone if networks == 1 else float(min(alone, COINCIDENCE * alone**networks))


def unseen_flights(occasions: int) -> float:
    """Returns the share of flights that may be bad though none of those seen was, with 97.5 % confidence."""
    return 1 - float(0.025 ** (1 / occasions))


def flights_needed(wanted: Wanted, estimate: float, networks: int) -> int | None:
    """Returns how many good flights would show the requirement; None where no number would."""
    worst = bad_flight(wanted, networks)
    for number in range(MIN_OCCASIONS, MAX_FLIGHTS + 1):
        if estimate - worst * unseen_flights(number) >= wanted.target:
            return number
    return None


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

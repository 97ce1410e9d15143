"""Evidence on a requirement: estimate, interval and verdict, without the requirement itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skybraid.model.episodes import RunShare, ShareInterval, factor_needed, share_interval
from skybraid.model.statistics import Verdict, judge_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence on a requirement.

    Attributes:
        estimate: share from 0 to 1, delay in ms, bit/s, frames a second, or freezes a minute; None without trials.
        low: lower end of the two-sided 95 % interval, in the unit of `estimate`; None where there is none.
        high: upper end; None where nothing bounds it.
        trials: messages or frames whose fate is decided, messages that arrived, runs, or ms of an availability.
        verdict: met, not met or inconclusive.
        needed_s: flight time in s that would decide it, if flights went on like these; None where it is decided, or no
            time would.
        missed: of a share, how many trials failed.
        episodes: of a share, a percentile or a goodput, in how many groups its misses (or shortfalls) came.
        span_s: flight time in s from the first to the last trial, over all runs.
        clustering: of a share, how many times its own weight each episode counts, since the runs saw a part of a
            measurement (docs/statistics.md); 1 where that is not so.
        expected: of a share, what all flights of the links' families are expected to have, by
            how bad the links were in those seen (docs/statistics.md); None where no flight is drawn.
        note: why there is no estimate, where that needs words.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    trials: int = 0
    verdict: Verdict = Verdict.INCONCLUSIVE
    needed_s: float | None = None
    missed: int | None = None
    episodes: int | None = None
    span_s: float | None = None
    clustering: float = 1.0
    expected: float | None = None
    note: str = ""


def judge_share(runs: Sequence[RunShare], target: float) -> Evidence:
    """Judges a share over all runs by its interval."""
    seen = share_interval(runs)
    if not seen.trials:
        return Evidence()
    verdict = judge_interval(seen.interval.low, seen.interval.high, target)
    return Evidence(
        estimate=seen.estimate,
        low=seen.interval.low,
        high=seen.interval.high,
        trials=seen.trials,
        verdict=verdict,
        needed_s=time_needed_s(runs, target, seen) if verdict is Verdict.INCONCLUSIVE else None,
        missed=seen.missed,
        episodes=seen.episodes,
        span_s=seen.span_s,
        clustering=seen.clustering,
        expected=None if seen.expected == seen.estimate else seen.expected,
    )


def time_needed_s(runs: Sequence[RunShare], target: float, seen: ShareInterval) -> float | None:
    """Flight time in s that would decide a share, if flights went on like these; None if no time would."""
    factor = factor_needed(runs, target)
    return None if factor is None else factor * seen.span_s / seen.copies

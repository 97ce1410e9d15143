"""Intervals for shares of messages that fail together.

Losses and lateness come in episodes: an outage of a second takes a thousand messages with it, and these say as much as
one event. So what counts as independent is a block of the run, as long as the data's own dependence asks for, or a
whole run where there are several.

The method is `skybraid_statistics` of the engine, whose files name its sources.

`docs/statistics.md` has the coverage of these intervals over links of a known truth, as `make coverage` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from skybraid import _core
from skybraid.model.heavy import np
from skybraid.model.statistics import CONFIDENCE, Interval

if TYPE_CHECKING:
    import numpy.typing as npt

FEW = _core.FEW_EPISODES
"""Below this number of episodes no method's interval holds everywhere; results say so."""

UNSEEN_S = _core.UNSEEN_OUTAGE_S
"""Length in s of an outage that a run with few episodes may have missed."""

RUNS = _core.RUNS_AS_UNITS
"""From this number of runs on, runs are the clusters; fewer are judged by blocks unless they differ by more."""

_EXPOSED = ("some_bad", "all_bad", "family_some_bad", "family_all_bad", "family_some_more", "family_all_more")
"""Names that tables have for `Exposures`."""

SPREAD = ("variance", "freedom", "largest", "episodes", "block_s", "span_s", "clustering", *_EXPOSED)
"""What tables keep of a run's misses besides their number, in the order of `RunShare`."""


class Exposures(NamedTuple):
    """How bad the links of a flow were in a run, next to other flights of their families.

    Attributes:
        some: part of the time in which some of the flow's paths would have missed the deadline, but not all.
        all: part of the time in which all would have.
        family_some: `some` in other flights; equal to it where no flight is drawn.
        family_all: `all` in other flights.
        some_more: how much more than `family_some` it may be, at 95 %.
        all_more: how much more than `family_all` it may be, at 95 %.
    """

    some: float = 0.0
    all: float = 0.0
    family_some: float = 0.0
    family_all: float = 0.0
    some_more: float = 0.0
    all_more: float = 0.0


class KnownRun(NamedTuple):
    """A flow in a run of a scenario, which says more of its links than the run saw of them.

    Attributes:
        links: what the scenario says.
        flow: name of the flow.
        seed: seed of the run.
    """

    links: _core.KnownLinks
    flow: str
    seed: int

    def exposures(self, within_ms: float | None) -> Exposures:
        """How bad the links were.

        Args:
            within_ms: the deadline; None counts losses only.
        """
        return Exposures(*self.links.exposures(self.flow, self.seed, within_ms))


class RunShare(NamedTuple):
    """Share in one run, with the grouping of its misses.

    Attributes:
        trials: messages (or frames) whose fate is decided.
        missed: those among them that failed.
        variance: of `missed`, by blocks, in messages squared.
        freedom: degrees of freedom of `variance`.
        largest: misses of the worst block beyond the expected ones; of dense misses, as many as one event takes.
        episodes: groups of misses with more than a block between them; of dense misses, as many independent ones as
            would vary as much.
        block_s: length of a block in s.
        span_s: time from the first to the last trial, in s.
        clustering: factor on the weight of each episode, since the run saw a part of a measurement only.
        exposures: how bad the links were, next to other flights of their families.
    """

    trials: int
    missed: int
    variance: float
    freedom: float
    largest: float
    episodes: int
    block_s: float
    span_s: float
    clustering: float = 1.0
    exposures: Exposures = Exposures()

    @classmethod
    def of_bins(
        cls,
        trials: npt.ArrayLike,
        met: npt.ArrayLike,
        bin_s: float,
        known: KnownRun | None = None,
        within_ms: float | None = None,
    ) -> Self:
        """Builds a share from counts over time.

        Args:
            trials: of each bin, in the order of time.
            met: those among them that met the requirement.
            bin_s: width of a bin in s.
            known: the run's links, if a scenario says more of them.
            within_ms: the deadline that is met; None counts what arrived at all.
        """
        share = cls._of(_core.run_share(np.array(trials, np.float64), np.array(met, np.float64), bin_s))
        if known is None or not share.trials:
            return share
        return share.clustered(known)._replace(exposures=known.exposures(within_ms))

    def clustered(self, known: KnownRun | None) -> Self:
        """The same share where each episode weighs as much as the measurements that the run replays say."""
        if known is None or not self.trials:
            return self
        return self._replace(clustering=known.links.clustering(self.missed / self.trials))

    @classmethod
    def _of(cls, fields: tuple[Any, ...]) -> Self:
        *numbers, exposures = fields
        return cls._make((*numbers, Exposures(*exposures)))

    @classmethod
    def of_counts(cls, trials: int, met: int) -> Self:
        """Builds a share from the sums of a run, within which messages count as independent.

        Args:
            trials: messages whose fate is decided.
            met: those among them that met the requirement.
        """
        return cls._of(_core.independent_share(trials, met))

    @classmethod
    def of_row(cls, row: Mapping[str, Any], met: str, trials: str, prefix: str) -> Self | None:
        """Builds a share from a table row; None without trials.

        Args:
            row: of the table.
            met: the column of the successes.
            trials: the column of the trials.
            prefix: of the columns that hold `SPREAD`.
        """
        if row[trials] is None or row[met] is None:
            return None
        spread = [row[f"{prefix}{name}"] for name in SPREAD]
        numbers, exposures = spread[: -len(_EXPOSED)], Exposures(*spread[-len(_EXPOSED) :])
        return cls._make((row[trials], row[trials] - row[met], *numbers, exposures))

    @property
    def spread(self) -> tuple[float, ...]:
        """The values of `SPREAD`."""
        return (*self[2:-1], *self.exposures)


class ShareInterval(NamedTuple):
    """Share over one or several runs, with its interval.

    Attributes:
        estimate: share from 0 to 1; NaN without a trial.
        interval: the two-sided interval.
        trials: messages (or frames) whose fate is decided.
        missed: those among them that failed.
        episodes: in how many groups they failed.
        runs: number of runs.
        method: unit counted as independent: "blocks" or "runs".
        block_s: length of a block in s; the longest of all runs.
        span_s: time of all runs in s.
        clustering: factor on the weight of each episode, where blocks of a measurement's parts decide.
        copies: number of copies of each distinct run; `episodes` and the interval are of the distinct ones.
        expected: share that all flights of the links' families are expected to have; `estimate` where none is drawn.
    """

    estimate: float
    interval: Interval
    trials: int
    missed: int
    episodes: int
    runs: int
    method: str
    block_s: float
    span_s: float
    clustering: float
    copies: int
    expected: float

    @property
    def few(self) -> bool:
        """Whether there are too few episodes for an interval with guaranteed coverage."""
        return self.episodes < FEW * self.clustering


def share_interval(runs: Sequence[RunShare], confidence: float = CONFIDENCE) -> ShareInterval:
    """Returns the share over independent runs, or over the blocks of one run, with its two-sided interval.

    Runs that are copies of one another, to the last message, are judged as one.

    Args:
        runs: those without a trial are left out.
        confidence: of the interval.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: found {confidence}, expected a share between 0 and 1")
    estimate, (low, high), *counts = _core.share_interval(list(runs), confidence)
    return ShareInterval(estimate, Interval(low, high), *counts)  # type: ignore[arg-type]


def factor_needed(runs: Sequence[RunShare], target: float, confidence: float = CONFIDENCE) -> float | None:
    """Multiple of the flight time that would decide whether the share reaches `target`, at the present rate of misses.

    Returns:
        At least 1; None where the estimate is too close to the target for a million times the time.
    """
    return _core.factor_needed(list(runs), target, confidence)


def mean_over_time(values: npt.ArrayLike, confidence: float = CONFIDENCE) -> Interval | None:
    """Interval of the mean of an autocorrelated series, by batch means; None below 32 values.

    Args:
        values: in the order of time, equally far apart.
        confidence: of the interval.
    """
    found = _core.mean_over_time(np.array(values, np.float64), confidence)
    return None if found is None else Interval(*found)

"""Variance between the parts of a measurement, which a run that replays one part cannot see.

A measured network has good and bad hours. A run that replays half an hour of eight sees a part of them, and its own
blocks, all of that half hour, are more alike than any two half hours are. The measurement itself says by how much:
windows of the run's length are cut out of it, and the variance between them is divided by the one that the blocks
within each lead to expect. So many times its own weight has each episode of the run (a design effect: Kish, Survey
Sampling, 1965).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from skybraid.model.episodes import RunShare

if TYPE_CHECKING:
    import numpy.typing as npt

    from skybraid import _core

BAD = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5)
"""Parts of a measurement's time that are looked at: its worst thousandth, …, its worse half."""

SEEN_FROM = 0.01
"""Fewer misses than these say nothing of the level that they come from: up to here every level counts."""

REACH = 2.0
"""A run's share of misses may be so many times too small."""

_WINDOWS = 64
_BINS = 256


@dataclass(frozen=True, slots=True)
class Clustering:
    """Factor by which clustering multiplies an episode's weight, as a function of the share of misses.

    Attributes:
        factors: for each of `BAD`, at least 1.
    """

    factors: tuple[float, ...]

    def __call__(self, missing: float) -> float:
        """Returns the factor for a run of which that share missed, 0 to 1."""
        up_to = max(REACH * missing, SEEN_FROM)
        return max((factor for bad, factor in zip(BAD, self.factors, strict=True) if bad <= up_to), default=1.0)


def clustering_of(scenario: _core.Scenario) -> Clustering:
    """Largest clustering among the measurements that runs of a scenario replay in part.

    Measurements no longer than the run hold nothing that it does not see, and blocks that `resample` drew are
    independent.
    """
    found = [1.0] * len(BAD)
    for windows in scenario.measurements(_WINDOWS, _BINS):
        badness = np.asarray(windows)
        found = [max(known, _factor(badness, bad)) for known, bad in zip(found, BAD, strict=True)]
    return Clustering(tuple(found))


def _factor(badness: npt.NDArray[np.float64], bad: float) -> float:
    """Ratio of the variance between windows to that expected from within them, for the worst share of the time.

    Args:
        badness: of shape (windows, bins).
        bad: the part that counts as the worst.
    """
    edge = np.quantile(badness, 1 - bad, method="lower")
    worst = badness > edge
    # Of few different values, many may be equal to the edge.
    with_edge = badness >= edge
    if bad * bad > worst.mean() * with_edge.mean():
        worst = with_edge
    trials = np.ones(worst.shape[1])
    windows = [RunShare.of_bins(trials, ~window, 1.0) for window in worst]
    within = float(np.mean([window.variance for window in windows]))
    between = float(np.var([window.missed for window in windows]))
    return max(between / within, 1.0) if within > 0 else 1.0

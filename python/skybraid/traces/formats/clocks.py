"""Agreement of the clocks at both ends, from the one-way delays of both directions.

If a clock drifts by `d`, the delays of one direction rise by `d` and those of the other fall by it, while their sum
keeps its value. A path that changes moves the sum too.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from skybraid.model.heavy import np

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

_WINDOWS = 10
"""Number of windows; the smallest delay of each is compared."""

_MIN_PACKETS, _MIN_WINDOWS = 5, 5
"""Minimum number of delays in a window, and of such windows."""

_MIN_MOVED_MS, _MIN_RATIO = 1.0, 3.0
"""Minimum movement of the clocks in ms, and as a multiple of the movement of the sum, that is reported."""


def clock_notes(there: tuple[Floats, Floats], back: tuple[Floats, Floats]) -> tuple[str, ...]:
    """Returns a note if the clocks moved against each other, else nothing.

    Args:
        there: times in s and one-way delays in ms of one direction, shape (n,) each.
        back: those of the other direction, on the same clock.
    """
    start_s = max(there[0][0], back[0][0])
    edges_s = np.linspace(start_s, min(there[0][-1], back[0][-1]), _WINDOWS + 1)
    if edges_s[-1] <= start_s:
        return ()
    lowest = []
    for first_s, end_s in itertools.pairwise(edges_s):
        windows = [ms[(at_s >= first_s) & (at_s < end_s) & np.isfinite(ms)] for at_s, ms in (there, back)]
        if all(len(window) >= _MIN_PACKETS for window in windows):
            lowest.append([float(window.min()) for window in windows])
    if len(lowest) < _MIN_WINDOWS:
        return ()
    up, down = np.array(lowest).T
    offset, middle = (up - down) / 2, (up + down) / 2
    # A step within a window moves the sum of that one.
    moved_ms, noise_ms = float(np.ptp(offset)), float(np.ptp(np.sort(middle)[1:-1]))
    if moved_ms < max(_MIN_MOVED_MS, _MIN_RATIO * noise_ms):
        return ()
    length_s = float(edges_s[-1] - start_s)
    moved = f"the clocks of both ends moved by {moved_ms:.3g} ms in {length_s:.4g} s"
    return (f"{moved}: the delays of one direction rise as those of the other fall",)

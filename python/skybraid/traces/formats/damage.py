"""Timestamps of binary logs that a damaged byte has moved far from their neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skybraid.model.heavy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid.traces.formats.source import Source
    from skybraid.traces.measurement import Floats

_NEIGHBOURS = 5
"""Number of stamps on either side with which a stamp is compared."""

_MAX_OFF_S, _MAX_OFF = 60.0, 10.0
"""Maximum distance of a sound stamp from the median of its neighbours, in s and in their median distance."""


def sound_stamps(source: Source, at_s: Floats, fate: str) -> NDArray[np.bool_]:
    """Returns a mask of sound stamps, shape (n,); a note counts the others.

    Args:
        source: the file.
        at_s: stamps in file order, in s; shape (n,).
        fate: treatment of the others, for the note.

    Raises:
        TraceError: the clock was set back.
    """
    around = np.pad(at_s, _NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(around, 2 * _NEIGHBOURS + 1)
    median_s = np.nanmedian(windows, axis=1)
    usual_s = np.nanmedian(np.abs(windows - median_s[:, None]), axis=1)
    found: NDArray[np.bool_] = np.abs(at_s - median_s) <= np.maximum(_MAX_OFF_S, _MAX_OFF * usual_s)
    if not found.all():
        source.notes.append(f"{int((~found).sum())} of {len(found)} stamps are damaged: {fate}")
    back_s = -float(np.diff(at_s[found]).min(initial=0.0))
    if back_s > _MAX_OFF_S:
        source.fail(None, f"a clock that was set back by {back_s:.6g} s", "one log from one start")
    return found

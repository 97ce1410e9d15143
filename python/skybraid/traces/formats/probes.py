"""Probes of a ping, in their order, as a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces.formats.stamps import KNOWN_ZONE, Stamp, on_one_clock
from skybraid.traces.measurement import Column, Measurement, is_even

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Source
    from skybraid.traces.measurement import Floats

_MAX_BACK_S = 1.0
"""Maximum backward step of the clock within a log, in s."""


def clock_of(source: Source, stamps: Sequence[Stamp]) -> tuple[Floats, tuple[str, ...]]:
    """Returns when the lines of a log were written in s, shape (n,), and notes.

    Raises:
        TraceError: the clock was set back, or a zone is of several places.
    """
    unknown = next((stamp.unknown_zone for stamp in stamps if stamp.unknown_zone), None)
    if unknown is not None:
        source.fail(None, f"the zone `{unknown}`", KNOWN_ZONE)
    clock_s = on_one_clock(stamps)
    steps_s = np.diff(clock_s)
    if (steps_s < -_MAX_BACK_S).any():
        row = int(np.argmin(steps_s))
        found = f"a stamp {-steps_s[row]:g} s before the one above it, after {row + 1} others"
        source.fail(None, found, "one log in its order, its clock not set back")
    is_assumed = stamps[0].is_dated and not stamps[0].is_zoned
    return clock_s, ("dates without a zone, taken as UTC (--zone)",) if is_assumed else ()


def unwrapped(sequence: int, newest: int) -> int:
    """Returns the full number of a 16-bit sequence number near the newest one."""
    if sequence >= 1 << 16:
        return sequence
    return sequence + max(newest + (1 << 15) - sequence, 0) // (1 << 16) * (1 << 16)


def of_probes(
    source: Source,
    times_s: Sequence[float] | Floats,
    rtt_ms: Sequence[float] | Floats,
    start_unix_s: float | None = None,
    end_s: float | None = None,
    notes: tuple[str, ...] = (),
    *,
    is_paced: bool = False,
) -> Measurement:
    """Returns the round-trip time and the loss of probes.

    Args:
        source: the file.
        times_s: sending times, in s from the first on.
        rtt_ms: in ms; infinity: lost.
        start_unix_s: sending time of the first, in s since 1970.
        end_s: end of the last one's interval, in s.
        notes: assumptions of the reader.
        is_paced: whether the tool sends at an even interval whatever is answered, so that a pause is one of the tool.
    """
    times = np.asarray(times_s, dtype=np.float64)
    rtt = np.asarray(rtt_ms, dtype=np.float64)
    columns = (Column("rtt", "ms", rtt), Column("round_trip_loss", "%", np.where(np.isinf(rtt), 100.0, 0.0)))
    is_sampled = is_paced and is_even(times)
    return Measurement(str(source.path), times, columns, start_unix_s, end_s, is_sampled, notes=notes)


def even_probes(
    source: Source, replies: dict[int, float], first: int, last: int, every_s: float, notes: tuple[str, ...] = ()
) -> Measurement:
    """Returns probes at an even interval; those without a reply were lost.

    Args:
        source: the file.
        replies: round-trip times in ms by sequence number.
        first: sequence number of the first probe.
        last: sequence number of the last probe.
        every_s: time between them in s.
        notes: assumptions of the reader.
    """
    count = last - first + 1
    rtt = [replies.get(first + place, math.inf) for place in range(count)]
    return of_probes(source, np.arange(count, dtype=np.float64) * every_s, rtt, None, count * every_s, notes)


def stamped_probes(
    source: Source, rtt_ms: dict[int, float], stamps: dict[int, Stamp], last: int, *, is_paced: bool = False
) -> Measurement:
    """Returns probes stamped with their arrival; unstamped ones are spread evenly between their neighbours.

    Args:
        source: the file.
        rtt_ms: round-trip times by probe number, from 0 on; infinity: lost, and the stamp is that of the timeout.
        stamps: stamps of the lines by probe number.
        last: number of the last probe.
        is_paced: as in `of_probes`.
    """
    numbers = np.array(sorted(stamps), dtype=np.int64)
    ordered = [stamps[int(number)] for number in numbers]
    rtts = np.array([rtt_ms[int(number)] for number in numbers])
    answered = np.isfinite(rtts)
    clock_s, notes = clock_of(source, ordered)
    sent_s = (clock_s - np.where(answered, rtts, 0.0) * 1e-3)[answered]
    numbers = numbers[answered]
    steps_s = np.diff(sent_s) / np.diff(numbers)
    # A pause of the tool does not change its interval.
    usual_s = float(np.median(steps_s)) if is_paced and steps_s.size else 0.0
    every_s = usual_s or float((sent_s[-1] - sent_s[0]) / max(numbers[-1] - numbers[0], 1)) or 1.0
    every = np.arange(last + 1)
    times_s = np.interp(every, numbers, sent_s)
    times_s += np.where(every < numbers[0], every - numbers[0], np.maximum(every - numbers[-1], 0)) * every_s
    # An inexact stamp may put a probe before its predecessor.
    times_s = np.maximum.accumulate(times_s) + 1e-6 * every
    start_unix_s = float(times_s[0]) if ordered[0].is_dated else None
    rtt = [rtt_ms.get(int(number), math.inf) for number in every]
    end_s = float(times_s[-1] - times_s[0]) + abs(every_s)
    return of_probes(source, times_s - times_s[0], rtt, start_unix_s, end_s, notes, is_paced=is_paced)

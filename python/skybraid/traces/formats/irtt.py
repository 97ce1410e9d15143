"""JSON of irtt, the isochronous round-trip tester (`irtt client -o FILE.json`).

Source: irtt's documentation of `round_trips`: `seqno`, `lost` ("false", "true", "true_down" where the server got the
probe, "true_up"), `timestamps` in ns and `delay` with `rtt`, `send` and `receive` in ns.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from skybraid.model.heavy import np
from skybraid.traces.formats.clocks import clock_notes
from skybraid.traces.formats.source import Options, Source, from_zero, json_values
from skybraid.traces.measurement import Column, Measurement

_EXPECTED = "round_trips as irtt client -o writes them"


def recognises(source: Source) -> bool:
    """Whether the file is JSON of irtt."""
    return source.head.lstrip().startswith("{") and '"round_trips"' in source.text


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads round-trip times and losses; also one-way delays if the user declares the clocks synchronised.

    Raises:
        TraceError: the file is no JSON of irtt, or a one-way delay is negative.
    """
    try:
        ((_, report),) = json_values(source)
        trips = report["round_trips"]
        rows = [_row(trip) for trip in trips]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        source.fail(None, f"{type(error).__name__} {error}", _EXPECTED)
    rows.sort()
    numbers = [f"round_trips[{index}]" for index in range(len(rows))]
    if len(rows) > 1 and any(after[0] <= before[0] for before, after in itertools.pairwise(rows)):
        source.fail(None, f"{numbers[0]} and others sent at the same time", "increasing times of sending")
    times_s = from_zero(source, [row[0] for row in rows], [1] * len(rows))
    rtt = np.array([row[2] for row in rows])
    lost_up, lost_down = (np.array([row[place] for row in rows]) for place in (5, 6))
    columns = [
        Column("rtt", "ms", rtt),
        Column("round_trip_loss", "%", np.where(np.isinf(rtt), 100.0, 0.0)),
    ]
    notes: tuple[str, ...] = ()
    if np.isinf(rtt).any() and bool((lost_up | lost_down).any()):
        notes = (f"lost on the way there: {int(lost_up.sum())}, on the way back: {int(lost_down.sum())}",)
    if options.one_way:
        for place, direction, lost in ((3, options.sent, lost_up), (4, options.received, lost_down)):
            delay = np.array([row[place] for row in rows])
            delay = np.where(np.isnan(delay), np.inf, delay)
            if (delay < 0).any():
                row = int(np.argmax(delay < 0))
                source.fail(None, f"{delay[row]:g} ms one way in {numbers[row]}", "agreeing clocks; else no --one-way")
            columns.append(Column("delay", "ms", delay, direction))
            known = np.isinf(delay) & (lost | ~(lost_up | lost_down))
            columns.append(Column("loss", "%", np.where(known, 100.0, 0.0), direction))
        there, back = (column.values for column in columns if column.quantity == "delay")
        notes = (*notes, *clock_notes((times_s, there), (times_s, back)))
    start = rows[0][1]
    return [Measurement(str(source.path), times_s, tuple(columns), start, notes=notes)]


def _row(trip: dict[str, Any]) -> tuple[float, float | None, float, float, float, bool, bool]:
    """Returns sending time in s, the same since 1970, rtt, forward and return delay in ms, and loss per direction."""
    sent = trip["timestamps"]["client"]["send"]
    lost = str(trip["lost"]).lower()
    wall = float(sent["wall"]) * 1e-9 if sent.get("wall") else None
    at_s = float(sent["monotonic"]) * 1e-9 if sent.get("monotonic") is not None else float(wall or math.nan)
    if not math.isfinite(at_s):
        raise ValueError("a probe without a time of sending")
    delay = trip.get("delay") or {}
    if lost != "false":
        there = float(delay["send"]) * 1e-6 if delay.get("send") else math.nan
        return at_s, wall, math.inf, there, math.nan, lost == "true_up", lost == "true_down"
    rtt_ms = float(delay["rtt"]) * 1e-6
    if not 0 <= rtt_ms < 1e9:
        raise ValueError(f"rtt of {rtt_ms:g} ms")
    there, back = (float(delay[key]) * 1e-6 if key in delay else math.nan for key in ("send", "receive"))
    return at_s, wall, rtt_ms, there, back, False, False

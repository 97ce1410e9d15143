"""One value a line, without times; `--every` and `--as` say what it is. Never taken for granted."""

from __future__ import annotations

import numpy as np

from skybraid.traces.formats.source import Options, Source, number_of
from skybraid.traces.formats.table import meaning_of
from skybraid.traces.measurement import NETWORK, Column, Measurement
from skybraid.traces.series import UNIT_OF


def recognises(source: Source) -> bool:
    """Never: a column of numbers says neither what it holds nor how far apart the lines are."""
    del source
    return False


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the values.

    Raises:
        TraceError: a line is no number, or the user does not say what the lines are.
    """
    if options.every_s is None or not options.columns:
        source.fail(None, "one value a line", "--every (such as 1s) and --as '1=downlink rate [Mbit/s]'")
    meaning = meaning_of(next(iter(options.columns.values())))
    rows = [(n, line.strip()) for n, line in enumerate(source.lines, start=1)]
    kept = [(n, line) for n, line in rows if line and not line.startswith("#")]
    if not kept:
        source.fail(None, "no values", "a number on each line")
    values = np.array([np.inf if line.lower() == "inf" else number_of(source, n, line, "a number") for n, line in kept])
    bad = (values < 0) | (np.isinf(values) & (meaning.quantity not in ("delay", "rtt")))
    if bad.any():
        row = int(np.argmax(bad))
        source.fail(kept[row][0], kept[row][1], f"a {meaning.quantity} of 0 or more")
    unit = UNIT_OF[NETWORK[meaning.quantity]]
    column = Column(meaning.quantity, unit, values * meaning.scale, meaning.direction)
    times_s = np.arange(len(values), dtype=np.float64) * options.every_s
    return [Measurement(str(source.path), times_s, (column,), None, len(values) * options.every_s)]

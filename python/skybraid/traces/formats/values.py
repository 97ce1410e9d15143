"""Lines of numbers without times; `--every` and `--as COLUMN=` give their meaning. Never recognised automatically."""

from __future__ import annotations

import itertools
import re

from skybraid.model.heavy import np
from skybraid.traces.formats.source import Options, Source, in_network_unit, optional_number
from skybraid.traces.formats.table import meaning_of
from skybraid.traces.measurement import NETWORK, Column, Measurement
from skybraid.traces.series import UNIT_OF

_UNIT = re.compile(r"[kKMGTmuµn]?(b|B|bits?|bytes?|s|sec)?(/s|ps)?")
"""Unit after a number."""


def recognises(source: Source) -> bool:
    """Never true: a column of numbers shows neither its quantity nor its interval."""
    del source
    return False


def read(source: Source, options: Options) -> list[Measurement]:
    """Reads the values.

    Raises:
        TraceError: a line is no number, or the user does not give the meaning of the lines.
    """
    if options.every_s is None or not options.columns:
        source.fail(None, "lines without times", "--every (such as 1s) and --as '1=downlink rate [Mbit/s]'")
    if options.every_s <= 0:
        source.fail(None, f"--every {options.every_s:g}s", "more than 0 s")
    # An empty line between numbers is an unmeasured value: dropping it would shift all later ones.
    lines = [line for line in enumerate(source.text.rstrip().split("\n"), start=1) if not line[1].startswith("#")]
    kept = [(n, line.strip()) for n, line in itertools.dropwhile(lambda line: not line[1].strip(), lines)]
    if not kept:
        source.fail(None, "no values", "numbers on each line")
    columns, notes = [], []
    for name, text in options.columns.items():
        column, remarks = _column(source, kept, name, text, options.lost)
        columns.append(column)
        notes += remarks
    times_s = np.arange(len(kept), dtype=np.float64) * options.every_s
    length_s = len(kept) * options.every_s
    return [Measurement(str(source.path), times_s, tuple(columns), None, length_s, notes=tuple(notes))]


def _column(
    source: Source, kept: list[tuple[int, str]], name: str, text: str, lost: float | None
) -> tuple[Column, list[str]]:
    """Returns a column, whose name is its number from 1 on, and notes."""
    meaning = meaning_of(text)
    if not name.isdecimal() or int(name) < 1:
        source.fail(None, f"--as {name}=", "the number of a column from 1 on: the lines have no headings")
    if name == "1" and all(re.fullmatch(r"[-+]?\d+,\d+", line) for _, line in kept):
        source.fail(kept[0][0], f"`{kept[0][1]}`", "a decimal point (or is it two columns? part them by a semicolon)")
    values = np.empty(len(kept))
    for at, (number, line) in enumerate(kept):
        cells = re.split(r"\s*[,;\t]\s*|\s+", line)
        if line and int(name) > len(cells):
            source.fail(number, f"{len(cells)} numbers", f"at least {name}")
        cell = cells[int(name) - 1] if line else ""
        if len(cells) == 2 and name == "1" and _UNIT.fullmatch(cells[1]) and cells[1] != meaning.unit:
            source.fail(number, f"`{line}`", f"a number in {meaning.unit} without its unit")
        values[at] = np.inf if cell.lower() == "inf" else optional_number(source, number, cell, "a number")
    lines = [number for number, _ in kept]
    in_unit, notes = in_network_unit(source, lines, values, meaning.quantity, meaning.scale, lost)
    return Column(meaning.quantity, UNIT_OF[NETWORK[meaning.quantity]], in_unit, meaning.direction), notes

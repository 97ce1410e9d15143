"""Traces read by the Rust readers of scenarios: CSV, mahimahi, Linux ping and Hypatia."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from skybraid._core import SkybraidError, read_trace
from skybraid.model.heavy import np
from skybraid.traces.files import decoded, read_bytes
from skybraid.traces.series import LOSS_UNITS, RATE_UNITS, TIME_UNITS, UNIT_OF, Quantity, Trace, TraceError
from skybraid.traces.units import scale_of, seconds_of
from skybraid.traces.writing import BITS_PER_OPPORTUNITY

if TYPE_CHECKING:
    from numpy.typing import NDArray

Format = Literal["csv", "mahimahi", "parquet", "ping", "hypatia"]

FORMATS: tuple[str, ...] = get_args(Format)

_TIME_NAMES = ("time", "t", "@timestamp")

# The readers return bit/s, ns and ratios.
_FROM_BASE: dict[Quantity, float] = {"rate": 1e-6, "delay": 1e-6, "loss": 100.0, "rtt": 1e-6}

_RATE_BIN_S = 0.1

_MIN_RTT_NS = 10_000
"""Minimum round-trip time of a constellation in ns."""


def read_text(path: Path, column: str | int | None, unit: str | None, format: Format | None) -> Trace:  # noqa: A002
    """Returns a trace of a text format; for the parameters see `skybraid.traces.read`.

    Raises:
        TraceError: the file cannot be read, or does not follow its format.
    """
    text = _read_text(path)
    chosen = format or _recognise(path, text)
    time_scale = 1.0
    asked, label = None, str(path)
    quantity: Quantity = "rtt"
    if chosen == "csv":
        found = _csv_column(path, text, column, unit)
        quantity = quantity_of(path, found.name, found.unit)
        asked, label, unit = str(found.number), f"{path}, {found.name}", found.unit
        time_scale = found.time_scale
    elif chosen == "ping":
        asked = "rtt" if column is None else str(column)
        quantity = "loss" if asked == "loss" else "rtt"
        label = f"{path}, {asked}"
    try:
        times_s, values = read_trace(text, chosen, asked, unit)
    except SkybraidError as error:
        raise TraceError(f"{path}: {error}") from error
    if chosen == "mahimahi":
        return _rate_of_opportunities(times_s, label)
    return Trace(times_s * time_scale, values * _FROM_BASE[quantity], quantity, UNIT_OF[quantity], label)


def _rate_of_opportunities(times_s: NDArray[np.float64], name: str) -> Trace:
    """Returns the IP rate, in steps of 100 ms, of opportunities at `times_s` in s, shape (n,).

    The last one is the period. An opportunity at 100 ms belongs to the step that ends there, so
    that the one at the period counts.
    """
    period_s = float(times_s[-1])
    bins = max(1, math.ceil(period_s / _RATE_BIN_S - 1e-9))
    index = np.clip(np.ceil(times_s / _RATE_BIN_S - 1e-9).astype(np.int64) - 1, 0, bins - 1)
    starts = np.arange(bins, dtype=np.float64) * _RATE_BIN_S
    widths = np.full(bins, _RATE_BIN_S)
    widths[-1] = period_s - starts[-1]
    counts = np.bincount(index, minlength=bins).astype(np.float64)
    rates = counts * (BITS_PER_OPPORTUNITY * 1e-6) / widths
    return Trace(starts, rates, "rate", UNIT_OF["rate"], name, period_s)


def _read_text(path: Path) -> str:
    try:
        return decoded(read_bytes(path))
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.start} is not text; expected one of {', '.join(FORMATS)}") from error


def _recognise(path: Path, text: str) -> Format:
    """Returns the format of a text file by its name and first lines."""
    lines = [line.strip() for line in text[:4000].splitlines() if line.strip()][:5]
    if any("bytes from" in line or line.startswith("PING ") or "] PING " in line for line in lines):
        return "ping"
    if path.suffix in {".up", ".down"}:
        return "mahimahi"
    if lines and all(re.fullmatch(r"\d+", line) for line in lines):
        if is_opportunities(text):
            return "mahimahi"
        raise TraceError(
            f"{path}: found one whole number a line; expected --format mahimahi (ms of opportunities), or values "
            "(`trace import --format values --every 1s --as '1=downlink rate [Mbit/s]'`)"
        )
    if is_hypatia(lines):
        return "hypatia"
    return "csv"


def is_hypatia(lines: Sequence[str]) -> bool:
    """Whether the lines are a Hypatia series: of a flow, or of a path with ten decimals.

    Three integers may be two numbers with decimal commas, so a round trip must be absent or at least 10 us.
    """
    if not lines:
        return False
    if all(re.fullmatch(r"\d+,\d+\.\d{10}", line) for line in lines):
        return True
    is_of_flow = all(re.fullmatch(r"\d+,\d+,\d+", line) for line in lines)
    return is_of_flow and all(line.endswith(",0") or int(line.split(",")[2]) >= _MIN_RTT_NS for line in lines)


def is_opportunities(text: str) -> bool:
    """Whether lines of integers can be the times of a link's opportunities in ms.

    Such times never decrease and cover some ms, unlike a column of counts, levels or flags.
    """
    stamps = [line.strip() for line in text.splitlines() if line.strip()]
    if not all(re.fullmatch(r"\d{1,15}", stamp) for stamp in stamps):
        return False
    numbers = np.array([int(stamp) for stamp in stamps])
    return bool((np.diff(numbers) >= 0).all()) and numbers[-1] > 1


@dataclass(frozen=True)
class ChosenColumn:
    """Chosen column of a file: number from 1, name, unit of the values, and unit of the times in s."""

    number: int
    name: str
    unit: str
    time_scale: float = 1.0


def _cells(line: str) -> list[str]:
    """Splits a line at the first of comma, semicolon and tab that occurs, else at spaces."""
    separator = next((mark for mark in ",;\t" if mark in line), None)
    return [cell.strip().strip('"') for cell in line.split(separator)]


def _name_and_unit(cell: str) -> tuple[str, str | None]:
    """Splits a header cell `name [unit]` or `name (unit)`."""
    match = re.fullmatch(r"(.*?)\s*[\[(](.*)[\])]", cell)
    return (match[1], match[2].strip()) if match else (cell, None)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv_column(path: Path, text: str, column: str | int | None, unit: str | None) -> ChosenColumn:
    """Returns the column to read, by name or (without a header) by number."""
    lines = enumerate(text.splitlines(), start=1)
    place, first = next(
        ((f"line {at}", line) for at, line in lines if line.strip() and not line.strip().startswith("#")),
        ("line 1", None),
    )
    if first is None:
        raise TraceError(f"{path}: line 1: the file is empty; expected `time [s],name [unit]` or numbers")
    cells = _cells(first.strip())
    if not all(_is_number(cell) for cell in cells):
        found = choose(path, place, cells, column, unit)
        return replace(found, time_scale=_seconds(path, cells[0]))
    name = "2" if column is None else str(column)
    if not name.isdecimal() or not 1 <= int(name) <= len(cells):
        raise TraceError(
            f"{path}: {place}: no column `{name}`; the file has no header, expected a number from 1 to {len(cells)}"
        )
    if unit is None:
        raise TraceError(
            f"{path}: {place}: found no header; expected a unit for column {name} (for example Mbit/s, ms, %)"
        )
    return ChosenColumn(int(name), name, unit)


def choose(path: Path, place: str, header: list[str], column: str | int | None, unit: str | None) -> ChosenColumn:
    """Returns the column `column` of `header`; default: the first one of a link quantity."""
    names = [_name_and_unit(cell) for cell in header]
    if column is None:
        wanted = [number for number, (name, _) in enumerate(names, start=1) if name.lower() not in _TIME_NAMES]
        known = [number for number in wanted if _kind_of(unit or names[number - 1][1] or "") is not None]
        wanted = known or wanted
    else:
        wanted = [at for at, (name, _) in enumerate(names, start=1) if column in {name, at, str(at), header[at - 1]}]
    if not wanted:
        listed = ", ".join(f"`{name}`" for name, _ in names)
        expected = "a column of values" if column is None else f"a column `{column}`"
        raise TraceError(f"{path}: {place}: found {listed}; expected {expected}")
    name, stated = names[wanted[0] - 1]
    chosen = unit or stated
    if chosen is None:
        raise TraceError(f"{path}: {place}: column `{name}` states no unit; expected `{name} [unit]` or a unit given")
    return ChosenColumn(wanted[0], name, chosen)


def _kind_of(unit: str) -> Literal["rate", "loss", "delay"] | None:
    """Returns the quantity measured in a unit; None for other units."""
    kinds: tuple[Literal["rate", "loss", "delay"], ...] = ("rate", "loss", "delay")
    return next((kind for kind in kinds if scale_of(kind, unit) is not None), None)


def _seconds(path: Path, cell: str) -> float:
    """Returns the unit in s that the header cell of the times states; default: 1 s."""
    unit = _name_and_unit(cell)[1] or "s"
    size_s = seconds_of(unit)
    if size_s is None:
        raise TraceError(f"{path}: column `{cell}`: found unit `{unit}`; expected one of {', '.join(TIME_UNITS)}")
    return size_s


def quantity_of(path: Path, name: str, unit: str) -> Quantity:
    """Returns the quantity of a column by its name and unit."""
    kind = _kind_of(unit)
    if kind is None:
        listed = ", ".join([*RATE_UNITS, *TIME_UNITS, *LOSS_UNITS])
        raise TraceError(f"{path}: column `{name}`: found unit `{unit}`; expected one of {listed}")
    return "rtt" if kind == "delay" and re.search(r"rtt|round", name, re.IGNORECASE) else kind

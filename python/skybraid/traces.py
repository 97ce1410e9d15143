"""Read, describe, draw and convert traces of rate, delay, loss and round-trip time.

A trace is step-wise: a value holds from its time until the next one, the last value as long as the
step before it. Text formats are parsed by the same Rust readers that a scenario uses; Parquet is
read here. The formats are described in `docs/traces.md`.
"""

import math
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from skybraid._core import SkybraidError, read_trace
from skybraid.model.heavy import pl

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Quantity = Literal["rate", "delay", "loss", "rtt"]
Format = Literal["csv", "mahimahi", "parquet", "ping", "hypatia"]
OutputFormat = Literal["csv", "mahimahi", "parquet"]

FORMATS: tuple[str, ...] = get_args(Format)
OUTPUT_FORMATS: tuple[str, ...] = get_args(OutputFormat)

UNIT_OF: dict[Quantity, str] = {"rate": "Mbit/s", "delay": "ms", "loss": "%", "rtt": "ms"}
"""The unit in which a `Trace` holds each quantity."""

DEADLINE_MS = 300.0
"""One-way delay that remote piloting allows (Baltaci et al. 2023, section II)."""

MAX_BYTES = 1_000_000_000
"""Bytes that a trace's file may have."""

# Size of each accepted unit in the unit of `UNIT_OF`, the same units as in a scenario file.
_RATE_UNITS = {"bit/s": 1e-6, "kbit/s": 1e-3, "Mbit/s": 1.0, "Gbit/s": 1e3}
_RATE_UNITS |= {"bps": 1e-6, "kbps": 1e-3, "Mbps": 1.0, "Gbps": 1e3}
_TIME_UNITS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "min": 60e3, "h": 3600e3}
_TIME_NAMES = ("time", "t", "@timestamp")
_LOSS_UNITS = {"%": 1.0, "ppm": 1e-4, "ratio": 100.0}

# The readers answer in bit/s, ns and ratios.
_FROM_BASE: dict[Quantity, float] = {"rate": 1e-6, "delay": 1e-6, "loss": 100.0, "rtt": 1e-6}

# One opportunity carries one IP packet of 1500 bytes (plus mahimahi's own 4).
_BITS_PER_OPPORTUNITY = 1500 * 8
_RATE_BIN_S = 0.1


class TraceError(SkybraidError):
    """A trace cannot be read or written. Says file, place, what was found and what was expected."""


@dataclass(frozen=True)
class Trace:
    """One step-wise series.

    times_s: when each value begins, in s, strictly increasing from 0; shape (n,).
    values: the values in `unit`; shape (n,). A round trip of infinity: there is no path meanwhile.
    quantity: "rate", "delay" (one way), "loss" or "rtt".
    unit: "Mbit/s", "ms" or "%".
    name: the file and column that it came from.
    end_s: where the last value ends, in s; None: it holds as long as the one before it.
    """

    times_s: NDArray[np.float64]
    values: NDArray[np.float64]
    quantity: Quantity
    unit: str
    name: str = ""
    end_s: float | None = None

    def length_s(self) -> float:
        """Length of the trace in s. A single value without an end counts as 1 s."""
        if self.end_s is not None:
            return self.end_s
        if len(self.times_s) == 1:
            return 1.0
        return float(2 * self.times_s[-1] - self.times_s[-2])

    def durations_s(self) -> NDArray[np.float64]:
        """How long each value holds, in s; shape (n,)."""
        return np.diff(self.times_s, append=self.length_s())

    def at(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values in force at `times_s` in s; both of shape (m,). Outside, the ends hold."""
        index = np.searchsorted(self.times_s, times_s, side="right") - 1
        return self.values[np.clip(index, 0, len(self.values) - 1)]

    def quantile(self, q: float) -> float:
        """The smallest value not exceeded during the share `q` (0 to 1) of the time, in `unit`."""
        return _quantile(self.values, self.durations_s(), q)


@dataclass(frozen=True)
class TraceStats:
    """Statistics of a trace, weighted by time; values in the trace's unit. Gaps without a path are left out.

    share_over_300ms: share of the time (0 to 1) with a one-way delay above 300 ms; None unless the
    trace is one of delay.
    share_without_path: share of the time (0 to 1) that is a gap.
    """

    name: str
    quantity: Quantity
    unit: str
    samples: int
    length_s: float
    mean: float
    sd: float
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    share_over_300ms: float | None
    share_without_path: float = 0.0


def _quantile(values: NDArray[np.float64], weights: NDArray[np.float64], q: float) -> float:
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order])
    index = int(np.searchsorted(share, q * share[-1] * (1 - 1e-12)))
    return float(values[order[min(index, len(order) - 1)]])


def read(
    path: str | Path,
    column: str | int | None = None,
    unit: str | None = None,
    format: Format | None = None,  # noqa: A002 (the word that users of the command type)
) -> Trace:
    """Read a trace.

    column: name without its unit, or number from 1; default: the first that is not the time.
    For a ping log "rtt" (default; a lost probe is a gap without a path until the next one was sent) or "loss".
    unit: unit of the values where the file does not state it, for example "Mbit/s", "ms", "%".
    format: default: told from the name and the first lines.

    Raises TraceError. A mahimahi trace becomes its rate in steps of 100 ms.
    """
    path = Path(path)
    if format == "parquet" or (format is None and ".parquet" in path.suffixes):
        return _read_parquet(path, column, unit)
    text = _read_text(path)
    chosen = format or _recognise(path, text)
    time_scale = 1.0
    asked, label = None, str(path)
    quantity: Quantity = "rtt"
    if chosen == "csv":
        found = _csv_column(path, text, column, unit)
        quantity = _quantity(path, found.name, found.unit)
        asked, unit, label = str(found.number), found.unit, f"{path}, {found.name}"
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


def stats(trace: Trace) -> TraceStats:
    """Statistics of `trace`, each value weighted by how long it holds."""
    durations_s = trace.durations_s()
    there = np.isfinite(trace.values)
    values, weights = trace.values[there], durations_s[there]
    mean = float(np.average(values, weights=weights))
    over = None
    if trace.quantity == "delay":
        over = float(weights[values > DEADLINE_MS].sum() / weights.sum())

    def quantile(q: float) -> float:
        return _quantile(values, weights, q)

    return TraceStats(
        name=trace.name,
        quantity=trace.quantity,
        unit=trace.unit,
        samples=len(trace.values),
        length_s=trace.length_s(),
        mean=mean,
        sd=math.sqrt(float(np.average((values - mean) ** 2, weights=weights))),
        min=float(values.min()),
        p50=quantile(0.50),
        p95=quantile(0.95),
        p99=quantile(0.99),
        max=float(values.max()),
        share_over_300ms=over,
        share_without_path=float(durations_s[~there].sum() / durations_s.sum()),
    )


def plot(trace: Trace) -> "Figure":
    """Draw `trace` over time, and next to it how much of the time exceeds each value (log scale)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    over_time, exceeded = figure.subplots(1, 2, width_ratios=[2, 1])
    label = f"{'one-way delay' if trace.quantity == 'delay' else trace.quantity} [{trace.unit}]"
    ends = np.append(trace.times_s, trace.length_s())
    over_time.step(ends, np.append(trace.values, trace.values[-1]), where="post", linewidth=0.8)
    over_time.set(xlabel="time [s]", ylabel=label, title=trace.name, xlim=(0, ends[-1]))

    order = np.argsort(trace.values, kind="stable")
    weights = trace.durations_s()[order]
    share = 1.0 - np.cumsum(weights) / weights.sum()
    shown = share > 1e-12
    exceeded.step(trace.values[order][shown], share[shown], where="post")
    exceeded.set(xlabel=label, ylabel="share of time above", yscale="log")
    for axes in (over_time, exceeded):
        axes.grid(alpha=0.3)
    return figure


def write(trace: Trace, path: str | Path, to: OutputFormat | None = None) -> None:
    """Write `trace` as CSV, Parquet or mahimahi opportunities (rates only).

    to: default: told from the name. An existing file is never written over. Raises TraceError.
    """
    path = Path(path)
    chosen = to or _output_format(path)
    if path.exists():
        raise TraceError(f"{path}: exists already; expected a new file")
    if chosen != "csv" and not np.isfinite(trace.values).all():
        raise TraceError(f"{trace.name}: has gaps without a path, which {chosen} cannot hold")
    header = ("time [s]", f"{trace.quantity} [{trace.unit}]")
    try:
        if chosen == "parquet":
            pl.DataFrame(dict(zip(header, (trace.times_s, trace.values), strict=True))).write_parquet(path)
        elif chosen == "csv":
            rows = (
                f"{time:.9f}".rstrip("0").rstrip(".") + f",{value:.9g}\n"
                for time, value in zip(trace.times_s, trace.values, strict=True)
            )
            path.write_text(",".join(header) + "\n" + "".join(rows), encoding="utf-8", newline="\n")
        else:
            lines = "".join(f"{stamp}\n" for stamp in opportunities_ms(trace))
            path.write_text(lines, encoding="utf-8", newline="\n")
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def opportunities_ms(trace: Trace) -> NDArray[np.int64]:
    """The times in ms, shape (n,), at which a link of this rate has sent one more 1500-byte packet.

    mahimahi repeats a trace after its last line, so the period ends with the last whole packet.
    Raises TraceError for another quantity than rate, or for less than one packet.
    """
    if trace.quantity != "rate":
        raise TraceError(f"{trace.name}: found {trace.quantity}; a mahimahi trace holds a rate")
    bits_per_s = trace.values * 1e6
    sent = np.concatenate(([0.0], np.cumsum(bits_per_s * trace.durations_s())))
    # One part in 1e9 keeps a last packet that rounding would lose.
    count = int(sent[-1] * (1 + 1e-9) // _BITS_PER_OPPORTUNITY)
    if count == 0:
        raise TraceError(f"{trace.name}: {sent[-1]:.0f} bits in all; expected at least one 1500-byte packet")
    due = np.minimum(_BITS_PER_OPPORTUNITY * np.arange(1, count + 1), sent[-1])
    step = np.searchsorted(sent, due, side="left") - 1
    times_s = trace.times_s[step] + (due - sent[step]) / bits_per_s[step]
    stamps_ms: NDArray[np.int64] = np.ceil(times_s * 1e3 - 1e-6).astype(np.int64)
    return stamps_ms


def _rate_of_opportunities(times_s: NDArray[np.float64], name: str) -> Trace:
    """The IP rate, in steps of 100 ms, of opportunities at `times_s` in s, shape (n,).

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
    rates = counts * (_BITS_PER_OPPORTUNITY * 1e-6) / widths
    return Trace(starts, rates, "rate", UNIT_OF["rate"], name, period_s)


def _read_text(path: Path) -> str:
    _refuse_devices(path)
    try:
        with path.open("rb") as file:
            found = file.read(MAX_BYTES + 1)
        _refuse_large(path, len(found))
        return found.decode("utf-8")
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; expected a trace ({', '.join(FORMATS)})") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.start} is not text; expected one of {', '.join(FORMATS)}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error


def _refuse_devices(path: Path) -> None:
    """Raises TraceError for a device or a folder, and for a file that is too large; what is absent comes out later."""
    try:
        found = path.stat()
    except OSError:
        return
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        raise TraceError(f"{path}: found something else; expected a file")
    _refuse_large(path, found.st_size)


def _refuse_large(path: Path, size: int) -> None:
    """Raises TraceError for more than `MAX_BYTES`."""
    if size > MAX_BYTES:
        raise TraceError(f"{path}: found more than {MAX_BYTES // 10**6} MB; expected at most so much")


def _recognise(path: Path, text: str) -> Format:
    """Tell the format of a text file from its name and first lines."""
    lines = [line.strip() for line in text[:4000].splitlines() if line.strip()][:5]
    if any("bytes from" in line or line.startswith("PING ") or "] PING " in line for line in lines):
        return "ping"
    if path.suffix in {".up", ".down"} or (lines and all(re.fullmatch(r"\d+", line) for line in lines)):
        return "mahimahi"
    of_flow, of_path = r"\d+,\d+,\d+", r"\d+,\d+\.\d{10}"
    if lines and any(all(re.fullmatch(row, line) for line in lines) for row in (of_flow, of_path)):
        return "hypatia"
    return "csv"


@dataclass(frozen=True)
class _Column:
    """A column of a file: number from 1, name, unit of its values, and the times' unit in s."""

    number: int
    name: str
    unit: str
    time_scale: float = 1.0


def _cells(line: str) -> list[str]:
    """The cells of a line, separated by the first of comma, semicolon and tab that occurs, else spaces."""
    separator = next((mark for mark in ",;\t" if mark in line), None)
    return [cell.strip().strip('"') for cell in line.split(separator)]


def _name_and_unit(cell: str) -> tuple[str, str | None]:
    """Split a header cell `name [unit]`."""
    match = re.fullmatch(r"(.*?)\s*\[(.*)\]", cell)
    return (match[1], match[2].strip()) if match else (cell, None)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv_column(path: Path, text: str, column: str | int | None, unit: str | None) -> _Column:
    """The column to read, by name or (without a header) by number."""
    lines = enumerate(text.splitlines(), start=1)
    place, first = next(
        ((f"line {at}", line) for at, line in lines if line.strip() and not line.strip().startswith("#")),
        ("line 1", None),
    )
    if first is None:
        raise TraceError(f"{path}: line 1: the file is empty; expected `time [s],name [unit]` or numbers")
    cells = _cells(first.strip())
    if not all(_is_number(cell) for cell in cells):
        found = _choose(path, place, cells, column, unit)
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
    return _Column(int(name), name, unit)


def _choose(path: Path, place: str, header: list[str], column: str | int | None, unit: str | None) -> _Column:
    """The `column` of `header`, whose values are in `unit` if given; default: the first that is not the time."""
    names = [_name_and_unit(cell) for cell in header]
    for number, (name, stated) in enumerate(names, start=1):
        wanted = column in {name, number, str(number), header[number - 1]}
        if wanted or (column is None and name.lower() not in _TIME_NAMES):
            chosen = unit or stated
            if chosen is None:
                raise TraceError(
                    f"{path}: {place}: column `{name}` states no unit; expected `{name} [unit]` or a unit given"
                )
            return _Column(number, name, chosen)
    listed = ", ".join(f"`{name}`" for name, _ in names)
    expected = "a column of values" if column is None else f"a column `{column}`"
    raise TraceError(f"{path}: {place}: found {listed}; expected {expected}")


def _seconds(path: Path, cell: str) -> float:
    """The size in s of the unit that the header cell of the times states; s where it states none."""
    unit = _name_and_unit(cell)[1] or "s"
    if unit not in _TIME_UNITS:
        raise TraceError(f"{path}: column `{cell}`: found unit `{unit}`; expected one of {', '.join(_TIME_UNITS)}")
    return _TIME_UNITS[unit] * 1e-3


def _quantity(path: Path, name: str, unit: str) -> Quantity:
    """What a column of this name and unit holds."""
    if unit in _RATE_UNITS:
        return "rate"
    if unit in _LOSS_UNITS:
        return "loss"
    if unit in _TIME_UNITS:
        return "rtt" if re.search(r"rtt|round", name, re.IGNORECASE) else "delay"
    listed = ", ".join([*_RATE_UNITS, *_TIME_UNITS, *_LOSS_UNITS])
    raise TraceError(f"{path}: column `{name}`: found unit `{unit}`; expected one of {listed}")


def _read_parquet(path: Path, column: str | int | None, unit: str | None) -> Trace:
    """Read one column of a Parquet file. Raises TraceError."""
    _refuse_devices(path)
    try:
        table = pl.read_parquet(path)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; expected a trace in Parquet") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise TraceError(f"{path}: cannot be read as Parquet: {error}") from error
    if table.is_empty():
        raise TraceError(f"{path}: found no rows; expected at least one")
    found = _choose(path, "schema", table.columns, column, unit)
    quantity = _quantity(path, found.name, found.unit)
    times_s = _times_of(path, table)
    values = _numbers(path, table.to_series(found.number - 1))
    if (values < 0).any():
        row = int(np.argmax(values < 0))
        raise TraceError(f"{path}: row {row + 1}, column `{found.name}`: found {values[row]:g}; expected 0 or more")
    sizes = _RATE_UNITS | _TIME_UNITS | _LOSS_UNITS
    return Trace(times_s, values * sizes[found.unit], quantity, UNIT_OF[quantity], f"{path}, {found.name}")


def _times_of(path: Path, table: "pl.DataFrame") -> NDArray[np.float64]:
    """The times of a table in s from its first row.

    They are in the column `time [unit]`, `t` or `@timestamp`, else in the first one.
    """
    names = {_name_and_unit(cell)[0].lower(): cell for cell in table.columns}
    cell = next((names[name] for name in _TIME_NAMES if name in names), table.columns[0])
    series = table[cell]
    if series.dtype == pl.String:
        try:
            series = series.str.to_datetime(time_unit="us", time_zone="UTC")
        except pl.exceptions.PolarsError as error:
            raise TraceError(f"{path}: column `{cell}`: expected dates and times: {error}") from error
    if series.dtype.is_temporal():
        micros = _numbers(path, series.dt.epoch("us"))
        times_s: NDArray[np.float64] = (micros - micros[0]) * 1e-6
    else:
        values = _numbers(path, series)
        times_s = (values - values[0]) * _seconds(path, cell)
    steps = np.diff(times_s)
    if (steps <= 0).any():
        row = int(np.argmax(steps <= 0)) + 1
        raise TraceError(
            f"{path}: row {row + 1}, column `{cell}`: found {times_s[row]:g} s "
            f"after {times_s[row - 1]:g} s; expected increasing times"
        )
    return times_s


def _numbers(path: Path, series: "pl.Series") -> NDArray[np.float64]:
    """The values of a numeric column, shape (n,), all finite."""
    if not series.dtype.is_numeric():
        raise TraceError(f"{path}: column `{series.name}`: found {series.dtype}; expected numbers")
    values: NDArray[np.float64] = series.to_numpy().astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise TraceError(f"{path}: row {row + 1}, column `{series.name}`: found {values[row]}; expected a number")
    return values


def _output_format(path: Path) -> OutputFormat:
    by_suffix: dict[str, OutputFormat] = {
        ".csv": "csv",
        ".parquet": "parquet",
        ".up": "mahimahi",
        ".down": "mahimahi",
    }
    if path.suffix not in by_suffix:
        raise TraceError(f"{path}: found suffix `{path.suffix}`; expected {', '.join(by_suffix)}, or a format given")
    return by_suffix[path.suffix]

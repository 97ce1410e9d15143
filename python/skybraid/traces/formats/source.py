"""File to import, the user's options, and parsing shared by the readers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from skybraid.model.heavy import np
from skybraid.traces.files import decoded, encoding_of, read_bytes
from skybraid.traces.formats.stamps import read_stamp
from skybraid.traces.series import TraceError

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats

MAX_ROWS = 10_000_000
"""Maximum rows of a measurement."""

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)

_VALUE = re.compile(r"[^\s,]")
"""Start of a JSON value."""

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""String or bracket of JSON."""

UNKNOWN = {"", "na", "n/a", "#n/a", "nan", "null", "none", "-", "--"}
"""Contents of unmeasured cells, in lower case."""

CUT = "the last line was cut off and is left out"
"""Note on a file with an unfinished last line of an interrupted tool."""

_LOST_TIMES = 2.0
"""Minimum ratio to other values from which on a repeated maximum marks lost probes."""


@dataclass(frozen=True)
class Options:
    """Facts stated by the user that a file does not contain.

    Attributes:
        every_s: time between lines or probes in s.
        zone: time zone of dates without one, such as "Europe/Zurich".
        client: side of the measuring client: "vehicle" or "ground".
        columns: meaning of columns such as "downlink rate [Mbit/s]", by name or number.
        one_way: whether the clocks of both ends are synchronised, so that one-way delays are valid.
        peer: the capture at the other end.
        lost: value of a round trip or delay that marks a lost probe, such as -1.
        format: name of the format; None: recognised.
    """

    every_s: float | None = None
    zone: str | None = None
    client: str = "vehicle"
    columns: Mapping[str, str] = field(default_factory=dict)
    one_way: bool = False
    peer: Path | None = None
    lost: float | None = None
    format: str | None = None

    @property
    def sent(self) -> str:
        """Returns the direction that the client sends in."""
        return "uplink" if self.client == "vehicle" else "downlink"

    @property
    def received(self) -> str:
        """Returns the direction that the client receives from."""
        return "downlink" if self.client == "vehicle" else "uplink"


class Source:
    """File to import; its contents are read once, on first use.

    Attributes:
        path: path of the file.
        notes: omissions that apply to all measurements of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []

    @cached_property
    def data(self) -> bytes:
        """Contents of the file."""
        return read_bytes(self.path)

    @cached_property
    def text(self) -> str:
        """Contents as text decoded by `decoded`; text that is not Unicode is decoded as Windows-1252."""
        try:
            return decoded(self.data)
        except UnicodeDecodeError:
            return decoded(self.data.decode("cp1252", errors="replace").encode())

    @classmethod
    def of_text(cls, path: Path, text: str) -> Source:
        """Returns a part of a file as a source."""
        found = cls(path)
        found.__dict__.update(data=text.encode(), text=text)
        return found

    @cached_property
    def head(self) -> str:
        """First 4000 bytes as text."""
        data = self.data[:4000]
        return decoded(data.decode(encoding_of(data), errors="replace").encode())

    @cached_property
    def lines(self) -> list[str]:
        """Lines of the file."""
        return self.text.splitlines()

    @property
    def first_lines(self) -> list[str]:
        """First non-blank lines, stripped; the last of them may be truncated."""
        return [line.strip() for line in self.head.splitlines() if line.strip()]

    @property
    def cut_line(self) -> int | None:
        """Number of the last line if it has no line end: an interrupted tool may have left it unfinished."""
        return len(self.lines) if self.lines and not self.text.endswith("\n") else None

    def drop_cut(self, number: int) -> bool:
        """Drops a damaged line, with a note, if it is the last one and has no line end; returns whether it did."""
        if number != self.cut_line:
            return False
        self.notes.append(CUT)
        return True

    def fail(self, line: int | None, found: str, expected: str) -> NoReturn:
        """Raises TraceError for a line, counted from 1, or for the whole file."""
        place = f"{self.path}" if line is None else f"{self.path}:{line}"
        shown = found if len(found) <= 80 else f"{found[:77]}..."
        raise TraceError(f"{place}: found {shown}; expected {expected}")


def json_values(source: Source) -> Iterator[tuple[int, Any]]:
    """Yields consecutive JSON values of a file, each with the line on which it begins.

    A truncated last value keeps the complete elements of its lists.

    Raises:
        TraceError: a value is damaged.
    """
    decoder, text, place = json.JSONDecoder(), source.text, 0
    line, counted = 1, 0
    while found := _VALUE.search(text, place):
        line, counted = line + text.count("\n", counted, found.start()), found.start()
        try:
            value, place = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError) as error:
            begun = _until_cut(text[found.start() :])
            if begun is not None:
                source.notes.append("the file was cut off: what came before is used")
                yield line, begun
                return
            if found.start() > 0 and source.drop_cut(len(source.lines)):
                return
            source.fail(line, f"damaged JSON ({error})", "whole values: was the file cut off?")
        yield line, value


def _until_cut(text: str) -> object:
    """Parses a truncated list, or object with lists, up to its last complete element; None if damaged otherwise."""
    opened: list[str] = []
    end, closing = 0, ""
    for found in _MARK.finditer(text):
        if found[0] in ("{", "["):
            opened.append(found[0])
        elif found[0] in ("}", "]"):
            if not opened or opened.pop() + found[0] not in ("{}", "[]"):
                return None
            if found[0] == "}" and opened in (["["], ["{", "["]):
                end, closing = found.end(), "]" if len(opened) == 1 else "]}"
    try:
        return json.loads(text[:end] + closing) if end and opened else None
    except (ValueError, RecursionError):
        return None


def number_of(source: Source, line: int, text: str, what: str) -> float:
    """Parses a finite number.

    Raises:
        TraceError: the text is no finite number.
    """
    # `float` accepts more than measuring tools write: 1_000, digits of other scripts.
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not math.isfinite(value):
        source.fail(line, f"`{text}`", what)
    return value


def optional_number(source: Source, line: int, text: str, what: str) -> float:
    """Parses a number; NaN where the cell says that nothing was measured.

    Raises:
        TraceError: it is neither.
    """
    return math.nan if text.strip().lower() in UNKNOWN else number_of(source, line, text, what)


def zone_of(options: Options) -> ZoneInfo | None:
    """Returns the time zone that the user names; None without one.

    Raises:
        TraceError: there is no such zone.
    """
    if options.zone is None:
        return None
    try:
        return ZoneInfo(options.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise TraceError(f"--zone: found `{options.zone}`; expected a zone such as Europe/Zurich") from None


def unix_time(text: str, zone: ZoneInfo | None) -> float | None:
    """Returns a date and time, parsed by `stamps`, in s since 1970; None for other texts."""
    found = read_stamp(text, zone)
    return found.at_s if found is not None and found.is_dated and not found.unknown_zone else None


def has_zone(text: str) -> bool:
    """Whether a date names its zone, or needs none."""
    found = read_stamp(text)
    return found is not None and found.is_zoned


def range_of(quantity: str) -> tuple[float, float]:
    """Returns the valid range of a network quantity in Mbit/s, ms or %, as in scenarios: 1000 Tbit/s, 100 days."""
    return 0.0, {"rate": 1e9, "loss": 100.0, "round_trip_loss": 100.0}.get(quantity, 9e9)


def in_network_unit(
    source: Source, lines: Sequence[int], raw: Floats, quantity: str, scale: float, lost: float | None
) -> tuple[Floats, list[str]]:
    """Converts a column to Mbit/s, ms or % and returns it with notes; times of infinity or `lost` are lost probes.

    Raises:
        TraceError: a value is out of range, or a round trip takes no time.
    """
    values = raw * scale
    is_time = quantity in ("delay", "rtt")
    if lost is not None and is_time:
        values = np.where(raw == lost, np.inf, values)
    low, high = range_of(quantity)
    bad = (values < low) | (values > high) & ~(np.isinf(values) & is_time) | (values == 0) & (quantity == "rtt")
    if bad.any():
        row = int(np.argmax(bad))
        hint = f" (lost: --lost {raw[row]:g})" if is_time else ""
        unit = "Mbit/s" if quantity == "rate" else "ms" if is_time else "%"
        source.fail(lines[row], f"{raw[row]:g} as {quantity}", f"{low:g} to {high:g} {unit}{hint}")
    known = raw[np.isfinite(values)]
    if is_time and known.size:
        # Tools that cannot mark a lost probe write one large number for all.
        longest = known.max()
        below, count = known[known < longest], int((known == longest).sum())
        if count > 1 and below.size and longest >= _LOST_TIMES * below.max():
            return values, [f"{count} rows have {longest:g}, far above all others; if lost: --lost {longest:g}"]
    return values, []


def from_zero(source: Source, times_s: Sequence[float], lines: Sequence[int]) -> Floats:
    """Returns times in s relative to the first, shape (n,).

    Raises:
        TraceError: there are none or too many, or they do not increase.
    """
    if len(times_s) == 0:
        source.fail(None, "no measurements", "at least one")
    if len(times_s) > MAX_ROWS:
        source.fail(None, f"{len(times_s)} rows", f"at most {MAX_ROWS}")
    found = np.asarray(times_s, dtype=np.float64)
    steps_s = np.diff(found)
    if (steps_s <= 0).any():
        row = int(np.argmax(steps_s <= 0))
        source.fail(lines[row + 1], f"a step of {steps_s[row]:g} s", "increasing times")
    relative: Floats = found - found[0]
    return relative

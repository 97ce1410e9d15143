"""Reader of a gateway's event log: a header line, then samples of the state and events.

Each line is a JSON object. A truncated log (power failure, full disk) is read as far as possible.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from skybraid.model.errors import ResultError, meant_by
from skybraid.model.formatting import span

FORMAT = "skybraid-gateway-log"
VERSION = 1

STATES = ("up", "probation", "suspected", "down", "unheard")
"""States of a path, in the order of legends."""

DIRECTIONS = ("outgoing", "incoming")

_NUMBER, _TEXT, _COUNT = pl.Float64(), pl.String(), pl.UInt64()
_PATH = {
    "name": _TEXT,
    **dict.fromkeys(DIRECTIONS, _TEXT),
    **dict.fromkeys(("rtt_ms", "min_rtt_ms", "incoming_delay_ms", "outgoing_delay_ms", "jitter_ms"), _NUMBER),
    **dict.fromkeys(("incoming_loss", "outgoing_loss", "outgoing_bps", "incoming_bps"), _NUMBER),
    **dict.fromkeys(("outgoing_bytes", "incoming_bytes", "outgoing_datagrams", "incoming_datagrams"), _COUNT),
    **dict.fromkeys(("control_won", "mtu", "given_up", "data_left"), _COUNT),
}
_CLASS = {
    "name": _TEXT,
    **dict.fromkeys(("written", "written_bytes", "refused", "delivered", "delivered_bytes"), _COUNT),
    **dict.fromkeys(("late", "superseded", "duplicates", "repaired"), _COUNT),
    **dict.fromkeys(("delay_p50_ms", "delay_p99_ms", "longest_gap_ms"), _NUMBER),
    "by_path": pl.List(_COUNT),
}


@dataclass(frozen=True, slots=True)
class Span:
    """Span in which a path was in one state.

    Attributes:
        begin_s: start in s since the gateway's start.
        end_s: end in s since the gateway's start.
        state: one of `STATES`.
    """

    begin_s: float
    end_s: float
    state: str


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Event of a log.

    Attributes:
        time_s: time in s since the gateway's start.
        kind: `session`, `peer_lost`, `path`, `address`, `mtu`, `data_cap`, `alarm` or another word.
        words: description in plain words.
        entry: fields of the log entry.
    """

    time_s: float
    kind: str
    words: str
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class GatewayLog:
    """Event log of one gateway, from start to end.

    Attributes:
        file: path of the log.
        name: name of the gateway.
        side: `aircraft` or `ground`.
        begun_unix: start of the gateway in s since 1970.
        length_s: time from the start to the last line in s.
        path_names: names of the paths in the gateway's order.
        paths: one row per sample and path: `time_ns` since the start and the fields of a path's snapshot.
        classes: one row per sample and class: `time_ns` and the fields of a class's snapshot.
        last: last sample, empty without one.
        events: events in the order of the log.
        notes: sentences on the state of the file.
    """

    file: Path
    name: str
    side: str
    begun_unix: float
    length_s: float
    path_names: tuple[str, ...]
    paths: pl.DataFrame
    classes: pl.DataFrame
    last: dict[str, Any]
    events: tuple[LogEvent, ...]
    notes: tuple[str, ...]

    @classmethod
    def read(cls, file: Path) -> GatewayLog:
        """Reads a log.

        Raises:
            ResultError: the file is no log, has a newer format, or cannot be read.
        """
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ResultError(f"{file}: cannot read the log: {error.strerror}{meant_by(file)}") from error
        lines = text.split("\n")
        head = _header(file, lines[0])
        notes: list[str] = []
        entries = list(_entries(lines[1:], notes))
        samples = [(time_s, entry["sample"]) for time_s, _, entry in entries if isinstance(entry.get("sample"), dict)]
        events = [(time_s, entry["event"]) for time_s, _, entry in entries if isinstance(entry.get("event"), dict)]
        if not samples:
            notes.append("It holds no sample of the state, so nothing can be drawn over time.")
        names = [one["name"] for _, sample in samples for one in _rows(sample, "paths") if "name" in one]
        names += [one for one in head.get("paths", []) if isinstance(one, str)]
        names += [str(entry["path"]) for _, entry in events if "path" in entry]
        # The median is robust against a wall clock that is set during the run.
        starts = sorted(unix - time_s for time_s, unix, _ in entries if unix is not None)
        if starts and starts[-1] - starts[0] > 1:
            notes.append(
                f"The wall clock was set during the log, by {span(starts[-1] - starts[0])}; times are since the start."
            )
        return cls(
            file,
            str(head.get("name", file.stem)),
            str(head.get("side", "gateway")),
            starts[len(starts) // 2] if starts else float(head.get("unix", 0.0)),
            max((time_s for time_s, _, _ in entries), default=0.0),
            tuple(dict.fromkeys(names)),
            _frame(samples, "paths", _PATH),
            _frame(samples, "classes", _CLASS),
            samples[-1][1] if samples else {},
            tuple(LogEvent(time_s, str(entry.get("event", "event")), words(entry), entry) for time_s, entry in events),
            tuple(notes),
        )

    def spans(self, path: str, direction: str) -> list[Span]:
        """Returns the spans of a path's states in one direction."""
        found: list[Span] = []
        begin_s, state = 0.0, "unheard"
        for event in self.events:
            entry = event.entry
            if event.kind != "path" or entry.get("path") != path or entry.get("direction") not in (direction, "both"):
                continue
            if event.time_s > begin_s:
                found.append(Span(begin_s, event.time_s, state))
            begin_s, state = event.time_s, str(entry.get("to"))
        if self.length_s > begin_s:
            found.append(Span(begin_s, self.length_s, state))
        return found

    def counted(self, class_: str, name: str) -> int:
        """Returns the final counter of a class, such as messages `written`, `delivered` or `late`; 0 if absent."""
        for one in _rows(self.last, "classes"):
            if one.get("name") == class_:
                return int(one.get(name) or 0)
        return 0


def is_log(file: Path) -> bool:
    """Whether the file begins like a gateway's log."""
    try:
        with file.open("rb") as opened:
            return f'"{FORMAT}"'.encode() in opened.read(4096).partition(b"\n")[0]
    except OSError:
        return False


def words(entry: dict[str, Any]) -> str:
    """Describes an event in plain words."""
    path = entry.get("path")
    match entry.get("event"):
        case "session" if entry.get("restarted"):
            return "A session with the peer is established (after a restart, or for the first time)."
        case "session":
            return "The keys were changed."
        case "peer_lost":
            return "Nothing is heard from the peer on any path."
        case "path":
            of = {"outgoing": "to the peer", "incoming": "from the peer"}.get(str(entry.get("direction")), "both ways")
            return f"{path}, {of}: {entry.get('from')} → {entry.get('to')}."
        case "address":
            return f"{path}: the peer is heard from {entry.get('address')}."
        case "mtu":
            return f"{path}: the largest packet that goes through has {entry.get('bytes')} B."
        case "data_cap":
            return f"{path}: its data volume is used up."
        case "alarm":
            return str(entry.get("text"))
    return json.dumps(entry, ensure_ascii=False)


def _header(file: Path, line: str) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ResultError(f'{file}: line 1: found no gateway\'s log, expected {{"format":"{FORMAT}", …}}')
    if head.get("version") != VERSION:
        raise ResultError(f"{file}: line 1: found version {head.get('version')}, expected {VERSION}")
    return head


def _entries(lines: Sequence[str], notes: list[str]) -> Iterator[tuple[float, float | None, dict[str, Any]]]:
    """Yields time since the start in s, wall-clock time in s and fields of each line; skips unreadable ones."""
    broken: list[int] = []
    last = 0
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        last = number
        try:
            entry = json.loads(line)
            time_s = float(entry["t_ms"]) / 1000
            unix = entry.get("unix")
            yield time_s, None if unix is None else float(unix), entry
        except (ValueError, KeyError, TypeError, AttributeError):
            broken.append(number)
    if broken == [last]:
        notes.append(f"Line {last}, its last, is cut off: the log ends before it.")
    elif broken:
        lines_ = "Line" if len(broken) == 1 else f"{len(broken)} lines, the first of them line"
        notes.append(f"{lines_} {broken[0]} cannot be read and {'is' if len(broken) == 1 else 'are'} left out.")


def _rows(sample: dict[str, Any], part: str) -> list[dict[str, Any]]:
    found = sample.get(part)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _frame(samples: Sequence[tuple[float, dict[str, Any]]], part: str, schema: dict[str, Any]) -> pl.DataFrame:
    columns: dict[str, list[Any]] = {name: [] for name in ("time_ns", *schema)}
    for time_s, sample in samples:
        for one in _rows(sample, part):
            columns["time_ns"].append(round(time_s * 1e9))
            for name in schema:
                columns[name].append(one.get(name))
    return pl.DataFrame(columns, schema={"time_ns": pl.Int64(), **schema}, strict=False)

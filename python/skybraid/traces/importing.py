"""Import of measuring tools' files as CSV that scenarios replay, and joining of series measured together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from skybraid.model.heavy import np
from skybraid.traces import reading
from skybraid.traces.files import PACKED
from skybraid.traces.formats import Options, Source, entry_of, recognise, records, table
from skybraid.traces.measurement import (
    NETWORK,
    Imported,
    MeasuredTrack,
    Measurement,
    filled,
    moment,
    on_one_clock,
    with_derived,
)
from skybraid.traces.series import TraceError, with_end

if TYPE_CHECKING:
    from skybraid.traces.measurement import Floats
    from skybraid.traces.reading import Format
    from skybraid.traces.series import Trace

TRACK = "track"
"""Label of a track among the measurements of a file."""


def load(path: str | Path, format: str | None = None, options: Options | None = None) -> list[Imported]:  # noqa: A002
    """Reads all measurements of a file, gaps and lost probes included.

    Args:
        path: file to read.
        format: format name in `formats.FORMATS`; default: recognised.
        options: facts that the file does not contain.

    Raises:
        TraceError: the format is ambiguous, or the file does not follow it.
    """
    source = Source(Path(path))
    options = options or Options()
    found = entry_of(format or options.format or recognise(source)).read(source, options)
    measured = [_without_unmeasured(source, one) for one in found]
    return [replace(one, notes=(*one.notes, *dict.fromkeys(source.notes))) for one in measured]


def read(
    path: str | Path,
    column: str | int | None = None,
    unit: str | None = None,
    format: Format | None = None,  # noqa: A002 (the word that users of the command type)
) -> Trace:
    """Reads a trace in a format that scenarios read, or in Parquet; mahimahi becomes its rate in steps of 100 ms.

    Args:
        path: file to read.
        column: name without unit, or number from 1; default: the first that is not the time. For a ping log "rtt"
            (default; a lost probe is a gap without a path until the next one was sent) or "loss".
        unit: unit of the values if the file does not state it, such as "Mbit/s", "ms", "%".
        format: format name; default: recognised by the file's name and first lines.

    Raises:
        TraceError: the file cannot be read, or does not follow its format.
    """
    path = Path(path)
    if format != "parquet" and (format is not None or ".parquet" not in path.suffixes):
        return reading.read_text(path, column, unit, format)
    source = Source(path)
    headings = records.parquet_rows(source)[0][1]
    chosen = reading.choose(path, "schema", headings, column, unit)
    quantity = reading.quantity_of(path, chosen.name, chosen.unit)
    # The date of the first row is not used here, so no zone is needed.
    options = Options(columns={headings[chosen.number - 1]: f"{quantity} [{chosen.unit}]"}, zone="UTC")
    (found,) = table.read(source, options)
    return replace(found.trace(found.columns[0].name), name=f"{path}, {chosen.name}")


def import_files(
    paths: Sequence[str | Path],
    out: str | Path,
    format: str | None = None,  # noqa: A002
    options: Options | None = None,
    gaps: str | None = None,
) -> list[tuple[Path, Imported]]:
    """Writes the measurements of files as CSV.

    Args:
        paths: files to read.
        out: folder, or, for a single measurement, a new file ending in `.csv`.
        format: format name for all files; default: recognised file by file.
        options: facts that the files do not contain.
        gaps: treatment of gaps: "outage", "hold" or "split"; if empty, gaps are an error.

    Returns:
        Each written file with its measurement or track.

    Raises:
        TraceError: a file cannot be read, or a file to write exists.
    """
    found: list[tuple[str, Imported]] = []
    for path in map(Path, paths):
        loaded = load(path, format, options)
        several = len(loaded) > 1
        for one in loaded:
            for part in [one] if isinstance(one, MeasuredTrack) else filled(one, gaps):
                label = TRACK if isinstance(part, MeasuredTrack) else part.label if several or gaps == "split" else ""
                found.append((f"{_stem(path)}{'-' if label else ''}{label}", part))
    target = Path(out)
    if target.suffix == ".csv":
        if len(found) > 1:
            listed = ", ".join(name for name, _ in found)
            raise TraceError(f"--out {target}: found {len(found)} measurements ({listed}); expected a folder for them")
        places = [(target, found[0][1])]
    else:
        names = [name for name, _ in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TraceError(f"--out {target}: found two measurements `{twice}`; expected a folder for each")
        places = [(target / f"{name}.csv", one) for name, one in found]
    for place, _ in places:
        if place.exists():
            raise TraceError(f"{place}: exists already; expected a new file")
    for place, one in places:
        save(one, place)
    return places


def join(
    paths: Sequence[tuple[str, str | Path]],
    out: str | Path,
    format: str | None = None,  # noqa: A002
    options: Options | None = None,
    gaps: str | None = None,
) -> Measurement:
    """Writes series measured together as one CSV, over the time covered by all.

    Args:
        paths: name and file of each series.
        out: new file ending in `.csv`.
        format: format name for all files; default: recognised.
        options: facts that the files do not contain.
        gaps: treatment of gaps, "outage" or "hold".

    Raises:
        TraceError: a file has no dates, or the files have no time in common.
    """
    if gaps == "split":
        raise TraceError("--gaps: found split; expected outage or hold: joined series stay whole")
    whole: list[Measurement] = []
    names: list[str] = []
    for name, path in paths:
        for one in load(path, format, options):
            if isinstance(one, Measurement) and any(column.quantity in NETWORK for column in one.columns):
                whole.append(with_derived(filled(one, gaps)[0]))
                names.append(name)
    target = Path(out)
    joined = on_one_clock(whole, names, ", ".join(str(path) for _, path in paths))
    if target.exists():
        raise TraceError(f"{target}: exists already; expected a new file")
    save(joined, target)
    return joined


def save(found: Imported, path: Path) -> None:
    """Writes a measurement or a track as CSV, with its origin in comments.

    Raises:
        TraceError: the file cannot be written.
    """
    lines = [f"# imported from {found.source}"]
    if found.start_unix_s is not None:
        lines.append(f"# starts at {moment(found.start_unix_s)}")
    lines += [f"# {note}" for note in found.notes]
    if isinstance(found, MeasuredTrack):
        lines.append("time_s,latitude,longitude,altitude_m")
        table = [found.times_s, found.latitude_deg, found.longitude_deg, found.altitude_m]
        digits: tuple[int, ...] = (6, 7, 7, 3)
    else:
        derived = with_derived(found)
        lines.append(",".join(["time [s]", *(column.heading for column in derived.columns)]))
        table = [derived.times_s, *(column.values for column in derived.columns)]
        if _needs_end(derived):
            table = with_end(table, derived.length_s)
        digits = (9, *(6 for _ in derived.columns))
    rows = ("".join(_row(row, digits)) for row in zip(*table, strict=True))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n" + "".join(rows), encoding="utf-8", newline="\n")
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def scenario_lines(found: Imported, path: Path) -> list[str]:
    """Returns the lines with which a scenario replays a written file."""
    if isinstance(found, MeasuredTrack):
        return [f'track = {{ file = "{path.name}" }}']
    lines = []
    for column in with_derived(found).columns:
        if column.quantity not in ("rate", "delay", "loss"):
            continue
        entry = f'{{ trace = "{path.name}", column = "{column.heading}", unit = "{column.unit}" }}'
        directions = [column.direction] if column.direction in ("uplink", "downlink") else ["uplink", "downlink"]
        lines += [f"{direction}.{column.quantity} = {entry}" for direction in directions]
    return lines


def _without_unmeasured(source: Source, measurement: Imported) -> Imported:
    """Drops columns without any value, with a note.

    Raises:
        TraceError: no column of a network quantity has a value.
    """
    if isinstance(measurement, MeasuredTrack):
        return measurement
    empty = [column for column in measurement.columns if column.quantity in NETWORK and np.isnan(column.values).all()]
    if not empty:
        return measurement
    names = ", ".join(f"`{column.name}`" for column in empty)
    kept = tuple(column for column in measurement.columns if not any(column is other for other in empty))
    if not any(column.quantity in NETWORK for column in kept):
        source.fail(None, f"no value of {names}", "a number in a row at least")
    return replace(measurement, columns=kept, notes=(*measurement.notes, f"{names} left out, which have no value"))


def _needs_end(measurement: Measurement) -> bool:
    """Whether the end of the last row differs from a reader's default, the length of the step before."""
    times_s = measurement.times_s
    default_s = float(times_s[-1] - times_s[-2]) if len(times_s) > 1 else 1.0
    last_s = measurement.length_s - float(times_s[-1])
    return last_s > 4e-6 and abs(last_s - default_s) > 0.01 * default_s


def _row(row: Sequence[Floats], digits: Sequence[int]) -> str:
    cells = (
        "" if np.isnan(value) else _format_number(float(value), places)
        for value, places in zip(row, digits, strict=True)
    )
    return ",".join(cells) + "\n"


def _format_number(value: float, places: int) -> str:
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _stem(path: Path) -> str:
    packed = next((suffix for suffix in PACKED if path.name.endswith(suffix)), "")
    return path.name.removesuffix(packed).rsplit(".", 1)[0]

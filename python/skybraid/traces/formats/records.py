"""Rows of tables other than delimited text: JSON records of one's own scripts, and Parquet.

Records follow one another or are in a list. The key of a nested record has both names: `{"ping": {"rtt_ms": 12}}` is
the column `ping.rtt_ms`. A key that a record lacks was not measured.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import pl
from skybraid.traces.formats.source import json_values

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Source


def is_json(source: Source) -> bool:
    """Whether the file looks like JSON."""
    return source.head.lstrip().startswith(("{", "["))


def first_record(source: Source) -> dict[str, str]:
    """Returns the cells of the first record by heading; empty without records."""
    try:
        value, _ = json.JSONDecoder().raw_decode(source.head, source.head.find("{"))
    except (ValueError, RecursionError):
        return {}
    return _cells(value)


def json_rows(source: Source) -> list[tuple[int, list[str]]]:
    """Returns headings and the cells of each record, with the line on which it begins.

    Raises:
        TraceError: the JSON is damaged, or contains anything but records.
    """
    records: list[tuple[int, dict[str, str]]] = []
    for line, value in json_values(source):
        for record in value if isinstance(value, list) else [value]:
            if not isinstance(record, dict):
                source.fail(line, f"`{json.dumps(record)}`", 'records such as {"time": …, "rtt_ms": 12}')
            records.append((line, _cells(record)))
    headings = list(dict.fromkeys(name for _, cells in records for name in cells))
    return [(1, headings), *((line, [cells.get(name, "") for name in headings]) for line, cells in records)]


def is_parquet(source: Source) -> bool:
    """Whether the file is Parquet."""
    return source.data[:4] == b"PAR1"


def parquet_rows(source: Source) -> list[tuple[int, list[str]]]:
    """Returns headings and the cells of each row as text, with the row's number from 1.

    Raises:
        TraceError: the file is damaged.
    """
    try:
        table = pl.read_parquet(io.BytesIO(source.data))
    except (pl.exceptions.PolarsError, OSError) as error:
        source.fail(None, f"damaged Parquet ({error})", "a whole file")
    columns = [_texts(column) for column in table.get_columns() if not column.dtype.is_nested()]
    cells = zip(*(column.fill_null("").to_list() for column in columns), strict=True)
    return [(1, [column.name for column in columns]), *enumerate(map(list, cells), start=1)]


def _texts(column: pl.Series) -> pl.Series:
    """Returns the cells of a column as text, with times in a form that `stamps` reads."""
    kind = column.dtype
    if isinstance(kind, pl.Duration):
        return (column.dt.total_nanoseconds() * 1e-9).cast(pl.String).alias(f"{column.name} [s]")
    if isinstance(kind, pl.Datetime) and kind.time_zone is not None:
        return column.dt.convert_time_zone("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ")
    if isinstance(kind, pl.Datetime | pl.Date):
        return column.cast(pl.Datetime("ns")).dt.strftime("%Y-%m-%dT%H:%M:%S%.f")
    if isinstance(kind, pl.Time):
        return column.dt.strftime("%H:%M:%S%.f")
    return column.cast(pl.String)


def _cells(record: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": cell for inner, cell in _cells(value).items()}
        elif not isinstance(value, list):
            found[name] = "" if value is None else str(value)
    return found

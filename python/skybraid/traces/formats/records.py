"""JSON records of one's own scripts, one after another or in a list, as rows of a table.

A record within another has both names: `{"ping": {"rtt_ms": 12}}` is the column `ping.rtt_ms`. A key that a record
lacks was not measured.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from skybraid.traces.formats.source import json_values

if TYPE_CHECKING:
    from skybraid.traces.formats.source import Source


def is_json(source: Source) -> bool:
    """Whether the file may be JSON."""
    return source.head.lstrip().startswith(("{", "["))


def first_record(source: Source) -> dict[str, str]:
    """Returns the cells of the first record by their headings; none where there is no record."""
    try:
        value, _ = json.JSONDecoder().raw_decode(source.head, source.head.find("{"))
    except (ValueError, RecursionError):
        return {}
    return _cells(value)


def rows_of(source: Source) -> list[tuple[int, list[str]]]:
    """Returns headings and the cells of each record, with the line on which it begins.

    Raises:
        TraceError: the JSON is damaged, or holds something else than records.
    """
    records: list[tuple[int, dict[str, str]]] = []
    for line, value in json_values(source):
        for record in value if isinstance(value, list) else [value]:
            if not isinstance(record, dict):
                source.fail(line, f"`{json.dumps(record)}`", 'records such as {"time": …, "rtt_ms": 12}')
            records.append((line, _cells(record)))
    headings = list(dict.fromkeys(name for _, cells in records for name in cells))
    return [(1, headings), *((line, [cells.get(name, "") for name in headings]) for line, cells in records)]


def _cells(record: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= {f"{name}.{inner}": cell for inner, cell in _cells(value).items()}
        elif not isinstance(value, list):
            found[name] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return found

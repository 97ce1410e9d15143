"""JSON Schema of scenario and gateway files, from the keys that the parser reads."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from skybraid import _core

KINDS = ("scenario", "gateway")

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SHORT = 200


def file_schema(kind: str) -> dict[str, Any]:
    """Returns the schema of a kind of file, `scenario` or `gateway`; equal parts stand once, in `$defs`.

    Raises:
        ScenarioError: there is no such kind.
    """
    whole = _core.file_schema(kind)
    counts: dict[str, int] = {}
    _count(whole, counts)
    parts: dict[str, Any] = {}
    shared = _shared(whole, counts, parts, outermost=True)
    return {"$schema": _DIALECT, "title": f"Skybraid {kind}", **shared, "$defs": parts}


def _key(part: Any) -> str | None:  # noqa: ANN401 any JSON value
    """Name of a part that is worth sharing, else None."""
    # A table of keys may have a key `type` of its own.
    if not isinstance(part, dict) or not (isinstance(part.get("type"), str) or isinstance(part.get("anyOf"), list)):
        return None
    text = json.dumps(part, sort_keys=True)
    return None if len(text) < _SHORT else hashlib.sha256(text.encode()).hexdigest()[:12]


def _count(part: Any, counts: dict[str, int]) -> None:  # noqa: ANN401 any JSON value
    key = _key(part)
    if key is not None:
        counts[key] = counts.get(key, 0) + 1
        if counts[key] > 1:
            return
    for below in _below(part):
        _count(below, counts)


def _below(part: Any) -> list[Any]:  # noqa: ANN401 any JSON value
    return list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []


def _shared(part: Any, counts: dict[str, int], parts: dict[str, Any], *, outermost: bool = False) -> Any:  # noqa: ANN401
    key = None if outermost else _key(part)
    if key is not None and counts[key] > 1:
        if key not in parts:
            parts[key] = {}
            parts[key] = _inside(part, counts, parts)
        return {"$ref": f"#/$defs/{key}"}
    return _inside(part, counts, parts)


def _inside(part: Any, counts: dict[str, int], parts: dict[str, Any]) -> Any:  # noqa: ANN401 any JSON value
    if isinstance(part, dict):
        return {name: _shared(value, counts, parts) for name, value in part.items()}
    return [_shared(value, counts, parts) for value in part] if isinstance(part, list) else part

"""Models of BokehJS, the library that draws charts in a browser, and their JSON encoding.

Bokeh's own classes check and copy every property, which takes seconds for a page. A page needs only the JSON, so Bokeh
itself is never imported; the tests check their pages with it.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

DATA = frozenset({"x", "y", "x0", "x1", "y1", "y2", "left", "right", "xs", "ys", "text"})
"""Properties of glyphs whose strings name columns of the source."""

VECTOR_GLYPHS = frozenset({"HBar", "MultiLine", "Rect", "Scatter", "Text", "VStrip"})
"""Glyphs whose style may differ by row of the source; their values are marked as such."""

Place = Literal["left", "right", "above", "below", "center"]


class Model:
    """Model of BokehJS: its class, and the attributes that differ from the library's defaults.

    Args:
        kind: name of the class.
        attributes: attributes by their names in the library.
    """

    def __init__(self, kind: str, /, **attributes: object) -> None:
        self.kind = kind
        self.attributes = attributes

    def update(self, **attributes: object) -> None:
        """Sets attributes."""
        self.attributes |= attributes


@dataclass(frozen=True, slots=True)
class Field:
    """Column of a source as a glyph's property, possibly mapped to a colour."""

    column: str
    transform: Model | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """Constant value for all rows of a source, in place of a column."""

    value: object


class Source(Model):
    """Columns that glyphs draw: arrays of numbers, or lists.

    Args:
        columns: columns by name.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.data = dict(columns)
        super().__init__("ColumnDataSource", data=self.data)


class Renderer(Model):
    """Glyph drawn from a source.

    Args:
        source: data of the glyph.
        kind: kind of glyph.
        look: properties of the glyph; those in `DATA` name columns.
    """

    def __init__(self, source: Source, kind: str, look: Mapping[str, Any]) -> None:
        self.source = source
        self.glyph = Model(kind, **{name: _property(kind, name, value) for name, value in look.items()})
        super().__init__("GlyphRenderer", data_source=source, glyph=self.glyph)


def _property(kind: str, name: str, value: object) -> object:
    if isinstance(value, Field):
        return value
    if name in DATA and isinstance(value, str):
        return Field(value)
    return Value(value) if name in DATA or kind in VECTOR_GLYPHS else value


Range = Model | tuple[float, float] | None
"""Range of an axis: two ends, or None for that of the data."""


class Figure(Model):
    """Chart: two axes with grids, tools, and renderers.

    Args:
        x_range: range of the x axis.
        y_range: range of the y axis.
        logarithmic: logarithmic axes: "", "x", "y" or "xy".
        tools: tools in the order of the toolbar.
        height: height in pixels.
        attributes: further attributes of the model.
    """

    def __init__(
        self,
        *,
        x_range: Range = None,
        y_range: Range = None,
        logarithmic: str = "",
        tools: Sequence[Model] = (),
        height: int = 600,
        **attributes: object,
    ) -> None:
        ranges = [_range(x_range), _range(y_range)]
        kinds = [_scale(one, logarithmic=name in logarithmic) for one, name in zip(ranges, "xy", strict=True)]
        self.x_axis, self.y_axis = (Model(f"{kind}Axis") for kind in kinds)
        self.grids = [Model("Grid", axis=self.x_axis), Model("Grid", axis=self.y_axis, dimension=1)]
        self.height, self.x_range = height, ranges[0]
        self.tools = list(tools)
        self.toolbar = Model("Toolbar", tools=self.tools)
        self.renderers: list[Renderer] = []
        self.places: dict[Place, list[Model]] = {
            "left": [self.y_axis],
            "below": [self.x_axis],
            "center": [*self.grids],
        }
        super().__init__(
            "Figure",
            height=height,
            x_range=self.x_range,
            y_range=ranges[1],
            x_scale=Model(f"{kinds[0]}Scale"),
            y_scale=Model(f"{kinds[1]}Scale"),
            toolbar=self.toolbar,
            renderers=self.renderers,
            **self.places,
            **attributes,
        )

    def grow(self, pixels: int) -> None:
        """Makes the chart taller."""
        self.height += pixels
        self.update(height=self.height)

    def add_layout(self, model: Model, place: Place = "center") -> None:
        """Adds an annotation, a legend or a colour bar."""
        if place not in self.places:
            self.places[place] = self.attributes[place] = []
        self.places[place].append(model)


def _range(wanted: Range) -> Model:
    match wanted:
        case None:
            return Model("DataRange1d")
        case Model():
            return wanted
        case (start, end):
            return Model("Range1d", start=start, end=end)


def _scale(wanted: Model, *, logarithmic: bool) -> str:
    if wanted.kind == "FactorRange":
        return "Categorical"
    return "Log" if logarithmic else "Linear"


def document(roots: Mapping[str, Model]) -> tuple[str, dict[str, str]]:
    """Encodes charts as one document, so that they share ranges; reproducible.

    Args:
        roots: charts by name.

    Returns:
        JSON for `Bokeh.embed.embed_items`, with `documents` and `items`, and the element id of each chart.
    """
    encoder = _Encoder()
    config = encoder.model(Model("DocumentConfig", notifications=Model("Notifications")))
    models = {name: encoder.model(root) for name, root in roots.items()}
    elements = {name: f"chart-{name}" for name in roots}
    places = {models[name]["id"]: element for name, element in elements.items()}
    report = {"version": version("bokeh"), "title": "Skybraid", "config": config, "roots": list(models.values())}
    items = [{"docid": "report", "roots": places, "root_ids": list(places)}]
    text = json.dumps({"documents": {"report": report}, "items": items}, separators=(",", ":"), allow_nan=False)
    return text, elements


class _Encoder:
    """Encodes each model at its first occurrence; later ones refer to it by number."""

    def __init__(self) -> None:
        self._numbers: dict[int, str] = {}

    def model(self, model: Model) -> dict[str, Any]:
        """Encodes a model and those it refers to."""
        known = self._numbers.get(id(model))
        if known is not None:
            return {"id": known}
        number = self._numbers[id(model)] = f"m{len(self._numbers)}"
        attributes = {name: self._value(value) for name, value in model.attributes.items()}
        return {"type": "object", "name": model.kind, "id": number, "attributes": attributes}

    def _value(self, value: object) -> object:
        match value:
            case str() | bool() | int() | None:
                return value
            case float():
                return float(value) if math.isfinite(value) else {"type": "number", "value": _NOT_FINITE[str(value)]}
            case Model():
                return self.model(value)
            case Field():
                mapped = {} if value.transform is None else {"transform": self.model(value.transform)}
                return {"type": "field", "field": value.column} | mapped
            case np.ndarray():
                return _array(value)
            case Value():
                return {"type": "value", "value": self._value(value.value)}
            case Mapping():
                return {"type": "map", "entries": [[key, self._value(part)] for key, part in value.items()]}
            case list() | tuple():
                return [self._value(part) for part in value]
            case _:
                raise TypeError(f"{value!r}: found {type(value)}, expected what a page can draw")


_NOT_FINITE = {"nan": "nan", "inf": "+inf", "-inf": "-inf"}


def _array(values: np.ndarray[Any, Any]) -> object:
    if values.dtype not in (np.float32, np.float64):
        return values.tolist()
    packed = base64.b64encode(gzip.compress(values.tobytes(), compresslevel=6, mtime=1)).decode()
    return {
        "type": "ndarray",
        "array": {"type": "bytes", "data": packed},
        "shape": list(values.shape),
        "dtype": values.dtype.name,
        "order": "little",
    }


def library() -> str:
    """Returns the script of BokehJS from the package Bokeh.

    Raises:
        ModuleNotFoundError: Bokeh is not installed.
    """
    found = find_spec("bokeh")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("No module named 'bokeh'", name="bokeh")
    return (Path(found.origin).parent / "server" / "static" / "js" / "bokeh.min.js").read_text(encoding="utf-8")

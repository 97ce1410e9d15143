"""Axes of a campaign: the table `[sweep]` of a scenario, and axes given on the command line.

    [sweep]
    seeds = "1..20"
    vary."flow.video.transport.scheduler" = ["low_rtt", "blest"]
    vary."path.lte.uplink.rate" = { from = "5Mbit/s", to = "50Mbit/s", steps = 5 }
    zip = [{ "path.leo.uplink.rate" = ["5Mbit/s", "8Mbit/s"], "path.leo.downlink.rate" = ["50Mbit/s", "80Mbit/s"] }]
    [[sweep.case]]
    name = "lossless"
    set = { "path.leo.uplink.loss" = [] }

Keys of `vary`, tables of `zip` and the list of cases are axes; their product gives the points. `docs/campaigns.md`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from skybraid.execute.names import all_of
from skybraid.execute.ranges import of_table
from skybraid.model.errors import ScenarioError
from skybraid.model.keys import Keys
from skybraid.model.provenance import seeds_from
from skybraid.model.scenario import Scenario, toml_key, toml_value

if TYPE_CHECKING:
    from skybraid.model.scenario import Overrides

CASE = "case"
"""Column of the named cases."""

ALL = "all"
"""Stands for every name that the registry has for a key."""

MAX_POINTS = 1_000_000
"""More points than anybody can want."""

_CONTAINERS = ("path", "flow", "node", "link", "event", "route", "outages")


@runtime_checkable
class _Scalar(Protocol):
    """A number of NumPy."""

    def item(self) -> object:
        """Returns the number as one of Python."""


Label = str | int | float | bool
"""Value in an axis' column: a number or a truth as it is, everything else as text."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of a sweep.

    Attributes:
        name: the swept key; several keys that are varied together, joined by `+`; or `case`.
        keys: its columns in the tables: one for each swept key, or `case`.
        labels: values of these columns, for each step of the axis.
        sets: replaced keys with their values as TOML, for each step of the axis.
    """

    name: str
    keys: tuple[str, ...]
    labels: tuple[tuple[Label, ...], ...]
    sets: tuple[tuple[tuple[str, str], ...], ...]

    @property
    def values(self) -> list[Label]:
        """Values of the axis' first column, step by step."""
        return [labels[0] for labels in self.labels]

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Axis:
        """Reads the output of `to_dict`."""
        return cls(
            str(values["name"]),
            tuple(values["keys"]),
            tuple(tuple(labels) for labels in values["labels"]),
            tuple(tuple((str(key), str(value)) for key, value in pairs) for pairs in values["sets"]),
        )


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of the axes' steps.

    Attributes:
        labels: values of the axes' columns, in their order.
        sets: the keys that are replaced, with their values as TOML.
    """

    labels: tuple[Label, ...]
    sets: tuple[tuple[str, str], ...]

    def words(self, columns: Sequence[str]) -> str:
        """The point as "path.lte.uplink.rate=5Mbit/s case=lossless"."""
        return " ".join(f"{column}={label}" for column, label in zip(columns, self.labels, strict=True))


@dataclass(frozen=True, slots=True)
class Sweep:
    """Axes and seeds.

    Attributes:
        axes: varied keys; none for a campaign over seeds alone.
        seeds: roots of the random streams; None for the scenario's own.
        notes: algorithms that `all` has left out, and the reasons.
    """

    axes: tuple[Axis, ...] = ()
    seeds: tuple[int, ...] | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The axes' columns in the tables."""
        return tuple(key for axis in self.axes for key in axis.keys)

    def __len__(self) -> int:
        return math.prod(len(axis.labels) for axis in self.axes)

    def points(self) -> Iterator[Point]:
        """The product of the axes; the last one varies fastest."""
        for steps in product(*(range(len(axis.labels)) for axis in self.axes)):
            chosen = list(zip(self.axes, steps, strict=True))
            yield Point(
                tuple(label for axis, step in chosen for label in axis.labels[step]),
                tuple(pair for axis, step in chosen for pair in axis.sets[step]),
            )


def read(text: str, file: str, vary: Sequence[tuple[str, object]] = (), overrides: Overrides = ()) -> Sweep:
    """Returns the sweep of a scenario, with further axes.

    Args:
        text: the scenario as TOML; if it has no `[sweep]`, only the axes of `vary`.
        file: file name for errors.
        vary: keys with a list of values, a range as a table, or one value; they replace the same key of `[sweep]`.
        overrides: keys replaced at every point.

    Raises:
        ScenarioError: the text is not TOML, or the sweep is invalid.
    """
    try:
        table = tomllib.loads(text).get("sweep", {})
    except tomllib.TOMLDecodeError as error:
        # The native parser points at the column.
        Scenario(text, file)
        raise ScenarioError(f"{file}: not TOML: {error}") from error
    if not isinstance(table, dict):
        raise ScenarioError(f"{file}: sweep: found {table!r}, expected a table")
    keys = Keys(table, f"{file}: sweep")
    seeds = _seeds(keys)
    varied = dict(_flat(keys.take("vary", dict, {}), f"{file}: sweep.vary"))
    varied |= {key: _plain(value) for key, value in vary}
    notes: list[str] = []
    for key, value in varied.items():
        if value in (ALL, [ALL]):
            varied[key], left_out = all_of(key, text, file, overrides, f"{file}: sweep.vary")
            notes += left_out
    axes = [_axis(key, value, f"{file}: sweep.vary") for key, value in varied.items()]
    axes += [_zip(dict(zipped), f"{file}: sweep.zip[{place}]") for place, zipped in enumerate(keys.list("zip"))]
    axes = _cases(keys) + axes
    keys.done()
    columns = [key for axis in axes for key in axis.keys]
    twice = next((key for key in columns if columns.count(key) > 1), None)
    if twice is not None:
        raise ScenarioError(f"{file}: sweep: {twice}: found on two axes, expected on one")
    sweep = Sweep(tuple(axes), seeds, tuple(notes))
    if len(sweep) > MAX_POINTS:
        raise ScenarioError(f"{file}: sweep: found {len(sweep)} points, expected at most {MAX_POINTS}")
    return sweep


def without(text: str) -> dict[str, Any]:
    """Returns the scenario's tables without `[sweep]`: the part that its runs have in common."""
    tables = tomllib.loads(text)
    tables.pop("sweep", None)
    return tables


def values_of(text: str) -> object:
    """Parses the values of `--vary KEY=`: TOML, or texts separated by commas.

    `a,b` and `["a", "b"]` are two values, `{ from = "1Mbit/s", to = "9Mbit/s", steps = 5 }` is a range.
    """
    if text[:1] in ("[", "{"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise ScenarioError(f"--vary: found {text}, expected TOML: {error}") from error
    return [_scalar(part.strip()) for part in text.split(",") if part.strip()]


def _plain(value: object) -> object:
    """Returns any sequence of values as a list, and NumPy's numbers as those of Python."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    return [item.item() if isinstance(item, _Scalar) else item for item in value]


def _scalar(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _seeds(keys: Keys) -> tuple[int, ...] | None:
    value: object = keys.take("seeds", (str, list), None)
    if value is None:
        return None
    if isinstance(value, str):
        return tuple(seeds_from(value, f"{keys.where}: seeds"))
    return tuple(seeds_from(cast("list[int]", value), f"{keys.where}: seeds"))


def _flat(table: Mapping[str, Any], where: str, above: str = "") -> Iterator[tuple[str, object]]:
    """Flattens nested tables to dotted keys; quoted keys with dots are kept."""
    for name, value in table.items():
        quoted = name if not above and "." in name else toml_key(name)
        key = f"{above}.{quoted}" if above else quoted
        if isinstance(value, dict) and not any(
            isinstance(value.get(end), str | int | float) for end in ("from", "to", "steps", "by")
        ):
            if not value:
                raise ScenarioError(f"{where}: {key}: found an empty table, expected a list of values or a range")
            yield from _flat(value, where, key)
        else:
            yield key, value


def _axis(key: str, value: object, where: str) -> Axis:
    values = of_table(value, f"{where}: {key}") if isinstance(value, dict) else value
    if not isinstance(values, list):
        values = [values]
    if not values:
        raise ScenarioError(f"{where}: {key}: found no value, expected a list of values or a range")
    return _of_keys({key: values}, where)


def _zip(table: dict[str, object], where: str) -> Axis:
    if not table:
        raise ScenarioError(f"{where}: found an empty table, expected keys with lists of values")
    lists: dict[str, list[object]] = {}
    for key, value in table.items():
        values = of_table(value, f"{where}: {key}") if isinstance(value, dict) else value
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"{where}: {key}: found {value!r}, expected a list of values or a range")
        lists[key] = values
    lengths = {len(values) for values in lists.values()}
    if len(lengths) > 1:
        found = ", ".join(f"{len(values)} of {key}" for key, values in lists.items())
        raise ScenarioError(f"{where}: found {found}, expected equally many values of each key")
    return _of_keys(lists, where)


def _of_keys(lists: Mapping[str, list[object]], where: str) -> Axis:
    for key, values in lists.items():
        if key == "sweep" or key.startswith("sweep."):
            raise ScenarioError(f"{where}: {key}: found the sweep itself, expected a key of the scenario")
        if key == "seed":
            raise ScenarioError(f'{where}: seed: found a swept key, expected `seeds = "1..20"` in its place')
        try:
            written = [toml_value(value) for value in values]
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {key}: {error}") from error
        twice = next((label for label in written if written.count(label) > 1), None)
        if twice is not None and len(lists) == 1:
            raise ScenarioError(f"{where}: {key}: found {twice} twice, expected each value once")
    steps = list(zip(*lists.values(), strict=True))
    kinds = [_kind(values) for values in lists.values()]
    labels = tuple(tuple(_label(value, kind) for value, kind in zip(step, kinds, strict=True)) for step in steps)
    sets = tuple(tuple((key, toml_value(value)) for key, value in zip(lists, step, strict=True)) for step in steps)
    return Axis(" + ".join(lists), tuple(lists), labels, sets)


def _cases(keys: Keys) -> list[Axis]:
    labels, sets = [], []
    for place, table in enumerate(keys.list(CASE)):
        case = Keys(table, f"{keys.where}.case[{place}]")
        name: str = case.take("name", str)
        replaced: dict[str, Any] = case.take("set", dict, {})
        case.done()
        if (name,) in labels:
            case.refuse("name", f"{name} twice", "another name")
        for key, value in replaced.items():
            if key in _CONTAINERS and isinstance(value, dict):
                case.refuse(
                    "set", f"the table `{key}`", f'keys in quotes, such as "{key}.{next(iter(value), "NAME")}.…"'
                )
        labels.append((name,))
        sets.append(tuple((key, toml_value(value)) for key, value in replaced.items()))
    return [Axis(CASE, (CASE,), tuple(labels), tuple(sets))] if labels else []


def _kind(values: Sequence[object]) -> type[Label]:
    """Returns the type of an axis' column."""
    if all(isinstance(value, bool) for value in values):
        return bool
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return int
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return float
    return str


def _label(value: object, kind: type[Label]) -> Label:
    if kind is str:
        return value if isinstance(value, str) else toml_value(value)
    return float(value) if kind is float and isinstance(value, int) else cast("Label", value)

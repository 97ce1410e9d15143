"""Campaigns read from their datasets: tables, points, and replays of single runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from skybraid.execute import overview
from skybraid.execute.axes import Axis, Point
from skybraid.execute.batches import Base
from skybraid.execute.rows import FAILED, FLOWS, RUNS, schemas
from skybraid.execute.runs import run
from skybraid.execute.store import TABLES, Store
from skybraid.model.errors import MissingTableError, ResultError
from skybraid.model.folder import MANIFEST
from skybraid.model.heavy import np, pl

if TYPE_CHECKING:
    from xarray import Dataset

    from skybraid.execute.until import Answer
    from skybraid.model.results import Results
    from skybraid.model.scenario import Scenario

FORMAT = 1
"""Of `campaign.json`."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of `campaign.json`.

    Attributes:
        name: the scenario's name.
        base: the scenario with all that the points have in common.
        version: version of Skybraid.
        axes: varied keys.
        points: combinations of their values, by the point's number in the tables.
        digests: digest of each point's inputs.
        paths: names of the paths of all points.
        created: start time, as ISO 8601.
    """

    name: str
    base: Base
    version: str
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    digests: tuple[str, ...]
    paths: tuple[str, ...]
    created: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the axes in the tables."""
        return tuple(key for axis in self.axes for key in axis.keys)

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain values for JSON."""
        return {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "created": self.created,
            "file": self.base.file,
            "overrides": [list(pair) for pair in self.base.overrides],
            "plugins": [list(pair) for pair in self.base.plugins],
            "paths": list(self.paths),
            "axes": [axis.to_dict() for axis in self.axes],
            "points": [
                {"labels": list(point.labels), "sets": [list(pair) for pair in point.sets], "digest": digest}
                for point, digest in zip(self.points, self.digests, strict=True)
            ],
            "scenario": self.base.text,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Manifest:
        """Reads the output of `to_dict`."""
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, expected {FORMAT}")
        return cls(
            str(values["name"]),
            Base(
                str(values["scenario"]),
                str(values["file"]),
                tuple((str(key), str(value)) for key, value in values["overrides"]),
                tuple((str(file), str(text)) for file, text in values["plugins"]),
            ),
            str(values["version"]),
            tuple(Axis.from_dict(axis) for axis in values["axes"]),
            tuple(
                Point(tuple(point["labels"]), tuple((str(key), str(value)) for key, value in point["sets"]))
                for point in values["points"]
            ),
            tuple(str(point["digest"]) for point in values["points"]),
            tuple(values["paths"]),
            str(values["created"]),
        )

    @classmethod
    def of(cls, store: Store) -> Manifest | None:
        """Reads the manifest of a store; None if it has none.

        Raises:
            ResultError: the manifest is damaged.
        """
        values = store.manifest()
        if values is None:
            return None
        try:
            return cls.from_dict(values)
        except (KeyError, TypeError, ValueError) as error:
            raise ResultError(f"{store.url}/{MANIFEST}: the campaign is damaged: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Campaign:
    """Runs of a scenario over points and seeds, stored in a folder or at a URL.

    Attributes:
        url: folder of the campaign.
        manifest: contents of `campaign.json`.
        answers: answer to the `until` question for each point; empty unless the campaign was just run.
        notices: notes on the execution, for the user; empty unless the campaign was just run.
    """

    url: str
    manifest: Manifest
    _store: Store
    answers: tuple[Answer, ...] = ()
    notices: tuple[str, ...] = ()

    def __repr__(self) -> str:
        points = len(self.manifest.points)
        varied = f"; varied: {', '.join(self.columns)}" if self.columns else ""
        return f"Campaign({self.name!r}: {points} point{'s' * (points != 1)} in {self.url}{varied})"

    def _repr_html_(self) -> str:
        """Renders the summary for a notebook."""
        return f"<p>{escape(repr(self))}</p><pre>{escape(overview.text(self.summary(), self.columns))}</pre>"

    @classmethod
    def at(cls, store: Store) -> Campaign:
        """Opens the campaign in a store and checks that every part can be read.

        Raises:
            ResultError: there is no campaign, or it is damaged.
        """
        manifest = Manifest.of(store)
        if manifest is None:
            raise ResultError(f"{store.url}: found no {MANIFEST}, expected a campaign's folder")
        store.refuse_damaged()
        return cls(store.url, manifest, store)

    @property
    def name(self) -> str:
        """The scenario's name."""
        return self.manifest.name

    @property
    def scenario(self) -> str:
        """Text of the scenario, with its `[sweep]`."""
        return self.manifest.base.text

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Varied keys."""
        return self.manifest.axes

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the axes in the tables."""
        return self.manifest.columns

    @property
    def schemas(self) -> dict[str, dict[str, pl.DataType]]:
        """Columns of the tables with their types."""
        labels = self.manifest.points[0].labels if self.manifest.points else ()
        return schemas(self.columns, labels, self.manifest.paths)

    def scan(self, table: str) -> pl.LazyFrame:
        """Returns a table as a lazy frame: `runs`, `flows` or `requirements`.

        Raises:
            MissingTableError: there is no such table.
            ResultError: the folder cannot be listed.
        """
        if table not in TABLES:
            raise MissingTableError(f"table {table}: found no such table, expected one of {', '.join(sorted(TABLES))}")
        return self._store.scan(table, self.schemas[table])

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Exports the table `runs` as an Arrow stream."""
        return self.scan(RUNS).collect().__arrow_c_stream__(requested_schema)

    def points(self) -> pl.DataFrame:
        """Returns one row per point: `point`, the axes' columns, and the numbers of completed and failed runs."""
        counted = (
            self.scan(RUNS)
            .group_by("point")
            .agg(done=(pl.col("status") != FAILED).sum(), failed=(pl.col("status") == FAILED).sum())
            .collect()
        )
        schema = {name: kind for name, kind in self.schemas[RUNS].items() if name in ("point", *self.columns)}
        rows = [(place, *point.labels) for place, point in enumerate(self.manifest.points)]
        frame = pl.DataFrame(rows, schema=schema, orient="row")
        return frame.join(counted, on="point", how="left", maintain_order="left").with_columns(
            pl.col("done", "failed").fill_null(0)
        )

    def summary(self) -> pl.DataFrame:
        """Returns a row for each flow and point over all seeds; see `skybraid.execute.overview.summary`."""
        return overview.summary(self)

    def failed(self) -> pl.DataFrame:
        """Returns the rows of `runs` that failed, each with its error and its replay command."""
        return self.scan(RUNS).filter(pl.col("status") == FAILED).sort("point", "seed").collect()

    def to_xarray(self) -> Dataset:
        """Returns the table `flows` as a dataset of xarray, which must be installed.

        Its dimensions are the axes, in their order, `flow` and `seed`; keys that are varied together share a dimension
        with the name of the first key. The variables are the numeric columns of the table in its units
        (docs/campaigns.md), NaN if a run is missing, failed or has no such value. `dataset.goodput_bps.mean("seed")` is
        one number per point.
        """
        import xarray

        flows = self.scan(FLOWS).collect()
        names, seeds = (flows[column].unique().sort().to_list() for column in ("flow", "seed"))
        dimensions = [axis.keys[0] for axis in self.axes] + ["flow", "seed"]
        coordinates: dict[str, Any] = {
            key: (axis.keys[0], [labels[place] for labels in axis.labels])
            for axis in self.axes
            for place, key in enumerate(axis.keys)
        }
        steps = [{labels: place for place, labels in enumerate(axis.labels)} for axis in self.axes]
        named = [*self.columns, "flow", "seed"]
        places = np.array(
            [
                (*_steps(row, self.axes, steps), names.index(row[-2]), seeds.index(row[-1]))
                for row in flows.select(named).iter_rows()
            ],
            dtype=np.intp,
        ).reshape(len(flows), len(dimensions))
        shape = [len(axis.labels) for axis in self.axes] + [len(names), len(seeds)]
        variables = {}
        for column in flows.drop("point", *named).select(pl.selectors.numeric()):
            grid = np.full(shape, np.nan)
            grid[tuple(places.T)] = column.cast(pl.Float64()).to_numpy()
            variables[column.name] = (dimensions, grid)
        return xarray.Dataset(variables, coordinates | {"flow": names, "seed": seeds}, {"name": self.name})

    def scenario_of(self, point: int) -> Scenario:
        """Returns the scenario of a point.

        Raises:
            ResultError: there is no such point.
        """
        if not 0 <= point < len(self.manifest.points):
            raise ResultError(f"{self.url}: found no point {point}, expected 0 to {len(self.manifest.points) - 1}")
        return self.manifest.base.scenario(self.manifest.points[point])

    def replay(
        self, key: str, *, tables: Sequence[str] | None = None, out: str | os.PathLike[str] | None = None
    ) -> Results:
        """Repeats a run, with its tables.

        Args:
            key: key of the run, or a unique prefix of it.
            tables: tables to keep, as for `skybraid.run`.
            out: folder for the result; None keeps it in memory.

        Raises:
            ResultError: no run has this key, or several have the prefix.
        """
        found = (
            self.scan(RUNS).filter(pl.col("key").str.starts_with(key)).select("key", "point", "seed").head(2).collect()
        )
        if len(found) != 1:
            seen = "no run" if found.is_empty() else "several runs"
            raise ResultError(f"{self.url}: found {seen} with the key {key}, expected one")
        _, point, seed = found.row(0)
        return run(self.scenario_of(point), seed=seed, tables=tables, out=out)


def _steps(row: Sequence[Any], axes: Sequence[Axis], steps: Sequence[Mapping[tuple[Any, ...], int]]) -> list[int]:
    """Returns the positions on the axes of a row that begins with the axes' columns."""
    found, begin = [], 0
    for axis, known in zip(axes, steps, strict=True):
        end = begin + len(axis.keys)
        found.append(known[tuple(row[begin:end])])
        begin = end
    return found


def replay_line(base: Base, point: Point, seed: int) -> str:
    """Returns the command that repeats a run, to be given in the folder where the campaign was started."""
    words = ["skybraid", "run", base.file, "--seed", str(seed)]
    for key, value in (*base.overrides, *point.sets):
        words += ["--set", f"{key}={value}"]
    for file, _ in base.plugins:
        words += ["--plugin", file]
    return shlex.join(words)

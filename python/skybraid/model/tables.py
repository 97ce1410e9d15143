"""Tables: rows from the native module into polars frames and Parquet files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.model.heavy import np, pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skybraid._core import Run

    Column = NDArray[Any] | tuple[NDArray[Any], NDArray[np.bool_]] | tuple[NDArray[Any], list[str]] | list[str]

SAMPLED = ("messages", "subflows", "links")
"""Tables that a single run keeps by default."""

ON_REQUEST = ("decisions", "packets")
"""Tables that are kept only when they are named."""

OF_VIDEO = ("frames",)
"""Tables that a single run keeps where a flow is video."""

ALL = SAMPLED + ON_REQUEST + OF_VIDEO

BATCH_ROWS = 100_000
"""Rows in flight between the native module and a Parquet file."""

ROW_GROUP_ROWS = 250_000
"""Rows in a Parquet row group; small enough to be read back piece by piece."""


def frame(columns: Mapping[str, Column], seed: int | None = None) -> pl.DataFrame:
    """Converts one batch of rows to a frame.

    Args:
        columns: equally long columns: numbers as arrays, with nulls as (numbers, which are not null); texts as lists;
            names as (codes, names), where the largest code is null.
        seed: put in front as a column `seed`, where several runs share a table.
    """
    series = [_series(name, column) for name, column in columns.items()]
    if seed is not None:
        rows = len(series[0]) if series else 0
        series.insert(0, pl.Series("seed", np.full(rows, seed, dtype=np.uint64)))
    return pl.DataFrame(series)


def frames(
    run: Run, table: str, seed: int | None = None, check: Callable[[], None] = lambda: None
) -> Iterator[pl.DataFrame]:
    """Iterates over a run's table in frames of at most `BATCH_ROWS` rows, at least one; takes the rows out of the run.

    `check` is called before each batch and may raise to stop.
    """
    empty = True
    for columns in run.batches(table, BATCH_ROWS):
        check()
        empty = False
        yield frame(columns, seed)
    if empty:
        yield frame(run.columns(table), seed)


def write(batches: Iterator[pl.DataFrame], path: Path, metadata: Mapping[str, str]) -> None:
    """Streams frames of one schema into a Parquet file with bounded memory.

    Args:
        batches: at least one frame.
        path: the file, which must not exist yet.
        metadata: put into the file's footer.

    Raises:
        OSError: the file cannot be written.
    """
    first = next(batches)

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        del columns, predicate, rows, batch_rows  # a sink asks for everything
        yield first
        yield from batches

    lazy = pl.io.plugins.register_io_source(source, schema=first.schema)
    try:
        lazy.sink_parquet(path, row_group_size=ROW_GROUP_ROWS, metadata=dict(metadata), engine="streaming")
    except pl.exceptions.ComputeError as error:
        raise _from_system(error) from error


def _from_system(error: Exception) -> Exception:
    """Recovers the operating system's error from a polars error."""
    said = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(said[1]), os.strerror(int(said[1]))) if said else error


def _series(name: str, column: Column) -> pl.Series:
    if isinstance(column, list):
        return pl.Series(name, column, dtype=pl.String)
    if not isinstance(column, tuple):
        return pl.Series(name, column)
    values, second = column
    if isinstance(second, list):
        lookup = pl.Series(name, [*second, None], dtype=pl.Enum(second))
        return lookup.gather(np.minimum(values, len(second)).astype(np.uint32))
    return pl.Series(name, values).set(pl.Series(~second), None)

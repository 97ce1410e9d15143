"""Rows from the native module into frames and files."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from skybraid.model import tables


def test_what_is_not_present_becomes_null_and_codes_become_names() -> None:
    present = np.array([True, False, True])
    frame = tables.frame(
        {
            "flow": (np.array([1, 0, 1], dtype=np.uint8), ["video", "control"]),
            "path": (np.array([0, 255, 1], dtype=np.uint8), ["lte", "leo"]),
            "sent_ns": np.array([-1, 0, 1], dtype=np.int64),
            "delivered_ns": (np.array([5, 0, 7], dtype=np.int64), present),
            "within_deadline": (np.array([True, False, False]), present),
            "missing": ["3 7-9", "", "1"],
        }
    )
    assert frame["flow"].to_list() == ["control", "video", "control"]
    assert frame["flow"].dtype == pl.Enum(["video", "control"])
    assert frame["path"].to_list() == ["lte", None, "leo"]
    assert frame["sent_ns"].to_list() == [-1, 0, 1]
    assert frame["delivered_ns"].to_list() == [5, None, 7]
    assert frame["within_deadline"].to_list() == [True, None, False]
    assert frame["missing"].to_list() == ["3 7-9", "", "1"]


def test_a_seed_comes_first_where_runs_share_a_table() -> None:
    frame = tables.frame({"id": np.array([4, 5], dtype=np.uint32)}, seed=9)
    assert frame.columns == ["seed", "id"]
    assert frame["seed"].to_list() == [9, 9]


def batches(rows: int, step: int) -> Iterator[pl.DataFrame]:
    for first in range(0, rows, step):
        ids = np.arange(first, min(first + step, rows), dtype=np.uint32)
        yield tables.frame({"id": ids, "path": ((ids % 2).astype(np.uint8), ["lte", "leo"])})


def test_the_file_is_the_same_byte_for_byte_whatever_the_batches(tmp_path: Path) -> None:
    digests = set()
    for step in (1_000, 7_777, 600_000):
        file = tmp_path / f"{step}.parquet"
        tables.write(batches(600_000, step), file, {"skybraid": "here"})
        digests.add(hashlib.sha256(file.read_bytes()).hexdigest())
        assert pl.read_parquet_metadata(file)["skybraid"] == "here"
        assert pl.read_parquet(file)["id"].to_list() == list(range(600_000))
    assert len(digests) == 1


def test_what_stops_the_rows_comes_out_as_it_is(tmp_path: Path) -> None:
    def broken() -> Iterator[pl.DataFrame]:
        yield from batches(10, 5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tables.write(broken(), tmp_path / "table.parquet", {})


def test_a_path_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        tables.write(batches(10, 5), tmp_path / "nowhere" / "table.parquet", {})

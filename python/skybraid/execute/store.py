"""Dataset of a campaign: `campaign.json` and Parquet parts in a local folder or at any URL of fsspec.

A part has three files of one name, written atomically: `flows/` and `requirements/` first, `runs/` last. A part is
valid once its file in `runs/` exists, so an interrupted campaign leaves only complete runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skybraid.execute.rows import FLOWS, REQUIREMENTS, RUNS
from skybraid.model.errors import ResultError
from skybraid.model.folder import MANIFEST, flush, make_folder
from skybraid.model.heavy import fsspec, pl

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

if sys.platform != "win32":
    import fcntl

TABLES = (FLOWS, REQUIREMENTS, RUNS)
"""The tables, in the order in which their parts are written."""

_LOCK = ".lock"
_REMOTE_LOCK = "lock.json"
_PARTIAL = ".partial"
_DAMAGED = ".damaged"
_PARQUET, _MIN_PARQUET = b"PAR1", 12
_STALE_S = 120.0
_BEAT_S = 20.0
_PART_SHARE, _MAX_PART_S = 1 / 60, 30.0

# These put an object whole or not at all; elsewhere a file is written aside and moved.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"}


@dataclass(slots=True)
class Store:
    """Files of a dataset: a campaign, or the finished runs of studies.

    Attributes:
        url: the folder as the user gave it.
        tables: names of its tables in the order of writing; a part is valid once its last file exists.
        noun: name of the store in errors.
    """

    url: str
    _fs: AbstractFileSystem = field(repr=False)
    _root: str = field(repr=False)
    tables: tuple[str, ...] = TABLES
    noun: str = "the campaign"
    _session: str = field(default_factory=lambda: f"{int(time.time()):010x}-{os.urandom(3).hex()}", repr=False)
    _parts: int = field(default=0, repr=False)

    @classmethod
    def at(
        cls,
        url: str | os.PathLike[str],
        options: Mapping[str, Any] | None = None,
        tables: tuple[str, ...] = TABLES,
        noun: str = "the campaign",
    ) -> Store:
        """Opens the store at a path or URL.

        Args:
            url: a path, or a URL such as s3://bucket/folder.
            options: fsspec's options for this kind of storage.
            tables: names of its tables in the order of writing.
            noun: name of the store in errors.

        Raises:
            ResultError: the kind of URL is unknown, or its package is not installed.
        """
        text = os.fspath(url).rstrip("/")
        try:
            fs, root = fsspec.core.url_to_fs(text, **(options or {}))
        except (ValueError, ImportError) as error:
            hint = "; install skybraid[s3]" if text.startswith("s3") else ""
            raise ResultError(f"{text}: cannot open {noun}: {error}{hint}") from error
        return cls(text, fs, root, tables, noun)

    @property
    def local(self) -> bool:
        """Whether the store is in a local folder."""
        protocol = self._fs.protocol
        return "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def place(self, name: str) -> str:
        """Returns the path of a file on its file system."""
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes | None:
        """Returns the contents of a file, or None if it does not exist.

        Raises:
            ResultError: the file cannot be read.
        """
        with self._plain_errors("read"):
            try:
                data: bytes = self._fs.cat_file(self.place(name))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return data

    def write(self, name: str, data: bytes) -> None:
        """Writes a file atomically.

        Raises:
            ResultError: the file cannot be written.
        """
        place = self.place(name)
        with self._plain_errors("write"):
            protocol = self._fs.protocol
            kinds = {protocol} if isinstance(protocol, str) else set(protocol)
            if kinds & _OBJECT_STORES:
                self._fs.pipe_file(place, data)
                return
            folder, _, file = place.rpartition("/")
            if self.local:
                make_folder(Path(folder))
            else:
                self._fs.makedirs(folder, exist_ok=True)
            aside = f"{folder}/.{file}.{self._session}{_PARTIAL}"
            try:
                if self.local:
                    with open(aside, "wb") as opened:  # noqa: PTH123 the path is fsspec's
                        opened.write(data)
                        opened.flush()
                        os.fsync(opened.fileno())
                    os.replace(aside, place)  # noqa: PTH105
                    flush(Path(folder))
                else:
                    self._fs.pipe_file(aside, data)
                    self._fs.mv(aside, place)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._fs.rm_file(aside)
                raise

    def remove(self, name: str) -> None:
        """Removes a file if it exists."""
        with self._plain_errors("write"), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self.place(name))

    def names(self, folder: str) -> list[str]:
        """Returns the sorted names of a folder's files; empty if the folder does not exist."""
        with self._plain_errors("read"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self.place(folder), detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(str(place).rpartition("/")[2] for place in found)

    def manifest(self) -> dict[str, Any] | None:
        """Returns the contents of `campaign.json`, or None if it does not exist.

        Raises:
            ResultError: the file is damaged.
        """
        data = self.read(MANIFEST)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except ValueError as error:
            raise ResultError(f"{self.url}/{MANIFEST}: the campaign is damaged: {error}") from error
        if not isinstance(found, dict):
            raise ResultError(f"{self.url}/{MANIFEST}: the campaign is damaged: expected a JSON object")
        return found

    def write_manifest(self, values: Mapping[str, Any]) -> None:
        """Writes `campaign.json`."""
        self.write(MANIFEST, (json.dumps(values, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())

    def is_empty(self) -> bool:
        """Whether the store is empty except for lock files."""
        return all(name in (_LOCK, _REMOTE_LOCK) or name.endswith(_PARTIAL) for name in self.names(""))

    def parts(self) -> list[str]:
        """Returns the names of the valid parts in the order of writing."""
        return [name for name in self.names(self.tables[-1]) if name.startswith("part-") and name.endswith(".parquet")]

    def write_part(self, frames: Mapping[str, pl.DataFrame], name: str | None = None) -> None:
        """Writes the next part, or replaces the part `name`; `runs/` is written last.

        Raises:
            ResultError: the part cannot be written; it is not valid then.
        """
        if name is None:
            self._parts += 1
            name = f"part-{self._session}-{self._parts:05}.parquet"
        for table in self.tables:
            if table not in frames:
                continue
            file = BytesIO()
            frames[table].write_parquet(file, compression="zstd", statistics=True)
            self.write(f"{table}/{name}", file.getvalue())

    def read_part(self, table: str, name: str, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
        """Returns the rows of a part.

        Raises:
            ResultError: the part cannot be read.
        """
        with self._plain_errors("read"):
            data: bytes = self._fs.cat_file(self.place(f"{table}/{name}"))
        return self._part(data, schema).collect()

    def remove_part(self, name: str) -> None:
        """Removes a part, its file in `runs/` first."""
        for table in reversed(self.tables):
            self.remove(f"{table}/{name}")

    def damaged(self) -> dict[str, str]:
        """Returns the parts that cannot be read, each with the damaged file and the error.

        At a URL, only `runs/` is checked, since reading a file means downloading it.

        Raises:
            ResultError: the folder cannot be listed.
        """
        found: dict[str, str] = {}
        for name in self.parts():
            for table in self.tables if self.local else self.tables[-1:]:
                problem = self._fault(f"{table}/{name}")
                if problem is not None:
                    found[name] = f"{table}/{name}: {problem}"
                    break
        return found

    def _fault(self, name: str) -> str | None:
        """Returns the error of a damaged Parquet file; None if it is intact."""
        data = self.read(name)
        if data is None:
            return "the file is missing"
        if len(data) < _MIN_PARQUET or data[:4] != _PARQUET or data[-4:] != _PARQUET:
            return f"its {len(data)} bytes are no whole Parquet file"
        try:
            pl.read_parquet(BytesIO(data))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        return None

    def refuse_damaged(self) -> None:
        """Raises if a part is damaged.

        Raises:
            ResultError: a part cannot be read; the message names it and the remedy.
        """
        found = self.damaged()
        if found:
            first = next(iter(found.values()))
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            raise ResultError(
                f"{self.url}: the campaign is damaged: {first}{more}; `skybraid sweep` with this folder as --out sets "
                "such parts aside and makes their runs again"
            )

    def set_damaged_aside(self) -> list[str]:
        """Renames the files of damaged parts, so that their runs are made again; returns notes on them.

        Raises:
            ResultError: a file cannot be renamed.
        """
        notes = []
        for name, fault in self.damaged().items():
            with self._plain_errors("write"):
                # `runs/` first: without it, a part does not count.
                for table in reversed(self.tables):
                    place = self.place(f"{table}/{name}")
                    if self._fs.exists(place):
                        self._fs.mv(place, place + _DAMAGED)
            notes.append(f"{fault}: the part is set aside as {name}{_DAMAGED}, and its runs are made again")
        return notes

    def sweep_up(self) -> None:
        """Removes the leftovers of killed processes: parts without a file in `runs/`, and incomplete files."""
        counted = set(self.parts())
        for table in self.tables:
            for name in self.names(table):
                if name not in counted and not name.endswith(_DAMAGED):
                    self.remove(f"{table}/{name}")
        for name in self.names(""):
            if name.endswith(_PARTIAL):
                self.remove(name)

    def scan(self, table: str, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
        """Returns a table as a lazy frame over its valid parts.

        Raises:
            ResultError: the folder cannot be listed.
        """
        places = [self.place(f"{table}/{name}") for name in self.parts()]
        if not places:
            return pl.LazyFrame(schema=dict(schema))
        if self.local:
            return pl.scan_parquet(
                places, schema=dict(schema), missing_columns="insert", extra_columns="ignore", glob=False
            )

        def source(
            columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch_rows: int | None
        ) -> Iterator[pl.DataFrame]:
            for place in places:
                with self._plain_errors("read"):
                    data: bytes = self._fs.cat_file(place)
                lazy = self._part(data, schema)
                if predicate is not None:
                    lazy = lazy.filter(predicate)
                if columns is not None:
                    lazy = lazy.select(columns)
                frame = lazy.collect() if rows is None else lazy.head(rows).collect()
                rows = None if rows is None else rows - len(frame)
                yield frame
                if rows == 0:
                    return

        return pl.io.plugins.register_io_source(source, schema=dict(schema))

    @staticmethod
    def _part(data: bytes, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
        return pl.scan_parquet(BytesIO(data), schema=dict(schema), missing_columns="insert", extra_columns="ignore")

    @contextlib.contextmanager
    def _plain_errors(self, doing: str) -> Iterator[None]:
        """Converts the exceptions of storage libraries to `ResultError`."""
        try:
            yield
        except ResultError:
            raise
        except OSError as error:
            raise ResultError(f"{self.url}: cannot {doing} {self.noun}: {error.strerror or error}") from error
        except Exception as error:
            module = type(error).__module__.partition(".")[0]
            if module in ("botocore", "aiobotocore", "aiohttp", "gcsfs", "adlfs", "azure", "requests", "paramiko"):
                raise ResultError(f"{self.url}: cannot {doing} {self.noun}: {error}") from error
            raise


@dataclass(slots=True)
class Cadence:
    """Schedule of writing parts: the interval is a sixtieth of the time so far, from `first_s` to 30 s.

    Attributes:
        first_s: minimum time between two parts in s.
    """

    first_s: float = 1.0
    _began: float = field(default_factory=time.monotonic, repr=False)
    _written: float = field(default_factory=time.monotonic, repr=False)

    @property
    def is_due(self) -> bool:
        """Whether the next part is due."""
        now = time.monotonic()
        return now - self._written >= min(max(self.first_s, (now - self._began) * _PART_SHARE), _MAX_PART_S)

    def on_written(self) -> None:
        """Records that a part was written."""
        self._written = time.monotonic()


class Lock:
    """Lock that keeps a second process from writing the same campaign.

    In a local folder it is a file lock, which the kernel releases when the process dies. At a URL it is a file that
    names the holder and is rewritten periodically; the lock has expired if the file is older than two minutes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._descriptor: int | None = None
        self._renewed = 0.0
        self._mine = {"host": socket.gethostname(), "pid": os.getpid(), "session": os.urandom(8).hex()}

    def __enter__(self) -> Lock:
        if self._store.local:
            self._hold_local()
        else:
            self._hold_remote()
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        elif self._renewed:
            with contextlib.suppress(ResultError):
                self._store.remove(_REMOTE_LOCK)

    def beat(self) -> None:
        """Renews the lock; must be called periodically."""
        if self._renewed and time.time() - self._renewed > _BEAT_S:
            self._write()

    def _hold_local(self) -> None:
        place = self._store.place(_LOCK)
        try:
            make_folder(Path(self._store.place("")))
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            words = f"{self._store.url}: cannot write the campaign: {error.strerror or error}"
            raise ResultError(words) from error
        if sys.platform != "win32":
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise _busy(self._store.url, "another process") from error
        self._descriptor = descriptor

    def _hold_remote(self) -> None:
        holder = self._holder()
        if holder is not None and time.time() - float(holder.get("time", 0.0)) < _STALE_S and not _dead(holder):
            raise _busy(self._store.url, f"process {holder.get('pid')} on {holder.get('host')}")
        self._write()
        # Of two that wrote at the same time, the one that finds the other's words gives way.
        holder = self._holder()
        if holder is not None and holder.get("session") != self._mine["session"]:
            self._renewed = 0.0
            raise _busy(self._store.url, f"process {holder.get('pid')} on {holder.get('host')}")

    def _holder(self) -> dict[str, Any] | None:
        data = self._store.read(_REMOTE_LOCK)
        try:
            found = None if data is None else json.loads(data)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _write(self) -> None:
        self._renewed = time.time()
        self._store.write(_REMOTE_LOCK, json.dumps(self._mine | {"time": self._renewed}).encode())


def _dead(holder: Mapping[str, Any]) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    if holder.get("host") != socket.gethostname() or sys.platform == "win32":
        return False
    try:
        os.kill(int(holder.get("pid", 0)), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _busy(url: str, holder: str) -> ResultError:
    return ResultError(f"{url}: found {holder} at work on this campaign, expected one at a time; nothing was changed")

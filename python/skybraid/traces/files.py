"""Contents of files: decompressed, and as text with its encoding recognised."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import re
import stat
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from skybraid.traces.series import TraceError

MAX_BYTES = 1_000_000_000
"""Maximum size of a file in bytes, decompressed."""

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Suffixes of compressed files."""

_ZSTD, _ZIP = b"\x28\xb5\x2f\xfd", b"PK\x03\x04"
_DAMAGED = (OSError, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)

_SEPARATOR = re.compile(r"\A\"?sep=.?\"?(?=\n)", re.IGNORECASE)
"""First line in which Excel names the separator of the cells."""


def read_bytes(path: Path) -> bytes:
    """Returns the contents of a file, decompressed.

    Raises:
        TraceError: the file is absent, is no file, is too large, is damaged or cannot be read.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            found = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; expected a measurement") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    for magic, kind, opened in (
        (b"\x1f\x8b", "gzip", gzip.open),
        (b"BZh", "bzip2", bz2.open),
        (b"\xfd7zXZ", "xz", lzma.open),
        (_ZSTD, "zstd", _open_zstd),
        (_ZIP, "zip", _open_zip),
    ):
        if found.startswith(magic):
            try:
                with opened(io.BytesIO(found)) as packed:
                    found = packed.read(MAX_BYTES + 1)
            except _DAMAGED as error:
                raise TraceError(f"{path}: found a damaged {kind} file ({error}); expected a whole one") from error
            except _NotOneError as error:
                raise TraceError(f"{path}: {error}") from None
            break
    _check_size(path, len(found))
    return found


def decoded(data: bytes) -> str:
    """Returns text with lines ended by LF; Windows writes UTF-16, old Macs CR.

    A first line `sep=;` of Excel is left blank.

    Raises:
        UnicodeDecodeError: the bytes are not text in UTF-8 or UTF-16.
    """
    text = data.decode(encoding_of(data)).replace("\r\n", "\n").replace("\r", "\n")
    return _SEPARATOR.sub("", text, count=1)


def encoding_of(data: bytes) -> str:
    """Returns UTF-16 if a byte order mark or the zero bytes of Latin letters show it, else UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if len(data) >= 4 and data[1] == data[3] == 0 and data[0] and data[2]:
        return "utf-16-le"
    return "utf-8-sig"


def check_file(path: Path) -> None:
    """Checks that a path, if it exists, is a file of a permitted size.

    Raises:
        TraceError: it is a folder or a device, or the file is too large.
    """
    try:
        found = path.stat()
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise TraceError(f"{path}: found a folder; expected a file")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        raise TraceError(f"{path}: found a device; expected a file")
    _check_size(path, found.st_size)


class _NotOneError(Exception):
    """Contents of an archive that are not one measurement."""


def _open_zstd(file: BinaryIO) -> BinaryIO:
    try:
        zstd = importlib.import_module("compression.zstd")
    except ImportError:
        raise _NotOneError("found a zstd file; expected it decompressed (zstd -d FILE), or Python 3.14") from None
    opened: BinaryIO = zstd.open(file)
    return opened


def _open_zip(file: BinaryIO) -> BinaryIO:
    archive = zipfile.ZipFile(file)
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if "[Content_Types].xml" in names:
        raise _NotOneError("found a workbook of Excel; expected its sheet saved as CSV")
    if len(names) != 1:
        raise _NotOneError(f"found a zip file of {len(names)} files; expected one file, or each of them decompressed")
    return archive.open(names[0])  # type: ignore[return-value]


def _check_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise TraceError(f"{path}: found more than {MAX_BYTES // 10**6} MB; expected at most so much")

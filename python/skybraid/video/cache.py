"""Cache of rendered and encoded clips, in the user's cache folder."""

from __future__ import annotations

import os
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skybraid.model.folder import cannot_write

_MAKING: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def folder() -> Path:
    """Returns the cache folder, `$XDG_CACHE_HOME/skybraid/video` or `~/.cache/skybraid/video` (XDG base directory)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "skybraid" / "video"


@contextmanager
def atomic_file(file: Path) -> Iterator[Path]:
    """Yields a temporary name next to `file` that is renamed to `file` when the block succeeds and removed otherwise.

    Raises:
        ResultError: the file cannot be written.
    """
    aside = file.with_name(f".{file.name}.{secrets.token_hex(4)}.partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield aside
        aside.replace(file)
    except OSError as error:
        raise cannot_write(file, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


@contextmanager
def exclusive(file: Path) -> Iterator[None]:
    """Serialises threads that would create the same file."""
    with _MAKING[str(file)]:
        yield

"""Files that are made once: rendered clips and encoded ones, in the user's folder for what can be made again."""

from __future__ import annotations

import os
import secrets
import threading
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from skybraid.model.folder import cannot_write

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAKING: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def folder() -> Path:
    """`$XDG_CACHE_HOME/skybraid/video`, or `~/.cache/skybraid/video` without one (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "skybraid" / "video"


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """Gives a name beside `file` to write to; it becomes `file` when the block ends well, and vanishes otherwise.

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
def alone(file: Path) -> Iterator[None]:
    """Lets one thread at a time make a file, so that the next finds it made."""
    with _MAKING[str(file)]:
        yield

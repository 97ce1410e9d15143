"""Result folders: written aside, put in place whole, never over an earlier one."""

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skybraid.errors import ResultError

if sys.platform != "win32":
    import fcntl

RUNS = Path("runs")
"""Where results go unless told otherwise."""

_LONGEST_NAME = 120
_PARTIAL = ".partial"


def default_folder(scenario_name: str, seeds: str) -> Path:
    """A folder below `runs` that does not exist yet, named after the scenario and its seeds."""
    return _first_that(f"{scenario_name} {seeds}", lambda folder: not folder.exists())


def campaign_folder(scenario_name: str, fits: Callable[[str], bool]) -> Path:
    """A folder below `runs` for a campaign: the first that does not exist or that `fits` says is the campaign's own."""
    return _first_that(f"{scenario_name} sweep", lambda folder: not folder.exists() or fits(str(folder)))


def _first_that(name: str, suits: Callable[[Path], bool]) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_NAME]
    first = RUNS / slug
    folder, number = first, 1
    while not suits(folder):
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Gives an empty folder beside `target` that becomes `target` when the block ends well, and vanishes otherwise.

    Raises:
        ResultError: `target` holds something already, or cannot be made or filled.
    """
    _refuse_existing(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_PARTIAL}")
        aside.mkdir()
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        with _held(aside):
            yield aside
            _refuse_existing(target)
            with suppress(FileNotFoundError):
                target.rmdir()
            aside.rename(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Holds a lock on a folder, which the kernel lets go when this process dies."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def left_over(parent: Path) -> list[Path]:
    """Unfinished result folders directly below `parent` whose process has died: nobody holds them any more."""
    if not parent.is_dir():
        return []
    return [folder for folder in sorted(parent.glob(f".*{_PARTIAL}")) if folder.is_dir() and not _is_held(folder)]


def _is_held(folder: Path) -> bool:
    if sys.platform == "win32":
        return True
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that it is there whole or not at all, replacing an earlier one.

    Raises:
        ResultError: the file cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(data)
        aside.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> ResultError:
    """The error that says why `path` cannot be written."""
    return ResultError(f"{path}: cannot write the result: {error.strerror or error}")


def _refuse_existing(target: Path) -> None:
    try:
        taken = any(target.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        if target.exists():
            raise ResultError(f"{target}: found a file, expected a new or empty folder for the result") from error
        raise cannot_write(target, error) from error
    except OSError as error:
        raise cannot_write(target, error) from error
    if taken:
        raise ResultError(f"{target}: found files in it, expected a new or empty folder; nothing was changed")

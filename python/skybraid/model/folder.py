"""Atomic result folders and files: written under a temporary name, flushed, then renamed.

A folder never replaces an earlier one. Whatever is being written has a name that ends in `.partial` and is locked by
its process, so that `remove_left_over` knows what belongs to nobody any more.
"""

import errno
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skybraid.model.errors import ResultError

if sys.platform != "win32":
    import fcntl

RUNS = Path("runs")
"""Default folder of results."""

MANIFEST = "campaign.json"
"""The file that makes a folder a campaign's."""

_MAX_NAME = 120
_PARTIAL = ".partial"


@contextmanager
def result_folder(given: Path | None, scenario_name: str, seeds: str) -> Iterator[Path]:
    """Yields the folder that was given, or an unused one below `runs`, named after the scenario and its seeds.

    An unused folder is made at once, so that commands that run at the same time get different ones, and is removed if
    it is still empty at the end.

    Raises:
        ResultError: no folder can be made below `runs`.
    """
    if given is not None:
        yield given
        return
    is_first = not RUNS.exists()
    folder = _first_that(f"{scenario_name} {seeds}", _is_made_now)
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()
            if is_first:
                RUNS.rmdir()


def _is_made_now(folder: Path) -> bool:
    try:
        make_folder(folder.parent)
        if not os.path.lexists(folder):
            with suppress(FileExistsError):
                folder.mkdir()
                return True
    except OSError as error:
        raise cannot_write(folder, error) from error
    return False


def campaign_folder(scenario_name: str, fits: Callable[[str], bool]) -> Path:
    """Returns the folder of a campaign below `runs`: the first that does not exist or for which `fits` holds."""
    return _first_that(f"{scenario_name} sweep", lambda folder: not folder.exists() or fits(str(folder)))


def _first_that(name: str, suits: Callable[[Path], bool]) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_MAX_NAME]
    first = RUNS / slug
    folder, number = first, 1
    while not suits(folder):
        number += 1
        # `NAME-1-2` is of seeds 1 to 2.
        folder = first.with_name(f"{first.name}_{number}")
    return folder


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields an empty folder that is renamed to `target` when the block succeeds and removed otherwise.

    All that it holds is on the disk once `target` is there.

    Raises:
        ResultError: `target` holds something already, or cannot be made or filled.
    """
    _refuse_dangling(target)
    target = _real(target)
    _refuse_existing(target)
    aside = target.with_name(f".{target.name}.{os.urandom(4).hex()}{_PARTIAL}")
    held = None
    try:
        make_folder(target.parent)
        held = _make_locked(aside)
        yield aside
        _refuse_existing(target)
        flush_all(aside)
        with suppress(FileNotFoundError):
            target.rmdir()
        aside.rename(target)
        flush(target.parent)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if held is not None:
            os.close(held)


def _make_locked(folder: Path) -> int | None:
    """Creates a folder and locks it; returns the descriptor of the lock, None on Windows."""
    while True:
        folder.mkdir()
        if sys.platform == "win32":
            return None
        with suppress(FileNotFoundError):
            held = _locked(os.open(folder, os.O_RDONLY), folder)
            if held is not None:
                return held


def _locked(descriptor: int, path: Path) -> int | None:
    """Locks a new folder until its descriptor is closed; None if `remove_left_over` removed it first.

    The kernel lets the lock go when this process dies.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    os.close(descriptor)
    return None


def remove_left_over(parent: Path) -> list[Path]:
    """Removes partial files of killed processes in `parent` and in the results there; returns their paths.

    What a living process is writing stays.
    """
    if sys.platform == "win32" or not parent.is_dir():
        return []
    folders = [parent, *(folder for folder in sorted(parent.iterdir()) if folder.is_dir() and not folder.is_symlink())]
    partial = [path for folder in folders for path in _partial_in(folder)]
    return [path for path in partial if _removed(path)]


def _partial_in(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.startswith(".") and path.name.endswith(_PARTIAL))
    except OSError:
        return []


def _removed(path: Path) -> bool:
    """Removes a file or folder unless it is locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file atomically and durably, replacing an earlier one.

    Raises:
        ResultError: the file cannot be written.
    """
    check_new_file(path)
    path = _real(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_PARTIAL}")
    try:
        make_folder(path.parent)
        with aside.open("xb") as opened:
            if sys.platform != "win32":
                fcntl.flock(opened, fcntl.LOCK_EX)
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
            if sys.platform != "win32":
                aside.replace(path)
        if sys.platform == "win32":  # An open file is not renamed there.
            aside.replace(path)
        flush(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def check_new_file(path: Path) -> None:
    """Raises if `write_whole` could not write the file; call it before long work whose result goes there.

    Raises:
        ResultError: it is a folder, a device or a symbolic link to nothing, or its folder cannot be written.
    """
    _refuse_dangling(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        pass
    except OSError as error:
        raise cannot_write(path, error) from error
    else:
        if not stat.S_ISREG(mode):
            found = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
            raise ResultError(f"{path}: found {found}, expected the name of a file")
    if not path.name or path.name == "..":
        raise ResultError(f"{path}: found a folder, expected the name of a file")
    parent = _real(path).parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise cannot_write(path, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise cannot_write(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def make_folder(folder: Path) -> None:
    """Creates a folder and its missing parents, durably.

    Raises:
        OSError: it cannot be made.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir()
        if not one.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(one))
        flush(one.parent)


def flush(path: Path) -> None:
    """Flushes a file, or a folder's entries, to disk.

    Raises:
        OSError: the disk refuses what was written.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems of networks have no such call for folders.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def flush_all(folder: Path) -> None:
    """Flushes a folder and every file below it to disk.

    Raises:
        OSError: the disk refuses what was written.
    """
    for parent, _, files in os.walk(folder):
        for name in files:
            file = Path(parent) / name
            if file.is_file():
                flush(file)
        flush(Path(parent))


def cannot_write(path: Path, error: OSError) -> ResultError:
    """Error that states why `path` cannot be written."""
    return ResultError(f"{path}: cannot write the result: {error.strerror or error}")


def _real(path: Path) -> Path:
    """Target of a symbolic link; any other path unchanged."""
    return path.resolve() if path.is_symlink() else path


def _refuse_dangling(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise ResultError(f"{path}: found a symbolic link to {path.readlink()}, which does not exist")


def _refuse_existing(target: Path) -> None:
    if not target.name or target.name == "..":
        raise ResultError(f"{target}: found no name of its own, expected a new folder for the result")
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
    if target.is_mount():
        raise ResultError(f"{target}: found a mounted file system, expected a new folder below it")

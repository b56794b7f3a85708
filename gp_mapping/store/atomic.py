"""Writes files that are there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["hold", "is_held", "open_atomic", "remove_partials", "sync_folder", "write_atomic"]

_PARTIAL = re.compile(r"\..+\.(\d+)(?:-\d+)?\.partial")


def hold(file: int) -> None:
    """Lock an open file (descriptor): while this process has it open, it is being written.

    The lock ends with the process, however that ends; the number of a process does not tell it
    from the one that had the same number before, as the only one of a container always has.
    """
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(path: Path, pid: int) -> bool:
    """Whether a file is being written, by `hold`; True where that cannot be known.

    Args:
        path: the file.
        pid: of the process that made it, which is asked for where there are no locks.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return _lives(pid)
    finally:
        os.close(file)
    return False


def remove_partials(folder: Path) -> list[str]:
    """Remove what was left half written in a folder, and nobody writes any more.

    Returns:
        The names of what is gone.
    """
    removed = []
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            found = _PARTIAL.fullmatch(path.name)
            # a number in the name is the process that wrote the file
            if found and not is_held(path, int(found[1])):
                with suppress(OSError):
                    path.unlink()
                    removed.append(path.name)

    return removed


def _lives(pid: int) -> bool:
    """Whether there is such a process; True where that cannot be known."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _created(path: Path) -> BinaryIO:
    """A new file that is held; one that was removed before it was held is made once more."""
    while True:
        file = path.open("wb")
        hold(file.fileno())
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


@contextmanager
def open_atomic(path: Path, lasting: bool = False) -> Iterator[BinaryIO]:
    """A file to write into, which takes its name when all of it is there.

    After a crash there is the old file or the new one. What was written before an exception is
    removed. A process that is killed leaves `.NAME.PID-THREAD.partial`, which nobody holds.

    Args:
        path: its name, in a folder that is there.
        lasting: whether it is to survive a power cut.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.partial")

    try:
        with _created(temporary) as file:
            yield file
            # before the name is taken: else a power cut may leave an empty file under it
            file.flush()
            if lasting:
                os.fsync(file.fileno())
            # atomic within a folder; while the file is held, so that nobody takes it for left
            os.replace(temporary, path)
        if lasting:
            sync_folder(path.parent)
    finally:
        with suppress(OSError):  # gone already where all went well
            temporary.unlink()


def write_atomic(path: Path, data: bytes) -> Path:
    """Write data to a file, whole or not at all, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    with open_atomic(path) as file:
        file.write(data)
    return Path(path)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # a folder cannot be opened everywhere (Windows); the file itself is on the disk

    try:
        os.fsync(handle)
    finally:
        os.close(handle)

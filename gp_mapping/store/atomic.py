"""Writes files that are there whole or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["sync_folder", "write_atomic", "written_whole"]


@contextmanager
def written_whole(path: Path, lasting: bool = False) -> Iterator[BinaryIO]:
    """A file to write into, which takes its name when all of it is there.

    After a crash there is the old file or the new one. What was written before an exception is
    removed. A process that is killed leaves `.NAME.PID-THREAD.partial`.

    Args:
        path: its name, in a folder that is there.
        lasting: whether it is to survive a power cut.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.partial")

    try:
        with temporary.open("wb") as file:
            yield file
            # before the name is taken: else a power cut may leave an empty file under it
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        # atomic within a folder
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
    with written_whole(path) as file:
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

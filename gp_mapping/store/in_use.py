"""Says which process saves into certain files, so that another one on this machine notices."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Claim", "alone_in"]

_PATIENCE = 10.0  # s that a save waits for that of another process
_LOOK = 0.02  # s between two looks


class Claim:
    """A file beside those of a map, locked by the process that saves into them.

    The lock ends with the process, however that ends. On a file system without locks, and in a
    folder that cannot be written to, nothing is claimed and nobody is seen.
    """

    def __init__(self):
        self._path: Path | None = None
        self._end = lambda: None

    @staticmethod
    def _lock_of(path: Path) -> Path:
        return path.with_name(f".{path.name}.lock")

    def holder(self, path: Path) -> int:
        """Claim a path, and give up the one before.

        Args:
            path: of a file, in a folder that may be missing: then it is not claimed yet.

        Returns:
            The number of the process that has claimed it, -1 where it has not written it yet; 0:
            this one, or it cannot be known.
        """
        if self._path == path and self._lock_of(path).exists():
            return 0
        self.release()

        lock = self._lock_of(path)
        with suppress(FileNotFoundError):
            while True:
                try:
                    handle = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o666)
                except FileNotFoundError:
                    raise
                except OSError:
                    return 0
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return _number_in(handle)
                except OSError:
                    os.close(handle)
                    return 0

                # who gave it up has removed the name meanwhile: this lock is nobody's
                if os.fstat(handle).st_nlink:
                    break
                os.close(handle)

            # not kept open for writing, which would keep a disk from being made read-only; on a
            # full one the lock holds all the same
            with suppress(OSError):
                lock.write_text(str(os.getpid()))
            self._path, self._end = path, weakref.finalize(self, _give_up, lock, handle)
        return 0

    def release(self) -> None:
        """Give up what is claimed."""
        self._end()
        self._path = None


def _number_in(handle: int) -> int:
    """The number of a process in an open file, which is closed; -1 where it is not there yet."""
    try:
        return int(os.read(handle, 20) or -1)
    except (OSError, ValueError):
        return -1
    finally:
        os.close(handle)


def _give_up(lock: Path, handle: int) -> None:
    """Remove a lock that is held, and end it."""
    with suppress(OSError):
        lock.unlink()
    with suppress(OSError):
        os.close(handle)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let no other process save into a folder meanwhile; it is made where it is missing.

    Waits for another one's save, but not for ever. A folder that cannot be locked is no error.

    Args:
        folder: of the files.
    """
    handle = None
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)

    end = time.monotonic() + _PATIENCE
    try:
        while handle is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    break
                time.sleep(_LOOK)
            except OSError:
                break
        yield
    finally:
        if handle is not None:
            os.close(handle)

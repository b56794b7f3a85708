"""A folder of this process alone; where the process is killed, the next one removes it.

Who holds the lock in it is alive: the system takes it away with the process, however that ended.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

__all__ = ["OwnFolder", "remove_left"]

_MAKING = 3600.0  # s after which nobody is making a folder any more, which takes milliseconds
_LOCK, _NEW_LOCK = ".lock", ".lock.new"


class OwnFolder:
    """A folder of this process; it is removed when nothing refers to this object any more.

    Args:
        base: folder to make it in; folders of that name that killed processes have left there are
            removed.
        name: what it is for, as "tiles": the folder is .tiles.PID-….partial.

    Attributes:
        path: of the folder; nobody else may read it.
    """

    def __init__(self, base: Path, name: str):
        base.mkdir(parents=True, exist_ok=True)
        remove_left(base, name)
        self.path = Path(tempfile.mkdtemp(".partial", f".{name}.{os.getpid()}-", base))

        # held as long as the process lives: others see by it that the folder is in use; it takes
        # its name when it is held, for who finds one that nobody holds removes the folder
        lock = os.open(self.path / _NEW_LOCK, os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(self.path / _NEW_LOCK, self.path / _LOCK)
        self._end = weakref.finalize(self, _remove, self.path, lock)

    def remove(self) -> None:
        """Remove it now, with all that is in it."""
        self._end()


def remove_left(base: Path, name: str) -> list[str]:
    """Remove folders of that name whose processes are gone.

    Args:
        base: folder that they are in.
        name: what they were for.

    Returns:
        Their file names.
    """
    left, removed = re.compile(rf"\.{re.escape(name)}\.\d+-\w+\.partial"), []
    with suppress(OSError):
        for path in sorted(base.iterdir()):
            if left.fullmatch(path.name) and not _in_use(path):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path.name)

    return removed


def _in_use(folder: Path) -> bool:
    """Whether a process holds the lock of a folder; True where that cannot be known."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        return _young(folder)  # it is being made, or who made it was killed in the middle
    except OSError:
        return True

    try:
        # the lock is gone with its process, however that ended
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _young(folder: Path) -> bool:
    """Whether a folder without a lock may still get one; True where that cannot be known."""
    try:
        return time.time() - folder.stat().st_mtime < _MAKING
    except OSError:
        return True


def _remove(path: Path, lock: int) -> None:
    """Remove a folder, and release its lock."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)

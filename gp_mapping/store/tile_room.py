"""Where tiles go that the robot has left: a folder of this process, written by a thread of its own.

The folder is made when the first tile comes, and removed with all that is in it when the process ends; what one that
was killed has left is removed by the next. A file is written once, and goes when nobody refers to it any more. What is
to last is linked into the folder of a checkpoint (tile_files.py).
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import re
import shutil
import tempfile
import threading
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path

from gp_mapping.core.stored import StoredState
from gp_mapping.store.archive import ID_LENGTH, CheckpointError, read_state, write_state

__all__ = ["TileRoom", "WorkingFile", "remove_left_rooms"]

_WAITING = (
    6  # states that wait for the disk; beyond, who brings one waits, too: memory stays bounded
)
_PATIENCE = 2.0  # s that it waits at the most; a disk that slow is said to be
_EVERY = (
    50  # tiles written, after which freed memory goes back to the system: a hundred metres or more
)
_AGAIN, _IDLE = (
    5.0,
    1.0,
)  # s after which a disk that refused is tried again, and the thread looks whether it may end
_NUMBERS = itertools.count()
_LOCK = ".lock"
_LEFT = re.compile(r"\.tiles\.\d+-\d+\.partial")


class _Folder:
    """A folder of this process; it goes when nobody refers to it any more."""

    def __init__(self, base: Path):
        base.mkdir(parents=True, exist_ok=True)
        remove_left_rooms(base)
        self.path = base / f".tiles.{os.getpid()}-{next(_NUMBERS)}.partial"
        self.path.mkdir()
        lock = os.open(
            self.path / _LOCK, os.O_RDWR | os.O_CREAT
        )  # held as long as the process lives
        fcntl.flock(lock, fcntl.LOCK_EX)
        weakref.finalize(self, _remove_folder, self.path, lock)


class WorkingFile:
    """One tile's file, which is removed when nobody refers to it any more.

    There is one for each tile that is on the disk, so it is as small as can be.
    """

    __slots__ = ("_digest", "_folder", "_number")

    def __init__(self, folder: _Folder, number: int, digest: str):
        self._folder, self._number, self._digest = folder, number, int(digest, 16)

    @staticmethod
    def path_of(folder: _Folder, number: int) -> Path:
        """Where the file of that number lies."""
        return folder.path / f"{number}.tile"

    @property
    def path(self) -> Path:
        return self.path_of(self._folder, self._number)

    @property
    def digest(self) -> str:
        """The id of its state."""
        return f"{self._digest:0{ID_LENGTH}x}"

    def read(self) -> dict:
        """The state. CheckpointError where it is damaged or gone."""
        return read_state(self.path, None, self.digest)

    def trouble(self) -> str:
        return "" if self.path.exists() else f"{self.path}: the file is gone"

    def __del__(self):
        with suppress(Exception):  # the folder may be gone, the interpreter as well
            os.unlink(self.path)


class TileRoom:
    """Writes states into files. base: the folder in which this process has its own; the system's for such if None."""

    def __init__(self, base: Path | None = None):
        self._base, self._folder = base, None
        self._waiting: deque[StoredState] = deque()
        self._come, self._done = threading.Event(), threading.Condition()
        self._thread: threading.Thread | None = None
        self._refused = ""
        self.written = 0  # files

    def put(self, state: StoredState) -> None:
        """Have it written; it is no longer in memory then. Waits where many wait, but not long."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_write_on, args=(weakref.ref(self), self._come), name="tiles", daemon=True
            )
            self._thread.start()
        self._waiting.append(state)
        self._come.set()
        with self._done:
            self._done.wait_for(lambda: len(self._waiting) <= _WAITING or self._refused, _PATIENCE)

    def problem(self) -> str:
        """Why tiles stay in memory, in one sentence; '' where they do not."""
        if not self._refused:
            return ""
        return (
            f"{len(self._waiting)} tiles that are far away stay in memory, for they cannot be written "
            f"({self._refused}); it is tried again"
        )

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until nothing waits for the disk; False where something still does."""
        self._come.set()
        with self._done:
            return self._done.wait_for(lambda: not self._waiting, timeout)

    def work(self) -> float:
        """In the thread: write what waits, in the order in which it came; s after which to look again."""
        while self._waiting:
            state = self._waiting[0]
            try:
                if state.held:  # else a save has written it meanwhile
                    self._write(state)
                self._refused = ""
            except (OSError, CheckpointError) as error:
                self._refused = str(error)
            if not self._refused:
                self._waiting.popleft()
            with self._done:
                self._done.notify_all()
            if self._refused:
                return _AGAIN
        return _IDLE

    def _write(self, state: StoredState) -> None:
        if self._folder is None or not self._folder.path.is_dir():
            self._folder = _Folder(
                Path(tempfile.gettempdir()) if self._base is None else self._base
            )
        number = next(_NUMBERS)
        digest = write_state(WorkingFile.path_of(self._folder, number), state.get(), lasting=False)
        state.move_to(WorkingFile(self._folder, number, digest))
        self.written += 1
        if self.written % _EVERY == 0:
            _give_back_memory()


def _give_back_memory() -> None:
    """Pages without a living object go back to the system, where the C library is one that keeps them (glibc).

    Tiles that come and go leave holes between what stays: without this a process grows by megabytes each kilometre. It
    takes milliseconds, in which others can go on until they need memory themselves.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _write_on(room_ref: weakref.ref, come: threading.Event) -> None:
    """The thread, as long as there is the room."""
    while True:
        room = room_ref()
        if room is None:
            return
        wait = room.work()
        del room  # nothing here keeps it
        come.wait(wait)
        come.clear()


def remove_left_rooms(base: Path) -> list[str]:
    """Names of folders of processes that are gone; they are removed."""
    removed = []
    with suppress(OSError):
        for path in sorted(base.iterdir()):
            if _LEFT.fullmatch(path.name) and not _in_use(path):
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path.name)
    return removed


def _in_use(folder: Path) -> bool:
    """Whether a process holds its lock; where that cannot be told, as if one did."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR)
    except OSError:
        return True  # it is being made
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _remove_folder(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)

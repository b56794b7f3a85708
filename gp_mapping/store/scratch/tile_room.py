"""Holds tiles that the robot has left: a folder of this process, written by a thread of its own.

The folder is made when the first tile comes, and removed with all that is in it when the process
ends (scratch/own_folder.py). A file is written once, and removed when nothing refers to it any
more. What is to last is linked into the folder of a checkpoint (tile_files.py).
"""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path

from gp_mapping.core.stored import StoredState
from gp_mapping.errors import one_line
from gp_mapping.garbage import give_back_pages
from gp_mapping.store.archive import ID_LENGTH, CheckpointError, read_state, write_state
from gp_mapping.store.scratch.own_folder import OwnFolder

__all__ = ["TileRoom", "WorkingFile"]

# states that may wait for the disk; beyond, the caller of `put` waits, too: memory stays bounded
_WAITING = 6
_PATIENCE = 2.0  # s that the caller waits at most; a disk that slow is reported
# tiles written, after which freed memory goes back to the system: a hundred metres or more
_EVERY = 50
# s after which a disk that refused is tried again, and the thread looks whether it may end
_AGAIN, _IDLE = 5.0, 1.0
_TRIED = 2  # states that are refused one after the other before the thread waits
_NUMBERS = itertools.count()


class WorkingFile:
    """One tile's file, which is removed when nothing refers to this object any more.

    There is one object for each tile that is on the disk, so it is as small as possible.

    Args:
        folder: of the file.
        number: of the file.
        digest: id of its state, hexadecimal.
    """

    __slots__ = ("_digest", "_folder", "_number")

    def __init__(self, folder: OwnFolder, number: int, digest: str):
        self._folder, self._number, self._digest = folder, number, int(digest, 16)

    @staticmethod
    def path_of(folder: OwnFolder, number: int) -> Path:
        """Path of the file of that number."""
        return folder.path / f"{number}.tile"

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.path_of(self._folder, self._number)

    @property
    def digest(self) -> str:
        """The id of its state."""
        return f"{self._digest:0{ID_LENGTH}x}"

    def read(self) -> dict:
        """Read the state.

        Raises:
            CheckpointError: the file is damaged or gone.
        """
        return read_state(self.path, None, self.digest)

    def visible_fault(self) -> str:
        """Whether the file is gone; '' where all is well."""
        return "" if self.path.exists() else f"{self.path}: the file is gone"

    def __del__(self):
        with suppress(Exception):  # the folder may be gone, the interpreter as well
            os.unlink(self.path)


class TileRoom:
    """Writes states into files, in a thread of its own.

    Args:
        base: the folder in which this process makes its own; None: the system's temporary folder.

    Attributes:
        written: how many files were written.
    """

    def __init__(self, base: Path | None = None):
        self._base, self._folder = base, None
        # weak: what nobody needs any more, since the robot is back in that tile, is not written,
        # and takes no memory while the disk refuses
        self._waiting: deque[weakref.ref[StoredState]] = deque()
        # a state has come; the number of states that wait has changed; _done's lock is for _waiting
        self._come, self._done = threading.Event(), threading.Condition()
        self._thread: threading.Thread | None = None
        self._refused = ""  # why the disk refused the last write
        self.written = 0

    def __deepcopy__(self, memo) -> TileRoom:
        """The room itself: a copy of what is written into it goes on in the same room."""
        return self

    def put(self, state: StoredState) -> None:
        """Have a state written; it is no longer in memory afterwards.

        Waits where many states wait, but not for long.

        Args:
            state: in memory.
        """
        with self._done:
            self._forget_unneeded()
            self._waiting.append(weakref.ref(state))
        self._start()
        self._come.set()

        with self._done:
            self._done.wait_for(lambda: len(self._waiting) <= _WAITING or self._refused, _PATIENCE)

    def _forget_unneeded(self) -> None:
        """Leave out states that nothing refers to any more; _done's lock is held."""
        self._waiting = deque(ref for ref in self._waiting if ref() is not None)

    def _start(self) -> None:
        """Start the thread, where none is alive."""
        if self._thread is not None and self._thread.is_alive():
            return

        # the thread refers to the room weakly, so that it ends with it
        thread = threading.Thread(
            target=_write_on, args=(weakref.ref(self), self._come), name="tiles", daemon=True
        )
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as error:  # the system has none to spare; the next state tries again
            self._refused = one_line(error)

    def problem(self) -> str:
        """Why tiles stay in memory, in one sentence; '' where they do not."""
        if not self._refused:
            return ""

        with self._done:
            self._forget_unneeded()
            waiting = len(self._waiting)
        return (
            f"{waiting} tiles that are far away stay in memory, for they cannot be written "
            f"({self._refused}); it is tried again"
        )

    def settle(self, timeout: float = 10.0) -> bool:
        """Wait until no state waits for the disk.

        Args:
            timeout: s.

        Returns:
            False where one still waits.
        """
        self._come.set()
        with self._done:
            return self._done.wait_for(lambda: not self._waiting, timeout)

    def work(self) -> float:
        """Write the states that wait; called by the thread.

        In the order in which they came, but that one which cannot be written goes to the end.

        Returns:
            Time after which to look again, s.
        """
        failed = 0  # states in a row
        while (ref := self._first()) is not None:
            # it stays in the queue until it is written: `problem` and `settle` count it
            state = ref()
            refused = None if state is None else self._try(state)
            del state  # while the thread waits, it does not keep it
            if refused is not None:
                self._refused, failed = refused, failed + 1 if refused else 0

            with self._done:
                # one that cannot be written does not hold up the others
                with suppress(ValueError):  # nobody needs it any more, and it is left out already
                    self._waiting.remove(ref)
                    if refused:
                        self._waiting.append(ref)
                self._done.notify_all()

            # it was not that state: the disk takes nothing
            if failed >= min(_TRIED, len(self._waiting)) > 0:
                return _AGAIN

        with self._done:
            self._refused = ""
            self._done.notify_all()
        return _IDLE

    def _first(self) -> weakref.ref[StoredState] | None:
        """The state that has waited for longest and is still needed; None where none waits."""
        with self._done:
            while self._waiting and self._waiting[0]() is None:
                self._waiting.popleft()
            return self._waiting[0] if self._waiting else None

    def _try(self, state: StoredState) -> str | None:
        """Write a state; why it cannot be, or ''. None: a save has written it meanwhile."""
        if not state.in_memory:
            return None
        try:
            self._write(state)
        # whatever it is: the thread goes on, and `problem` says it
        except Exception as error:
            known = isinstance(error, OSError | CheckpointError)
            return one_line(error if known else f"{type(error).__name__}: {error}")
        return ""

    def _write(self, state: StoredState) -> None:
        """Write one state into a new file; make the folder first, where it is missing."""
        # the folder may have been removed under a running process
        if self._folder is None or not self._folder.path.is_dir():
            base = Path(tempfile.gettempdir()) if self._base is None else self._base
            self._folder = OwnFolder(base, "tiles")

        number = next(_NUMBERS)
        digest = write_state(WorkingFile.path_of(self._folder, number), state.get(), lasting=False)
        state.move_to(WorkingFile(self._folder, number, digest))

        self.written += 1
        if self.written % _EVERY == 0:
            give_back_pages()


def _write_on(room_ref: weakref.ref, come: threading.Event) -> None:
    """Body of the thread: works as long as the room is there.

    Args:
        room_ref: weak, so that the thread does not keep the room.
        come: a state has come.
    """
    while True:
        room = room_ref()
        # nothing refers to the room any more
        if room is None:
            return

        wait = room.work()
        del room  # while the thread waits, it does not keep the room

        come.wait(wait)
        come.clear()

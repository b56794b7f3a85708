"""The tiles of the checkpoints of one folder: files that are written once, in a folder `tiles`.

That folder is next to the checkpoints. A file's name says which tile it is and what is in it (the
id of its state), so a tile that has not changed since the last save is there already, and two
checkpoints that have a tile in common refer to the same file. A save holds a shared lock on the
folder. What no checkpoint next to it names any more is removed under an exclusive lock, so never
while another process saves, or has such a map open.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from gp_mapping.core.stored import StoredState
from gp_mapping.store.archive import (
    CheckpointError,
    manifest_of,
    read_state,
    why_not_written,
    write_state,
)
from gp_mapping.store.atomic import sync_folder

__all__ = ["REFUSED", "TileFile", "TileFolder"]

REFUSED = ".refused"
"""Ending of a checkpoint that could not be resumed and is kept, with its tiles, to be repaired."""

_FOLDER, _LOCK, _CHECKPOINTS = "tiles", ".lock", ".gpm"
# TILE.ID.tile: numbers of column and row, and the id of the state
_NAME = re.compile(r"(-?\d+_-?\d+)\.([0-9a-f]{12})\.tile")
_NAMED = re.compile(_NAME.pattern.encode())
_HALF = re.compile(r"\..*\.partial")  # half written


class _Unreadable(Exception):
    """A state is not in memory, and its file is gone or damaged."""


class TileFile:
    """One state's file in a TileFolder.

    Args:
        folder: which keeps the file as long as this object is there.
        name: of the file.
        size: of the file, bytes.

    Attributes:
        folder: which keeps the file as long as this object is there.
        name: of the file.
        size: of the file, bytes.
    """

    __slots__ = ("__weakref__", "folder", "name", "size")

    def __init__(self, folder: TileFolder, name: str, size: int):
        self.folder, self.name, self.size = folder, name, size

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.folder.path / self.name

    @property
    def digest(self) -> str:
        """The id of its state."""
        return _NAME.fullmatch(self.name)[2]

    def read(self) -> dict:
        """Read the state.

        Raises:
            CheckpointError: the file is damaged or gone.
        """
        return read_state(self.path, None, self.digest)

    def visible_fault(self) -> str:
        """Whether the file is gone or cut off, by its size; '' where all is well."""
        try:
            size = self.path.stat().st_size
        except OSError as error:
            return f"{self.path}: the file is gone ({error.strerror}); copy the folder {_FOLDER} with its checkpoint"

        return (
            ""
            if size == self.size
            else f"{self.path}: cut off or damaged ({size} bytes, {self.size} were written)"
        )


class TileFolder:
    """The folder `tiles` next to checkpoints; one object for each folder in a process.

    Args:
        path: of the folder.
    """

    _all: ClassVar[weakref.WeakValueDictionary[Path, TileFolder]] = weakref.WeakValueDictionary()

    def __init__(self, path: Path):
        self.path = path
        # files that this process refers to
        self._used: weakref.WeakValueDictionary[int, TileFile] = weakref.WeakValueDictionary()
        self._lock: int | None = None
        self._named: dict[tuple, set[str]] = {}  # checkpoint as it stands -> files that it names
        # whether this save has written anything; saves that are going on
        self._wrote, self._writers = False, 0

    @staticmethod
    def for_checkpoint(checkpoint: Path) -> TileFolder:
        """The tiles' folder of a checkpoint."""
        path = Path(checkpoint).absolute().parent / _FOLDER
        folder = TileFolder._all.get(path)
        if folder is None:
            folder = TileFolder._all[path] = TileFolder(path)

        return folder

    # ---- saving ----------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Surround the writing of a checkpoint and its tiles.

        Raises:
            CheckpointError: the tiles cannot be written.
        """
        self._wrote, self._writers = False, self._writers + 1
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: the tiles cannot be written ({why_not_written(error)})"
            ) from error
        finally:
            self._writers -= 1

    def store(self, state: StoredState, left_out: list[str]) -> dict:
        """Have a state in this folder, where it lasts.

        A state whose file is gone does not cost the others: the checkpoint names its file all the
        same, so that who loads it is told, and has it again where somebody puts the file back.

        Args:
            state: to be kept.
            left_out: gets a sentence where the state cannot be read any more.

        Returns:
            Plain values by which `resolve` finds it again.
        """
        source = state.source

        if (
            not isinstance(source, TileFile)
            or source.folder is not self
            or not source.path.exists()
        ):
            try:
                source = self._written(state, source)
            except _Unreadable as error:
                left_out.append(f"tile {state.name} of the map is left out: {error}")
                size = source.size if isinstance(source, TileFile) else 0
                return {"file": _name(state, source.digest), "bytes": size}
        return {"file": source.name, "bytes": source.size}

    def _written(self, state: StoredState, source) -> TileFile:
        """The file of a state in this folder.

        A link to the file that the state has elsewhere, where that can be, else a new file.

        Raises:
            _Unreadable: it is not in memory, and its file is gone or damaged.
        """
        # the shared lock is held before the first file is there, so that no sweep removes it
        if not self._wrote:
            self.path.mkdir(parents=True, exist_ok=True)
            self._hold(fcntl.LOCK_SH)
            self._wrote = True

        if source is None:
            # its name holds the id, which is known when it is written
            temporary = self.path / f".{_name(state, '')}.{os.getpid()}.partial"
            digest = write_state(temporary, _content(state))
            name = _name(state, digest)
            os.replace(temporary, self.path / name)
        else:
            name = _name(state, source.digest)
            if not (self.path / name).exists():
                self._link(state, source.path, name)

        made = self._noted(TileFile(self, name, (self.path / name).stat().st_size))
        state.move_to(made)
        return made

    def sync(self) -> None:
        """Make all that was kept survive a power cut."""
        if self._wrote:
            sync_folder(self.path)

    def _link(self, state: StoredState, source: Path, name: str) -> None:
        """Give a state's file a name in this folder; write the state where that cannot be done."""
        temporary = self.path / f".{name}.{os.getpid()}.partial"
        try:
            os.link(source, temporary)
        except OSError:  # another disk, one without links, or the file is gone
            write_state(self.path / name, _content(state))
            return

        try:
            with temporary.open("rb") as file:  # it takes its name when all of it is on the disk
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)
        finally:
            with suppress(OSError):
                temporary.unlink()

    # ---- reading ---------------------------------------------------------------------------------

    def resolve(self, reference: dict) -> StoredState:
        """The state of which `store` returned these values.

        Args:
            reference: the values.

        Raises:
            CheckpointError: they are no such thing.
        """
        name, size = reference.get("file"), reference.get("bytes")
        known = _NAME.fullmatch(name) if isinstance(name, str) else None
        if known is None or not isinstance(size, int):
            raise CheckpointError(f"it refers to {str(reference)[:100]!r}, which is no tile's file")

        if self._lock is None and self.path.is_dir():
            # in a folder that cannot be written to, nothing is removed
            with suppress(OSError):
                self._hold(fcntl.LOCK_SH)

        return StoredState(
            known[1].replace("_", " "), source=self._noted(TileFile(self, name, size))
        )

    def _noted(self, file: TileFile) -> TileFile:
        """Note that this process refers to a file."""
        self._used[id(file)] = file
        return file

    # ---- removing --------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Remove files that neither a checkpoint next to the folder nor this process refers to.

        Also what processes that were killed have left half written. Nothing is removed while
        another process saves or has one of these maps open: then a later sweep does it.

        Returns:
            How many files.
        """
        if not os.path.isdir(self.path):  # nor where it cannot be asked
            return 0

        try:
            self._hold(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._hold_again()
            return 0
        try:
            # files that this process refers to, though no checkpoint may name them yet
            kept = self._referred() | {file.name for file in self._used.values()}

            gone = [
                path
                for path in self.path.iterdir()
                if (_NAME.fullmatch(path.name) and path.name not in kept)
                or (_HALF.fullmatch(path.name) and not self._writers)
            ]
            for path in gone:
                path.unlink(missing_ok=True)
            return len(gone)
        except (OSError, CheckpointError):  # a checkpoint that cannot be read may name any file
            return 0
        finally:
            self._hold_again()

    def _referred(self) -> set[str]:
        """Names of files that checkpoints next to this folder refer to.

        Raises:
            CheckpointError: a checkpoint cannot be read.
        """
        names, known = set(), {}
        for path in self.path.parent.iterdir():
            # half written files, and folders
            if path.name.startswith(".") or not path.is_file():
                continue

            # a checkpoint is read again only where it has changed
            about = path.stat()
            moment = (path.name, about.st_mtime_ns, about.st_size, about.st_ino)

            try:
                known[moment] = self._named.get(moment) or set(
                    map(str, manifest_of(path).get("tiles", ()))
                )
            except CheckpointError:
                if path.suffix == _CHECKPOINTS:
                    raise
                if path.suffix != REFUSED:
                    continue  # something else that lies there
                known[moment] = _named_in(path)

            # of a damaged file that was set aside all names that its bytes show are kept
            names |= known[moment]

        self._named = known
        return names

    def _hold(self, how: int) -> None:
        """Lock the folder; the lock is released when the process ends or this object goes."""
        if self._lock is None:
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            # not at exit: the system closes it then
            weakref.finalize(self, os.close, self._lock).atexit = False

        fcntl.flock(self._lock, how)

    def _hold_again(self) -> None:
        """Lock the folder shared while this process refers to files of it, else unlock it."""
        with suppress(OSError):
            self._hold(fcntl.LOCK_SH if len(self._used) else fcntl.LOCK_UN)


def _name(state: StoredState, digest: str) -> str:
    """Name of the file of a state with that id."""
    return f"{state.name.replace(' ', '_')}.{digest}.tile"


def _content(state: StoredState) -> dict:
    """What a state holds.

    Raises:
        _Unreadable: it is not in memory, and its file is gone or damaged.
    """
    try:
        return state.get()
    except CheckpointError as error:
        why = "" if state.source is None else state.source.visible_fault()
        raise _Unreadable(why or str(error)) from error


def _named_in(path: Path) -> set[str]:
    """Names of tiles in the bytes of a checkpoint that is damaged.

    The part that names them is not compressed.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return set()

        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return {found[0].decode() for found in _NAMED.finditer(data)}

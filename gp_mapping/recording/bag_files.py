"""Opens a bag by its files, also one whose recorder was killed, or lost its power.

metadata.yaml may be missing then, the last file may be cut off, and messages of a database may be
in a log next to it. What is left is read, and what is not is said.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from rosbags.interfaces import Connection
from rosbags.rosbag2 import Reader
from rosbags.rosbag2.metadata import ReaderMetadata
from rosbags.rosbag2.reader import DirectoryReader
from rosbags.rosbag2.storage_sqlite3 import Sqlite3Reader

from gp_mapping.errors import UserError, one_line
from gp_mapping.recording.mcap_file import McapFile
from gp_mapping.recording.stored_bytes import unpack_file

__all__ = ["SUFFIXES", "BagError", "damage_of", "open_bag", "reading", "stored_in"]

SUFFIXES = (".mcap", ".db3")
_COMPRESSED = ".zstd"  # of a file of a bag, as its recorder packs it
_FILES = 12  # of a bag that are named
_DIGITS = re.compile(r"(\d+)")  # the recorder numbers files without leading zeros
_LOGS = ("-wal", "-journal")  # of SQLite, next to a database
_WORDS = 200  # characters of a reason


class BagError(UserError):
    """A bag that cannot be read or written; the text is one line and says what to do."""


class _DatabaseFile(Sqlite3Reader):
    """One sqlite3 file, with the messages in a log next to it.

    A copy is read where there is a log, since SQLite would change the recording, and where the end
    of the file is missing: of what is left then.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        self._given, self.damage = path, ""
        self._copies = ExitStack()

    def open(self) -> None:
        """Open the file, or a copy into which its log was taken.

        Raises:
            BagError: nothing of it is left, or there is no room for a copy.
        """
        logs = [self._given.with_name(self._given.name + end) for end in _LOGS]
        logs = [log for log in logs if log.exists() and log.stat().st_size]
        with ExitStack() as copies:
            self.path = self._with_logs(logs, copies) if logs else self._given
            page, missing = _page_and_missing(self.path)
            if missing > 0:
                self.damage = (
                    f"{self._given.name}: cut off, {missing} bytes at its end are missing (sqlite3 .recover may find "
                    "more)"
                )
                self.path = self._salvaged(page, copies)
            super().open()
            self._copies = copies.pop_all()

    def close(self) -> None:
        """Close the file, and remove the copy."""
        with self._copies:
            super().close()

    def _with_logs(self, logs: list[Path], copies: ExitStack) -> Path:
        """A copy of the file with what is in its logs; `copies` removes it."""
        files = [self._given, *logs]
        copy = self._place_of_copy(
            2 * sum(file.stat().st_size for file in files),
            copies,
            f"{logs[0].name} holds messages that the recorder had no time to put into the bag",
            f"sqlite3 {self._given.name} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )
        for file in files:
            shutil.copyfile(file, copy.with_name(file.name))
        with closing(sqlite3.connect(copy)) as database:
            database.execute("PRAGMA journal_mode=DELETE").fetchall()
            database.execute("SELECT count(*) FROM sqlite_master").fetchall()
        return copy

    def _salvaged(self, page: int, copies: ExitStack) -> Path:
        """A copy of what is left of the file, in the order of writing; `copies` removes it.

        Args:
            page: size of the file's pages.
            copies: removes the copy.
        """
        size = self.path.stat().st_size
        part = self._place_of_copy(
            2 * size,
            copies,
            "its end is missing",
            f"sqlite3 {self._given.name} .recover | sqlite3 mended.db3",
        ).with_suffix(".part.db3")
        shutil.copyfile(self.path, part)
        # SQLite would take a page that is cut off for one that ends with zeros
        os.truncate(part, size // page * page)

        copy = part.with_suffix(".left.db3")
        with (
            closing(sqlite3.connect(f"{part.as_uri()}?immutable=1", uri=True)) as old,
            closing(sqlite3.connect(copy)) as new,
            new,
        ):
            # else SQLite refuses a file that has fewer pages than its header says
            old.execute("PRAGMA writable_schema = ON")
            tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            # the messages come last: where they end in the middle, all else is there
            for name, sql in sorted(old.execute(tables), key=lambda table: table[0] == "messages"):
                new.execute(sql)
                with suppress(sqlite3.DatabaseError):  # from there on the file is missing
                    for row in old.execute(f'SELECT * FROM "{name}" NOT INDEXED ORDER BY rowid'):
                        values = ", ".join("?" * len(row))
                        new.execute(f'INSERT INTO "{name}" VALUES ({values})', row)
        part.unlink()
        return copy

    def _place_of_copy(self, needed: int, copies: ExitStack, why: str, instead: str) -> Path:
        """Where a copy may be written; `copies` removes it.

        Args:
            needed: bytes.
            copies: removes what is there.
            why: a copy is needed, in words.
            instead: what to run where there is no room.

        Raises:
            BagError: there is no room.
        """
        folder = copies.enter_context(
            TemporaryDirectory(prefix="gp_mapping_bag_", ignore_cleanup_errors=True)
        )
        if (free := shutil.disk_usage(folder).free) < needed:
            raise BagError(
                f"{self._given}: {why}; a copy to put it right takes {needed} bytes, {folder} has {free}: set "
                f"TMPDIR to a folder with room, or run: {instead}"
            )
        return Path(folder) / self._given.name

    def messages(
        self,
        connections: Collection[Connection],
        start: int | None = None,
        stop: int | None = None,
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """As McapFile.messages, up to where the file is damaged."""
        try:
            yield from super().messages(connections, start, stop)
        except Exception as error:  # of apsw, through rosbags
            self.damage = f"{self._given.name}: it is damaged ({one_line(error, _WORDS)})"


def _page_and_missing(path: Path) -> tuple[int, int]:
    """Size of the pages of a database, and how many bytes are missing at its end.

    Args:
        path: of the database.
    """
    with path.open("rb") as file:
        header = file.read(100)
    page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    page = 65536 if page == 1 else page  # in SQLite's header 1 stands for it
    return page, page * pages - path.stat().st_size


class _Folder(DirectoryReader):
    """A folder with metadata.yaml, of whose files each may be damaged."""

    STORAGE_PLUGINS: ClassVar = {"mcap": McapFile, "sqlite3": _DatabaseFile}

    def open(self) -> None:
        """Open all files; count what is in them, where it is more than metadata.yaml says."""
        super().open()
        found: Counter = Counter()
        for storage in self.storages:
            for c in storage.connections:
                found[c.topic, c.msgtype] += c.msgcount
        if any(found[c.topic, c.msgtype] > c.msgcount for c in self.connections):
            self.connections = [
                c._replace(msgcount=max(c.msgcount, found[c.topic, c.msgtype]))
                for c in self.connections
            ]
            self.metadata = _metadata_of(self.storages)

    @property
    def damage(self) -> str:
        """What is not read of the files, in words; "" where all is."""
        return _damage_of(self.storages)


class _LooseFiles:
    """The files of a bag whose metadata.yaml is missing, or is not true, in their order.

    Those that are packed as a whole are read from copies, as far as they can be unpacked.

    Args:
        path: of the folder.

    Attributes:
        why: metadata.yaml is not used, in words.
    """

    def __init__(self, path: Path):
        self.path, self.why = path, ""
        self.connections: list[Connection] = []
        self.storages: list[Any] = []
        self.metadata = _metadata_of([])
        self._unreadable: list[str] = []
        self._stack = ExitStack()

    def open(self) -> None:
        """Open all files that can be.

        Raises:
            BagError: none can be.
        """
        plugins = {".mcap": McapFile, ".db3": _DatabaseFile}
        names, errors = stored_in(self.path), []
        for name in names:
            try:
                file = self._unpacked(self.path / name)
                storage = plugins[file.suffix](file)
                storage.open()
            except Exception as error:  # rosbags, sqlite and struct have errors of their own
                errors.append(error)
                self._unreadable.append(f"{name}: nothing can be read ({one_line(error, _WORDS)})")
                continue
            self._stack.callback(storage.close)
            self.storages.append(storage)
        if not self.storages and errors:
            self.close()
            raise errors[0]

        merged: dict[tuple[str, str], Connection] = {}
        for storage in self.storages:
            for c in storage.connections:
                known = merged.get((c.topic, c.msgtype))
                n = c.msgcount + (known.msgcount if known else 0)
                number = known.id if known else len(merged) + 1
                merged[c.topic, c.msgtype] = (known or c)._replace(
                    id=number, msgcount=n, owner=self
                )
        self.connections = list(merged.values())
        self.metadata = _metadata_of(self.storages)

    def _unpacked(self, path: Path) -> Path:
        """The file itself, or a copy of it that is not packed, which is removed with the reader."""
        if path.suffix != _COMPRESSED:
            return path
        copy = Path(self._stack.enter_context(TemporaryDirectory())) / path.stem
        if not unpack_file(path, copy):
            size = copy.stat().st_size
            if size == 0:
                raise BagError(
                    f"{path}: the file is cut off or damaged, nothing of it can be unpacked"
                )
            self._unreadable.append(
                f"{path.name}: its packing is cut off or damaged, the first {size} bytes of what was packed are read"
            )
        return copy

    def close(self) -> None:
        """Close all files."""
        self._stack.close()
        self.connections, self.storages = [], []

    def messages(
        self,
        connections: Collection[Connection],
        start: int | None = None,
        stop: int | None = None,
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """As McapFile.messages, of one file after the other."""
        wanted = {(c.topic, c.msgtype): c for c in connections}
        for storage in self.storages:
            own = [c for c in storage.connections if (c.topic, c.msgtype) in wanted]
            for c, stamp, data in storage.messages(own, start, stop) if own else ():
                yield wanted[c.topic, c.msgtype], stamp, data

    @property
    def damage(self) -> str:
        """What is not read, in words."""
        return "; ".join(
            w for w in (self.why, *self._unreadable[:_FILES], _damage_of(self.storages)) if w
        )


def _metadata_of(storages: list) -> ReaderMetadata:
    """What is known of several files together."""
    filled = [s.metadata for s in storages if s.metadata.message_count]
    total = sum(m.message_count for m in filled)
    first = min((m.start_time for m in filled), default=2**63 - 1)
    end = max((m.end_time for m in filled), default=0)
    return ReaderMetadata(end - first if total else 0, first, end, total, None, None, None, None)


def _damage_of(storages: list) -> str:
    """What is not read of files, in words; "" where all is."""
    words = [storage.damage for storage in storages if storage.damage]
    return "; ".join(words[:_FILES]) + ("; …" if len(words) > _FILES else "")


def damage_of(reader: Reader) -> str:
    """What is not read of a bag, as far as is known by now, in words; "" where all is."""
    return reader.storage.damage


class _OfFiles(Reader):
    """A reader of one file, or of a folder with metadata.yaml."""

    STORAGE_PLUGINS: ClassVar = {"dir": _Folder, ".mcap": McapFile, ".db3": _DatabaseFile}


def _opened(path: Path) -> Reader:
    """The reader of a bag, by metadata.yaml if that is there and true."""
    if not path.is_dir():
        reader = _OfFiles(path)
        reader.open()
        return reader

    why = "metadata.yaml is missing, the recording was cut off"
    if (path / "metadata.yaml").exists():
        try:
            reader = _OfFiles(path)
            reader.open()
            return reader
        except Exception as error:  # as in reading
            if not stored_in(path) or _is_of_many(path):
                raise
            why = f"metadata.yaml is not used ({one_line(error, _WORDS)})"

    reader = _OfLooseFiles(path)
    reader.storage.why = why
    reader.open()
    return reader


class _OfLooseFiles(Reader):
    """A reader of a folder whose metadata.yaml is not used."""

    STORAGE_PLUGINS: ClassVar = {"dir": _LooseFiles}


@contextmanager
def open_bag(path) -> Iterator[Reader]:
    """The reader of a bag that holds at least one message; BagError where there is none."""
    path = Path(path)
    _check_path(path)
    with reading(path):
        reader = _opened(path)

    try:
        damage = damage_of(reader)
        # of a damaged bag metadata.yaml says what was there
        if reader.message_count == 0 or (damage and next(reader.messages(), None) is None):
            raise BagError(
                f"{path}: the bag is cut off or damaged, and no message is left ({damage})"
                if damage
                else f"{path}: the bag is empty, it holds no message"
            )
        yield reader
    finally:
        # SQLite calls a database locked of which a reader stopped in the middle
        with suppress(Exception):
            reader.close()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a library raises about a damaged file into one clear BagError.

    Args:
        path: of the bag.
    """
    try:
        yield
    except BagError:
        raise
    # rosbags, sqlite, lz4, zstd and struct each have errors of their own for data that is cut off
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise BagError(
            f"{path}: the bag is cut off or damaged ({text}); try ros2 bag reindex or mcap recover"
        ) from error


def stored_in(path: Path) -> list[str]:
    """Names of the files with the messages of a bag, in their order, packed ones among them."""
    names = {
        p.name for p in path.iterdir() if Path(p.name.removesuffix(_COMPRESSED)).suffix in SUFFIXES
    }
    # a recorder that was killed while it packed a file leaves both, and the file is whole
    names -= {name + _COMPRESSED for name in names}
    return sorted(
        names,
        key=lambda name: [int(part) if part.isdigit() else part for part in _DIGITS.split(name)],
    )


def _is_of_many(path: Path) -> bool:
    """Whether files of a folder are not those of one recorder, which numbers them."""
    names = (name.removesuffix(_COMPRESSED) for name in stored_in(path))
    return len({_DIGITS.sub("0", name) for name in names}) > 1


def _check_path(path: Path) -> None:
    """Raise a BagError for what is wrong with a path before it is opened."""
    if not path.exists():
        raise BagError(f"{path}: no such bag; expected a rosbag2 folder, or a .mcap or .db3 file")
    if path.is_dir():
        if not (path / "metadata.yaml").exists():
            _check_folder(path)
    elif path.suffix == ".bag":
        raise _of_ros1(path)
    elif path.suffix == _COMPRESSED:
        raise BagError(
            f"{path}: a compressed file of a bag; pass its folder, {path.parent}, or unpack it: "
            f"zstd -d {path.name}"
        )
    elif path.suffix not in SUFFIXES:
        raise BagError(f"{path}: expected a rosbag2 folder, or a .mcap or .db3 file")
    elif path.stat().st_size == 0:
        raise BagError(f"{path}: the file is empty")


def _check_folder(path: Path) -> None:
    """Raise a BagError for what is wrong with a folder without metadata.yaml.

    A recorder that is killed leaves none; its files are read without it.
    """
    if stored := stored_in(path):
        if not _is_of_many(path):
            return
        shown = " ".join(stored[:_FILES]) + (" …" if len(stored) > _FILES else "")
        raise BagError(
            f"{path}: metadata.yaml is missing, and its {len(stored)} files ({shown}) are not named as those of "
            "one recording; pass the files themselves"
        )
    if any(path.glob("*.gpm")):
        raise BagError(f"{path}: a saved map, not a recording; give the bags it was made from")
    bags = sorted(p.parent.name for p in path.glob("*/metadata.yaml"))
    inside = f"; it holds {len(bags)}: name one, {path / bags[0]}, or all, {path}/*" if bags else ""
    old = min(path.glob("*.bag"), default=None)
    if old is not None and not bags:
        raise _of_ros1(old)
    raise BagError(f"{path}: not a rosbag2 folder, it has no metadata.yaml{inside}")


def _of_ros1(path: Path) -> BagError:
    """What to do with a bag of ROS 1."""
    new = path.with_suffix("").name
    return BagError(
        f"{path}: a bag of ROS 1; write one of ROS 2 from it: rosbags-convert --src {path.name} "
        f"--dst {new}, and pass {new}"
    )

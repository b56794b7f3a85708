"""Reads mcap files, also what is left of one that is cut off, damaged, or has no index.

A file that was closed in order is read by its index, through `rosbags`. Of any other the records
are looked at once from its beginning, and an index is made of all that are whole; messages are
read by it as of a whole file, one chunk at a time.

Reference: MCAP format specification, https://mcap.dev/spec.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

import numpy as np
from rosbags.interfaces import Connection
from rosbags.rosbag2.storage_mcap import McapReader

from gp_mapping.recording.mcap_records import (
    ENDING,
    HEADER,
    MAGIC,
    OPENING,
    Block,
    DamagedError,
    Index,
    messages_in,
    unpacked,
)
from gp_mapping.recording.mcap_scan import Scan

__all__ = ["McapFile"]

_INDEXES = 8  # files whose index is kept, since a command opens a bag several times


class McapFile(McapReader):
    """One mcap file, of which all that is whole is read; to be used by a rosbags Reader.

    Args:
        path: of the file.
    """

    _indexes: ClassVar[OrderedDict[tuple, Index]] = OrderedDict()

    def __init__(self, path: Path):
        super().__init__(path)
        self._index = Index()

    def open(self) -> None:
        """Open the file, by its index, or by what is left of it.

        Raises:
            ReaderError: it is of ROS 1, or no mcap file at all.
        """
        status = self.path.stat()
        key = (str(self.path), status.st_size, status.st_mtime_ns)
        known = McapFile._indexes.get(key)
        if known is None:
            try:
                super().open()
                if self._has_index():
                    self._index = self._own_index()
                    return
                self.close()
                known = Index()
            except Exception as error:  # rosbags, struct and codecs have errors of their own
                if self.bio is not None:
                    self.close()
                known = Index(why=" ".join(str(error).split()) or type(error).__name__)
                _require_ros2(self.path, error)
            with self.path.open("rb") as file:
                Scan(file, status.st_size, known).run()
            McapFile._indexes[key] = known
            while len(McapFile._indexes) > _INDEXES:
                McapFile._indexes.popitem(last=False)

        self.bio = self.path.open("rb")
        self._index = known
        self._show(known)

    def _has_index(self) -> bool:
        """Whether all messages can be found by the index that the file itself has."""
        there: Counter[int] = Counter()
        for chunk in self.chunks:
            there.update(chunk.channel_count)
        promised = {c.id: c.msgcount for c in self.connections if c.msgcount}
        if sum(promised.values()) != self.metadata.message_count:
            raise DamagedError("its numbers of messages disagree")

        self.bio.seek(-ENDING.size - len(MAGIC), 2)
        begin, _, checksum = ENDING.unpack(self.bio.read(ENDING.size))
        if checksum and begin:
            end = self.bio.tell() - 4
            self.bio.seek(begin)
            if crc32(self.bio.read(end - begin)) != checksum:
                raise DamagedError("its checksum is wrong")
        return there == promised

    def _own_index(self) -> Index:
        """The file's own index."""
        index = Index(ended=True)
        index.blocks = [
            Block(
                c.chunk_start_offset + OPENING.size + 40 + len(c.compression.encode()),
                c.compressed_size,
                c.compression,
                c.uncompressed_size,
                -1,
                c.message_start_time,
                c.message_end_time,
                c.channel_count,
            )
            for c in self.chunks
        ]
        return index

    def _show(self, index: Index) -> None:
        """Be the reader of a file of this index."""
        counts: Counter[int] = Counter()
        for block in index.blocks:
            counts.update(block.counts)
        self.connections = [
            c._replace(msgcount=counts[c.id], owner=self) for c in index.connections.values()
        ]

        total = sum(connection.msgcount for connection in self.connections)
        if total:
            first = min(block.first for block in index.blocks)
            end = max(block.last for block in index.blocks) + 1
            self.metadata = self.metadata._replace(
                duration=end - first, start_time=first, end_time=end, message_count=total
            )

    @property
    def damage(self) -> str:
        """What is not read of the file, as far as is known by now, in words; "" where all is."""
        index, words = self._index, []
        if index.cut_chunk:
            size, whole = index.cut_chunk
            words.append(f"cut off in a chunk, of whose {size} bytes {whole} are whole messages")
        elif not index.ended:
            words.append(f"cut off, {index.lost_at_end} bytes at its end are lost")
        elif index.why:
            words.append(f"the index is damaged ({index.why[:100]})")
        if index.damaged:
            n, size = len(index.damaged), sum(index.damaged.values())
            words.append(f"{n} damaged chunk{'s' * (n > 1)} of {size} bytes left out")

        known = set(index.connections) or {c.id for c in self.connections}
        unknown = sum(
            n for b in index.blocks for channel, n in b.counts.items() if channel not in known
        )
        if unknown:
            words.append(f"{unknown} messages lost whose topic is not known")
        return f"{self.path.name}: {', '.join(words)}" if words else ""

    def messages(
        self,
        connections: Collection[Connection],
        start: int | None = None,
        stop: int | None = None,
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """Messages by their stamps; a chunk that turns out to be damaged is left out.

        Args:
            connections: whose messages are read.
            start: ns; None: from the first one.
            stop: ns; None: to the last one.

        Yields:
            Connection, stamp in ns, bytes.
        """
        wanted = {connection.id: connection for connection in connections}
        low, high = -1 if start is None else start, 2**64 if stop is None else stop
        blocks = [
            block
            for block in self._index.blocks
            if low <= block.last
            and block.first < high
            and not wanted.keys().isdisjoint(block.counts)
        ]
        # a block is read once all messages before its first one are out
        held = _Messages.none()
        for block in sorted(blocks, key=lambda block: (max(block.first, low), block.offset)):
            ready, held = held.split(max(block.first, low), block.offset)
            yield from ready.rows()
            held = held.merged(self._messages_of(block, wanted, low, high))
        yield from held.rows()

    def _messages_of(
        self, block: Block, wanted: dict[int, Connection], low: int, high: int
    ) -> _Messages:
        """Messages of a block in order; none where it is damaged.

        Args:
            block: where they are.
            wanted: connections that are read, by channel.
            low: first stamp, ns.
            high: stamp after the last, ns.
        """
        try:
            raw = unpacked(self.bio, block)
            found = [
                (wanted[channel], stamp, raw[begin:end])
                for channel, stamp, begin, end in messages_in(raw)
                if channel in wanted and low <= stamp < high
            ]
        except Exception:  # of lz4, zstd or struct, or DamagedError
            self._index.damaged[block.offset] = block.stored
            return _Messages.none()
        if not found:
            return _Messages.none()
        connections, stamps, data = map(list, zip(*found))
        return _Messages(
            connections, np.array(stamps), data, np.full(len(stamps), block.offset)
        ).in_order()


class _Messages(NamedTuple):
    """Messages of some blocks, in the order of their stamps, then of blocks, then within a block.

    Attributes:
        connections: of each.
        stamps: (n,) int64 ns.
        data: bytes of each.
        offsets: (n,) of the block of each.
    """

    connections: list[Any]
    stamps: np.ndarray
    data: list[bytes]
    offsets: np.ndarray

    @staticmethod
    def none() -> _Messages:
        """No message."""
        return _Messages([], np.empty(0, np.int64), [], np.empty(0, np.int64))

    def rows(self) -> Iterator[tuple[Any, int, bytes]]:
        """Connection, stamp and bytes of each."""
        return zip(self.connections, self.stamps.tolist(), self.data)

    def in_order(self) -> _Messages:
        """The same in order, where those of one block are in the order of the file."""
        order = np.lexsort((self.offsets, self.stamps))
        if (np.diff(order) == 1).all():
            return self
        numbers = order.tolist()
        return _Messages(
            [self.connections[i] for i in numbers],
            self.stamps[order],
            [self.data[i] for i in numbers],
            self.offsets[order],
        )

    def merged(self, other: _Messages) -> _Messages:
        """These and those of another block."""
        if not self.data:
            return other
        return _Messages(
            self.connections + other.connections,
            np.concatenate([self.stamps, other.stamps]),
            self.data + other.data,
            np.concatenate([self.offsets, other.offsets]),
        ).in_order()

    def split(self, stamp: int, offset: int) -> tuple[_Messages, _Messages]:
        """Those before a block, and the others.

        Args:
            stamp: of the block's first message, ns.
            offset: of the block.
        """
        before = (self.stamps < stamp) | ((self.stamps == stamp) & (self.offsets < offset))
        n = int(before.sum())
        if n == len(self.data):
            return self, _Messages.none()
        return (
            _Messages(self.connections[:n], self.stamps[:n], self.data[:n], self.offsets[:n]),
            _Messages(self.connections[n:], self.stamps[n:], self.data[n:], self.offsets[n:]),
        )


def _require_ros2(path: Path, error: Exception) -> None:
    """Raise the error of opening a file that is no mcap file of ROS 2 at all."""
    with path.open("rb") as file:
        opening = file.read(len(MAGIC) + OPENING.size + 4 + 4)
    if opening[:8] != MAGIC or opening[8:9] != bytes([HEADER]) or opening[21:] != b"ros2":
        raise error

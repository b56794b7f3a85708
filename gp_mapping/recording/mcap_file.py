"""Reads mcap files, also what is left of one that is cut off, damaged, or has no index.

A file that was closed in order is read by its index, through `rosbags`. Of any other the records
are looked at once from its beginning, and an index is made of all that are whole; messages are
read by it as of a whole file, one chunk at a time.

Reference: MCAP format specification, https://mcap.dev/spec.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

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
            self._messages_of(block, wanted, low, high)
            for block in self._index.blocks
            if low <= block.last
            and block.first < high
            and not wanted.keys().isdisjoint(block.counts)
        ]
        for stamp, _, number, connection, data in heapq.merge(*blocks):
            if number >= 0:
                yield connection, stamp, data

    def _messages_of(
        self, block: Block, wanted: dict[int, Connection], low: int, high: int
    ) -> Iterator[tuple[int, int, int, Any, bytes]]:
        """Messages of a block in order, after an entry, numbered -1, that costs no reading.

        Args:
            block: where they are.
            wanted: connections that are read, by channel.
            low: first stamp, ns.
            high: stamp after the last, ns.

        Yields:
            Stamp, offset of the block, number in the block, connection, bytes.
        """
        yield max(block.first, low), block.offset, -1, None, b""
        try:
            raw = unpacked(self.bio, block)
            found = [
                (stamp, begin, end, wanted[channel])
                for channel, stamp, begin, end in messages_in(raw)
                if channel in wanted and low <= stamp < high
            ]
        except Exception:  # of lz4, zstd or struct, or DamagedError
            self._index.damaged[block.offset] = block.stored
            return
        found.sort(key=lambda message: message[0])
        for number, (stamp, begin, end, connection) in enumerate(found):
            yield stamp, block.offset, number, connection, raw[begin:end]


def _require_ros2(path: Path, error: Exception) -> None:
    """Raise the error of opening a file that is no mcap file of ROS 2 at all."""
    with path.open("rb") as file:
        opening = file.read(len(MAGIC) + OPENING.size + 4 + 4)
    if opening[:8] != MAGIC or opening[8:9] != bytes([HEADER]) or opening[21:] != b"ros2":
        raise error

"""Reads mcap files, also what is left of one that is cut off, damaged, or has no index.

A file that was closed in order is read by its index, through `rosbags`. Of any other the records
are looked at once from its beginning, and an index is made of all that are whole; messages are
read by it as of a whole file, one chunk at a time.

Reference: MCAP format specification, https://mcap.dev/spec.
"""

from __future__ import annotations

import heapq
import re
import struct
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple
from zlib import crc32

from lz4.frame import LZ4FrameDecompressor
from rosbags.interfaces import (
    Connection,
    ConnectionExtRosbag2,
    MessageDefinition,
    MessageDefinitionFormat,
)
from rosbags.rosbag2.metadata import parse_qos
from rosbags.rosbag2.storage_mcap import McapReader

from gp_mapping.recording.stored_bytes import unpack_zstd

__all__ = ["McapFile"]

_MAGIC = b"\x89MCAP0\r\n"
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _MESSAGE_INDEX, _DATA_END = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    15,
)
_OPENING = struct.Struct("<BQ")  # of each record: opcode, length
_OF_MESSAGE = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
_ENDING = struct.Struct("<QQI")  # of a footer: where the index begins, where its parts, checksum
_OF_CHUNK = struct.Struct("<QQQI")  # first and last log time, size, checksum
_FORMATS = {"ros2msg": "MSG", "ros2idl": "IDL", "omgidl": "IDL"}

_TOGETHER = 2**20  # bytes of messages outside chunks that are read at once
_LARGEST = 2**30  # bytes of a chunk, unpacked, or of another record; more is damage
_NO_RECORD = frozenset([0, *range(16, 128)])  # opcodes
_CHUNK_HEAD = 64  # bytes of a chunk's opening, at most
# opcode, length, stamps, size, checksum, compression with its length, length of what is stored
_CHUNK_OPENING = re.compile(
    rb"\x06(?=(.{8}).{28}(\0{4}|\x03\0{3}lz4|\x04\0{3}zstd)(.{8}))", re.DOTALL
)
_LATEST = 2**63 - 1  # stamp that ROS can hold, ns
_INDEXES = 8  # files whose index is kept, since a command opens a bag several times


class _Damaged(Exception):
    """Bytes that are not what they should be."""


class _Block(NamedTuple):
    """Messages that are stored, and read, together.

    Attributes:
        offset: of the stored bytes in the file.
        stored: how many there are.
        compression: "", lz4 or zstd.
        size: bytes, unpacked, that are whole records.
        checksum: CRC-32 of these bytes; 0: unknown.
        first: stamp, ns.
        last: stamp, ns.
        counts: messages, by channel.
    """

    offset: int
    stored: int
    compression: str
    size: int
    checksum: int
    first: int
    last: int
    counts: dict[int, int]


@dataclass
class _Index:
    """What a file holds.

    Attributes:
        connections: channel -> its connection.
        blocks: in the order of the file.
        damaged: offset -> bytes of chunks that are left out.
        lost_at_end: bytes that are no whole record.
        cut_chunk: bytes, unpacked, of the chunk in which the file ends, and how many are read.
        ended: whether the end of the messages is there.
        why: what is wrong with the file's own index.
    """

    connections: dict[int, Connection] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)
    damaged: dict[int, int] = field(default_factory=dict)
    lost_at_end: int = 0
    cut_chunk: tuple[int, int] | None = None
    ended: bool = False
    why: str = ""


class McapFile(McapReader):
    """One mcap file, of which all that is whole is read; to be used by a rosbags Reader.

    Args:
        path: of the file.
    """

    _indexes: ClassVar[OrderedDict[tuple, _Index]] = OrderedDict()

    def __init__(self, path: Path):
        super().__init__(path)
        self._index = _Index()

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
                known = _Index()
            except Exception as error:  # rosbags, struct and codecs have errors of their own
                known = _Index(why=" ".join(str(error).split()) or type(error).__name__)
                _require_ros2(self.path, error)
            with self.path.open("rb") as file:
                _Scan(file, status.st_size, known).run()
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
            raise _Damaged("its numbers of messages disagree")

        self.bio.seek(-_ENDING.size - len(_MAGIC), 2)
        begin, _, checksum = _ENDING.unpack(self.bio.read(_ENDING.size))
        if checksum and begin:
            end = self.bio.tell() - 4
            self.bio.seek(begin)
            if crc32(self.bio.read(end - begin)) != checksum:
                raise _Damaged("its checksum is wrong")
        return there == promised

    def _own_index(self) -> _Index:
        """The file's own index."""
        index = _Index(ended=True)
        index.blocks = [
            _Block(
                c.chunk_start_offset + _OPENING.size + 40 + len(c.compression.encode()),
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

    def _show(self, index: _Index) -> None:
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
        self, block: _Block, wanted: dict[int, Connection], low: int, high: int
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
            raw = _unpacked(self.bio, block)
            found = [
                (stamp, begin, end, wanted[channel])
                for channel, stamp, begin, end in _messages_in(raw)
                if channel in wanted and low <= stamp < high
            ]
        except Exception:  # of lz4, zstd or struct, or _Damaged
            self._index.damaged[block.offset] = block.stored
            return
        found.sort(key=lambda message: message[0])
        for number, (stamp, begin, end, connection) in enumerate(found):
            yield stamp, block.offset, number, connection, raw[begin:end]


class _Scan:
    """Looks at all records of a file from its beginning, and makes an index of it.

    Args:
        file: that is read.
        size: of the file, bytes.
        index: that is made.
    """

    def __init__(self, file: BinaryIO, size: int, index: _Index):
        self._file, self._size, self._index = file, size, index
        self._schemas: dict[int, tuple[str, MessageDefinition]] = {}
        # messages outside chunks that are to become a block: begin, end, stamps, counts
        self._open: tuple[int, int, int, int, Counter[int]] | None = None
        # a damaged chunk, whose messages are counted by the indexes that follow it
        self._left_out: _Block | None = None

    def run(self) -> None:
        """Look at the records; where there is none, go on at the next chunk."""
        position = len(_MAGIC)
        while position + _OPENING.size <= self._size:
            self._file.seek(position)
            op, length = _OPENING.unpack(self._file.read(_OPENING.size))
            end = position + _OPENING.size + length
            if op in (_FOOTER, _DATA_END):
                self._index.ended = True
                break
            if op in _NO_RECORD or end > self._size:
                following = self._next_chunk(position + 1)
                if following < 0:
                    if op == _CHUNK and end > self._size:
                        position = self._cut_chunk(position)
                    break
                self._close_block()
                self._close_left_out()
                self._index.damaged[position] = following - position
                position = following
                continue
            self._take(op, position, end)
            position = end

        self._close_block()
        self._close_left_out()
        self._index.lost_at_end = 0 if self._index.ended else self._size - position

    def _next_chunk(self, position: int) -> int:
        """Where the next chunk begins, from a position on; -1 where there is none.

        Its length, and the length of what is stored in it, fit together.
        """
        while position < self._size:
            self._file.seek(position)
            window = self._file.read(_TOGETHER + _CHUNK_HEAD)
            for match in _CHUNK_OPENING.finditer(window):
                length, name, stored = match.groups()
                inner = 40 + len(name) - 4 + int.from_bytes(stored, "little")
                if int.from_bytes(length, "little") == inner and match.start() < _TOGETHER:
                    return position + match.start()
            position += _TOGETHER
        return -1

    def _take(self, op: int, position: int, end: int) -> None:
        """Take in a whole record of the file.

        Args:
            op: its opcode.
            position: of its first byte.
            end: after its last byte.
        """
        begin = position + _OPENING.size
        if op == _MESSAGE and end - begin >= _OF_MESSAGE.size:
            channel, _, stamp, _ = _OF_MESSAGE.unpack(self._file.read(_OF_MESSAGE.size))
            if stamp <= _LATEST:
                self._add_message(position, end, channel, stamp)
                return

        self._close_block()
        if op == _MESSAGE_INDEX:
            self._count_left_out(begin, end)
            return
        self._close_left_out()
        try:
            if op == _CHUNK:
                block = self._chunk_at(begin, end)
                self._left_out = block
                self._add(block, _unpacked(self._file, block))
                self._left_out = None
            elif op == _MESSAGE:
                raise _Damaged
            elif op in (_SCHEMA, _CHANNEL) and end - begin <= _LARGEST:
                self._learn(op, self._file.read(end - begin))
        except Exception:  # of lz4, zstd or struct, or _Damaged
            left = self._left_out
            offset, size = (begin, end - begin) if left is None else (left.offset, left.stored)
            self._index.damaged[offset] = size

    def _add_message(self, position: int, end: int, channel: int, stamp: int) -> None:
        """Add a message outside chunks to the open block."""
        if self._open is None:
            self._open = (position, end, stamp, stamp, Counter())
        first, _, low, high, counts = self._open
        counts[channel] += 1
        self._open = (first, end, min(low, stamp), max(high, stamp), counts)
        if end - first >= _TOGETHER:
            self._close_block()

    def _close_block(self) -> None:
        """Make a block of the messages outside chunks so far."""
        if self._open is not None:
            first, end, low, high, counts = self._open
            self._index.blocks.append(
                _Block(first, end - first, "", end - first, 0, low, high, dict(counts))
            )
            self._open = None

    def _chunk_at(self, begin: int, end: int) -> _Block:
        """A chunk whose contents are not known yet.

        Args:
            begin: of its record, after the opcode and the length.
            end: of what is there of it.
        """
        self._file.seek(begin)
        first, last, size, checksum = _OF_CHUNK.unpack(self._file.read(_OF_CHUNK.size))
        (length,) = struct.unpack("<I", self._file.read(4))
        if length > 16:  # lz4, zstd: a longer name is none
            raise _Damaged
        compression = self._file.read(length).decode()
        (stored,) = struct.unpack("<Q", self._file.read(8))
        offset = self._file.tell()
        return _Block(
            offset, min(stored, max(end - offset, 0)), compression, size, checksum, first, last, {}
        )

    def _count_left_out(self, begin: int, end: int) -> None:
        """Count messages of a chunk that is left out, by the index of one channel of it."""
        if self._left_out is not None and 6 <= end - begin <= _LARGEST:
            channel, size = struct.unpack("<HI", self._file.read(6))
            self._left_out.counts[channel] = size // 16

    def _close_left_out(self) -> None:
        """Add a chunk that is left out, if its messages are known: whoever reads it counts them."""
        if self._left_out is not None and self._left_out.counts:
            self._index.blocks.append(self._left_out)
        self._left_out = None

    def _cut_chunk(self, position: int) -> int:
        """Add the whole records of a chunk that is cut off; returns where what is lost begins."""
        try:
            block = self._chunk_at(position + _OPENING.size, self._size)
            raw = _unpacked(self._file, block._replace(checksum=0), cut=True)
            whole = _end_of_whole(raw)
            stored = block.stored if block.compression else whole
            part = block._replace(stored=stored, size=whole, checksum=0)
            if self._add(part, raw[:whole]):
                self._index.cut_chunk = block.size, whole
                return block.offset + stored
        except Exception:  # as in _take
            pass
        return position

    def _add(self, block: _Block, raw: bytes) -> bool:
        """Add a block of these bytes, unpacked; returns whether it has messages."""
        counts: Counter[int] = Counter()
        low, high = 2**64, -1
        for channel, stamp, _, _ in _messages_in(raw, self._learn):
            counts[channel] += 1
            low, high = min(low, stamp), max(high, stamp)
        if counts:
            self._index.blocks.append(block._replace(first=low, last=high, counts=dict(counts)))
        return bool(counts)

    def _learn(self, op: int, data: bytes) -> None:
        """Learn a schema, or a channel, from the bytes of its record.

        Args:
            op: which of them it is.
            data: the bytes.
        """
        if op == _SCHEMA:
            (key,) = struct.unpack_from("<H", data)
            name, position = _text(data, 2)
            encoding, position = _text(data, position)
            text, _ = _text(data, position)
            kind = MessageDefinitionFormat[_FORMATS.get(encoding, "NONE")]
            self._schemas[key] = name, MessageDefinition(kind, text)
            return

        key, schema = struct.unpack_from("<HH", data)
        if key in self._index.connections:
            return
        topic, position = _text(data, 4)
        encoding, position = _text(data, position)
        qos = _pairs(data, position).get("offered_qos_profiles")
        none = "__schemaless__", MessageDefinition(MessageDefinitionFormat.NONE, "")
        name, definition = self._schemas.get(schema, none)
        extension = ConnectionExtRosbag2(encoding, [] if qos is None else parse_qos(qos))
        self._index.connections[key] = Connection(
            key, topic, name, definition, "", 0, extension, None
        )


def _require_ros2(path: Path, error: Exception) -> None:
    """Raise the error of opening a file that is no mcap file of ROS 2 at all."""
    with path.open("rb") as file:
        opening = file.read(len(_MAGIC) + _OPENING.size + 4 + 4)
    if opening[:8] != _MAGIC or opening[8:9] != bytes([_HEADER]) or opening[21:] != b"ros2":
        raise error


def _unpacked(file: BinaryIO, block: _Block, cut: bool = False) -> bytes:
    """Unpack the bytes of a block.

    Args:
        file: where it is.
        block: which.
        cut: whether bytes are missing at the end.

    Raises:
        _Damaged: they are not what they should be; lz4 and zstd raise errors of their own as well.
    """
    if block.size > _LARGEST:
        raise _Damaged
    checksum = block.checksum
    if checksum < 0:  # it is in the chunk alone, not in the index
        file.seek(block.offset - len(block.compression.encode()) - 16)
        (checksum,) = struct.unpack("<I", file.read(4))

    file.seek(block.offset)
    raw = file.read(min(block.stored, _LARGEST))
    if block.compression == "lz4":
        raw = LZ4FrameDecompressor().decompress(raw, max_length=block.size)
    elif block.compression == "zstd":
        raw = unpack_zstd(raw, block.size)
    elif block.compression:
        raise _Damaged
    if not cut and (len(raw) != block.size or (checksum and crc32(raw) != checksum)):
        raise _Damaged
    return raw


def _messages_in(raw: bytes, learn=None) -> Iterator[tuple[int, int, int, int]]:
    """Messages in the bytes of a block: channel, stamp in ns, begin and end of the data.

    Args:
        raw: the bytes.
        learn: called with the opcode and the bytes of schemas and channels.

    Raises:
        _Damaged: there is something that is no record.
    """
    position, size = 0, len(raw)
    while position < size:
        if position + _OPENING.size > size:
            raise _Damaged
        op, length = _OPENING.unpack_from(raw, position)
        begin = position + _OPENING.size
        position = begin + length
        if op in _NO_RECORD or position > size or (op == _MESSAGE and length < _OF_MESSAGE.size):
            raise _Damaged
        if op == _MESSAGE:
            channel, _, stamp, _ = _OF_MESSAGE.unpack_from(raw, begin)
            if stamp > _LATEST:
                raise _Damaged
            yield channel, stamp, begin + _OF_MESSAGE.size, position
        elif learn is not None and op in (_SCHEMA, _CHANNEL):
            learn(op, raw[begin:position])


def _end_of_whole(raw: bytes) -> int:
    """Where the whole records at the beginning of these bytes end."""
    position = 0
    while position + _OPENING.size <= len(raw):
        op, length = _OPENING.unpack_from(raw, position)
        end = position + _OPENING.size + length
        if op in _NO_RECORD or end > len(raw) or (op == _MESSAGE and length < _OF_MESSAGE.size):
            break
        position = end
    return position


def _text(data: bytes, position: int) -> tuple[str, int]:
    """A text that begins with its length, and where it ends."""
    (length,) = struct.unpack_from("<I", data, position)
    end = position + 4 + length
    if end > len(data):
        raise _Damaged
    return data[position + 4 : end].decode(), end


def _pairs(data: bytes, position: int) -> dict[str, str]:
    """Names and values that begin with their length."""
    (length,) = struct.unpack_from("<I", data, position)
    pairs, position, end = {}, position + 4, position + 4 + length
    while position < end:
        name, position = _text(data, position)
        pairs[name], position = _text(data, position)
    return pairs

"""Makes an index of an mcap file that has none, of all records that are whole."""

from __future__ import annotations

import re
import struct
from collections import Counter
from typing import BinaryIO

from rosbags.interfaces import (
    Connection,
    ConnectionExtRosbag2,
    MessageDefinition,
    MessageDefinitionFormat,
)
from rosbags.rosbag2.metadata import parse_qos

from gp_mapping.recording.mcap_records import (
    CHANNEL,
    CHUNK,
    DATA_END,
    FOOTER,
    LARGEST,
    LATEST,
    MAGIC,
    MESSAGE,
    MESSAGE_INDEX,
    NO_RECORD,
    OF_CHUNK,
    OF_MESSAGE,
    OPENING,
    SCHEMA,
    Block,
    DamagedError,
    Index,
    end_of_whole,
    messages_in,
    pairs_at,
    text_at,
    unpacked,
)

__all__ = ["Scan"]

_FORMATS = {"ros2msg": "MSG", "ros2idl": "IDL", "omgidl": "IDL"}
_TOGETHER = 2**20  # bytes of messages outside chunks that are read at once
_CHUNK_HEAD = 64  # bytes of a chunk's opening, at most
# opcode, length, stamps, size, checksum, compression with its length, length of what is stored
_CHUNK_OPENING = re.compile(
    rb"\x06(?=(.{8}).{28}(\0{4}|\x03\0{3}lz4|\x04\0{3}zstd)(.{8}))", re.DOTALL
)


class Scan:
    """Looks at all records of a file from its beginning, and makes an index of it.

    Args:
        file: that is read.
        size: of the file, bytes.
        index: that is made.
    """

    def __init__(self, file: BinaryIO, size: int, index: Index):
        self._file, self._size, self._index = file, size, index
        self._schemas: dict[int, tuple[str, MessageDefinition]] = {}
        # messages outside chunks that are to become a block: begin, end, stamps, counts
        self._open: tuple[int, int, int, int, Counter[int]] | None = None
        # a damaged chunk, whose messages are counted by the indexes that follow it
        self._left_out: Block | None = None

    def run(self) -> None:
        """Look at the records; where there is none, go on at the next chunk."""
        position = len(MAGIC)
        while position + OPENING.size <= self._size:
            self._file.seek(position)
            op, length = OPENING.unpack(self._file.read(OPENING.size))
            end = position + OPENING.size + length
            if op in (FOOTER, DATA_END):
                self._index.ended = True
                break
            if op in NO_RECORD or end > self._size:
                following = self._next_chunk(position + 1)
                if following < 0:
                    if op == CHUNK and end > self._size:
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
        begin = position + OPENING.size
        if op == MESSAGE and end - begin >= OF_MESSAGE.size:
            channel, _, stamp, _ = OF_MESSAGE.unpack(self._file.read(OF_MESSAGE.size))
            if stamp <= LATEST:
                self._add_message(position, end, channel, stamp)
                return

        self._close_block()
        if op == MESSAGE_INDEX:
            self._count_left_out(begin, end)
            return
        self._close_left_out()
        try:
            if op == CHUNK:
                block = self._chunk_at(begin, end)
                self._left_out = block
                self._add(block, unpacked(self._file, block))
                self._left_out = None
            elif op == MESSAGE:
                raise DamagedError
            elif op in (SCHEMA, CHANNEL) and end - begin <= LARGEST:
                self._learn(op, self._file.read(end - begin))
        except Exception:  # of lz4, zstd or struct, or DamagedError
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
                Block(first, end - first, "", end - first, 0, low, high, dict(counts))
            )
            self._open = None

    def _chunk_at(self, begin: int, end: int) -> Block:
        """A chunk whose contents are not known yet.

        Args:
            begin: of its record, after the opcode and the length.
            end: of what is there of it.
        """
        self._file.seek(begin)
        first, last, size, checksum = OF_CHUNK.unpack(self._file.read(OF_CHUNK.size))
        (length,) = struct.unpack("<I", self._file.read(4))
        if length > 16:  # lz4, zstd: a longer name is none
            raise DamagedError
        compression = self._file.read(length).decode()
        (stored,) = struct.unpack("<Q", self._file.read(8))
        offset = self._file.tell()
        return Block(
            offset, min(stored, max(end - offset, 0)), compression, size, checksum, first, last, {}
        )

    def _count_left_out(self, begin: int, end: int) -> None:
        """Count messages of a chunk that is left out, by the index of one channel of it."""
        if self._left_out is not None and 6 <= end - begin <= LARGEST:
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
            block = self._chunk_at(position + OPENING.size, self._size)
            raw = unpacked(self._file, block._replace(checksum=0), cut=True)
            whole = end_of_whole(raw)
            stored = block.stored if block.compression else whole
            part = block._replace(stored=stored, size=whole, checksum=0)
            if self._add(part, raw[:whole]):
                self._index.cut_chunk = block.size, whole
                return block.offset + stored
        except Exception:  # as in _take
            pass
        return position

    def _add(self, block: Block, raw: bytes) -> bool:
        """Add a block of these bytes, unpacked; returns whether it has messages."""
        counts: Counter[int] = Counter()
        low, high = 2**64, -1
        for channel, stamp, _, _ in messages_in(raw, self._learn):
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
        if op == SCHEMA:
            (key,) = struct.unpack_from("<H", data)
            name, position = text_at(data, 2)
            encoding, position = text_at(data, position)
            text, _ = text_at(data, position)
            kind = MessageDefinitionFormat[_FORMATS.get(encoding, "NONE")]
            self._schemas[key] = name, MessageDefinition(kind, text)
            return

        key, schema = struct.unpack_from("<HH", data)
        if key in self._index.connections:
            return
        topic, position = text_at(data, 4)
        encoding, position = text_at(data, position)
        qos = pairs_at(data, position).get("offered_qos_profiles")
        none = "__schemaless__", MessageDefinition(MessageDefinitionFormat.NONE, "")
        name, definition = self._schemas.get(schema, none)
        extension = ConnectionExtRosbag2(encoding, [] if qos is None else parse_qos(qos))
        self._index.connections[key] = Connection(
            key, topic, name, definition, "", 0, extension, None
        )

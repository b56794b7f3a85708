"""Records of an mcap file: what is known of their layout, and how they are unpacked.

Reference: MCAP format specification, https://mcap.dev/spec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple
from zlib import crc32

from rosbags.interfaces import Connection

from gp_mapping.recording.stored_bytes import LZ4, unpack_zstd

__all__ = [
    "CHANNEL",
    "CHUNK",
    "DATA_END",
    "ENDING",
    "FOOTER",
    "HEADER",
    "LARGEST",
    "LATEST",
    "MAGIC",
    "MESSAGE",
    "MESSAGE_INDEX",
    "NO_RECORD",
    "OF_CHUNK",
    "OF_MESSAGE",
    "OPENING",
    "SCHEMA",
    "Block",
    "DamagedError",
    "Index",
    "end_of_whole",
    "messages_in",
    "pairs_at",
    "text_at",
    "unpacked",
]

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, DATA_END = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    15,
)
OPENING = struct.Struct("<BQ")  # of each record: opcode, length
OF_MESSAGE = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
_HEAD = struct.Struct("<BQHIQ")  # a record's opening and, of a message, what it begins with
ENDING = struct.Struct("<QQI")  # of a footer: where the index begins, where its parts, checksum
OF_CHUNK = struct.Struct("<QQQI")  # first and last log time, size, checksum

LARGEST = 2**30  # bytes of a chunk, unpacked, or of another record; more is damage
NO_RECORD = frozenset([0, *range(16, 128)])  # opcodes
LATEST = 2**63 - 1  # stamp that ROS can hold, ns


class DamagedError(Exception):
    """Bytes that are not what they should be."""


class Block(NamedTuple):
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
class Index:
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
    blocks: list[Block] = field(default_factory=list)
    damaged: dict[int, int] = field(default_factory=dict)
    lost_at_end: int = 0
    cut_chunk: tuple[int, int] | None = None
    ended: bool = False
    why: str = ""


def unpacked(file: BinaryIO, block: Block, cut: bool = False) -> bytes:
    """Unpack the bytes of a block.

    Args:
        file: where it is.
        block: which.
        cut: whether bytes are missing at the end.

    Raises:
        DamagedError: they are not what they should be; lz4 and zstd have errors of their own.
    """
    if block.size > LARGEST:
        raise DamagedError
    checksum = block.checksum
    if checksum < 0:  # it is in the chunk alone, not in the index
        file.seek(block.offset - len(block.compression.encode()) - 16)
        (checksum,) = struct.unpack("<I", file.read(4))

    file.seek(block.offset)
    raw = file.read(min(block.stored, LARGEST))
    if block.compression == "lz4":
        raw = LZ4.LZ4FrameDecompressor().decompress(raw, max_length=block.size)
    elif block.compression == "zstd":
        raw = unpack_zstd(raw, block.size)
    elif block.compression:
        raise DamagedError
    if not cut and (len(raw) != block.size or (checksum and crc32(raw) != checksum)):
        raise DamagedError
    return raw


def messages_in(
    raw: bytes, learn: Callable[[int, bytes], None] | None = None
) -> Iterator[tuple[int, int, int, int]]:
    """Messages in the bytes of a block: channel, stamp in ns, begin and end of the data.

    Args:
        raw: the bytes.
        learn: called with the opcode and the bytes of schemas and channels.

    Raises:
        DamagedError: there is something that is no record.
    """
    position, size, opening, of_message = 0, len(raw), OPENING.size, OF_MESSAGE.size
    unpack, last = _HEAD.unpack_from, size - _HEAD.size
    while position < size:
        if position > last:  # no message fits in here
            op, length, channel, stamp = *_opening_at(raw, position), 0, 0
        else:
            op, length, channel, _, stamp = unpack(raw, position)
        begin = position + opening
        position = begin + length
        if position > size or op in NO_RECORD:
            raise DamagedError
        if op == MESSAGE:
            if length < of_message or stamp > LATEST:
                raise DamagedError
            yield channel, stamp, begin + of_message, position
        elif learn is not None and op in (SCHEMA, CHANNEL):
            learn(op, raw[begin:position])


def _opening_at(raw: bytes, position: int) -> tuple[int, int]:
    """Opcode and length of a record; DamagedError where the bytes end within them."""
    if position + OPENING.size > len(raw):
        raise DamagedError
    return OPENING.unpack_from(raw, position)


def end_of_whole(raw: bytes) -> int:
    """Where the whole records at the beginning of these bytes end."""
    position = 0
    while position + OPENING.size <= len(raw):
        op, length = OPENING.unpack_from(raw, position)
        end = position + OPENING.size + length
        if op in NO_RECORD or end > len(raw) or (op == MESSAGE and length < OF_MESSAGE.size):
            break
        position = end
    return position


def text_at(data: bytes, position: int) -> tuple[str, int]:
    """A text that begins with its length, and where it ends."""
    (length,) = struct.unpack_from("<I", data, position)
    end = position + 4 + length
    if end > len(data):
        raise DamagedError
    return data[position + 4 : end].decode(), end


def pairs_at(data: bytes, position: int) -> dict[str, str]:
    """Names and values that begin with their length."""
    (length,) = struct.unpack_from("<I", data, position)
    pairs, position, end = {}, position + 4, position + 4 + length
    while position < end:
        name, position = text_at(data, position)
        pairs[name], position = text_at(data, position)
    return pairs

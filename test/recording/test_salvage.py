"""Recordings whose robot lost its power: all that is whole is read, and what is not is said."""

import random
import shutil
import sqlite3
import struct
from zlib import crc32

import lz4.frame
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import McapReader
from split_bag import joined

from gp_mapping.recording.bag import STORE, BagError, bag_topics, read_raw
from gp_mapping.recording.mcap_file import McapFile
from gp_mapping.recording.position import Position

TEXT = "std_msgs/msg/String"
NOTHING = "no message is left|cut off or damaged|the file is empty"


def write(path, compression="", begin=0, chunks=5, each=6):
    """A bag of several chunks; messages of two topics, one of them late, and of different sizes."""
    options = {"version": 9, "storage_plugin": StoragePlugin.MCAP}
    with Writer(path, **options) as writer:
        storage = writer.storage
        if compression:
            storage.compression = compression
            storage.compressor = {"lz4": lz4.frame.compress, "zstd": _zstd}[compression]
        topics = [writer.add_connection(name, TEXT, typestore=STORE) for name in ("/a", "/b")]
        for i in range(begin, begin + chunks * each):
            text = STORE.serialize_cdr(STORE.types[TEXT](data=f"{i} " + "x" * (i % 7)), TEXT)
            writer.write(topics[i % 3 == 0], 10**18 + i, text)
            if (i - begin) % each == each - 1:
                storage.close_chunk()
    return path


def _zstd(data):
    from rosbags.rosbag2.storage_mcap import zstd

    return zstd.compress(data)


def with_checksums(data):
    """The bytes of a file with the checksums of its chunks, which rosbags leaves out."""
    data, position = bytearray(data), 8
    while data[position] != 2:
        op, length = struct.unpack_from("<BQ", data, position)
        if op == 6:
            (n,) = struct.unpack_from("<I", data, position + 37)
            name = data[position + 41 : position + 41 + n].decode()
            begin = position + 49 + n
            raw = bytes(data[begin : position + 9 + length])
            raw = {"": bytes, "lz4": lz4.frame.decompress, "zstd": _unzstd}[name](raw)
            struct.pack_into("<I", data, position + 33, crc32(raw))
        position += 9 + length
    return bytes(data)


def _unzstd(data):
    from rosbags.rosbag2.storage_mcap import zstd

    return zstd.decompress(data)


def records(data, position, end):
    """Opcode, begin and end of each record."""
    while position < end:
        op, length = struct.unpack_from("<BQ", data, position)
        yield op, position, position + 9 + length
        position += 9 + length


def without_chunks(data):
    """The same messages outside chunks, as recorders write for speed, without an index."""
    out = bytearray(data[:8])
    for op, begin, end in records(data, 8, len(data) - 8):
        if op == 6:
            (n,) = struct.unpack_from("<I", data, begin + 37)
            out += data[begin + 49 + n : end]
        elif op in (1, 15):
            out += data[begin:end]
        if op == 15:
            break
    return bytes(out) + b"\x02" + struct.pack("<QQQI", 20, 0, 0, 0) + data[:8]


def read(path, position=None):
    """Messages of a bag, and what is said of it."""
    said = []
    topics = [name for name, (_, n) in bag_topics(path).items() if n]
    return [(m.topic, m.stamp_ns, bytes(m.data)) for m in read_raw(path, topics, position, said.append)], said


def whole_in(data):
    """End of each message's record, in bytes of the file, in the order written; chunks are not packed."""
    ends = []
    for op, begin, end in records(data, 8, len(data) - 8):
        if op == 5:
            ends.append(end)
        if op == 6:
            (n,) = struct.unpack_from("<I", data, begin + 37)
            ends += [e for o, _, e in records(data, begin + 49 + n, end) if o == 5]
        if op == 15:
            return ends


@pytest.mark.parametrize("make", [bytes, with_checksums, without_chunks], ids=lambda f: f.__name__)
def test_wherever_it_is_cut_all_whole_messages_are_read(tmp_path, make):
    """Just before, at and after the end of each record, and anywhere."""
    data = make((write(tmp_path / "bag") / "bag.mcap").read_bytes())
    path, ends = tmp_path / "cut.mcap", whole_in(data)
    path.write_bytes(data)
    every, said = read(path)
    assert len(every) == len(ends) == 30 and not said

    edges = {e + d for _, b, e in records(data, 8, len(data) - 8) for d in (-1, 0, 1, 9, 10, 50)}
    edges |= {e + d for e in ends for d in (-1, 0, 1)} | set(random.Random(1).sample(range(len(data)), 20))
    for cut in sorted(e for e in edges if 0 <= e < len(data)):
        path.write_bytes(data[:cut])
        n = sum(end <= cut for end in ends)
        if n == 0:
            with pytest.raises(BagError, match=NOTHING):
                read(path)
            continue
        messages, said = read(path)
        assert messages == every[:n], cut
        (loss,) = said
        assert f"{n} messages were read, the last one recorded at {every[n - 1][1]} ns" in loss.words
        assert not loss.counts and len(loss.words) < 500

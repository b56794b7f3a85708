"""Recordings whose robot lost its power: all that is whole is read, and what is not is said."""

import random
import shutil
import sqlite3
import struct
import tempfile
from types import SimpleNamespace
from zlib import crc32

import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from split_bag import joined

from gp_mapping.recording import mcap_file
from gp_mapping.recording.bag import STORE, BagError, RawMessages, bag_topics, read_raw
from gp_mapping.recording.mcap_file import McapFile
from gp_mapping.recording.position import Position
from gp_mapping.recording.stored_bytes import LZ4

TEXT = "std_msgs/msg/String"
NOTHING = "no message is left|cut off or damaged|the file is empty"


def write(path, compression="", begin=0, chunks=5, each=6):
    """A bag of several chunks; messages of two topics, one of them late, and of different sizes."""
    options = {"version": 9, "storage_plugin": StoragePlugin.MCAP}
    with Writer(path, **options) as writer:
        storage = writer.storage
        if compression:
            storage.compression = compression
            storage.compressor = {"lz4": LZ4.compress, "zstd": _zstd}[compression]
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
            raw = {"": bytes, "lz4": LZ4.decompress, "zstd": _unzstd}[name](raw)
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
    return [
        (m.topic, m.stamp_ns, bytes(m.data)) for m in read_raw(path, topics, position, said.append)
    ], said


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


def cut_points(data, ends, count=60):
    """Just before, at and after ends of records of each kind, and anywhere."""
    chance, kinds = random.Random(1), {}
    for op, _, end in records(data, 8, len(data) - 8):
        kinds.setdefault(op, []).extend(end + d for d in (-1, 0, 1, 9, 10, 50))
    kinds[5] = [end + d for end in ends for d in (-1, 0, 1)]
    near = [cut for edges in kinds.values() for cut in chance.sample(edges, min(6, len(edges)))]
    return sorted({c for c in near + chance.sample(range(len(data)), 20) if c < len(data)})


def test_messages_whose_topic_is_lost_are_said(tmp_path):
    """The record that names a topic was in what is damaged; its messages were not."""
    data = without_chunks((write(tmp_path / "bag") / "bag.mcap").read_bytes())
    channels = [(a, b) for op, a, b in records(data, 8, len(data) - 8) if op == 4]
    path = tmp_path / "cut.mcap"
    path.write_bytes(data[: channels[1][0]] + data[channels[1][1] :])
    messages, (loss,) = read(path)
    kept = {topic for topic, _, _ in messages}
    assert len(kept) == 1 and len(messages) in (10, 20)
    assert f"{30 - len(messages)} messages lost whose topic is not known" in loss.words


@pytest.mark.parametrize("make", [bytes, with_checksums, without_chunks], ids=lambda f: f.__name__)
def test_wherever_it_is_cut_all_whole_messages_are_read(tmp_path, make):
    data = make((write(tmp_path / "bag") / "bag.mcap").read_bytes())
    path, ends = tmp_path / "cut.mcap", whole_in(data)
    path.write_bytes(data)
    every, said = read(path)
    assert len(every) == len(ends) == 30 and not said

    for cut in cut_points(data, ends):
        path.write_bytes(data[:cut])
        n = sum(end <= cut for end in ends)
        if n == 0:
            with pytest.raises(BagError, match=NOTHING):
                read(path)
            continue
        messages, (loss,) = read(path)
        assert messages == every[:n], cut
        last = every[n - 1][1]
        assert f"{n} messages of it were read, the last one recorded at {last} ns" in loss.words
        assert not loss.counts and len(loss.words) < 500


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_of_packed_chunks_those_that_are_whole_and_what_unpacks_of_the_last(tmp_path, compression):
    data = (write(tmp_path / "bag", compression) / "bag.mcap").read_bytes()
    path, chunks = tmp_path / "cut.mcap", [r for r in records(data, 8, len(data) - 8) if r[0] == 6]
    path.write_bytes(data)
    every, said = read(path)
    assert len(every) == 30 and not said
    for cut in cut_points(data, []):
        path.write_bytes(data[:cut])
        whole = 6 * sum(end <= cut for _, _, end in chunks)
        if whole:
            messages, (loss,) = read(path)
            assert messages == every[: len(messages)] and whole <= len(messages) <= whole + 6
            assert f"{len(messages)} messages of it" in loss.words
        else:
            with pytest.raises(BagError, match=NOTHING):
                read(path)


def test_the_beginning_of_a_packed_chunk_is_read(tmp_path):
    """As large as recorders write them: it unpacks block by block."""
    data = (write(tmp_path / "bag", "zstd", chunks=1, each=9000) / "bag.mcap").read_bytes()
    (_, begin, end) = next(r for r in records(data, 8, len(data) - 8) if r[0] == 6)
    (tmp_path / "cut.mcap").write_bytes(data[: begin + (end - begin) * 9 // 10])
    messages, (loss,) = read(tmp_path / "cut.mcap")
    assert 4000 < len(messages) < 9000 and [m[1] for m in messages] == [
        10**18 + i for i in range(len(messages))
    ]
    assert "cut off in a chunk, of whose" in loss.words


def test_zeros_that_a_file_system_leaves_at_the_end_are_no_messages(tmp_path):
    data = (write(tmp_path / "bag") / "bag.mcap").read_bytes()
    ends = whole_in(data)
    (tmp_path / "cut.mcap").write_bytes(data[: ends[12]] + bytes(5000))
    messages, (loss,) = read(tmp_path / "cut.mcap")
    assert len(messages) == 12, "the chunk in which they begin has no checksum: it is left out"
    assert "1 damaged chunk" in loss.words and "cut off" in loss.words


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_chunk_that_is_damaged_costs_itself(tmp_path, compression, indexed):
    """Its messages are counted, by the index of the file or by those that follow the chunk."""
    data = with_checksums((write(tmp_path / "bag", compression) / "bag.mcap").read_bytes())
    path = tmp_path / "bad.mcap"
    path.write_bytes(data)
    every, _ = read(path)
    _, begin, end = [r for r in records(data, 8, len(data) - 8) if r[0] == 6][2]
    bad = bytearray(data if indexed else data[:-10])
    bad[end - 10] ^= 16
    path.write_bytes(bad)
    messages, (loss,) = read(path)
    assert messages == every[:12] + every[18:]
    assert loss.counts == {"/a": 4, "/b": 2} and "1 damaged chunk" in loss.words
    # who goes on in the middle reads the rest, and is told the same numbers
    raw = list(read_raw(path, ["/a", "/b"], on_loss=lambda _: None))
    for n in (5, 12, 13, 24):
        rest, (again,) = read(path, Position.after(None, RawMessages.of(raw[:n])))
        assert rest == messages[n:] and again.counts == loss.counts
    with pytest.raises(BagError, match="cut off or damaged"):
        list(read_raw(path, ["/a"]))


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
def test_a_hole_in_a_file_without_an_index_costs_the_chunks_in_it(tmp_path, compression):
    """Zeros where a block never came to the disk, or bytes that are gone, across two chunks."""
    data = with_checksums((write(tmp_path / "bag", compression) / "bag.mcap").read_bytes())
    path, chunks = tmp_path / "bad.mcap", [r for r in records(data, 8, len(data) - 8) if r[0] == 6]
    path.write_bytes(data)
    every, _ = read(path)
    begin, end = chunks[1][2] - 20, chunks[2][1] + 60
    for hole in (bytes(end - begin), b""):
        path.write_bytes(data[:begin] + hole + data[end : len(data) - 30])
        messages, (loss,) = read(path)
        assert messages == every[:6] + every[18:]
        assert "damaged chunk" in loss.words


def test_a_damaged_index_is_not_used(tmp_path):
    """Topics in it would hide messages; its checksum, or its numbers, tell."""
    data = (write(tmp_path / "bag") / "bag.mcap").read_bytes()
    statistics = next(r for r in records(data, 8, len(data) - 8) if r[0] == 11)
    bad = bytearray(data)
    bad[statistics[2] - 8] ^= 1  # messages of the last channel
    (tmp_path / "bad.mcap").write_bytes(bad)
    messages, (loss,) = read(tmp_path / "bad.mcap")
    assert len(messages) == 30 and "the index is damaged" in loss.words


# ---- bags of several files ------------------------------------------------------------------------------------------


def split(tmp_path):
    """A bag of three files, 30 messages each, and the names of the files."""
    parts = [write(tmp_path / f"part{k}", begin=30 * k) for k in range(3)]
    bag = joined(tmp_path / "bag", parts)
    for part in parts:
        shutil.rmtree(part)
    return bag, [bag / f"{k}.mcap" for k in range(3)]


@pytest.mark.parametrize("metadata", [True, False])
def test_a_split_bag_whose_last_file_is_cut(tmp_path, metadata):
    bag, files = split(tmp_path)
    every, _ = read(bag)
    data = files[2].read_bytes()
    if not metadata:
        (bag / "metadata.yaml").unlink()
    for cut, n in ((whole_in(data)[7], 68), (len(data) - 9, 90), (20, 60), (0, 60)):
        files[2].write_bytes(data[:cut])
        messages, (loss,) = read(bag)
        assert messages == every[:n] and "2.mcap: " in loss.words
        assert ("metadata.yaml is missing" in loss.words) != metadata
        assert sum(loss.counts.values()) == (90 - n if metadata and cut > 30 else 0)
        stored = list(read_raw(bag, ["/a", "/b"], on_loss=lambda _: None))
        assert read(bag, Position.after(None, RawMessages.of(stored[:61])))[0] == every[61:n]


def test_files_that_were_packed_before_the_recorder_was_killed_are_read(tmp_path, monkeypatch):
    """It packs a file when the next one begins: the last one is as it was written."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    bag, files = split(tmp_path)
    every, _ = read(bag)
    (bag / "metadata.yaml").unlink()
    packed = [bag / f"{k}.mcap.zstd" for k in range(2)]
    for file, path in zip(files, packed):
        path.write_bytes(_zstd(file.read_bytes()))
        assert read(bag)[0] == every  # killed while it packed: both are there
        file.unlink()
    messages, (loss,) = read(bag)
    assert messages == every and "packing" not in loss.words

    data, n = _unzstd(packed[1].read_bytes()), 1000
    packed[1].write_bytes(_zstd(data[:n]) + _zstd(data[n:])[:-9])
    files[2].unlink()
    messages, (loss,) = read(bag)
    assert messages == every[: len(messages)] and 30 < len(messages) < 60
    assert "1.mcap.zstd: its packing is cut off or damaged, the first" in loss.words
    assert not list(temporary.iterdir()), "no copy is left"


def test_files_that_are_not_of_one_recording_are_not_put_together(tmp_path):
    bag, files = split(tmp_path)
    files[0].rename(bag / "monday.mcap")
    (bag / "metadata.yaml").unlink()
    with pytest.raises(BagError, match=r"1\.mcap 2\.mcap monday\.mcap.* pass the files"):
        read(bag)


# ---- databases ------------------------------------------------------------------------------------------------------


def database_of(tmp_path, n=40):
    """A bag of one database."""
    with Writer(tmp_path / "d", version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        topic = writer.add_connection("/a", TEXT, typestore=STORE)
        for i in range(n):
            text = STORE.serialize_cdr(STORE.types[TEXT](data=str(i)), TEXT)
            writer.write(topic, 10**18 + i, text)
    (tmp_path / "d" / "metadata.yaml").unlink()
    return tmp_path / "d"


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_log_next_to_a_database_is_read_with_it_and_left_as_it_is(tmp_path, monkeypatch, mode):
    """What was committed is there, what was not is not: SQLite puts a copy right."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    bag = database_of(tmp_path)
    database = sqlite3.connect(bag / "d.db3", isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA cache_size=1")  # so that what is not committed is in the file
    more = "INSERT INTO messages SELECT NULL, topic_id, timestamp + 100, zeroblob({}) FROM messages"
    database.execute(more.format(1))
    database.execute("BEGIN")
    database.execute(more.format(9000))
    shutil.copytree(bag, tmp_path / "killed")  # as it is when the power goes
    database.close()

    before = {p.name: p.read_bytes() for p in (tmp_path / "killed").iterdir()}
    assert len(before) > 1, before.keys()
    messages, (loss,) = read(tmp_path / "killed")
    assert len(messages) == 80 and "metadata.yaml is missing" in loss.words
    assert {p.name: p.read_bytes() for p in (tmp_path / "killed").iterdir()} == before
    messages, said = read(tmp_path / "killed" / "d.db3")
    assert len(messages) == 80 and not said
    assert not list(temporary.iterdir()), "no copy is left"


@pytest.mark.parametrize("left", [1.0 - 1e-4, 0.97, 0.85])
def test_a_database_whose_end_is_missing_is_read_as_far_as_it_is_whole(tmp_path, monkeypatch, left):
    """Also by a path that is relative; most of what is in the bytes that are left is read."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.chdir(tmp_path)
    bag = database_of(tmp_path, 1000).relative_to(tmp_path)
    whole, _ = read(bag)
    data = (bag / "d.db3").read_bytes()
    cut = data[: int(left * len(data))]
    (bag / "d.db3").write_bytes(cut)

    messages, (loss,) = read(bag)
    assert 0.7 * left * len(whole) < len(messages) < len(whole)
    assert messages == whole[: len(messages)]
    assert f"d.db3: cut off, {len(data) - len(cut)} bytes at its end are missing" in loss.words
    assert (bag / "d.db3").read_bytes() == cut and not list(temporary.iterdir())

    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(BagError, match=r"its end is missing.* TMPDIR .*\.recover"):
        read(bag / "d.db3")


def test_without_room_for_a_copy_it_says_what_to_do(tmp_path, monkeypatch):
    bag = database_of(tmp_path)
    (bag / "d.db3-wal").write_bytes(bytes(100))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(BagError, match=r"d\.db3-wal holds messages.* TMPDIR .*wal_checkpoint"):
        read(bag)


def of_chunks(path, *chunks):
    """A bag of chunks of one topic: the stamps of each; a message tells its chunk and its number."""
    options = {"version": 9, "storage_plugin": StoragePlugin.MCAP}
    with Writer(path, **options) as writer:
        topic = writer.add_connection("/a", TEXT, typestore=STORE)
        for number, stamps in enumerate(chunks):
            for i, stamp in enumerate(stamps):
                text = STORE.types[TEXT](data=f"{number} {i}")
                writer.write(topic, stamp, STORE.serialize_cdr(text, TEXT))
            writer.storage.close_chunk()
    return path


@pytest.mark.parametrize("begin", [None, 5])
@pytest.mark.parametrize(
    "chunks",
    [
        [[4, 5], [1, 5], [3, 5, 9]],  # read in another order, of which the file's decides at 5
        [[5], [0, 5, 7, 6]],
        [[8, 2, 5], [5, 1], [30, 5, 6, 5]],
        [[5] * 50, [5] * 50],
    ],
)
def test_messages_come_by_their_stamps_and_then_as_they_were_written(tmp_path, chunks, begin):
    of_chunks(tmp_path / "bag", *chunks)
    reader = McapFile(tmp_path / "bag/bag.mcap")
    reader.open()
    told = [
        (stamp, STORE.deserialize_cdr(data, TEXT).data)
        for _, stamp, data in reader.messages(reader.connections, begin)
    ]
    reader.close()
    written = [
        (stamp, f"{number} {i}")
        for number, stamps in enumerate(chunks)
        for i, stamp in enumerate(stamps)
        if stamp >= (begin or 0)
    ]
    assert told == sorted(written, key=lambda each: each[0])


@pytest.mark.parametrize("stamps", [[range(10 * k, 10 * k + 10) for k in range(6)], [[7] * 10] * 6])
def test_no_more_chunks_are_read_than_messages_are_asked_of(tmp_path, stamps, monkeypatch):
    """Also where all messages have one stamp, as of a clock that stood."""
    of_chunks(tmp_path / "bag", *stamps)
    reader, opened = McapFile(tmp_path / "bag/bag.mcap"), []
    real = mcap_file.unpacked
    monkeypatch.setattr(mcap_file, "unpacked", lambda *given: opened.append(1) or real(*given))
    reader.open()
    for number, _ in enumerate(reader.messages(reader.connections)):
        assert len(opened) <= number // 10 + 2
    reader.close()
    assert number == 59

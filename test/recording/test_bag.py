import os
import shutil
import sqlite3

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from gp_mapping.recording.bag import (
    MAGNETIC_FIELD,
    ODOMETRY,
    STORE,
    BagError,
    bag_topics,
    read_messages,
    read_raw,
)
from gp_mapping.recording.bag_writer import BagWriter

FORMATS = ["mcap", "sqlite3"]


def make_bag(path, storage="mcap", n=200, start=10**18):
    with BagWriter(path, storage) as bag:
        for i in range(n):
            bag.odometry(
                start + i * 10**7,
                (0.01 * i, 2.0, 0.0),
                (0.0, 0.0, 0.0, 1.0),
                (1.0, 0.0, 0.0),
                pose_covariance=(1, 2, 3, 4, 5, 6),
            )
            bag.magnetic_field(start + i * 10**7 + 1, (1e-6 * i, -2e-6, 3e-6))
    return path


def file_in(bag):
    return next(p for p in bag.iterdir() if p.suffix in (".mcap", ".db3"))


@pytest.fixture(params=FORMATS)
def bag(request, tmp_path):
    return make_bag(tmp_path / "drive", request.param)


def test_what_is_written_comes_back(bag):
    messages = list(read_messages(bag))
    assert [t for t, _, _ in messages] == ["/odometry", "/magnetic_field"] * 200
    assert [s for _, s, _ in messages] == [10**18 + i // 2 * 10**7 + i % 2 for i in range(400)]
    odometry, field = messages[14][2], messages[15][2]
    assert (odometry.__msgtype__, field.__msgtype__) == (ODOMETRY, MAGNETIC_FIELD)
    assert (odometry.header.frame_id, odometry.child_frame_id, field.header.frame_id) == (
        "odom",
        "base_link",
        "magnetometer",
    )
    assert odometry.header.stamp.sec * 10**9 + odometry.header.stamp.nanosec == 10**18 + 7 * 10**7
    assert odometry.pose.pose.position.x == 0.07 and odometry.pose.pose.orientation.w == 1.0
    np.testing.assert_array_equal(
        np.reshape(odometry.pose.covariance, (6, 6)), np.diag([1, 2, 3, 4, 5, 6])
    )
    assert field.magnetic_field.x == 1e-6 * 7 and not field.magnetic_field_covariance.any()


def test_a_single_file_reads_like_its_folder(bag):
    def plain(path):
        return [(t, s, m.header.stamp.nanosec) for t, s, m in read_messages(path)]

    assert plain(file_in(bag)) == plain(bag) == plain(str(bag))
    assert bag_topics(file_in(bag)) == {
        "/magnetic_field": (MAGNETIC_FIELD, 200),
        "/odometry": (ODOMETRY, 200),
    }
    assert len(list(read_messages([bag, file_in(bag)]))) == 800


def test_raw_bytes_are_the_stored_ones(bag):
    raw = next(read_raw(bag, ["odometry"]))
    assert STORE.deserialize_cdr(raw.data, raw.type).pose.pose.position.y == 2.0


def test_bags_follow_each_other_in_the_order_given(tmp_path):
    late, early = (
        make_bag(tmp_path / "late", n=3, start=2 * 10**18),
        make_bag(tmp_path / "early", n=3),
    )
    stamps = [s for _, s, _ in read_messages([late, early], ["/odometry"])]
    assert stamps == [2 * 10**18 + i * 10**7 for i in range(3)] + [
        10**18 + i * 10**7 for i in range(3)
    ]


def other_bag(path, topics, storage=StoragePlugin.MCAP):
    """A bag with one MagneticField or String on each topic; (topic, type, n)."""
    with Writer(path, version=9, storage_plugin=storage) as writer:
        for topic, kind, n in topics:
            connection = writer.add_connection(topic, kind, typestore=STORE)
            header = STORE.types["std_msgs/msg/Header"](
                STORE.types["builtin_interfaces/msg/Time"](1, 2), "f"
            )
            for i in range(n):
                message = (
                    STORE.types[kind](data="x")
                    if kind.endswith("String")
                    else STORE.types[kind](
                        header, STORE.types["geometry_msgs/msg/Vector3"](1.0, 2.0, 3.0), np.zeros(9)
                    )
                )
                writer.write(connection, 10**18 + i, STORE.serialize_cdr(message, kind))
    return path


def test_several_candidates_are_named(tmp_path):
    path = other_bag(
        tmp_path / "two", [("/left/mag", MAGNETIC_FIELD, 1), ("/right/mag", MAGNETIC_FIELD, 1)]
    )
    with pytest.raises(
        BagError, match=r"several topics .*/left/mag, /right/mag.*which one to use$"
    ):
        list(read_messages(path, {MAGNETIC_FIELD: None}))
    assert [t for t, _, _ in read_messages(path, {MAGNETIC_FIELD: "right/mag"})] == ["/right/mag"]
    assert [t for t, _, _ in read_messages(path, {MAGNETIC_FIELD: "/left/mag"})] == ["/left/mag"]


def test_a_candidate_without_messages_does_not_count(tmp_path):
    path = other_bag(tmp_path / "one", [("/idle", MAGNETIC_FIELD, 0), ("/mag", MAGNETIC_FIELD, 2)])
    assert {t for t, _, _ in read_messages(path, {MAGNETIC_FIELD: None})} == {"/mag"}
    with pytest.raises(BagError, match="/idle has no messages"):
        list(read_messages(path, ["/idle"]))


def test_missing_topics_are_reported_with_what_is_there(tmp_path):
    path = other_bag(tmp_path / "text", [("/chatter", "std_msgs/msg/String", 3)])
    with pytest.raises(
        BagError, match=r"no messages of type sensor_msgs/msg/MagneticField.*/chatter.*3 mess"
    ):
        list(read_messages(path))
    with pytest.raises(BagError, match=r"no topic /mag.*/chatter"):
        list(read_messages(path, {MAGNETIC_FIELD: "/mag"}))
    with pytest.raises(BagError, match="/chatter is a std_msgs/msg/String, expected sensor_msgs"):
        list(read_messages(path, {MAGNETIC_FIELD: "/chatter"}))
    with pytest.raises(BagError, match=r"no topic chater; did you mean /chatter\?; the bag has"):
        list(read_messages(path, ["chater"]))


@pytest.mark.parametrize("storage", FORMATS)
def test_an_empty_bag_is_an_error(tmp_path, storage):
    with pytest.raises(BagError, match="the bag is empty"):
        list(read_messages(make_bag(tmp_path / "empty", storage, n=0)))


@pytest.mark.parametrize(
    "name, text",
    [
        ("absent", "no such bag"),
        ("notes.txt", "expected a rosbag2 folder"),
        ("drive.bag", "rosbags-convert --src drive.bag --dst drive"),
        ("folder", "no metadata.yaml"),
        ("map", "a saved map, not a recording"),
        ("zero.mcap", "empty"),
        ("zero.db3", "empty"),
    ],
)
def test_what_is_not_a_bag(tmp_path, name, text):
    if "." in name:
        (tmp_path / name).touch()
    elif name in ("folder", "map"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.{'gpm' if name == 'map' else 'txt'}").touch()
    with pytest.raises(BagError, match=text):
        list(read_messages(tmp_path / name))


@pytest.mark.parametrize("share", [0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.95, 0.999])
def test_a_cut_off_bag_is_an_error_wherever_it_is_cut(bag, share):
    """As a folder and as a single file: never a traceback of a library, never a silent loss."""
    path = file_in(bag)
    os.truncate(path, int(path.stat().st_size * share))
    for target in (bag, path):
        with pytest.raises(BagError, match=r"cut off or damaged|the bag is cut off"):
            list(read_messages(target))


def test_bytes_in_the_middle_that_are_wrong_are_an_error(bag):
    path = file_in(bag)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 3)
        file.write(b"\xff" * (size // 3))
    with pytest.raises(BagError, match="damaged"):
        list(read_messages(bag))


@pytest.mark.parametrize(
    "text", ["", "- 1", "rosbag2_bagfile_information: {version: 99}", "a: [", "\x00\x01"]
)
def test_a_damaged_metadata_file_is_not_used(bag, text):
    (bag / "metadata.yaml").write_text(text)
    said = []
    assert len(list(read_messages(bag, on_loss=said.append))) == 400
    assert "metadata.yaml is not used (" in said[0].words and not said[0].counts
    with pytest.raises(BagError, match=r"damaged, 400 messages .*metadata.yaml is not used"):
        list(read_messages(bag))


def test_where_the_file_is_damaged_as_well_both_are_said(tmp_path):
    bag = make_bag(tmp_path / "drive", "mcap")
    (bag / "metadata.yaml").write_text("a: [")
    file_in(bag).write_bytes(file_in(bag).read_bytes()[:1000])
    with pytest.raises(
        BagError, match=r"no message is left \(metadata.yaml .*drive\.mcap: cut off"
    ):
        list(read_messages(bag))


def test_a_folder_with_a_bag_of_ros_1_says_how_to_convert_it(tmp_path):
    (tmp_path / "drive.bag").write_bytes(b"#ROSBAG V2.0")
    with pytest.raises(BagError, match=r"drive\.bag: a bag of ROS 1.*--src drive\.bag --dst drive"):
        list(read_messages(tmp_path))


def test_a_recording_that_was_killed_is_read_without_metadata(bag):
    (bag / "metadata.yaml").unlink()
    said = []
    assert len(list(read_messages(bag, on_loss=said.append))) == 400
    assert "metadata.yaml is missing" in said[0].words and not said[0].counts


def test_of_a_recording_in_several_files_all_are_read_in_their_order(bag):
    """Whoever read the first alone had a map of the first minutes; 10 comes after 2."""
    file = next(path for path in bag.iterdir() if path.suffix != ".yaml")
    file.unlink()
    for number in (10, 2, 0):
        part = file_in(
            make_bag(bag / str(number), file.suffix[1:].replace("db3", "sqlite3"), 2, number)
        )
        part.rename(bag / f"drive_{number}{file.suffix}")
    (bag / "metadata.yaml").unlink()
    stamps = [stamp for _, stamp, _ in read_messages(bag, ["/odometry"], on_loss=lambda _: None)]
    assert stamps == [n + i for n in (0, 2, 10) for i in (0, 10**7)]


def test_fewer_messages_than_the_metadata_promises(tmp_path):
    bag = make_bag(tmp_path / "drive", "sqlite3")
    with sqlite3.connect(file_in(bag)) as database:
        database.execute("DELETE FROM messages WHERE id > 300")
    database.close()
    with pytest.raises(BagError, match=r"200 messages were recorded on /.* and 150 are there"):
        list(read_messages(bag))


def test_messages_left_in_a_write_ahead_log_are_read(tmp_path):
    """More than metadata.yaml says."""
    bag = make_bag(tmp_path / "drive", "sqlite3")
    path = file_in(bag)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("INSERT INTO messages SELECT NULL, topic_id, timestamp, data FROM messages")
    database.commit()
    shutil.copytree(bag, tmp_path / "killed")  # as the recorder leaves it when it is killed
    database.close()
    for target in (tmp_path / "killed", tmp_path / "killed" / path.name):
        assert len(list(read_messages(target))) == 800


def test_no_bag_given():
    with pytest.raises(BagError, match="no bag"):
        list(read_messages([]))


def test_an_existing_bag_is_not_overwritten(bag):
    before = file_in(bag).read_bytes()
    with pytest.raises(BagError, match="exists already"):
        BagWriter(bag)
    assert file_in(bag).read_bytes() == before
    with pytest.raises(BagError, match="storage 'csv' is not one of sqlite3, mcap"):
        BagWriter(bag.with_name("new"), "csv")


def test_a_bag_appears_only_when_it_is_complete(tmp_path):
    with pytest.raises(RuntimeError), BagWriter(tmp_path / "bag") as bag:
        bag.magnetic_field(1, (1, 2, 3))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_bag_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BagError, match="cannot be written"), BagWriter(tmp_path / "file" / "bag"):
        pass


@pytest.mark.parametrize("mode", [CompressionMode.FILE, CompressionMode.MESSAGE])
@pytest.mark.parametrize("storage", FORMATS)
def test_compressed_bags_read_like_others(tmp_path, storage, mode):
    writer = Writer(tmp_path / "bag", version=8, storage_plugin=StoragePlugin[storage.upper()])
    writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection("/text", "std_msgs/msg/String", typestore=STORE)
        for i in range(50):
            message = STORE.types["std_msgs/msg/String"](data=f"number {i}")
            writer.write(
                connection, 10**18 + i, STORE.serialize_cdr(message, "std_msgs/msg/String")
            )
    assert [m.data for _, _, m in read_messages(tmp_path / "bag", ["/text"])] == [
        f"number {i}" for i in range(50)
    ]

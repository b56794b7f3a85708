"""Messages as recorders store them: compressed one by one, or of an older ROS release."""

import numpy as np
import pytest
from any_bag import NS, header, make, write_bag
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from gp_mapping.intake import Intake
from gp_mapping.recording.bag import MAGNETIC_FIELD, ODOMETRY, STORE, BagError, read_messages
from gp_mapping.recording.replay import plan_bags, samples_of
from gp_mapping.recording.stored_bytes import all_present
from gp_mapping.settings.intake import IntakeSettings

START = 1_700_000_000 * NS
RANGE, TEMPERATURE = "sensor_msgs/msg/Range", "sensor_msgs/msg/Temperature"


def odometry(seconds=10):
    for i in range(20 * seconds):
        stamp = START + i * NS // 20
        position = {"x": 0.05 * i}
        pose = {"position": position, "orientation": {"w": 1.0}}
        yield (
            "/odom",
            ODOMETRY,
            stamp,
            make(ODOMETRY, header=header(stamp, "odom"), pose={"pose": pose}),
        )


def readings(kind, topic, store=STORE, seconds=10, late=0, **fields):
    for i in range(10 * seconds):
        stamp = START + i * NS // 10 + late
        yield topic, kind, stamp, make(kind, store, header=header(stamp, "sensor"), **fields)


def mapped(path, **settings):
    """Values and the intake of a bag that is read as `gp-mapping map` reads it."""
    settings = IntakeSettings(**settings)
    intake = Intake(settings)
    batches = samples_of(plan_bags(path, settings, {}), intake, "", shown=False)
    return np.concatenate([samples.y.numpy() for _, samples in batches]), intake


@pytest.mark.parametrize("frame", ["", "a", "ab", "abc", "sonar_front"])
@pytest.mark.parametrize("release", [Stores.ROS2_FOXY, Stores.ROS2_HUMBLE, Stores.ROS2_JAZZY])
def test_a_range_of_every_release_is_read(frame, release):
    store = get_typestore(release)
    message = make(RANGE, store, header=header(START, frame), range=1.25, max_range=4.0)
    for little_endian in (True, False):
        data = bytes(store.serialize_cdr(message, RANGE, little_endian=little_endian))
        read = STORE.deserialize_cdr(all_present([RANGE], [data])[0], RANGE)
        assert (read.range, read.variance, read.header.frame_id) == (1.25, 0.0, frame)


def test_a_range_that_states_a_variance_keeps_it():
    message = make(RANGE, header=header(START, "sonar"), range=1.25, variance=0.5)
    data = bytes(STORE.serialize_cdr(message, RANGE))
    assert all_present([RANGE], [data]) == [data]


def test_bytes_that_are_no_message_stay_as_they_are():
    for data in (b"", b"\x00", b"\x28\xb5\x2f\xfd cut off", b"\x00\x01\x00\x00" + bytes(7)):
        assert all_present([RANGE], [data]) == [data]


def test_a_bag_of_ranges_of_humble_is_mapped(tmp_path):
    store = get_typestore(Stores.ROS2_HUMBLE)
    ranges = readings(RANGE, "/sonar", store, range=1.25, max_range=4.0)
    bag = write_bag(tmp_path / "bag", [*odometry(), *ranges], store)

    values, intake = mapped(bag, sensor="range")
    assert set(values.ravel()) == {1.25} and intake.received["range"] == 100
    assert intake.drops.measurements == 0


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_messages_that_were_compressed_are_read_without_metadata(tmp_path, storage):
    writer = Writer(tmp_path / "bag", version=9, storage_plugin=storage)
    writer.set_compression(CompressionMode.MESSAGE, CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection("/odom", ODOMETRY, typestore=STORE)
        for _, _, stamp, message in odometry(1):
            writer.write(connection, stamp, STORE.serialize_cdr(message, ODOMETRY))

    (tmp_path / "bag" / "metadata.yaml").unlink()
    file = next((tmp_path / "bag").iterdir())
    positions = [m.pose.pose.position.x for _, _, m in read_messages(file, ["/odom"])]
    assert positions == [0.05 * i for i in range(20)]


def test_a_file_that_was_compressed_as_a_whole_is_refused_with_what_to_pass(tmp_path):
    packed = tmp_path / "bag_0.mcap.zstd"
    packed.write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(
        BagError, match=r"pass its folder, .* or unpack it: zstd -d bag_0.mcap.zstd"
    ):
        list(read_messages(packed))
    with pytest.raises(BagError, match=r"bag_0.mcap.zstd: .* nothing of it can be unpacked"):
        list(read_messages(tmp_path))


@pytest.mark.parametrize("first", [MAGNETIC_FIELD, TEMPERATURE])
@pytest.mark.parametrize("sensor", ["magnetic_field", "temperature"])
def test_of_a_topic_with_two_types_the_sensors_is_mapped_and_the_other_counted(
    tmp_path, sensor, first
):
    field = readings(MAGNETIC_FIELD, "/sensor", magnetic_field={"x": 3e-5})
    late = -NS // 100 if first == TEMPERATURE else NS // 100
    degrees = readings(TEMPERATURE, "/sensor", late=late, temperature=20.0)
    entries = sorted([*odometry(), *field, *degrees], key=lambda entry: entry[2])

    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connections = {}
        for topic, kind, stamp, message in entries:
            if kind not in connections:
                connections[kind] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(connections[kind], stamp, STORE.serialize_cdr(message, kind))

    values, intake = mapped(tmp_path / "bag", sensor=sensor)
    assert set(values.ravel()) == {{"magnetic_field": 3e-5, "temperature": 20.0}[sensor]}
    assert intake.received[sensor] == 200
    assert intake.drops.as_dict().pop("unreadable") == 100
    assert len(values) + intake.drops.measurements + intake.waiting == 200
    assert any("the topic is read as" in text for text in intake.warnings)
    asked = list(read_messages(tmp_path / "bag", {MAGNETIC_FIELD: "/sensor"}))
    assert len(asked) == 100 and {m.__msgtype__ for _, _, m in asked} == {MAGNETIC_FIELD}

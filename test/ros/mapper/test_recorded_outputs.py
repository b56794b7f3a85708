"""What `ros2 bag record` stores of our outputs, opened by a reader that shares no code with ROS: viewers can, too."""

import numpy as np
import pytest
from rclpy.serialization import serialize_message
from ros_helpers import spin, spin_until
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from gp_mapping.ros.mapper.outputs import OUTPUTS
from gp_mapping.ros.wire.qos import LATCHED

# GridMap, where it is installed, is not among the stock types of a reader; class comes where classes are mapped
EXPECTED = {one.name: one.kind for one in OUTPUTS if one.name not in ("class", "grid_map")}


@pytest.fixture(scope="module")
def heard():
    return {}


def record(node_of, heard):
    """The last message of each output after a drive of some seconds, as a subscriber got it."""
    if heard:
        return heard
    node, peer = node_of(suggestion_rate=5.0)
    for name, kind in EXPECTED.items():

        def keep(message, name=name):
            heard[name] = message

        peer.node.create_subscription(kind, f"/mapping/{name}", keep, LATCHED)
    publishers = peer.field_publisher, peer.odometry_publisher
    spin_until(node, peer, lambda: all(p.get_subscription_count() for p in publishers))
    spin(node, peer, 1.0)  # the other direction of discovery
    peer.drive(0.0, 6.0, speed=20.0)
    # the first suggestions are none, while the survey area is being looked at
    spin_until(
        node, peer, lambda: set(heard) == set(EXPECTED) and heard["suggestions"].poses, timeout=45.0
    )
    return heard


def type_of(message) -> str:
    package, _, _ = type(message).__module__.split(".", 2)
    return f"{package}/msg/{type(message).__name__}"


@pytest.mark.parametrize(
    "plugin", [StoragePlugin.MCAP, StoragePlugin.SQLITE3], ids=["mcap", "sqlite3"]
)
def test_a_recording_of_all_outputs_opens_and_says_the_same(node_of, heard, tmp_path, plugin):
    heard, store = record(node_of, heard), get_typestore(Stores.ROS2_JAZZY)
    with Writer(tmp_path / "outputs", version=9, storage_plugin=plugin) as writer:
        for name, message in heard.items():
            connection = writer.add_connection(
                f"/mapping/{name}", type_of(message), typestore=store
            )
            writer.write(connection, 10**9, serialize_message(message))
    with AnyReader([tmp_path / "outputs"], default_typestore=store) as reader:
        found = {
            c.topic.removeprefix("/mapping/"): reader.deserialize(raw, c.msgtype)
            for c, _, raw in reader.messages()
        }
    assert set(found) == set(EXPECTED)
    for name in ("mean", "stddev"):
        cells, live = np.asarray(found[name].data), found[name].info
        assert found[name].header.frame_id == "odom" and live.width * live.height == cells.size
        assert np.array_equal(cells, np.array(heard[name].data)) and {-1} <= set(cells) <= {
            -1,
            *range(1, 99),
        }
    cloud = found["field"]
    assert [f.name for f in cloud.fields] == ["x", "y", "z", "intensity", "mean", "stddev"]
    rows = np.frombuffer(bytes(cloud.data), "<f4").reshape(cloud.width, 6)
    assert cloud.height == 1 and cloud.row_step == rows.nbytes and np.isfinite(rows).all()
    low, high = (found["limits"].data[k] for k in (0, 1))
    assert low - 1e-9 <= rows[:, 4].min() <= rows[:, 4].max() <= high + 1e-9
    assert [d.label for d in found["limits"].layout.dim] == [
        "mean_low",
        "mean_high",
        "stddev_low",
        "stddev_high",
    ]
    assert {m.ns for m in found["markers"].markers} >= {"path", "inducing", "legend"}
    first = found["suggestions"].poses[0].position
    assert (first.x, first.y) == (
        found["suggestion"].pose.position.x,
        found["suggestion"].pose.position.y,
    )

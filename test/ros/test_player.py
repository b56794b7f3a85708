"""bag_player_node as a process of its own, playing real bags over DDS."""

import os
import shutil
import sqlite3
import threading
import time

import numpy as np
import pytest

pytest.importorskip("rclpy")

import rclpy
from builtin_interfaces.msg import Time
from dds_helpers import DEEP, Listener, ros_run, stamp_ns
from domains import domain_of
from nav_msgs.msg import OccupancyGrid, Odometry
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import MagneticField

from gp_mapping.intake.poses.messages import TF_MESSAGE
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.ros.bag_player_node import BagPlayerNode, main, quality_of
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.sim.simulation import FieldReading, Simulation, SimulationSettings

DOMAIN = domain_of("player")
MODULE = "gp_mapping.ros.bag_player_node"
INPUTS = {
    "magnetic_field": (MagneticField, DEEP),
    "odometry": (Odometry, DEEP),
    "/clock": (Clock, DEEP),
}


def player(tmp_path, path, *parameters, remap=()):
    return ros_run(
        MODULE, f"path:={path}", *parameters, domain=DOMAIN, log_dir=tmp_path, remap=remap
    )


@pytest.fixture(scope="module")
def readings():
    return list(Simulation(SimulationSettings(duration=20.0)))


@pytest.fixture(scope="module", params=["mcap", "sqlite3"])
def bag(request, tmp_path_factory, readings):
    path = tmp_path_factory.mktemp(request.param) / "drive"
    with BagWriter(path, request.param) as writer:
        for e in readings:
            if isinstance(e, FieldReading):
                writer.magnetic_field(e.stamp_ns, e.field)
            else:
                writer.odometry(
                    e.stamp_ns, (e.x, e.y, 0.0), (0.0, 0.0, np.sin(e.yaw / 2), np.cos(e.yaw / 2))
                )
    return path


def test_every_message_arrives_as_recorded_and_paced(tmp_path, bag, readings):
    with (
        Listener(DOMAIN, INPUTS) as here,
        player(tmp_path, bag, "rate:=10.0", "wait_for_subscribers:=20.0", "linger:=0.2") as process,
    ):
        assert here.spin_until(lambda: here.got["odometry"])
        started = time.monotonic()
        assert here.spin_through(process) == 0, process.output
        assert 1.8 < time.monotonic() - started < 10.0  # 20 s at 10 times the speed
        fields = [e for e in readings if isinstance(e, FieldReading)]
        got = here.got["magnetic_field"]
        assert [stamp_ns(m.header.stamp) for m in got] == [e.stamp_ns for e in fields]
        np.testing.assert_array_equal(
            [(m.magnetic_field.x, m.magnetic_field.y, m.magnetic_field.z) for m in got],
            [e.field for e in fields],
        )
        assert len(here.got["odometry"]) == len(readings) - len(fields)
        ticks = [stamp_ns(m.clock) for m in here.got["/clock"]]
        assert (
            ticks == sorted(set(ticks))
            and ticks[0] == readings[0].stamp_ns
            and ticks[-1] > readings[-1].stamp_ns
        )
        assert "played 1000 on /magnetic_field, 1001 on /odometry" in process.output


@pytest.mark.parametrize("bag", ["mcap"], indirect=True)
def test_topics_are_chosen_and_renamed_and_loops_begin_again(tmp_path, bag, readings):
    topics = {
        "compass": (MagneticField, DEEP),
        "odometry": (Odometry, DEEP),
        "/clock": (Clock, DEEP),
    }
    with (
        Listener(DOMAIN, topics) as here,
        player(
            tmp_path,
            bag,
            "rate:=40.0",
            "loop:=true",
            "topics:=magnetic_field",
            "wait_for_subscribers:=20.0",
            remap=["/magnetic_field:=/compass"],
        ) as process,
    ):
        assert here.spin_until(lambda: len(here.got["compass"]) > 2100), process.output
        process.interrupt()
        assert process.wait(10.0) == 0, process.output
        stamps = [stamp_ns(m.header.stamp) for m in here.got["compass"]]
        once = [e.stamp_ns for e in readings if isinstance(e, FieldReading)]
        assert stamps[:2100] == once + once + once[:100] and not here.got["odometry"]
        ticks = np.diff([stamp_ns(m.clock) for m in here.got["/clock"]])
        assert (
            2 <= (ticks < 0).sum() <= 3
        )  # time jumps back once for each new beginning, so that nodes can notice


def _qos(durability: QosDurability) -> Qos:
    zero = QosTime(0, 0)
    return Qos(
        QosHistory.KEEP_LAST,
        1,
        QosReliability.RELIABLE,
        durability,
        zero,
        zero,
        QosLiveliness.AUTOMATIC,
        zero,
        False,
    )


def _mixed_bag(path, *, only_unknown=False):
    """A latched map at the start, a type that is not installed, and two measurements a second apart."""
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg("float64 ppm", "gas_sensor_msgs/msg/Concentration"))
    t = store.types
    header = t["std_msgs/msg/Header"](
        stamp=t["builtin_interfaces/msg/Time"](sec=1, nanosec=0), frame_id="f"
    )
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as bag:
        gas = bag.add_connection("/gas", "gas_sensor_msgs/msg/Concentration", typestore=store)
        message = t["gas_sensor_msgs/msg/Concentration"](ppm=3.0)
        bag.write(gas, 10**9, store.serialize_cdr(message, gas.msgtype))
        if only_unknown:
            return
        grid = bag.add_connection(
            "/map",
            "nav_msgs/msg/OccupancyGrid",
            typestore=store,
            offered_qos_profiles=[_qos(QosDurability.TRANSIENT_LOCAL)],
        )
        pose = t["geometry_msgs/msg/Pose"](
            position=t["geometry_msgs/msg/Point"](0.0, 0.0, 0.0),
            orientation=t["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        )
        info = t["nav_msgs/msg/MapMetaData"](
            map_load_time=header.stamp, resolution=0.5, width=2, height=1, origin=pose
        )
        bag.write(
            grid,
            10**9,
            store.serialize_cdr(
                t["nav_msgs/msg/OccupancyGrid"](
                    header=header, info=info, data=np.array([0, 100], np.int8)
                ),
                grid.msgtype,
            ),
        )
        field = bag.add_connection(
            "/magnetic_field", "sensor_msgs/msg/MagneticField", typestore=store
        )
        for k in (1, 2):
            bag.write(
                field,
                k * 10**9,
                store.serialize_cdr(
                    t["sensor_msgs/msg/MagneticField"](
                        header=header,
                        magnetic_field=t["geometry_msgs/msg/Vector3"](1.0, 2.0, 3.0),
                        magnetic_field_covariance=np.zeros(9),
                    ),
                    field.msgtype,
                ),
            )


def test_latched_topics_stay_latched_and_unknown_types_are_skipped(tmp_path):
    _mixed_bag(tmp_path / "mixed")
    latched = QoSProfile(
        depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
    )
    with (
        Listener(DOMAIN, {"magnetic_field": (MagneticField, DEEP)}) as here,
        player(
            tmp_path, tmp_path / "mixed", "wait_for_subscribers:=20.0", "linger:=2.0"
        ) as process,
    ):
        assert here.spin_until(lambda: here.got["magnetic_field"]), process.output
        late = []
        here.node.create_subscription(
            OccupancyGrid, "map", late.append, latched
        )  # joins after the map was sent
        assert here.spin_until(lambda: late), process.output
        assert list(late[0].data) == [0, 100]
        assert here.spin_through(process) == 0
        assert (
            "skipping /gas: gas_sensor_msgs/msg/Concentration is not installed here"
            in process.output
        )


def test_static_transforms_of_several_nodes_reach_who_joins_late():
    """Each was latched by a node of its own; from one publisher that keeps the last one, all but one link are gone."""

    def taken(kind: str) -> list[int]:
        with Listener(DOMAIN, {}) as here:
            publisher = here.node.create_publisher(Clock, "many", quality_of(kind, True))
            for second in range(1, 31):
                publisher.publish(Clock(clock=Time(sec=second)))
            got = []
            here.node.create_subscription(Clock, "many", got.append, quality_of(TF_MESSAGE, True))
            assert here.spin_until(lambda: got)
            return [m.clock.sec for m in got]

    assert taken(TF_MESSAGE) == list(range(1, 31))
    assert taken("nav_msgs/msg/OccupancyGrid") == [30]


def _cut_off(bag, to):
    """The recording stopped soon after it began: of the storage file not even the tables are there."""
    shutil.copytree(bag, to)
    stored = next(p for p in to.iterdir() if p.suffix in (".db3", ".mcap"))
    os.truncate(stored, stored.stat().st_size // 50)


def _empty(to):
    with BagWriter(to, "sqlite3"):
        pass


def _some_rows_missing(bag, to):
    """Fewer messages than metadata.yaml promises; only reading to the end can tell."""
    shutil.copytree(bag, to)
    stored = next(p for p in to.iterdir() if p.suffix == ".db3")
    with sqlite3.connect(stored) as database:
        database.execute("DELETE FROM messages WHERE id > 5")


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda bag, to: None, "no such bag"),
        (lambda bag, to: _empty(to), "the bag is empty"),
        (_cut_off, "cut off"),
        (lambda bag, to: _mixed_bag(to, only_unknown=True), "not installed"),
    ],
)
@pytest.mark.parametrize("bag", ["sqlite3"], indirect=True)
def test_bad_bags_end_it_with_a_clear_text(tmp_path, capfd, bag, make, words):
    make(bag, tmp_path / "bad")
    assert main(["--ros-args", "-p", f"path:={tmp_path / 'bad'}", "-p", "rate:=100.0"]) == 1
    said = "".join(capfd.readouterr())
    assert words in said and "bad" in said and "Traceback" not in said, said


@pytest.mark.parametrize("bag", ["sqlite3"], indirect=True)
def test_what_is_left_of_a_bag_is_played_and_the_rest_is_said(tmp_path, capfd, bag):
    _some_rows_missing(bag, tmp_path / "bad")
    assert main(["--ros-args", "-p", f"path:={tmp_path / 'bad'}", "-p", "rate:=100.0"]) == 0
    said = "".join(capfd.readouterr())
    assert "1000 messages were recorded on /magnetic_field and 2 are there" in said
    assert "played 2 on /magnetic_field, 3 on /odometry" in said and "Traceback" not in said, said


@pytest.mark.parametrize(
    "parameters, code, words",
    [
        (("rate:=0.0",), 2, "rate: 0.0"),
        (
            ("topics:=nothing",),
            1,
            "there is no topic /nothing; the bag has /magnetic_field (sensor_msgs/msg/MagneticField",
        ),
        (
            ("wait_for_subscribers:=1.0", "wait_for:=/imu/mag"),
            1,
            "there is no topic /imu/mag; the bag has",
        ),
        (
            ("wait_for_subscribers:=1.0", "wait_for:=/odometry"),
            3,
            "nobody subscribed to /odometry within 1 s",
        ),
        (("wait_for_subscribers:=0.3",), 3, "nobody subscribed"),
    ],
)
@pytest.mark.parametrize("bag", ["mcap"], indirect=True)
def test_mistakes_end_it_with_a_clear_text(capfd, bag, parameters, code, words):
    given = [word for p in (f"path:={bag}", *parameters) for word in ("-p", p)]
    assert main(["--ros-args", *given]) == code
    said = "".join(capfd.readouterr())
    assert words in said and "Traceback" not in said, said


@pytest.mark.parametrize("bag", ["mcap"], indirect=True)
def test_ended_while_it_waits_for_subscribers_it_says_so(capfd, bag):
    given = [word for p in (f"path:={bag}", "wait_for_subscribers:=20.0") for word in ("-p", p)]
    rclpy.init(args=["--ros-args", *given])
    try:
        node, stop = BagPlayerNode(), threading.Event()
        stop.set()
        assert node.run(SingleThreadedExecutor(), stop) == 0
    finally:
        rclpy.try_shutdown()
    assert f"nothing of {bag} has been played" in "".join(capfd.readouterr())


def test_message_classes_are_found_by_their_ros_names():
    assert message_class("sensor_msgs/msg/MagneticField") is MagneticField
    assert message_class("gas_sensor_msgs/msg/Concentration") is None
    assert message_class("sensor_msgs/msg/Concentration") is None

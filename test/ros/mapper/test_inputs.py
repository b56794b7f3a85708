"""Other sensors and other poses, over real DDS; what is absent or published as something else is said."""

import math
import sys
import time
from concurrent.futures import Future

import numpy as np
import pytest
import torch
from geometry_msgs.msg import PoseStamped
from rclpy.qos import DurabilityPolicy
from ros_helpers import (
    NS,
    QUICK,
    ROOT,
    NodeProcess,
    Peer,
    cloud_array,
    field_at,
    magnetic_field,
    odometry,
    parameter_file,
    place_at,
    settle,
    spin,
    spin_until,
)
from sensor_msgs.msg import BatteryState, MagneticField, PointCloud2, Temperature
from std_msgs.msg import Bool, Float32, Float64, Int32, Int32MultiArray
from tf_messages import EPOCH, stamped, transforms, with_tf
from visualization_msgs.msg import MarkerArray

from benchmark import warm
from gp_mapping.ros.mapper.inputs import MOMENT
from gp_mapping.ros.mapper.parameters import ParameterError
from gp_mapping.ros.tools import process
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.ros.wire.qos import sensor_data


def degrees_at(x, y):
    return 20.0 + 2.0 * math.sin(1.5 * x) * math.cos(1.1 * y)


def test_temperature_with_pose_stamped_makes_a_map_in_degrees(tmp_path):
    parameters = {**QUICK, "sensor": "temperature", "pose_source": "pose", "reliable_inputs": True}
    with NodeProcess(tmp_path, **parameters) as node, Peer() as peer:
        sensor = peer.node.create_publisher(Temperature, "temperature", sensor_data(1000, True))
        pose = peer.node.create_publisher(PoseStamped, "pose", sensor_data(1000, True))
        cloud, markers = (
            peer.listen(PointCloud2, "/mapping/field"),
            peer.listen(MarkerArray, "/mapping/markers"),
        )
        peer.until(
            lambda: sensor.get_subscription_count() and pose.get_subscription_count(),
            what="not subscribed",
        )
        peer.spin(0.3)
        for i in range(301):
            stamp, (x, y) = EPOCH + round(i / 50 * NS), place_at(i / 50)
            where = stamped(PoseStamped(), stamp, "world")
            where.pose.position.x, where.pose.position.y, where.pose.orientation.w = (
                float(x),
                float(y),
                1.0,
            )
            pose.publish(where)
            sensor.publish(stamped(Temperature(temperature=degrees_at(x, y)), stamp, "thermometer"))
            peer.spin(0.005)
        peer.settle()
        assert peer.number("temperature received") == peer.number("pose received") == 301
        assert peer.number("samples") >= 300 and not [
            key for key in peer.values if key.startswith("dropped")
        ]
        points = cloud_array(cloud[-1])
        assert cloud[-1].header.frame_id == "world"
        error = points[:, 4] - np.array([degrees_at(x, y) for x, y in points[:, :2]])
        assert (np.abs(error) < 3.0 * points[:, 5]).mean() > 0.95 and np.sqrt(
            np.median(error**2)
        ) < 0.5
        assert "°C" in next(m for m in markers[-1].markers if m.ns == "legend").text
        shown = parameter_of(peer, "field_unit"), parameter_of(peer, "signal_stddev")
        assert shown == ("°C", 0.0)
        assert node.stop() == 0 and "ERROR" not in node.log


def parameter_of(peer, name):
    """What `ros2 param get` shows."""
    from rcl_interfaces.srv import GetParameters

    value = peer.call(
        GetParameters, "/mapping/get_parameters", GetParameters.Request(names=[name])
    ).values[0]
    return value.string_value if value.type == 4 else value.double_value


@pytest.mark.parametrize("kind", [Int32, Bool])
def test_whole_numbers_are_taken_however_seldom_the_map_is_drawn(node_of, kind):
    """A counter's Int32, a contact's Bool; whether somebody publishes is looked for at a rate of its own."""
    node, peer = node_of(sensor="scalar", reliable_inputs=True, publish_rate=0.01)
    clicks = peer.node.create_publisher(kind, "scalar", sensor_data(1000, True))
    ready = peer.odometry_publisher.get_subscription_count
    spin_until(node, peer, lambda: clicks.get_subscription_count() and ready(), timeout=10.0)
    assert not node.inputs.problems
    for i in range(20):
        peer.odometry_publisher.publish(odometry(time.time_ns(), 0.1 * i, 0.0))
        clicks.publish(kind(data=kind is Bool or i))
        spin(node, peer, 0.005)
    peer.odometry_publisher.publish(odometry(time.time_ns(), 2.0, 0.0))
    spin_until(node, peer, lambda: node.worker.status.used >= 18)


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("voltage", True),
        ("cell_voltage.1", True),
        ("voltage[location=bay 1]", True),
        ("volts", False),
    ],
)
def test_a_number_is_taken_from_where_value_field_says(node_of, path, taken):
    node, peer = node_of(sensor="scalar", value_field=path, reliable_inputs=True)
    battery = peer.node.create_publisher(BatteryState, "scalar", sensor_data(1000, True))
    if not taken:
        spin_until(node, peer, lambda: node.inputs.check_publishers() or node.inputs.problems)
        assert f"any other with a number at {path}" in node.inputs.problems[0]
        return
    ready = peer.odometry_publisher.get_subscription_count
    spin_until(node, peer, lambda: battery.get_subscription_count() and ready(), timeout=10.0)
    for i in range(20):
        stamp = EPOCH + i * NS // 10
        peer.odometry_publisher.publish(odometry(stamp, 0.1 * i, 0.0))
        message = BatteryState(voltage=12.5, cell_voltage=[0.0, 12.5], location="bay 1")
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, NS)
        battery.publish(message)
        spin(node, peer, 0.005)
    spin_until(node, peer, lambda: node.worker.status.used >= 18)
    settle(node, peer)
    mean = node.worker.call(
        lambda session: float(session.predict(torch.tensor([[1.0, 0.0]])).mean[0, 0])
    )
    assert mean.result(10) == pytest.approx(12.5, abs=0.1)


def test_an_array_is_no_number(node_of):
    node, peer = node_of(sensor="scalar")
    peer.node.create_publisher(Int32MultiArray, "scalar", 10)
    spin_until(node, peer, lambda: node.inputs.check_publishers() or node.inputs.problems)
    assert "a number called data or value" in node.inputs.problems[0]


@pytest.mark.parametrize("kind", [Float32, Float64])
def test_an_unstamped_scalar_of_either_type_counts_from_when_it_came(node_of, kind):
    node, peer = node_of(sensor="scalar", reliable_inputs=True)
    scalar = peer.node.create_publisher(kind, "scalar", sensor_data(1000, True))
    spin_until(
        node,
        peer,
        lambda: (
            scalar.get_subscription_count() and peer.odometry_publisher.get_subscription_count()
        ),
    )
    begin = time.monotonic()
    for _ in range(130):
        x, y = place_at(time.monotonic() - begin)
        peer.odometry_publisher.publish(odometry(time.time_ns(), x, y))
        scalar.publish(kind(data=math.sin(x)))
        spin(node, peer, 0.01)
    settle(node, peer)
    report = node.worker.call(
        lambda session: (session.report(), session.settings.field_unit)
    ).result(10)
    assert report[0]["samples"] >= 100 and report[1] == "units"
    assert node.worker.status.timings["latency"]["p50_ms"] < 500
    assert (
        set(node.worker.status.drops) <= {"no_pose"} and sum(node.worker.status.drops.values()) <= 2
    )


def test_a_topic_of_another_type_is_named_and_a_reliable_wish_that_nobody_meets(node_of):
    node, peer = node_of(reliable_inputs=True)
    peer.node.create_publisher(Float64, "odometry2", 10)  # nobody asks for it
    peer.node.destroy_publisher(peer.odometry_publisher)
    peer.node.destroy_publisher(peer.field_publisher)
    peer.node.create_publisher(PoseStamped, "odometry", 10)
    weak = peer.node.create_publisher(MagneticField, "magnetic_field", sensor_data(10, False))

    def problems():
        node.inputs.check_publishers()
        return " ".join(node.inputs.problems)

    spin_until(
        node,
        peer,
        lambda: "geometry_msgs/msg/PoseStamped, expected nav_msgs/msg/Odometry" in problems(),
    )
    spin_until(node, peer, lambda: "QoS mismatch: a publisher of /magnetic_field" in problems())
    assert "reliable_inputs: false" in problems()
    peer.node.destroy_publisher(weak)  # its driver begins again, as is asked for
    peer.field_publisher = peer.node.create_publisher(
        MagneticField, "magnetic_field", sensor_data(10, True)
    )
    spin_until(node, peer, lambda: "QoS mismatch" not in problems(), timeout=20.0)


def test_poses_from_tf_give_the_map_that_odometry_gives(node_of):
    node, peer = node_of(find=with_tf, pose_source="tf", mounting="tf")
    ports = {port.role: port for port in node.inputs.ports}
    quality = {role: port.subscription.qos_profile.durability for role, port in ports.items()}
    assert (
        quality["tf_static"] == DurabilityPolicy.TRANSIENT_LOCAL
        and quality["tf"] == DurabilityPolicy.VOLATILE
    )
    assert (ports["tf"].topic, ports["tf_static"].topic) == ("/tf", "/tf_static")
    assert ports["tf"].watch.steady and not ports["tf_static"].watch.steady
    node._on_input(ports["measurement"], magnetic_field(EPOCH, 45e-6))
    wait_until(
        lambda: any("'map'" in text for text in node.worker.status.warnings)
    )  # TF does not connect them
    node._on_input(ports["tf_static"], transforms((0, "base_link", "magnetometer", 0.0, 0.1)))
    expected, _ = node_of(namespace="/other")
    other = {port.role: port for port in expected.inputs.ports}
    for i in range(1, 201):
        stamp, (x, y) = EPOCH + i * NS // 50, place_at(i / 50)
        node._on_input(
            ports["tf"],
            transforms((stamp, "map", "odom", 1.0, 0.0), (stamp, "odom", "base_link", x, y)),
        )
        expected._on_input(other["pose"], odometry(stamp, x + 1.0, y + 0.1))
        for each, port in ((node, ports["measurement"]), (expected, other["measurement"])):
            each._on_input(port, magnetic_field(stamp, field_at(x, y)))
    maps = []
    for each in (node, expected):
        assert each.worker.stop(timeout=30)
        status = each.worker.status
        assert status.report["samples"] >= 199
        maps.append(
            each.worker.call(lambda session: session.predict([[1.2, 0.15], [1.7, 0.4]])).result()
        )
    assert node.frame == "map" and expected.frame == "odom"
    assert node.worker.status.received == {"magnetic_field": 201, "tf": 201}
    np.testing.assert_allclose(maps[0].mean, maps[1].mean, rtol=0, atol=2e-8)


def test_inputs_that_bring_something_are_looked_at_again_after_a_moment(node_of, monkeypatch):
    """A look at all that the executor serves costs more than a message: what comes meanwhile is taken with it."""
    node, peer = node_of(reliable_inputs=True, autostart=False)
    given = []
    monkeypatch.setattr(process, "spin", lambda node, over, moment: given.append(moment))
    ended = Future()
    ended.set_result(True)
    monkeypatch.setattr(node, "end", lambda: ended)  # it goes on
    process.run_lifecycle(node, None)  # as main does, but for the spinning
    (moment,) = given
    spin_until(node, peer, lambda: peer.odometry_publisher.get_subscription_count())
    spin(node, peer, 0.3)
    moment()
    assert moment() == 0.0, "services and timers wait for nothing"

    for i in range(20):
        peer.odometry_publisher.publish(odometry(EPOCH + i * NS // 50, *place_at(i / 50)))
    time.sleep(0.3)
    poses, before = node.inputs.ports[1].watch, node.inputs.ports[1].watch.count
    for _ in range(20):
        node.executor_.spin_once(timeout_sec=0.1)
        if poses.count > before:
            break
    assert poses.count == before + 20 and 0.0 < moment() <= MOMENT and moment() == 0.0


def test_nothing_overflows_while_the_executor_lets_a_moment_pass(node_of):
    """5 messages of a queue of 10 within some 10 ms: in the 40 ms of a moment it would be full."""
    node, peer = node_of(reliable_inputs=True, input_queue_depth=10)
    spin_until(node, peer, lambda: peer.odometry_publisher.get_subscription_count())
    spin(node, peer, 0.3)
    pauses, pose = [], node.inputs.ports[1]
    for i in range(100):
        begin = time.monotonic()
        node.inputs.batching_pause()
        time.sleep(0.002)
        for k in range(5):
            peer.odometry_publisher.publish(
                odometry(EPOCH + (5 * i + k) * NS // 500, *place_at(i / 100))
            )
        before = pose.watch.count
        while pose.watch.count < before + 5:
            node.executor_.spin_once(timeout_sec=0.5)
        pauses.append((node.inputs.batching_pause(), time.monotonic() - begin))
    assert pose.watch.count == 500 and pose.watch.lost == 0
    assert all(0.0 < pause <= 0.5 * took for pause, took in pauses), (
        "2.5 messages come in half of the time that 5 have taken"
    )


def test_a_message_without_a_stamp_is_of_when_the_middleware_had_it(node_of, monkeypatch):
    """Not of when the executor came to look: half a second later, here, and for all at once."""
    node, peer = node_of(sensor="scalar", reliable_inputs=True)
    scalar = peer.node.create_publisher(Float64, "scalar", sensor_data(1000, True))
    spin_until(node, peer, scalar.get_subscription_count)
    stamps, sent = [], []
    monkeypatch.setattr(
        node.worker, "put", lambda role, message, stamp, posed: stamps.append(stamp)
    )
    for i in range(10):
        sent.append(time.time_ns())
        scalar.publish(Float64(data=float(i)))
        time.sleep(0.02)
    time.sleep(0.5)
    spin_until(node, peer, lambda: len(stamps) == 10)
    late = np.array(stamps) - np.array(sent)
    assert np.all(late >= -1e6) and np.median(late) < 0.015 * NS, late


def test_a_sensor_of_another_clock_is_named_however_the_executor_takes_its_messages(node_of):
    """Sent in turns, stamped 1.5 s apart; taken after a while, the measurements first."""
    node, peer = node_of(reliable_inputs=True, max_wait=5.0)
    ready = peer.odometry_publisher.get_subscription_count
    spin_until(node, peer, lambda: ready() and peer.field_publisher.get_subscription_count())
    for i in range(160):
        stamp, (x, y) = EPOCH + i * NS // 20, place_at(i / 20)
        peer.odometry_publisher.publish(odometry(stamp, x, y))
        peer.field_publisher.publish(magnetic_field(stamp + 3 * NS // 2, field_at(x, y)))
    time.sleep(0.3)
    spin_until(
        node, peer, lambda: any("two clocks" in text for text in node.worker.status.warnings)
    )
    (said,) = [text for text in node.worker.status.warnings if "two clocks" in text]
    assert "stamped 1.5 s after the poses" in said and said.endswith("write stamp_offset: 1.5")


def test_messages_without_a_stamp_that_come_together_keep_their_order(node_of):
    """Two clocks are read for each, one after the other; and simulated time stands between two of its messages."""
    node, peer = node_of(sensor="scalar")
    ports = {port.role: port for port in node.inputs.ports}
    now = time.time_ns()
    for i in range(-5, 20):
        node._on_input(ports["pose"], odometry(now + i * NS // 20, 0.01 * i, 0.0))
    for i in range(200):  # each is older than the one before, by a microsecond
        node._on_input(ports["measurement"], Float64(data=0.1 * i), age=1_000_000 + 100_000 * i)
    settle(node, peer)
    assert node.worker.status.received["scalar"] == 200 and node.worker.status.drops == {}


@pytest.mark.parametrize(
    "parameters, words",
    [
        ({"pose_source": "tf"}, ("pose_source: 'tf' needs tf2_msgs/msg/TFMessage", "tf2-msgs")),
        ({"mounting": "tf"}, ("mounting: 'tf' needs tf2_msgs/msg/TFMessage",)),
        ({"sensor": "temperature"}, ("sensor: 'temperature' needs sensor_msgs/msg/Temperature",)),
    ],
)
def test_absent_message_packages_are_said_at_configure(node_of, parameters, words):
    with pytest.raises(ParameterError) as error:
        node_of(
            find=lambda kind: (
                None if kind.startswith(("tf2_msgs", "sensor_msgs/msg/Temp")) else with_tf(kind)
            ),
            **parameters,
        )
    assert all(word in str(error.value) for word in words)


@pytest.mark.skipif(
    message_class("tf2_msgs/msg/TFMessage") is not None, reason="tf2_msgs is installed"
)
def test_without_tf2_msgs_the_process_ends_with_the_reason(tmp_path):
    path = parameter_file(tmp_path, pose_source="tf")
    done = warm.run(
        [
            sys.executable,
            "-m",
            "gp_mapping.ros.mapping_node",
            "--ros-args",
            "--params-file",
            str(path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "tf2_msgs is not installed here; install it" in done.stderr
    assert "Traceback" not in done.stderr


def wait_until(condition, timeout: float = 10.0):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)

"""simulator_node as a process of its own, heard over DDS."""

import itertools
import math
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy")

import rclpy
from dds_helpers import DEEP, Listener, ros_run, stamp_ns
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from domains import domain_of
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import qos_profile_sensor_data
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import MagneticField

from gp_mapping.ros import simulator_node
from gp_mapping.ros.mapper.descriptors import ParameterError
from gp_mapping.ros.simulator_node import SimulatorSettings, floor_plan, main, parse_waypoints
from gp_mapping.ros.tools.playback import declare_groups
from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.sim.simulation import FieldReading, Simulation, SimulationSettings
from gp_mapping.sim.world import WorldSettings

DOMAIN = domain_of("simulator")
MODULE = "gp_mapping.ros.simulator_node"
FAST = ("publish_clock:=true", "real_time_factor:=20.0", "wait_for_subscribers:=20.0")


def simulator(tmp_path, *parameters):
    return ros_run(MODULE, *parameters, domain=DOMAIN, log_dir=tmp_path)


def test_a_drive_arrives_complete_in_order_and_as_simulated(tmp_path):
    """20 times real time: 1000 field and 1000 odometry messages per second of wall time, and not one is lost."""
    topics = {
        "magnetic_field": (MagneticField, DEEP),
        "odometry": (Odometry, DEEP),
        "/clock": (Clock, DEEP),
        "/diagnostics": (DiagnosticArray, DEEP),
        "map": (OccupancyGrid, LATCHED),
    }
    with (
        Listener(DOMAIN, topics) as here,
        simulator(
            tmp_path, *FAST, "reliable:=true", "sim.duration:=60.0", "sim.seed:=4", "world.seed:=2"
        ) as process,
    ):
        assert here.spin_until(lambda: here.got["odometry"]), process.output
        started = time.monotonic()
        assert here.spin_through(process) == 0, process.output
        assert time.monotonic() - started < 20.0  # a minute of driving
        field, odometry, clock = (here.got[t] for t in ("magnetic_field", "odometry", "/clock"))
        expected = list(
            Simulation(SimulationSettings(duration=60.0, seed=4), WorldSettings(seed=2))
        )
        readings = [e for e in expected if isinstance(e, FieldReading)]
        poses = [e for e in expected if not isinstance(e, FieldReading)]
        assert [stamp_ns(m.header.stamp) for m in field] == [e.stamp_ns for e in readings]
        assert [stamp_ns(m.header.stamp) for m in odometry] == [e.stamp_ns for e in poses]
        got = np.array(
            [(m.magnetic_field.x, m.magnetic_field.y, m.magnetic_field.z) for m in field]
        )
        np.testing.assert_array_equal(got, [e.field for e in readings])
        m, e = odometry[-1], poses[-1]
        assert (m.pose.pose.position.x, m.pose.pose.position.y, m.pose.pose.position.z) == (
            e.x,
            e.y,
            0.0,
        )
        assert 2 * math.atan2(
            m.pose.pose.orientation.z, m.pose.pose.orientation.w
        ) == pytest.approx(e.yaw)
        assert (m.twist.twist.linear.x, m.twist.twist.angular.z) == (e.speed, e.turn_rate)
        covariance = m.pose.covariance.reshape(6, 6)
        np.testing.assert_array_equal(covariance[np.ix_((0, 1, 5), (0, 1, 5))], e.covariance)
        assert (m.header.frame_id, m.child_frame_id, field[0].header.frame_id) == (
            "odom",
            "base_link",
            "magnetometer",
        )
        np.testing.assert_allclose(
            field[0].magnetic_field_covariance, np.eye(3).ravel() * 0.2e-6**2
        )
        ticks = [stamp_ns(m.clock) for m in clock]
        assert (
            ticks == sorted(set(ticks)) and ticks[-1] >= poses[-1].stamp_ns
        )  # forward only, and beyond the last data
        assert max(np.diff(ticks)) <= 40_000_000
        assert [m.info.width * m.info.resolution for m in here.got["map"]] == [pytest.approx(6.1)]
        values = {v.key: v.value for v in here.got["/diagnostics"][-1].status[0].values}
        assert values["state"] == "done"
        assert (values["sent_magnetic_field"], values["sent_odometry"]) == ("3000", "3001")


def test_without_clock_the_drive_is_now_and_best_effort_readers_hear_it_in_its_namespace(tmp_path):
    best_effort = qos_profile_sensor_data
    topics = {
        "/one/magnetic_field": (MagneticField, best_effort),
        "/one/odometry": (Odometry, best_effort),
        "/diagnostics": (DiagnosticArray, DEEP),
    }
    parameters = ("wait_for_subscribers:=20.0", "sim.duration:=1.0", "sim.field_rate:=100.0")
    run = {"domain": DOMAIN, "log_dir": tmp_path, "remap": ["__ns:=/one"]}
    with Listener(DOMAIN, topics) as here, ros_run(MODULE, *parameters, **run) as process:
        assert here.spin_through(process) == 0, process.output
        age = time.time() - stamp_ns(here.got["/one/odometry"][-1].header.stamp) * 1e-9
        assert -0.1 < age < 10.0
        assert len(here.got["/one/magnetic_field"]) >= 95 and len(here.got["/one/odometry"]) >= 48
        names = {status.name for m in here.got["/diagnostics"] for status in m.status}
        assert names == {"one/simulator: drive"}, "of two robots each has its own"


def test_waypoints_faults_and_frames_are_parameters(tmp_path):
    topics = {"magnetic_field": (MagneticField, DEEP), "odometry": (Odometry, DEEP)}
    parameters = (
        "reliable:=true",
        "waypoints:='1 1, 2 1, 2 1.5'",
        "magnetometer.nan_probability:=0.2",
        "odometry_frame:=map",
        "sensor_frame:=mag",
        "odometry.heading_drift:=0.05",
        "robot.max_speed:=1.0",
    )
    with Listener(DOMAIN, topics) as here, simulator(tmp_path, *FAST, *parameters) as process:
        assert here.spin_through(process) == 0, process.output
        field, odometry = here.got["magnetic_field"], here.got["odometry"]
        x, y = odometry[-1].pose.pose.position.x, odometry[-1].pose.pose.position.y
        assert math.hypot(x - 2.0, y - 1.5) < 0.3
        assert odometry[-1].pose.covariance[35] > odometry[0].pose.covariance[35]
        nan = np.mean(
            [
                math.isnan(m.magnetic_field.x + m.magnetic_field.y + m.magnetic_field.z)
                for m in field
            ]
        )
        assert 0.05 < nan < 0.4
        assert odometry[0].header.frame_id == "map" and field[0].header.frame_id == "mag"


def test_sigint_stops_it_cleanly(tmp_path):
    with (
        Listener(DOMAIN, {"odometry": (Odometry, DEEP)}) as here,
        simulator(tmp_path, "reliable:=true") as process,
    ):
        assert here.spin_until(lambda: len(here.got["odometry"]) > 5), process.output
        process.interrupt()
        assert process.wait(10.0) == 0
        assert "stopped at" in process.output and "Traceback" not in process.output


@pytest.mark.parametrize(
    "parameters, code, words",
    [
        (
            ("wait_for_subscribers:=0.3",),
            3,
            ("nobody subscribed to /magnetic_field, /odometry within 0.3 s",),
        ),
        (
            ("sim.durration:=3.0", "world.seed:=-1", "real_time_factor:=fast"),
            2,
            ("did you mean 'sim.duration'", "world.seed: -1", "real_time_factor: 'fast' is str"),
        ),
        (("real_time_factor:=2.0",), 2, ("publish_clock:=true",)),
        (("sim.field_rate:=30.0",), 1, ("field_rate is 30.0 Hz",)),
        (("waypoints:='1 1, 2'",), 1, ("'2' is not 'x y'",)),
    ],
)
def test_mistakes_end_it_with_a_clear_text(capfd, parameters, code, words):
    assert main(["--ros-args", *(word for p in parameters for word in ("-p", p))]) == code
    said = "".join(capfd.readouterr())
    assert all(w in said for w in words) and "Traceback" not in said, said


class Declared:
    """A node's parameters, in the order in which they were given."""

    def __init__(self, **values):
        self.values, self.declared = values, {}

    def get_parameters_by_prefix(self, _):
        return {name: SimpleNamespace(value=value) for name, value in self.values.items()}

    def undeclare_parameter(self, name):
        assert name in self.values

    def declare_parameter(self, name, value, descriptor, ignore_override):
        self.declared[name] = value


@pytest.mark.parametrize(
    "given",
    itertools.permutations(
        [("real_time_factor", 8.0), ("publish_clock", True), ("odometry_frame", "map")]
    ),
)
def test_values_that_need_each_other_may_come_in_any_order(given):
    node = Declared(**dict(given))
    settings = declare_groups(node, {"": SimulatorSettings, "world.": WorldSettings})
    assert (settings[""].real_time_factor, settings[""].publish_clock) == (8.0, True)
    assert node.declared["real_time_factor"] == 8.0 and node.declared["odometry_frame"] == "map"
    assert settings["world."] == WorldSettings() and "world.seed" in node.declared


def test_every_wrong_value_is_named_and_nothing_is_declared():
    node = Declared(real_time_factor=8.0, publish_clock="yes", clock_rate=-1.0, lingre=1.0)
    with pytest.raises(ParameterError) as caught:
        declare_groups(node, {"": SimulatorSettings})
    text = str(caught.value)
    assert (
        "publish_clock: 'yes' is str" in text
        and "clock_rate: -1.0" in text
        and "did you mean 'linger'" in text
    )
    assert (
        "without publish_clock" not in text and not node.declared
    )  # what goes with a wrong value is not judged
    with pytest.raises(ParameterError, match="without publish_clock"):
        declare_groups(Declared(real_time_factor=8.0), {"": SimulatorSettings})


def test_floor_plan_is_free_inside_the_walls():
    plan = floor_plan(6.0, 5.0, "odom")
    cells = np.array(plan.data).reshape(plan.info.height, plan.info.width)
    assert (
        cells.shape == (102, 122)
        and (cells[1:-1, 1:-1] == 0).all()
        and (cells == 100).sum() == 2 * (102 + 120)
    )
    assert (plan.info.origin.position.x, plan.info.origin.position.y) == (
        -0.05,
        -0.05,
    )  # free space begins at (0, 0)


def test_walls_beyond_the_room_are_not_in_its_floor_plan():
    """Of a wall that crosses a border the part inside is; on each side of the room."""
    empty = floor_plan(6.0, 5.0, "odom").data
    for wall in ((-3, -3, -1, -1), (-3, 1, -1, 2), (1, -3, 2, -1), (7, 1, 8, 2), (1, 6, 2, 7)):
        assert floor_plan(6.0, 5.0, "odom", walls=[wall]).data == empty, wall
    plan = floor_plan(6.0, 5.0, "odom", walls=[(-3.0, 1.0, 0.5, 2.0)])
    cells = np.array(plan.data).reshape(plan.info.height, plan.info.width)
    assert (cells[1:-1, 1:-1] == 100).sum() == 10 * 20


def test_waypoints_are_parsed():
    assert parse_waypoints(" 0 0, 1.5 -2 ,") == [[0.0, 0.0], [1.5, -2.0]]
    assert parse_waypoints("") == []


def test_time_stands_still_while_a_planner_says_that_it_plans_and_goes_on_when_it_is_gone(
    monkeypatch,
):
    """However busy the machine is, the robot does not drive far along a plan that a newer one should have replaced."""
    monkeypatch.setattr(simulator_node, "_HOLD", 1.0)
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    rclpy.init(
        args=[
            "--ros-args",
            *(
                word
                for value in (
                    "publish_clock:=true",
                    "real_time_factor:=5.0",
                    "follow_plan:=mapping/plan",
                    "follow_hold:=0.5",
                    "waypoints:='0.6 0.6, 1 0.6'",
                )
                for word in ("-p", value)
            ),
        ]
    )
    node, peer, stop = (
        simulator_node.SimulatorNode(),
        rclpy.create_node("planner"),
        threading.Event(),
    )
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    plans = peer.create_publisher(Path, "mapping/plan", LATCHED)
    alive = peer.create_publisher(DiagnosticArray, "/diagnostics", 10)
    running = DiagnosticArray(
        status=[
            DiagnosticStatus(
                name="mapping: survey", values=[KeyValue(key="phase", value="running")]
            )
        ]
    )
    plan = Path()
    plan.header.frame_id = "odom"
    for x in (0.6, 1.6, 3.2):
        plan.poses.append(PoseStamped())
        plan.poses[-1].pose.position.x, plan.poses[-1].pose.position.y = x, 0.6
    drive = threading.Thread(target=node.run, args=(executor, stop))
    drive.start()
    try:
        plans.publish(plan)
        seen, end = [], time.monotonic() + 30.0
        while (
            len(seen) < 25 and time.monotonic() < end
        ):  # 2.5 s: more than twice what it waits for a dead planner
            alive.publish(running)
            time.sleep(0.1)
            if node.simulation.robot.travelled > 0.45:
                seen.append(node.simulation.robot.travelled)
        assert len(seen) == 25 and seen[-1] == seen[10] < 0.6
        end = time.monotonic() + 30.0
        while node.simulation.robot.travelled < 1.0 and time.monotonic() < end:
            time.sleep(0.1)
        assert node.simulation.robot.travelled >= 1.0, (
            "nobody plans any more: the old plan is driven on"
        )
    finally:
        stop.set()
        drive.join()
        executor.shutdown()
        node.destroy_node()
        peer.destroy_node()
        rclpy.try_shutdown()

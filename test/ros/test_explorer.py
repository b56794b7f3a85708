"""Where the explorer may not begin or drive: a mapper that refuses, a free-space map that says nothing of its plan."""

import math
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy")

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import PoseStamped, Twist
from nav_msgs.msg import OccupancyGrid, Path
from rclpy.executors import SingleThreadedExecutor
from ros_helpers import Peer, odometry
from std_srvs.srv import Trigger

from gp_mapping.ros import explorer_node
from gp_mapping.ros.explorer_node import ExplorerNode
from gp_mapping.ros.simulator_node import floor_plan
from gp_mapping.ros.wire.qos import LATCHED


@pytest.fixture
def explorer():
    """An explorer of this process that would steer, with an executor of its own."""
    given = ("drive:=cmd_vel", "stale_after:=60.0", "map_stale_after:=60.0", "stuck_after:=20.0")
    rclpy.init(args=["--ros-args", *(part for item in given for part in ("-p", item))])
    node = ExplorerNode()
    node.executor_ = SingleThreadedExecutor()
    node.executor_.add_node(node)
    yield node
    node.executor_.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()


def run(node) -> tuple[threading.Thread, threading.Event, list]:
    """Let it run in a thread: the thread, what stops it, and its exit code when it has ended."""
    stop, codes = threading.Event(), []
    thread = threading.Thread(target=lambda: codes.append(node.run(node.executor_, stop)))
    thread.start()
    return thread, stop, codes


def test_a_mapper_that_refuses_to_begin_ends_it_with_the_reason(node_of, explorer, capfd):
    mapper, _ = node_of()
    mapper.deactivate()  # its services stay, and refuse
    thread, stop, codes = run(explorer)
    end = time.monotonic() + 30.0
    while thread.is_alive() and time.monotonic() < end:
        mapper.executor_.spin_once(timeout_sec=0.01)
    stop.set()
    thread.join()
    assert codes == [1]
    assert "the survey does not begin: the node is not active" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("phases", "reason", "code"),
    [(("running", "idle"), "", 1), (("running", "idle"), "stopped", 0), (("idle",), "", 0)],
)
def test_a_survey_that_the_mapper_has_lost_is_no_success(explorer, capfd, phases, reason, code):
    """Of a mapper that was killed and started anew it said "the survey is idle", and 0."""
    explorer.settings = replace(explorer.settings, start_survey=False)
    (told,) = (each for each in explorer.subscriptions if each.topic_name == "/diagnostics")
    for phase in phases:
        values = [KeyValue(key="phase", value=phase), KeyValue(key="reason", value=reason)]
        status = DiagnosticStatus(name="mapping: survey", values=values)
        told.callback(DiagnosticArray(status=[status]))
    assert explorer.run(explorer.executor_, threading.Event()) == code
    assert ("was the mapper started anew?" in capfd.readouterr().err) == bool(code)


def test_an_answer_that_is_lost_is_asked_for_again(explorer, monkeypatch):
    monkeypatch.setattr(explorer_node, "_ANSWER", 0.3)
    asked = []

    def answer(request, response):
        asked.append(request)
        if len(asked) == 1:
            raise ZeroDivisionError  # no answer to this one
        response.success = True
        return response

    with Peer() as peer:
        peer.node.create_service(Trigger, "mapping/survey/start", answer)
        thread, stop, _ = run(explorer)
        try:
            with pytest.raises(ZeroDivisionError):
                peer.until(lambda: False, 20.0)
            peer.until(lambda: len(asked) == 2, 20.0, "it is not asked again")
        finally:
            stop.set()
            thread.join()


def test_a_free_space_map_that_says_nothing_of_the_plan_stops_the_robot(explorer, monkeypatch):
    """One in another frame, or one that cannot be read, allows nothing, whatever stands in it."""
    with Peer() as peer:
        maps = peer.node.create_publisher(OccupancyGrid, "map", LATCHED)
        plans = peer.node.create_publisher(Path, "mapping/plan", LATCHED)
        states = peer.node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        plan = Path()
        plan.header.frame_id = "odom"
        for x in (1.0, 1.5, 2.0):
            pose = PoseStamped(header=plan.header)
            pose.pose.position.x, pose.pose.position.y = x, 1.0
            plan.poses.append(pose)
        plans.publish(plan)
        state = DiagnosticStatus(
            name="mapping: survey", values=[KeyValue(key="phase", value="running")]
        )

        def until(words: str, free: OccupancyGrid | None = None) -> None:
            if free is not None:
                maps.publish(free)
            end = time.monotonic() + 20.0
            while words not in explorer.state:
                assert time.monotonic() < end, explorer.state
                peer.odometry_publisher.publish(odometry(0, 1.0, 1.0))
                states.publish(DiagnosticArray(status=[state]))
                peer.spin(0.01)
                explorer.executor_.spin_once(timeout_sec=0.01)
                explorer.step(time.monotonic())

        until("driving")  # without a map nobody compares
        until("is in frame 'map' and the plan in 'odom'", floor_plan(3.0, 2.0, "map"))
        until("driving", floor_plan(3.0, 2.0, "/odom"))
        until("leaves no room", floor_plan(3.0, 2.0, "odom", walls=[(1.4, 0.0, 1.6, 2.0)]))
        until("driving", floor_plan(3.0, 2.0, "odom"))
        until("leaves no room", floor_plan(3.0, 2.0, "odom", walls=[(1.22, 0.0, 1.28, 2.0)]))
        until("driving", floor_plan(3.0, 2.0, "odom"))
        del plan.poses[0]
        plans.publish(plan)  # the wall stands between the robot and all of its plan
        until("leaves no room", floor_plan(3.0, 2.0, "odom", walls=[(1.22, 0.0, 1.28, 2.0)]))
        until("is in frame '' and the plan in 'odom'", floor_plan(3.0, 2.0, ""))
        broken = floor_plan(3.0, 2.0, "odom")
        broken.info.width += 1
        until("cannot be read", broken)
        until("driving", floor_plan(3.0, 2.0, "odom"))
        # one that serves the action drives nothing but goals, whatever plan is there
        action = SimpleNamespace(under_way=False)
        monkeypatch.setattr(explorer, "_action", action)
        until("standing still: there is no goal")
        action.under_way = True
        until("driving")
        # a plan that Nav2 has not taken is not driven
        waiting = SimpleNamespace(attempt=None, hold=lambda _: None, step=lambda: None)
        monkeypatch.setattr(explorer, "_nav2", waiting)
        until("waiting: Nav2 drives no goal yet")
        waiting.attempt = (1, 0)
        until("driving")


def test_a_pose_without_a_heading_is_not_driven_by_and_one_of_any_norm_is(explorer):
    """A zero quaternion was a robot that looks east, and one of norm 2 turned by another angle."""
    with Peer() as peer:
        commands = peer.listen(Twist, "cmd_vel", 10)
        plans = peer.node.create_publisher(Path, "mapping/plan", LATCHED)
        states = peer.node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        plan = Path()
        plan.header.frame_id = "odom"
        for metres in (0.0, 1.0):
            pose = PoseStamped(header=plan.header)
            pose.pose.position.x, pose.pose.position.y = metres * math.cos(1), metres * math.sin(1)
            plan.poses.append(pose)
        plans.publish(plan)
        state = DiagnosticStatus(name="mapping: survey")
        pose = odometry(0, 0.0, 0.0, w=0.0)

        def until(condition) -> None:
            end = time.monotonic() + 20.0
            while not condition():
                assert time.monotonic() < end, explorer.state
                peer.odometry_publisher.publish(pose)
                states.publish(DiagnosticArray(status=[state]))
                peer.spin(0.01)
                explorer.executor_.spin_once(timeout_sec=0.01)
                explorer.step(time.monotonic())

        until(lambda: not explorer.pursuit.done and commands)
        assert explorer.state.endswith("no pose yet") and not any(c.angular.z for c in commands)
        pose.pose.pose.orientation.w = 2.0 * math.cos(0.5)
        pose.pose.pose.orientation.z = 2.0 * math.sin(0.5)
        until(lambda: commands[-1].linear.x > 0.0)
        assert commands[-1].angular.z == pytest.approx(0.0, abs=1e-9)

        # it does not move: the place ahead is reported
        lost = peer.listen(PoseStamped, "mapping/unreachable", 10)
        explorer.step(time.monotonic() + 30.0)
        until(lambda: lost)
        assert lost[0].pose.position.x == pytest.approx(0.2 * math.cos(1))

        # a plan of a broken publisher: neither driven nor repeated at its length
        plan.header.frame_id = "frame" * 100_000
        plans.publish(plan)
        until(lambda: "the plan is in frame 'frame" in explorer.state)
        assert len(explorer.state) < 500
        plan.header.frame_id = "odom"
        for bad in (math.nan, 1e300):
            plan.poses[1].pose.position.x = bad
            plans.publish(plan)
            until(lambda: "there is no plan" in explorer.state and commands[-1] == Twist())
            assert explorer.pursuit.done
            plan.poses[1].pose.position.x = 1.0
            plans.publish(plan)
            until(lambda: not explorer.pursuit.done)

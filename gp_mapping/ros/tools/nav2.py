"""Plans handed to Nav2: NavigateThroughPoses, or NavigateToPose one stop at a time, where nav2_msgs is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
from rclpy.action import ActionClient

from gp_mapping.ros.mapper.descriptors import ParameterError

__all__ = ["Nav2Driver"]

SUCCEEDED, CANCELED = 4, 5  # action_msgs/GoalStatus
_EVERY = 4  # poses of a plan that are one goal: Nav2 plans between them
_ACTIONS = (
    ("NavigateThroughPoses", "navigate_through_poses"),
    ("NavigateToPose", "navigate_to_pose"),
)


@dataclass(frozen=True)
class _Action:
    """One of Nav2's. through: its goal is all poses, not one."""

    kind: type
    client: ActionClient
    through: bool

    def goal(self, poses: list[PoseStamped]):
        """The goal's type is asked, not the distribution: `poses` is PoseStamped[] in Jazzy, nav_msgs/Goals later."""
        goal = self.kind.Goal()
        if not self.through:
            goal.pose = poses[0]
        elif self.kind.Goal.get_fields_and_field_types()["poses"].startswith("sequence"):
            goal.poses = poses
        else:
            goal.poses.header, goal.poses.goals = poses[0].header, poses
        return goal


class Nav2Driver:
    """Has Nav2 drive to the poses of a plan; a newer plan takes the place of the older.

    Of Nav2's two actions that is used which somebody serves, all poses at once before one at a time. A plan that
    nobody takes yet waits for `step`.

    on_failed: called with x, y (m) and why, where a goal was given up.
    Raises ParameterError where nav2_msgs is not installed.
    """

    def __init__(self, node, on_failed: Callable[[float, float, str], None]):
        try:
            actions = import_module("nav2_msgs.action")
        except ImportError as error:
            raise ParameterError(
                "drive: 'nav2' needs nav2_msgs, which is not installed here; install it "
                "(apt: ros-$ROS_DISTRO-nav2-msgs), or choose drive cmd_vel or none"
            ) from error
        self._node, self._on_failed = node, on_failed
        kinds = [(getattr(actions, kind, None), name) for kind, name in _ACTIONS]
        self._actions = [
            _Action(kind, ActionClient(node, kind, name), name == _ACTIONS[0][1])
            for kind, name in kinds
            if kind is not None
        ]
        self._left: list[PoseStamped] = []  # where it is still to go
        self._held = self._waits = False  # waits: nobody was there to take the goal
        self._driving = self._by = None  # the goal that Nav2 drives, and by which action
        self._asked = 0  # goals that nobody has answered yet
        self._number = 0  # of the newest order: whatever answers an older one is late

    @property
    def idle(self) -> bool:
        """Whether nothing is with Nav2."""
        return self._driving is None and not self._asked

    def follow(self, plan: Path | None) -> None:
        """Drive this plan from now on; None: stop."""
        poses = (
            [] if plan is None or not plan.poses else [*plan.poses[_EVERY::_EVERY], plan.poses[-1]]
        )
        self._left = [PoseStamped(header=plan.header, pose=pose.pose) for pose in poses]
        self._order()

    def hold(self, held: bool) -> None:
        """Stop until further notice, or go on."""
        if held != self._held:
            self._held = held
            self._order()

    def step(self) -> None:
        """Give the goal that waits to whoever serves it by now."""
        if self._waits:
            self._order()

    def _order(self) -> None:
        """Have Nav2 do what is wanted now."""
        self._number += 1
        self._waits = False
        if not self._left or self._held:
            self._cancel()
            return

        action = next((a for a in self._actions if a.client.server_is_ready()), None)
        if action is None:
            self._waits = True
            self._node.get_logger().warning(
                "Nav2 does not answer: the plan waits for it", throttle_duration_sec=10.0
            )
            return
        if action is not self._by:
            self._cancel()  # one action's goal does not take the place of the other's
        number, poses = self._number, list(self._left)
        self._asked += 1
        action.client.send_goal_async(action.goal(poses)).add_done_callback(
            lambda future: self._accepted(future, number, action, poses)
        )

    def _cancel(self) -> None:
        """Take back what Nav2 drives."""
        if self._driving is not None:
            self._driving.cancel_goal_async()
        self._driving = self._by = None

    def _accepted(self, future, number: int, action: _Action, poses: list[PoseStamped]) -> None:
        self._asked -= 1
        goal = future.result()
        if number != self._number:  # it was to stop meanwhile, or to go elsewhere
            if goal.accepted:
                goal.cancel_goal_async()
            return
        if not goal.accepted:
            self._cancel()
            self._fail(poses, action, "Nav2 did not accept the goal")
            return
        self._driving, self._by = goal, action
        goal.get_result_async().add_done_callback(
            lambda done: self._ended(done, number, action, poses)
        )

    def _ended(self, future, number: int, action: _Action, poses: list[PoseStamped]) -> None:
        if number != self._number:
            return
        self._driving, self._by, status = None, None, future.result().status
        if status == SUCCEEDED:
            self._left = [] if action.through else poses[1:]
            if self._left:
                self._order()
        elif status != CANCELED:
            code = getattr(future.result().result, "error_code", None)
            self._fail(
                poses,
                action,
                f"Nav2 gave up (status {status}{'' if code is None else f', error {code}'})",
            )

    def _fail(self, poses: list[PoseStamped], action: _Action, why: str) -> None:
        self._left = []
        at = poses[-1 if action.through else 0].pose.position
        self._on_failed(at.x, at.y, why)

"""Plans handed to Nav2, where nav2_msgs is installed.

By NavigateThroughPoses, or else by NavigateToPose, one pose at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
from rclpy.action import ActionClient

from gp_mapping.ros.mapper.descriptors import ParameterError

__all__ = ["Nav2Driver"]

SUCCEEDED, CANCELED = 4, 5  # action_msgs/GoalStatus
_REFUSED = 1.0  # s after which a goal that was refused is sent again
_ANSWER = 10.0  # s in which Nav2 accepts or refuses a goal, or takes one back
# of action_msgs/CancelGoal, unknown and terminated: a goal that Nav2 does not drive (any more)
_NOT_DRIVEN = (2, 3)
_EVERY = 4  # every that many poses of a plan is one of a goal: Nav2 plans between them
# errors of nav2_msgs/action/FollowPath: the robot does not get on from where it is
_BLOCKED = ("PATIENCE_EXCEEDED", "FAILED_TO_MAKE_PROGRESS", "NO_VALID_CONTROL")
_ACTIONS = (
    ("NavigateThroughPoses", "navigate_through_poses"),
    ("NavigateToPose", "navigate_to_pose"),
)


@dataclass(frozen=True)
class _Action:
    """One of Nav2's actions; through: its goal is all poses, not one."""

    kind: type
    client: ActionClient
    through: bool

    def goal(self, poses: list[PoseStamped]):
        """The goal for poses.

        The type of the field `poses` decides, not the distribution: PoseStamped[] in Jazzy,
        nav_msgs/Goals later.
        """
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

    After a stop it goes on to the poses that it has not passed.

    Of Nav2's two actions one that has a server is used, preferably the one that takes all poses at
    once. A plan waits for `step` without a server, where the server goes away or does not answer,
    and while a server that has never accepted a goal refuses them: Nav2 does until it is active,
    whatever the place.

    Args:
        node: The node that drives.
        on_failed: Called with x, y (m) and the reason where a goal was given up: the next pose, as
            far as Nav2 has told which that is.
        on_cancelled: Called where somebody else has cancelled the goal. The plan is dropped: who
            cancels wants the robot to stand.
        on_blocked: Called with the reason in place of on_failed where the robot does not get on
            from where it is.

    Raises:
        ParameterError: nav2_msgs is not installed.
    """

    def __init__(
        self,
        node,
        on_failed: Callable[[float, float, str], None],
        on_cancelled: Callable[[], None] = lambda: None,
        on_blocked: Callable[[str], None] | None = None,
    ):
        try:
            actions = import_module("nav2_msgs.action")
        except ImportError as error:
            raise ParameterError(
                "drive: 'nav2' needs nav2_msgs, which is not installed here; install it "
                "(apt: ros-$ROS_DISTRO-nav2-msgs), or choose drive cmd_vel or none"
            ) from error
        self._node, self._on_failed, self._on_cancelled = node, on_failed, on_cancelled
        self._on_blocked = on_blocked
        follow_path = getattr(getattr(actions, "FollowPath", None), "Result", None)
        self._blocked = {
            getattr(follow_path, name) for name in _BLOCKED if hasattr(follow_path, name)
        }

        kinds = [(getattr(actions, kind, None), name) for kind, name in _ACTIONS]
        self._actions = [
            _Action(kind, ActionClient(node, kind, name), name == _ACTIONS[0][1])
            for kind, name in kinds
            if kind is not None
        ]
        self._remaining: list[PoseStamped] = []
        self._holding = self._waiting_for_server = False
        # the goal that Nav2 drives, and the action that has this driver's goal, or was sent one
        self._goal_handle = None
        self._goal_action: _Action | None = None
        # orders whose goals Nav2 has neither accepted nor rejected yet
        self._unanswered: set[int] = set()
        self._has_accepted, self._wait_until = False, -math.inf  # monotonic s
        self._answer_until = math.inf  # monotonic s; infinite where no answer is awaited
        self._recoveries = 0  # of the goal that Nav2 drives, by its own count
        self._order_number = 0  # of the newest order: answers to older ones are ignored

    @property
    def idle(self) -> bool:
        """Whether Nav2 has no goal of this driver."""
        return self._goal_handle is None and not self._unanswered

    @property
    def attempt(self) -> tuple[int, int] | None:
        """What Nav2 tries: number of the order, and of its recoveries; None: it drives no goal."""
        return None if self._goal_handle is None else (self._order_number, self._recoveries)

    def follow(self, plan: Path | None) -> None:
        """Drive this plan from now on, in place of the one before; None: stop."""
        poses = (
            [] if plan is None or not plan.poses else [*plan.poses[_EVERY::_EVERY], plan.poses[-1]]
        )
        self._remaining = [PoseStamped(header=plan.header, pose=pose.pose) for pose in poses]
        self._order()

    def hold(self, held: bool) -> None:
        """Stop until further notice, or go on."""
        if held != self._holding:
            self._holding = held
            self._order()

    def step(self) -> None:
        """Send a waiting plan, where a server has appeared; called again and again."""
        if self._goal_action is not None and not self._goal_action.client.server_is_ready():
            self._lose()
            self._node.get_logger().warning("Nav2 has gone while it drove: the plan waits for it")
        elif time.monotonic() > self._answer_until:
            self._lose()
            self._node.get_logger().warning(
                f"Nav2 has not answered for {_ANSWER:g} s: the plan waits for it"
            )
        if self._waiting_for_server and time.monotonic() >= self._wait_until:
            self._order()

    def give_up(self, why: str) -> None:
        """Cancel a goal that does not end, and report it as one that Nav2 gave up.

        A Nav2 that knows the goal no more, as after a start anew that discovery has not noticed, is
        sent it again instead.

        Args:
            why: The robot does not get on.
        """
        if self._goal_handle is None:
            return
        self._order_number += 1  # the end of what is cancelled here is not somebody else's doing
        number, goal, self._goal_handle = self._order_number, self._goal_handle, None
        self._answer_until = time.monotonic() + _ANSWER
        goal.cancel_goal_async().add_done_callback(
            lambda future: self._taken_back(future, number, why)
        )

    def _taken_back(self, future, number: int, why: str) -> None:
        """Take Nav2's answer to the cancelling by `give_up`."""
        if number != self._order_number:
            return
        if future.result().return_code in _NOT_DRIVEN:
            self._node.get_logger().warning(
                "Nav2 has not said that its goal is over (was it started anew?): the plan is sent again"
            )
            self._order()
            return
        self._goal_action, self._answer_until = None, math.inf
        self._block(self._remaining[0], why)

    def _lose(self) -> None:
        """Have the remaining poses wait: the server that had them answers no more."""
        self._order_number += 1
        self._goal_handle = self._goal_action = None
        self._unanswered.clear()
        self._has_accepted, self._waiting_for_server = False, True
        self._answer_until = math.inf

    def _order(self) -> None:
        """Have Nav2 drive the remaining poses, or stop."""
        self._order_number += 1
        self._waiting_for_server, self._recoveries = False, 0
        self._answer_until = math.inf
        if not self._remaining or self._holding:
            self._cancel()
            return

        action = next((a for a in self._actions if a.client.server_is_ready()), None)
        if action is None:
            self._waiting_for_server = True
            self._node.get_logger().warning(
                "Nav2 does not answer: the plan waits for it", throttle_duration_sec=10.0
            )
            return
        if action is not self._goal_action:
            self._cancel()  # a goal of one action does not replace one of the other

        number, poses = self._order_number, list(self._remaining)
        self._unanswered.add(number)
        self._goal_action, self._answer_until = action, time.monotonic() + _ANSWER
        action.client.send_goal_async(
            action.goal(poses), lambda message: self._progressed(message.feedback, number, poses)
        ).add_done_callback(lambda future: self._accepted(future, number, action, poses))

    def _cancel(self) -> None:
        """Cancel the goal that Nav2 drives."""
        if self._goal_handle is not None:
            self._goal_handle.cancel_goal_async()
        self._goal_handle = self._goal_action = None

    def _progressed(self, feedback, number: int, poses: list[PoseStamped]) -> None:
        """Leave out the poses that order `number` has passed: a later order begins where it was.

        Args:
            feedback: Of Nav2; NavigateThroughPoses tells how many poses remain, and 0 where it does
                not know yet.
            number: Of the order.
            poses: Of its goal.
        """
        if number != self._order_number:
            return
        self._recoveries = getattr(feedback, "number_of_recoveries", 0)
        left = getattr(feedback, "number_of_poses_remaining", 0)
        if 0 < left < len(self._remaining):
            self._remaining = poses[-left:]

    def _accepted(self, future, number: int, action: _Action, poses: list[PoseStamped]) -> None:
        """Take Nav2's answer to order `number`: goal accepted or rejected."""
        self._unanswered.discard(number)
        goal = future.result()
        if number != self._order_number:  # a later order was to stop, or to go elsewhere
            if goal.accepted:
                goal.cancel_goal_async()
            return

        self._answer_until = math.inf
        if not goal.accepted:
            self._cancel()
            self._refused(poses)
            return

        self._goal_handle, self._has_accepted = goal, True
        goal.get_result_async().add_done_callback(
            lambda done: self._ended(done, number, action, poses)
        )

    def _ended(self, future, number: int, action: _Action, poses: list[PoseStamped]) -> None:
        """Take the end of the goal of order `number`: go on to the next pose, or report failure."""
        if number != self._order_number:
            return
        self._goal_handle, self._goal_action, status = None, None, future.result().status

        if status == SUCCEEDED:
            self._remaining = [] if action.through else poses[1:]
            if self._remaining:
                self._order()
        elif status == CANCELED:  # what this driver cancels has another number by now
            self._remaining = []
            self._on_cancelled()
        else:
            code = getattr(future.result().result, "error_code", None)
            why = f"Nav2 gave up (status {status}{'' if code is None else f', error {code}'})"
            pose = (self._remaining or poses)[0]
            if code in self._blocked:
                self._block(pose, why)
            else:
                self._fail(pose, why)

    def _refused(self, poses: list[PoseStamped]) -> None:
        """Wait with poses whose goal was refused; of a server that takes others, give them up."""
        if self._has_accepted:
            self._fail(poses[0], "Nav2 did not accept the goal")
            return
        self._waiting_for_server, self._wait_until = True, time.monotonic() + _REFUSED
        self._node.get_logger().warning(
            "Nav2 accepts no goal, as while it is not active: the plan waits for it",
            throttle_duration_sec=10.0,
        )

    def _block(self, pose: PoseStamped, why: str) -> None:
        """Give up the plan where the robot does not get on; pose: the next one of it."""
        if self._on_blocked is None:
            self._fail(pose, why)
            return
        self._remaining = []
        self._on_blocked(why)

    def _fail(self, pose: PoseStamped, why: str) -> None:
        """Give up the plan and report the pose that was not reached."""
        self._remaining = []
        position = pose.pose.position
        self._on_failed(position.x, position.y, why)

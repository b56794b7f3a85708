"""A controller aboard a simulated robot: it drives the plans that arrive on a topic."""

from __future__ import annotations

import math
import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Path

from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.surveying.way.pursuit import Pursuit
from gp_mapping.sim.robot import RobotSettings

__all__ = ["PlanFollower"]

_BRAKING_FRACTION = 0.6  # fraction of the robot's acceleration that is counted on when braking


class PlanFollower:
    """Speed and turn rate along the newest plan; without a plan the robot stands.

    Args:
        node: The node that receives the plans.
        topic: Of the plans.
        frame: Of the robot's poses; plans in another one are not driven.
        robot: Limits of speed, turn rate and acceleration.

    Attributes:
        plans: Number of plans with something to drive.
        driven: Distance driven since the newest plan came, m.
        withdrawn: Whether the newest plan was empty, which means: stand still.
        planner_at: Monotonic s when the planner last reported that a survey is running.
    """

    def __init__(self, node, topic: str, frame: str, robot: RobotSettings):
        self._node, self._frame = node, frame.lstrip("/")
        self._pursuit = Pursuit(
            robot.max_speed, robot.max_turn_rate, _BRAKING_FRACTION * robot.max_acceleration, 0.05
        )
        self.plans = 0
        self.driven = 0.0
        self.withdrawn = False
        self._last_position: tuple[float, float] | None = None
        node.create_subscription(Path, topic, self._on_plan, LATCHED)
        self.planner_at = -math.inf
        # the name of the planner's survey in diagnostics; the planner's name is that of the topic
        self._planner = f"{node.resolve_topic_name(topic).rsplit('/', 1)[0].lstrip('/')}: survey"
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        """Note that the planner reports a running survey."""
        for status in message.status:
            if status.name == self._planner and any(
                v.key == "phase" and v.value == "running" for v in status.values
            ):
                self.planner_at = time.monotonic()

    def _on_plan(self, message: Path) -> None:
        """Drive this plan from now on; an empty one, or one that cannot be driven: stand still."""
        xy = np.array([(p.pose.position.x, p.pose.position.y) for p in message.poses]).reshape(
            -1, 2
        )

        plan_frame = message.header.frame_id.lstrip("/")
        if plan_frame != self._frame or not np.isfinite(xy).all():
            self._node.get_logger().warning(
                f"a plan in frame {plan_frame!r} is not driven: expected finite poses in {self._frame!r}"
            )
            xy = xy[:0]

        self.plans += len(xy) > 0
        self.driven, self.withdrawn = 0.0, not len(xy)
        self._pursuit.follow(xy)

    @property
    def done(self) -> bool:
        """Whether nothing is left to drive."""
        return self._pursuit.done

    def __call__(self, x: float, y: float, yaw: float) -> tuple[float, float]:
        """Speed (m/s) and turn rate (rad/s) for a robot at that pose (m, rad)."""
        self.driven += (
            0.0 if self._last_position is None else math.dist(self._last_position, (x, y))
        )
        self._last_position = x, y
        return self._pursuit.command(x, y, yaw)

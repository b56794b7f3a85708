"""A controller aboard a simulated robot: it drives the plans that come on a topic."""

from __future__ import annotations

import math
import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Path

from gp_mapping.ros.wire.qos import LATCHED
from gp_mapping.runtime.surveying.pursuit import Pursuit
from gp_mapping.sim.robot import RobotSettings

__all__ = ["PlanFollower"]

_PER_STEP = 0.6  # share of the robot's acceleration that is counted on when braking


class PlanFollower:
    """Speed and turn rate along the newest plan on `topic`; without one the robot stands.

    node: that hears the plans.  frame: of the robot's poses; plans in another one are not driven.
    """

    def __init__(self, node, topic: str, frame: str, robot: RobotSettings):
        self._node, self._frame = node, frame.lstrip("/")
        self._pursuit = Pursuit(
            robot.max_speed, robot.max_turn_rate, _PER_STEP * robot.max_acceleration, 0.05
        )
        self.plans = 0  # that had something to drive
        self.driven = 0.0  # m of the newest plan
        self.withdrawn = False  # the newest one was empty: stand still
        self._at: tuple[float, float] | None = None
        node.create_subscription(Path, topic, self._take, LATCHED)
        self.planner_at = (
            -math.inf
        )  # monotonic s when whoever plans last said that a survey is running
        self._planner = f"{node.resolve_topic_name(topic).rsplit('/', 1)[0].lstrip('/')}: survey"
        node.create_subscription(DiagnosticArray, "/diagnostics", self._hear, 10)

    def _hear(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name == self._planner and any(
                v.key == "phase" and v.value == "running" for v in status.values
            ):
                self.planner_at = time.monotonic()

    def _take(self, message: Path) -> None:
        line = np.array([(p.pose.position.x, p.pose.position.y) for p in message.poses]).reshape(
            -1, 2
        )
        given = message.header.frame_id.lstrip("/")
        if given != self._frame or not np.isfinite(line).all():
            self._node.get_logger().warning(
                f"a plan in frame {given!r} is not driven: expected finite poses in {self._frame!r}"
            )
            line = line[:0]
        self.plans += len(line) > 0
        self.driven, self.withdrawn = 0.0, not len(line)
        self._pursuit.follow(line)

    @property
    def done(self) -> bool:
        """Whether nothing is left to drive."""
        return self._pursuit.done

    def __call__(self, x: float, y: float, yaw: float) -> tuple[float, float]:
        """Speed (m/s) and turn rate (rad/s) at that pose."""
        self.driven += 0.0 if self._at is None else math.dist(self._at, (x, y))
        self._at = x, y
        return self._pursuit.command(x, y, yaw)

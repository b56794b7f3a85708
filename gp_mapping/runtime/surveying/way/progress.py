"""Whether a robot that is to drive gets on. No rclpy."""

from __future__ import annotations

import math
from collections.abc import Hashable

__all__ = ["ProgressWatch"]

_MOVED = 0.1  # m
_TURNED = 0.5  # rad; the angle of Nav2's PoseProgressChecker


class ProgressWatch:
    """Tells when a robot has made no progress for too long, and again as long after that.

    Progress is 0.1 m from the place of the last progress. Where another program drives, that it
    turns by half a radian is progress too, or that it makes another attempt: it is still trying.

    Args:
        patience: s without progress.
        by_another: Whether another program drives.
    """

    def __init__(self, patience: float, by_another: bool):
        self._patience, self._by_another = patience, by_another
        self._since = -math.inf  # monotonic s of the last progress
        self._then: tuple | None = None  # the pose and the attempt of that time

    def restart(self) -> None:
        """Begin anew with the next pose, as with a new plan or where the robot had to stand."""
        self._then = None

    def is_stuck(
        self, now: float, pose: tuple[float, float, float], attempt: Hashable = None
    ) -> bool:
        """Take a pose of the robot.

        Args:
            now: Monotonic s.
            pose: x, y (m) and yaw (rad).
            attempt: What the other program tries; another value with each attempt.
        """
        then = self._then
        if then is None or self._progressed(then[0], then[1], pose, attempt):
            self._since, self._then = now, (pose, attempt)
        if now - self._since <= self._patience:
            return False
        self._since = now
        return True

    def _progressed(self, pose, attempt: Hashable, new_pose, new_attempt: Hashable) -> bool:
        """Whether there is progress from one pose and attempt to the newer."""
        if math.dist(pose[:2], new_pose[:2]) > _MOVED:
            return True
        turn = abs(math.remainder(new_pose[2] - pose[2], math.tau))
        return self._by_another and (turn > _TURNED or new_attempt != attempt)

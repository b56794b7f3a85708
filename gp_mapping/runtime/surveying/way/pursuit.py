"""Steering along a line: turn towards the next corner, drive, slow down at turns. No rclpy."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Pursuit"]

_POINTING = math.pi / 6  # radians of heading error beyond which the robot turns on the spot
_CORNER = 0.15  # radians of turn at a point beyond which the robot slows down for it
_JOIN = 1.5  # m of a new line along which the robot may already be
_GAIN = 2.0  # 1/s: turn rate for each radian of heading error


class Pursuit:
    """Speed and turn rate of a robot that follows a line closely.

    The plan keeps clear of walls, a cut corner may not.

    Args:
        speed: m/s, at most.
        turn_rate: rad/s, at most.
        acceleration: m/s², of slowing down.
        tolerance: m from a point at which it counts as reached.
    """

    def __init__(self, speed: float, turn_rate: float, acceleration: float, tolerance: float):
        self.speed, self.turn_rate, self.acceleration, self.tolerance = (
            speed,
            turn_rate,
            acceleration,
            tolerance,
        )
        self._line = np.empty((0, 2))
        self._next, self._fresh = 0, False

    def follow(self, line) -> None:
        """Follow a new line (K, 2) m; one without points: stand still.

        Where the robot has passed its beginning, it goes on from the nearest point of the first
        metres.
        """
        self._line, self._next, self._fresh = (
            np.asarray(line, dtype=np.float64).reshape(-1, 2),
            0,
            True,
        )

    def _join(self, position: np.ndarray) -> None:
        """Skip the points at the beginning of a line that lie behind the robot."""
        self._fresh = False
        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self._line, axis=0).T))])
        least_distance, index = math.dist(position, self._line[0]), 0
        for i in range(1, len(self._line)):
            if ends[i - 1] > _JOIN:
                break
            a, b = self._line[i - 1], self._line[i]
            fraction = min(
                1.0,
                max(0.0, float((position - a) @ (b - a)) / max(float((b - a) @ (b - a)), 1e-12)),
            )
            away = math.dist(position, a + fraction * (b - a))
            if away < least_distance - 1e-9:
                least_distance, index = away, i

        self._next = index

    @property
    def done(self) -> bool:
        """Whether nothing is left to drive."""
        return self._next >= len(self._line)

    @property
    def points_ahead(self) -> np.ndarray:
        """The points (K, 2) m that are still ahead."""
        return self._line[self._next :]

    def ahead_of(self, x: float, y: float) -> np.ndarray:
        """Return the points that a robot drives to next, in this order.

        Args:
            x: of the robot, m.
            y: of the robot, m.

        Returns:
            (K, 2) m.
        """
        position = np.array([x, y])
        if self._fresh and len(self._line):
            self._join(position)
        while not self.done and self._passed(position):
            self._next += 1
        return self.points_ahead

    def place_ahead(self, x: float, y: float, metres: float) -> tuple[float, float] | None:
        """Return the place that a robot comes to next on its straight way to the next point.

        Args:
            x: of the robot, m.
            y: of the robot, m.
            metres: from the robot, or less where the point is nearer.

        Returns:
            x and y, m; None where nothing is left to drive.
        """
        points = self.ahead_of(x, y)
        if not len(points):
            return None
        dx, dy = points[0] - (x, y)
        fraction = min(1.0, metres / max(math.hypot(dx, dy), 1e-9))
        return float(x + fraction * dx), float(y + fraction * dy)

    def command(self, x: float, y: float, yaw: float) -> tuple[float, float]:
        """Return speed (m/s) and turn rate (rad/s) for a robot at a pose.

        Args:
            x: m.
            y: m.
            yaw: radians.
        """
        position = np.array([x, y])
        if not len(self.ahead_of(x, y)):
            return 0.0, 0.0

        dx, dy = self._line[self._next] - position
        error = math.remainder(math.atan2(dy, dx) - yaw, math.tau)
        turn = max(-self.turn_rate, min(self.turn_rate, _GAIN * error))
        if abs(error) > _POINTING:
            return 0.0, math.copysign(self.turn_rate, error)

        # v² = 2 a d: the speed from which the robot can still stop at the next corner.
        braking_speed = math.sqrt(
            2.0 * self.acceleration * max(self._until_corner(position) - 0.3 * self.tolerance, 0.01)
        )
        return min(self.speed, braking_speed) * math.cos(error) ** 2, turn

    def _passed(self, position: np.ndarray) -> bool:
        """Return whether the next point is reached, or, on a straight, passed."""
        point = self._line[self._next]
        if math.dist(position, point) < self.tolerance:
            return True
        if self._next + 1 >= len(self._line) or self._turn_at(self._next) > _CORNER:
            return False

        ahead = self._line[self._next + 1] - point
        return (
            float((position - point) @ ahead) > 0.0
            and math.dist(position, point) < 3.0 * self.tolerance
        )

    def _turn_at(self, index: int) -> float:
        """Return the angle by which the line turns at a point before its end, radians."""
        if index == 0:
            return 0.0
        a, b = self._line[index] - self._line[index - 1], self._line[index + 1] - self._line[index]
        return abs(math.remainder(math.atan2(b[1], b[0]) - math.atan2(a[1], a[0]), math.tau))

    def _until_corner(self, position: np.ndarray) -> float:
        """Return metres to the next point where the line turns or ends; past 2 m it may be less."""
        length, index = math.dist(position, self._line[self._next]), self._next
        while index < len(self._line) - 1 and self._turn_at(index) <= _CORNER:
            length += math.dist(self._line[index], self._line[index + 1])
            index += 1
            if length > 2.0:
                break
        return length

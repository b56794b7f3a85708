"""Steering along a line: turn towards the next corner, drive, slow down where it turns. No rclpy."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Pursuit"]

_POINTING = math.pi / 6  # radians off beyond which the robot turns on the spot
_CORNER = 0.15  # radians that a line turns at a point that has to be slowed down for
_JOIN = 1.5  # m of a new line in which the robot may already be
_GAIN = 2.0  # 1/s: turn rate for each radian off


class Pursuit:
    """Speed and turn rate of a robot that follows a line closely: the plan keeps clear of walls, a cut corner may not.

    speed: m/s.  turn_rate: rad/s.  acceleration: m/s².  tolerance: m.
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
        """A new line (K, 2) m; one without points: stand still. Where the robot has passed its beginning, it goes on
        from the nearest point of the first metres."""
        self._line, self._next, self._fresh = (
            np.asarray(line, dtype=np.float64).reshape(-1, 2),
            0,
            True,
        )

    def _join(self, at: np.ndarray) -> None:
        """Leave out what lies behind the robot at the beginning of a line."""
        self._fresh = False
        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self._line, axis=0).T))])
        best, chosen = math.dist(at, self._line[0]), 0
        for i in range(1, len(self._line)):
            if ends[i - 1] > _JOIN:
                break
            a, b = self._line[i - 1], self._line[i]
            share = min(
                1.0, max(0.0, float((at - a) @ (b - a)) / max(float((b - a) @ (b - a)), 1e-12))
            )
            away = math.dist(at, a + share * (b - a))
            if away < best - 1e-9:
                best, chosen = away, i
        self._next = chosen

    @property
    def done(self) -> bool:
        """Whether nothing is left to drive."""
        return self._next >= len(self._line)

    @property
    def left(self) -> np.ndarray:
        """The points (K, 2) m that are still ahead."""
        return self._line[self._next :]

    def command(self, x: float, y: float, yaw: float) -> tuple[float, float]:
        """Speed (m/s) and turn rate (rad/s) for a robot at that pose."""
        at = np.array([x, y])
        if self._fresh and len(self._line):
            self._join(at)
        while not self.done and self._passed(at):
            self._next += 1
        if self.done:
            return 0.0, 0.0
        dx, dy = self._line[self._next] - at
        error = math.remainder(math.atan2(dy, dx) - yaw, math.tau)
        turn = max(-self.turn_rate, min(self.turn_rate, _GAIN * error))
        if abs(error) > _POINTING:
            return 0.0, math.copysign(self.turn_rate, error)
        stop = math.sqrt(
            2.0 * self.acceleration * max(self._until_corner(at) - 0.3 * self.tolerance, 0.01)
        )
        return min(self.speed, stop) * math.cos(error) ** 2, turn

    def _passed(self, at: np.ndarray) -> bool:
        """Whether the next point is behind the robot: reached, or, on a straight, passed by."""
        point = self._line[self._next]
        if math.dist(at, point) < self.tolerance:
            return True
        if self._next + 1 >= len(self._line) or self._turn_at(self._next) > _CORNER:
            return False
        ahead = self._line[self._next + 1] - point
        return float((at - point) @ ahead) > 0.0 and math.dist(at, point) < 3.0 * self.tolerance

    def _turn_at(self, index: int) -> float:
        if not 0 < index < len(self._line) - 1:
            return math.pi if index == len(self._line) - 1 else 0.0
        a, b = self._line[index] - self._line[index - 1], self._line[index + 1] - self._line[index]
        return abs(math.remainder(math.atan2(b[1], b[0]) - math.atan2(a[1], a[0]), math.tau))

    def _until_corner(self, at: np.ndarray) -> float:
        """Metres to the next point where the line turns, or ends."""
        length, index = math.dist(at, self._line[self._next]), self._next
        while self._turn_at(index) <= _CORNER and index < len(self._line) - 1:
            length += math.dist(self._line[index], self._line[index + 1])
            index += 1
            if length > 2.0:
                break
        return length

"""A differential-drive robot that follows waypoints, and the odometry it reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gp_mapping.settings.fields import check_settings, setting
from gp_mapping.sim.walls import Walls

__all__ = [
    "CommandedDrive",
    "DifferentialDrive",
    "DriftingOdometry",
    "OdometrySettings",
    "RobotSettings",
    "lawnmower",
]

_AWAY = 0.02  # m from a wall at which a robot no longer touches it


@dataclass(frozen=True)
class RobotSettings:
    """Limits of the robot; they hold in every step."""

    max_speed: float = setting(0.5, "speed on a straight", "m/s", 1e-3, 10.0)
    max_turn_rate: float = setting(1.5, "turn rate on the spot", "rad/s", 1e-2, 20.0)
    max_acceleration: float = setting(0.8, "change of speed", "m/s^2", 1e-3, 50.0)
    max_turn_acceleration: float = setting(6.0, "change of turn rate", "rad/s^2", 1e-2, 200.0)
    waypoint_tolerance: float = setting(
        0.05, "a waypoint counts as reached within this distance", "m", 1e-3, 1.0
    )
    radius: float = setting(
        0.15,
        "of its body: a robot that is steered from outside stops where that meets a wall",
        "m",
        0.0,
        10.0,
    )

    def __post_init__(self):
        check_settings(self)


def lawnmower(
    x0: float, y0: float, x1: float, y1: float, spacing: float, crossing_spacing: float = 0.0
) -> np.ndarray:
    """Waypoints of lanes along x over a rectangle, then, if asked, of lanes along y that cross them.

    spacing, crossing_spacing: m; the largest distance between lanes, made smaller so that lanes lie on both borders;
    crossing_spacing 0 leaves the crossing lanes out. Returns (N, 2) metres.
    Raises ValueError for an empty rectangle or a spacing that is not positive.
    """
    if not (x1 > x0 and y1 > y0):
        raise ValueError(
            f"the rectangle x {x0}..{x1}, y {y0}..{y1} is empty; expected x0 < x1 and y0 < y1"
        )
    if not spacing > 0 or crossing_spacing < 0:
        raise ValueError(
            f"spacing {spacing} and crossing_spacing {crossing_spacing}: expected metres > 0 and >= 0"
        )
    points = []
    for i, y in enumerate(_lanes(y0, y1, spacing)):
        points += [(x0, y), (x1, y)] if i % 2 == 0 else [(x1, y), (x0, y)]
    if crossing_spacing:
        from_left, up = points[-1][0] == x0, points[-1][1] == y0
        lanes = _lanes(x0, x1, crossing_spacing)
        for i, x in enumerate(lanes if from_left else lanes[::-1]):
            points += [(x, y0), (x, y1)] if (i % 2 == 0) == up else [(x, y1), (x, y0)]
    kept = [points[0]] + [b for a, b in pairwise(points) if a != b]
    return np.array(kept, dtype=np.float64)


def _lanes(low: float, high: float, spacing: float) -> list[float]:
    """Evenly spaced positions from low to high, at most spacing apart (a hair more is forgiven: 4.2 / 0.6 is 7)."""
    return [
        float(v)
        for v in np.linspace(low, high, max(1, math.ceil((high - low) / spacing - 1e-9)) + 1)
    ]


class DifferentialDrive:
    """Follows waypoints by turning towards the next one; slows down where it points elsewhere or is about to arrive.

    x' = v cos(yaw), y' = v sin(yaw), yaw' = w, integrated exactly along arcs; |v|, |w| and their rates are limited.
    """

    def __init__(self, waypoints, settings: RobotSettings | None = None, yaw: float | None = None):
        self.settings = settings or RobotSettings()
        self.waypoints = np.asarray(waypoints, dtype=np.float64).reshape(-1, 2)
        if len(self.waypoints) < 2 or not np.isfinite(self.waypoints).all():
            raise ValueError(
                f"a route needs at least 2 finite waypoints, got {self.waypoints.tolist()}"
            )
        self.x, self.y = map(float, self.waypoints[0])
        ahead = self.waypoints[1] - self.waypoints[0]
        self.yaw = math.atan2(ahead[1], ahead[0]) if yaw is None else float(yaw)
        self.speed = self.turn_rate = self.travelled = 0.0
        self._next = 1
        legs = np.linalg.norm(np.diff(self.waypoints, axis=0), axis=1)
        self._remaining = np.concatenate(
            [np.cumsum(legs[::-1])[::-1], [0.0]]
        )  # path left from each waypoint
        self.length = float(self._remaining[0])

    @property
    def done(self) -> bool:
        return self._next >= len(self.waypoints) and self.speed == 0.0

    @property
    def progress(self) -> float:
        """Share of the route behind the robot, 0..1."""
        if self._next >= len(self.waypoints):
            return 1.0
        left = self._remaining[self._next] + math.dist((self.x, self.y), self.waypoints[self._next])
        return float(min(1.0, max(0.0, 1.0 - left / self.length)))

    def step(self, dt: float) -> None:
        """Advance by dt seconds."""
        s = self.settings
        speed, turn_rate = self._wanted(dt)
        dv, dw = s.max_acceleration * dt, s.max_turn_acceleration * dt
        speed = min(max(speed, self.speed - dv), self.speed + dv)
        turn_rate = min(max(turn_rate, self.turn_rate - dw), self.turn_rate + dw)
        self.speed, self.turn_rate = (
            min(speed, s.max_speed),
            min(max(turn_rate, -s.max_turn_rate), s.max_turn_rate),
        )
        half = 0.5 * self.turn_rate * dt  # chord of the arc: v dt sin(h) / h along yaw + h
        chord = self.speed * dt * (math.sin(half) / half if abs(half) > 1e-9 else 1.0)
        self.x += chord * math.cos(self.yaw + half)
        self.y += chord * math.sin(self.yaw + half)
        self.yaw = math.remainder(self.yaw + 2.0 * half, math.tau)
        self.travelled += self.speed * dt

    def _wanted(self, dt: float) -> tuple[float, float]:
        """Speed and turn rate towards the next waypoint, before the limits on their rates."""
        s = self.settings
        while self._next < len(self.waypoints) and (
            math.dist((self.x, self.y), self.waypoints[self._next]) < s.waypoint_tolerance
        ):
            self._next += 1
        if self._next >= len(self.waypoints):
            return 0.0, 0.0
        dx, dy = self.waypoints[self._next] - (self.x, self.y)
        distance, error = (
            math.hypot(dx, dy),
            math.remainder(math.atan2(dy, dx) - self.yaw, math.tau),
        )
        # never faster than it can still stop at the waypoint; forward only where it points there: square corners
        speed = min(
            s.max_speed,
            math.sqrt(2.0 * s.max_acceleration * max(0.5 * s.waypoint_tolerance, distance)),
        )
        speed *= max(0.0, math.cos(error)) ** 4 if abs(error) < math.pi / 3 else 0.0
        # likewise never turning faster than it can still stop turning
        turn_rate = math.copysign(
            min(
                s.max_turn_rate,
                math.sqrt(1.5 * s.max_turn_acceleration * abs(error)),
                abs(error) / dt,
            ),
            error,
        )
        return speed, turn_rate


class CommandedDrive(DifferentialDrive):
    """The same robot, steered from outside: speed and turn rate as they are told, within its limits.

    Without a command for `patience` seconds it stops, as real bases do. What meets a wall stands there until it has
    turned away; `bumps` counts how often that happened.

    walls: where it cannot go; None: there are none.
    driver: asked in every step for speed and turn rate at (x, y, yaw), a controller aboard; None: `command` says it.
    """

    def __init__(
        self,
        x: float,
        y: float,
        yaw: float = 0.0,
        settings: RobotSettings | None = None,
        patience: float = 0.5,
        walls: Walls | None = None,
        driver: Callable[[float, float, float], tuple[float, float]] | None = None,
    ):
        super().__init__([(x, y), (x + math.cos(yaw), y + math.sin(yaw))], settings, yaw)
        self.patience, self.walls, self.driver = patience, walls, driver
        self.bumps = 0
        self._touching = False
        self._command, self._age = (0.0, 0.0), math.inf

    def command(self, speed: float, turn_rate: float) -> None:
        """Speed (m/s) and turn rate (rad/s) from now on; what is not finite stops the robot."""
        told = (float(speed), float(turn_rate))
        self._command, self._age = told if all(map(math.isfinite, told)) else (0.0, 0.0), 0.0

    def step(self, dt: float) -> None:
        """Advance by dt seconds, or stand where a wall is in the way."""
        before = self.x, self.y, self.travelled
        super().step(dt)
        if self.walls is None or (self.x, self.y) == before[:2]:
            return
        room = self.walls.clearance(self.x, self.y)
        if room < min(self.settings.radius, self.walls.clearance(*before[:2])):
            self.x, self.y, self.travelled = before
            self.speed = 0.0
            self.bumps += not self._touching
            self._touching = True
        elif room > self.settings.radius + _AWAY:
            self._touching = False

    @property
    def done(self) -> bool:
        return False

    @property
    def progress(self) -> float:
        return 0.0

    def _wanted(self, dt: float) -> tuple[float, float]:
        if self.driver is not None:
            return self.driver(self.x, self.y, self.yaw)
        self._age += dt
        return self._command if self._age <= self.patience else (0.0, 0.0)


@dataclass(frozen=True)
class OdometrySettings:
    """Errors of wheel odometry; all zero reports the true pose."""

    distance_drift: float = setting(
        0.0, "sd of the error of distance per square root of path", "m/sqrt(m)", 0.0, 1.0
    )
    heading_drift: float = setting(
        0.0, "sd of the error of heading per square root of path", "rad/sqrt(m)", 0.0, 1.0
    )
    turn_drift: float = setting(
        0.0, "sd of the error of heading per square root of turned angle", "rad/sqrt(rad)", 0.0, 1.0
    )
    position_floor: float = setting(
        1e-3, "sd of position that is reported even without drift", "m", 0.0, 1.0
    )
    heading_floor: float = setting(
        1e-3, "sd of heading that is reported even without drift", "rad", 0.0, 1.0
    )

    def __post_init__(self):
        check_settings(self)


class DriftingOdometry:
    """Dead reckoning: true increments plus random-walk errors, with the covariance that belongs to them.

    Sigma <- F Sigma F^T + G Q G^T, F = d(pose)/d(pose), G = d(pose)/d(distance, turn),
    Q = diag(variances of distance and turn).
    """

    def __init__(
        self, settings: OdometrySettings, rng: np.random.Generator, x: float, y: float, yaw: float
    ):
        self.settings, self.rng = settings, rng
        self.x, self.y, self.yaw = x, y, yaw
        self.covariance = np.zeros((3, 3))  # of x, y, yaw
        self._last = (x, y, yaw)
        s = settings
        self.drifts = bool(s.distance_drift or s.heading_drift or s.turn_drift)

    def update(self, x: float, y: float, yaw: float) -> None:
        """Take in the next true pose (m, m, rad)."""
        last, self._last = self._last, (x, y, yaw)
        if not self.drifts:
            self.x, self.y, self.yaw = x, y, yaw
            return
        turn = math.remainder(yaw - last[2], math.tau)
        middle = last[2] + 0.5 * turn
        dx, dy = x - last[0], y - last[1]
        distance = dx * math.cos(middle) + dy * math.sin(middle)  # signed, along the heading
        s = self.settings
        q_distance = s.distance_drift**2 * abs(distance)
        q_turn = s.heading_drift**2 * abs(distance) + s.turn_drift**2 * abs(turn)
        e_distance, e_turn = self.rng.normal(size=2) * np.sqrt([q_distance, q_turn])
        step, heading = distance + e_distance, self.yaw + 0.5 * (turn + e_turn)
        c, n = math.cos(heading), math.sin(heading)
        self.x += step * c
        self.y += step * n
        self.yaw = math.remainder(self.yaw + turn + e_turn, math.tau)
        f = np.array([[1.0, 0.0, -step * n], [0.0, 1.0, step * c], [0.0, 0.0, 1.0]])
        g = np.array([[c, -0.5 * step * n], [n, 0.5 * step * c], [0.0, 1.0]])
        self.covariance = f @ self.covariance @ f.T + g @ np.diag([q_distance, q_turn]) @ g.T

    def reported_covariance(self) -> np.ndarray:
        """(3, 3) of x, y, yaw, with the floor that keeps a message from claiming a perfect pose."""
        s = self.settings
        return self.covariance + np.diag(
            [s.position_floor**2, s.position_floor**2, s.heading_floor**2]
        )

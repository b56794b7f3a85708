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
    """Waypoints of lanes along x over a rectangle, and if asked of lanes along y that cross them.

    Distances between lanes are made smaller so that lanes lie on both borders.

    Args:
        x0: left border, m.
        y0: lower border, m.
        x1: right border, m.
        y1: upper border, m.
        spacing: largest distance between lanes along x, m.
        crossing_spacing: largest distance between lanes along y, m; 0 leaves them out.

    Returns:
        (N, 2) metres.

    Raises:
        ValueError: the rectangle is empty, or a spacing is not positive.
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
        # the crossing lanes begin at the corner where the others end
        from_left, up = points[-1][0] == x0, points[-1][1] == y0
        lanes = _lanes(x0, x1, crossing_spacing)
        for i, x in enumerate(lanes if from_left else lanes[::-1]):
            points += [(x, y0), (x, y1)] if (i % 2 == 0) == up else [(x, y1), (x, y0)]

    kept = [points[0]] + [b for a, b in pairwise(points) if a != b]
    return np.array(kept, dtype=np.float64)


def _lanes(low: float, high: float, spacing: float) -> list[float]:
    """Evenly spaced positions from low to high, at most spacing apart.

    A hair more is forgiven: 4.2 / 0.6 is 7.
    """
    return [
        float(v)
        for v in np.linspace(low, high, max(1, math.ceil((high - low) / spacing - 1e-9)) + 1)
    ]


class DifferentialDrive:
    """A robot that follows waypoints by turning towards the next one.

        x' = v cos(yaw), y' = v sin(yaw), yaw' = w

    integrated exactly along arcs; |v|, |w| and their rates are limited. It slows down where the
    next waypoint lies in another direction, or is near.

    Args:
        waypoints: (N, 2) m, at least two; it begins at the first.
        settings: its limits.
        yaw: at the beginning, rad; None: towards the second waypoint.

    Attributes:
        x: m.
        y: m.
        yaw: rad.
        speed: m/s.
        turn_rate: rad/s.
        travelled: m, those that it drove backwards included.
        length: of the route, m.
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
        # length of the route that remains from each waypoint
        self._remaining = np.concatenate([np.cumsum(legs[::-1])[::-1], [0.0]])
        self.length = float(self._remaining[0])

    @property
    def done(self) -> bool:
        """Whether it stands at the last waypoint."""
        return self._next >= len(self.waypoints) and self.speed == 0.0

    @property
    def progress(self) -> float:
        """Fraction of the route that is behind the robot, 0..1."""
        # a route of one place is behind it from the beginning
        if self._next >= len(self.waypoints) or not self.length:
            return 1.0
        remaining = self._remaining[self._next] + math.dist(
            (self.x, self.y), self.waypoints[self._next]
        )
        return float(min(1.0, max(0.0, 1.0 - remaining / self.length)))

    def step(self, dt: float) -> None:
        """Advance by dt seconds."""
        s = self.settings
        speed, turn_rate = self._target_velocity(dt)

        # limits of the rates first, then of the values
        dv, dw = s.max_acceleration * dt, s.max_turn_acceleration * dt
        speed = min(max(speed, self.speed - dv), self.speed + dv)
        turn_rate = min(max(turn_rate, self.turn_rate - dw), self.turn_rate + dw)
        # backwards no faster than forwards
        self.speed, self.turn_rate = (
            min(max(speed, -s.max_speed), s.max_speed),
            min(max(turn_rate, -s.max_turn_rate), s.max_turn_rate),
        )

        # chord of the arc: v dt sin(h) / h along yaw + h
        half_turn = 0.5 * self.turn_rate * dt
        chord = (
            self.speed * dt * (math.sin(half_turn) / half_turn if abs(half_turn) > 1e-9 else 1.0)
        )
        self.x += chord * math.cos(self.yaw + half_turn)
        self.y += chord * math.sin(self.yaw + half_turn)
        self.yaw = math.remainder(self.yaw + 2.0 * half_turn, math.tau)
        self.travelled += abs(self.speed) * dt

    def _target_velocity(self, dt: float) -> tuple[float, float]:
        """Speed and turn rate towards the next waypoint, before the limits on their rates."""
        s = self.settings
        # waypoints within the tolerance count as reached
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

        # Never faster than it can still stop at the waypoint; forward only where that lies ahead:
        # square corners.
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
    """The same robot, steered from outside: speed and turn rate as commanded, within its limits.

    Without a command for `patience` seconds it stops, as real bases do. A robot that meets a wall
    stands there until it has turned away.

    Args:
        x: m.
        y: m.
        yaw: rad.
        settings: its limits.
        patience: s.
        walls: where it cannot go; None: there are none.
        driver: a controller aboard, asked in every step for speed and turn rate at (x, y, yaw);
            None: `command` sets them.

    Attributes:
        bumps: how often it has met a wall.
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
        # the base class needs a route: one metre ahead, which is not driven
        super().__init__([(x, y), (x + math.cos(yaw), y + math.sin(yaw))], settings, yaw)
        self.patience, self.walls, self.driver = patience, walls, driver

        self.bumps = 0
        self._touching = False
        self._command, self._age = (0.0, 0.0), math.inf

    def command(self, speed: float, turn_rate: float) -> None:
        """Set the velocity from now on; a command that is not finite stops the robot.

        Args:
            speed: m/s.
            turn_rate: rad/s.
        """
        command = float(speed), float(turn_rate)
        self._command, self._age = command if all(map(math.isfinite, command)) else (0.0, 0.0), 0.0

    def step(self, dt: float) -> None:
        """Advance by dt seconds, or stand where a wall is in the way."""
        before = self.x, self.y, self.travelled
        super().step(dt)
        if self.walls is None or (self.x, self.y) == before[:2]:
            return

        clearance = self.walls.clearance(self.x, self.y)
        # a robot that is too near already may move away
        if clearance < min(self.settings.radius, self.walls.clearance(*before[:2])):
            self.x, self.y, self.travelled = before
            self.speed = 0.0
            self.bumps += not self._touching
            self._touching = True
        elif clearance > self.settings.radius + _AWAY:
            self._touching = False

    @property
    def done(self) -> bool:
        """False: its drive has no end of its own."""
        return False

    @property
    def progress(self) -> float:
        """Always 0: there is no route."""
        return 0.0

    def _target_velocity(self, dt: float) -> tuple[float, float]:
        """Speed and turn rate as the driver or the last command sets them."""
        if self.driver is not None:
            return self.driver(self.x, self.y, self.yaw)
        self._age += dt
        return self._command if self._age <= self.patience else (0.0, 0.0)


@dataclass(frozen=True)
class OdometrySettings:
    """Errors of wheel odometry; with all of them 0 it reports the true pose."""

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
    """Dead reckoning: true increments plus random-walk errors, with the covariance to match.

        Sigma <- F Sigma F^T + G Q G^T,   F = d(pose)/d(pose), G = d(pose)/d(distance, turn),
        Q = diag(variances of distance and turn)

    Args:
        settings: of the errors.
        rng: of all its draws.
        x: where it begins, m.
        y: m.
        yaw: rad.

    Attributes:
        x: as reported, m.
        y: as reported, m.
        yaw: as reported, rad.
        covariance: (3, 3) of x, y, yaw.
    """

    def __init__(
        self, settings: OdometrySettings, rng: np.random.Generator, x: float, y: float, yaw: float
    ):
        self.settings, self.rng = settings, rng
        self.x, self.y, self.yaw = x, y, yaw
        self.covariance = np.zeros((3, 3))
        self._last = (x, y, yaw)
        s = settings
        self.drifts = bool(s.distance_drift or s.heading_drift or s.turn_drift)

    def update(self, x: float, y: float, yaw: float) -> None:
        """Take in the next true pose: the reported one follows its increment, errors added.

        Args:
            x: m.
            y: m.
            yaw: rad.
        """
        last, self._last = self._last, (x, y, yaw)
        if not self.drifts:
            self.x, self.y, self.yaw = x, y, yaw
            return

        # the true increment: a turn, and a distance along the mean heading
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

        # Jacobians of the reported pose
        f = np.array([[1.0, 0.0, -step * n], [0.0, 1.0, step * c], [0.0, 0.0, 1.0]])
        g = np.array([[c, -0.5 * step * n], [n, 0.5 * step * c], [0.0, 1.0]])
        self.covariance = f @ self.covariance @ f.T + g @ np.diag([q_distance, q_turn]) @ g.T

    def reported_covariance(self) -> np.ndarray:
        """Covariance of x, y, yaw: (3, 3), with a floor that keeps a pose from seeming perfect."""
        s = self.settings
        return self.covariance + np.diag(
            [s.position_floor**2, s.position_floor**2, s.heading_floor**2]
        )

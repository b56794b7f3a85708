"""World, robot and magnetometer stepped together, the same for the same seed.

They give timed odometry and field measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gp_mapping.settings.fields import check_settings, setting
from gp_mapping.sim.magnetometer import Magnetometer, MagnetometerSettings
from gp_mapping.sim.robot import (
    CommandedDrive,
    DifferentialDrive,
    DriftingOdometry,
    OdometrySettings,
    RobotSettings,
    lawnmower,
)
from gp_mapping.sim.walls import Walls
from gp_mapping.sim.world import DipoleWorld, WorldSettings

__all__ = ["FieldReading", "OdometryReading", "Simulation", "SimulationSettings"]


@dataclass(frozen=True)
class SimulationSettings:
    """Clock, rates and route."""

    seed: int = setting(
        0, "seed of noise, faults and drift (the world has its own)", "", 0, 2**31 - 1
    )
    time_step: float = setting(
        0.01,
        "step of the simulation; periods of both rates must be whole multiples of it",
        "s",
        1e-4,
        0.1,
    )
    start_time: float = setting(1.0, "stamp of the first step", "s", 0.0, 2e9)
    duration: float = setting(0.0, "stop after this time; 0 drives the whole route", "s", 0.0, 1e7)
    field_rate: float = setting(50.0, "magnetometer measurements per second", "Hz", 0.01, 10000.0)
    odometry_rate: float = setting(50.0, "odometry messages per second", "Hz", 0.01, 10000.0)
    margin: float = setting(
        0.4, "distance between the lawnmower's lanes and the walls", "m", 0.0, 1e3
    )
    spacing: float = setting(0.4, "distance between lanes along x", "m", 0.01, 1e3)
    crossing_spacing: float = setting(
        1.0, "distance between the lanes along y that cross them; 0: none", "m", 0.0, 1e3
    )

    def __post_init__(self):
        check_settings(self)


@dataclass(frozen=True)
class OdometryReading:
    """The robot's estimate of its pose.

    Attributes:
        stamp_ns: ns.
        x: m.
        y: m.
        yaw: rad.
        speed: m/s.
        turn_rate: rad/s.
        covariance: (3, 3) of x, y, yaw.
    """

    stamp_ns: int
    x: float
    y: float
    yaw: float
    speed: float
    turn_rate: float
    covariance: np.ndarray


@dataclass(frozen=True)
class FieldReading:
    """What the sensor says.

    Attributes:
        stamp_ns: of the measurement, ns.
        field: (3,) T, in the sensor's frame.
    """

    stamp_ns: int
    field: np.ndarray


class Simulation:
    """Odometry and field readings of one drive, in the order of their stamps. Iterate once.

    Between two odometry messages a measurement lies half-way where the rates allow it, so that a
    mapper has to interpolate, as with real sensors.

    Args:
        settings: clock, rates and route.
        world: its dipoles and the room.
        robot: its limits.
        magnetometer: its errors.
        odometry: its errors.
        waypoints: (N, 2) m; a lawnmower over the room if empty.
        commanded: the robot begins at the first waypoint, is steered by robot.command() or a
            driver, and stopped by walls; the drive ends after settings.duration, if that is not 0,
            or with end().
        walls: boxes x0, y0, x1, y1 (m) in the room; only a commanded robot meets them.
        driver: as of CommandedDrive.

    Attributes:
        stamp_ns: now, ns.

    Raises:
        ValueError: a rate does not fit the time step, or the route is empty.
    """

    def __init__(
        self,
        settings: SimulationSettings | None = None,
        world: WorldSettings | None = None,
        robot: RobotSettings | None = None,
        magnetometer: MagnetometerSettings | None = None,
        odometry: OdometrySettings | None = None,
        waypoints=None,
        commanded: bool = False,
        walls=(),
        driver=None,
    ):
        self.settings = s = settings or SimulationSettings()
        self.world = DipoleWorld.random(world or WorldSettings())
        w = self.world.settings

        # lanes over the room, a margin from its walls
        if waypoints is None or len(waypoints) == 0:
            waypoints = lawnmower(
                s.margin,
                s.margin,
                w.width - s.margin,
                w.depth - s.margin,
                s.spacing,
                s.crossing_spacing,
            )

        self.robot = DifferentialDrive(waypoints, robot)
        if commanded:
            self.robot = CommandedDrive(
                *waypoints[0],
                self.robot.yaw,
                robot,
                walls=Walls(w.width, w.depth, walls),
                driver=driver,
            )

        self._ended = False
        # a stream for each, so that settings of one leave the other's noise as it was
        sensor_rng, odometry_rng = (np.random.default_rng([s.seed, k]) for k in (2, 3))
        self.magnetometer = Magnetometer(magnetometer or MagnetometerSettings(), sensor_rng)
        r = self.robot
        self.odometry = DriftingOdometry(
            odometry or OdometrySettings(), odometry_rng, r.x, r.y, r.yaw
        )

        self._field_every = self._steps_per_message("field_rate", s.field_rate)
        self._odometry_every = self._steps_per_message("odometry_rate", s.odometry_rate)
        self.stamp_ns = self._start_ns = round(s.start_time * 1e9)
        self._step_ns = round(s.time_step * 1e9)

    def _steps_per_message(self, name: str, rate: float) -> int:
        """Steps of the clock between two messages of a rate (Hz)."""
        step = self.settings.time_step
        steps = 1.0 / (rate * step)
        if steps < 0.999 or abs(steps - round(steps)) > 1e-6 * steps:
            raise ValueError(
                f"{name} is {rate} Hz, but a period must be a whole number of time_step = "
                f"{step} s; for example {1.0 / (step * max(1, round(steps)))} Hz"
            )
        return round(steps)

    def end(self) -> None:
        """End the drive with the next pose."""
        self._ended = True

    @property
    def elapsed(self) -> float:
        """Simulated seconds so far."""
        return (self.stamp_ns - self._start_ns) * 1e-9

    @property
    def progress(self) -> float:
        """Fraction of the drive that is done, 0..1."""
        fraction = self.elapsed / self.settings.duration if self.settings.duration else 0.0
        return min(1.0, max(fraction, self.robot.progress))

    def sensor_position(self) -> tuple[float, float, float]:
        """True position of the sensor in the map frame (m)."""
        m, r = self.magnetometer.settings, self.robot
        c, n = math.cos(r.yaw), math.sin(r.yaw)
        return (
            r.x + c * m.offset_x - n * m.offset_y,
            r.y + n * m.offset_x + c * m.offset_y,
            self.world.settings.sensor_height,
        )

    def _field_at_sensor(self) -> np.ndarray:
        """True field (3,) T in the sensor's frame."""
        b = self.world.field(np.array([self.sensor_position()]))[0]
        c, n = math.cos(self.robot.yaw), math.sin(self.robot.yaw)
        # the map's axes turned into the robot's
        return np.array([c * b[0] + n * b[1], -n * b[0] + c * b[1], b[2]])

    def __iter__(self) -> Iterator[OdometryReading | FieldReading]:
        s, r, step = self.settings, self.robot, 0
        while True:
            if step:
                r.step(s.time_step)
            self.stamp_ns = self._start_ns + step * self._step_ns

            over = r.done or self._ended or bool(s.duration and self.elapsed >= s.duration)

            if step % self._odometry_every == 0:
                o = self.odometry
                o.update(r.x, r.y, r.yaw)
                yield OdometryReading(
                    self.stamp_ns, o.x, o.y, o.yaw, r.speed, r.turn_rate, o.reported_covariance()
                )
                # with a pose after the last measurement, so that it can be placed, too
                if over:
                    return

            # half a period after a pose
            due = step % self._field_every == self._field_every // 2 and not over
            # with a lag the sensor needs the field of every step
            if due or self.magnetometer.settings.lag:
                self.magnetometer.observe(self.stamp_ns * 1e-9, self._field_at_sensor())
            if due:
                yield FieldReading(self.stamp_ns, self.magnetometer.measure(self.stamp_ns * 1e-9))
            step += 1

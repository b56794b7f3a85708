"""Simulated robots with known truth, without ROS: what their clocks, mountings and sensors do wrong is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gp_mapping.core.types import Samples
from gp_mapping.sim.magnetometer import MagnetometerSettings
from gp_mapping.sim.robot import RobotSettings, lawnmower
from gp_mapping.sim.simulation import FieldReading, Simulation, SimulationSettings
from gp_mapping.sim.world import WorldSettings

__all__ = ["Robot", "add_spikes", "drive", "survey", "world_of"]

NORTH, DOWN = 20e-6, 43.5e-6  # T; a sensor bias b turns |B| by b·north/|B| at the most


@dataclass(frozen=True)
class Robot:
    """delay: s, stamps of the sensor later than the pose's.  arm: (ahead, left) m.  bias: T, constant along the
    robot's forward axis.  white, correlated: T, per axis.  correlation: s.  speed: m/s."""

    delay: float = 0.0
    arm: tuple[float, float] = (0.0, 0.0)
    bias: float = 0.0
    white: float = 0.2e-6
    correlated: float = 0.0
    correlation: float = 0.7
    speed: float = 0.3


def drive(robot: Robot, world: WorldSettings, waypoints, seed: int, start: float = 1.0) -> Samples:
    """|B| along the waypoints with positions, stamps and headings as the robot believes them, at 25 Hz."""
    magnetometer = MagnetometerSettings(
        noise_stddev=robot.white,
        bias_x=robot.bias,
        bias_y=0.0,
        bias_z=0.0,
        correlated_stddev=robot.correlated,
        correlation_time=robot.correlation,
        offset_x=robot.arm[0],
        offset_y=robot.arm[1],
    )
    settings = SimulationSettings(
        seed=seed, time_step=0.02, start_time=start, field_rate=25.0, odometry_rate=25.0
    )
    simulation = Simulation(
        settings, world, RobotSettings(max_speed=robot.speed), magnetometer, waypoints=waypoints
    )
    poses, fields = [], []
    for reading in simulation:
        if isinstance(reading, FieldReading):
            fields.append((reading.stamp_ns * 1e-9, float(np.linalg.norm(reading.field))))
        else:
            poses.append((reading.stamp_ns * 1e-9, reading.x, reading.y, reading.yaw))
    poses, fields = np.array(poses), np.array(fields)
    stamp = fields[:, 0] + robot.delay
    inside = (stamp >= poses[0, 0]) & (stamp <= poses[-1, 0])
    stamp, value = stamp[inside], fields[inside, 1]
    x = np.stack([np.interp(stamp, poses[:, 0], poses[:, k]) for k in (1, 2)], 1)
    yaw = np.interp(stamp, poses[:, 0], np.unwrap(poses[:, 3]))
    return Samples(x, value, stamp=stamp, heading=np.stack([np.cos(yaw), np.sin(yaw)], 1))


def world_of(seed: int, width: float = 5.0, depth: float = 4.0) -> WorldSettings:
    """The room of that seed."""
    return WorldSettings(seed=seed, width=width, depth=depth, earth_north=NORTH, earth_down=DOWN)


def survey(
    robot: Robot, seed: int, width: float = 5.0, depth: float = 4.0, spacing: float = 0.5
) -> list[Samples]:
    """A mapping drive, lanes both ways, and a test drive between its lanes, in the world of that seed."""
    world = world_of(seed, width, depth)
    far = (width - 0.4, depth - 0.4)
    mapping = lawnmower(0.4, 0.4, *far, spacing, 0.8)
    test = lawnmower(0.5, 0.55, far[0] - 0.1, far[1] - 0.15, 1.1, 1.3)
    return [
        drive(robot, world, mapping, seed),
        drive(robot, world, test, seed + 1000, start=1001.0),
    ]


def add_spikes(samples: Samples, share: float, size: float, seed: int) -> Samples:
    """That share of the samples, drawn at random, off by ± size (T)."""
    rng = np.random.default_rng([seed, 7])
    hit = rng.random(len(samples)) < share
    wrong = hit * size * rng.choice([-1.0, 1.0], len(samples))
    return replace(samples, y=samples.y.numpy() + wrong[:, None])

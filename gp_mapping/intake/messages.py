"""What every message has, and what an adaptor makes of one. Messages are duck-typed: rclpy's and rosbags' alike."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Adaptor", "Reading", "frame_of", "has_header", "sensor_rotation", "stamp_ns"]


class Reading(NamedTuple):
    """One measurement: stamp (ns), its numbers, and the covariance of them, row-major, None where it is unknown."""

    stamp: int
    values: tuple[float, ...]
    covariance: tuple[float, ...] | None


class Adaptor(Protocol):
    """One sensor type: a message in, numbers out."""

    needs_rotation: bool
    """True where the value depends on how the sensor is turned."""

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """A message as a Reading with that stamp (ns), or why it cannot be used."""

    def values(
        self, readings: list[Reading], turn: Rotation | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is mapped, y (N,) or (N, C), and the variance of its white noise (N,), 0 where it is unknown.

        turn: N rotations from the sensor's axes to the map's, where needs_rotation says so.
        """


def has_header(msg) -> bool:
    """True for a stamped message."""
    return hasattr(msg, "header")


def stamp_ns(msg) -> int:
    """header.stamp in integer nanoseconds."""
    return int(msg.header.stamp.sec) * 1_000_000_000 + int(msg.header.stamp.nanosec)


def frame_of(msg) -> str:
    """header.frame_id without the leading slash that older drivers write; empty where there is no header."""
    return str(msg.header.frame_id).lstrip("/") if has_header(msg) else ""


def sensor_rotation(settings: IntakeSettings) -> Rotation:
    """Rotation from the sensor's axes to the base frame's: yaw · pitch · roll."""
    return Rotation.from_euler(
        "ZYX", [settings.sensor_yaw, settings.sensor_pitch, settings.sensor_roll]
    )

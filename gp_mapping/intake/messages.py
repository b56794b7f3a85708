"""What all messages have in common, and the interface of the adaptors that read them.

Messages are duck-typed: those of rclpy and of rosbags look alike.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.settings.intake import IntakeSettings

__all__ = ["Adaptor", "Reading", "frame_of", "has_header", "sensor_rotation", "stamp_ns"]


class Reading(NamedTuple):
    """One measurement as its adaptor reads it.

    Attributes:
        stamp: ns.
        values: its numbers.
        covariance: of these numbers, row-major; None where it is unknown.
    """

    stamp: int
    values: tuple[float, ...]
    covariance: tuple[float, ...] | None


class Adaptor(Protocol):
    """Reads the messages of one sensor type as numbers."""

    needs_rotation: bool
    """True where the value depends on how the sensor is turned."""

    def read(self, msg, stamp: int) -> Reading | DropReason:
        """Read a message as a Reading, or say why it cannot be used.

        Args:
            msg: the message, of rclpy or of rosbags.
            stamp: ns, which the Reading gets.
        """

    def values(
        self, readings: list[Reading], turn: Rotation | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is mapped, and the variance of its white noise.

        Args:
            readings: N of them.
            turn: N rotations from the sensor's axes to the map's, where `needs_rotation` says so.

        Returns:
            y (N,) or (N, C), and its noise variance (N,), 0 where it is unknown.
        """


def has_header(msg) -> bool:
    """Whether a message is stamped."""
    return hasattr(msg, "header")


def stamp_ns(msg) -> int:
    """header.stamp in integer nanoseconds."""
    return int(msg.header.stamp.sec) * 1_000_000_000 + int(msg.header.stamp.nanosec)


def frame_of(msg) -> str:
    """header.frame_id without the leading slash that older drivers write.

    Empty where the message has no header.
    """
    return str(msg.header.frame_id).lstrip("/") if has_header(msg) else ""


def sensor_rotation(settings: IntakeSettings) -> Rotation:
    """Rotation from the sensor's axes to the base frame's: yaw · pitch · roll."""
    return Rotation.from_euler(
        "ZYX", [settings.sensor_yaw, settings.sensor_pitch, settings.sensor_roll]
    )

"""One message -> plain numbers, or the reason why not. Messages are duck-typed: rclpy's and rosbags' alike."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from gp_mapping.intake.drops import DropReason
from gp_mapping.intake.settings import IntakeSettings

__all__ = ["Reading", "field_values", "frame_of", "read_field", "sensor_rotation", "stamp_ns"]

_AXES = {"x": 0, "y": 1, "z": 2}


class Reading(NamedTuple):
    """A measurement in its sensor's axes: stamp (ns), field (3,), covariance (9,) row-major or None when unknown."""

    stamp: int
    field: tuple[float, float, float]
    covariance: tuple[float, ...] | None


def stamp_ns(msg) -> int:
    """header.stamp in integer nanoseconds."""
    return int(msg.header.stamp.sec) * 1_000_000_000 + int(msg.header.stamp.nanosec)


def frame_of(msg) -> str:
    """header.frame_id without the leading slash that older drivers write."""
    return str(msg.header.frame_id).lstrip("/")


def read_field(msg, settings: IntakeSettings) -> Reading | DropReason:
    """A sensor_msgs/MagneticField as a Reading; NOT_FINITE or OUT_OF_RANGE where it cannot be used.

    An axis that is not mapped may be NaN ("not measured") only where no rotation mixes it with the one that is.
    """
    vector = msg.magnetic_field
    field = (float(vector.x), float(vector.y), float(vector.z))
    mixes = settings.field_component == "norm" or settings.rotate_field
    needed = field if mixes else (field[_AXES[settings.field_component]],)
    if not all(map(math.isfinite, needed)):
        return DropReason.NOT_FINITE
    if math.sqrt(sum(v * v for v in needed)) > settings.max_field:
        return DropReason.OUT_OF_RANGE
    return Reading(stamp_ns(msg), field, _covariance(msg.magnetic_field_covariance))


def _covariance(values) -> tuple[float, ...] | None:
    """Nine numbers, or None where they mean unknown: zeros (REP-103), a −1 in front, NaN, or no variance at all."""
    values = tuple(map(float, values))
    if len(values) != 9 or not all(map(math.isfinite, values)):
        return None
    diagonal = values[::4]
    return values if min(diagonal) >= 0.0 and max(diagonal) > 0.0 else None


def sensor_rotation(settings: IntakeSettings) -> Rotation:
    """Rotation from the sensor's axes to the base frame's: yaw · pitch · roll."""
    return Rotation.from_euler("ZYX", [settings.sensor_yaw, settings.sensor_pitch, settings.sensor_roll])


def field_values(readings: list[Reading], settings: IntakeSettings,
                 pose: Rotation | None) -> tuple[np.ndarray, np.ndarray | None]:
    """What is mapped and the variance of its white noise: y (N,), var (N,) or None where every covariance is unknown.

    norm: y = |b|, var = b̂ᵀ C b̂.  An axis k: y = (R b)_k, var = (R C Rᵀ)_kk, with R = pose · sensor rotation.
    pose: N rotations base -> map, needed for an axis only. A single unknown covariance among known ones counts as zero.
    """
    b = np.array([r.field for r in readings])  # (N, 3)
    if settings.field_component == "norm":
        y = np.linalg.norm(b, axis=1)
        direction = b / np.where(y > 0.0, y, 1.0)[:, None]
        direction[y == 0.0] = 1.0 / math.sqrt(3.0)
    else:
        axis = np.eye(3)[_AXES[settings.field_component]]
        if settings.rotate_field:
            turn = sensor_rotation(settings)
            turn = turn if pose is None else pose * turn
            direction = np.broadcast_to(turn.inv().apply(axis), b.shape)  # rows of R: the map's axis in the sensor's
            y = (direction * b).sum(1)
        else:
            direction = np.broadcast_to(axis, b.shape)
            y = b[:, _AXES[settings.field_component]]
    if all(r.covariance is None for r in readings):
        return y, None
    covariance = np.array([r.covariance or (0.0,) * 9 for r in readings]).reshape(-1, 3, 3)
    return y, np.maximum(np.einsum("ni,nij,nj->n", direction, covariance, direction), 0.0)

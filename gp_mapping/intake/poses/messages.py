"""Reads pose messages of all types."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from gp_mapping.intake.columns import Columns

__all__ = [
    "LARGE_VARIANCE",
    "LOST_VARIANCE",
    "POSE_MESSAGES",
    "TF_MESSAGE",
    "PoseReading",
    "planar_variance",
    "read_pose",
    "read_pose_columns",
]

POSE_MESSAGES = {  # pose_source -> ROS type
    "odometry": "nav_msgs/msg/Odometry",
    "pose": "geometry_msgs/msg/PoseStamped",
    "pose_with_covariance": "geometry_msgs/msg/PoseWithCovarianceStamped",
}
TF_MESSAGE = "tf2_msgs/msg/TFMessage"
LARGE_VARIANCE = 1.0  # m²; a pose that is worse says little about where a field was measured
# m²; a pose that is worse may be anywhere, and would take a whole cell's weight
LOST_VARIANCE = 1e8
_UNKNOWN = -1.0  # in front of a covariance: unknown, as IMU drivers write it


class PoseReading(NamedTuple):
    """What a pose message says.

    Attributes:
        position: (3,) m.
        quaternion: (4,) x y z w.
        variance: of a horizontal coordinate, m²; 0: unknown, NaN: not a variance.
    """

    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float]
    variance: float


def planar_variance(covariance) -> float:
    """Variance of one horizontal coordinate.

        ½ (C_xx + C_yy)

    A position error e costs gᵀ C g at field gradient g. Over gradients of no preferred direction
    its mean is |g|² tr(C) / 2, however the axes lie. The largest eigenvalue is never more than
    twice as much, and would write off a robot that is uncertain along a corridor only.

    Args:
        covariance: C, 6 × 6, row-major, m² and rad².

    Returns:
        m²; 0: unknown, NaN: not a variance.
    """
    xx, yy = float(covariance[0]), float(covariance[7])
    if xx == _UNKNOWN:
        return 0.0

    known = math.isfinite(xx) and math.isfinite(yy) and min(xx, yy) >= 0.0
    return 0.5 * xx + 0.5 * yy if known else math.nan


def read_pose_columns(columns: Columns, source: str) -> tuple[np.ndarray, np.ndarray]:
    """Read many pose messages as `read_pose` does.

    Args:
        columns: n messages.
        source: their pose_source.

    Returns:
        Rows (n, 7) of position in m and quaternion x y z w; variances (n,) in m².
    """
    path = {"odometry": "pose.pose.", "pose": "pose.", "pose_with_covariance": "pose.pose."}[source]
    rows = columns.numbers(
        *(f"{path}position.{a}" for a in "xyz"), *(f"{path}orientation.{a}" for a in "xyzw")
    )
    if source == "pose":
        return rows, np.zeros(len(rows))

    covariance = columns.array("pose.covariance")
    xx, yy = covariance[:, 0], covariance[:, 7]
    with np.errstate(all="ignore"):  # rows that are not finite are looked at one by one below
        variance = 0.5 * xx + 0.5 * yy
        plain = (xx >= 0.0) & (yy >= 0.0) & np.isfinite(xx) & np.isfinite(yy)
    for i in np.flatnonzero(~plain).tolist():
        variance[i] = planar_variance(covariance[i])
    return rows, variance


def read_pose(msg, source: str) -> PoseReading:
    """Read a pose message.

    Args:
        msg: of the type that `source` names.
        source: its pose_source.
    """
    outer = msg.pose
    pose = outer if source == "pose" else outer.pose
    p, q = pose.position, pose.orientation
    covariance = getattr(outer, "covariance", None)

    return PoseReading(
        (p.x, p.y, p.z),
        (q.x, q.y, q.z, q.w),
        0.0 if covariance is None or source == "pose" else planar_variance(covariance),
    )

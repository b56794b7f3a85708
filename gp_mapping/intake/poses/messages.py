"""Pose messages: what each of them says, by where it stands in the message."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["POSE_MESSAGES", "TF_MESSAGE", "PoseReading", "planar_variance", "read_pose"]

POSE_MESSAGES = {  # pose_source -> ROS type
    "odometry": "nav_msgs/msg/Odometry",
    "pose": "geometry_msgs/msg/PoseStamped",
    "pose_with_covariance": "geometry_msgs/msg/PoseWithCovarianceStamped",
}
TF_MESSAGE = "tf2_msgs/msg/TFMessage"
_UNKNOWN = -1.0  # in front of a covariance: unknown, as IMU drivers write it


class PoseReading(NamedTuple):
    """position (3,) m, quaternion (4,) x y z w, variance of a horizontal coordinate (m²): 0 unknown, NaN wrong."""

    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float]
    variance: float


def planar_variance(covariance) -> float:
    """Variance of one horizontal coordinate: ½ (C_xx + C_yy) of a row-major 6 × 6; 0: unknown, NaN: not a variance.

    A position error e costs gᵀ C g at field gradient g. Over gradients of no preferred direction the mean of that is
    |g|² tr(C) / 2, however the axes lie; the largest eigenvalue would write off a robot that is unsure along a corridor
    only, and is never more than twice as much.
    """
    xx, yy = float(covariance[0]), float(covariance[7])
    if xx == _UNKNOWN or (xx == 0.0 and yy == 0.0):
        return 0.0
    known = math.isfinite(xx) and math.isfinite(yy) and min(xx, yy) >= 0.0
    return 0.5 * xx + 0.5 * yy if known else math.nan


def read_pose(msg, source: str) -> PoseReading:
    """A message of that pose_source."""
    outer = msg.pose
    pose = outer if source == "pose" else outer.pose
    p, q = pose.position, pose.orientation
    covariance = getattr(outer, "covariance", None)
    return PoseReading((p.x, p.y, p.z), (q.x, q.y, q.z, q.w),
                       0.0 if covariance is None or source == "pose" else planar_variance(covariance))

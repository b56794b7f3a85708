"""Results to messages: pure functions, arrays filled through buffers (a list is a hundred times slower)."""

from __future__ import annotations

import math
from array import array
from typing import NamedTuple

import numpy as np
from geometry_msgs.msg import Pose, PoseArray, PoseStamped
from nav_msgs.msg import OccupancyGrid
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Float64MultiArray, Header, MultiArrayDimension

__all__ = ["CLOUD_FIELDS", "Limits", "field_cloud", "field_limits", "limits_message", "nice_limits", "occupancy_grid",
           "pose_array", "pose_stamped"]

CLOUD_FIELDS = ("x", "y", "z", "intensity", "mean", "stddev")
LOWEST, HIGHEST, UNKNOWN = 1, 98, -1  # RViz: 0 is transparent, 99 and 100 are special, -1 is unknown


class Limits(NamedTuple):
    """What the values 1 and 98 of the two OccupancyGrids stand for, SI."""

    mean_low: float
    mean_high: float
    stddev_low: float
    stddev_high: float


def nice_limits(low: float, high: float) -> tuple[float, float]:
    """The range rounded outwards to steps of 1, 2 or 5 · 10ᵏ, about 20 in it, so that colours do not flicker."""
    span = high - low
    smallest = 1e-6 * max(abs(low), abs(high)) or 1.0  # a flat field: a range that int8 can still show
    span = max(span, smallest)
    raw = span / 20.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, max(last, first + 1) * step


def field_limits(grid) -> Limits | None:
    """Limits of mean and stddev (from 0) over the known cells of a FieldGrid; None where nothing is known."""
    known = _numpy(grid.known)
    if not known.any():
        return None
    mean, stddev = _numpy(grid.mean)[known], _numpy(grid.stddev)[known]
    return Limits(*nice_limits(float(mean.min()), float(mean.max())), *nice_limits(0.0, float(stddev.max())))


def _numpy(tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def occupancy_grid(grid, values, low: float, high: float, header: Header) -> OccupancyGrid:
    """value = 1 + round(97 (v − low) / (high − low)), −1 where unknown; values (H, W) is grid.mean or grid.stddev.

    Back to SI: v = low + (value − 1) / 97 · (high − low), to within (high − low) / 194.
    """
    scaled = (_numpy(values) - low) * ((HIGHEST - LOWEST) / (high - low)) + LOWEST  # (H, W)
    cells = np.where(_numpy(grid.known), np.clip(np.rint(scaled), LOWEST, HIGHEST), UNKNOWN).astype(np.int8)
    out = OccupancyGrid(header=header)
    out.info.map_load_time = header.stamp
    out.info.resolution = float(grid.resolution)
    out.info.height, out.info.width = cells.shape
    out.info.origin.position.x, out.info.origin.position.y = float(grid.origin[0]), float(grid.origin[1])
    out.info.origin.orientation.w = 1.0
    out.data = array("b", cells.tobytes())
    return out


def field_cloud(grid, header: Header) -> PointCloud2:
    """The known cells as x y z intensity mean stddev: float32, SI, intensity repeats mean for RViz.

    float32 holds coordinates to 6e-8 of their size: near 1e6 m (UTM) the cloud, unlike the grids, snaps to 6 cm.
    """
    known = _numpy(grid.known)
    rows, columns = np.nonzero(known)
    points = np.zeros((len(rows), len(CLOUD_FIELDS)), dtype="<f4")  # (N, 6)
    points[:, 0] = grid.origin[0] + (columns + 0.5) * grid.resolution
    points[:, 1] = grid.origin[1] + (rows + 0.5) * grid.resolution
    points[:, 3] = points[:, 4] = _numpy(grid.mean)[known]
    points[:, 5] = _numpy(grid.stddev)[known]
    out = PointCloud2(header=header, height=1, width=len(points), is_bigendian=False, is_dense=True)
    out.fields = [PointField(name=name, offset=4 * i, datatype=PointField.FLOAT32, count=1)
                  for i, name in enumerate(CLOUD_FIELDS)]
    out.point_step = points.strides[0]
    out.row_step = points.nbytes
    out.data = array("B", points.tobytes())
    return out


def limits_message(limits: Limits) -> Float64MultiArray:
    """The limits for programs: four numbers whose names stand in layout.dim, in order."""
    out = Float64MultiArray(data=array("d", limits))
    out.layout.dim = [MultiArrayDimension(label=name, size=1, stride=1) for name in Limits._fields]
    return out


def _pose(x: float, y: float, heading: float) -> Pose:
    out = Pose()
    out.position.x, out.position.y = float(x), float(y)
    out.orientation.z, out.orientation.w = math.sin(heading / 2), math.cos(heading / 2)
    return out


def _poses(places, start) -> list[Pose]:
    """Each place looks the way one arrives at it: from the robot, then from the place before. places: (x, y) pairs."""
    out, last = [], start
    for x, y in places:
        out.append(_pose(x, y, math.atan2(y - last[1], x - last[0]) if last is not None else 0.0))
        last = (x, y)
    return out


def pose_array(places, start, header: Header) -> PoseArray:
    """All suggestions in the order of choice. start: (x, y) of the robot or None."""
    return PoseArray(header=header, poses=_poses(places, start))


def pose_stamped(places, start, header: Header) -> PoseStamped:
    """The first suggestion, as Nav2 accepts a goal."""
    return PoseStamped(header=header, pose=_poses(places[:1], start)[0])

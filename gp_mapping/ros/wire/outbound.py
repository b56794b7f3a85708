"""Results to messages: pure functions, arrays filled through buffers (a list is a hundred times slower)."""

from __future__ import annotations

import math
from array import array

import numpy as np
from geometry_msgs.msg import Pose, PoseArray, PoseStamped
from nav_msgs.msg import OccupancyGrid
from sensor_msgs.msg import PointCloud2, PointField
from std_msgs.msg import Float32MultiArray, Float64MultiArray, Header, MultiArrayDimension

from gp_mapping.mapping.drawing.levels import UNKNOWN, Limits, field_limits, levels, nice_limits

__all__ = [
    "CLOUD_FIELDS",
    "Limits",
    "class_grid",
    "cloud",
    "field_cloud",
    "field_limits",
    "grid_map",
    "layers",
    "limits_message",
    "nice_limits",
    "occupancy_grid",
    "pose_array",
    "pose_stamped",
]

CLOUD_FIELDS = ("x", "y", "z", "intensity", "mean", "stddev")
_ROWS = 32  # of a grid at a time: the numbers between stay in a processor's cache


def _numpy(tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _buffer(code: str, values: np.ndarray) -> array:
    """An array.array with a copy of contiguous values: one copy, no Python number is made."""
    out = array(code)
    out.frombytes(values.reshape(-1).view(np.uint8))
    return out


def occupancy_grid(grid, values, low: float, high: float, header: Header) -> OccupancyGrid:
    """value = 1 + round(97 (v − low) / (high − low)), −1 where unknown; values (H, W) is grid.mean or grid.stddev.

    Back to SI: v = low + (value − 1) / 97 · (high − low), to within (high − low) / 194.
    """
    return _cells_message(grid, levels(_numpy(values), _numpy(grid.known), low, high), header)


def class_grid(grid, header: Header) -> OccupancyGrid:
    """The most likely class of each cell as it is (0, 1, …), −1 where unknown. grid.classes must be there."""
    return _cells_message(
        grid, np.where(_numpy(grid.known), _numpy(grid.classes), UNKNOWN).astype(np.int8), header
    )


def _cells_message(grid, cells: np.ndarray, header: Header) -> OccupancyGrid:
    out = OccupancyGrid(header=header)
    out.info.map_load_time = header.stamp
    out.info.resolution = float(grid.resolution)
    out.info.height, out.info.width = cells.shape
    out.info.origin.position.x, out.info.origin.position.y = (
        float(grid.origin[0]),
        float(grid.origin[1]),
    )
    out.info.origin.orientation.w = 1.0
    out.data = _buffer("b", cells)
    return out


def cloud(
    points: np.ndarray, names, header: Header, dense: bool = True, data: array | None = None
) -> PointCloud2:
    """A PointCloud2 of points (N, F), float32 or float64, little-endian, a field for each column. dense: no NaN.

    data: array("B") that holds points already; None copies them.
    """
    kind = PointField.FLOAT64 if points.dtype.itemsize == 8 else PointField.FLOAT32
    out = PointCloud2(
        header=header, height=1, width=len(points), is_bigendian=False, is_dense=dense
    )
    out.fields = [
        PointField(name=name, offset=points.dtype.itemsize * i, datatype=kind, count=1)
        for i, name in enumerate(names)
    ]
    out.point_step = points.dtype.itemsize * len(names)
    out.row_step = points.nbytes
    out.data = _buffer("B", points) if data is None else data
    return out


def layers(grid) -> dict[str, np.ndarray]:
    """mean and stddev (H, W), SI; of several components also mean_x, stddev_x, …; of classes class, mean_0, …"""
    return {name: _numpy(values) for name, values in grid.layers.items()}


def field_cloud(grid, header: Header, room: array | None = None) -> PointCloud2:
    """The known cells as x y z intensity mean stddev (mean_x stddev_x …): float32, SI; intensity repeats mean for RViz.

    float32 holds coordinates to 6e-8 of their size: near 1e6 m (UTM) the cloud, unlike the grids, snaps to 6 cm.
    room: array("B") that becomes the message's data, whatever it held: fresh memory for each cloud would cost as much
    as filling it. A message made with it is spoilt by the next one. None takes fresh memory.
    """
    known, shown = _numpy(grid.known), layers(grid)
    height, width = known.shape
    columns = (grid.origin[0] + (np.arange(width) + 0.5) * grid.resolution).astype("<f4")
    rows = (grid.origin[1] + (np.arange(height) + 0.5) * grid.resolution).astype("<f4")
    counts, at = known.sum(1), 0
    data = _fitted(array("B") if room is None else room, 4 * int(counts.sum()) * (4 + len(shown)))
    points = np.frombuffer(data, "<f4").reshape(-1, 4 + len(shown))  # (N, F)
    scratch = np.empty((4 + len(shown), _ROWS * width), "<f4")
    for i in range(0, height, _ROWS):
        index = np.flatnonzero(known[i : i + _ROWS])
        part = scratch[:, : len(index)]  # column by column here, then turned in one go
        np.take(columns, index % width, out=part[0])
        part[1], part[2] = np.repeat(rows[i : i + _ROWS], counts[i : i + _ROWS]), 0.0
        for k, values in enumerate(shown.values()):
            part[4 + k] = values[i : i + _ROWS].reshape(-1)[index]
        part[3] = part[4]
        points[at : at + len(index)] = part.T
        at += len(index)
    return cloud(points, (*CLOUD_FIELDS[:4], *shown), header, data=data)


def _fitted(room: array, length: int) -> array:
    """The same array with so many bytes."""
    if len(room) > length:
        del room[length:]
    elif len(room) < length:
        room.extend(array("B", [0]) * (length - len(room)))
    return room


def grid_map(kind: type, grid, header: Header):
    """A grid_map_msgs/GridMap with the layers of `layers`, float32, NaN in the means where unknown.

    Its cells run from the largest x and y down, columns of equal y behind one another: an OccupancyGrid's data
    reversed. No layer is a basic one: RViz's plugin does not stand NaN in those.  kind: the message class.
    """
    (height, width), known = grid.shape, _numpy(grid.known)
    out = kind(header=header)
    out.info.resolution = float(grid.resolution)
    out.info.length_x, out.info.length_y = (
        width * float(grid.resolution),
        height * float(grid.resolution),
    )
    out.info.pose.position.x = float(grid.origin[0]) + 0.5 * out.info.length_x
    out.info.pose.position.y = float(grid.origin[1]) + 0.5 * out.info.length_y
    out.info.pose.orientation.w = 1.0
    names, data = [], []
    for name, values in layers(grid).items():
        cells = values.astype(np.float32)
        if name.startswith(("mean", "class")):
            cells[~known] = np.nan
        part = Float32MultiArray(data=_buffer("f", np.ascontiguousarray(cells.ravel()[::-1])))
        part.layout.dim = [
            MultiArrayDimension(label="column_index", size=height, stride=height * width),
            MultiArrayDimension(label="row_index", size=width, stride=width),
        ]
        names.append(name)
        data.append(part)
    out.layers, out.basic_layers, out.data = names, [], data
    out.outer_start_index = out.inner_start_index = 0
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

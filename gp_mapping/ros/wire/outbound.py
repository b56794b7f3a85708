"""Messages made from results: pure functions.

Arrays are filled through buffers; filling them from lists is a hundred times slower.
"""

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
_ROWS = 32  # of a grid at a time, so that intermediate numbers stay in a processor's cache


def _numpy(tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _buffer(code: str, values: np.ndarray) -> array:
    """An array.array with a copy of contiguous values, made without any Python numbers."""
    buffer = array(code)
    buffer.frombytes(values.reshape(-1).view(np.uint8))
    return buffer


def occupancy_grid(grid, values, low: float, high: float, header: Header) -> OccupancyGrid:
    """A layer of a grid, scaled to the integers 1 to 98; −1 where unknown.

        value = 1 + round(97 (v − low) / (high − low))

    Back to SI: v = low + (value − 1) / 97 · (high − low), to within (high − low) / 194.

    Args:
        grid: FieldGrid.
        values: (H, W), SI: grid.mean or grid.stddev.
        low: Value shown as 1, SI.
        high: Value shown as 98, SI.
        header: Of the message.
    """
    return _cells_message(grid, levels(_numpy(values), _numpy(grid.known), low, high), header)


def class_grid(grid, header: Header) -> OccupancyGrid:
    """The most likely class of each grid cell (0, 1, …), −1 where unknown.

    Args:
        grid: FieldGrid with classes.
        header: Of the message.
    """
    return _cells_message(
        grid, np.where(_numpy(grid.known), _numpy(grid.classes), UNKNOWN).astype(np.int8), header
    )


def _cells_message(grid, cells: np.ndarray, header: Header) -> OccupancyGrid:
    """An OccupancyGrid with these cells (H, W) int8, where the grid lies."""
    message = OccupancyGrid(header=header)
    message.info.map_load_time = header.stamp
    message.info.resolution = float(grid.resolution)
    message.info.height, message.info.width = cells.shape
    message.info.origin.position.x, message.info.origin.position.y = (
        float(grid.origin[0]),
        float(grid.origin[1]),
    )
    message.info.origin.orientation.w = 1.0
    message.data = _buffer("b", cells)
    return message


def cloud(
    points: np.ndarray, names, header: Header, dense: bool = True, data: array | None = None
) -> PointCloud2:
    """A PointCloud2, little-endian, with a field for each column of points.

    Args:
        points: (N, F), float32 or float64.
        names: F names of fields.
        header: Of the message.
        dense: Whether no value is NaN.
        data: array("B") that holds the points already; None copies them.
    """
    kind = PointField.FLOAT64 if points.dtype.itemsize == 8 else PointField.FLOAT32
    message = PointCloud2(
        header=header, height=1, width=len(points), is_bigendian=False, is_dense=dense
    )

    message.fields = [
        PointField(name=name, offset=points.dtype.itemsize * i, datatype=kind, count=1)
        for i, name in enumerate(names)
    ]

    message.point_step = points.dtype.itemsize * len(names)
    message.row_step = points.nbytes
    message.data = _buffer("B", points) if data is None else data
    return message


def layers(grid) -> dict[str, np.ndarray]:
    """The layers of a grid by name, (H, W), SI.

    mean and stddev; of several components also mean_x, stddev_x, …; of classes also class, mean_0,
    and so on.
    """
    return {name: _numpy(values) for name, values in grid.layers.items()}


def field_cloud(grid, header: Header, room: array | None = None) -> PointCloud2:
    """The known grid cells as points x y z intensity mean stddev (mean_x stddev_x …).

    float32, SI; intensity repeats mean, for RViz. float32 holds coordinates to 6e-8 of their size:
    near 1e6 m (UTM) the cloud, unlike the grids, snaps to 6 cm.

    Args:
        grid: FieldGrid.
        header: Of the message.
        room: array("B") that becomes the message's data, whatever it held: fresh memory for each
            cloud would cost as much as filling it. The next message made with it spoils this one.
            None takes fresh memory.
    """
    known, shown = _numpy(grid.known), layers(grid)
    height, width = known.shape
    columns = (grid.origin[0] + (np.arange(width) + 0.5) * grid.resolution).astype("<f4")
    rows = (grid.origin[1] + (np.arange(height) + 0.5) * grid.resolution).astype("<f4")
    counts, filled = known.sum(1), 0  # known grid cells of each row; points written so far

    data = _fitted(array("B") if room is None else room, 4 * int(counts.sum()) * (4 + len(shown)))
    points = np.frombuffer(data, "<f4").reshape(-1, 4 + len(shown))  # (N, F)
    scratch = np.empty((4 + len(shown), _ROWS * width), "<f4")

    for i in range(0, height, _ROWS):
        index = np.flatnonzero(known[i : i + _ROWS])
        block = scratch[:, : len(index)]  # (F, n): filled by columns, then transposed in one go
        np.take(columns, index % width, out=block[0])
        block[1], block[2] = np.repeat(rows[i : i + _ROWS], counts[i : i + _ROWS]), 0.0
        for k, values in enumerate(shown.values()):
            block[4 + k] = values[i : i + _ROWS].reshape(-1)[index]
        block[3] = block[4]  # intensity
        points[filled : filled + len(index)] = block.T
        filled += len(index)

    return cloud(points, (*CLOUD_FIELDS[:4], *shown), header, data=data)


def _fitted(room: array, length: int) -> array:
    """The same array, made that many bytes long."""
    if len(room) > length:
        del room[length:]
    elif len(room) < length:
        room.extend(array("B", [0]) * (length - len(room)))
    return room


def grid_map(kind: type, grid, header: Header):
    """A grid_map_msgs/GridMap with the layers of `layers`, float32.

    Unknown grid cells are NaN in means and classes. Its cells run from the largest x and y down,
    columns of equal y behind one another: an OccupancyGrid's data reversed. No layer is a basic
    one, since RViz's plugin does not stand NaN in those.

    Args:
        kind: The message class.
        grid: FieldGrid.
        header: Of the message.
    """
    (height, width), known = grid.shape, _numpy(grid.known)
    message = kind(header=header)
    message.info.resolution = float(grid.resolution)
    message.info.length_x, message.info.length_y = (
        width * float(grid.resolution),
        height * float(grid.resolution),
    )
    message.info.pose.position.x = float(grid.origin[0]) + 0.5 * message.info.length_x
    message.info.pose.position.y = float(grid.origin[1]) + 0.5 * message.info.length_y
    message.info.pose.orientation.w = 1.0

    names, data = [], []
    for name, values in layers(grid).items():
        cells = values.astype(np.float32)
        if name.startswith(("mean", "class")):
            cells[~known] = np.nan
        layer = Float32MultiArray(data=_buffer("f", np.ascontiguousarray(cells.ravel()[::-1])))
        layer.layout.dim = [
            MultiArrayDimension(label="column_index", size=height, stride=height * width),
            MultiArrayDimension(label="row_index", size=width, stride=width),
        ]

        names.append(name)
        data.append(layer)
    message.layers, message.basic_layers, message.data = names, [], data
    message.outer_start_index = message.inner_start_index = 0
    return message


def limits_message(limits: Limits) -> Float64MultiArray:
    """The limits for programs: four numbers, named in order in layout.dim."""
    message = Float64MultiArray(data=array("d", limits))
    message.layout.dim = [
        MultiArrayDimension(label=name, size=1, stride=1) for name in Limits._fields
    ]
    return message


def _pose(x: float, y: float, heading: float) -> Pose:
    """A pose in the plane: m, m, rad."""
    message = Pose()
    message.position.x, message.position.y = float(x), float(y)
    message.orientation.z, message.orientation.w = math.sin(heading / 2), math.cos(heading / 2)
    return message


def _poses(places, start) -> list[Pose]:
    """Poses at places (x, y), each with the heading of arrival from the place before.

    The first arrival is from start, the robot's (x, y); heading 0 where start is None.
    """
    poses, last = [], start
    for x, y in places:
        poses.append(_pose(x, y, math.atan2(y - last[1], x - last[0]) if last is not None else 0.0))
        last = (x, y)
    return poses


def pose_array(places, start, header: Header) -> PoseArray:
    """All suggestions in the order of choice, each with the heading of arrival from the one before.

    Args:
        places: (x, y) of each, m.
        start: (x, y) of the robot, m, or None.
        header: Of the message.
    """
    return PoseArray(header=header, poses=_poses(places, start))


def pose_stamped(places, start, header: Header) -> PoseStamped:
    """The first suggestion as a goal that Nav2 accepts.

    Args:
        places: (x, y) of each, m; at least one.
        start: (x, y) of the robot, m, or None.
        header: Of the message.
    """
    return PoseStamped(header=header, pose=_poses(places[:1], start)[0])

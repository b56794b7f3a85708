"""What an occupancy grid says: which of its cells are passable, and where they lie."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gp_mapping.planning.area.places import FARTHEST, are_valid_places

__all__ = ["Grid", "read_occupancy_grid"]


class Grid(NamedTuple):
    """Cells of an occupancy grid.

    Attributes:
        passable: (H, W) bool, cells without an obstacle.
        origin: (x, y) metres of the lower left corner.
        yaw: radians.
        resolution: metres.
        frame: the frame of all of it.
    """

    passable: np.ndarray
    origin: tuple[float, float]
    yaw: float
    resolution: float
    frame: str


def read_occupancy_grid(
    message, free_threshold: int = 25, occupied_threshold: int = 65, unknown: str = "blocked"
) -> Grid:
    """Return the cells of anything with the fields of nav_msgs/OccupancyGrid.

    Args:
        message: the grid.
        free_threshold: below it a cell is free.
        occupied_threshold: from it on a cell is an obstacle; what lies between, and −1, is unknown.
        unknown: 'blocked' or 'free', how unknown cells count.

    Raises:
        ValueError: a message that contradicts itself, with the field's name.
    """
    info = message.info
    width, height, resolution = int(info.width), int(info.height), float(info.resolution)
    if not (math.isfinite(resolution) and resolution > 0 and width > 0 and height > 0):
        raise ValueError(
            f"the occupancy grid is {width} x {height} cells of {resolution} m, expected at least one "
            "cell and a positive resolution"
        )

    data = np.asarray(message.data, dtype=np.int16)
    if data.size != width * height:
        raise ValueError(f"the occupancy grid has {data.size} values for {width} x {height} cells")
    if data.min() < -1 or data.max() > 100:
        raise ValueError(
            f"the occupancy grid has values {data.min()} to {data.max()}, expected -1 to 100"
        )

    if not 0 < free_threshold <= occupied_threshold <= 101:
        raise ValueError(
            f"thresholds {free_threshold} and {occupied_threshold}, expected 0 < free <= occupied "
            "<= 101"
        )
    if unknown not in ("blocked", "free"):
        raise ValueError(f"unknown is {unknown!r}, expected 'blocked' or 'free'")
    corner = (float(info.origin.position.x), float(info.origin.position.y))
    size = max(width, height) * resolution
    if not are_valid_places([corner]).all() or size > FARTHEST:
        raise ValueError(
            f"the occupancy grid lies at {corner} m and is {size:.3g} m long, expected finite metres, "
            f"at most {FARTHEST:g}"
        )

    data = data.reshape(height, width)
    passable = (data >= 0) & (data < free_threshold)
    if unknown == "free":
        passable = data < occupied_threshold

    frame = str(getattr(getattr(message, "header", None), "frame_id", ""))
    return Grid(passable, corner, _yaw(info.origin.orientation), resolution, frame)


def _yaw(q) -> float:
    """Return the heading of a map's origin; ValueError for a zero or tilted quaternion."""
    norm = math.sqrt(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w)
    if not norm > 1e-6:
        raise ValueError(
            "the occupancy grid's origin has a zero or non-finite quaternion, expected a rotation about "
            "z, for example x=0 y=0 z=0 w=1"
        )

    x, y, z, w = q.x / norm, q.y / norm, q.z / norm, q.w / norm
    if math.hypot(x, y) > 1e-3:
        raise ValueError(
            f"the occupancy grid's origin is tilted (quaternion x={x:.4f} y={y:.4f}), expected a rotation "
            "about z only"
        )
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))

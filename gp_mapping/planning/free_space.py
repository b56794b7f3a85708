"""Which places a robot may enter, from an occupancy grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

__all__ = ["FreeSpace"]


def _yaw(q) -> float:
    """Heading of a map's origin; ValueError for a zero or tilted quaternion."""
    norm = math.sqrt(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w)
    if not norm > 1e-6:
        raise ValueError("the occupancy grid's origin has a zero or non-finite quaternion, expected a rotation about "
                         "z, for example x=0 y=0 z=0 w=1")
    x, y, z, w = q.x / norm, q.y / norm, q.z / norm, q.w / norm
    if math.hypot(x, y) > 1e-3:
        raise ValueError(f"the occupancy grid's origin is tilted (quaternion x={x:.4f} y={y:.4f}), expected a rotation "
                         "about z only")
    return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


@dataclass(frozen=True)
class FreeSpace:
    """The cells of an occupancy grid whose centre a round robot may occupy.

    origin: (x, y) metres of the grid's lower left corner.  yaw: radians.  resolution: metres.
    clearance: (H, W) metres, no more than the distance from a cell's centre to the nearest cell that may not be
        entered; 0 in those.  radius: metres.  open: (H, W) bool, what is left to the robot's centre.
    frame: the frame that all of it is in.
    """

    origin: tuple[float, float]
    yaw: float
    resolution: float
    radius: float
    clearance: np.ndarray
    open: np.ndarray
    frame: str = ""

    @staticmethod
    def from_occupancy_grid(message, radius: float = 0.0, free_threshold: int = 25, occupied_threshold: int = 65,
                            unknown: str = "blocked") -> FreeSpace:
        """From anything with the fields of nav_msgs/OccupancyGrid.

        Below free_threshold a cell is free, from occupied_threshold on an obstacle; what lies between, −1 and all that
        is outside the grid is unknown, 'blocked' or 'free' as `unknown` says. Outside is never suggested either way.
        Raises ValueError for a message that contradicts itself, with the field's name.
        """
        info = message.info
        width, height, resolution = int(info.width), int(info.height), float(info.resolution)
        if not (math.isfinite(resolution) and resolution > 0 and width > 0 and height > 0):
            raise ValueError(f"the occupancy grid is {width} x {height} cells of {resolution} m, expected at least one "
                             "cell and a positive resolution")
        data = np.asarray(message.data, dtype=np.int16)
        if data.size != width * height:
            raise ValueError(f"the occupancy grid has {data.size} values for {width} x {height} cells")
        if data.min() < -1 or data.max() > 100:
            raise ValueError(f"the occupancy grid has values {data.min()} to {data.max()}, expected -1 to 100")
        if not 0 < free_threshold <= occupied_threshold <= 101:
            raise ValueError(f"thresholds {free_threshold} and {occupied_threshold}, expected 0 < free <= occupied "
                             "<= 101")
        if unknown not in ("blocked", "free"):
            raise ValueError(f"unknown is {unknown!r}, expected 'blocked' or 'free'")
        if not (math.isfinite(radius) and radius >= 0):
            raise ValueError(f"radius is {radius} m, expected 0 or more")
        corner = (float(info.origin.position.x), float(info.origin.position.y))
        if not all(map(math.isfinite, corner)):
            raise ValueError(f"the occupancy grid's origin {corner} is not finite")
        data = data.reshape(height, width)
        passable = (data >= 0) & (data < free_threshold)
        if unknown == "free":
            passable = data < occupied_threshold
        # A frame of one cell stands for the outside; half a diagonal makes centre-to-centre distances safe ones.
        framed = np.pad(passable, 1, constant_values=unknown == "free")
        away = ndimage.distance_transform_edt(framed)[1:-1, 1:-1] if not framed.all() else np.full(data.shape, np.inf)
        clearance = np.where(passable, np.maximum(away - math.sqrt(0.5), 0.0) * resolution, 0.0)
        free = passable & (clearance >= radius) if radius > 0 else passable
        frame = str(getattr(getattr(message, "header", None), "frame_id", ""))
        return FreeSpace(corner, _yaw(info.origin.orientation), resolution, float(radius), clearance, free, frame)

    def _cells(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row and column (N,) of places x (N, 2), and their distance in metres to the centre of that cell."""
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x[:, 0] - self.origin[0], x[:, 1] - self.origin[1]
        local = np.stack([cos * dx + sin * dy, cos * dy - sin * dx]) / self.resolution
        cells = np.floor(local)
        off = np.hypot(*(local - cells - 0.5)) * self.resolution
        limit = np.array(self.open.shape)[::-1, None]
        column, row = np.clip(cells, -1, limit).astype(int)
        return row, column, off

    def allows(self, x: Tensor) -> Tensor:
        """Whether the robot's centre may be at x (N, 2) metres: (N,) bool. Outside the grid it may not."""
        row, column, off = self._cells(x.cpu().numpy())
        inside = (row >= 0) & (column >= 0) & (row < self.open.shape[0]) & (column < self.open.shape[1])
        row, column = np.where(inside, row, 0), np.where(inside, column, 0)
        ok = inside & self.open[row, column]
        if self.radius > 0:  # the place is not the cell's centre: its own clearance is smaller by that distance at most
            ok &= self.clearance[row, column] - off >= self.radius - 1e-9
        return torch.from_numpy(ok)

    def reachable_from(self, position, search: float = 0.5) -> FreeSpace:
        """Only what is connected, over cells that share a side, to the open cell nearest to position (x, y) in metres.

        search: how far that cell may be, in metres; with none so near nothing is left.
        """
        labels, _ = ndimage.label(self.open)
        rows, columns = np.nonzero(self.open)
        left = np.zeros_like(self.open)
        if len(rows):
            cos, sin = math.cos(self.yaw), math.sin(self.yaw)
            u, v = (columns + 0.5) * self.resolution, (rows + 0.5) * self.resolution
            distance = np.hypot(self.origin[0] + cos * u - sin * v - float(position[0]),
                                self.origin[1] + sin * u + cos * v - float(position[1]))
            nearest = int(distance.argmin())
            if distance[nearest] <= search:
                left = labels == labels[rows[nearest], columns[nearest]]
        return replace(self, open=left)

"""The free space of a plan, from a map_server file, and the same in a picture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from matplotlib.transforms import Affine2D

from gp_mapping.errors import UsageError
from gp_mapping.planning import FreeSpace
from gp_mapping.store.exports.map_server import OccupancyFile, read_map_server

__all__ = ["Obstacles"]

_COLOURS = {"not free": "#202020", "no room for the robot": "#8080a0"}


class Obstacles(NamedTuple):
    """What is in the robot's way.

    Attributes:
        path: of the file.
        grid: what map_server would publish of it.
        free: where the robot's centre may be.
    """

    path: str
    grid: OccupancyFile
    free: FreeSpace

    @staticmethod
    def read(path: str, radius: float) -> Obstacles:
        """Return the obstacles of a map_server file, read as a node reads map_server's message.

        Args:
            path: of the yaml.
            radius: of the robot, m.

        Raises:
            UsageError: the file cannot be used, or nothing in it is free.
        """
        grid = read_map_server(path)
        try:
            free = FreeSpace.from_occupancy_grid(grid, radius=radius)
        except ValueError as error:
            raise UsageError(f"--free-space {path}: {error}") from error
        if not free.open.any():
            shut = "no cell of it is free" if not (free.clearance > 0.0).any() else ""
            raise UsageError(
                f"--free-space {path}: {shut or f'no place has {radius:g} m of room (robot_radius)'}"
            )
        return Obstacles(path, grid, free)

    def check_covers(self, position: np.ndarray, path: np.ndarray) -> None:
        """Check that the file is of the ground that the map is of.

        It names no frame: one in another frame shows in what it covers.

        Args:
            position: (2,) m, where the route begins.
            path: (K, 2) m, where the map's measurements were taken.

        Raises:
            UsageError: it covers nothing of the path, or not the position.
        """
        corners = self.grid.corners()
        (x, y), (last_x, last_y) = corners.min(0), corners.max(0)
        covers = (
            f"it covers x {x:.2f} to {last_x:.2f} m and y {y:.2f} to {last_y:.2f} m; its origin has "
            "to be in the map's frame"
        )
        if not self._holds(path).any():
            low, high = path.min(0), path.max(0)
            raise UsageError(
                f"--free-space {self.path}: no measurement of the map lies on it: they lie at x "
                f"{low[0]:.2f} to {high[0]:.2f} m and y {low[1]:.2f} to {high[1]:.2f} m, and {covers}"
            )
        if not self._holds(position[None]).all():
            raise UsageError(
                f"--free-space {self.path}: the route's beginning, ({position[0]:.2f}, "
                f"{position[1]:.2f}) m, lies outside of it: {covers}, or write --start 'X Y'"
            )

    def _holds(self, x: np.ndarray) -> np.ndarray:
        """Return which places (N, 2) m lie on the grid, (N,) bool."""
        corner, right, _, left = self.grid.corners()
        sides = np.stack([right - corner, left - corner], 1)  # columns
        across = np.linalg.solve(sides, (x - corner).T)
        return ((across >= 0.0) & (across <= 1.0)).all(0)

    def draw(self, axis) -> list[Patch]:
        """Draw on an axis what is not free; its limits stay as they are.

        Args:
            axis: of matplotlib, in metres.

        Returns:
            Entries for the legend.
        """
        shut = self.free.clearance <= 0.0
        kinds = np.where(shut, 0.0, np.where(self.free.open, np.nan, 1.0))
        height, width = kinds.shape
        x, y, yaw = self.grid.origin
        limits, aspect = (axis.get_xlim(), axis.get_ylim()), axis.get_aspect()
        image = axis.imshow(
            np.ma.masked_invalid(kinds),
            cmap=ListedColormap(list(_COLOURS.values())),
            vmin=0.0,
            vmax=1.0,
            origin="lower",
            interpolation="nearest",
            extent=(0.0, width, 0.0, height),
            alpha=0.8,
        )
        size = self.grid.resolution
        image.set_transform(Affine2D().scale(size).rotate(yaw).translate(x, y) + axis.transData)
        axis.set_aspect(aspect)
        axis.set_xlim(limits[0])
        axis.set_ylim(limits[1])
        drawn = np.unique(kinds[np.isfinite(kinds)]).astype(int)
        return [
            Patch(color=colour, alpha=0.8, label=label)
            for kind, (label, colour) in enumerate(_COLOURS.items())
            if kind in drawn
        ]

"""Which places a robot may enter, from an occupancy grid."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy import ndimage
from scipy.spatial import cKDTree
from torch import Tensor

from gp_mapping.planning.occupancy_grid import read_occupancy_grid

__all__ = ["FreeSpace", "along"]

_NEAREST = 12  # occupied cells looked at where a grid's clearance alone does not decide
_SLACK = math.sqrt(0.5) - 0.5  # cells by which clearance may be less than the distance
_STEP = 0.01  # m between two samples of a line
_ASIDE = 1e-6  # cells; both sides of a line this far off are tested
_AT_ONCE = 200_000  # samples tested together: time and memory alone
_SMALL = (
    200_000  # cells of a grid whose distances to obstacles' surroundings are computed: likewise
)


@dataclass(frozen=True)
class FreeSpace:
    """The cells of an occupancy grid whose centre a round robot may occupy.

    Attributes:
        origin: (x, y) metres of the grid's lower left corner.
        yaw: radians.
        resolution: metres.
        radius: metres, of the robot.
        clearance: (H, W) metres, a lower bound of the distance from a cell's centre to the nearest
            cell that may not be entered, less than it by a fifth of a cell at most; 0 in those
            cells.
        open: (H, W) bool, where the robot's centre may be.
        frame: the frame of all of it.
        walled: whether what lies outside the grid counts as occupied.
    """

    origin: tuple[float, float]
    yaw: float
    resolution: float
    radius: float
    clearance: np.ndarray
    open: np.ndarray
    frame: str = ""
    walled: bool = True

    @staticmethod
    def from_occupancy_grid(
        message,
        radius: float = 0.0,
        free_threshold: int = 25,
        occupied_threshold: int = 65,
        unknown: str = "blocked",
    ) -> FreeSpace:
        """Return the free space of anything with the fields of nav_msgs/OccupancyGrid.

        Outside the grid is unknown, and never suggested whatever `unknown` says.

        Args:
            message: the grid.
            radius: of the robot, m.
            free_threshold: below it a cell is free.
            occupied_threshold: from it on a cell is an obstacle; what lies between, and −1, is
                unknown.
            unknown: 'blocked' or 'free', how unknown cells count.

        Raises:
            ValueError: a message that contradicts itself, with the field's name.
        """
        if not (math.isfinite(radius) and radius >= 0):
            raise ValueError(f"radius is {radius} m, expected 0 or more")
        grid = read_occupancy_grid(message, free_threshold, occupied_threshold, unknown)
        return FreeSpace.from_passable(
            grid.passable,
            grid.origin,
            grid.yaw,
            grid.resolution,
            float(radius),
            grid.frame,
            walled=unknown == "blocked",
        )

    @staticmethod
    def from_passable(
        passable: np.ndarray,
        origin: tuple[float, float],
        yaw: float,
        resolution: float,
        radius: float,
        frame: str = "",
        walled: bool = True,
    ) -> FreeSpace:
        """Return the free space that obstacles leave a round robot.

        Args:
            passable: (H, W) bool, cells without an obstacle.
            origin: as for the class, like all that follow.
            yaw: radians.
            resolution: m.
            radius: m.
            frame: its name.
            walled: whether what lies outside the grid counts as occupied.
        """
        # A frame of one cell stands for the outside. Half a diagonal turns distances between
        # centres into lower bounds of the distance to a cell's square.
        framed = np.pad(passable, 1, constant_values=not walled)
        away = (
            ndimage.distance_transform_edt(framed)[1:-1, 1:-1]
            if not framed.all()
            else np.full(passable.shape, np.inf)
        )
        clearance = np.where(passable, np.maximum(away - math.sqrt(0.5), 0.0) * resolution, 0.0)
        free = FreeSpace(origin, yaw, resolution, radius, clearance, passable, frame, walled)
        if not radius > 0:
            return free

        # Where the bound does not decide, the exact distance does: a robot fits where it fits.
        narrow = passable & (clearance < radius) & (clearance + _SLACK * resolution >= radius)
        fits = clearance >= radius
        fits[narrow] = free._room(free.centres(narrow), radius) >= radius - 1e-9
        return replace(free, open=passable & fits)

    def same_as(self, other: FreeSpace) -> bool:
        """Return whether two maps have equal contents."""
        return (
            (self.origin, self.yaw, self.resolution, self.radius, self.frame, self.walled)
            == (other.origin, other.yaw, other.resolution, other.radius, other.frame, other.walled)
            and np.array_equal(self.open, other.open)
            and np.array_equal(self.clearance, other.clearance)
        )

    def centres(self, mask=None) -> np.ndarray:
        """Return centres (N, 2) m of the cells in mask (H, W), or of the open ones, row by row."""

        return self.centres_at(*np.nonzero(self.open if mask is None else mask))

    def centres_at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the centres (N, 2) m of cells.

        Args:
            rows: (N,) int, of the cells.
            columns: (N,) int, of the cells.
        """
        u, v = (columns + 0.5) * self.resolution, (rows + 0.5) * self.resolution
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        return np.stack([self.origin[0] + cos * u - sin * v, self.origin[1] + sin * u + cos * v], 1)

    @cached_property
    def _obstacles(self) -> cKDTree | None:
        """Centres of occupied cells that border on free ones, in cells; None without any."""
        occupied = np.pad(self.clearance <= 0.0, 1, constant_values=self.walled)
        border = occupied & ndimage.binary_dilation(~occupied, np.ones((3, 3)))
        rows, columns = np.nonzero(border)
        return cKDTree(np.stack([columns, rows], 1) - 0.5) if len(rows) else None

    @cached_property
    def _obstacles_and_none(self) -> np.ndarray:
        """The centres of _obstacles, and infinity: the row of a neighbour that was not found."""
        return np.vstack([self._obstacles.data, np.full(2, np.inf)])

    def _room(self, x: np.ndarray, enough: float) -> np.ndarray:
        """Return a lower bound of the distance from places to the nearest occupied cell.

        It is exact unless more cells are about equally near than are looked at.

        Args:
            x: (N, 2) m.
            enough: m, beyond which the distance does not matter.

        Returns:
            (N,) m.
        """
        if self._obstacles is None:
            return np.full(len(x), np.inf)

        limit = enough / self.resolution + 1.0
        local = self._local(x)
        away, index = self._obstacles.query(local, k=_NEAREST, distance_upper_bound=limit)

        square = np.maximum(np.abs(self._obstacles_and_none[index] - local[:, None]) - 0.5, 0.0)
        nearest = np.hypot(square[..., 0], square[..., 1]).min(1)
        # Cells that are not among the nearest are at least as far as the last one, less half a
        # diagonal.
        return np.minimum(nearest, np.maximum(away[:, -1] - math.sqrt(0.5), 0.0)) * self.resolution

    def _local(self, x: np.ndarray) -> np.ndarray:
        """Return places (N, 2) m in cells from the grid's corner."""
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x[:, 0] - self.origin[0], x[:, 1] - self.origin[1]
        ahead = cos * dx + sin * dy
        local = np.empty((len(x), 2), ahead.dtype)  # np.stack would take longer than the arithmetic
        local[:, 0], local[:, 1] = ahead, cos * dy - sin * dx
        local /= self.resolution
        return local

    def _cells(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row, column and the distance to the cell's centre, m, of x (N, 2): (N,) each."""
        local = self._local(x).T
        cells = np.floor(local)
        off = np.hypot(*(local - cells - 0.5)) * self.resolution

        # Clipped before the conversion: an integer cannot hold a place that is very far away.
        limit = np.array(self.open.shape)[::-1, None]
        column, row = np.minimum(np.maximum(cells, -1), limit).astype(int)
        return row, column, off

    def allows(self, x: Tensor) -> Tensor:
        """Return whether the robot's centre may be at x (N, 2) m: (N,) bool; outside, False."""
        return torch.from_numpy(self._allows(x.cpu().numpy()))

    def room(self, x: np.ndarray, enough: float) -> np.ndarray:
        """Return a lower bound of the distance from places to the nearest occupied cell.

        Args:
            x: (N, 2) m.
            enough: m, beyond which the distance does not matter.

        Returns:
            (N,) m; 0 in an occupied cell and outside the grid.
        """
        row, column, _ = self._cells(x)
        inside = (
            (row >= 0) & (column >= 0) & (row < self.open.shape[0]) & (column < self.open.shape[1])
        )
        # obstacles are known by their borders alone: deep in one the nearest is far away
        inside[inside] = self.clearance[row[inside], column[inside]] > 0.0
        return np.where(inside, self._room(x, enough), 0.0)

    def _allows(self, x: np.ndarray) -> np.ndarray:
        """As `allows`, of an array."""
        row, column, off_centre = self._cells(x)
        inside = (
            (row >= 0) & (column >= 0) & (row < self.open.shape[0]) & (column < self.open.shape[1])
        )

        row, column = np.where(inside, row, 0), np.where(inside, column, 0)
        allowed = inside & self.open[row, column]

        need = self.radius
        if need > 0:
            # A place's own distance differs from its cell centre's by the way between them at most.
            clearance = self.clearance[row, column]
            sure = clearance - off_centre >= need - 1e-9
            undecided = (
                allowed & ~sure & (clearance + _SLACK * self.resolution + off_centre >= need)
            )
            allowed &= sure
            allowed[undecided] = self._room(x[undecided], need) >= need - 1e-9
        return allowed

    @cached_property
    def _framed_open(self) -> np.ndarray:
        """`open` with a frame of cells that are not, flat: ((H + 2) (W + 2),) bool."""
        return np.pad(self.open, 1).ravel()

    @cached_property
    def _clear_around(self) -> np.ndarray:
        """The robot may be anywhere in the cell and in its eight neighbours; framed, flat, bool."""
        corner = math.sqrt(0.5) * self.resolution
        sure = self.open & (self.clearance - corner >= self.radius + 0.5 * _STEP)
        return np.pad(ndimage.binary_erosion(sure, np.ones((3, 3))), 1).ravel()

    @cached_property
    def _to_border(self) -> np.ndarray:
        """(H, W) cells from the centre of a cell to the nearest one without room around it."""
        height, width = self.open.shape
        framed = self._clear_around.reshape(height + 2, width + 2)
        return ndimage.distance_transform_edt(framed)[1:-1, 1:-1]

    @cached_property
    def _open_around(self) -> np.ndarray:
        """The cell and its eight neighbours are open; framed, flat, bool."""
        return np.pad(ndimage.binary_erosion(self.open, np.ones((3, 3))), 1).ravel()

    def sees(self, a, b) -> np.ndarray:
        """Return whether the robot's centre may go straight from a to b.

        Exact to a centimetre: every point of a line that passes is passable; a line that misses an
        obstacle by less may be refused.

        Args:
            a: (N, 2) m.
            b: (N, 2) m.

        Returns:
            (N,) bool.
        """
        a, b = (np.asarray(end, dtype=np.float64).reshape(-1, 2) for end in (a, b))
        out = self._is_amid_room(a, b) if self.open.size <= _SMALL else np.zeros(len(a), dtype=bool)
        undecided = np.flatnonzero(~out)
        if len(undecided):
            out[undecided] = self._sees_along(a[undecided], b[undecided])
        return out

    def _is_amid_room(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether a line is sure to pass by what is known around its ends: (N,) bool.

        Around each end there is a disc of cells with room all around; two that meet hold the line.
        """
        row, column, off = self._cells(np.concatenate([a, b]))
        height, width = self.open.shape
        inside = (row >= 0) & (column >= 0) & (row < height) & (column < width)

        # A place in a cell is half a diagonal from its centre at most.
        border = np.where(inside, self._to_border[row * inside, column * inside], 0.0)
        disc = ((border - math.sqrt(0.5)) * self.resolution - off).clip(0.0)
        return disc[: len(a)] + disc[len(a) :] > np.hypot(*(b - a).T) + _ASIDE

    def _sees_along(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """As `sees`, of lines (N, 2) m, by what lies along them."""
        length = np.hypot(*(b - a).T)
        out = np.zeros(len(a), dtype=bool)

        # Coarse test: samples half a cell apart, sure where all cells around have room.
        step = 0.5 * self.resolution
        count = np.maximum(2, np.ceil(length / step).astype(int) + 1)
        for part in _groups(count):
            x, owner = along(a[part], b[part], count[part])
            local = self._local(x)
            cell = self._framed_cells(local)
            sure = self._clear_around.take(cell, mode="clip")
            never = ~self._framed_open.take(cell, mode="clip")
            out[part] = np.bincount(owner, never, len(part)) == 0

            # Between two samples that are not both sure, their room decides, or else every
            # centimetre.
            undecided = (owner[1:] == owner[:-1]) & ~(sure[1:] & sure[:-1]) & out[part][owner[1:]]
            first = np.flatnonzero(undecided)
            if not len(first):
                continue

            # Where a cell's clearance says that there is enough room, no obstacle is looked for.
            room = np.full(len(x), np.inf)
            tested = np.zeros(len(x), dtype=bool)
            tested[first] = tested[first + 1] = True
            tested = np.flatnonzero(tested)
            off_centre = local[tested] - np.floor(local[tested]) - 0.5
            off_centre = np.hypot(off_centre[:, 0], off_centre[:, 1]) * self.resolution
            row, column = np.divmod(cell[tested], self.open.shape[1] + 2)
            clearance = self.clearance[row - 1, column - 1]
            tested = tested[clearance - off_centre < self.radius + 0.5 * (step + _STEP)]
            room[tested] = self._room(x[tested], self.radius + step)

            least = np.minimum(room[first], room[first + 1])
            clear = least >= self.radius - 1e-9
            narrow = clear & (least < self.radius + 0.5 * (step + _STEP))
            if narrow.any():
                clear[narrow] = self._closely(x[first[narrow]], x[first[narrow] + 1])

            # Near a cell that is not open, every cell that the line cuts must be. The next sample
            # lies half a cell away, in a cell that amid ones have as a neighbour.
            by_border = clear & ~self._open_around.take(cell[first])
            if by_border.any():
                clear[by_border] = self._crosses_open_cells(
                    x[first[by_border]], x[first[by_border] + 1]
                )

            out[part] &= np.bincount(owner[first], ~clear, len(part)) == 0
        return out

    def _framed_cells(self, local: np.ndarray) -> np.ndarray:
        """Return where the cells of places (N, 2), in cells, are in framed tables: (N,).

        Of a place that is no number it is no such index, and counts as outside if clipped.
        """
        height, width = self.open.shape
        cells = np.floor(local)
        # Clipped before the conversion: an integer cannot hold a place that is very far away.
        np.clip(cells, -1.0, (width, height), out=cells)
        return ((cells[:, 1] + 1.0) * (width + 2) + (cells[:, 0] + 1.0)).astype(np.intp)

    def seems_open(self, a, b) -> np.ndarray:
        """Return whether a line's samples every half cell all lie in open cells.

        The answer of `sees`, but for corners that are cut by less than that: for a search that asks
        thousands of times.

        Args:
            a: (N, 2) m, start of each line.
            b: (N, 2) m, end of each line.

        Returns:
            (N,) bool.
        """
        a, b = (np.asarray(end, dtype=np.float64).reshape(-1, 2) for end in (a, b))
        out = np.zeros(len(a), dtype=bool)

        count = np.maximum(
            2, np.ceil(np.hypot(*(b - a).T) / (0.5 * self.resolution)).astype(int) + 1
        )

        for part in _groups(count):
            x, owner = along(a[part], b[part], count[part])
            never = ~self._framed_open.take(self._framed_cells(self._local(x)), mode="clip")
            out[part] = np.bincount(owner, never, len(part)) == 0
        return out

    def _closely(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether there is room every cm from a to b (N, 2), half a cm to spare: (N,)."""
        if not len(a):
            return np.zeros(0, dtype=bool)

        count = np.maximum(2, np.ceil(np.hypot(*(b - a).T) / _STEP).astype(int) + 1)
        x, owner = along(a, b, count)
        need = self.radius + 0.5 * _STEP
        return np.bincount(owner, self._room(x, need) < need - 1e-9, len(a)) == 0

    def _crosses_open_cells(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether every cell that a line from a (N, 2) to b (N, 2) cuts is open: (N,) bool.

        Cells whose corner is cut count, too. A line along the border of two cells, or through a
        corner of four, is in all of them.
        """
        a, b = self._local(a), self._local(b)
        # The line is tested a hair to its left and a hair to its right.
        aside = (
            (b - a)[:, ::-1] * (-_ASIDE, _ASIDE) / np.maximum(np.hypot(*(b - a).T), 1e-12)[:, None]
        )
        both = self._cells_are_open(
            np.concatenate([a + aside, a - aside]), np.concatenate([b + aside, b - aside])
        )
        return both[: len(a)] & both[len(a) :]

    def _cells_are_open(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether every cell that a line cuts is open, for lines through no corner; in cells."""

        # Where each line crosses the borders of cells, as fractions of its length, ends included.
        owners, fractions = [np.repeat(np.arange(len(a)), 2)], [np.tile([0.0, 1.0], len(a))]
        for axis in (0, 1):
            low, high = np.minimum(a, b)[:, axis], np.maximum(a, b)[:, axis]
            first = np.floor(low) + 1
            count = np.maximum(np.ceil(high) - first, 0).astype(int)
            owner = np.repeat(np.arange(len(a)), count)
            line = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            owners.append(owner)
            fractions.append((line - a[owner, axis]) / (b - a)[owner, axis])

        owner, fraction = np.concatenate(owners), np.concatenate(fractions)
        order = np.lexsort((fraction, owner))
        owner, fraction = owner[order], fraction[order]

        # Between two crossings the line is in one cell: the one that holds the middle.
        inner = owner[1:] == owner[:-1]
        owner, middle = owner[1:][inner], 0.5 * (fraction[1:] + fraction[:-1])[inner]

        column, row = np.floor(a[owner] + middle[:, None] * (b - a)[owner]).astype(int).T
        height, width = self.open.shape
        shut = ~self.open[row.clip(0, height - 1), column.clip(0, width - 1)]
        return np.bincount(owner, shut, len(a)) == 0

    def reachable_from(self, position, search: float = 0.5) -> FreeSpace:
        """Return the part that is connected, over cells that share a side, to the robot's cell.

        That is the open cell nearest to the position, be it one that is so large that its centre
        is farther than `search`; with none near enough nothing is left.

        Args:
            position: (x, y) m.
            search: metres to the farthest cell that counts.
        """
        label = self._label_near(position, search)
        if label not in self._components:
            self._components.clear()  # one is enough: a robot stays in its own
            left = self._labels == label if label else np.zeros_like(self.open)
            self._components[label] = replace(self, open=left)

        return self._components[label]

    def prepare(self) -> None:
        """Compute components and borders now, in this thread, not when they are first needed."""
        _ = self._labels, self._obstacles, self._framed_open, self._clear_around, self._open_around

    @cached_property
    def _labels(self) -> np.ndarray:
        """(H, W) number of each open cell's component, 0 elsewhere; computed once."""
        return ndimage.label(self.open)[0]

    @cached_property
    def _components(self) -> dict[int, FreeSpace]:
        """The component that was returned last, by its number."""
        return {}

    def _label_near(self, position, search: float) -> int:
        """Return the component of the open cell nearest to position; 0 with none in search."""
        x = np.asarray(position, dtype=np.float64).reshape(1, 2)
        if not np.isfinite(x).all():
            return 0

        column, row = np.floor(self._local(x)[0])
        # Only a window of cells around the position is searched.
        reach = math.ceil(search / self.resolution) + 1
        height, width = self.open.shape
        top, left = (
            int(np.clip(middle - reach, 0, size))
            for middle, size in ((row, height), (column, width))
        )
        bottom, right = (
            int(np.clip(middle + reach + 1, 0, size))
            for middle, size in ((row, height), (column, width))
        )

        rows, columns = np.nonzero(self.open[top:bottom, left:right])
        if not len(rows):
            return 0

        away = (
            np.hypot(*(np.stack([columns + left, rows + top], 1) + 0.5 - self._local(x)).T)
            * self.resolution
        )
        nearest = int(away.argmin())
        found = rows[nearest] + top, columns[nearest] + left
        if away[nearest] > search and found != (row, column):
            return 0
        return int(self._labels[found])


def _groups(count: np.ndarray) -> list[np.ndarray]:
    """Split lines into groups of indices whose samples together are at most about _AT_ONCE."""
    if not len(count):
        return []
    if count.sum() < _AT_ONCE:  # mostly
        return [np.arange(len(count))]
    ends = np.cumsum(count) // _AT_ONCE
    return np.split(np.arange(len(count)), np.flatnonzero(np.diff(ends)) + 1)


def along(a: np.ndarray, b: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return samples evenly along lines, ends included.

    Args:
        a: (L, 2) m, where each line begins.
        b: (L, 2) m, where it ends.
        count: (L,), samples of each line, 2 or more.

    Returns:
        The samples (S, 2) m, line after line, and the number (S,) of each one's line.
    """
    owner = np.repeat(np.arange(len(count)), count)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    fraction = (np.arange(len(owner)) - first[owner]) / (count[owner] - 1)
    return a[owner] + fraction[:, None] * (b - a)[owner], owner

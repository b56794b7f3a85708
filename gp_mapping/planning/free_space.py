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

from gp_mapping.planning.area.places import FARTHEST, on_earth

__all__ = ["FreeSpace", "along"]

_NEAREST = 12  # obstacles' cells that are looked at where a grid's clearance alone does not decide
_SLACK = math.sqrt(0.5) - 0.5  # cells by which clearance may be less than the distance
_STEP = 0.01  # m between two looks at a line
_ASIDE = 1e-6  # cells
_AT_ONCE = 200_000  # places looked at together: bounds memory


def _yaw(q) -> float:
    """Heading of a map's origin; ValueError for a zero or tilted quaternion."""
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


@dataclass(frozen=True)
class FreeSpace:
    """The cells of an occupancy grid whose centre a round robot may occupy.

    origin: (x, y) metres of the grid's lower left corner.  yaw: radians.  resolution: metres.
    clearance: (H, W) metres, no more than the distance from a cell's centre to the nearest cell that may not be
        entered, and less than it by a fifth of a cell at most; 0 in those.  radius: metres.
    open: (H, W) bool, what is left to the robot's centre.
    frame: the frame that all of it is in.  walled: whether what lies outside the grid counts as occupied.
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
        """From anything with the fields of nav_msgs/OccupancyGrid.

        Below free_threshold a cell is free, from occupied_threshold on an obstacle; what lies between, −1 and all that
        is outside the grid is unknown, 'blocked' or 'free' as `unknown` says. Outside is never suggested either way.
        Raises ValueError for a message that contradicts itself, with the field's name.
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
            raise ValueError(
                f"the occupancy grid has {data.size} values for {width} x {height} cells"
            )
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
        if not (math.isfinite(radius) and radius >= 0):
            raise ValueError(f"radius is {radius} m, expected 0 or more")
        corner = (float(info.origin.position.x), float(info.origin.position.y))
        size = max(width, height) * resolution
        if not on_earth([corner]).all() or size > FARTHEST:
            raise ValueError(
                f"the occupancy grid lies at {corner} m and is {size:.3g} m long, expected finite metres, "
                f"at most {FARTHEST:g}"
            )
        data = data.reshape(height, width)
        passable = (data >= 0) & (data < free_threshold)
        if unknown == "free":
            passable = data < occupied_threshold
        # A frame of one cell stands for the outside; half a diagonal makes centre-to-centre distances safe ones.
        framed = np.pad(passable, 1, constant_values=unknown == "free")
        away = (
            ndimage.distance_transform_edt(framed)[1:-1, 1:-1]
            if not framed.all()
            else np.full(data.shape, np.inf)
        )
        clearance = np.where(passable, np.maximum(away - math.sqrt(0.5), 0.0) * resolution, 0.0)
        frame = str(getattr(getattr(message, "header", None), "frame_id", ""))
        free = FreeSpace(
            corner,
            _yaw(info.origin.orientation),
            resolution,
            float(radius),
            clearance,
            passable,
            frame,
            unknown == "blocked",
        )
        if not radius > 0:
            return free

        # where the bound does not decide, the distance itself does: a robot fits where it fits
        narrow = passable & (clearance < radius) & (clearance + _SLACK * resolution >= radius)
        fits = clearance >= radius
        fits[narrow] = free._room(free.centres(narrow), radius) >= radius - 1e-9
        return replace(free, open=passable & fits)

    def same_as(self, other: FreeSpace) -> bool:
        """Whether two maps say the same."""
        return (
            (self.origin, self.yaw, self.resolution, self.radius, self.frame, self.walled)
            == (other.origin, other.yaw, other.resolution, other.radius, other.frame, other.walled)
            and np.array_equal(self.open, other.open)
            and np.array_equal(self.clearance, other.clearance)
        )

    def centres(self, mask=None) -> np.ndarray:
        """Centres (N, 2) m of the cells in mask (H, W), of the open ones if None, row by row."""
        rows, columns = np.nonzero(self.open if mask is None else mask)
        u, v = (columns + 0.5) * self.resolution, (rows + 0.5) * self.resolution
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        return np.stack([self.origin[0] + cos * u - sin * v, self.origin[1] + sin * u + cos * v], 1)

    @cached_property
    def _obstacles(self) -> cKDTree | None:
        """Centres of the occupied cells at the border of the free ones, in cells; None where there is none."""
        occupied = np.pad(self.clearance <= 0.0, 1, constant_values=self.walled)
        border = occupied & ndimage.binary_dilation(~occupied, np.ones((3, 3)))
        rows, columns = np.nonzero(border)
        return cKDTree(np.stack([columns, rows], 1) - 0.5) if len(rows) else None

    @cached_property
    def _obstacles_and_none(self) -> np.ndarray:
        """Their centres, and one at infinity, which is what a search that finds fewer gives as the others."""
        return np.vstack([self._obstacles.data, np.full(2, np.inf)])

    def _room(self, x: np.ndarray, enough: float) -> np.ndarray:
        """No more than the distance (N,) m from x (N, 2) to the nearest occupied cell; exact, but among many cells.

        enough: beyond it the distance does not matter.
        """
        if self._obstacles is None:
            return np.full(len(x), np.inf)
        limit = enough / self.resolution + 1.0
        local = self._local(x)
        away, index = self._obstacles.query(local, k=_NEAREST, distance_upper_bound=limit)
        square = np.maximum(np.abs(self._obstacles_and_none[index] - local[:, None]) - 0.5, 0.0)
        nearest = np.hypot(square[..., 0], square[..., 1]).min(1)
        # cells that were not asked for are at least as far as the last one, less half a diagonal
        return np.minimum(nearest, np.maximum(away[:, -1] - math.sqrt(0.5), 0.0)) * self.resolution

    def _local(self, x: np.ndarray) -> np.ndarray:
        """Places (N, 2) m in cells from the grid's corner."""
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x[:, 0] - self.origin[0], x[:, 1] - self.origin[1]
        return np.stack([cos * dx + sin * dy, cos * dy - sin * dx], 1) / self.resolution

    def _cells(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row and column (N,) of places x (N, 2), and their distance in metres to the centre of that cell."""
        local = self._local(x).T
        cells = np.floor(local)
        off = np.hypot(*(local - cells - 0.5)) * self.resolution
        limit = np.array(self.open.shape)[::-1, None]
        column, row = np.clip(cells, -1, limit).astype(int)
        return row, column, off

    def allows(self, x: Tensor) -> Tensor:
        """Whether the robot's centre may be at x (N, 2) metres: (N,) bool. Outside the grid it may not."""
        return torch.from_numpy(self._allows(x.cpu().numpy()))

    def allows_near(self, x: np.ndarray, slack: float) -> np.ndarray:
        """Whether no obstacle is nearer to x (N, 2) m than the radius less slack (m): (N,) bool. Outside there is one."""
        row, column, _ = self._cells(x)
        inside = (
            (row >= 0) & (column >= 0) & (row < self.open.shape[0]) & (column < self.open.shape[1])
        )
        need = max(0.0, self.radius - slack)
        return inside & (self._room(x, need + self.resolution) >= need)

    def _allows(self, x: np.ndarray) -> np.ndarray:
        """The same of an array."""
        row, column, off = self._cells(x)
        inside = (
            (row >= 0) & (column >= 0) & (row < self.open.shape[0]) & (column < self.open.shape[1])
        )
        row, column = np.where(inside, row, 0), np.where(inside, column, 0)
        ok = inside & self.open[row, column]
        need = self.radius
        if (
            need > 0
        ):  # the place is not the cell's centre: its own distance differs by the way between them at most
            clearance = self.clearance[row, column]
            sure = clearance - off >= need - 1e-9
            ask = ok & ~sure & (clearance + _SLACK * self.resolution + off >= need)
            ok &= sure
            ok[ask] = self._room(x[ask], need) >= need - 1e-9
        return ok

    @cached_property
    def _roomy(self) -> np.ndarray:
        """(H, W) bool: the robot may be anywhere in the cell and in the eight about it."""
        corner = math.sqrt(0.5) * self.resolution
        sure = self.open & (self.clearance - corner >= self.radius + 0.5 * _STEP)
        return ndimage.binary_erosion(sure, np.ones((3, 3)))

    @cached_property
    def _amid(self) -> np.ndarray:
        """(H, W) bool: the cell and the eight about it are open."""
        return ndimage.binary_erosion(self.open, np.ones((3, 3)))

    def sees(self, a, b) -> np.ndarray:
        """Whether the robot's centre may go straight from a (N, 2) to b (N, 2), metres: (N,) bool.

        Exact to a centimetre: what is called passable is so in every point, what misses by less may be refused.
        """
        a, b = (np.asarray(end, dtype=np.float64).reshape(-1, 2) for end in (a, b))
        length = np.hypot(*(b - a).T)
        out = np.zeros(len(a), dtype=bool)
        if not len(a):
            return out

        # coarse: half a cell between looks, and cells that have room all about them
        step = 0.5 * self.resolution
        count = np.maximum(2, np.ceil(length / step).astype(int) + 1)
        for part in _groups(count):
            x, owner = along(a[part], b[part], count[part])
            row, column, off = self._cells(x)
            inside = (
                (row >= 0)
                & (column >= 0)
                & (row < self.open.shape[0])
                & (column < self.open.shape[1])
            )
            row, column = np.where(inside, row, 0), np.where(inside, column, 0)
            sure = inside & self._roomy[row, column]
            never = ~(inside & self.open[row, column])
            out[part] = np.bincount(owner, never, len(part)) == 0

            # from look to look where one of both is not sure: by the room at the looks, or else every centimetre
            ask = (owner[1:] == owner[:-1]) & ~(sure[1:] & sure[:-1]) & out[part][owner[1:]]
            first = np.flatnonzero(ask)
            if not len(first):
                continue
            # (where a cell's clearance says that there is enough, no obstacle need be looked for)
            room = np.full(len(x), np.inf)
            looks = np.zeros(len(x), dtype=bool)
            looks[first] = looks[first + 1] = True
            looks &= self.clearance[row, column] - off < self.radius + 0.5 * (step + _STEP)
            room[looks] = self._room(x[looks], self.radius + step)
            least = np.minimum(room[first], room[first + 1])
            clear = least >= self.radius - 1e-9
            narrow = clear & (least < self.radius + 0.5 * (step + _STEP))
            if narrow.any():
                clear[narrow] = self._closely(x[first[narrow]], x[first[narrow] + 1])
            by_border = clear & ~(
                self._amid[row[first], column[first]]
                & self._amid[row[first + 1], column[first + 1]]
            )
            if by_border.any():
                clear[by_border] = self._crosses_open_cells(
                    x[first[by_border]], x[first[by_border] + 1]
                )
            out[part] &= np.bincount(owner[first], ~clear, len(part)) == 0
        return out

    def seems_open(self, a, b) -> np.ndarray:
        """Whether all cells are open that one comes by every half cell from a (N, 2) to b (N, 2), metres: (N,) bool.

        What `sees` says, but for corners that are cut by less than that: for a search that asks thousands of times.
        """
        a, b = (np.asarray(end, dtype=np.float64).reshape(-1, 2) for end in (a, b))
        out = np.zeros(len(a), dtype=bool)
        count = np.maximum(
            2, np.ceil(np.hypot(*(b - a).T) / (0.5 * self.resolution)).astype(int) + 1
        )
        for part in _groups(count):
            x, owner = along(a[part], b[part], count[part])
            column, row = np.floor(self._local(x)).astype(int).T
            inside = (
                (row >= 0)
                & (column >= 0)
                & (row < self.open.shape[0])
                & (column < self.open.shape[1])
            )
            inside[inside] = self.open[row[inside], column[inside]]
            out[part] = np.bincount(owner, ~inside, len(part)) == 0
        return out

    def _closely(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether there is room every centimetre from look a to look b (N, 2), half of one to spare: (N,) bool."""
        if not len(a):
            return np.zeros(0, dtype=bool)
        count = np.maximum(2, np.ceil(np.hypot(*(b - a).T) / _STEP).astype(int) + 1)
        x, owner = along(a, b, count)
        need = self.radius + 0.5 * _STEP
        return np.bincount(owner, self._room(x, need) < need - 1e-9, len(a)) == 0

    def _crosses_open_cells(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether every cell that a line from a (N, 2) to b (N, 2) cuts is open, were it by a corner: (N,) bool.

        A line along the border of two cells, or through a corner of four, is in all of them.
        """
        a, b = self._local(a), self._local(b)
        aside = (
            (b - a)[:, ::-1] * (-_ASIDE, _ASIDE) / np.maximum(np.hypot(*(b - a).T), 1e-12)[:, None]
        )
        both = self._cells_are_open(
            np.concatenate([a + aside, a - aside]), np.concatenate([b + aside, b - aside])
        )
        return both[: len(a)] & both[len(a) :]

    def _cells_are_open(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The same for lines in cells that meet no corner."""
        owners, shares = [np.repeat(np.arange(len(a)), 2)], [np.tile([0.0, 1.0], len(a))]
        for axis in (0, 1):
            low, high = np.minimum(a, b)[:, axis], np.maximum(a, b)[:, axis]
            first = np.floor(low) + 1
            count = np.maximum(np.ceil(high) - first, 0).astype(int)
            owner = np.repeat(np.arange(len(a)), count)
            line = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
            owners.append(owner)
            shares.append((line - a[owner, axis]) / (b - a)[owner, axis])
        owner, share = np.concatenate(owners), np.concatenate(shares)
        order = np.lexsort((share, owner))
        owner, share = owner[order], share[order]
        inner = owner[1:] == owner[:-1]
        owner, middle = owner[1:][inner], 0.5 * (share[1:] + share[:-1])[inner]
        column, row = np.floor(a[owner] + middle[:, None] * (b - a)[owner]).astype(int).T
        height, width = self.open.shape
        shut = ~self.open[row.clip(0, height - 1), column.clip(0, width - 1)]
        return np.bincount(owner, shut, len(a)) == 0

    def reachable_from(self, position, search: float = 0.5) -> FreeSpace:
        """Only what is connected, over cells that share a side, to the open cell nearest to position (x, y) in metres.

        search: how far that cell may be, in metres; with none so near nothing is left.
        """
        label = self._label_near(position, search)
        if label not in self._components:
            self._components.clear()  # one is enough: a robot stays in its own
            left = self._labels == label if label else np.zeros_like(self.open)
            self._components[label] = replace(self, open=left)
        return self._components[label]

    def prepare(self) -> None:
        """Find now, in this thread, what would else be found when it is first asked for: components and borders."""
        _ = self._labels, self._obstacles, self._roomy, self._amid

    @cached_property
    def _labels(self) -> np.ndarray:
        """(H, W) the number of each open cell's component, 0 elsewhere; found once, however often a robot asks."""
        return ndimage.label(self.open)[0]

    @cached_property
    def _components(self) -> dict[int, FreeSpace]:
        """The component that was asked for last, by its number."""
        return {}

    def _label_near(self, position, search: float) -> int:
        """The component of the open cell nearest to position, among those that are no farther than search; else 0."""
        x = np.asarray(position, dtype=np.float64).reshape(1, 2)
        if not np.isfinite(x).all():
            return 0
        column, row = np.floor(self._local(x)[0])
        reach = math.ceil(search / self.resolution) + 1
        height, width = self.open.shape
        top, left = (
            int(np.clip(at - reach, 0, most)) for at, most in ((row, height), (column, width))
        )
        bottom, right = (
            int(np.clip(at + reach + 1, 0, most)) for at, most in ((row, height), (column, width))
        )
        rows, columns = np.nonzero(self.open[top:bottom, left:right])
        if not len(rows):
            return 0

        away = (
            np.hypot(*(np.stack([columns + left, rows + top], 1) + 0.5 - self._local(x)).T)
            * self.resolution
        )
        nearest = int(away.argmin())
        if away[nearest] > search:
            return 0
        return int(self._labels[rows[nearest] + top, columns[nearest] + left])


def _groups(count: np.ndarray) -> list[np.ndarray]:
    """Indices of lines in groups whose looks together are few enough."""
    if not len(count):
        return []
    ends = np.cumsum(count) // _AT_ONCE
    return np.split(np.arange(len(count)), np.flatnonzero(np.diff(ends)) + 1)


def along(a: np.ndarray, b: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places (S, 2) evenly along each line, ends included, and the line (S,) of each."""
    owner = np.repeat(np.arange(len(count)), count)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    share = (np.arange(len(owner)) - first[owner]) / (count[owner] - 1)
    return a[owner] + share[:, None] * (b - a)[owner], owner

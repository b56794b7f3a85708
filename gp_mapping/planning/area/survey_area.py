"""Where the robot can and may measure: reachable free space inside the wanted region."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.hull import grown_hull
from gp_mapping.planning.suggest import thin

__all__ = ["SurveyArea", "hull_space"]

_HULL_CELLS = 40_000  # of a grid that is made where no map of obstacles is given
_FINEST = 0.05  # m, smallest cell of such a grid
_HALF_DIAGONAL = math.sqrt(0.5)
_CORNERS = np.pi * (0.25 + 0.5 * np.arange(4))  # directions from a cell's centre


@dataclass(frozen=True)
class SurveyArea:
    """The area, as a robot drives in it and as the cells that are to become known.

    Attributes:
        free: what the robot may reach; its open cells are the area.
        cells: (G, 2) m, places that represent it.
        areas: (G,) m² that each cell stands for.
        reason: in words, what was assumed or why nothing is left; may be empty.
    """

    free: FreeSpace
    cells: Tensor
    areas: Tensor
    reason: str = ""

    def __bool__(self) -> bool:
        return len(self.cells) > 0

    @property
    def size(self) -> float:
        """Total area, square metres."""
        return float(self.areas.sum())

    @staticmethod
    def empty(reason: str) -> SurveyArea:
        """Return an empty area with the reason why it is empty."""
        return SurveyArea(_nowhere(), torch.empty((0, 2)).double(), torch.empty(0).double(), reason)

    @staticmethod
    def from_free_space(
        free: FreeSpace | None,
        position,
        *,
        path=None,
        region=(),
        keep_out=(),
        reach: float = math.inf,
        grow: float = 2.0,
        robot_radius: float = 0.0,
        frame: str = "",
        max_cells: int = 1024,
        search: float = 0.5,
    ) -> SurveyArea:
        """Return reachable free space ∩ region − keep_out, within reach of the robot.

        Args:
            free: map of obstacles; None where there is none: then the region is taken to be free,
                or, without a region, the hull of the path grown by `grow` metres.
            position: (2,) m, the robot.
            path: (K, 2) m where it has been; used where neither free nor region is given.
            region: polygons; the robot stays in them, cell by cell. Empty: wherever it is free.
            keep_out: polygons that the robot's body stays out of.
            reach: metres from the robot, as the crow flies, to the farthest place of the area.
            grow: metres by which the hull of the path is grown.
            robot_radius: m, by which keep_out is grown where free is None; else free has it.
            frame: of the map; polygons and free must be in it where they name one.
            max_cells: bound of G; larger areas are represented more coarsely.
            search: metres to the open cell where the robot is taken to stand.

        Returns:
            The area; without a cell, and with a reason, where nothing is left.

        Raises:
            ValueError: a frame that is not the map's, a reach or bound out of range.
        """
        if not reach > 0 or not grow >= 0 or not robot_radius >= 0 or max_cells < 1:
            raise ValueError(
                f"reach={reach}, grow={grow}, robot_radius={robot_radius}, max_cells={max_cells}: "
                "expected a reach above 0 m, grow and robot_radius of 0 m or more and 1 cell or more"
            )
        for name, polygons in (("region", region), ("keep_out", keep_out)):
            for polygon in polygons:
                _same_frame(name, polygon.frame, frame)

        position = np.asarray(position, dtype=np.float64).reshape(2)
        note, mapped = "", free is not None
        if free is None:
            free, note = _without_map(path, region, grow, position, reach)
            if free is None:
                return SurveyArea.empty(note)
        else:
            _same_frame("the free-space map", free.frame, frame)
            robot_radius = free.radius

        cropped = _cropped(free, position, reach)
        allowed = _restricted(cropped, position, region, keep_out, reach, robot_radius)
        reached = allowed.reachable_from(position, search)
        if not reached.open.any():
            return SurveyArea(
                reached,
                torch.empty((0, 2)).double(),
                torch.empty(0).double(),
                _why_not(free, allowed, position, region, keep_out, search, mapped),
            )

        chosen, count = thin(torch.from_numpy(reached.open), max_cells)
        mask = np.zeros(reached.open.size, dtype=bool)
        mask[chosen.numpy()] = True
        cells = torch.from_numpy(reached.centres(mask.reshape(reached.open.shape)))
        # Centres come row by row, the blocks of thin in an order of their own.
        order = torch.argsort(chosen)
        return SurveyArea(reached, cells, count[order].double() * reached.resolution**2, note)


def hull_space(path, grow: float, position=(0.0, 0.0), reach: float = math.inf) -> FreeSpace | None:
    """Return the convex hull of a path, grown by a margin, as free space.

    Args:
        path: (K, 2) m; places that are not finite are left out.
        grow: m.
        position: (2,) m.
        reach: m from position that the grid need not go beyond.

    Returns:
        Free space; None without a finite place.
    """
    x = np.asarray(path, dtype=np.float64).reshape(-1, 2)
    x = x[np.isfinite(x).all(1)]
    if not len(x):
        return None
    corners = grown_hull(x, max(grow, _FINEST))
    return _made(_clipped(corners, position, reach), _FINEST, Polygon(corners).contains)


def _clipped(corners: np.ndarray, position, reach: float) -> np.ndarray:
    """Return corners (K, 2) m moved into the square of that reach, m, around a position."""
    position = np.asarray(position, dtype=np.float64)
    return np.clip(corners, position - reach, position + reach)


def _made(corners: np.ndarray, margin: float, inside) -> FreeSpace:
    """Return free space on a new grid around a polygon.

    Args:
        corners: (K, 2) m, of what the grid covers.
        margin: m that the grid extends beyond them.
        inside: of centres (N, 2) m, whether each is free.
    """
    low, high = corners.min(0) - margin, corners.max(0) + margin

    # Neither the area nor, of a long and thin one, a side may have too many cells.
    resolution = max(
        _FINEST,
        math.sqrt(float((high - low).prod()) / _HULL_CELLS),
        float((high - low).max()) / _HULL_CELLS,
    )

    width, height = (max(1, math.ceil(v / resolution)) for v in high - low)
    blank = FreeSpace(
        tuple(low.tolist()),
        0.0,
        resolution,
        0.0,
        np.zeros((height, width)),
        np.ones((height, width), dtype=bool),
    )

    free = inside(blank.centres()).reshape(height, width)
    return replace(blank, clearance=np.where(free, resolution, 0.0), open=free)


def _nowhere() -> FreeSpace:
    """Return free space of one cell that is not free."""
    return FreeSpace((0.0, 0.0), 0.0, 1.0, 0.0, np.zeros((1, 1)), np.zeros((1, 1), dtype=bool))


def _without_map(path, region, grow: float, position, reach: float) -> tuple[FreeSpace | None, str]:
    """Return free space where no map of obstacles is given, and what was assumed, in words.

    Without a region or a path there is no free space: None, and the reason.
    """
    if region:
        corners = np.concatenate([polygon.corners for polygon in region])
        free = _made(
            _clipped(corners, position, reach),
            _FINEST,
            lambda at: np.any([polygon.contains(at) for polygon in region], axis=0),
        )
        return free, "no free-space map: the whole region is taken to be free of obstacles"

    free = None if path is None else hull_space(path, grow, position, reach)
    if free is None:
        return (
            None,
            "nothing has been measured yet, and there is no free-space map: where the robot may go is unknown",
        )
    return free, (
        f"no free-space map: the hull of the path, grown by {grow:g} m, is taken to be free of obstacles"
    )


def _same_frame(name: str, given: str, frame: str) -> None:
    """Raise ValueError where a named frame is not the map's."""
    if given.lstrip("/") and frame and given.lstrip("/") != frame.lstrip("/"):
        raise ValueError(
            f"{name} is in frame {given!r} and the map in {frame!r}; publish it in {frame!r}"
        )


def _cropped(free: FreeSpace, position: np.ndarray, reach: float) -> FreeSpace:
    """Return the part of the grid within reach: work depends on the reach, not on the building."""
    if not math.isfinite(reach):
        return free
    height, width = free.open.shape
    cos, sin = math.cos(free.yaw), math.sin(free.yaw)

    # The robot's cell, and a square of cells around it.
    dx, dy = position - free.origin
    column, row = (cos * dx + sin * dy) / free.resolution, (cos * dy - sin * dx) / free.resolution
    # Obstacles just outside the reach still count, and two cells for rounding.
    extent = math.ceil((reach + free.radius) / free.resolution) + 2
    left, right = (int(min(max(column + e, 0), width)) for e in (-extent, extent))
    bottom, top = (int(min(max(row + e, 0), height)) for e in (-extent, extent))

    if right <= left or top <= bottom or (right - left) * (top - bottom) == width * height:
        return free

    # The corner of the cut grid, turned back into the map frame.
    u, v = left * free.resolution, bottom * free.resolution
    origin = (free.origin[0] + cos * u - sin * v, free.origin[1] + sin * u + cos * v)
    return replace(
        free,
        origin=origin,
        clearance=free.clearance[bottom:top, left:right],
        open=free.open[bottom:top, left:right],
    )


def _restricted(
    free: FreeSpace, position: np.ndarray, region, keep_out, reach: float, radius: float
) -> FreeSpace:
    """Return only cells that lie within a region as a whole, clear of keep_out, and in reach.

    Args:
        free: the free space.
        position: (2,) m, the robot.
        region: polygons.
        keep_out: polygons.
        reach: m.
        radius: m that the centre of the robot keeps from keep_out.
    """
    height, width = free.open.shape
    corners = free.centres_at(np.array([0, 0, height, height]), np.array([0, width, 0, width]))
    if not region and not keep_out and (np.hypot(*(corners - position).T) <= reach).all():
        return free

    x = free.centres()
    half_diagonal = _HALF_DIAGONAL * free.resolution
    kept = np.hypot(*(x - position).T) <= reach

    if region:
        inside = np.zeros(len(x), dtype=bool)
        for polygon in region:
            inside |= polygon.contains(x) & ~polygon.is_near(x, half_diagonal)
        # A cell on a border may still lie in two regions that touch: its centre and corners are
        # probed.
        ask = np.flatnonzero(kept & ~inside)
        # Probes lie a millionth inside the corners, so that rounding does not put them outside.
        aside = (
            (1.0 - 1e-6)
            * half_diagonal
            * np.stack([np.cos(_CORNERS + free.yaw), np.sin(_CORNERS + free.yaw)], 1)
        )
        probes = (x[ask, None] + np.vstack([aside, np.zeros((1, 2))])).reshape(-1, 2)
        within = np.zeros(len(probes), dtype=bool)
        for polygon in region:
            within |= polygon.contains(probes)
        inside[ask] = within.reshape(-1, 5).all(1)
        kept &= inside

    for polygon in keep_out:
        # The whole cell, and the robot around its centre, stay out.
        kept &= ~polygon.contains(x) & ~polygon.is_near(x, half_diagonal + radius)

    remaining = np.zeros_like(free.open)
    remaining[free.open] = kept
    return replace(free, open=remaining)


def _why_not(
    free: FreeSpace,
    allowed: FreeSpace,
    position: np.ndarray,
    region,
    keep_out,
    search: float,
    mapped: bool,
) -> str:
    """Say why nothing is left of the area, in words; mapped: whether obstacles are known."""
    here = f"({position[0]:.2f}, {position[1]:.2f}) m"
    if mapped and not free.open.any():
        return "the free-space map leaves no place that the robot may enter"
    if not allowed.open.any() and (region or keep_out):
        return (
            "no free place lies inside the region, out of the keep-out areas and within reach of the robot at "
            f"{here}"
        )
    if not free.reachable_from(position, search).open.any():
        if mapped:
            return f"the robot at {here} stands where the free-space map leaves it no room"
        if not region:
            return (
                f"the robot at {here} stands outside the hull of its path, and there is no free-space "
                "map: where it may go is unknown"
            )
    if _inside(region, position) and not _inside(keep_out, position):
        return (
            f"the robot at {here} stands inside the region and near to its border, and the ground is divided "
            f"into cells of {free.resolution:.2g} m: make the region or the reach of plans smaller"
        )
    outside = region and not _inside(region, position)
    where = "outside the region" if outside else "inside a keep-out area"
    return f"the robot at {here} stands {where}, more than {search:g} m from the nearest place that it may enter"


def _inside(polygons, position: np.ndarray) -> bool:
    """Return whether a position (2,) m lies inside one of the polygons."""
    return any(bool(polygon.contains(position[None])[0]) for polygon in polygons)

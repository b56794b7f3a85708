"""The one policy for places to measure next, of a live node and of a saved map: where they may lie."""

from __future__ import annotations

import numpy as np

from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.hull import within_hull
from gp_mapping.planning.suggest import Suggestions, suggest

__all__ = ["UNKNOWN_OBSTACLES", "driven_area", "offer"]

UNKNOWN_OBSTACLES = ("not known, there is no free-space map: suggestions stay inside the hull of the path, and nobody "
                     "has compared them with obstacles")


def driven_area(path, grid, beyond: float) -> FreeSpace:
    """The cells of a drawn map inside the hull of the path, grown by `beyond` metres, as a FreeSpace.

    Args:
        path: (K, 2) metres.
        grid: FieldGrid.
        beyond: metres, ≥ 0.
    """
    height, width = grid.shape
    (left, bottom), side = grid.origin, grid.resolution
    x, y = left + side * (np.arange(width) + 0.5), bottom + side * (np.arange(height) + 0.5)
    inside = within_hull(path, x, y, beyond)
    return FreeSpace(origin=(float(left), float(bottom)), yaw=0.0, resolution=side, radius=0.0,
                     clearance=np.where(inside, side, 0.0), open=inside)


def offer(session, grid, k: int, kind: str = "variance", free: FreeSpace | None = None, position=None,
          min_distance: float = 0.0, beyond: float = 0.0) -> Suggestions:
    """The k places that are worth most where the robot may go.

    With a map of free space that is what it leaves to the robot; without one the hull of the path, grown by `beyond`.

    Args:
        session: MapSession.
        grid: the FieldGrid that was drawn of it.
        k: how many.
        kind: 'variance' or 'integrated_variance'.
        free: where the robot may be; None: not known.
        position: (x, y) of the robot, metres; with free, only what is connected to it counts.
        min_distance: between two places, metres.
        beyond: how far outside the hull of the path a place may lie where free is None, metres.
    """
    if free is None:
        free, position = driven_area(session.path.numpy(), grid, beyond), None
        if not free.open.any():
            return Suggestions(kind, reason="nothing that is drawn lies inside the hull of the path")
    return suggest(session.map, grid, k, kind, free, position=position, min_distance=min_distance)

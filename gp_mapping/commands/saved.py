"""A saved map back in hand, and where to measure next in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial import Delaunay, QhullError

from gp_mapping.errors import UsageError
from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.suggest import Suggestions, suggest
from gp_mapping.store.checkpoint import load_checkpoint

__all__ = ["CHECKPOINT", "check_suggest", "checkpoint_in", "next_places", "open_session"]

CHECKPOINT = "map.gpm"
_APART = 0.5  # m between two suggestions


def checkpoint_in(path) -> Path:
    """The checkpoint itself, or the one in the folder that `gp-mapping map` wrote."""
    path = Path(path)
    if path.is_dir():
        if not (path / CHECKPOINT).exists():
            raise UsageError(f"{path}: no {CHECKPOINT} in this folder; expected a folder that `gp-mapping map` wrote")
        return path / CHECKPOINT
    return path


def open_session(path, **overrides) -> MapSession:
    """The session in a checkpoint, with some settings changed; UsageError where it does not fit."""
    path = checkpoint_in(path)
    try:
        return MapSession.from_state_dict(load_checkpoint(path), **overrides)
    except ValueError as error:
        if type(error) is not ValueError:  # CheckpointError names the file already
            raise
        raise UsageError(f"{path}: {error}") from error


def check_suggest(count: int) -> None:
    """UsageError for a negative number of suggestions."""
    if count < 0:
        raise UsageError(f"--suggest is {count}, expected 0 or more")


def next_places(session: MapSession, grid: FieldGrid, count: int) -> Suggestions | tuple:
    """Up to count places with the largest variance, 0.5 m apart and between the places where the robot has been.

    A recording has no map of obstacles; inside the hull of its path is where a robot may well go again.
    """
    check_suggest(count)
    if not count:
        return ()
    inside = _hull(session.path.numpy(), grid)
    free = FreeSpace(origin=grid.origin, yaw=0.0, resolution=grid.resolution, radius=0.0,
                     clearance=np.where(inside, grid.resolution, 0.0), open=inside)
    return suggest(session.map, grid, count, "variance", free, min_distance=_APART)


def _hull(path: np.ndarray, grid: FieldGrid) -> np.ndarray:
    """(H, W) bool: cells inside the convex hull of the path; those that the map knows where the path is a line."""
    try:
        return (Delaunay(path).find_simplex(grid.centres().numpy()) >= 0).reshape(grid.shape)
    except (QhullError, ValueError):
        return grid.known.numpy()

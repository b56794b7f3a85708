"""Where a robot has driven around: the convex hull of its path, grown by a distance.

No map of obstacles is needed. Between the places where it has been, a robot may well go again;
beyond them nothing is known.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import ConvexHull, QhullError

__all__ = ["grown_hull", "inside_convex", "within_hull"]

# Of the polygon that stands for a circle, and lies inside it by half a per cent of the radius.
_CORNERS = 32


def grown_hull(path, beyond: float) -> np.ndarray:
    """Corners of the convex hull of a path, grown on all sides.

    The hull of the points p_i + beyond · (cos φ_k, sin φ_k), φ_k = 2πk / 32: the Minkowski sum of
    the hull with a disc, but for half a per cent of `beyond`. A path that is a line, or a single
    place, has one as well.

    Args:
        path: (K, 2) metres, K ≥ 1, finite.
        beyond: how far, metres, > 0.

    Returns:
        (V, 2) metres, counter-clockwise.

    Raises:
        ValueError: no place, one that is not finite, or a distance that is not above 0.
    """
    path = np.asarray(path, np.float64).reshape(-1, 2)
    if not len(path) or not np.isfinite(path).all() or not (math.isfinite(beyond) and beyond > 0.0):
        raise ValueError(
            f"{len(path)} places and beyond={beyond}: expected finite places and a distance above 0"
        )

    origin = path.mean(0)  # far from zero, differences of coordinates would lose their digits
    points = path - origin
    if len(points) > 3:
        try:
            points = points[ConvexHull(points).vertices]
        except QhullError:  # all on one line: its two ends
            along = points @ (points[np.argmax((points**2).sum(1))])
            points = points[[along.argmin(), along.argmax()]]

    angle = 2.0 * np.pi * np.arange(_CORNERS) / _CORNERS
    circle = beyond * np.stack([np.cos(angle), np.sin(angle)], 1)
    grown = (points[:, None, :] + circle).reshape(-1, 2)
    return grown[ConvexHull(grown).vertices] + origin


def inside_convex(corners: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which centres of a grid lie inside a convex polygon, row by row: O(H V + H W).

    Args:
        corners: (V, 2) metres, in order around the polygon.
        x: (W,) metres.
        y: (H,) metres.

    Returns:
        (H, W) bool.
    """
    start, end = corners, np.roll(corners, -1, axis=0)
    rise = end[:, 1] - start[:, 1]

    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = (y[:, None] - start[:, 1]) / rise  # (H, V)
        crossing_x = start[:, 0] + fraction * (end[:, 0] - start[:, 0])

    # A level side crosses no row: its neighbours end where it lies.
    crosses = (fraction >= 0.0) & (fraction <= 1.0)

    left = np.where(crosses, crossing_x, np.inf).min(1)
    right = np.where(crosses, crossing_x, -np.inf).max(1)
    return (x >= left[:, None]) & (x <= right[:, None])


def within_hull(path, x: np.ndarray, y: np.ndarray, beyond: float) -> np.ndarray:
    """Return which centres of a drawn grid lie inside the grown hull of the path.

    A place outside the grid does not count: what is drawn covers most of the path, and a single
    pose that jumped away must not stretch the hull over ground where the robot never was.

    Args:
        path: (K, 2) metres.
        x: (W,) metres, evenly spaced.
        y: (H,) metres, evenly spaced.
        beyond: how far the hull is grown, metres, ≥ 0; at least one cell, so that a line has an
            inside.

    Returns:
        (H, W) bool; all False where no place of the path lies in the grid.
    """
    path = np.asarray(path, np.float64).reshape(-1, 2)
    side = max(
        abs(float(x[1] - x[0])) if len(x) > 1 else 0.0,
        abs(float(y[1] - y[0])) if len(y) > 1 else 0.0,
        1e-3,
    )

    low, high = np.array([x.min(), y.min()]) - side, np.array([x.max(), y.max()]) + side

    path = path[((path >= low) & (path <= high)).all(1)]
    if not len(path):
        return np.zeros((len(y), len(x)), dtype=bool)
    return inside_convex(grown_hull(path, max(beyond, side)), x, y)

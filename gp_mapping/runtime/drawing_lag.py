"""Measures how far drawings lag behind: driven ground that is in the map, not yet in the picture.

No rclpy.
"""

from __future__ import annotations

import numpy as np

__all__ = ["DrawingLag", "undrawn_share"]

_WORTH = 0.02  # fraction of the path below which no gap is visible
_PERIOD = 1.0  # s between two measurements, each of which goes over the whole path
# s after the last drawing from which on the lag is unknown: without subscribers nothing is drawn
_STALE = 5.0


def undrawn_share(path, grid) -> float:
    """Fraction of a path on grid cells that the drawing shows as unknown, or outside the drawing.

    Args:
        path: (K, 2) metres.
        grid: FieldGrid.

    Returns:
        0 to 1; 0 for no path.
    """
    path = np.asarray(path, np.float64).reshape(-1, 2)
    if not len(path):
        return 0.0

    height, width = grid.shape
    cells = np.floor((path - grid.origin) / grid.resolution)
    inside = ((cells >= 0) & (cells < (width, height))).all(1)
    column, row = np.where(inside[:, None], cells, 0).astype(int).T
    known = np.asarray(grid.known)[row, column] & inside
    return float(1.0 - known.mean())


class DrawingLag:
    """Tracks the lag over time; the map's thread calls `look` after each drawing."""

    def __init__(self):
        self._share, self._looked, self._since = 0.0, float("-inf"), None

    def look(self, session, grid, now: float) -> None:
        """Measure the lag of a drawing, at most once a _PERIOD.

        A drawing that left no point for later has no lag.

        Args:
            session: the session that was drawn.
            grid: its drawing.
            now: monotonic s.
        """
        if not session.renderer.points_stale:
            self._share, self._looked, self._since = 0.0, now, None
            return
        if now - self._looked < _PERIOD:
            return

        self._share, self._looked = undrawn_share(session.path, grid), now
        if self._share < _WORTH:
            self._since = None
        elif self._since is None:
            self._since = now

    def state(self, now: float) -> tuple[float, float]:
        """Fraction of the path that is not drawn, and for how long that has been so (s)."""
        if now - self._looked > _STALE:
            return 0.0, 0.0
        return self._share, 0.0 if self._since is None else now - self._since

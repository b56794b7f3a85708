"""How far drawings are behind the drive: driven ground that is in the map and not yet in the picture. No rclpy."""

from __future__ import annotations

import numpy as np

__all__ = ["DrawingLag", "undrawn_share"]

_WORTH = 0.02  # share of the path below which nobody sees a gap
_PERIOD = 1.0  # s between two looks: they cost a pass over the path
_STALE = 5.0  # s after the last drawing it is not known any more: nobody listens, so nobody draws


def undrawn_share(path, grid) -> float:
    """Share of a path that lies on cells which the drawing shows as unknown, or beyond the drawing.

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
    """Kept by the map's thread: `look` after each drawing, `state` for diagnostics."""

    def __init__(self):
        self._share, self._looked, self._since = 0.0, float("-inf"), None

    def look(self, session, grid, now: float) -> None:
        """After a drawing at `now` (monotonic s). One that left no point for later lags nowhere."""
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
        """Share of the path that is not drawn, and for how long already (s)."""
        if now - self._looked > _STALE:
            return 0.0, 0.0
        return self._share, 0.0 if self._since is None else now - self._since

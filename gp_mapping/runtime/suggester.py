"""Suggestions as the node wants them: live settings, the newest free-space map, reasons in words. No rclpy."""

from __future__ import annotations

from gp_mapping.planning import FreeSpace, suggest
from gp_mapping.settings.node import NodeSettings

__all__ = ["Suggester"]


class Suggester:
    """Runs in the worker. `settings` may be replaced by the node at any time; `note` says why places are missing."""

    def __init__(self, settings: NodeSettings):
        self.settings = settings
        self.note = ""
        self._message, self._free = None, None

    def __call__(self, session, grid, position, message, frame: str):
        """Suggestions (gp_mapping.planning). position: (x, y) of the robot or None.  message: OccupancyGrid or None.

        frame: of the map; a free-space map in another frame is not used, and note says so.
        """
        s, other = self.settings, ""
        if message is not self._message:
            self._message = message
            self._free = None if message is None else FreeSpace.from_occupancy_grid(message, radius=s.robot_radius)
        free = self._free
        if free is not None and free.frame.lstrip("/") != frame:
            other = (f"the free-space map is in frame {free.frame!r} and the field map in {frame!r}: it is not used; "
                     "publish it in the same frame, or set map_frame and odometry_frame")
            free = None
        found = suggest(session.map, grid, k=s.suggestion_count, kind=s.suggestion_kind, free=free, position=position,
                        min_distance=s.suggestion_distance)
        self.note = "; ".join(text for text in (other, found.reason and f"suggestions: {found.reason}") if text)
        return found

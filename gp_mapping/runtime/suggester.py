"""Suggestions as the node wants them: live settings, the newest free-space map, reasons in words. No rclpy."""

from __future__ import annotations

import math

from gp_mapping.errors import one_line
from gp_mapping.planning.area.ground import Ground
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.offer import UNKNOWN_OBSTACLES, offer_as_set
from gp_mapping.planning.suggest import Suggestions
from gp_mapping.settings.node import NodeSettings

__all__ = ["Suggester"]

_NAME = 100  # characters of a frame in a sentence: names come from outside


class Suggester:
    """Runs in the worker. `settings` may be replaced by the node at any time; `note` says why places are missing.

    A free-space map that cannot be used stops the suggestions: a place that was never compared with the obstacles
    somebody did publish must not look like one that was.
    """

    def __init__(self, settings: NodeSettings):
        self.settings = settings
        self.note = ""
        self.obstacles = ""  # what is known of them, in words; "" before the first suggestion
        self._message, self._radius = None, math.nan
        self._free: FreeSpace | None = None
        self._wrong = ""
        self._ground = Ground()

    def __call__(self, session, grid, position, message, frame: str) -> Suggestions:
        """Places to measure next.

        Args:
            session: MapSession.
            grid: the FieldGrid that was drawn of it.
            position: (x, y) of the robot in metres, or None.
            message: the newest nav_msgs/OccupancyGrid, or None.
            frame: of the map.
        """
        s = self.settings
        self._read(message, s.robot_radius)
        wrong = self._wrong
        if self._free is not None and self._free.frame.lstrip("/") != frame:
            wrong = (f"the free-space map is in frame {one_line(self._free.frame, _NAME)!r} and the field map in "
                     f"{frame!r}: it is not used; publish it in the same frame, or set map_frame and odometry_frame; "
                     "nothing is suggested meanwhile")
        if wrong:
            self.obstacles = "not known: the free-space map cannot be used"
            self.note = wrong
            return Suggestions(s.suggestion_kind, reason=wrong)

        self.obstacles = "from the free-space map" if self._free is not None else UNKNOWN_OBSTACLES
        found = offer_as_set(session, grid, s, self._ground, self._free, position)
        self.note = found.reason and f"suggestions: {found.reason}"
        return found

    def _read(self, message, radius: float) -> None:
        """The free space of a message that is new, or for another radius."""
        if message is self._message and radius == self._radius:
            return
        before = self._free
        self._message, self._radius, self._free, self._wrong = message, radius, None, ""
        if message is None:
            return
        try:
            self._free = FreeSpace.from_occupancy_grid(message, radius=radius)
            if before is not None and before.same_as(self._free):
                self._free = before
        except (ValueError, TypeError, OverflowError) as error:
            self._wrong = (f"the free-space map cannot be read: {one_line(error, 300)}; nothing is suggested "
                           "meanwhile")

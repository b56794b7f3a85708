"""Suggestions as the node wants them: live settings, the newest free-space map, reasons in words. No rclpy."""

from __future__ import annotations

from gp_mapping.errors import named
from gp_mapping.planning.offer import UNKNOWN_OBSTACLES, offer_as_set
from gp_mapping.planning.suggest import Suggestions
from gp_mapping.runtime.surveying.free_maps import FreeMaps, GroundAside
from gp_mapping.settings.node import NodeSettings

__all__ = ["Suggester"]


class Suggester:
    """Runs in the worker. `settings` may be replaced by the node at any time; `note` says why places are missing.

    maps: where large free-space maps are read beside the worker's thread; None: all is done here, whatever it takes.

    A free-space map that cannot be used stops the suggestions: a place that was never compared with the obstacles
    somebody did publish must not look like one that was.
    """

    def __init__(self, settings: NodeSettings, maps: FreeMaps | None = None):
        self.settings = settings
        self.note = ""
        self.obstacles = ""  # what is known of them, in words; "" before the first suggestion
        self._maps = FreeMaps() if maps is None else maps
        self._ground = GroundAside(aside=maps is not None)
        self._waits = False  # the last answer lacked what was being made

    @property
    def news(self) -> bool:
        """Whether what the last answer lacked is there: it is worth asking again, though the map is the same."""
        return self._waits and not (self._maps.making or self._ground.making)

    def __call__(self, session, grid, position, message, frame: str) -> Suggestions:
        """Places to measure next.

        Args:
            session: MapSession.
            grid: the FieldGrid that was drawn of it.
            position: (x, y) of the robot in metres, or None.
            message: the newest nav_msgs/OccupancyGrid, or None.
            frame: of the map.
        """
        found = self._offer(session, grid, position, message, frame)
        self._waits = self._maps.reading or self._ground.waiting
        return found

    def _offer(self, session, grid, position, message, frame: str) -> Suggestions:
        s = self.settings
        free, wrong = self._maps.at(message, s.robot_radius)
        wrong = wrong and wrong + "; nothing is suggested meanwhile"
        if free is not None and free.frame.lstrip("/") != frame:
            wrong = (
                f"the free-space map is in frame {named(free.frame)} and the field map in "
                f"{frame!r}: it is not used; publish it in the same frame, or set map_frame and odometry_frame; "
                "nothing is suggested meanwhile"
            )
        if wrong:
            self.obstacles = "not known: the free-space map cannot be used"
            self.note = wrong
            return Suggestions(s.suggestion_kind, reason=wrong)

        self.obstacles = "from the free-space map" if free is not None else UNKNOWN_OBSTACLES
        found = offer_as_set(session, grid, s, self._ground, free, position)
        self.note = found.reason and f"suggestions: {found.reason}"
        return found

"""Suggestions as the node publishes them, with reasons where there are none. No rclpy."""

from __future__ import annotations

from gp_mapping.planning.offer import UNKNOWN_IN_REGION, UNKNOWN_OBSTACLES, offer_as_set
from gp_mapping.planning.suggest import Suggestions
from gp_mapping.runtime.surveying.free_maps import FreeMaps, GroundAside, wrong_frame
from gp_mapping.runtime.surveying.rules import Rules, RulesNow
from gp_mapping.runtime.team.claims import Claims
from gp_mapping.settings.node import NodeSettings

__all__ = ["Suggester"]


class Suggester:
    """Computes suggestions in the worker's thread.

    A free-space map that cannot be used stops the suggestions: a place that was never compared with
    the published obstacles must not look like one that was.

    Args:
        settings: may be replaced by the node at any time.
        maps: where large free-space maps are read in another thread; None: all is done here,
            whatever it takes.
        rules: region and keep-out areas, which places keep to; None: there are none.
        claims: what other robots of a team will measure; None: there are none.

    Attributes:
        note: why places are missing, in words.
        obstacles: what is known of them, in words; "" before the first suggestion.
        claims: what other robots of a team will measure.
        newest: the last suggestions; None before the first.
    """

    def __init__(
        self,
        settings: NodeSettings,
        maps: FreeMaps | None = None,
        rules: RulesNow | None = None,
        claims: Claims | None = None,
    ):
        self.settings = settings
        self.note = ""
        self.obstacles = ""
        self._maps = FreeMaps() if maps is None else maps
        self._ground = GroundAside(aside=maps is not None)
        self._rules = RulesNow() if rules is None else rules
        self.claims = Claims() if claims is None else claims
        self.newest: Suggestions | None = None
        self._kept: Rules | None = None  # those of the last answer
        self._asked: NodeSettings | None = None  # likewise
        self._heard = self.claims.news  # what the last answer knew of claims
        self._waits = False  # the last answer lacked what was being made

    @property
    def should_ask_again(self) -> bool:
        """Whether asking again is worthwhile.

        What the last answer lacked is there now, or it was by other settings, or kept to another
        region or keep-out area.
        """
        if self._asked is not None and self._asked != self.settings:
            return True
        kept, now = self._kept, self._rules.now()
        if kept and (now.region is not kept.region or now.keep_out is not kept.keep_out):
            return True
        return self._waits and not (self._maps.making or self._ground.making)

    @property
    def is_outdated(self) -> bool:
        """Whether other robots have announced something else since the last answer."""
        return self._heard != self.claims.news

    def __call__(self, session, grid, position, message, frame: str) -> Suggestions:
        """Return places to measure next.

        Args:
            session: MapSession.
            grid: the FieldGrid that was drawn of it.
            position: (x, y) of the robot in metres, or None.
            message: the newest nav_msgs/OccupancyGrid, or None.
            frame: of the map.
        """
        suggestions = self._offer(session, grid, position, message, frame)
        self._waits = self._maps.reading or self._ground.waiting
        self.newest = suggestions
        return suggestions

    def _offer(self, session, grid, position, message, frame: str) -> Suggestions:
        """Return the suggestions, and set note and obstacles."""
        s = self._asked = self.settings
        free, wrong = self._maps.free_space_of(message, s.robot_radius)

        wrong = wrong_frame(free, frame) or wrong
        wrong = wrong and wrong + "; nothing is suggested meanwhile"
        if wrong:
            self.obstacles = "not known: the free-space map cannot be used"
            self.note = wrong
            return Suggestions(s.suggestion_kind, reason=wrong)

        self._rules.enter(frame)
        rules = self._kept = self._rules.now()
        self.obstacles = "from the free-space map" if free is not None else UNKNOWN_OBSTACLES
        if free is None and rules.region:
            self.obstacles = UNKNOWN_IN_REGION
        self._heard = self.claims.news
        suggestions = offer_as_set(
            session,
            grid,
            s,
            self._ground,
            free,
            position,
            rules.region,
            rules.keep_out,
            self.claims.others(s.suggestion_count),
        )
        self.note = suggestions.reason and f"suggestions: {suggestions.reason}"
        return suggestions

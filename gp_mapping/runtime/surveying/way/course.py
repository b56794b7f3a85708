"""The plan that is driven, and how far along it the robot is. No rclpy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan
from gp_mapping.planning.planners.point import GO_ON
from gp_mapping.runtime.surveying.rules import Basis
from gp_mapping.runtime.surveying.way.ahead import lead_of, loses_room, next_pose_of, until

__all__ = ["Course", "Departure"]

_NEARLY = 0.3  # m before the end of a plan from which it counts as driven
_ROUNDED = 1e-6  # m
_LATE = 5.0  # s after the expected end of a plan, when it is made anew


class Departure(NamedTuple):
    """Where the next plan begins: at the end of what is driven while it is made.

    Attributes:
        start: (2,) m, where it begins.
        heading: radians there; NaN: not known.
        lead: (K, 2) m, the line until there; (0, 2) where it begins at the robot.
        metres: length of the lead.
        seconds: that the lead takes.
    """

    start: np.ndarray
    heading: float = math.nan
    lead: np.ndarray = np.empty((0, 2))
    metres: float = 0.0
    seconds: float = 0.0


class Course:
    """A plan on its way; belongs to the map's thread, others read.

    Args:
        plan: the plan; an empty one leads nowhere.
        basis: what it was made on.
        moved: metres that the robot had moved in all when the plan came.
        stamp: of the newest measurement then, s; None: there was none.

    Attributes:
        along: metres of the plan that are behind the robot.
        moved_then: metres that the robot had moved in all when the plan came.
        outdated: whether something has changed that the plan was made on, so that its place may
            not be the one that would be chosen.
    """

    def __init__(
        self,
        plan: Plan,
        basis: Basis | None = None,
        moved: float = 0.0,
        stamp: float | None = None,
    ):
        self.plan, self.basis = plan, basis or Basis()
        self._seen = self.basis.free
        self.along, self.outdated = 0.0, False
        self.moved_then = moved
        # A way that ends where it began may look undriven at its end: then the time decides.
        self._overdue = (stamp or 0.0) + plan.seconds + _LATE if plan else math.inf

    @property
    def rest(self) -> Plan:
        """What is still to be driven of the plan."""
        return self.plan.plan_ahead(self.along)

    def driven_since(self, along: float) -> np.ndarray:
        """Return what the robot has driven of the plan since it was so many metres along it.

        (K, 2) m; (0, 2) where it has not come further.
        """
        metres = self.along - along
        return until(self.plan.line_ahead(along), metres) if metres > 0.0 else np.empty((0, 2))

    @property
    def nearly_driven(self) -> bool:
        """Whether the robot is at the end of the plan, or there is none."""
        return self.along >= self.plan.metres - _NEARLY

    @property
    def place_mark(self) -> float:
        """Metres from the beginning to the last stop; what comes then is the way home."""
        stops = len(self.plan.nodes)
        return float(self.plan.stop_marks[stops - 1]) if stops else self.plan.metres

    @property
    def destination(self) -> np.ndarray | None:
        """The one place (2,) m that is driven to before the next is chosen.

        None where plans are of another kind, something has changed, or the robot is nearly there.
        """
        plan = self.plan
        if plan.kind not in GO_ON or len(plan.nodes) != 1 or self.outdated:
            return None
        return None if self.along >= self.place_mark - _NEARLY else plan.stops[0]

    def arriving(self, position) -> float:
        """Return the metres to the place of `destination` where the robot is nearly there; else 0.

        Args:
            position: (2,) m, of the robot.
        """
        left = self.place_mark - self.along
        if self.plan.kind not in GO_ON or not -_ROUNDED < left <= _NEARLY:
            return 0.0
        return left + self._aside(position)

    def _aside(self, position) -> float:
        """Return the metres from a position (2,) m to where the robot is along the plan."""
        return math.dist(position, self.plan.line_ahead(self.along)[0])

    def follow(self, position: np.ndarray, moved: float) -> float:
        """Find how far along the plan the robot is.

        Progress never goes back: where the robot turns before the tip of a dead end it is on the
        way out, not on the way in.

        Args:
            position: (2,) m, of the robot.
            moved: metres since the position before.

        Returns:
            Metres of the plan since then.
        """
        before = self.along
        progress = self.plan.progress(position, max(0.0, before - 0.1), 2.0, before + moved)
        self.along = max(before, progress)
        return self.along - before

    def due(self, interval: float, moved: float, stamp: float | None) -> bool:
        """Return whether it is time for another plan.

        Args:
            interval: metres between two plans.
            moved: metres that the robot has moved in all.
            stamp: of the newest measurement, s.
        """
        # Metres driven count, too: a robot that leaves the line makes no progress along it.
        driven = max(self.along, moved - self.moved_then)
        return (
            not self.plan
            or driven >= min(interval, self.place_mark - _NEARLY)
            or (stamp or 0.0) > self._overdue
        )

    def keeps_to(self, free: FreeSpace) -> bool:
        """Return whether the rest of the plan lies in a free space."""
        line = self.plan.line_ahead(self.along)
        return bool(free.sees(line[:-1], line[1:]).all())

    def leads_into(self, free: FreeSpace | None, position) -> bool:
        """Return whether a new free-space map leaves no room on the rest of the plan.

        It looks at each map once.

        Args:
            free: the newest free-space map; None: there is none.
            position: (2,) m, of the robot.
        """
        if free is None or free is self._seen or not self.plan:
            return False
        self._seen = free
        return loses_room(
            np.vstack([position, self.plan.line_ahead(self.along)]), free, self.basis.free
        )

    def lead(self, position, metres: float, free: FreeSpace) -> np.ndarray:
        """Return the line that the robot drives next.

        Args:
            position: (2,) m, of the robot, where the line begins.
            metres: length of the line, at most.
            free: where the robot may be.

        Returns:
            (K, 2) m; (0, 2) where the line leaves the free space.
        """
        left = self.plan.metres - self.along
        left = left + self._aside(position) if left > -_ROUNDED else 0.0
        return lead_of(self.plan, self.along, position, min(metres, left), free)

    def departure(self, position, metres: float, travel: Travel, budget: Budget) -> Departure:
        """Return where the next plan begins if the robot drives on along this one meanwhile.

        Args:
            position: (2,) m, of the robot.
            metres: that it drives, at most.
            travel: of the next plan.
            budget: speed and turn rate.
        """
        lead = self.lead(position, metres, travel.free)
        if len(lead) < 2:
            return Departure(position)
        leg = travel.leg_along(lead)
        seconds = budget.time(leg.metres, leg.turned)
        return Departure(lead[-1], leg.last, lead, leg.metres, seconds)

    def next_pose(self, least: float) -> tuple[float, float, float] | None:
        """Return the next corner or stop of the plan; None without one.

        Args:
            least: m from the robot, at least.

        Returns:
            x and y, m, and heading, radians.
        """
        return next_pose_of(self.plan, self.along, least) if self.plan else None

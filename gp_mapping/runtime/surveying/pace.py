"""How far a robot drives while its next plan is made, and so where that plan begins. No rclpy."""

from __future__ import annotations

import time

from gp_mapping.runtime.surveying.spending import Spending

__all__ = ["Pace"]

_BLEND = 0.3  # weight of the newest plan in the running mean
_WHOLE = 10.0  # times the duration of a first answer that a whole search takes, about
_SLACK = 0.05  # m beyond that, for the way to the next slice


class Pace:
    """Durations of planning; belongs to the map's thread.

    Attributes:
        mean: s, running mean of what a plan takes while the robot drives.
        improving: whether the whole search is next: a first answer is driven, or none is worth it.
        lead: m that the robot drives before the plan that is being made begins.
        moved: metres that it had moved in all when that plan was begun.
    """

    def __init__(self) -> None:
        self.mean, self.improving = 0.0, False
        self.lead = self.moved = 0.0
        self._began, self._driving = 0.0, False
        self._then: float | None = None
        self._first = 0.0  # s that the newest first answer took

    def begin(self, spending: Spending, driving: bool) -> None:
        """Begin to make a plan.

        Args:
            spending: of the survey.
            driving: whether the robot has a plan to drive now; one that stands can wait.
        """
        self._began, self._then, self._driving = time.perf_counter(), spending.clock, driving
        self.moved = spending.moved

    def end(self, spending: Spending, first: bool) -> None:
        """Learn from how long the plan has taken.

        Args:
            spending: of the survey.
            first: whether the plan is a first answer.
        """
        duration = spending.passed_since(self._began, self._then)
        if self._driving:
            self.mean += _BLEND * (duration - self.mean)
        if first:
            self._first = duration

    def ahead(self, speed: float) -> float:
        """Return the metres that a robot of this speed (m/s) drives while the next plan is made."""
        expected = max(self.mean, _WHOLE * self._first) if self.improving else self.mean
        return speed * expected + _SLACK

    def metres_while_searching(self, speed: float, spending: Spending) -> float:
        """Return the metres that a robot of this speed (m/s) drives while the whole search goes on.

        Args:
            speed: m/s.
            spending: of the survey; what has passed of it is what the first answer took.
        """
        return speed * _WHOLE * spending.passed_since(self._began, self._then) + _SLACK

    def late(self, spending: Spending) -> float:
        """Return the metres that the robot is beyond where the plan that is being made begins."""
        return spending.moved - self.moved - self.lead

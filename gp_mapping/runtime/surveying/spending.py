"""What a survey has driven, what is left of its budget, and what plans may cost. No rclpy."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from gp_mapping.planning.budget import Budget
from gp_mapping.planning.plan import Plan
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.plan import home_of

__all__ = ["LEAST", "Spending", "ending", "is_spent", "reserves_of", "whole_budget"]

_STEP = 0.02  # m of motion that counts as driven: jitter of a position does not
_LEAP = 5.0  # m between two positions beyond which the robot was moved, not driven
# Stamps that advance by more seconds than this, and by so many for each second that passes here,
# were set: a robot learns the time when it finds a network. No simulation or bag is that fast.
_SET, _FASTEST = (60.0, 1000.0)
# Plans leave this fraction of the budget, and at least LEAST metres: no robot drives a line to the
# centimetre, and the last metres have as many corners as the others.
_RESERVE = 0.03
LEAST = 0.2  # m, also the shortest way that is worth a plan
# Metres for which a robot is taken to drive what is planned: about a turn, which the first metres
# may have more of than others. (Of more metres the ratio would be found too late to be home with a
# budget of twice as many.) Metres driven for one planned at most.
_EXACT, _LONGEST = (1.0, 1.5)
# Fraction of what is left, at most, for plans that come late; and of the whole budget for turning.
_KEPT = 0.2


class Spending:
    """Metres and seconds of a survey.

    Attributes:
        start: (2,) m, where the survey began; None before.
        driven: metres since then, while it ran.
        spent: seconds since then, while it ran.
        moved: metres in all, whether it ran or not.
        last: (2,) m, the robot's last position; None before the first.
        clock: s, the measurements' time, going on evenly where stamps leap; None before the first.
        leaps: s, all leaps of the stamps that were not counted as time.
    """

    def __init__(self) -> None:
        self.start: np.ndarray | None = None
        self.driven = self.spent = self.moved = 0.0
        self.last: np.ndarray | None = None
        self.clock: float | None = None
        self.leaps = 0.0
        self._stamp, self._seen = 0.0, 0.0  # the newest stamp, and when it came by this clock
        self._planned = self._for_it = 0.0  # m of plans, and what was driven for them

    def begin(self) -> None:
        """Begin anew, with the whole budget."""
        self.driven = self.spent = self._planned = self._for_it = 0.0
        self.start = None

    def count_seconds(self, stamp: float | None, running: bool, now: float | None = None) -> None:
        """Count the seconds that pass while the survey runs.

        Args:
            stamp: s, of the newest measurement; None: there is none.
            running: whether the survey runs.
            now: s, by this machine's monotonic clock; None: as of now.
        """
        now = time.monotonic() if now is None else now
        if stamp is None:
            self.clock = None
            return

        if self.clock is None:
            self.clock = stamp
        else:
            passed = stamp - self._stamp
            if passed < 0.0 or passed > max(_SET, _FASTEST * (now - self._seen)):
                self.leaps, passed = self.leaps + abs(passed), 0.0
            self.clock += passed
            self.spent += passed if running else 0.0
        self._stamp, self._seen = stamp, now

    def passed_since(self, began: float, then: float | None) -> float:
        """Return the seconds that have passed, of the measurements' time.

        A simulated robot may drive many times faster, or stand still while its time does.

        Args:
            began: perf_counter s, which decides where measurements have no stamps.
            then: `clock` at that time, s; None: there was none.
        """
        if then is None or self.clock is None:
            return time.perf_counter() - began
        return max(0.0, self.clock - then)

    def is_new(self, position) -> bool:
        """Whether a position (2,) m may be away from the last one by more than jitter."""
        return (
            self.last is None
            or abs(position[0] - self.last[0]) + abs(position[1] - self.last[1]) > _STEP
        )

    def count_metres(self, position: np.ndarray, running: bool) -> tuple[float, bool] | None:
        """Count the metres to a position.

        Args:
            position: (2,) m.
            running: whether the survey runs, so that they are taken from its budget.

        Returns:
            The metres, and whether that was a leap that was not driven; None for jitter.
        """
        if self.last is None:
            self.last = position
        metres = math.dist(position, self.last)
        leapt = metres > _LEAP
        if running:
            if self.start is None:
                self.start = position
            if _STEP <= metres <= _LEAP:
                self.driven += metres

        if metres < _STEP:
            return None
        self.last = position
        self.moved += 0.0 if leapt else metres
        return metres, leapt

    def learn(self, planned: float, driven: float) -> None:
        """Learn how many metres the robot drives for those of its plan.

        Args:
            planned: m along the plan.
            driven: m that the robot drove for them.
        """
        self._planned, self._for_it = self._planned + planned, self._for_it + driven

    def fraction(self, settings: NodeSettings) -> float:
        """Return the fraction of the budget that is spent: of metres or seconds, the larger one."""
        s = settings
        return max(
            self.driven / s.plan_budget if s.plan_budget else 0.0,
            self.spent / s.plan_budget_time if s.plan_budget_time else 0.0,
        )

    def remaining(self, settings: NodeSettings) -> Budget:
        """Return what is left to the survey."""
        s = settings
        return Budget(
            max(0.0, s.plan_budget - self.driven) if s.plan_budget else math.inf,
            max(0.0, s.plan_budget_time - self.spent) if s.plan_budget_time else math.inf,
            s.plan_speed,
            s.plan_turn_rate,
            _home(s, self.start),
        )

    def plannable(self, settings: NodeSettings) -> Budget:
        """Return what plans may cost, less than is left.

        The robot drives more metres than planned; the ratio so far, at most 1.5, is taken for the
        future.
        """
        excess = min(_LONGEST, max(1.0, (self._for_it + _EXACT) / (self._planned + _EXACT)))
        budget = self.remaining(settings)
        return replace(budget, metres=budget.metres / excess, seconds=budget.seconds / excess)

    def fits(self, settings: NodeSettings, plan: Plan) -> bool:
        """Return whether a plan fits the budget from where the robot is.

        Args:
            settings: the budget, plan_speed and plan_turn_rate.
            plan: not empty; it may begin at a place ahead of the robot.
        """
        budget = self.plannable(settings)
        away = 0.0 if self.last is None else math.dist(self.last, plan.line[0])
        return budget.allows(away + plan.metres, away / budget.speed + plan.seconds)

    def covers(self, settings: NodeSettings, plan: Plan) -> bool:
        """Return whether what is left is enough for a plan, if the robot drives exactly that.

        Args:
            settings: the budget and the home, of which is left what has not been spent.
            plan: the plan.
        """
        return self.remaining(settings).allows(plan.metres, plan.seconds)


def whole_budget(settings: NodeSettings, start) -> Budget:
    """Return the budget of a whole survey.

    Args:
        settings: the budget and the home.
        start: (2,) m, where it begins.
    """
    s = settings
    return Budget(
        s.plan_budget or math.inf,
        s.plan_budget_time or math.inf,
        s.plan_speed,
        s.plan_turn_rate,
        _home(s, start),
    )


def _home(settings: NodeSettings, start) -> tuple[float, float] | None:
    """Return where a survey that begins at `start` ends; None: anywhere, or that is not known."""
    home = home_of(settings.plan_home)
    place = start if home == "start" else home
    return None if place is None else (float(place[0]), float(place[1]))


def _kinds(settings: NodeSettings, budget: Budget) -> tuple[tuple[float, float], ...]:
    """Return what is left, and what one metre costs of it: in metres, and in seconds."""
    return (budget.metres, 1.0), (budget.seconds, 1.0 / settings.plan_speed)


def reserves_of(settings: NodeSettings, budget: Budget, thinking: float) -> list[float]:
    """Return the metres and the seconds of a budget that a plan leaves.

    Args:
        settings: plan_speed.
        budget: of the plan.
        thinking: seconds that making a plan takes.
    """
    # Metres there and back where a plan finds the robot beyond the point at which it turns.
    overshoot = 2.0 * settings.plan_speed * thinking
    return [
        max(_RESERVE * left, LEAST * rate, min(overshoot * rate, _KEPT * left))
        if 0.0 < left < math.inf
        else 0.0
        for left, rate in _kinds(settings, budget)
    ]


def is_spent(settings: NodeSettings, budget: Budget, reserves: list[float], metres: float) -> bool:
    """Return whether a budget is too small for a plan.

    Args:
        settings: plan_budget, plan_budget_time, plan_speed and plan_turn_rate.
        budget: what is left.
        reserves: metres and seconds of it that a plan leaves.
        metres: to drive in any case.
    """
    s, kinds = settings, _kinds(settings, budget)

    # Too little for the controller to move by would be planned again and again. A robot that leaves
    # the way home turns round: half a circle where it turns as it drives.
    turn = 0.0 if budget.home is None else math.pi * s.plan_speed / s.plan_turn_rate
    least = [
        max(LEAST * rate, min(turn * rate, _KEPT * whole))
        for whole, (_, rate) in zip((s.plan_budget, s.plan_budget_time), kinds)
    ]
    return any(
        left - reserve - metres * rate < minimum
        for (left, rate), reserve, minimum in zip(kinds, reserves, least)
    )


def ending(settings: NodeSettings, plan: Plan, budget: Budget, reserve: float, total: float) -> str:
    """Return why a survey ends in place of driving a plan, in words; "" where it goes on.

    Args:
        settings: with the least gain that is worth a plan.
        plan: the best one from where the robot will be; empty where there is none.
        budget: of which it was made.
        reserve: m of it that are kept for the corners of the way home.
        total: gain of the whole area, of which the plan's is a fraction; 0: any gain is enough.
    """
    least = settings.plan_least_gain
    if plan and float(plan.gains.sum()) < least * total:
        return f"the best plan would take less than {least:g} of the area's variance"
    if plan and (not plan.nodes or (budget.limited and plan.metres < 0.5 * LEAST)):
        return "nothing is left to measure within the budget"
    if not plan and budget.limited:
        # Nothing is left to measure, or the budget allows the way home only.
        kept = f"; {reserve:.1f} m are kept for the corners of it" if reserve else ""
        return f"the budget is spent ({plan.reason}{kept})"
    return ""

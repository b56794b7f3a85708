"""The plans of a survey, each made of what is known at the time. No rclpy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gp_mapping.planning.budget import Budget
from gp_mapping.planning.plan import (
    Plan,
    first_plan_steps,
    plan_along,
    plan_best_of,
    plan_steps,
    way_home,
)
from gp_mapping.planning.problem import Problem
from gp_mapping.planning.registry import find_planner, is_anytime
from gp_mapping.runtime.surveying.pace import Pace
from gp_mapping.runtime.surveying.question import Questions
from gp_mapping.runtime.surveying.requests import Request
from gp_mapping.runtime.surveying.spending import (
    Spending,
    ending,
    is_spent,
    reserves_of,
    whole_budget,
)
from gp_mapping.runtime.surveying.way.blocked import way_home_remarks
from gp_mapping.runtime.surveying.way.course import Course, Departure
from gp_mapping.runtime.surveying.way.destination import destination, steps_through
from gp_mapping.runtime.surveying.way.driven_path import DrivenPath, length_of
from gp_mapping.settings.node import NodeSettings

__all__ = ["NOTHING", "Decisions"]

_AHEAD = 6.0  # m of the old plan that are kept while the new one is made, at most
NOTHING = "nothing has been measured yet: the map has to know something first"
_FRESH = 8  # every so many plans the old route competes with new seeds
_LATE = 0.1  # m beyond the beginning of a plan from which it is compared anew with the one driven
_KEPT = 0.2  # fraction of what is left that is kept for what both ways home change by, at most
_LITTLE = 0.05  # fraction of a first answer that may be driven before the whole search ends
_PASSED = 3  # first stops of such a plan that may be behind the robot


class _Start(NamedTuple):
    """Where a plan begins, and what it may cost.

    Attributes:
        begin: at the end of what is driven while it is made.
        problem: from there on.
        budget: what plans may cost from where the robot is.
        reserve: m of it that are kept for corners.
        spent: whether it is too small for a plan.
        old: stops of the plan that is driven, ahead of there.
        along: m of that plan that are behind the robot.
    """

    begin: Departure
    problem: Problem
    budget: Budget
    reserve: float
    spent: bool
    old: tuple[int, ...]
    along: float


class Decisions:
    """Makes the plans of a survey in slices; belongs to the map's thread.

    Args:
        questions: prepares what each plan is asked.
        spending: of the survey.
        pace: how long plans take.
        seed: of the planners' random choices.

    Attributes:
        made: how many plans of the survey were made.
        ending: why the survey is at its end, in words; empty while it is not.
        share_done: fraction of the area that is known well enough, NaN without a target.
        driven: where the robot has been in this survey.
    """

    def __init__(self, questions: Questions, spending: Spending, pace: Pace, seed: int):
        self._questions, self._spending, self._pace = questions, spending, pace
        self._seed = seed
        self.made, self.ending, self.share_done = 0, "", math.nan
        self.driven = DrivenPath()

    def prepared(
        self, settings: NodeSettings, session, first: bool = False
    ) -> Iterator[Plan | None]:
        """Prepare the question of the next plan, in slices.

        Yields None between slices, and a Plan with the reason where there can be no question.

        Args:
            settings: of the plan.
            session: MapSession.
            first: whether it is for a first answer.
        """
        if not self._questions.ready:
            yield Plan(settings.plan_kind, reason=self._questions.nowhere)
            return
        yield from self._questions.steps(settings, session, first)

    def problem(self, settings: NodeSettings, position, budget: Budget, **more) -> Problem:
        """Return the problem of planning from a position within a budget.

        Args:
            settings: of the plan.
            position: (2,) m.
            budget: what the plan may cost.
            more: further fields of Problem.
        """
        spent, seed = self._spending.fraction(settings), self._seed + self.made
        return self._questions.newest.problem(settings, position, budget, spent, seed, **more)

    def homeward(self, settings: NodeSettings, reason: str) -> Plan:
        """End the survey: return the way home from where the robot is.

        Empty, with the reason, where there is no home or the robot is there. Where something has
        been in the way that no map shows, it leads over ground that was driven, unless what is left
        is enough to try the shorter way and to come back.

        Args:
            settings: of the plan.
            reason: why it ends, to be read by a person.
        """
        self.ending = reason
        budget, discs = self._spending.remaining(settings), len(self._questions.rules.barred)
        position = self._spending.last
        problem = self.problem(settings, position, budget)
        plan = way_home(problem, settings.plan_kind, reason)
        known = plan or problem.home is None
        line = self.driven.path_home(position, budget.home) if known else None
        if line is not None:
            driven, left = length_of(line), min(budget.metres, budget.speed * budget.seconds)
            tried = driven + 2.0 * plan.metres
            if not plan or (plan.metres < driven and tried > left):
                words = f"{reason}: this is the way home, as it was driven"
                plan, discs = plan_along(problem, plan.kind, line, words), 0
        missing = self.driven.missing if plan and line is None else ""
        return replace(
            plan, reason=f"{plan.reason}{way_home_remarks(plan, budget, discs)}{missing}"
        )

    def is_spent(self, settings: NodeSettings) -> bool:
        """Return whether what is left of the budget, from where the robot is, is too little.

        Args:
            settings: of the plan.
        """
        budget = self._spending.plannable(settings)
        last, home = self._spending.last, budget.home
        away = 0.0 if home is None or last is None else math.dist(last, home)
        return is_spent(settings, budget, reserves_of(settings, budget, self._pace.mean), away)

    def begins_at_once(self, settings: NodeSettings, course: Course) -> bool:
        """Return whether the next plan is a first answer: the robot has nothing to drive.

        Args:
            settings: plan_kind.
            course: the plan that is driven.

        Raises:
            ValueError: there is no planner of that name.
        """
        standing = not course.plan or course.nearly_driven
        return (
            standing and not self._pace.improving and is_anytime(find_planner(settings.plan_kind))
        )

    def go_on(
        self, settings: NodeSettings, session, position, course: Course
    ) -> Iterator[Plan | None]:
        """Plan the survey from where the robot will be when the plan is ready, in slices.

        A robot that stands is given the planner's first answer, and the whole search begins after
        that, from where the robot will be.

        Args:
            settings: of the plan.
            session: MapSession.
            position: (2,) m, of the robot.
            course: the plan that is driven.

        Yields:
            None between slices, and the plan at the end.
        """
        s, first, along = settings, self.begins_at_once(settings, course), course.along
        for found in self.prepared(s, session, first):
            if found is not None:
                yield found
                return
            yield None
        yield None
        question = self._questions.newest

        self.share_done, ended = question.end(s)
        reason = self.ending or ended  # on the way home nothing new is begun
        # The robot has driven on while the question was prepared.
        position = position if self._spending.last is None else self._spending.last
        self._pace.moved = self._spending.moved
        start = self._start(s, position, course, homeward=bool(reason), since=along)
        if start.spent and not reason and self._pace.improving and course.plan:
            yield replace(course.rest, first=False)  # it is too short to be improved on the way
            return
        if reason or start.spent:
            yield self.homeward(s, reason or "the budget is spent")
            return

        begin, problem, plan = start.begin, start.problem, None
        moved = self._pace.moved
        place = destination(course, problem, question.others, begin.metres, moved, s.plan_interval)
        steps = first_plan_steps if first else plan_steps
        yield None
        for plan in steps_through(place, problem, s.plan_kind, steps):
            if plan is None:
                yield None
        if plan and not first and not place:
            start, plan = self._replan_if_late(s, course, start, plan)
            begin = start.begin

        # The rest of a way to a place that was worth it may take less than the least.
        worth = 0.0 if place else question.value.total
        # Where a robot stands that cannot begin, its plan says so, and nothing ends.
        judged = plan if plan or problem.start is not None else None
        why = "" if judged is None else ending(s, judged, start.budget, start.reserve, worth)
        hasty = first and plan and not self._is_worth_driving(s, plan)
        if first and (why or hasty or not plan):
            # No first answer is worth a drive: the whole search decides.
            self._pace.improving = True
            yield from self.go_on(s, session, position, course)
        elif why:
            yield self.homeward(s, why)
        else:
            yield plan.with_lead(begin.lead, begin.seconds) if plan else plan

    def _is_worth_driving(self, s: NodeSettings, plan: Plan) -> bool:
        """Return whether little of a first answer is driven before the whole search has its own.

        A robot that stands spends no metres: where it would drive much of a worse plan (a small
        budget, a slow computer, a simulation faster than time), it waits.
        """
        return (
            self._pace.metres_while_searching(s.plan_speed, self._spending) < _LITTLE * plan.metres
        )

    def _start(
        self,
        s: NodeSettings,
        position,
        course: Course,
        homeward: bool = False,
        since: float | None = None,
    ) -> _Start:
        """Return where the next plan begins, which is where the robot will be then.

        Args:
            s: settings of the plan.
            position: (2,) m, of the robot.
            course: the plan that is driven.
            homeward: whether the robot is on its way home.
            since: m along that plan, what was driven from where on is not measured yet; or None.
        """
        questions = self._questions
        budget = self._spending.plannable(s)
        budget = budget.minus(*self._home_detour(s, position, budget))
        begin = Departure(position)
        same = course.plan and course.basis.ground == questions.ground_count
        if same and not homeward:
            metres = max(self._pace.ahead(s.plan_speed), course.arriving(position))
            travel = questions.newest.travel
            begin = course.departure(position, min(_AHEAD, metres), travel, budget)
        self._pace.lead = begin.metres
        stops = course.plan.stops_ahead(course.along + begin.metres) if same else ()
        away = 0.0 if budget.home is None else math.dist(begin.start, budget.home)

        reserves = reserves_of(s, budget, self._pace.mean)
        lead = begin.lead
        if since is not None:
            lead = np.vstack([course.driven_since(since), lead])
        problem = self.problem(
            s,
            begin.start,
            budget.minus(begin.metres + reserves[0], begin.seconds + reserves[1]),
            lead=lead,
            heading=begin.heading,
            old=stops,
            fresh=self._pace.improving or self.made % _FRESH == 0,
        )
        spent = is_spent(s, budget, reserves, begin.metres + away)
        return _Start(begin, problem, budget, reserves[0], spent, stops, course.along)

    def _home_detour(self, s: NodeSettings, position, budget: Budget) -> tuple[float, float]:
        """Return by how many metres and seconds the way home that is known is longer than planned.

        That is known which was driven: where something is in the way that no map shows, the planned
        way may meet more of it. Until the next plan both ways change by what is driven.
        """
        line = self.driven.path_home(position, budget.home)
        if line is None:
            return 0.0, 0.0
        travel = self._questions.newest.travel
        start, home = travel.locate(position), travel.locate(budget.home)
        if start is None or home is None:
            return 0.0, 0.0
        more = length_of(line) - float(travel.distances(home)[start])
        if not more > 0.0:
            return 0.0, 0.0
        left = min(budget.metres, budget.speed * budget.seconds)
        metres = more + min(2.0 * s.plan_interval, _KEPT * left)
        return metres, metres / s.plan_speed

    def _replan_if_late(
        self, s: NodeSettings, course: Course, start: _Start, plan: Plan
    ) -> tuple[_Start, Plan]:
        """Return start and plan, anew for a robot that is beyond that start already.

        The rest of both plans, the new one and the one that is driven, are compared from where it
        will be now.
        """
        late = self._pace.late(self._spending)
        if not start.old or course.nearly_driven or late <= _LATE:
            return start, plan
        again = self._start(s, self._spending.last, course, since=start.along)
        self._pace.moved = self._spending.moved
        routes = [plan.nodes[count:] for count in range(min(_PASSED, len(plan.nodes)))]
        return again, plan_best_of(again.problem, s.plan_kind, routes)

    def answer(
        self, settings: NodeSettings, session, position, request: Request, running: bool
    ) -> Iterator[Plan | None]:
        """Plan on demand, in slices; the survey's own budget and plan stay what they are.

        Args:
            settings: of the plan.
            session: MapSession.
            position: (2,) m, of the robot, or None.
            request: where the plan begins and ends.
            running: whether the survey runs, whose budget then counts.
        """
        s = settings
        start = request.start or position
        if start is None or not session.cell_count:
            yield Plan(s.plan_kind, reason=NOTHING)
            return

        for refusal in self.prepared(s, session):
            if refusal is not None:
                yield refusal
                return
            yield None

        budget = self._spending.remaining(s) if running else whole_budget(s, start)
        if request.goal is not None:
            budget = replace(budget, home=request.goal)

        plan = None
        for plan in plan_steps(self.problem(s, start, budget), s.plan_kind):
            if plan is None:
                yield None
        yield plan

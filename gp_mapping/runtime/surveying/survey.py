"""A survey next to the live map: plans in slices, budgets, ends, unreachable goals. No rclpy."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import numpy as np

from gp_mapping.errors import NumericalError, one_line
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan
from gp_mapping.runtime.surveying.decisions import NOTHING, Decisions
from gp_mapping.runtime.surveying.free_maps import FreeMaps, wrong_frame
from gp_mapping.runtime.surveying.pace import Pace
from gp_mapping.runtime.surveying.question import Questions, ask_alike
from gp_mapping.runtime.surveying.requests import Request, Requests
from gp_mapping.runtime.surveying.rules import Basis
from gp_mapping.runtime.surveying.spending import Spending
from gp_mapping.runtime.surveying.survey_state import SurveyState
from gp_mapping.runtime.surveying.way.blocked import leave_out
from gp_mapping.runtime.surveying.way.course import Course
from gp_mapping.runtime.surveying.way.driven_path import DrivenPath
from gp_mapping.settings.node import NodeSettings

__all__ = ["Survey"]

_WITHDRAWN = "the plan was withdrawn, and another one is made"


class Survey:
    """Plans in slices; `step` and `record_drive` are for the map's thread, all else for any.

    Args:
        settings: replaced by the node when parameters change.
        seed: of the planners' random choices.
        on_plan: called in the map's thread with each new Plan, an empty one included.
        maps: as in Suggester.

    Attributes:
        rules: region, keep-out areas and goals that are left out, as they are now.
        state: as it was when the plan was made.
        note: what is wrong with the newest polygon, in words.
    """

    def __init__(
        self,
        settings: NodeSettings,
        seed: int = 0,
        on_plan: Callable[[Plan], None] = lambda plan: None,
        maps: FreeMaps | None = None,
    ):
        self._settings, self.on_plan = settings, on_plan
        self._course = Course(Plan(settings.plan_kind))
        self.state, self.note = SurveyState(), ""
        self._lock = threading.Lock()

        self._questions, self._spending = Questions(aside=maps is not None), Spending()
        self._pace = Pace()
        self._decisions = Decisions(self._questions, self._spending, self._pace, seed)
        self.rules = self._questions.rules
        self._maps = FreeMaps() if maps is None else maps
        self._free: FreeSpace | None = None
        self._wrong = ""  # why there is no free space, in words

        self._requests = Requests()
        self._job: Iterator[Plan | None] | None = None
        self._asked: Request | None = None  # answered by the job; None where it is the survey's
        self._finish: Callable[[Plan], None] = lambda plan: None

        self._phase = "idle"
        # where there is none, monotonic s before which no other plan is tried
        self._retry_at, self._stale = -math.inf, True
        self._own_turn = False  # the last job was a request's

    # ---- from any thread -------------------------------------------------------------------------

    @property
    def settings(self) -> NodeSettings:
        """Settings of the next plan; where they change, another plan is due."""
        return self._settings

    @settings.setter
    def settings(self, settings: NodeSettings) -> None:
        with self._lock:
            before, self._settings = self._settings, settings
            if not ask_alike(before, settings):
                self._stale = True
                self._decisions.ending = "" if self._phase == "running" else self._decisions.ending
                self._leave()

    def start(self) -> str:
        """Begin with the whole budget, or go on after a pause; return what was done, in words."""
        with self._lock:
            before, driven = self._phase, self._spending.driven
            self._phase, self._decisions.ending, self._stale = "running", "", True
            if before == "paused":
                return "the survey goes on"
            self._spending.begin()
            self._decisions.driven = DrivenPath()
            self.state = replace(self.state, reason="")
        again = f" anew, with the whole budget: {driven:.1f} m of the one before were driven"
        return f"the survey has begun{again if before == 'running' else ''}"

    def stop(self) -> str:
        """End the survey: no plan is published any more. Return what was done, in words."""
        with self._lock:
            self._phase, self._decisions.ending = "idle", "stopped"
            self._leave()
            self._set(Plan(self.settings.plan_kind, reason="the survey was stopped"))
        return "the survey was stopped"

    def pause(self) -> str:
        """Pause the survey; return what was done, in words.

        An empty plan is published, and the budget stands still. `start` goes on.
        """
        with self._lock:
            if self._phase != "running":
                return f"there is no survey to pause: it is {self._phase}"
            self._phase = "paused"
            self._leave()
            self._set(Plan(self.settings.plan_kind, reason="the survey is paused"))
        return "the survey is paused"

    def set_region(self, corners, frame: str, map_frame: str) -> str:
        """Survey inside this polygon only; without a corner: everywhere.

        Args:
            corners: (K, 2) m.
            frame: of the corners.
            map_frame: of the map.

        Returns:
            What is wrong with it, or "". A wrong one is refused, and the region stays what it was.
        """
        return self._restrict("region", corners, frame, map_frame)

    def set_keep_out(self, corners, frame: str, map_frame: str) -> str:
        """Keep out of this polygon in addition; without a corner: drop all of them.

        As `set_region`, its arguments and its result.
        """
        return self._restrict("keep_out", corners, frame, map_frame)

    def _restrict(self, name: str, corners, frame: str, map_frame: str) -> str:
        """Set or add a polygon and plan anew; return what is wrong with it, or "".

        A plan that breaks it is withdrawn: the robot stands until there is another one.
        """
        before = self.rules.now()
        self.note = self.rules.restrict(name, corners, frame, map_frame)
        now = self.rules.now()
        # One that is published again and again is no reason for another plan.
        if self.note or (now.region is before.region and now.keep_out is before.keep_out):
            return self.note

        with self._lock:
            self._stale = True
            if self._phase == "done":
                self._phase = "running"
            self._decisions.ending = ""
            news = now.since(self._course.basis.rules)
            if broken := news.broken_on(self._course.rest, self.settings.robot_radius):
                self._withdraw(broken)
        return ""

    def _withdraw(self, why: str) -> None:
        """Publish an empty plan for that reason; another one is due."""
        self._stale = True
        self._leave()
        self._set(Plan(self.settings.plan_kind, reason=f"{_WITHDRAWN}: {why}"))

    def set_others(self, robot: str, line: np.ndarray) -> None:
        """Set the plan of another robot. As Questions.set_others."""
        self._questions.set_others(robot, line)

    @property
    def others(self) -> list[np.ndarray]:
        """Plans of other robots, lines (K, 2) m."""
        return self._questions.others

    def close(self, x: float, y: float) -> None:
        """Leave out a place that was not reached, by leave_out. As RulesNow.close."""
        position = self._spending.last
        blocked = leave_out(self.rules, self._course, position, (x, y), self.settings)
        if blocked and position is not None:
            self._decisions.driven.block(np.array([x, y]), position)
        with self._lock:
            self._stale = True

    def ask(self, start=None, goal=None) -> Future:
        """Request a plan; the Future carries it.

        Args:
            start: (x, y) m; None: the robot's position.
            goal: (x, y) m; None: anywhere.
        """
        request = Request(start, goal)
        with self._lock:
            self._requests.add(request, self.settings.plan_kind)
        return request.future

    def forget(self) -> None:
        """Drop all plans: the map was cleared or another one loaded."""
        plan = Plan(self.settings.plan_kind, reason="the map has changed")
        with self._lock:
            request, self._asked = self._asked, None
            self._job, self._stale = None, True
            self._questions.forget()
            self._set(plan)
        if request is not None:
            request.answer(plan)

    def drop(self, error: Exception) -> None:
        """Drop the plan that is being made, or was about to be, and fail its request."""
        with self._lock:
            request = self._asked
            if request is None and self._job is None and self._requests:
                request = self._requests.take()
            self._job = self._asked = None
            self._pace.improving = False
        if request is not None:
            request.answer(RuntimeError(f"the plan could not be made: {one_line(error, 300)}"))

    def _leave(self) -> None:
        """Stop making a plan of the survey; one on demand is finished."""
        if self._asked is None:
            self._job = None

    # ---- in the map's thread ---------------------------------------------------------------------

    def step(self, session, position, message, frame: str, stamp: float | None) -> bool:
        """Plan for about plan_slice seconds where there is something to plan.

        Args:
            session: MapSession.
            position: (x, y) of the robot, m, or None.
            message: the newest nav_msgs/OccupancyGrid, or None.
            frame: of the map.
            stamp: seconds, of the newest measurement.

        Returns:
            Whether there is more to do.
        """
        if self.rules.enter(frame):
            self._stale = True

        if position is not None:
            self._spending.count_seconds(stamp, self._phase == "running")
            self._follow(np.asarray(position, dtype=np.float64))

        if self._phase == "running" or self._requests or self._job is not None:
            self._take_free_space(position, message, frame)
        if self._job is None and not self._next_job(session, position):
            return False

        end = time.perf_counter() + self.settings.plan_slice
        job = self._job
        while job is not None and time.perf_counter() < end:
            try:
                plan = next(job, None)
            except (ValueError, NumericalError) as error:  # what cannot be planned: the reason
                plan = Plan(self.settings.plan_kind, reason=one_line(error, 300))
            # Another thread may have stopped or dropped the job meanwhile.
            if self._job is not job:
                return True
            if plan is not None:
                self._job = self._asked = None
                self._finish(plan)
                due = self._stale or self._pace.improving
                return len(self._requests) > 0 or (due and self._phase == "running")
        return job is not None

    def record_drive(self, x: np.ndarray) -> None:
        """Record where the robot has been since the last step: x (N, 2) m, in order."""
        for position in x:
            if self._spending.is_new(position):
                self._follow(position)

    def _follow(self, position: np.ndarray) -> None:
        """Count the metres driven, and find how far along its plan the robot is."""
        running = self._phase == "running"
        motion = self._spending.count_metres(position, running)
        if motion is None:
            return
        moved, leapt = motion
        self._questions.record_drive(position, leapt)
        self._decisions.driven.add(position, leapt)

        over = self._course.nearly_driven
        along = self._course.follow(position, moved)
        if running and not leapt and not over:
            self._spending.learn(along, moved)

    def _take_free_space(self, position, message, frame: str) -> None:
        """Take the newest free-space map; it withdraws a plan where it shows no way to drive it.

        That is where it leaves the plan no room, and where it cannot be used: nobody knows then
        what is in the way.
        """
        self._free, wrong = self._maps.free_space_of(message, self.settings.robot_radius)
        self._wrong = wrong_frame(self._free, frame) or wrong
        known = frame and not self._maps.making  # both may be known in a moment
        unusable = self._wrong if known else ""
        if position is None or not (unusable or self._course.leads_into(self._free, position)):
            return
        with self._lock:
            if self._phase == "running" and self.plan:
                self._withdraw(unusable or "the free-space map leaves no room on its way")

    def _next_job(self, session, position) -> bool:
        """Begin to plan where that is due or requested; return whether a job has begun.

        They take turns: plans that are requested again and again do not keep the survey waiting.
        """
        if self._own_turn and self._next_of_survey(session, position):
            return True
        if self._requests:
            start = self._requests.first.start or position
            if (
                start is not None
                and session.cell_count
                and not self._prepare_ground(session, start)
            ):
                return False  # the ground is being made; only the request waits
            with self._lock:
                self._asked = request = self._requests.take()
                self._finish = partial(self._reply, request)
                self._job = self._decisions.answer(
                    self.settings, session, position, request, self._phase == "running"
                )
            self._own_turn = True
            return True
        return self._next_of_survey(session, position)

    def _next_of_survey(self, session, position) -> bool:
        """Begin to plan for the survey where that is due; return whether a job has begun."""
        due = (
            self._stale
            or self._pace.improving
            or self._course.due(
                self.settings.plan_interval, self._spending.moved, self._spending.clock
            )
        )
        if self._phase != "running" or not due:
            return False
        if position is None or not session.cell_count:
            self.state = replace(self.state, reason=NOTHING)
            return False
        if not self.plan and not self._stale and time.monotonic() < self._retry_at:
            return False  # nothing was found a moment ago
        if not self._prepare_ground(session, position):
            return False  # the ground is being made; the robot goes on with the plan that it has

        self._pace.begin(self._spending, bool(self.plan) and not self._course.nearly_driven)
        self._course.outdated |= self._stale
        self._stale, self._finish, self._own_turn = False, self._done, False
        self._job = self._decisions.go_on(self.settings, session, position, self._course)
        return True

    def _done(self, plan: Plan) -> None:
        """Take the plan, and learn how long a robot drives on while planning takes its time."""
        self._pace.end(self._spending, plan.first)
        with self._lock:
            if self._phase == "running":
                self._take(plan)

    def _reply(self, request: Request, plan: Plan) -> None:
        """Answer a request; where the plan breaks what has come meanwhile, it is made anew."""
        with self._lock:
            if self._outdated(plan):
                self._requests.again(request)
                return
        request.answer(plan)

    def _take(self, plan: Plan) -> None:
        """Make a new plan the current one, or an empty one with the reason why there is none.

        One that breaks what has come while it was made is dropped, and another one is due.
        """
        # What the robot has driven while the plan was made is no part of it any more.
        behind, spending = 0.0, self._spending
        if plan and spending.last is not None:
            behind = plan.progress(
                spending.last, 0.0, self._pace.lead + 0.5, spending.moved - self._pace.moved
            )

        whole, plan = plan, plan.plan_ahead(behind) if behind > 0.0 else plan
        if self._outdated(plan) or (whole and not plan):  # all of it is behind the robot
            self._stale = True
            return

        basis = self._questions.basis._replace(home=self.budget.home) if plan else None
        if plan and not spending.fits(self.settings, plan):
            old = self._course
            if self._current_plan_suffices():
                # It drove farther than was foreseen: the old plan still leads home.
                plan, basis = replace(old.rest, first=False), old.basis
            else:
                spent = self._decisions.is_spent(self.settings)
                why = "the budget is spent" if spent else "no plan fits the budget any more"
                plan = self._decisions.homeward(self.settings, why)
                if self._outdated(plan):
                    self._stale = True
                    return
                if not spent:  # homewards, and another plan follows
                    self._decisions.ending, self._stale = "", True

        self._decisions.made += 1
        self._retry_at = time.monotonic() + 2.0
        # On the way home a map of a moment that leaves no room is no end.
        if self._decisions.ending and not plan and plan.reason == self._decisions.ending:
            self._phase = "done"
        self._set(plan, basis)

    def _outdated(self, plan: Plan) -> bool:
        """Return whether a plan of the newest question breaks what has come since."""
        if not plan:
            return False
        free = None if self._wrong else self._free
        return self._questions.newest.outdated(plan, self.rules.now(), free, self.settings)

    def _current_plan_suffices(self) -> bool:
        """Return whether the rest of the current plan is enough, and may be driven."""
        old, questions = self._course, self._questions
        return (
            not old.nearly_driven
            and old.basis.home == self.budget.home
            and self._spending.covers(self.settings, old.rest)
            and (
                old.basis.ground == questions.ground_count
                or old.keeps_to(questions.newest.travel.free)
            )
        )

    @property
    def plan(self) -> Plan:
        """The current plan; empty, with a reason, where there is none."""
        return self._course.plan

    def _set(self, plan: Plan, basis: Basis | None = None) -> None:
        """Publish a plan, which was made on that."""
        self._course = Course(plan, basis, self._spending.moved, self._spending.clock)
        self._pace.improving = plan.first
        self._update_state(plan)
        self.on_plan(plan)

    # ---- plans -----------------------------------------------------------------------------------

    def _prepare_ground(self, session, position) -> bool:
        """Prepare the ground around a position for the next job; False while it is being made."""
        if self._questions.making:
            return False
        if self._wrong:
            self._questions.refuse(self._wrong)
            return True
        return self._questions.prepare_ground(self.settings, session, position, self._free)

    @property
    def budget(self) -> Budget:
        """What is left to the survey."""
        return self._spending.remaining(self.settings)

    @property
    def gain(self) -> tuple | None:
        """(area, gain of one measurement at each place, travel) of the newest question."""
        return self._questions.gain

    # ---- the state -------------------------------------------------------------------------------

    def _update_state(self, plan: Plan) -> None:
        """Set the state by the current plan."""
        ground, aimless = self._questions.area, self._questions.aimless
        self.state = SurveyState(
            reason=self._decisions.ending
            or plan.reason
            or aimless
            or (ground.reason if ground else ""),
            area=ground.size if ground else 0.0,
            stddev_now=plan.stddev_now,
            stddev_then=plan.stddev_then,
            share_done=self._decisions.share_done,
            plan_metres=plan.metres,
            plans=self._decisions.made,
            closed=self.rules.closed_goals,
            improving=plan.first,
        )
        self.state = self.current_state()

    def current_state(self) -> SurveyState:
        """Return the state, with what has been driven since the plan was made."""
        budget = self.budget
        return replace(
            self.state,
            phase=self._phase,
            driven=self._spending.driven,
            metres_left=budget.metres,
            seconds_left=budget.seconds,
            leaps=self._spending.leaps,
            forgotten=self._decisions.driven.forgotten,
        )

    def next_pose(self, position, least: float = 1.0) -> tuple[float, float, float] | None:
        """Return x and y, m, and heading, radians, of the plan's next corner or stop.

        None without a plan or a position of the robot.

        Args:
            position: (2,) m, of the robot; None: not known.
            least: m from the robot, at least.
        """
        return None if position is None else self._course.next_pose(least)

"""A survey next to the live map: plans in slices, budgets, ends, unreachable goals. No rclpy."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import torch

from gp_mapping.errors import named, one_line
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.plan import Plan, driven_by_others, finished, plan_steps
from gp_mapping.planning.problem import Problem, mix_of_rest, usual_mix
from gp_mapping.planning.worth.held import HeldValue
from gp_mapping.planning.worth.path_value import PathValue
from gp_mapping.planning.worth.weights import cell_weights
from gp_mapping.runtime.surveying.free_maps import FreeMaps, GroundAside
from gp_mapping.runtime.surveying.survey_state import Request, SurveyState
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.plan import home_of

__all__ = ["Survey"]

_KEEP_OUT = 100  # polygons at most
_CLOSED = 200  # goals that are left out at the same time, at most
_REQUESTS = 10  # plans on demand that may wait
_STEP = 0.02  # m of motion that counts as driven: jitter of a position does not
_LEAP = 5.0  # m between two positions beyond which the robot was moved, not driven
_TRACK = 2000  # positions between two decisions, at most
_AHEAD = 6.0  # m of the old plan that are kept while the new one is made, at most
# Plans leave this fraction of the budget, and at least _LEAST metres: no robot drives a line to the
# centimetre, and the last metres have as many corners as the others.
_RESERVE = 0.03
_LEAST = 0.2  # m, also the shortest way that is worth a plan
# Metres for which a robot is taken to drive what is planned; metres driven for one planned, at
# most.
_EXACT, _LONGEST = (5.0, 1.5)
# Fraction of what is left, at most, for plans that come late; and of the whole budget for turning.
_KEPT = 0.2
_AT_HOME = 0.3  # m
_LATE = 5.0  # s after the expected end of a plan, when it is made anew
_FRESH = 8  # every so many plans the old route competes with new seeds


class Survey:
    """Plans in the map's thread, `step` by `step`; the other methods may be called from any thread.

    Args:
        settings: replaced by the node when parameters change.
        seed: of the planners' random choices.
        on_plan: called in the map's thread with each new Plan, an empty one included.
        maps: as in Suggester.

    Attributes:
        wanted: whether there are subscribers to the plan.
        plan: the current plan; empty, with a reason, where there is none.
        state: as it was when the plan was made.
        note: what is wrong with the newest polygon, in words.
        gain: (area, gain of one measurement at each place, travel) of the newest question.
    """

    def __init__(
        self,
        settings: NodeSettings,
        seed: int = 0,
        on_plan: Callable[[Plan], None] = lambda plan: None,
        maps: FreeMaps | None = None,
    ):
        self.settings, self.wanted, self.on_plan = settings, False, on_plan
        self.plan = Plan(settings.plan_kind)
        self.state = SurveyState()
        self.note = ""
        self.gain: tuple | None = None
        self._seed, self._lock = seed, threading.Lock()

        self._region: tuple[Polygon, ...] = ()
        self._keep_out: tuple[Polygon, ...] = ()
        self._others: dict[str, np.ndarray] = {}
        self._closed: deque[tuple[float, float, float]] = deque(maxlen=_CLOSED)  # x, y, until when
        self._requests: deque[Request] = deque()
        self._ground, self._held = GroundAside(aside=maps is not None), HeldValue()
        # Area and travel for the next job, or why there are none.
        self._here: tuple = ()
        self._nowhere = ""
        # Where the robot has been since the value was made; None: unknown.
        self._track: list[np.ndarray] | None = None

        self._maps = FreeMaps() if maps is None else maps
        self._free: FreeSpace | None = None
        self._job: Iterator[Plan | None] | None = None
        self._asked: Request | None = None  # answered by the job; None where it is the survey's
        self._finish: Callable[[Plan], None] = lambda plan: None

        self._phase, self._reason = "idle", ""
        self._start: np.ndarray | None = None
        self._began: float | None = None
        self._last_stamp: float | None = None
        self._last: np.ndarray | None = None
        self._driven = self._spent = 0.0
        self._planned = self._for_it = 0.0  # m of plans, and what was driven for them
        self._along = 0.0  # metres of the plan that are behind the robot
        # Metres moved in all, when the plan came, and when it was begun.
        self._moved = self._moved_then = self._moved_before = 0.0

        # Metres along the plan when it was made; of an empty one the time before which none is
        # tried.
        self._planned_at, self._stale, self._made = -math.inf, True, 0
        self._overdue = math.inf  # stamp (s) by which the plan should long have been driven
        self._thinking = 0.0  # s, running mean of what a plan takes
        self._plan_ground, self._lead = 0, 0.0

    # ---- from any thread -------------------------------------------------------------------------

    def start(self) -> str:
        """Begin with the whole budget, or go on after a pause; return what was done, in words."""
        with self._lock:
            resumed = self._phase == "paused"
            self._phase, self._reason, self._stale = "running", "", True
            if not resumed:
                self._driven = self._spent = self._planned = self._for_it = 0.0
                self._start = self._began = None
        return "the survey goes on" if resumed else "the survey has begun"

    def stop(self) -> str:
        """End the survey: no plan is published any more. Return what was done, in words."""
        with self._lock:
            self._phase, self._reason = "idle", "stopped"
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
        return self._polygons("region", corners, frame, map_frame)

    def set_keep_out(self, corners, frame: str, map_frame: str) -> str:
        """Keep out of this polygon in addition; without a corner: drop all of them.

        Arguments and result as in `set_region`.
        """
        return self._polygons("keep_out", corners, frame, map_frame)

    def _polygons(self, name: str, corners, frame: str, map_frame: str) -> str:
        """Set or add a polygon; return what is wrong with it, or ""."""
        try:
            if frame.lstrip("/") and map_frame and frame.lstrip("/") != map_frame.lstrip("/"):
                raise ValueError(
                    f"{name} is in frame {named(frame)} and the map in {map_frame!r}; publish "
                    f"it in {map_frame!r}"
                )

            new: tuple[Polygon, ...] = () if not len(corners) else (Polygon.of(corners, "", name),)
            if name == "keep_out" and new:
                same = any(np.array_equal(p.corners, new[0].corners) for p in self._keep_out)
                new = self._keep_out if same else (*self._keep_out, *new)
                if len(new) > _KEEP_OUT:
                    raise ValueError(
                        f"keep_out: {_KEEP_OUT} polygons are kept out of already; publish an empty one "
                        "to begin anew"
                    )
        except ValueError as error:
            self.note = f"{one_line(error, 300)}; it is not used"
            return self.note

        with self._lock:
            if name == "region":
                self._region = new
            else:
                self._keep_out = new
            self._stale, self.note = True, ""
            if self._phase == "done":
                self._phase = "running"
            self._reason = ""
        return ""

    def set_others(self, robot: str, line: np.ndarray) -> None:
        """Set the plan of another robot, (K, 2) m; an empty one frees what it had claimed."""
        with self._lock:
            self._others[robot] = line

    def close(self, x: float, y: float) -> None:
        """Leave out for a while an unreachable goal at (x, y) m, and what lies near it."""
        with self._lock:
            self._closed.append((x, y, time.monotonic() + self.settings.plan_retry))
            self._stale = True

    def ask(self, start=None, goal=None) -> Future:
        """Request a plan; the Future carries it.

        Args:
            start: (x, y) m; None: the robot's position.
            goal: (x, y) m; None: anywhere.
        """
        request = Request(start, goal)
        with self._lock:
            if len(self._requests) >= _REQUESTS:
                request.future.set_result(
                    Plan(self.settings.plan_kind, reason=f"{_REQUESTS} plans wait already")
                )
            else:
                self._requests.append(request)
        return request.future

    def forget(self) -> None:
        """Drop all plans: the map was cleared or another one loaded."""
        plan = Plan(self.settings.plan_kind, reason="the map has changed")
        with self._lock:
            request, self._asked = self._asked, None
            self._job, self._stale, self._track = None, True, None
            self._set(plan)
        if request is not None:
            request.answer(plan)

    def drop(self, error: Exception) -> None:
        """Drop the plan that is being made, or was about to be, and fail its request."""
        with self._lock:
            request = self._asked
            if request is None and self._job is None and self._requests:
                request = self._requests.popleft()
            self._job = self._asked = None
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
        if position is not None:
            self._pass(stamp)
            self._follow(np.asarray(position, dtype=np.float64))

        if self._job is None and not self._next_job(session, position, message, frame):
            return False

        end = time.perf_counter() + self.settings.plan_slice
        job = self._job
        while job is not None and time.perf_counter() < end:
            try:
                plan = next(job, None)
            except ValueError as error:  # what the planner cannot answer becomes the reason
                plan = Plan(self.settings.plan_kind, reason=one_line(error, 300))
            # Another thread may have stopped or dropped the job meanwhile.
            if self._job is not job:
                return True
            if plan is not None:
                self._job = self._asked = None
                self._finish(plan)
                return False
        return job is not None

    def drove(self, x: np.ndarray) -> None:
        """Record where the robot has been since the last step: x (N, 2) m, in order."""
        for at in x:
            if (
                self._last is None
                or abs(at[0] - self._last[0]) + abs(at[1] - self._last[1]) > _STEP
            ):
                self._follow(at)

    def _pass(self, stamp: float | None) -> None:
        """Count the seconds that pass while the survey runs."""
        if self._phase == "running" and stamp is not None and self._last_stamp is not None:
            self._spent += max(0.0, stamp - self._last_stamp)
        self._last_stamp = stamp

    def _follow(self, position: np.ndarray) -> None:
        """Count the metres driven, and find how far along its plan the robot is."""
        if self._last is None:
            self._last = position
        moved = math.dist(position, self._last)
        if self._phase == "running":
            if self._start is None:
                self._start = position
            if _STEP <= moved <= _LEAP:
                self._driven += moved

        if moved < _STEP:
            return
        self._last = position
        if self._track is not None:
            self._track.append(position)
            if moved > _LEAP or len(self._track) > _TRACK:
                self._track = None

        self._moved += moved if moved <= _LEAP else 0.0

        # Progress never goes back: where the robot turns before the tip of a dead end it is on the
        # way out, not on the way in.
        if self.plan:
            before = self._along
            progress = self.plan.progress(
                position, max(0.0, self._along - 0.1), 2.0, self._along + moved
            )
            self._along = max(self._along, progress)

            if self._phase == "running" and moved <= _LEAP and before < self.plan.metres - _AT_HOME:
                self._planned, self._for_it = (
                    self._planned + self._along - before,
                    self._for_it + moved,
                )

    def _next_job(self, session, position, message, frame: str) -> bool:
        """Begin to plan where that is due or requested; return whether a job has begun."""
        if self._requests:
            start = self._requests[0].start or position
            if (
                start is not None
                and session.cell_count
                and not self._look(session, start, message, frame)
            ):
                return False  # the ground is being made; only the request waits
            with self._lock:
                self._asked = request = self._requests.popleft()
                self._begin(self._answer(request, session, position), request.answer)
            return True

        # Metres driven count, too: a robot that leaves the line makes no progress along it.
        driven = max(self._along, self._moved - self._moved_then)
        due = (
            self._stale
            or not self.plan
            or driven - self._planned_at >= self.settings.plan_interval
            or driven >= self.plan.metres - 0.3
            or (self._last_stamp or 0.0) > self._overdue
        )

        if self._phase != "running" or not due or position is None or not session.cell_count:
            return False
        if not self.plan and not self._stale and time.monotonic() < self._planned_at:
            return False  # nothing was found a moment ago
        if not self._look(session, position, message, frame):
            return False  # the ground is being made; the robot goes on with the plan that it has

        began = time.perf_counter(), self._last_stamp
        self._stale, self._moved_before = False, self._moved

        def done(plan: Plan) -> None:
            """Take the plan, and learn how long planning takes."""
            duration = time.perf_counter() - began[0]
            # Time of the measurements, where it passes: a simulated robot may drive many times
            # faster.
            then, now = began[1], self._last_stamp
            if then is not None and now is not None and now > then:
                duration = now - then
            self._thinking += 0.3 * (duration - self._thinking)
            with self._lock:
                if self._phase == "running":
                    self._take(plan)

        self._begin(self._go_on(session, position), done)
        return True

    def _begin(self, job: Iterator[Plan | None], finish: Callable[[Plan], None]) -> None:
        """Make this the current job."""
        self._job, self._finish = job, finish

    def _take(self, plan: Plan) -> None:
        """Make a new plan the current one, or an empty one with the reason why there is none."""
        self._made += 1
        # What the robot has driven while the plan was made is no part of it any more.
        behind = 0.0
        if plan and self._last is not None:
            behind = plan.progress(
                self._last, 0.0, self._lead + 0.5, self._moved - self._moved_before
            )

        plan = plan.cut(behind) if behind > 0.0 else plan
        if plan and self.plan and not self._fits(plan):
            if self._along < self.plan.metres - _AT_HOME:
                # It drove farther than was foreseen: the old plan still leads home.
                plan = self.plan.cut(self._along)
            else:
                plan = self._homeward("the budget is spent")

        self._planned_at = 0.0 if plan else time.monotonic() + 2.0
        self._along, self._moved_then = 0.0, self._moved
        # A way that ends where it began may look undriven at its end: then the time decides.
        self._overdue = (self._last_stamp or 0.0) + plan.seconds + _LATE if plan else math.inf
        self._plan_ground = self._ground.made
        if self._reason and not plan:
            self._phase = "done"
        self._set(plan)

    def _fits(self, plan: Plan) -> bool:
        """Return whether a plan made for a place ahead fits the budget from where the robot is."""
        budget, away = (
            self._plannable,
            0.0 if self._last is None else math.dist(self._last, plan.line[0]),
        )
        return budget.allows(away + plan.metres, away / budget.speed + plan.seconds)

    def _set(self, plan: Plan) -> None:
        """Publish a plan."""
        self.plan = plan
        self._tell(plan)
        self.on_plan(plan)

    # ---- questions -------------------------------------------------------------------------------

    def _read(self, message, frame: str) -> str:
        """Read the free-space map where it is new; return what is wrong with it."""
        self._free, wrong = self._maps.at(message, self.settings.robot_radius)
        if (
            self._free is not None
            and self._free.frame.lstrip("/")
            and frame
            and self._free.frame.lstrip("/") != frame.lstrip("/")
        ):
            return (
                f"the free-space map is in frame {named(self._free.frame)} and the field map in "
                f"{frame!r}; publish it in the same frame"
            )
        return wrong

    def _look(self, session, position, message, frame: str) -> bool:
        """Prepare the area around a place, and the ways through it, for the next job.

        Returns:
            False while they are being made.
        """
        if self._ground.waiting and self._ground.making:
            return False
        s, self._here = self.settings, ()

        wrong = self._read(message, frame)
        if not wrong:
            lengthscale = session.map.hyperparameters()["lengthscale"]
            try:
                area, travel = self._ground.at(
                    position,
                    self._free,
                    session.driven.numpy(),
                    lengthscale,
                    region=self._region,
                    keep_out=self._keep_out,
                    reach=s.plan_reach,
                    margin=s.plan_margin,
                    places=s.plan_places,
                )
            except ValueError as error:  # what the planner cannot answer becomes the reason
                wrong = one_line(error, 300)
            else:
                if self._ground.waiting:
                    return False
                if travel is not None and len(travel) >= 2:
                    self._here = area, travel
                wrong = area.reason or "no place in the survey area can be reached"
        self._nowhere = wrong
        return True

    def _prepared(self, session) -> Iterator[Plan | None]:
        """Compute the question of the next plan, in slices.

        Yields None between slices, and a Plan with the reason where there can be no question.
        """
        s = self.settings
        if not self._here:
            yield Plan(s.plan_kind, reason=self._nowhere)
            return
        area, travel = self._here
        yield None

        # A map that is up to date is still being written: planning needs one that does not change.
        field = session.map.for_planning()
        field = field.snapshot() if field is session.map else field

        prediction = field.predict(area.cells)
        mean, stddev = prediction.mean.mean(1).cpu(), prediction.variance.mean(1).cpu().sqrt()
        scale = session.local_scale_at(area.cells) if s.plan_objective == "local_scale" else None
        weights = cell_weights(
            s.plan_objective, area.areas, mean, stddev, level=s.plan_level, scale=scale
        )

        at_places = field.predict(torch.from_numpy(travel.xy))

        # The way driven since the last question; the next one goes on from its end.
        driven = None if self._track is None else np.array(self._track).reshape(-1, 2)
        self._track = self._track[-1:] if self._track else []

        held_value: PathValue | None = None
        for held_value in self._held.steps(
            field,
            travel,
            area.cells,
            weights,
            session.noise_variance,
            driven,
            at_places.variance.mean(1).cpu(),
        ):
            if held_value is None:
                yield None

        if held_value is None:
            raise RuntimeError(
                "no worth was found of the ways, though all steps of finding it have been made"
            )

        with self._lock:
            others = list(self._others.values())
        value = driven_by_others(held_value, travel, others)

        closed = self._closed_nodes(travel)
        self._question = (
            area,
            travel,
            value,
            stddev,
            at_places.mean.mean(1).cpu(),
            at_places.variance.mean(1).cpu().sqrt(),
            closed,
        )
        self.gain = (area, value.at(range(len(value))).numpy(), travel)

    def _closed_nodes(self, travel) -> np.ndarray | None:
        """Return which nodes (n,) lie near a closed goal, None without one; drop expired goals."""
        now = time.monotonic()
        with self._lock:
            while self._closed and self._closed[0][2] <= now:
                self._closed.popleft()
            places = [(x, y) for x, y, until in self._closed if until > now]
        if not places:
            return None
        away = np.min([np.hypot(*(travel.nodes - place).T) for place in places], axis=0)
        return away <= self.settings.plan_avoid

    @property
    def budget(self) -> Budget:
        """What is left to the survey."""
        s = self.settings
        home = home_of(s.plan_home)
        place = None if home is None else self._start if home == "start" else home
        return Budget(
            max(0.0, s.plan_budget - self._driven) if s.plan_budget else math.inf,
            max(0.0, s.plan_budget_time - self._spent) if s.plan_budget_time else math.inf,
            s.plan_speed,
            s.plan_turn_rate,
            None if place is None else (float(place[0]), float(place[1])),
        )

    @property
    def _plannable(self) -> Budget:
        """What plans may cost, less than is left.

        The robot drives more metres than planned; the ratio so far, at most 1.5, is taken for the
        future.
        """
        excess = min(_LONGEST, max(1.0, (self._for_it + _EXACT) / (self._planned + _EXACT)))
        budget = self.budget
        return replace(budget, metres=budget.metres / excess, seconds=budget.seconds / excess)

    def _problem(self, position, budget: Budget, **more) -> Problem:
        """Return the problem of planning from a position within a budget."""
        s = self.settings
        _, travel, value, _, mean, stddev, closed = self._question
        spent = max(
            self._driven / s.plan_budget if s.plan_budget else 0.0,
            self._spent / s.plan_budget_time if s.plan_budget_time else 0.0,
        )

        mix = mix_of_rest(s.plan_mix if s.plan_mix >= 0 else usual_mix(budget), min(spent, 1.0))
        return Problem(
            value,
            travel,
            np.asarray(position, dtype=np.float64),
            budget=budget,
            horizon=s.plan_horizon,
            mix=mix,
            closed=closed,
            mean=mean,
            stddev=stddev,
            seed=self._seed + self._made,
            effort=s.plan_effort,
            **more,
        )

    def _go_on(self, session, position) -> Iterator[Plan | None]:
        """Plan the survey from where the robot will be when the plan is ready, in slices."""
        s = self.settings
        for found in self._prepared(session):
            if found is not None:
                yield found
                return
            yield None
        area, travel, value, stddev, *_ = self._question

        budget = self._plannable
        old = self.plan
        reason = self._reason or self._ended(area, stddev)  # on the way home nothing new is begun

        # The first metres of the old plan are driven while the new one is made.
        lead = np.empty((0, 2))
        same = old and self._plan_ground == self._ground.made
        if same and not reason:
            ahead = min(
                _AHEAD, s.plan_speed * self._thinking + 0.05, max(0.0, old.metres - self._along)
            )
            rest = old.after(self._along)
            whole = (
                replace(old, line=np.vstack([np.asarray(position)[None], rest]))
                if len(rest)
                else old
            )
            lead = _until(whole.line, ahead)
            if len(lead) > 1 and not travel.free.sees(lead[:-1], lead[1:]).all():
                lead = np.empty((0, 2))

        length = float(np.hypot(*np.diff(lead, axis=0).T).sum()) if len(lead) > 1 else 0.0
        self._lead = length
        start = lead[-1] if len(lead) > 1 else position
        stops = old.left(self._along + length) if same else ()
        away = 0.0 if budget.home is None else math.dist(start, budget.home)

        # What is kept of the budget: metres, and seconds at the speed of the plan.
        kinds = (budget.metres, 1.0), (budget.seconds, 1.0 / s.plan_speed)
        # Metres there and back where a plan finds the robot beyond the point at which it turns.
        overshoot = 2.0 * s.plan_speed * self._thinking
        reserves = [
            max(_RESERVE * left, _LEAST * rate, min(overshoot * rate, _KEPT * left))
            if 0.0 < left < math.inf
            else 0.0
            for left, rate in kinds
        ]

        # Too little for the controller to move by would be planned again and again. A robot that
        # leaves the way home turns round: half a circle where it turns as it drives.
        turn = 0.0 if budget.home is None else math.pi * s.plan_speed / s.plan_turn_rate
        least = [
            max(_LEAST * rate, min(turn * rate, _KEPT * whole))
            for whole, (_, rate) in zip((s.plan_budget, s.plan_budget_time), kinds)
        ]
        spent = any(
            left - reserve - (length + away) * rate < minimum
            for (left, rate), reserve, minimum in zip(kinds, reserves, least)
        )

        problem = self._problem(
            start,
            budget.less(length + reserves[0], length / s.plan_speed + reserves[1]),
            old=stops,
            fresh=self._made % _FRESH == 0,
        )
        if reason or spent:
            yield self._homeward(reason or "the budget is spent")
            return

        plan = None
        for plan in plan_steps(problem, s.plan_kind):
            if plan is None:
                yield None

        if plan and s.plan_least_gain and float(plan.gains.sum()) < s.plan_least_gain * value.total:
            yield self._homeward(
                f"the best plan would take less than {s.plan_least_gain:g} of the area's variance"
            )
        elif plan and (not plan.nodes or (budget.limited and plan.metres < 0.5 * _LEAST)):
            yield self._homeward("nothing is left to measure within the budget")
        elif plan is not None and not plan and budget.limited and problem.start is not None:
            # Nothing is left to measure, or the budget allows the way home only.
            kept = f"; {reserves[0]:.1f} m are kept for the corners of it" if reserves[0] else ""
            yield self._homeward(f"the budget is spent ({plan.reason}{kept})")
        else:
            yield plan.led_by(lead) if plan else plan

    def _homeward(self, reason: str) -> Plan:
        """End the survey: return the way home from where the robot is.

        Empty, with the reason, where there is no home or the robot is there.
        """
        self._reason = reason
        budget, kind = self.budget, self.settings.plan_kind
        problem = self._problem(self._last, budget)
        if (
            problem.home is None
            or budget.home is None
            or self._last is None
            or math.dist(self._last, budget.home) < _AT_HOME
        ):
            stddev = math.sqrt(max(problem.value.total, 0.0) / max(problem.value.mass, 1e-300))
            return Plan(kind, stddev_now=stddev, stddev_then=stddev, reason=reason)
        return replace(finished(problem, kind, ()), reason=f"{reason}: this is the way home")

    def _ended(self, area, stddev) -> str:
        """Return why the survey is at its end; empty while it is not."""
        s = self.settings
        fraction = (
            float(area.areas @ (stddev <= s.target_stddev).double()) / area.size
            if s.target_stddev
            else math.nan
        )

        self._share = fraction
        if s.target_stddev and fraction >= s.target_share:
            return f"{fraction:.0%} of the area are known to {s.target_stddev:g}"
        return ""

    _share = math.nan

    def _answer(self, request: Request, session, position) -> Iterator[Plan | None]:
        """Plan on demand, in slices; the survey's own budget and plan stay what they are."""
        s = self.settings
        start = request.start or position
        if start is None or not session.cell_count:
            yield Plan(
                s.plan_kind,
                reason="nothing has been measured yet: the map has to know something first",
            )
            return

        for refusal in self._prepared(session):
            if refusal is not None:
                yield refusal
                return
            yield None

        budget = (
            self.budget
            if self._phase == "running"
            else Budget(
                s.plan_budget or math.inf,
                s.plan_budget_time or math.inf,
                s.plan_speed,
                s.plan_turn_rate,
            )
        )

        if request.goal is not None:
            budget = replace(budget, home=request.goal)

        plan = None
        for plan in plan_steps(self._problem(start, budget), s.plan_kind):
            if plan is None:
                yield None
        yield plan

    # ---- what is told ----------------------------------------------------------------------------

    def _tell(self, plan: Plan) -> None:
        """Set the state by the current plan."""
        budget = self.budget
        ground = self._ground.area
        area = ground.size if ground else 0.0
        reason = self._reason or plan.reason or (ground.reason if ground else "")
        self.state = SurveyState(
            self._phase,
            reason,
            self._driven,
            budget.metres,
            budget.seconds,
            area,
            plan.stddev_now,
            plan.stddev_then,
            self._share,
            plan.metres,
            self._made,
            len(self._closed),
        )

    def current_state(self) -> SurveyState:
        """Return the state, with what has been driven since the plan was made."""
        budget = self.budget
        return replace(
            self.state,
            phase=self._phase,
            driven=self._driven,
            metres_left=budget.metres,
            seconds_left=budget.seconds,
        )

    def next_pose(self, position, least: float = 1.0) -> tuple[float, float, float] | None:
        """Return where the plan goes next: its next corner or stop.

        Args:
            position: of the robot; None: not known.
            least: m from the robot, at least.

        Returns:
            x and y, m, and heading, radians; None without a plan.
        """
        if not self.plan or position is None:
            return None
        rest = self.plan.after(self._along)

        if len(rest) < 2:
            end, before = self.plan.line[-1], self.plan.line[-2]
            return float(end[0]), float(end[1]), math.atan2(*(end - before)[::-1])

        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(rest, axis=0).T))])
        metres = min(max(least, 0.0), float(ends[-1]))
        corner = int(np.searchsorted(ends, metres - 1e-9))
        corner = max(1, min(corner, len(rest) - 1))

        x, piece = rest[corner], rest[corner] - rest[corner - 1]
        return float(x[0]), float(x[1]), math.atan2(piece[1], piece[0])


def _until(line: np.ndarray, metres: float) -> np.ndarray:
    """Return the first metres of a line (K, 2)."""
    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    if metres <= 0.0 or len(line) < 2:
        return line[:1]
    metres = min(metres, float(ends[-1]))
    last = [[np.interp(metres, ends, line[:, i]) for i in (0, 1)]]
    return np.vstack([line[ends < metres - 1e-9], last])

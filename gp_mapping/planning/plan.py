"""A plan: the line to drive, what each part of it is worth, and what it costs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.problem import Drive, Problem
from gp_mapping.planning.registry import find_planner
from gp_mapping.planning.worth.path_value import PathValue, Visits

__all__ = [
    "Plan",
    "after_driving",
    "after_measuring_at",
    "allot",
    "first_plan_steps",
    "plan",
    "plan_along",
    "plan_best_of",
    "plan_steps",
    "plan_through",
    "way_home",
]

# M; points of a line whose distances to the robot differ by less count as equally near.
_AS_NEAR = 0.05
_AT_HOME = 0.3  # m


@dataclass(frozen=True)
class Plan:
    """What to drive; empty, with a reason, where there is nothing to drive.

    Attributes:
        kind: the planner's name.
        line: (N, 2) m, from the robot on.
        stops: (k, 2) m, its goals in order, home included.
        stop_marks: (k,) metres from the start to each stop.
        nodes: the stops as nodes of the Travel that it was planned in, home left out.
        visits: (m, 2) m, places that it measures.
        marks: (m,) metres from the start to each visit.
        gains: (m,) variance that each visit takes off the area, SI² times the weights' unit.
        metres: length of all of it.
        seconds: duration of all of it.
        stddev_now: SI, root of the mean variance over the area, before.
        stddev_then: SI, the same after.
        reason: in words, why there is none, or what was assumed.
        first: whether it is a planner's first answer, which a whole search may improve.
    """

    kind: str
    line: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    stops: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    stop_marks: np.ndarray = field(default_factory=lambda: np.empty(0))
    nodes: tuple[int, ...] = ()
    visits: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))
    marks: np.ndarray = field(default_factory=lambda: np.empty(0))
    gains: np.ndarray = field(default_factory=lambda: np.empty(0))
    metres: float = 0.0
    seconds: float = 0.0
    stddev_now: float = math.nan
    stddev_then: float = math.nan
    reason: str = ""
    first: bool = False

    def __bool__(self) -> bool:
        return len(self.line) > 1

    def progress(
        self, position, before: float = 0.0, ahead: float = 2.0, expected: float | None = None
    ) -> float:
        """Return the metres along the line of its point nearest to a position.

        Args:
            position: (2,) m.
            before: metres along the line from which the point is looked for.
            ahead: metres beyond `before` up to which it is looked for, so that progress takes no
                short cut where the line crosses itself.
            expected: metres that it should be by what was driven. Of points that are equally near,
                as on the way into a dead end and out again, the one nearest to that counts.
        """
        if not self:
            return 0.0

        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self.line, axis=0).T))])
        marks = np.append(
            np.arange(before, min(before + ahead, ends[-1]), 0.02), min(before + ahead, ends[-1])
        )
        x = np.stack([np.interp(marks, ends, self.line[:, i]) for i in (0, 1)], 1)

        away = np.hypot(*(x - np.asarray(position)).T)
        if expected is None:
            return float(marks[int(away.argmin())])

        # Local minima that are as near as the nearest point.
        padded = np.pad(away, 1, constant_values=math.inf)
        near = (away <= np.minimum(padded[:-2], padded[2:])) & (away <= away.min() + _AS_NEAR)
        return float(marks[near][int(np.abs(marks[near] - expected).argmin())])

    def stops_ahead(self, metres: float) -> tuple[int, ...]:
        """Return the stops (nodes) that are still ahead after that many metres."""
        return tuple(n for n, mark in zip(self.nodes, self.stop_marks) if mark > metres + 1e-6)

    def line_ahead(self, metres: float) -> np.ndarray:
        """Return the line (N, 2) from that many metres on."""
        if not self:
            return self.line
        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self.line, axis=0).T))])
        metres = min(max(metres, 0.0), float(ends[-1]))
        first = [[np.interp(metres, ends, self.line[:, i]) for i in (0, 1)]]
        return np.vstack([first, self.line[ends > metres + 1e-9]])

    def plan_ahead(self, metres: float) -> Plan:
        """Return the rest of the plan after that many metres, as if it had been planned there."""
        if not self or metres >= self.metres - 1e-6:
            return Plan(self.kind, reason=self.reason)

        # Stops and measurements that are still ahead.
        keep, ahead = self.stop_marks > metres + 1e-6, self.marks > metres + 1e-6

        return replace(
            self,
            line=self.line_ahead(metres),
            stops=self.stops[keep],
            stop_marks=self.stop_marks[keep] - metres,
            nodes=self.stops_ahead(metres),
            visits=self.visits[ahead],
            marks=self.marks[ahead] - metres,
            gains=self.gains[ahead],
            metres=self.metres - metres,
            seconds=self.seconds * (1.0 - metres / self.metres),
        )

    def with_lead(self, line: np.ndarray, seconds: float) -> Plan:
        """Return the plan with a line before it.

        Args:
            line: (K, 2) m, which ends where this plan begins.
            seconds: that driving the line takes.
        """
        if len(line) < 2 or not self:
            return self

        metres = float(np.hypot(*np.diff(line, axis=0).T).sum())
        return replace(
            self,
            line=np.vstack([line, self.line[1:]]),
            stop_marks=self.stop_marks + metres,
            marks=self.marks + metres,
            metres=self.metres + metres,
            seconds=self.seconds + seconds,
        )

    def poses(self, spacing: float) -> tuple[np.ndarray, np.ndarray]:
        """Return poses along the line.

        Args:
            spacing: metres between two positions at most; corners are kept.

        Returns:
            Positions (n, 2) m and headings of travel (n,) radians.
        """
        if not self:
            return np.empty((0, 2)), np.empty(0)

        parts = []
        for a, b in zip(self.line, self.line[1:]):
            count = max(1, math.ceil(math.dist(a, b) / spacing - 1e-9))
            parts.append(a + (b - a) * (np.arange(count)[:, None] / count))

        x = np.vstack([*parts, self.line[-1:]])
        ahead = np.diff(x, axis=0)
        headings = np.arctan2(ahead[:, 1], ahead[:, 0])
        return x, np.append(headings, headings[-1])


def plan_steps(problem: Problem, kind: str) -> Iterator[Plan | None]:
    """Plan in slices: yield None between steps of the search, and the plan at the end.

    The problem itself stays as it is.

    Args:
        problem: the question.
        kind: name of the planner.

    Raises:
        ValueError: there is no planner of that name.
    """
    planner = find_planner(kind)
    refused = problem.obstacle()
    if refused:
        yield Plan(kind, reason=refused)
        return

    best: tuple[int, ...] = ()
    for stops in planner(problem):
        best = stops
        yield None
    yield plan_through(problem, kind, best)


def first_plan_steps(problem: Problem, kind: str) -> Iterator[Plan | None]:
    """Plan in slices, as plan_steps, but only to the planner's first answer.

    At the end it is an empty Plan where the planner has ended without one.

    Args:
        problem: the question.
        kind: name of a planner that is_anytime.
    """
    planner = find_planner(kind)
    if refused := problem.obstacle():
        yield Plan(kind, reason=refused)
        return
    for stops in planner(problem):
        if stops:
            yield replace(plan_through(problem, kind, stops), first=True)
            return
        yield None
    yield Plan(kind, reason="the planner has no first answer")


def plan_best_of(problem: Problem, kind: str, routes: Sequence[tuple[int, ...]]) -> Plan:
    """Return the plan through the highest rated of some routes.

    The old route stays unless the new one leaves less variance, or is rated higher, by the fraction
    problem.gain.

    Args:
        problem: the question, with the old route.
        kind: name of the planner that chose the routes.
        routes: stops (nodes) of each, of which as many count as the limit allows.
    """
    routes = [stops[: problem.fitting(stops)] for stops in (problem.old, *routes)]
    (end, rating), *others = problem.rate_both(routes)
    best = max(range(len(others)), key=lambda i: others[i][1], default=-1)
    if best < 0:
        return plan_through(problem, kind, routes[0])
    better = any(
        new > before + problem.gain * max(1.0 - before, 0.0)
        for new, before in zip(others[best], (end, rating))
    )
    return plan_through(problem, kind, routes[1 + best] if better else routes[0])


def plan(problem: Problem, kind: str = "route") -> Plan:
    """Return the plan of that planner, all slices at once.

    Args:
        problem: the question.
        kind: the planner's name.
    """
    return deque(plan_steps(problem, kind), maxlen=1)[0]


def plan_through(problem: Problem, kind: str, stops: tuple[int, ...]) -> Plan:
    """Return the plan that drives through given stops, with what it is worth.

    Args:
        problem: the question.
        kind: name of the planner that chose the stops.
        stops: nodes, in order; without any it is the way home.

    Returns:
        An empty plan with its reason where there is nothing to drive.
    """
    # The way home ends there anyway: a last stop at home would be the same place once more.
    while len(stops) > 1 and stops[-1] == problem.home:
        stops = stops[:-1]
    drive = problem.drive(stops)
    if drive is None or not drive.legs or drive.metres <= 0.0:
        return Plan(
            kind,
            reason="nothing is left to measure within the budget"
            if problem.budget.limited
            else "no place is worth a way any more",
        )

    reason = "" if stops else "nothing is left to measure within the budget: this is the way home"
    return _of_drive(problem, kind, drive, stops, reason)


def _of_drive(
    problem: Problem, kind: str, drive: Drive, stops: tuple[int, ...], reason: str
) -> Plan:
    """Return the plan of a drive through stops (nodes), with what it is worth."""
    value, size = problem.value, len(drive.legs)
    gains = value.gains([drive.visits])[0].numpy()
    # Σ_c w_c, so that total / area is a mean variance.
    area = max(value.mass, 1e-300)
    return Plan(
        kind,
        drive.line,
        np.array([leg.line[-1] for leg in drive.legs]),
        np.cumsum([leg.metres for leg in drive.legs])[:size],
        tuple(stops),
        drive.x,
        drive.marks,
        gains,
        drive.metres,
        drive.seconds,
        math.sqrt(max(value.total, 0.0) / area),
        math.sqrt(max(value.total - gains.sum(), 0.0) / area),
        reason,
    )


def plan_along(problem: Problem, kind: str, line: np.ndarray, reason: str) -> Plan:
    """Return the plan that drives a line, with what it is worth.

    Args:
        problem: the question.
        kind: name of the planner.
        line: (K, 2) m, from the robot on.
        reason: in words, why it does.
    """
    return _of_drive(
        problem, kind, problem.drive_along([problem.travel.leg_along(line)]), (), reason
    )


def way_home(problem: Problem, kind: str, reason: str) -> Plan:
    """Return the plan that leads straight home.

    Empty, with the reason, where there is no home or the robot is there; where no way leads home,
    with that for a reason.

    Args:
        problem: the question.
        kind: the planner's name.
        reason: why it goes home, to be read by a person.
    """
    value, home = problem.value, problem.budget.home
    if home is None or math.dist(problem.position, home) < _AT_HOME:
        stddev = math.sqrt(max(value.total, 0.0) / max(value.mass, 1e-300))
        return Plan(kind, stddev_now=stddev, stddev_then=stddev, reason=reason)
    if problem.home is None:
        return Plan(kind, reason=f"{reason}, and {problem.obstacle()}")
    return replace(plan_through(problem, kind, ()), reason=f"{reason}: this is the way home")


def allot(problems: list[Problem], kind: str = "route") -> list[Plan]:
    """Return plans of several robots, one after the other, each given what those before it measure.

    Args:
        problems: of one area: the same value and places (travel), each with its own position and
            budget.
        kind: the planner's name.

    Raises:
        ValueError: problems of different areas.

    Reference:
        Singh et al., 2009.
    """
    plans = []
    value = problems[0].value if problems else None

    for problem in problems:
        if len(problem.value) != len(value) or not np.array_equal(
            problem.travel.xy, problems[0].travel.xy
        ):
            raise ValueError(
                "robots that share an area need the same places: build one Travel and give it to all"
            )

        # An empty cache of its own: replace would share the dict of the problem.
        own = replace(problem, value=value, _known={})
        plans.append(plan(own, kind))
        if plans[-1]:
            value = after_driving(value, problem.travel, [plans[-1].line])
    return plans


def after_driving(value: PathValue, travel: Travel, lines) -> PathValue:
    """Return a PathValue after lines were driven, by this robot or others: nothing is worth twice.

    Only what lies among the places counts.

    Args:
        value: before.
        travel: the places of value.
        lines: (K, 2) m each.
    """
    for line in lines:
        line = np.asarray(line, dtype=np.float64).reshape(-1, 2)
        if len(line) < 2 or not len(travel):
            continue

        visits, x, _ = travel.visits([travel.leg_along(line)])
        # A line may leave the area: there the nearest places say nothing about it.
        near = torch.from_numpy(np.hypot(*(travel.xy[visits.places[:, 0]] - x).T) <= travel.spacing)
        value = value.after_measuring(visits.select(near))
    return value


def after_measuring_at(value: PathValue, travel: Travel, x: np.ndarray) -> PathValue:
    """Return a PathValue after measurements by another robot.

    Args:
        value: before.
        travel: the places of value; measurements that do not lie among them do not count.
        x: (m, 2) m, of the measurements.
    """
    if not len(travel) or not len(x):
        return value
    places, weights = travel.interpolation_at(x)
    near = np.hypot(*(travel.xy[places[:, 0]] - x).T) <= travel.spacing
    return value.after_measuring(
        Visits(torch.from_numpy(places[near]), torch.from_numpy(weights[near]))
    )

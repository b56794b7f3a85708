"""A route bent as a whole leaves less for the same metres and turns, keeps to limits, and to what is free."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from planning_scene import posterior
from test_plan import check_drivable, problem_in
from test_route_end import left, of_lanes, open_room

from gp_mapping.planning import Budget, plan
from gp_mapping.planning.plan import plan_through
from gp_mapping.planning.planners import bending
from gp_mapping.planning.planners.bending import Bend, bent
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.route import route


def bend(problem, stops, steps: int = 12) -> tuple[int, ...]:
    """Stops of the bent route."""
    *before, last = bent(problem, stops, steps)
    assert not any(step.stops for step in before), "an answer comes at the end"
    return last.stops


def exactly_left(problem, stops) -> float:
    """Share of the variance of the area that an exact GP leaves, measured each decimetre of the way."""
    line = problem.drive(stops).line
    marks = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    at = np.arange(0.05, marks[-1], 0.1)
    x = np.stack([np.interp(at, marks, line[:, i]) for i in (0, 1)], 1)
    cells = problem.travel.xy[::2]
    before = posterior(problem.position[None], cells, 0.25e-12)
    after = posterior(np.vstack([problem.position, x]), cells, 0.25e-12)
    return float(np.trace(after) / np.trace(before))


def turned(problem, stops) -> float:
    """Radians turned on the way."""
    ahead = np.diff(problem.drive(stops).line, axis=0)
    heading = np.arctan2(ahead[:, 1], ahead[:, 0])
    return float(np.abs(np.remainder(np.diff(heading) + np.pi, 2 * np.pi) - np.pi).sum())


def best_lanes(problem) -> tuple[int, ...]:
    lanes = of_lanes(problem)
    return lanes[int(left(problem, lanes).argmin())]


def test_lanes_bent_in_an_open_room_leave_less_within_the_limit():
    """The judge is an exact GP that measures each decimetre."""
    problem = open_room(50, 45, 20.0)
    lanes = best_lanes(problem)
    found = bend(problem, lanes)
    assert exactly_left(problem, found) < 0.85 * exactly_left(problem, lanes)
    assert problem.drive(found).metres <= 20.0


def test_turns_have_a_price():
    """The slower a robot turns, the less it turns for the same metres."""
    lanes = best_lanes(open_room(50, 45, 20.0))
    turns = []
    for rate in (0.3, 1.0, 1000.0):
        problem = replace(open_room(50, 45, 20.0), budget=Budget(20.0, turn_rate=rate))
        turns.append(turned(problem, bend(problem, lanes)))
    assert turns[0] < 0.9 * turns[1] and turns[1] < 0.9 * turns[2]


@pytest.mark.parametrize("heading", [math.nan, 2.0])
def test_slopes_of_turns_are_what_small_moves_change(heading):
    problem = replace(open_room(40, 40, 12.0), heading=heading)
    x = problem.position + np.array([[0, 0], [1.0, 0.1], [1.7, 0.9], [1.6, 0.88], [0.4, 2.0]])
    line = bending._Line(problem, x, 12.0)  # noqa: SLF001

    def turns(x) -> float:
        ahead = np.diff(x, axis=0)
        h = np.append([] if math.isnan(heading) else heading, np.arctan2(ahead[:, 1], ahead[:, 0]))
        each = np.remainder(np.diff(h) + np.pi, 2.0 * np.pi) - np.pi
        return float(np.hypot(each, bending._SMALL).sum())  # noqa: SLF001

    x, found = line.x, line.turn_slopes()
    for i in np.ndindex(x.shape):
        by = np.zeros_like(x)
        by[i] = 1e-6
        change = (turns(x + by) - turns(x - by)) / 2e-6
        assert found[i] == pytest.approx(change, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("world", range(3))
def test_a_bent_route_keeps_to_free_space_and_brings_the_robot_home(world):
    """Among walls; by metres, by seconds; no goal is a closed one; the same twice."""
    seconds = {"seconds": 40.0} if world % 2 else {"metres": 10.0}
    problem = problem_in(world, 40, 80, budget=Budget(**seconds))
    home = tuple(problem.position)
    closed = np.zeros(len(problem.travel.nodes), dtype=bool)
    closed[np.hypot(*(problem.travel.nodes - problem.position - [0.0, 0.8]).T) < 0.3] = True
    problem = replace(problem, budget=Budget(**seconds, home=home), closed=closed, _known={})
    *_, stops = greedy(problem)
    stops = stops[: problem.fitting(stops)]
    found = bend(problem, stops, 4)
    assert found and found == bend(problem, stops, 4)
    assert not closed[list(found)].any()
    assert found != bend(replace(problem, seed=1, _known={}), stops, 4)
    check_drivable(problem, plan_through(problem, "route", found))


def test_waypoints_and_pieces_stay_free_whatever_moves_them():
    problem = problem_in(3, budget=Budget(18.0))
    *_, stops = greedy(problem)
    drive = problem.drive(stops[: problem.fitting(stops)])
    line = bending._Line(problem, drive.line, drive.metres)  # noqa: SLF001
    rng, free = np.random.default_rng(0), problem.travel.free
    for _ in range(20):
        before = line.x.copy()
        line.move(0.3 * rng.normal(size=line.x.shape))
        assert (line.x[0] == before[0]).all() and (line.x != before).any()
        assert free.sees(line.x[:-1], line.x[1:]).all()
        assert free.allows(torch.from_numpy(line.x[1:])).all()


@pytest.mark.parametrize(("world", "returns"), [(2, False), (0, True)])
def test_a_bent_line_becomes_a_route_however_it_lies_between_the_nodes(world, returns):
    """Through nodes it may be a centimetre too long: it is made shorter, and never lost for that."""
    problem = problem_in(world, 40, 80, budget=Budget(10.0))
    if returns:
        budget = Budget(10.0, home=tuple(problem.position))
        problem = replace(problem, budget=budget, _known={})
    *_, stops = greedy(problem)
    drive = problem.drive(stops[: problem.fitting(stops)])
    line, rng = bending._Line(problem, drive.line, drive.metres), np.random.default_rng(world)  # noqa: SLF001
    for _ in range(24):
        line.move(0.1 * rng.normal(size=line.x.shape))
        before = line.x, line._most  # noqa: SLF001
        found = line.stops()
        assert found and problem.feasible(problem.drive(found))
        line.x, line._most = before  # noqa: SLF001


def test_a_route_that_is_too_long_to_be_bent_is_left_as_it_is(monkeypatch):
    problem = open_room(40, 40, 12.0)
    lanes = best_lanes(problem)
    monkeypatch.setattr(bending, "_MOST", 12.0 / problem.travel.step - 2.0)
    assert list(bent(problem, lanes, 5)) == [Bend()]


def test_a_route_is_bent(monkeypatch):
    """The planner's result is not worse for it by its own rating, and better in an open room."""
    problem = replace(open_room(50, 45, 20.0), effort=32)
    found = plan(problem, "route").nodes
    monkeypatch.setattr(sys.modules[route.__module__], "bent", lambda *_: iter([Bend()]))
    straight = plan(replace(problem, _known={}), "route").nodes
    assert left(problem, [found]) <= left(problem, of_lanes(problem)).min() + 1e-12
    assert exactly_left(problem, found) < 0.95 * exactly_left(problem, straight)

"""How many lanes are tried: about so many that all of them are as long as the limit."""

import numpy as np
import pytest
import test_plan
from planning_scene import occupancy
from test_plan import Budget, problem_in

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.planners.lanes import lane_routes


@pytest.mark.parametrize("seed, metres", [(4, 12.0), (4, 20.0), (9, 12.0)])
@pytest.mark.parametrize("by", ["metres", "seconds"])
def test_lanes_are_about_as_long_as_the_limit_and_some_are_longer_and_shorter(seed, metres, by):
    budget = Budget(metres) if by == "metres" else Budget(seconds=metres / 0.3, speed=0.3)
    problem = problem_in(seed, budget=budget)
    lengths = []
    for stops in lane_routes(problem):
        line = np.vstack([problem.position, problem.travel.nodes[list(stops)]])
        lengths.append(np.hypot(*np.diff(line, axis=0).T).sum())
    assert min(lengths) < metres < max(lengths) < 2.0 * metres + 3.0
    assert 0.5 * metres < np.median(lengths) < 1.5 * metres


def test_lane_beside_lane_first_and_then_every_other_one_and_those_between(monkeypatch):
    """On an open floor; to come by twice is tried only where the plan mixes places, and last."""
    floor = FreeSpace.from_occupancy_grid(occupancy(np.zeros((40, 40)), 0.1), 0.2)
    monkeypatch.setattr(test_plan, "free_room", lambda world, side: floor)
    turns = {}
    for mix in (0.0, 0.5):
        problem = problem_in(0, budget=Budget(16.0), mix=mix)
        turns[mix] = []
        for stops in lane_routes(problem):
            ends = problem.travel.nodes[list(stops)]
            along = ends[1::2] - ends[: len(ends) // 2 * 2 : 2]
            steps = np.sign(np.diff(ends[::2, int(np.abs(along).sum(0).argmin())]))
            turns[mix].append(int((steps[1:] * steps[:-1] < 0).sum()))  # to lanes passed by
    once, again = turns[0.0], turns[0.5][len(turns[0.0]) :]
    assert once[0] == 0 and turns[0.5][: len(once)] == once
    assert len(again) == len(once) and again[0] == 1 and sum(again) > sum(once)

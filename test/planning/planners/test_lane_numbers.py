"""How many lanes are tried: about so many that all of them are as long as the limit."""

import numpy as np
import pytest
from test_plan import Budget, problem_in

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

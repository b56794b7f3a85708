"""What rules for one place make of the way there."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planning_scene import measured_map, occupancy

from gp_mapping.planning import FreeSpace, PathValue, Problem, Travel, plan


def question() -> Problem:
    """An open room of 6 × 4 m, a robot in a corner of it."""
    free = FreeSpace.from_occupancy_grid(occupancy(np.zeros((40, 60))), 0.2)
    travel = Travel(free, 0.5)
    cells = torch.from_numpy(travel.xy)
    value = PathValue.from_map(measured_map("exact"), travel.xy, cells, torch.ones(len(cells)))
    return Problem(
        value,
        travel,
        np.array([0.5, 0.5]),
        mean=torch.zeros(len(travel)),
        stddev=torch.ones(len(travel)),
    )


@pytest.mark.parametrize("more, nearer", [(0.03, True), (-0.03, False)])
@pytest.mark.parametrize("kind", ["gain_per_metre", "expected_improvement"])
def test_a_place_is_worth_its_gain_by_its_way_and_three_decimetres(kind, more, nearer):
    """Of two places the nearer one gains as much less as its way + .3 m is shorter: a little more decides."""
    problem = question()
    away = problem.travel.distances(problem.start)[problem.travel.places]
    near, far = (int(np.abs(away - metres).argmin()) for metres in (0.8, 4.0))
    assert away[near] < 1.0 and away[far] > 3.5
    worth = {near: (1.0 + more) * (away[near] + 0.3), far: away[far] + 0.3}

    gains, high = torch.zeros(len(away)).double(), torch.full((len(away),), -50.0).double()
    for place, gain in worth.items():
        gains[place] = gain
        # E[max(f − best, 0)] of a place with the highest mean is its standard deviation by √2π.
        high[place] = 0.0
    value = replace(problem.value, C=torch.eye(len(away)).double(), S=torch.diag(gains))
    stddev = torch.where(gains > 0.0, gains, 1e-3)
    problem = replace(problem, value=value, mean=high, stddev=stddev, _known={})

    chosen = problem.travel.nodes[plan(problem, kind).nodes[0]]
    np.testing.assert_array_equal(chosen, problem.travel.xy[near if nearer else far])

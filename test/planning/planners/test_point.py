"""What rules for one place make of the way there."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planning_scene import measured_map, occupancy
from scipy.integrate import quad
from scipy.stats import norm

from gp_mapping.planning import Budget, FreeSpace, PathValue, Problem, Travel, plan


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


@pytest.mark.parametrize("more, found", [(0.03, True), (-0.03, False)])
def test_a_place_with_a_low_mean_is_worth_what_it_may_exceed_the_best_by(more, found):
    """E[max(f − best, 0)] by its integral: a place that is unsure enough is better than the best one itself."""
    problem = question()
    away = problem.travel.distances(problem.start)[problem.travel.places]
    best, low = (int(np.abs(away - metres).argmin()) for metres in (2.0, 2.4))

    def improvement(mean, stddev):
        return quad(lambda f: f * norm.pdf(f, mean, stddev), 0.0, mean + 12.0 * stddev)[0]

    # the deviation of the best place for which both are worth the same by their ways, then a little off
    stddev = (1.0 - more) * improvement(-1.0, 2.0) / (away[low] + 0.3) * (away[best] + 0.3)
    stddev /= improvement(0.0, 1.0)
    mean = torch.full((len(away),), -50.0).double()
    deviation = torch.full((len(away),), 1e-3).double()
    mean[best], deviation[best], mean[low], deviation[low] = 0.0, stddev, -1.0, 2.0

    problem = replace(problem, mean=mean, stddev=deviation, _known={})
    chosen = problem.travel.nodes[plan(problem, "expected_improvement").nodes[0]]
    np.testing.assert_array_equal(chosen, problem.travel.xy[low if found else best])


@pytest.mark.parametrize("home, farthest", [(None, 3.0), ((0.5, 0.5), 1.5)])
def test_the_farthest_place_is_as_far_as_the_way_there_and_home_allows(home, farthest):
    problem = replace(question(), budget=Budget(3.0, home=home), _known={})
    away = problem.travel.distances(problem.start)[problem.travel.places]
    stddev = torch.from_numpy(np.where(np.isfinite(away), 1e-3 + away, 1e-3))
    value = replace(problem.value, C=torch.diag(stddev))
    found = plan(replace(problem, value=value, _known={}), "variance")
    assert 0.7 * farthest < found.metres * (1.0 if home is None else 0.5) <= farthest + 1e-9

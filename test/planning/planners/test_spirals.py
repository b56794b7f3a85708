"""Spirals in and out again: their distances, their length, and where they begin."""

import math
from itertools import pairwise

import numpy as np
import pytest
from floor_scene import problem_in, travel_in

from gp_mapping.planning.budget import Budget
from gp_mapping.planning.planners.spirals import in_and_out, spiral_routes


def places_along(line, step=0.02):
    parts = [
        a + np.linspace(0.0, 1.0, max(2, math.ceil(math.dist(a, b) / step)))[:, None] * (b - a)
        for a, b in pairwise(line)
    ]
    return np.vstack(parts)


def farthest(line, width, height, step=0.1):
    """Of the places in a rectangle the one that is farthest from the line, m."""
    x = np.stack(
        np.meshgrid(np.arange(0.0, width, step), np.arange(0.0, height, step)), -1
    ).reshape(-1, 2)
    on = places_along(line)
    return max(
        np.hypot(*(on[:, None] - part).transpose(2, 0, 1)).min(0).max()
        for part in np.array_split(x, 8)
    )


@pytest.mark.parametrize("width, height", [(6.0, 4.0), (4.0, 6.0), (5.0, 5.0), (9.0, 3.1)])
@pytest.mark.parametrize("apart", [0.5, 0.73, 1.2])
@pytest.mark.parametrize("first", [0.35, 0.5])
def test_turns_are_as_far_apart_and_nothing_is_left_between(width, height, apart, first):
    line = in_and_out(width, height, apart, first)
    inset = first * apart
    assert line.min(0) == pytest.approx([inset, inset])
    assert line.max(0) == pytest.approx([width - inset, height - inset])
    assert line[0] == pytest.approx([inset, inset]), "it begins at the corner"
    # in between the farthest place is where the innermost turn leaves no room for another one
    assert farthest(line, width, height) <= 1.15 * apart
    # inwards and outwards are two ways of about the same length
    length = np.hypot(*np.diff(line, axis=0).T).sum()
    assert length == pytest.approx(width * height / apart, rel=0.45)


@pytest.mark.parametrize("corner", [(0.25, 0.25), (3.75, 0.25), (0.25, 2.75), (3.75, 2.75)])
@pytest.mark.parametrize(
    "budget", [Budget(16.0), Budget(seconds=60.0, turn_rate=1e9), Budget(24.0)]
)
def test_routes_are_as_long_as_the_budget_and_begin_beside_the_robot(corner, budget):
    travel = travel_in()
    problem = problem_in(travel, budget=budget)
    object.__setattr__(problem, "position", np.array(corner))
    routes = list(spiral_routes(problem))
    assert len(routes) >= 2
    metres = min(budget.metres, budget.seconds * budget.speed)
    drives = [problem.drive(stops) for stops in routes]
    assert any(problem.feasible(drive) and drive.metres > 0.75 * metres for drive in drives)
    assert all(drive.metres < 1.3 * metres for drive in drives)
    for stops in routes:
        x = travel.nodes[list(stops)]
        assert math.dist(x[0], corner) < 1.0, "at its corner"
        assert np.ptp(x[:, 0]) > 2.4 and np.ptp(x[:, 1]) > 1.6, "all around"
        assert all(a != b for a, b in pairwise(stops))
    turned = {abs(np.diff(travel.nodes[list(stops[:2])], axis=0)[0]).argmax() for stops in routes}
    assert turned == {0, 1}, "either way round"


def test_where_the_first_spiral_is_not_promising_others_are_tried_the_other_way_round_alone():
    travel = travel_in()
    problem = problem_in(travel, budget=Budget(18.0))
    asked = []
    few = list(spiral_routes(problem, asked.append))
    every = list(spiral_routes(problem))
    assert len(asked) == 2 and set(few) < set(every) and 2 * len(few) < len(every) + 2
    turned = {abs(np.diff(travel.nodes[list(stops[:2])], axis=0)[0]).argmax() for stops in asked}
    assert turned == {0, 1}


def test_there_is_no_spiral_without_a_budget_or_in_a_corridor():
    travel = travel_in()
    assert not list(spiral_routes(problem_in(travel, budget=Budget(0.0))))
    assert not list(spiral_routes(problem_in(travel, budget=Budget(1.0)))), "not even once around"


@pytest.mark.parametrize(
    "budget", [Budget(16.0), Budget(20.0), Budget(seconds=60.0, turn_rate=1e9)]
)
def test_each_of_six_is_tried_once_more_where_it_is_too_long_and_is_shorter_then(budget):
    """Of three first turns, either way round."""
    problem = problem_in(travel_in(), budget=budget)
    drives = [problem.drive(stops) for stops in spiral_routes(problem)]
    fits = [problem.feasible(drive) for drive in drives]
    assert len(fits) == 6 + fits.count(False)
    for i in [i for i, fit in enumerate(fits) if not fit]:
        assert fits[i + 1] and drives[i + 1].metres < drives[i].metres

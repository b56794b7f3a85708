"""What a route leaves in the end is no more than lanes and the old route leave, however soon it is to bring it."""

import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from planning_scene import occupancy
from rooms import measured_at
from test_plan import problem_in

from gp_mapping.planning import Budget, FreeSpace, PathValue, Problem, SurveyArea, Travel, plan
from gp_mapping.planning.planners.annealing import annealed
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import fitted, lane_routes, lanes
from gp_mapping.planning.planners.route import route
from gp_mapping.planning.planners.spirals import in_and_out, spiral_routes
from gp_mapping.planning.problem import default_mix


def open_room(width: int, depth: int, metres: float, **more) -> Problem:
    """Of so many decimetres, the robot in a corner."""
    free = FreeSpace.from_occupancy_grid(occupancy(np.zeros((depth, width))), 0.2)
    here = free.centres()[0]
    area = SurveyArea.from_free_space(free, here, max_cells=400)
    travel = Travel(area.free, 0.3, 300)
    field = measured_at(here, 0.25e-6)
    value = PathValue.from_map(field, travel.xy, area.cells, area.areas)
    return Problem(
        value,
        travel,
        here,
        budget=Budget(metres),
        mix=default_mix(Budget(metres)),
        effort=64,
        **more,
    )


def left(problem: Problem, routes) -> np.ndarray:
    """Shares of the variance that routes (stops) leave in the end."""
    return 1.0 - np.array(problem.rate_both(routes))[:, 0]


def of_lanes(problem: Problem) -> list[tuple[int, ...]]:
    return [stops for stops in (fitted(problem, stops) for stops in lane_routes(problem)) if stops]


@pytest.mark.parametrize(("seed", "mix"), [(6, 0.1), (1, 0.3)])
def test_a_route_leaves_no_more_than_any_lanes_in_the_end(seed, mix):
    problem = problem_in(seed, 60, 250, budget=Budget(22.0), mix=mix, effort=32)
    found, *lanes = left(problem, [plan(problem, "route").nodes, *of_lanes(problem)])
    assert found <= min(lanes) + 1e-12


def test_what_is_known_sooner_is_not_paid_for_in_the_end(monkeypatch):
    """Of the seeds one brings more soon than those lanes that leave least: hardly searched, a route is these."""
    problem = replace(open_room(50, 90, 55.0), effort=2)
    lanes = of_lanes(problem)
    seeds = [*lanes, *(fitted(problem, stops) for stops in spiral_routes(problem))]
    soonest = seeds[int(np.argmax(problem.rate(seeds)))]
    assert left(problem, [soonest]) > 1.02 * left(problem, lanes).min()
    searches = []

    def counted(problem, start, effort):
        searches.append(effort)
        return annealed(problem, start, effort)

    monkeypatch.setattr(sys.modules[route.__module__], "annealed", counted)
    assert left(problem, [plan(problem, "route").nodes]) <= left(problem, lanes).min() + 1e-12
    assert searches == [2, 2], "both are improved, for the effort of one"


def test_a_new_plan_leaves_no_more_than_the_old_one_however_much_sooner_it_would_bring_it():
    problem = open_room(70, 70, 70.0)
    spirals = [fitted(problem, stops) for stops in spiral_routes(problem)]
    old = plan(replace(problem, mix=0.0, effort=300, _known={}), "route").nodes
    before, *others = left(problem, [old, *spirals])
    assert before < min(others) < left(problem, of_lanes(problem)).min()
    rating = problem.rate([old])[0]
    assert max(problem.rate(spirals)) > rating + 0.02 * (1.0 - rating), (
        "by its rating alone a spiral is clearly better"
    )
    again = plan(replace(problem, old=old, effort=2, _known={}), "route").nodes
    assert left(problem, [again]) <= before + 1e-12


def test_in_an_open_room_a_route_leaves_no_more_than_lanes_and_knows_all_of_it_sooner():
    """That is what spirals in and out are for: two passes for the metres of one."""
    metres = 70.0
    problem = open_room(70, 70, metres)
    stops = plan(problem, "route").nodes
    lanes = of_lanes(problem)
    best = lanes[int(left(problem, lanes).argmin())]
    ends = left(problem, [stops, best])
    assert ends[0] <= ends[1] + 1e-12

    under = []
    for way in (stops, best):
        drive = problem.drive(way)
        gains = problem.value.gains([drive.visits])[0].numpy().cumsum() / problem.value.total
        under.append(1.0 - np.interp(np.linspace(0.0, metres, 200), drive.marks, gains).mean())
    assert under[0] < 0.88 * under[1]


@pytest.mark.parametrize(("width", "depth", "metres"), [(70, 70, 70.0), (50, 90, 60.0)])
def test_spirals_are_as_long_as_the_limit(width, depth, metres):
    """Either way round; in a square they end as densely as lanes, in a long room nearly so."""
    problem = open_room(width, depth, metres)
    fitting = [stops for stops in spiral_routes(problem) if problem.feasible(problem.drive(stops))]
    assert len(fitting) >= 5
    assert max(problem.drive(stops).metres for stops in fitting) > 0.98 * metres
    assert (
        left(problem, fitting).min()
        < (1.0 if width == depth else 1.15) * left(problem, of_lanes(problem)).min()
    )


def test_no_spiral_is_proposed_where_the_limit_does_not_pay_for_once_around():
    assert not list(spiral_routes(open_room(70, 70, 9.0)))
    assert not list(spiral_routes(replace(open_room(70, 70, 9.0), budget=Budget(0.0), _known={})))


def test_the_way_out_lies_between_the_turns_of_the_way_in():
    """Everywhere but in the corners the next way is half a pitch off; the walls are half of that off the first one."""
    x = in_and_out(8.0, 6.0, 0.5)
    assert x[0] == pytest.approx([0.25, 0.25])
    pieces = np.diff(x, axis=0)
    assert np.hypot(*pieces.T).sum() == pytest.approx(8.0 * 6.0 / 0.5, rel=0.06)
    marks = np.concatenate([a + (b - a) * np.linspace(0, 1, 200)[:, None] for a, b in pairwise(x)])
    where = np.stack(np.meshgrid(np.linspace(0, 8, 81), np.linspace(0, 6, 61)), -1).reshape(-1, 2)
    away = np.array([np.hypot(*(marks - place).T).min() for place in where])
    assert np.quantile(away, 0.97) <= 0.26 and away.max() <= 0.55


def test_a_narrow_rectangle_is_driven_around_once_and_along_its_middle():
    """No room is left between the turns of the way in: there is no way out."""
    x = in_and_out(3.0, 1.2, 0.5)
    np.testing.assert_allclose(
        x, [[0.25, 0.25], [2.75, 0.25], [2.75, 0.95], [0.25, 0.95], [0.6, 0.6], [2.4, 0.6]]
    )


def test_where_turns_take_time_annealing_finds_what_fits_the_time():
    """In an open room, where ways at a glance are the real ones: at .3 m/s and .4 rad/s turns take a third of it."""
    budget = Budget(seconds=40.0, speed=0.3, turn_rate=0.4)
    problem = replace(open_room(30, 30, 60.0), budget=budget, mix=0.0, _known={})
    *_, start = lanes(problem)
    rating = problem.rate([start])[0]
    found = list({stops for routes in annealed(problem, start, 200) for stops in routes})
    drives = [problem.drive(stops) for stops in found]
    assert all(problem.feasible(drive) for drive in drives)
    assert (
        max(drive.seconds for drive in drives) > 38.0
        and max(drive.metres for drive in drives) < 0.8 * 0.3 * 40.0
    )
    assert max(problem.rate(found)) > rating + 0.3 * (1.0 - rating)


def test_a_route_that_is_to_bring_it_soon_is_searched_from_its_seeds_on():
    problem = problem_in(5, 40, 80, horizon=8.0, mix=1.0, effort=60)
    *_, first = greedy(problem)
    seeds = [first, *of_lanes(problem)]
    found, *others = problem.rate([plan(problem, "route").nodes, *seeds])
    assert found > max(others) + 0.005

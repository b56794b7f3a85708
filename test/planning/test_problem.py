"""What a question for a way knows: its ends, costs and worth; and the simple rules by brute force."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from floor_scene import node, problem_in, travel_in, worth
from planning_scene import occupancy
from rooms import free_room

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.planners import point
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import fitted, lane_routes, lanes
from gp_mapping.planning.planners.route import route
from gp_mapping.planning.problem import Problem, default_mix, mix_of_rest
from gp_mapping.planning.worth.path_value import PathValue


@pytest.fixture(scope="module")
def travel():
    return travel_in()


# ---- budgets -----------------------------------------------------------------------------------


def test_a_budget_is_spent_by_what_ends_it_first():
    metres = Budget(10.0, 100.0, speed=0.5, turn_rate=0.8)  # 20 s of driving
    seconds = replace(metres, seconds=19.0)
    assert metres.fraction_spent(4.0, 30.0) == 0.4 and seconds.fraction_spent(4.0, 9.5) == 0.5
    assert replace(metres, seconds=20.0).fraction_spent(4.0, 15.0) == 0.4
    assert replace(metres, metres=0.5).fraction_spent(0.25, 30.0) == 0.5
    assert replace(metres, seconds=0.5).fraction_spent(4.0, 0.25) == 0.5
    assert Budget(0.0, 10.0).fraction_spent(1.0, 1.0) == math.inf
    assert Budget(math.inf, 0.0).fraction_spent(1.0, 1.0) == math.inf
    assert metres.time(3.0, 1.6) == pytest.approx(8.0)
    assert metres.limited and Budget(seconds=5.0).limited and not Budget().limited
    assert metres.allows(10.0, 100.0) and not metres.allows(10.01, 1.0)
    assert not metres.allows(1.0, 100.01) and metres.allows(10.0 + 1e-10, 1.0)
    left = replace(metres, home=(1.0, 2.0)).minus(4.0, 30.0)
    assert left == Budget(6.0, 70.0, 0.5, 0.8, (1.0, 2.0))
    assert metres.minus(40.0, 300.0) == Budget(0.0, 0.0, 0.5, 0.8)
    assert Budget(0.0, 0.0).metres == 0.0
    for wrong in (
        {"metres": -1.0},
        {"seconds": -1.0},
        {"metres": math.nan},
        {"speed": 0.0},
        {"turn_rate": 0.0},
        {"speed": math.inf},
        {"home": (1.0, math.nan)},
    ):
        with pytest.raises(ValueError, match="expected"):
            Budget(**wrong)


def test_the_rest_of_a_survey_is_rated_as_all_of_it():
    assert default_mix(Budget(5.0)) < 0.5 and default_mix(Budget()) == 1.0
    for mix in (0.0, 0.3, 1.0):
        for spent in (0.0, 0.4, 0.9):
            rest = mix_of_rest(mix, spent)
            rated = [1 - mix * (spent + (1 - spent) * s) for s in (0.0, 0.5, 1.0)]
            np.testing.assert_allclose(
                np.array(rated) / rated[0], [1 - rest * s for s in (0.0, 0.5, 1.0)], atol=1e-12
            )
    assert mix_of_rest(0.5, 1.0) == 0.0 == mix_of_rest(1.0, 1.0)


# ---- questions ---------------------------------------------------------------------------------


def test_metres_and_seconds_of_a_drive_with_its_turns(travel):
    budget = Budget(50.0, 500.0, speed=0.5, turn_rate=0.25)
    a, b = node(travel, 2.45, 0.45), node(travel, 2.45, 1.45)
    problem = problem_in(travel, budget=budget, heading=math.pi)
    drive = problem.drive((a, b))
    assert drive.metres == pytest.approx(3.0)
    # half a turn, 2 m, a quarter of one, 1 m
    half, quarter = math.pi / 0.25, 0.5 * math.pi / 0.25
    assert drive.seconds == pytest.approx(half + 4.0 + quarter + 2.0)
    np.testing.assert_allclose(drive.line, [[0.45, 0.45], [2.45, 0.45], [2.45, 1.45]])
    np.testing.assert_allclose(
        drive.times, np.interp(drive.marks, [0.0, 2.0, 3.0], np.cumsum([0, half + 4, quarter + 2]))
    )
    # where the heading is not known, the first turn is free; a stop where it is turns nothing
    free = problem_in(travel, budget=budget)
    assert free.drive((a, b)).seconds == pytest.approx(4.0 + quarter + 2.0)
    twice = free.drive((a, a, b))
    assert twice.seconds == pytest.approx(4.0 + quarter + 2.0) and len(twice.legs) == 3
    np.testing.assert_allclose(twice.line, drive.line)
    home = replace(budget, home=(0.45, 0.45))
    back = problem_in(travel, budget=home).drive((a,))
    assert back.metres == pytest.approx(4.0) and back.seconds == pytest.approx(8.0 + half)
    assert problem_in(travel, budget=budget).drive(()).line.shape == (0, 2)


def test_what_fits_is_within_budget_or_horizon(travel):
    a = node(travel, 2.45, 0.45)
    for budget, fits in (
        (Budget(2.0), True),
        (Budget(1.9), False),
        (Budget(seconds=2.0 / 0.3), True),
        (Budget(seconds=1.99 / 0.3), False),
        (Budget(3.9, home=(0.45, 0.45)), False),
        (Budget(4.1, home=(0.45, 0.45)), True),
    ):
        problem = problem_in(travel, budget=budget, horizon=0.1)
        assert (problem.fitting((a,)) == 1) == problem.feasible(problem.drive((a,))) == fits
        assert math.isfinite(problem.rate([(a,)])[0]) == fits
    # whether home is still in reach is known without the way there only where its bounds decide
    walls = Travel(free_room(6), 0.4)
    floor, start = worth(walls), walls.nodes[walls.places[0]]
    for budget in (Budget(9.0, home=tuple(start)), Budget(9.0, 40.0, home=tuple(start))):
        problem = Problem(floor, walls, start, budget=budget)
        for at in walls.places[problem.goals][::6].tolist():
            spent = problem.begin()._replace(metres=2.5, seconds=8.0, heading=0.0)
            back = problem.after(spent, walls.leg(at, problem.home))
            for limit in (1.0 - 1e-6, 1.0 + 1e-6):
                just = replace(budget, metres=limit * back.metres)
                exact = just.allows(back.metres, back.seconds)
                assert Problem(floor, walls, start, budget=just).may_end(spent, at) == exact
    for horizon in (1.9, 2.1):
        problem = problem_in(travel, horizon=horizon)
        assert (problem.fitting((a,)) == 1) == (horizon > 2.0)
        assert problem.limit == Budget(horizon)
    assert not problem.feasible(None)


def test_a_route_is_rated_by_what_it_takes_off_and_how_soon(travel):
    stops = (node(travel, 2.45, 0.45), node(travel, 2.45, 2.45))
    problem = problem_in(travel, budget=Budget(10.0, 900.0), mix=0.7)
    drive = problem.drive(stops)
    gains = problem.value.gains([drive.visits])[0].numpy()
    end, soon = problem.rate_both([stops, (stops[0],) * 2])[0]
    assert end == pytest.approx(gains.sum() / problem.value.total)
    assert soon == pytest.approx(
        (gains * (1 - 0.7 * drive.marks / 10.0)).sum() / problem.value.total
    )
    timed = problem_in(travel, budget=Budget(1000.0, 40.0), mix=0.7)
    drive = timed.drive(stops)
    (rating,) = timed.rate([stops])
    assert rating == pytest.approx(
        (gains * (1 - 0.7 * drive.times / 40.0)).sum() / timed.value.total
    )


def test_why_there_cannot_be_a_plan():
    travel = travel_in(wall=True)
    here = np.array([0.45, 0.45])
    value = worth(travel)

    def said(position=here, **budget):
        return Problem(value, travel, position, budget=Budget(**budget)).obstacle()

    assert said() == "" == said(metres=3.0, home=(0.45, 1.45))
    assert said(np.array([9.0, 9.0])).startswith("the robot at (9.00, 9.00) m stands where")
    assert said(home=(3.5, 0.5)).startswith("no way leads from the robot at (0.45, 0.45) m to home")
    assert "outside the survey area" not in said(home=(3.5, 0.5)), "behind a wall, in the area"
    assert "no way leads" in said(home=(9.0, 9.0)) and "in a keep-out area" in said(home=(9.0, 9.0))
    text = said(metres=0.9, seconds=100.0, home=(0.45, 1.45))
    assert text.startswith("the way home takes 1.0 m and 3 s, and 0.9 m and 100 s are left")
    assert said(metres=0.9, home=(0.45, 1.45)).endswith("and 0.9 m are left"), "not inf s"
    assert said(seconds=3.0, home=(0.45, 1.45)).endswith("and 3 s are left")
    nowhere = Travel(FreeSpace.from_occupancy_grid(occupancy(np.full((5, 5), 100))), 0.4)
    empty = PathValue(*(torch.empty(0, 0).double(),) * 2, torch.empty(0).double(), 0.0)
    assert "no place in the survey area" in Problem(empty, nowhere, here).obstacle()
    with pytest.raises(ValueError, match="expected the same ones"):
        Problem(empty, travel, here)
    for wrong in ({"mix": 1.1}, {"mix": -0.1}, {"horizon": 0.0}, {"effort": 0}):
        with pytest.raises(ValueError, match="expected 0 to 1"):
            Problem(value, travel, here, **wrong)
    Problem(value, travel, here, mix=1.0, effort=1)
    goals = Problem(value, travel, here).goals
    np.testing.assert_array_equal(goals, travel.xy[:, 0] < 2.0)
    closed = np.zeros(len(travel.nodes), bool)
    closed[travel.places[goals][:5]] = True
    assert Problem(value, travel, here, closed=closed).goals.sum() == goals.sum() - 5
    assert Problem(value, travel, here).drive((node(travel, 3.5, 0.5),)) is None


# ---- rules for one place -----------------------------------------------------------------------


def first(rule, problem):
    *_, stops = rule(problem)
    return stops


@pytest.mark.parametrize("home", [None, (0.45, 0.45)])
@pytest.mark.parametrize("metres", [math.inf, 2.2])
def test_a_rule_goes_to_the_best_place_in_reach(travel, metres, home):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 3.0, len(travel))
    mean, stddev = (torch.from_numpy(rng.uniform(0.5, 1.0, len(travel))) for _ in range(2))
    budget = Budget(metres, home=home)
    problem = problem_in(travel, weights, budget=budget, mean=mean, stddev=stddev)
    drives = [problem.drive((int(p),)) for p in travel.places]
    away = travel.distances(problem.start)[travel.places]
    fits = np.array([d.metres <= metres for d in drives]) & (travel.places != problem.start)
    value = problem.value
    gain = value.gains_at(range(len(value))).numpy()
    z = (mean - mean.max()) / stddev
    density = torch.exp(-0.5 * z**2) / math.sqrt(math.tau)
    improvement = stddev * (z * torch.special.ndtr(z) + density)
    for rule, score in (
        (point.gain_per_metre, gain / (away + 0.3)),
        (point.integrated_variance, gain),
        (point.variance, value.C.diagonal().numpy()),
        (point.ucb, (mean + 2.0 * stddev).numpy()),
        (point.expected_improvement, improvement.numpy() / (away + 0.3)),
    ):
        wanted = travel.places[np.where(fits, score, -np.inf).argmax()]
        assert first(rule, problem) == (wanted,), rule.__name__


def test_expected_improvement_weighs_what_is_high_against_what_is_unsure(travel):
    """By its integral, where means and standard deviations differ by much."""
    rng = np.random.default_rng(5)
    step = torch.linspace(-8.0, 8.0, 3201).double()
    density = torch.exp(-0.5 * step.square()) / torch.exp(-0.5 * step.square()).sum()
    for _ in range(12):
        mean = torch.from_numpy(rng.normal(size=len(travel)))
        stddev = torch.from_numpy(10.0 ** rng.uniform(-1.5, 0.5, len(travel)))
        problem = problem_in(travel, budget=Budget(), mean=mean, stddev=stddev)
        higher = (mean[:, None] + stddev[:, None] * step - mean.max()).clamp_min(0.0) @ density
        away = travel.distances(problem.start)[travel.places]
        worth_it = np.where(travel.places == problem.start, 0.0, higher.numpy() / (away + 0.3))
        best = travel.places[worth_it.argmax()]
        assert first(point.expected_improvement, problem) == (best,)


def test_where_nothing_is_in_reach_there_is_no_stop(travel):
    problem = problem_in(travel, budget=Budget(0.1))
    for rule in (point.variance, point.gain_per_metre):
        assert first(rule, problem) == ()
    with pytest.raises(ValueError, match="needs mean and stddev"):
        first(point.ucb, problem)
    bare = replace(problem, mean=torch.ones(len(travel)))
    with pytest.raises(ValueError, match="needs mean and stddev"):
        first(point.expected_improvement, bare)


# ---- lanes -------------------------------------------------------------------------------------


def test_as_many_stops_as_fit_are_kept(travel):
    stops = tuple(node(travel, x, 0.45) for x in (1.45, 2.45, 0.45, 3.45))
    for metres, kept in ((10.0, 4), (7.05, 4), (6.9, 3), (4.05, 3), (3.9, 2), (1.5, 1), (0.9, 0)):
        assert fitted(problem_in(travel, budget=Budget(metres)), stops) == stops[:kept]
        timed = problem_in(travel, budget=Budget(seconds=metres / 0.3, turn_rate=1e9))
        assert fitted(timed, stops) == stops[:kept]
    closed = np.zeros(len(travel.nodes), bool)
    closed[stops[1]] = True
    assert fitted(problem_in(travel, closed=closed), stops) == (stops[0], *stops[2:])
    home = Budget(6.1, home=(0.45, 0.45))
    assert fitted(problem_in(travel, budget=home), stops) == stops[:3]


def test_it_is_as_many_stops_as_fit_where_turns_cost_most(travel):
    """Of 5 to 8 stops whose way turns at each; a way that is short as the crow flies may take long."""
    corners = [(1.45, 0.45), (1.45, 1.45), (2.45, 1.45), (2.45, 0.45)] * 2
    for count in (5, 6, 7, 8):
        stops = tuple(node(travel, *corners[i]) for i in range(count))
        whole = problem_in(travel, budget=Budget(1e3, 1e4, 0.5, 0.2))
        needed = [whole.drive(stops[:kept]).seconds for kept in range(1, count + 1)]
        for kept, seconds in enumerate(needed, 1):
            budget = Budget(1e3, seconds + 0.1, 0.5, 0.2)
            assert fitted(problem_in(travel, budget=budget), stops) == stops[:kept]


def test_an_old_route_competes_with_new_ones_unless_told_not_to(travel):
    old = (node(travel, 0.85, 0.45),)
    problem = problem_in(travel, budget=Budget(8.0), old=old, effort=1, mix=1.0)
    best = max(problem.rate([fitted(problem, stops) for stops in lane_routes(problem)]))
    *_, new = route(problem)
    *_, kept = route(replace(problem, fresh=False))
    assert problem.rate([new])[0] >= best > problem.rate([kept])[0]


def test_effort_makes_a_route_that_gains_early_better(travel):
    """The best of the seeds is where it begins; each that is yielded is no worse than the one before."""
    ratings = []
    for effort in (1, 160):
        problem = problem_in(travel, budget=Budget(8.0), effort=effort, mix=1.0)
        *_, stops = route(problem)
        ratings.append(problem.rate([stops])[0])
    best = max(problem.rate([fitted(problem, stops) for stops in lane_routes(problem)]))
    assert best <= ratings[0] and ratings[1] > ratings[0] + 1e-4


def test_the_unit_of_the_field_changes_no_route(travel):
    value = worth(travel)
    tesla = PathValue(
        1e-12 * value.C, 1e-24 * value.S, 1e-12 * value.noise, 1e-12 * value.total, value.mass
    )
    one, other = (
        Problem(v, travel, np.array([0.45, 0.45]), budget=Budget(6.0)) for v in (value, tesla)
    )
    (*_, stops), (*_, same) = greedy(one), greedy(other)
    assert len(stops) > 2 and same == stops
    assert other.rate([stops])[0] == pytest.approx(one.rate([stops])[0])


def test_lanes_cover_the_floor_in_both_directions_and_the_best_is_taken(travel):
    problem = problem_in(travel, budget=Budget(14.0))
    routes = list(lane_routes(problem))
    whole = [[float(np.ptp(travel.nodes[list(stops)], 0)[i]) for i in (0, 1)] for stops in routes]
    assert max(w[0] for w in whole) > 3.4 and max(w[1] for w in whole) > 2.4
    cut = [fitted(problem, stops) for stops in routes]
    ratings = [problem.rate([stops])[0] for stops in cut]
    found = list(lanes(problem))
    assert found[-1] == cut[int(np.argmax(ratings))]
    assert next(filter(None, found)) == cut[0]
    # lanes are parallel: each piece has its two ends one after the other, straight on
    for stops in routes:
        x = travel.nodes[list(stops)]
        assert len(stops) > 1
        pieces = np.abs(x[1::2] - x[::2][: len(x[1::2])])
        assert (pieces.min(1) < 0.11).all() or len(stops) % 2
        # and begin at the end that is nearer to the one before
        if len(stops) % 2 == 0:
            before = np.vstack([problem.position, x[1:-1:2]])
            near, far = (np.hypot(*(x[k::2] - before).T) for k in (0, 1))
            assert (near <= far + 1e-9).all()
    soon = problem_in(travel, budget=Budget(14.0), mix=0.5)
    assert len(list(lane_routes(soon))) > len(routes), "twice over the area, too"

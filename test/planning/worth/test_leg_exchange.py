"""A route searched by exchanging legs: each exchange is worth what the whole routes say, and the search pays."""

import functools
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from planning_scene import occupancy
from rooms import measured_at
from test_plan import problem_in

from gp_mapping.planning import Budget, FreeSpace, PathValue, Problem, SurveyArea, Travel, plan
from gp_mapping.planning.area.approximate_legs import ApproximateLegs
from gp_mapping.planning.planners.annealing import annealed, cost_per_metre
from gp_mapping.planning.planners.lanes import lanes
from gp_mapping.planning.planners.moves import Moves
from gp_mapping.planning.problem import default_mix, mix_of_rest
from gp_mapping.planning.worth.leg_exchange import LegExchange
from gp_mapping.planning.worth.path_value import Visits


def keys_of(stops) -> list[tuple[int, int]]:
    return [(min(a, b), max(a, b)) for a, b in pairwise(stops)]


def brings(problem, keys) -> float:
    """What these legs bring, by the sums over the whole route."""
    legs = ApproximateLegs.for_travel(problem.travel).for_pairs(keys)
    places, weights, scale = (
        torch.from_numpy(np.concatenate(part))
        for part in zip(
            *((leg.places, leg.weights, np.full(len(leg.places), leg.scale)) for leg in legs)
        )
    )
    return float(problem.value.gains([Visits(places, weights, scale)])[0].sum())


def test_an_exchange_of_legs_is_worth_what_the_whole_routes_say():
    """Legs left out, put in, driven twice, all of them others: to 1e-8 of what the route brings."""
    problem = problem_in(4, 60, 200)
    rng = np.random.default_rng(2)
    stops = [
        problem.start,
        *problem.travel.places[rng.choice(len(problem.travel), 9, replace=False)].tolist(),
    ]
    glances, exchange = ApproximateLegs.for_travel(problem.travel), LegExchange(problem.value)
    exchange.begin(keys_of(stops), glances.for_pairs(keys_of(stops)))
    whole = brings(problem, keys_of(stops))
    assert exchange.gain == pytest.approx(whole, rel=1e-8)
    others = [
        stops[:-1],
        stops[:3] + stops[4:],
        [*stops, stops[2], stops[1]],
        stops[:2] + stops[:2:-1],
        [stops[0], stops[5]],
        [*stops, *stops[:3]],
        [problem.start, *problem.travel.places[rng.choice(len(problem.travel), 5)].tolist()],
    ]
    for other in others:
        keys = keys_of(other)
        more = exchange.change(keys, dict(zip(keys, glances.for_pairs(keys))))
        assert more == pytest.approx(brings(problem, keys) - whole, abs=1e-8 * whole)

    visits = glances.for_pairs(keys_of(stops))
    path = Visits(
        *(
            torch.from_numpy(np.concatenate([getattr(leg, name) for leg in visits]))
            for name in ("places", "weights")
        ),
        torch.from_numpy(np.concatenate([np.full(len(leg.places), leg.scale) for leg in visits])),
    )
    np.testing.assert_allclose(
        exchange.remaining_gains, problem.value.remaining_gains(path).numpy(), rtol=1e-6
    )


def test_exchange_after_exchange_matrices_are_those_of_the_route_that_is_left(monkeypatch):
    """120 moves of every size, legs twice and without length: as if each route were the first, to 1e-8."""
    problem = problem_in(4, 60, 200)
    rng = np.random.default_rng(5)
    glances, exchange = ApproximateLegs.for_travel(problem.travel), LegExchange(problem.value)

    def legs_of(stops):
        keys = keys_of(stops)
        return keys, dict(zip(keys, glances.for_pairs(keys)))

    def random(count):
        return problem.travel.places[rng.choice(len(problem.travel), count)].tolist()

    stops = [problem.start, *random(14)]
    keys, legs = legs_of(stops)
    exchange.begin(keys, [legs[key] for key in keys])
    begun = []
    monkeypatch.setattr(
        exchange, "begin", lambda *args: (begun.append(args), LegExchange.begin(exchange, *args))
    )
    for i in range(120):
        kind, at = rng.integers(4), int(rng.integers(1, len(stops)))
        if kind == 0 and len(stops) > 8:
            stops = stops[:at] + stops[at + 1 :]
        elif kind == 1 and len(stops) < 22:
            stops = [*stops[:at], *random(1 + (i % 5 == 0)), *stops[at:]]
        elif kind == 2:
            stops = [*stops[:at], stops[at - 1], *stops[at + 1 :]]
        else:
            stops = [*stops[:at], *random(1), *stops[at + 1 :]]
        keys, legs = legs_of(stops)
        exchange.move_to(keys, legs)
        if i % 10 < 9:
            continue
        whole = brings(problem, keys)
        assert exchange.keys == keys
        assert exchange.gain == pytest.approx(whole, rel=1e-8)
        anew = LegExchange(problem.value)
        anew.begin(keys, [legs[key] for key in keys])
        np.testing.assert_allclose(exchange.remaining_gains, anew.remaining_gains, rtol=1e-6)
        other, known = legs_of([*stops[:4], *random(2), *stops[5:]])
        assert exchange.change(other, legs | known) == pytest.approx(
            brings(problem, other) - whole, abs=1e-8 * whole
        )
    assert 0 < len(begun) < 40, "most moves do not begin anew"


def test_a_way_at_a_glance_is_hardly_longer_than_the_real_one_and_measures_as_much():
    problem = problem_in(4, 60, 200)
    travel: Travel = problem.travel
    pairs = [
        tuple(sorted(pair))
        for pair in np.random.default_rng(0).choice(travel.places, (150, 2)).tolist()
    ]
    for (a, b), seen in zip(pairs, ApproximateLegs.for_travel(travel).for_pairs(pairs)):
        leg = travel.leg(a, b)
        assert (
            leg.metres * 0.97 <= seen.metres <= 1.06 * leg.metres + 1e-9
        )  # a corner cut by less than a cell at most
        if a != b:
            assert len(seen.places) == pytest.approx(len(travel.visits([leg])[0]), abs=1)
            assert len(seen.places) * travel.step / seen.scale == pytest.approx(seen.metres)


@functools.cache
def searched(seed: int):
    """A problem among walls, the lanes to start from, and the routes of 600 steps from there."""
    problem = problem_in(seed, 60, 250, budget=Budget(24.0))
    *_, start = lanes(problem)
    *_, found = annealed(problem, start, 600)
    return problem, start, found


@pytest.mark.parametrize("seed", [2, 6])
def test_annealing_finds_what_single_moves_do_not(seed):
    """Among walls it leaves a tenth less than the best lanes that it starts from, the same for the same seed."""
    problem, start, found = searched(seed)
    rating = problem.rate([start])[0]
    *_, again = annealed(replace(problem, _known={}), start, 600)
    assert found == again
    assert 1.0 - max(problem.rate(found)) < 0.9 * (1.0 - rating)


def test_metres_have_a_price_that_falls_to_nothing():
    """A search that pays nothing for them leaves more of the variance, in the mean of four rooms."""
    left = []
    for seed in (1, 2, 4, 6):
        problem, start, found = searched(seed)
        rating = problem.rate([start])[0]
        left.append((1.0 - max(problem.rate(found))) / (1.0 - rating))
    assert np.mean(left) < 0.77


def test_a_metre_costs_what_the_route_takes_of_the_logarithm_of_the_variance_for_each():
    problem = problem_in(2, budget=Budget(24.0))
    total = problem.value.total
    metre_cost = cost_per_metre(problem, 0.9 * total)
    assert metre_cost == pytest.approx(0.1 * total * np.log(10.0) / 24.0)
    assert cost_per_metre(
        replace(problem, budget=Budget(np.inf, 24.0, speed=0.5), _known={}), 0.9 * total
    ) == pytest.approx(2.0 * metre_cost)
    assert cost_per_metre(problem, 0.0) == cost_per_metre(problem, total) == 0.0


def test_a_stop_is_shifted_to_any_node_that_is_not_left_out():
    problem = problem_in(2, 60, 250, budget=Budget(24.0))
    travel = problem.travel
    closed = np.zeros(len(travel.nodes), dtype=bool)
    closed[::3] = True
    moves = Moves(replace(problem, closed=closed, _known={}))
    at = int(travel.places[len(travel.places) // 2])
    shifted = {moves.shifted(at) for _ in range(300)}
    assert len(shifted - set(travel.places.tolist())) > 20, "not only to places"
    assert not closed[list(shifted)].any()
    assert (
        np.hypot(*(travel.nodes[list(shifted)] - travel.nodes[at]).T).max()
        < 2.0 * travel.spacing + 0.11
    )


@pytest.mark.parametrize("home", [False, True])
def test_a_stop_is_put_in_where_the_way_gets_longer_by_least(home):
    """As the crow flies, before any of the others, after them, or before the way home; going back is no repeat."""
    problem = problem_in(2, 30, 60)
    nodes = problem.travel.nodes
    if home:
        problem = replace(
            problem, budget=Budget(100.0, home=tuple(nodes[problem.start])), _known={}
        )
    moves = Moves(replace(problem, horizon=100.0, _known={}))
    order = np.hypot(*(problem.travel.xy - problem.position).T).argsort()
    near, far = problem.travel.places[order[[len(order) // 2, -1]]].tolist()
    stops = (near, far, near)
    ends = [nodes[[problem.start]]] if home else []

    def metres(route) -> float:
        return np.hypot(
            *np.diff(np.vstack([problem.position[None], nodes[list(route)], *ends]), axis=0).T
        ).sum()

    where = set()
    for found in (moves.propose(stops) for _ in range(300)):
        at = next(
            (i for i in range(4) if len(found) == 4 and found[:i] + found[i + 1 :] == stops), None
        )
        if at is not None:
            where.add(at)
            others = [(*stops[:i], found[at], *stops[i:]) for i in range(4)]
            assert metres(found) <= min(map(metres, others)) + 1e-9
    assert where >= ({1} if home else {1, 3}), where
    twice = [moves.propose((near, near, far, far)) for _ in range(50)]
    assert all(a != b for found in twice for a, b in pairwise(found))


def test_a_stop_is_shifted_to_a_neighbour_also_where_a_node_stands_for_a_block():
    """Its neighbours are a block away: a shift by less would leave it where it is."""
    problem = problem_in(5, 60, 250, nodes=300)
    travel = problem.travel
    assert travel.block == 3
    moves, at = Moves(problem), int(travel.places[len(travel.places) // 2])
    assert np.mean([moves.shifted(at) == at for _ in range(200)]) < 0.2


def test_with_a_budget_a_route_knows_all_of_an_open_room_sooner_and_as_well_in_the_end():
    """A little weight on how soon it brings it (the usual mix) makes two passes of one, at no cost in the end."""
    free = FreeSpace.from_occupancy_grid(occupancy(np.zeros((70, 70))), 0.2)
    here = free.centres()[0]
    area = SurveyArea.from_free_space(free, here, max_cells=400)
    travel = Travel(area.free, 0.3, 300)
    field = measured_at(here)
    budget = Budget(70.0)
    late = Problem(
        PathValue.from_map(field, travel.xy, area.cells, area.areas),
        travel,
        here,
        budget=budget,
        effort=32,
    )
    soon = replace(late, mix=default_mix(budget), _known={})
    routes = [plan(problem, "route").nodes for problem in (late, soon)]
    left, area_under = (
        1.0 - np.array(replace(late, mix=mix, _known={}).rate(routes)) for mix in (0.0, 1.0)
    )
    assert area_under[1] < 0.85 * area_under[0]
    assert left[1] < 1.1 * left[0]


@pytest.mark.parametrize("spent", [0.0, 0.3, 0.9])
def test_the_rest_of_a_survey_is_rated_as_all_of_it_was(spent):
    """What is measured at a share s of the rest weighs the same as when all of it was planned, but for one factor."""
    s = np.linspace(0.0, 1.0, 11)
    for mix in (0.0, 0.1, 1.0):
        of_all = 1.0 - mix * (spent + (1.0 - spent) * s)
        np.testing.assert_allclose(
            of_all, of_all[0] * (1.0 - mix_of_rest(mix, spent) * s), atol=1e-12
        )
    assert mix_of_rest(0.1, 1.0) == 0.0

"""Neighbours of a route: of which kind, where, how long; and what annealing makes of them."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from floor_scene import node, problem_in, travel_in

from gp_mapping.planning.area.approximate_legs import ApproximateLegs
from gp_mapping.planning.budget import Budget
from gp_mapping.planning.planners import annealing
from gp_mapping.planning.planners.annealing import annealed, cost_per_metre
from gp_mapping.planning.planners.moves import Moves


@pytest.fixture(scope="module")
def travel():
    return travel_in()


def straight(problem, stops):
    ends = [] if problem.home is None else [problem.travel.nodes[problem.home]]
    x = np.vstack([problem.position, problem.travel.nodes[list(stops)], *ends])
    return np.hypot(*np.diff(x, axis=0).T).sum()


@pytest.mark.parametrize("home", [None, (0.45, 0.45)])
def test_a_neighbour_has_one_stop_more_or_less_or_elsewhere(travel, home):
    problem = problem_in(travel, budget=Budget(1000.0, home=home))
    stops = tuple(node(travel, *at) for at in ((2.45, 0.45), (3.45, 1.45), (2.45, 2.45)))
    moves, kinds, inserted = Moves(problem), {-1: 0, 0: 0, 1: 0}, 0
    shifted = 0
    for _ in range(2000):
        new = moves.propose(stops)
        kinds[len(new) - 3] += 1
        if len(new) == 4:
            (stop,) = [s for s in new if s not in stops] or [None]
            if stop is None:
                continue
            assert tuple(s for s in new if s != stop) == stops and stop in travel.places
            at = new.index(stop)
            lengths = [straight(problem, (*stops[:i], stop, *stops[i:])) for i in range(4)]
            assert lengths[at] == pytest.approx(min(lengths))
            inserted += 1
        elif len(new) == 2:
            assert all(s in stops for s in new)
        elif sum(a == b for a, b in zip(new, stops)) == 2:
            (i,) = [i for i in range(3) if new[i] != stops[i]]
            away = math.dist(travel.nodes[new[i]], travel.nodes[stops[i]])
            shifted += away <= 0.1 + 2.0 * travel.spacing
    # by their shares: 5 of 16 insertions, 2 of 16 removals
    assert kinds[1] == pytest.approx(2000 * 5 / 16, rel=0.15) and inserted > 400
    assert kinds[-1] == pytest.approx(2000 * 2 / 16, rel=0.25)
    assert shifted > 2000 * 0.3
    assert [Moves(problem).propose(stops) for _ in range(3)] == [Moves(problem).propose(stops)] * 3


def test_new_stops_are_where_most_is_left_to_gain(travel):
    problem = problem_in(travel)
    stops = (node(travel, 2.45, 0.45), node(travel, 3.45, 1.45))
    gain = np.zeros(len(travel))
    wanted = int(travel.places[17])
    gain[17] = 1e-30

    def new_stops(moves):
        found = [moves.propose(stops) for _ in range(300)]
        return [s for new in found if len(new) == 3 for s in new if s not in stops]

    moves = Moves(problem)
    plain = new_stops(moves)
    assert len(set(plain)) > 20, "any of them"
    moves.prefer_gain(gain)
    assert len(new_stops(moves)) > 40 and set(new_stops(moves)) == {wanted}
    moves.prefer_gain(np.zeros(len(travel)))  # nothing is left anywhere: as before
    assert set(new_stops(moves)) == {wanted}
    # by the square: three times the gain is nine times as likely; what is negative never
    gain[:] = -1.0
    gain[[3, 40]] = 1.0, 3.0
    moves.prefer_gain(gain)
    found = [s for _ in range(8) for s in new_stops(moves)]
    ratio = found.count(travel.places[40]) / max(found.count(travel.places[3]), 1)
    assert 5.0 < ratio < 16.0 and len(set(found)) == 2


def test_closed_nodes_are_none_of_them(travel):
    closed = travel.nodes[:, 0] > 2.0
    problem = problem_in(travel, closed=closed)
    moves, stops = Moves(problem), (node(travel, 1.85, 1.45), node(travel, 0.85, 2.45))
    for _ in range(300):
        assert not closed[list(moves.propose(stops))].any()
    everything = problem_in(travel, closed=np.isin(np.arange(len(travel.nodes)), travel.places))
    moves = Moves(everything)
    found = [moves.propose(stops) for _ in range(200)]
    new = {s for each in found for s in each} - set(stops)
    assert not new & set(travel.places.tolist())
    more = {s for each in found if len(each) == 3 for s in each} - set(stops)
    assert len(more) > 20, "any of the others"


@pytest.mark.parametrize("aside", [0, 1, 3])
def test_what_is_left_out_of_a_route_that_is_too_long_is_a_long_detour(travel, aside):
    """No other stop makes it half as much longer: so it is that one, whatever the randomness."""
    line = [(1.45, 0.45), (2.15, 0.45), (2.85, 0.45), (3.55, 0.45)]
    line[aside] = (line[aside][0], 2.75)
    stops = tuple(node(travel, *at) for at in line)
    length = straight(problem_in(travel), stops)
    moves = Moves(problem_in(travel, budget=Budget(length - 0.5)))
    rest = tuple(stop for stop in stops if stop != stops[aside])
    assert {moves._fitting(list(stops)) for _ in range(30)} == {rest}  # noqa: SLF001


@pytest.mark.parametrize("budget", [Budget(6.0), Budget(seconds=20.0)])
def test_what_is_clearly_too_long_is_shortened(travel, budget):
    problem = problem_in(travel, budget=budget)
    stops = tuple(node(travel, *at) for at in ((3.4, 0.4), (0.4, 2.4), (3.4, 2.4), (0.4, 1.4)))
    moves, longest = Moves(problem), min(budget.metres, budget.seconds * budget.speed)
    new = [moves.propose(stops) for _ in range(300)]
    assert all(straight(problem, s) <= longest or len(s) == 1 for s in new)
    assert max(straight(problem, s) for s in new if len(s) > 1) > 0.7 * longest
    # where ways wind, straight lines may only be as much shorter
    moves.learn_winding(stops, 2.0 * straight(problem, stops))
    new = [moves.propose(stops) for _ in range(300)]
    assert all(straight(problem, s) <= 0.5 * longest or len(s) == 1 for s in new)
    moves.learn_winding(stops, 0.5 * straight(problem, stops))
    assert max(straight(problem, s) for s in [moves.propose(stops) for _ in range(300)]) <= longest
    moves.learn_winding(stops, 0.0)


def test_a_metre_costs_what_it_would_take_off(travel):
    problem = problem_in(travel, budget=Budget(8.0))
    total = problem.value.total
    assert cost_per_metre(problem, 0.75 * total) == pytest.approx(
        0.25 * total * math.log(4.0) / 8.0
    )
    timed = problem_in(travel, budget=Budget(seconds=20.0))
    assert cost_per_metre(timed, 0.75 * total) == pytest.approx(0.25 * total * math.log(4.0) / 6.0)
    for gain in (0.0, total):
        assert cost_per_metre(problem, gain) == 0.0
    assert cost_per_metre(problem_in(travel, budget=Budget(0.0)), 0.5 * total) == 0.0


@pytest.mark.parametrize("budget", [Budget(9.0), Budget(seconds=40.0, turn_rate=0.7)])
def test_annealing_ends_with_better_routes_that_fit(travel, budget):
    problem = problem_in(travel, budget=budget)
    start = (node(travel, 1.45, 0.45),)
    before = problem.rate_both([start])[0][0]
    *_, routes = annealed(problem, start, 300)
    gains = [gain for gain, _ in problem.rate_both(routes)]
    assert 1 <= len(routes) <= 4 and start not in routes
    assert min(g for g in gains if g > 0) > before and gains[0] > 2.0 * before
    # they are rated by approximate ways: the best first, but for little
    assert gains[0] > 0.97 * max(gains)
    # the first matrices, what they say of where to look, and eight proposals at a time
    # and what is learned of a route that was taken
    assert 2 + 3 <= len(list(annealed(problem, start, 20))) <= 2 + 3 + 3


def test_annealing_learns_of_each_route_that_it_takes_and_of_each_tenth_where_there_is_more(
    travel, monkeypatch
):
    """By its length from where the robot is, which is beside the node that it begins at."""
    told, asked = [], []

    class Noted(Moves):
        def learn_winding(self, stops, metres):
            told.append((stops, metres))
            super().learn_winding(stops, metres)

        def prefer_gain(self, gains):
            asked.append(len(told))
            super().prefer_gain(gains)

    monkeypatch.setattr(annealing, "Moves", Noted)
    problem = problem_in(travel, budget=Budget(9.0))
    problem = replace(problem, position=np.add(problem.position, (0.03, 0.0)), _known={})
    start = (node(travel, 1.45, 0.45),)
    steps, taken = len(list(annealed(problem, start, 300, heat=0.5))), len(told) - 1
    assert taken > 20 and steps == 2 + math.ceil(300 / 8) + taken
    assert asked == list(range(0, len(told), 10))
    off = math.dist(problem.position, travel.nodes[problem.start])
    ways = ApproximateLegs.for_travel(travel)
    for stops, metres in told:
        keys = [(min(a, b), max(a, b)) for a, b in pairwise([problem.start, *stops])]
        assert metres == pytest.approx(off + sum(leg.metres for leg in ways.for_pairs(keys)))
    assert off > 0.0 and told[0][0] == start


def test_the_temperature_falls_with_the_square_of_what_remains_and_a_metre_costs_as_much(
    travel, monkeypatch
):
    problem, seen, step = problem_in(travel, budget=Budget(9.0)), [], annealing._Search.step  # noqa: SLF001

    def told(search, proposed, heat, cost):
        left = problem.value.total - search.gain
        seen.append((len(proposed), heat, cost / cost_per_metre(problem, search.gain), left))
        return step(search, proposed, heat, cost)

    monkeypatch.setattr(annealing._Search, "step", told)  # noqa: SLF001  what the real one is told
    start = (node(travel, 1.45, 0.45),)
    list(annealed(problem, start, 20, heat=0.5))
    count, heat, cost, left = np.array(seen).T
    remaining = np.array([1.0, 12 / 20, 4 / 20])
    assert count.tolist() == [8, 8, 4] and cost == pytest.approx(remaining)
    assert heat == pytest.approx(0.5 * left[0] * remaining**2)

"""Plans: within the budget with home in reach all the way, never through a wall, the same for the same question."""

import math
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from rooms import every_two_centimetres, free_room, measured_at, somewhere

from gp_mapping.planning import (
    Budget,
    PathValue,
    Problem,
    SurveyArea,
    Travel,
    after_driving,
    allot,
    plan,
    plan_steps,
    planner_names,
    register,
)
from gp_mapping.planning.plan import Plan, after_measuring_at, plan_through
from gp_mapping.planning.planners.greedy import greedy
from gp_mapping.planning.planners.lanes import _pieces, fitted, lane_routes
from gp_mapping.planning.registry import GROUP, find_planner

KINDS = (
    "gain_per_metre",
    "lanes",
    "route",
    "variance",
    "integrated_variance",
    "ucb",
    "expected_improvement",
)


def problem_in(
    world: int, side: int = 50, places: int = 150, nodes: int = 8000, **settings
) -> Problem:
    """A robot in a random room that has measured where it stands."""
    free = free_room(world, side=side)
    here = somewhere(free, world)
    area = SurveyArea.from_free_space(free, here, max_cells=400)
    here = area.free.centres()[np.hypot(*(area.free.centres() - here).T).argmin()]
    travel = Travel(area.free, 0.3, places, nodes)
    field = measured_at(here)
    told = field.predict(torch.from_numpy(travel.xy))
    value = PathValue.from_map(field, travel.xy, area.cells, area.areas)
    return Problem(
        value,
        travel,
        here,
        **{"mean": told.mean[:, 0], "stddev": told.stddev[:, 0], "effort": 60} | settings,
    )


def check_drivable(problem: Problem, found) -> None:
    """Through free space only, as long as it says, within the budget, with home in reach at every point."""
    free, budget = problem.travel.free, problem.budget
    np.testing.assert_allclose(found.line[0], problem.position)
    assert bool(free.allows(torch.from_numpy(every_two_centimetres(found.line))).all())
    pieces = np.hypot(*np.diff(found.line, axis=0).T)
    assert found.metres == pytest.approx(pieces.sum())
    assert budget.allows(found.metres, found.seconds)
    if budget.home is None:
        return
    np.testing.assert_allclose(found.line[-1], problem.travel.nodes[problem.home])
    away = problem.travel.distances(problem.home)
    for corner, driven in zip(found.line, np.concatenate([[0.0], np.cumsum(pieces)])):
        node = problem.travel.locate(corner)
        # a way home is not longer than the rest of the plan, which is one: the hard constraint for every prefix
        back = min(away[node], found.metres - driven)
        assert driven + back <= budget.metres + 1e-9


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_home_is_in_reach_in_two_hundred_random_maps(first):
    kinds = ("route", "lanes", "gain_per_metre", "integrated_variance")
    planned = 0
    for seed in range(first, first + 20):
        rng = np.random.default_rng(seed)
        problem = problem_in(seed, 26, 30, effort=10, seed=seed)
        nodes = problem.travel.nodes
        home = nodes[rng.integers(len(nodes))]
        metres = rng.uniform(2.0, 8.0)
        budget = Budget(metres, rng.choice([math.inf, 6.0 * metres]), home=tuple(home))
        problem = replace(problem, budget=budget, heading=rng.uniform(-3, 3), _known={})
        found = plan(problem, kinds[seed % 4])
        if found:
            planned += 1
            check_drivable(problem, found)
        else:
            assert found.reason and (problem.obstacle() or "nothing is left" in found.reason)
    assert planned >= 12


@pytest.mark.parametrize("kind", KINDS)
def test_every_planner_drives_through_free_space_and_is_repeatable(kind):
    problem = problem_in(3, budget=Budget(14.0))
    found, again = plan(problem, kind), plan(replace(problem_in(3, budget=Budget(14.0))), kind)
    check_drivable(problem, found)
    np.testing.assert_array_equal(found.line, again.line)
    np.testing.assert_array_equal(found.gains, again.gains)
    assert found.kind == kind and found.stddev_then < found.stddev_now
    assert found.gains.min() > 0 and len(found.gains) == len(found.visits) == len(found.marks)


def test_time_with_turns_is_a_budget_of_its_own():
    slow = problem_in(4, effort=20, budget=Budget(seconds=60.0, speed=0.3, turn_rate=0.5))
    found = plan(slow, "route")
    headings = np.arctan2(*np.diff(found.line, axis=0).T[::-1])
    turned = np.abs(np.remainder(np.diff(headings) + np.pi, 2 * np.pi) - np.pi).sum()
    assert found.seconds == pytest.approx(found.metres / 0.3 + turned / 0.5, rel=1e-6)
    assert 45.0 < found.seconds <= 60.0 + 1e-9
    at_once = replace(slow, budget=replace(slow.budget, turn_rate=50.0), _known={})
    quick = plan(at_once, "route")
    assert quick.metres > found.metres


@pytest.mark.parametrize("seed", [1, 5, 9, 13])
def test_a_route_is_never_worse_than_its_seeds(seed):
    problem = problem_in(seed, 60, 250, budget=Budget(20.0), effort=60)
    stops = plan(problem, "route").nodes
    *_, first = greedy(problem)
    seeds = [fitted(problem, lanes) for lanes in lane_routes(problem)] + [first]
    found, *others = problem.rate([stops, *seeds])
    assert found >= max(others) and found > 1.02 * others[-1]


@pytest.mark.parametrize("seed", [1, 5, 9])
def test_looking_for_what_is_near_first_chooses_as_looking_everywhere(seed, monkeypatch):
    problem = problem_in(seed, 60, 250, budget=Budget(20.0), mix=0.1)

    def chosen():
        anew = replace(problem, travel=Travel(problem.travel.free, 0.3, 250), _known={})
        return [*greedy(anew)], [*lane_routes(anew)]

    near = chosen()
    everywhere = Travel.distances
    monkeypatch.setattr(
        Travel, "distances", lambda self, node, within=math.inf: everywhere(self, node)
    )
    assert near == chosen() and len(near[0]) > 5 and any(near[1])


def test_what_fits_is_what_can_be_driven_within_the_limit():
    problem = problem_in(4, budget=Budget(12.0, 70.0), heading=0.3)
    problem = replace(
        problem, budget=replace(problem.budget, home=tuple(problem.position)), _known={}
    )
    fits = []
    for stops in lane_routes(problem):
        for count in range(len(stops) + 1):
            fits.append(problem.fitting(stops[:count]) == count)
            assert fits[-1] == problem.feasible(problem.drive(stops[:count]))
    assert any(fits) and not all(fits)


def test_the_old_route_stays_unless_the_new_one_is_clearly_better():
    problem = problem_in(2, budget=Budget(12.0), effort=200)
    first = plan(problem, "route")
    again = plan(replace(problem, old=first.nodes, seed=7, _known={}), "route")
    assert again.nodes == first.nodes, "a plan that is hardly better is not worth a change of mind"
    poor = tuple(problem.travel.places[:2].tolist())
    better = plan(replace(problem, old=poor, _known={}), "route")
    assert better.nodes != poor
    unreachable = replace(problem, old=(10**6, -4, *first.nodes), _known={})
    known = plan(replace(problem, old=first.nodes, _known={}), "route")
    assert plan(unreachable, "route").nodes == known.nodes, "nodes of another area are left out"


@pytest.mark.parametrize("aside", [0.0, 0.03, -0.03])
@pytest.mark.parametrize(
    "line",
    [
        [(0, 0), (3, 0), (0, 0)],
        [(0, 0), (2, 0), (2, 0.04), (0, 0.04), (0, 1)],
        [(0, 0), (2, 2), (2, 0), (0, 2)],
        [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0)],
    ],
)
def test_progress_goes_on_into_a_dead_end_and_out_again(line, aside):
    """Each place of the way in lies on the way out, too: what was driven tells which it is."""
    line = np.array(line, dtype=np.float64)
    ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    found, at, before = Plan("route", line=line, metres=float(ends[-1])), 0.0, line[0]
    for mark in np.arange(0.05, ends[-1], 0.05):
        place = np.array([np.interp(mark, ends, line[:, i]) for i in (0, 1)]) + np.array(
            [0.0, aside]
        )
        at = found.progress(place, max(0.0, at - 0.1), 2.0, at + math.dist(place, before))
        before = place
        assert at == pytest.approx(mark, abs=0.16)


def test_passed_waypoints_are_dropped():
    problem = problem_in(2, budget=Budget(12.0))
    found = plan(problem, "route")
    at = 0.0
    for metres in np.arange(0.0, found.metres, 0.5):
        place = found.line_ahead(metres)[0]
        at = found.progress(place, at)
        assert at == pytest.approx(metres, abs=0.05)
        assert len(found.stops_ahead(at)) == sum(
            mark > at + 1e-6 for mark in found.stop_marks[: len(found.nodes)]
        )
    assert found.stops_ahead(found.metres) == () and len(found.line_ahead(found.metres)) == 1
    here = found.line_ahead(5.0)[0]
    value = problem.value.after_measuring(
        problem.travel.visits(
            [problem.travel.leg_along(np.vstack([found.line[:1], found.line_ahead(0.0)[1:]]))]
        )[0]
    )
    ahead = replace(
        problem,
        value=value,
        position=here,
        old=found.stops_ahead(5.0),
        budget=Budget(7.0),
        _known={},
    )
    rest = plan(ahead, "route")
    passed = found.stops[found.stop_marks < 5.0]
    assert all(np.hypot(*(rest.stops - stop).T).min() > 0.05 for stop in passed)


def test_closed_places_are_no_goals():
    problem = problem_in(6, budget=Budget(10.0))
    target = plan(problem, "gain_per_metre").stops[0]
    closed = np.hypot(*(problem.travel.nodes - target).T) < 0.8
    for kind in ("gain_per_metre", "route", "lanes"):
        found = plan(replace(problem, closed=closed, _known={}), kind)
        assert (np.hypot(*(found.stops - target).T) >= 0.8 - 1e-9).all()
    everywhere = plan(
        replace(problem, closed=np.ones(len(closed), dtype=bool), _known={}), "gain_per_metre"
    )
    assert not everywhere and "nothing is left" in everywhere.reason


@pytest.mark.parametrize("mix", [0.0, 1.0])
def test_where_every_place_is_closed_stops_are_what_lies_between(mix):
    """As around a goal that was not reached, in a small room: other nodes are open, and ways lead there."""
    problem = problem_in(6, 30, 30, budget=Budget(6.0), mix=mix, effort=30)
    closed = np.zeros(len(problem.travel.nodes), dtype=bool)
    closed[problem.travel.places] = True
    found = plan(replace(problem, closed=closed, _known={}), "route")
    assert found and not closed[list(found.nodes)].any()
    check_drivable(problem, found)


def test_permuting_places_changes_no_single_choice():
    problem = problem_in(8)
    travel = Travel(problem.travel.free, 0.3, 150)
    order = np.random.default_rng(0).permutation(len(travel))
    travel.places, travel.xy = travel.places[order], travel.xy[order]
    travel._places_tree = type(travel._places_tree)(travel.xy)
    index = torch.from_numpy(order)
    value = replace(
        problem.value,
        C=problem.value.C[index][:, index],
        S=problem.value.S[index][:, index],
        noise=problem.value.noise[index],
    )
    other = replace(
        problem,
        value=value,
        travel=travel,
        mean=problem.mean[index],
        stddev=problem.stddev[index],
        _known={},
    )
    for kind in ("gain_per_metre", "variance", "integrated_variance"):
        np.testing.assert_allclose(plan(other, kind).line, plan(problem, kind).line)


def test_robots_that_share_plans_drive_apart():
    problem = problem_in(0, 60, 250, effort=20)
    starts = problem.travel.xy[[0, 1, 2]]
    problems = [replace(problem, position=x, budget=Budget(9.0), _known={}) for x in starts]
    together, alone = allot(problems), [plan(p, "route") for p in problems]

    def left(plans):
        return after_driving(problem.value, problem.travel, [p.line for p in plans]).total

    def near(plans):
        return np.mean(
            [
                (np.hypot(*(a.visits[:, None] - b.visits).transpose(2, 0, 1)).min(1) < 0.4).mean()
                for i, a in enumerate(plans)
                for b in plans[i + 1 :]
            ]
        )

    assert near(together) < 0.6 * near(alone)
    assert left(together) < 0.9 * left(alone)
    with pytest.raises(ValueError, match="the same places"):
        allot([problems[0], problem_in(1, 60, 200)])
    assert allot([]) == []


def test_a_straight_line_of_another_robot_counts_as_the_same_with_a_point_in_it():
    problem = problem_in(0, 30, 60)
    a, b = problem.travel.xy[[2, 9]]
    left = [
        after_driving(problem.value, problem.travel, [line]).total
        for line in ([a, b], [a, 0.5 * (a + b), b])
    ]
    assert left[0] == pytest.approx(left[1]) and left[0] < 0.99 * problem.value.total
    assert after_driving(problem.value, problem.travel, [[a]]).total == problem.value.total
    assert after_measuring_at(problem.value, problem.travel, np.zeros((0, 2))) is problem.value


def test_lanes_are_as_many_as_the_limit_pays_for_were_it_one_along_the_middle():
    problem = problem_in(3, 30, 60, budget=Budget(3.0))
    x = problem.travel.nodes
    ends = [x[list(stops)] for stops in lane_routes(problem) if len(stops) == 2]
    assert len(ends) == 1 and np.ptp(ends[0][:, 0]) > 0.9
    np.testing.assert_allclose([end[:, 1] for end in ends], 0.5 * (x[:, 1].min() + x[:, 1].max()))


def test_however_often_lanes_are_asked_for_no_more_is_kept_of_them():
    """The robot begins somewhere else each time."""
    problem = problem_in(5, 30, 60, budget=Budget(8.0))
    travel = problem.travel
    rng, reached = np.random.default_rng(0), travel.reachable(problem.start)
    pieces = _pieces(travel, 0.0, float(travel.nodes[:, 1].min()), 0.8, 3, 0.0)
    for node in rng.choice(np.flatnonzero(reached), 200, replace=False).tolist():
        pieces.joined(node, reached)
    assert len(pieces._away) <= pieces.ends.size + 20


def test_where_a_lane_is_as_short_as_a_place_it_is_one_stop():
    pieces = [pair for stops in lane_routes(problem_in(10, 30, 60, 60)) for pair in pairwise(stops)]
    assert len(pieces) > 100 and all(a != b for a, b in pieces)


def test_horizon_ends_what_no_budget_does():
    found = plan(problem_in(5, horizon=6.0, mix=1.0), "route")
    assert 4.0 < found.metres <= 6.0
    far = plan(problem_in(5, horizon=0.5), "variance")
    assert far.metres > 0.5, "one stop may be farther than a route looks ahead"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"position": np.array([40.0, 40.0])},
            "(40.00, 40.00) m stands where the free space leaves it no room",
        ),
        ({"budget": Budget(10.0, home=(40.0, 40.0))}, "no way leads from the robot"),
        ({"budget": Budget(0.1, home=None)}, "nothing is left to measure within the budget"),
    ],
)
def test_what_cannot_be_planned_is_said(changes, words):
    found = plan(replace(problem_in(7), **changes, _known={}), "route")
    assert not found and words in found.reason and len(found.line) == 0
    assert (
        found.poses(0.3)[0].shape == (0, 2)
        and found.stops_ahead(0.0) == ()
        and found.progress((0, 0)) == 0.0
    )


def test_a_budget_that_does_not_reach_home_is_said_with_its_length():
    problem = problem_in(7)
    far = problem.travel.nodes[problem.travel.distances(problem.start).argmax()]
    found = plan(replace(problem, budget=Budget(1.0, home=tuple(far)), _known={}), "route")
    assert not found and "the way home takes" in found.reason
    assert found.reason.endswith(" s, and 1.0 m are left")


def test_a_line_before_a_plan_takes_its_metres_and_its_seconds():
    """Of what is cut off again no more is left than there was before."""
    found = plan(problem_in(5, budget=Budget(8.0)), "route")
    line = np.stack([found.line[0] + (0.0, 3.0), found.line[0]])
    led = found.with_lead(line, 12.0)
    assert (led.metres, led.seconds) == (found.metres + 3.0, found.seconds + 12.0)
    rest = led.plan_ahead(3.0)
    np.testing.assert_allclose(rest.line, found.line)
    assert rest.seconds == pytest.approx(led.seconds * found.metres / led.metres)


def test_poses_are_dense_and_head_along_the_line():
    found = plan(problem_in(5, budget=Budget(8.0)), "route")
    x, headings = found.poses(0.25)
    gaps = np.hypot(*np.diff(x, axis=0).T)
    assert gaps.max() <= 0.25 + 1e-9 and gaps.sum() == pytest.approx(found.metres)
    np.testing.assert_allclose(
        np.stack([np.cos(headings[:-1]), np.sin(headings[:-1])], 1) * gaps[:, None],
        np.diff(x, axis=0),
        atol=1e-9,
    )


def test_planners_of_others_by_name_and_by_entry_point(tmp_path, monkeypatch):
    assert set(KINDS) <= set(planner_names())

    def nearest(problem):
        yield (
            int(
                problem.travel.places[np.hypot(*(problem.travel.xy - problem.position).T).argmax()]
            ),
        )

    register("farthest_test", nearest)
    problem = problem_in(5)
    assert plan(problem, "farthest_test").metres > 1.0
    with pytest.raises(ValueError, match="registered already"):
        register("route", nearest)
    with pytest.raises(ValueError, match="expected a name of letters"):
        register("my planner", nearest)
    with pytest.raises(ValueError, match="'spiral' is not one of .*gain_per_metre"):
        find_planner("spiral")

    (tmp_path / "their_planner.py").write_text(
        "def stay(problem):\n    yield (int(problem.travel.places[3]),)\n"
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nstay = their_planner:stay\nbroken = their_planner:absent\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert {"stay", "broken"} <= set(planner_names())
    np.testing.assert_allclose(plan(problem, "stay").stops[0], problem.travel.xy[3])
    with pytest.raises(ValueError, match=r"'broken' of their_planner:absent cannot be loaded"):
        find_planner("broken")


def test_planning_comes_in_slices():
    problem = problem_in(10, 70, 450, budget=Budget(30.0), effort=100)
    slices, start = [], time.process_time()
    steps = plan_steps(problem, "route")
    while (found := next(steps)) is None:
        slices.append(time.process_time() - start)
        start = time.process_time()
    assert found and len(slices) > 8
    assert np.median(slices) < sum(slices) / 20


@pytest.mark.parametrize(("kind", "most"), [("route", 1000), ("lanes", 1)])
def test_between_two_slices_few_routes_are_rated(monkeypatch, kind, most):
    """Where places are many and ways long, each takes a large part of a tenth of a second."""
    problem = problem_in(10, 70, 450, budget=Budget(30.0), effort=4)
    rated, slices, rate = [0], [], Problem.rate_both

    def counted(self, routes):
        rated[0] += len(routes)
        return rate(self, routes)

    monkeypatch.setattr(Problem, "rate_both", counted)
    for _ in plan_steps(problem, kind):
        slices.append(rated[0])
        rated[0] = 0
    assert sum(slices) > 7
    assert max(slices) <= max(1, most // len(problem.value))


def test_how_much_of_a_budget_is_spent():
    """Of what ends it first; of nothing more than all is, at once."""
    metres, seconds = np.array([1.0, 2.0]), np.array([8.0, 16.0])
    with np.errstate(all="raise"):
        for budget, spent in (
            (Budget(4.0), [0.25, 0.5]),
            (Budget(4.0, 100.0), [0.25, 0.5]),
            (Budget(4.0, 10.0), [0.8, 1.6]),
            (Budget(4.0, 0.0), [math.inf] * 2),
        ):
            np.testing.assert_allclose(budget.fraction_spent(metres, seconds), spent)


@pytest.mark.parametrize("wrong", [{"mix": 2.0}, {"horizon": 0.0}, {"effort": 0}])
def test_wrong_questions_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        problem_in(5, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"metres": -1.0},
        {"seconds": math.nan},
        {"speed": 0.0},
        {"turn_rate": -1.0},
        {"home": (math.nan, 0.0)},
    ],
)
def test_wrong_budgets_are_refused(wrong):
    with pytest.raises(ValueError, match="expected"):
        Budget(**wrong)


def test_a_line_names_no_place_twice_in_a_row():
    """Not where the robot stands on a node, and not where the last stop is home."""
    free_one = problem_in(4, 40, 80)
    home = int(free_one.travel.places[5])
    at_home = Budget(20.0, home=tuple(free_one.travel.nodes[home]))
    problem = replace(free_one, budget=at_home, _known={})
    for stops in (
        (int(problem.travel.places[9]), home),
        (int(problem.travel.places[9]), home, home),
    ):
        way = plan_through(problem, "route", stops)
        assert np.hypot(*np.diff(way.line, axis=0).T).min() > 0.0
        assert len(way.stops) == len(way.nodes) + 1 == 2
        np.testing.assert_allclose(way.line[-1], problem.travel.nodes[home])

"""Ways: as short as a brute-force visibility graph says, never through a wall, past the places that they claim."""

import math

import numpy as np
import pytest
import torch
from planning_scene import occupancy
from rooms import every_two_centimetres, free_room, somewhere
from scipy.sparse.csgraph import dijkstra

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.area import travel as travel_module
from gp_mapping.planning.area.leg import angles_between
from gp_mapping.planning.area.survey_area import SurveyArea
from gp_mapping.planning.area.travel import Travel


def travel_in(seed: int, **settings) -> tuple[FreeSpace, Travel]:
    free = free_room(seed)
    area = SurveyArea.from_free_space(free, somewhere(free, seed))
    return area.free, Travel(area.free, **{"spacing": 0.3} | settings)


@pytest.mark.parametrize("seed", range(12))
def test_never_through_a_wall_nor_longer_than_the_grid(seed):
    free, travel = travel_in(seed)
    rng = np.random.default_rng(seed)
    for a, b in rng.choice(travel.places, (25, 2)):
        leg = travel.leg(a, b)
        assert bool(free.allows(torch.from_numpy(every_two_centimetres(leg.line))).all())
        np.testing.assert_array_equal(leg.line[[0, -1]], travel.nodes[[a, b]])
        straight = math.dist(*travel.nodes[[a, b]])
        assert straight - 1e-9 <= leg.metres <= travel.distances(a)[b] + 1e-9
        assert leg.metres == pytest.approx(
            sum(math.dist(p, q) for p, q in zip(leg.line, leg.line[1:]))
        )


def test_ways_are_nearly_the_shortest_there_are():
    """Against Dijkstra over the visibility of all nodes at once, which no corner escapes."""
    free, travel = travel_in(5)
    n = len(travel.nodes)
    rng = np.random.default_rng(0)
    some = rng.choice(n, 500, replace=False)
    x = travel.nodes[some]
    i, j = np.triu_indices(len(some), 1)
    length = np.full((len(some), len(some)), np.inf)
    seen = free.sees(x[i], x[j])
    length[i[seen], j[seen]] = np.hypot(*(x[i] - x[j])[seen].T)
    best = dijkstra(np.where(np.isfinite(length), length, 0.0), directed=False, indices=range(15))
    ratios = [
        travel.leg(some[a], some[b]).metres / best[a, b]
        for a in range(15)
        for b in range(40, 80)
        if best[a, b] > 0.5
    ]
    assert np.mean(ratios) < 1.01 and np.max(ratios) < 1.06


def test_sees_is_exactly_what_a_wall_leaves():
    data = np.zeros((40, 40))
    data[20, :18] = data[20, 23:] = 100  # a door of .5 m
    exact = FreeSpace.from_occupancy_grid(occupancy(data, 0.1), 0.24)
    assert exact.sees([(2.05, 1.0)], [(2.05, 3.0)])[0]
    assert not exact.sees([(1.8, 1.0)], [(2.3, 3.0)])[0]
    wide = FreeSpace.from_occupancy_grid(occupancy(data, 0.1), 0.26)
    assert not wide.sees([(2.05, 1.0)], [(2.05, 3.0)])[0]
    assert not exact.sees([(2.05, 1.0)], [(2.05, 9.0)])[0], "the outside is not open"
    rng = np.random.default_rng(0)
    free = free_room(7)
    a, b = (rng.uniform(0, 5, (400, 2)) for _ in range(2))
    for p, q, seen in zip(a, b, free.sees(a, b)):
        truth = bool(free.allows(torch.from_numpy(every_two_centimetres(np.stack([p, q])))).all())
        assert truth or not seen
    long = free.sees(a, b)
    assert long.any() and not long.all()


def test_what_a_way_measures_lies_on_it_half_a_lengthscale_apart():
    _, travel = travel_in(2)
    rng = np.random.default_rng(1)
    for a, b, c in rng.choice(travel.places, (20, 3)):
        legs = [travel.leg(a, b), travel.leg(b, c)]
        visits, x, marks = travel.visits(legs)
        total = legs[0].metres + legs[1].metres
        assert len(visits) == len(x) == len(marks)
        if total == 0.0:
            continue
        assert (np.diff(marks) > 0).all() and 0.0 < marks[0] < marks[-1] < total
        # each stands for its part of a leg: with the noise of as many measurements as a robot takes there
        driven = [leg for leg in legs if leg.metres > 0.0]
        counts = [len(travel.visits([leg])[0]) for leg in driven]
        assert len(marks) == sum(counts)
        for leg, count in zip(driven, counts):
            assert count == pytest.approx(max(1.0, leg.metres / travel.step), abs=0.51)
        assert float((travel.step / visits.scale).sum()) == pytest.approx(total)
        line = np.vstack([legs[0].line, legs[1].line[1:]])
        ends = np.cumsum([0.0, *np.hypot(*np.diff(line, axis=0).T)])
        on_line = [np.interp(marks, ends, line[:, i]) for i in (0, 1)]
        np.testing.assert_allclose(x, np.transpose(on_line), atol=1e-9)


def test_between_places_a_smooth_field_is_interpolated():
    _, travel = travel_in(0)
    _, x, _ = travel.visits([travel.leg(*travel.places[[2, -3]])])
    places, weights = travel.interpolation_at(x)
    exact = np.sin(2.0 * x[:, 0]) * np.cos(1.5 * x[:, 1])
    at = np.sin(2.0 * travel.xy[:, 0]) * np.cos(1.5 * travel.xy[:, 1])
    assert np.abs((at[places] * weights).sum(1) - exact).max() < 0.06
    on, alone = travel.interpolation_at(travel.xy[[7]])
    assert on[0, 0] == 7 and alone[0, 0] == pytest.approx(1.0, abs=1e-3)


def test_ways_from_a_node_are_made_once_and_are_those_from_its_position(monkeypatch):
    free, travel = travel_in(3)
    fresh, node = Travel(free, 0.3), int(travel.places[11])
    here, ends = travel.nodes[node], travel.places[[3, 30, 3, 40]].tolist()
    legs = travel.legs_from(here, node, ends)
    assert travel.legs_from(here.copy(), node, ends[1:]) == legs[1:] and legs[0] is legs[2]
    for leg, end in zip(legs, ends):
        np.testing.assert_allclose(leg.line, fresh.leg_from(here, node, end).line)

    # beside it ways begin elsewhere
    beside = travel.leg_from(here + 0.03, node, ends[0])
    assert beside is not legs[0] and (beside.line[0] == here + 0.03).all()

    monkeypatch.setattr(travel_module, "_DEPARTURES", 2)
    assert travel.legs_from(here, node, ends) == legs
    assert travel.leg_from(here, node, ends[0]) is not legs[0], "of many the oldest are let go"


def test_ways_prepared_together_are_those_made_alone():
    free, travel = travel_in(3)
    other = Travel(free, 0.3)
    pairs = [tuple(p) for p in np.random.default_rng(2).choice(travel.places, (40, 2)).tolist()]
    travel.prepare(pairs)
    for a, b in pairs:
        one, two = travel.leg(a, b), other.leg(a, b)
        assert one.metres == pytest.approx(two.metres)
        np.testing.assert_allclose(one.line, two.line)
        np.testing.assert_allclose(travel.visits([one])[1], other.visits([two])[1])
    here = travel.nodes[7] + 0.03
    ends = [b for _, b in pairs]
    for leg, b in zip(travel.legs_from(here, 7, ends), ends):
        np.testing.assert_allclose(leg.line, other.leg_from(here, 7, b).line)
    np.testing.assert_array_equal(
        travel.locate_all(travel.xy + 0.04), [other.locate(x) for x in travel.xy + 0.04]
    )


def test_what_is_near_is_as_far_as_among_all():
    free, travel = travel_in(3)
    for node in travel.places[::20]:
        near, all_ = travel.distances(node, 1.0), Travel(free, 0.3).distances(node)
        np.testing.assert_array_equal(near, np.where(all_ <= 1.0, all_, np.inf))
    np.testing.assert_array_equal(travel.distances(node), all_)


def test_a_place_is_located_at_the_nearest_node_in_view():
    data = np.zeros((30, 30))
    data[22, :25] = 100  # a wall, and the next node beyond it is near
    travel = Travel(
        FreeSpace.from_occupancy_grid(occupancy(data), 0.0), 0.3, max_nodes=20
    )  # not in every cell
    x = np.random.default_rng(0).uniform((0.1, 2.0), (2.4, 2.2), (200, 2))
    beside = 0
    for at, found in zip(x, travel.locate_all(x)):
        away = np.hypot(*(travel.nodes - at).T)
        order = np.argsort(away)[:16]
        order = order[away[order] < 0.5]
        if not len(order):
            assert travel.free.sees(at, travel.nodes[found]).all(), "a block's diagonal away"
            continue
        seen = travel.free.sees(np.broadcast_to(at, (len(order), 2)), travel.nodes[order])
        best = order[seen.argmax()]
        assert away[found] == pytest.approx(away[best])
        beside += bool(seen.any() and not seen[0])
    assert beside > 10, "the scene must have places that do not see the nearest node"


def test_short_lines_that_are_seen_are_free_in_every_point():
    free = free_room(7)
    rng = np.random.default_rng(1)
    a = rng.uniform(0, 5, (4000, 2))
    b = a + rng.uniform(-0.2, 0.2, a.shape)
    seen = free.sees(a, b)
    x = a[seen, None] + np.linspace(0, 1, 101)[:, None] * (b - a)[seen, None]
    allowed = free.allows(torch.from_numpy(x.reshape(-1, 2))).numpy().reshape(len(x), -1).all(1)
    assert allowed.all() and len(x) > 1000


def test_bounds_of_places_and_nodes_hold_and_passages_stay():
    free = free_room(4, side=120)
    area = SurveyArea.from_free_space(free, somewhere(free, 4))
    fine, coarse = Travel(area.free, 0.3, 10**6, 10**6), Travel(area.free, 0.3, 100, 1000)
    assert len(coarse) <= 100 < len(fine) and len(coarse.nodes) <= 1000 < len(fine.nodes)
    assert coarse.spacing > fine.spacing
    start = coarse.places[0]
    assert coarse.reachable(start).mean() > 0.97, "blocks must not close doors"
    a, b = coarse.places[[0, -1]]
    assert (
        coarse.leg(a, b).metres
        < 1.15 * fine.leg(fine.locate(coarse.nodes[a]), fine.locate(coarse.nodes[b])).metres
    )


@pytest.mark.parametrize("seed", [0, 2, 3, 4, 7])
@pytest.mark.parametrize("most", [150, 60, 30])
def test_however_coarse_the_blocks_nothing_is_out_of_reach(seed, most):
    """Round a corner, and through a gap between two blocks; no way goes through a wall, or far about."""
    free, fine = travel_in(seed)
    coarse = Travel(free, 0.3, max_nodes=most)
    assert 3 <= coarse.block and len(coarse.nodes) <= 2 * most
    assert coarse.reachable(0).all()
    rng, same = np.random.default_rng(seed), fine.locate_all(coarse.nodes)
    for a, b in rng.choice(len(coarse.nodes), (6, 2)):
        leg, way = coarse.leg(a, b), fine.leg(same[a], same[b])
        assert bool(free.allows(torch.from_numpy(every_two_centimetres(leg.line))).all())
        assert leg.metres <= 1.25 * way.metres + coarse.block * free.resolution


@pytest.mark.parametrize(("seed", "most"), [(0, 30), (4, 12)])
def test_where_the_robot_may_be_it_is_located_however_far_apart_nodes_lie(seed, most):
    free, _ = travel_in(seed)
    coarse, x = Travel(free, 0.3, max_nodes=most), free.centres()
    nodes = coarse.locate_all(x, 0.21)
    away = np.hypot(*(coarse.nodes[nodes] - x).T)
    assert (nodes >= 0).all() and away.max() > 0.3
    assert free.sees(x[away > 0.21], coarse.nodes[nodes[away > 0.21]]).all(), "through a wall"
    walls = np.stack(np.nonzero(~free.open)[::-1], 1) * free.resolution + 0.5 * free.resolution
    far = np.array([x.max(0) + 0.25, *walls[np.hypot(*(walls - coarse.nodes[0]).T) > 1.5]])
    away = np.hypot(*(far[:, None] - coarse.nodes).transpose(2, 0, 1)).min(1)
    located = coarse.locate_all(far, 0.21) >= 0
    assert (located == (away <= 0.21)).all(), "where it may not be only a near node counts"


def test_from_anywhere_and_nowhere():
    free, travel = travel_in(0)
    here = travel.xy[3] + (0.03, -0.02)
    node = travel.locate(here)
    leg = travel.leg_from(here, node, travel.places[40])
    np.testing.assert_array_equal(leg.line[0], here)
    assert bool(free.allows(torch.from_numpy(every_two_centimetres(leg.line))).all())
    assert travel.locate((40.0, 40.0)) is None
    data = np.zeros((20, 41))
    data[:, 20] = 100
    apart = Travel(FreeSpace.from_occupancy_grid(occupancy(data)), 0.3)
    left, right = apart.locate((0.5, 0.5)), apart.locate((3.5, 0.5))
    assert apart.leg(left, right) is None and not apart.reachable(left)[right]
    none = Travel(FreeSpace.from_occupancy_grid(occupancy(np.full((9, 9), 100))), 0.3)
    assert len(none) == 0 and none.locate((0.5, 0.5)) is None


def test_turns():
    assert angles_between(0.1, -0.1) == pytest.approx(0.2)
    assert angles_between(3.1, -3.1) == pytest.approx(2 * np.pi - 6.2)
    assert angles_between(float("nan"), 1.0) == 0.0
    _, travel = travel_in(1)
    line = np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0]])
    leg = travel.leg_along(line)
    assert leg.turned == pytest.approx(np.pi) and leg.metres == pytest.approx(3.0)
    assert leg.first == pytest.approx(0.0) and leg.last == pytest.approx(np.pi)


@pytest.mark.parametrize("wrong", [{"spacing": 0.0}, {"max_places": 1}, {"max_nodes": 0}])
def test_bounds_are_checked(wrong):
    with pytest.raises(ValueError, match="expected a spacing above 0"):
        Travel(free_room(0), **{"spacing": 0.3} | wrong)

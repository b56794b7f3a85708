"""What ways are made of: moves, places, points; and what is kept of them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from planning_scene import occupancy
from rooms import free_room

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.area import travel as module
from gp_mapping.planning.area.graph import moves_between, nodes_of
from gp_mapping.planning.area.leg import angle_between, angles_between, measurements
from gp_mapping.planning.area.travel import Travel

CELL = 0.1


def floor(height=12, width=15, radius=0.0) -> FreeSpace:
    return FreeSpace.from_occupancy_grid(occupancy(np.zeros((height, width)), CELL), radius)


@pytest.fixture(scope="module")
def travel():
    return Travel(floor(), 0.3)


def test_moves_on_open_floor_are_those_of_a_king_and_a_knight(travel):
    middle = travel.locate((0.75, 0.65))
    assert travel.nodes[middle] == pytest.approx((0.75, 0.65))
    _, ends = travel.graph[middle].nonzero()
    moves = np.rint((travel.nodes[ends] - travel.nodes[middle]) / CELL).astype(int)
    signs = [(a, b) for a in (-1, 1) for b in (-1, 1)]
    king = [*signs, (0, 1), (0, -1), (1, 0), (-1, 0)]
    knight = [(a * x, b * y) for a, b in signs for x, y in ((1, 2), (2, 1))]
    assert sorted(map(tuple, moves.tolist())) == sorted(king + knight)
    lengths = travel.graph[middle].toarray()[0, ends]
    np.testing.assert_allclose(lengths, CELL * np.hypot(*moves.T))
    assert abs(travel.graph - travel.graph.T).max() == 0.0
    distances = travel.distances(middle)
    for step, cells in (((3, 0), 3), ((4, 2), 2 * 5**0.5), ((3, 3), 3 * 2**0.5), ((1, 3), None)):
        wanted = (5**0.5 + 1) if cells is None else cells
        end = travel.locate(travel.nodes[middle] + CELL * np.array(step))
        assert distances[end] == pytest.approx(CELL * wanted)


def test_moves_between_cells_are_found_without_a_look_along_each(monkeypatch):
    """Which obstacles stop a move is the same everywhere: looks were a third of a first plan."""
    free = free_room(3)
    before = moves_between(free, free.centres(), 1)
    monkeypatch.setattr(FreeSpace, "sees", None)
    assert (moves_between(free, free.centres(), 1) != before).nnz == 0 and before.nnz > 10000


@pytest.mark.parametrize(
    "seed, most, radius",
    [(0, 10**6, 0.2), (1, 10**6, 0.25), (2, 10**6, 0.0), (3, 200, 0.2), (5, 60, 0.2)],
)
def test_moves_join_all_nodes_in_reach_that_see_each_other(seed, most, radius):
    free = free_room(seed, radius)
    free.open[20:24, 10:14] = False  # kept out of
    nodes, side = nodes_of(free, most)
    assert len(nodes) <= 2 * most and (side == 1) == (most == 10**6)
    assert free.open[tuple(np.floor(nodes / CELL).astype(int).T[::-1])].all()
    graph = moves_between(free, nodes, side)[:600, :600].toarray()
    i, j = np.triu_indices(min(600, len(nodes)), 1)
    away = np.hypot(*(nodes[i] - nodes[j]).T)
    reach = (2.3 if side == 1 else 2.9 * side) * CELL
    joined = away < reach
    joined[joined] = free.sees(nodes[i[joined]], nodes[j[joined]])
    if side == 1:
        joined &= np.abs(away - 2 * CELL) > 1e-6
    np.testing.assert_allclose(graph[i, j], np.where(joined, away, 0.0))
    np.testing.assert_allclose(graph, graph.T)
    assert moves_between(free, nodes[:1], side).shape == (1, 1)


def test_each_square_has_the_place_nearest_to_its_middle(travel):
    for most in (450, 12):
        some = Travel(travel.free, 0.3, max_places=most)
        assert len(some) <= most and (some.spacing == 0.3) == (most == 450)
        corner = some.nodes.min(0)
        square = np.floor((some.nodes - corner) / some.spacing).astype(int)
        middle = corner + (square + 0.5) * some.spacing
        away = np.hypot(*(some.nodes - middle).T).round(9)
        for each in np.unique(square, axis=0):
            mine = np.flatnonzero((square == each).all(1))
            best = mine[away[mine] == away[mine].min()][0]
            assert best in some.places
        assert len(some.places) == len(np.unique(square, axis=0))
        np.testing.assert_array_equal(some.xy, some.nodes[some.places])
    # no more spacing than is needed
    assert len(some) > 6
    with pytest.raises(ValueError, match="max_nodes=1"):
        Travel(travel.free, 0.3, max_nodes=1)
    assert len(Travel(travel.free, 0.3, max_places=2, max_nodes=2)) <= 2


def test_a_way_has_points_at_each_quarter_of_a_spacing(travel):
    a, b = travel.locate((0.15, 0.15)), travel.locate((1.05, 0.15))
    leg = travel.leg(a, b)
    assert leg.metres == pytest.approx(0.9) and len(leg.points) == 13
    np.testing.assert_allclose(leg.points[:, 0], np.linspace(0.15, 1.05, 13))
    assert (leg.turned, leg.first, leg.last) == (0.0, 0.0, 0.0)
    still = travel.leg(a, a)
    assert still.metres == still.turned == 0.0 and len(still.points) == 2
    assert math.isnan(still.first) and math.isnan(still.last)
    twice = travel.leg_along(np.array([[0, 0], [1, 0], [1, 0], [1, 1.0]]))
    assert twice.turned == pytest.approx(math.pi / 2) and twice.last == pytest.approx(math.pi / 2)
    bent = travel.leg_along(np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]]))
    np.testing.assert_allclose(bent.points[[0, -1]], [[0, 0], [0, 1]])
    steps = np.hypot(*np.diff(bent.points, axis=0).T)
    assert steps.max() <= 0.3 / 4 + 1e-9 and len(bent.points) == 41
    assert travel.step == pytest.approx(0.45) and travel.neighbours == 4
    assert Travel(floor(2, 2), 0.1).neighbours == 4 and Travel(floor(1, 2), 0.1).neighbours == 2


def test_weights_interpolate_by_the_places_around(travel):
    x = np.array([[0.41, 0.52], [1.13, 0.86]])
    places, weights = travel.interpolation_at(x)
    for at, near, found in zip(x, places, weights):
        order = np.argsort(np.hypot(*(travel.xy - at).T))[:4]
        assert sorted(near) == sorted(order)
        scale = 2.0 * (3.0 * 0.3) ** 2
        xy = travel.xy[near]
        gram = np.exp(-((xy[:, None] - xy[None]) ** 2).sum(-1) / scale) + 1e-6 * np.eye(4)
        to = np.exp(-((xy - at) ** 2).sum(-1) / scale)
        np.testing.assert_allclose(found, np.linalg.solve(gram, to), rtol=1e-6)
    assert travel.nearest(x).tolist() == places[:, 0].tolist()


def test_how_many_measurements_a_way_has():
    assert [measurements(m, 0.5) for m in (0.0, 0.2, 0.7, 0.8, 2.0, 2.3)] == [1, 1, 1, 2, 4, 5]


def test_angles_of_numbers_are_those_of_arrays():
    headings = [0.0, 0.1, 3.1, -3.1, 7.0, -9.0, math.nan]
    for a in headings:
        for b in headings:
            assert angle_between(a, b) == pytest.approx(float(angles_between(a, b)), abs=1e-12)
    assert angle_between(0.25, 3.0) == pytest.approx(2.75)
    assert angle_between(-3.0, 3.0) == pytest.approx(math.tau - 6.0)


def test_what_is_computed_is_kept_and_of_much_the_newest(monkeypatch):
    for name in ("_ROWS", "_LEGS", "_KEPT"):
        monkeypatch.setattr(module, name, 3)
    travel, made = Travel(floor(), 0.3), []

    def of(key):
        return travel.cached((key,), lambda: made.append(key) or object())

    first = of(1)
    assert of(1) is first and of(2) is not first
    of(3), of(1), of(4)  # the second is the one that was not asked for the longest
    assert of(1) is first and made == [1, 2, 3, 4]
    of(2)
    assert made == [1, 2, 3, 4, 2]
    of(4), of(1), of(2)
    assert made == [1, 2, 3, 4, 2], "three are kept"

    rows = [travel.distances(node) for node in range(3)]
    assert travel.distances(0) is rows[0]
    travel.distances(3)
    assert travel.distances(0) is rows[0] and travel.distances(1) is not rows[1]
    np.testing.assert_array_equal(travel.distances(1), rows[1])
    assert travel.distances(0, within=0.15) is rows[0], "what is known is not searched for again"
    near = travel.distances(9, within=0.15)
    assert (
        np.isinf(near).any()
        and near[9] == 0.0
        and near.max(where=np.isfinite(near), initial=0) <= 0.15
    )

    legs = [travel.leg(0, end) for end in (20, 30, 40)]
    assert all(travel.leg(0, end) is leg for end, leg in zip((20, 30, 40), legs))
    travel.leg(0, 50)
    assert travel.leg(0, 40) is legs[2] and travel.leg(0, 20) is not legs[0]


def test_a_way_over_the_grid_is_straightened_and_is_the_same_both_ways():
    data = np.zeros((30, 30))
    data[:22, 14:16] = 100
    travel = Travel(FreeSpace.from_occupancy_grid(occupancy(data, CELL), 0.1), 0.3)
    a, b = travel.locate((0.5, 0.5)), travel.locate((2.5, 0.5))
    grid = travel.over_the_grid(a, b)
    np.testing.assert_array_equal(grid[::-1], travel.over_the_grid(b, a))
    np.testing.assert_array_equal(grid[[0, -1]], travel.nodes[[a, b]])
    length = np.hypot(*np.diff(grid, axis=0).T)
    assert length.sum() == pytest.approx(travel.distances(a)[b]) and length.max() < 2.3 * CELL
    line = travel.straightened(grid)
    assert len(line) < 0.3 * len(grid) and travel.free.sees(line[:-1], line[1:]).all()
    np.testing.assert_array_equal(line[[0, -1]], grid[[0, -1]])
    # no corner of it could be left out
    assert not travel.free.sees(line[:-2], line[2:]).any()
    assert travel.reachable(a).all()
    np.testing.assert_array_equal(travel.straightened(grid[:1]), grid[:1])


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_from_each_corner_a_way_goes_to_the_last_point_before_one_that_is_hidden(seed):
    free = free_room(seed, side=80)
    travel, rng = Travel(free, 0.4), np.random.default_rng(seed)
    long = 0
    for a, b in rng.choice(len(travel.nodes), (30, 2)):
        chain = travel.over_the_grid(int(a), int(b))
        if chain is None or len(chain) < 3:
            continue
        line = travel.straightened(chain)
        at = [int(np.flatnonzero((chain == corner).all(1))[0]) for corner in line]
        assert at[0] == 0 and at[-1] == len(chain) - 1 and at == sorted(at)
        for i, j in pairwise(at):
            assert free.sees(chain[[i]], chain[[j]])[0]
            assert j == len(chain) - 1 or not free.sees(chain[[i]], chain[[j + 1]])[0]
        long += len(chain) > 20
    assert long > 5

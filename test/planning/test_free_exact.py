"""Room, lines and parts of a free space against what follows from each cell's square."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from planning_scene import occupancy

from gp_mapping.planning import FreeSpace
from gp_mapping.planning.free_space import along

CELL = 0.2
SHAPE = (13, 17)


def scene(yaw=0.0, origin=(0.0, 0.0), radius=0.0, unknown="blocked", data=None):
    """Few obstacles in a room of 3.4 × 2.6 m; the free space, and its cells that are occupied."""
    if data is None:
        data = np.zeros(SHAPE)
        for row, column in ((3, 4), (3, 5), (8, 11), (9, 3), (6, 14)):
            data[row, column] = 100
    return FreeSpace.from_occupancy_grid(
        occupancy(data, CELL, origin, yaw), radius, unknown=unknown
    ), data


def turned(x, yaw, origin):
    cos, sin = math.cos(yaw), math.sin(yaw)
    return x @ np.array([[cos, sin], [-sin, cos]]) + np.array(origin)


def gap(x, data, walled=True):
    """(N,) m from places in the grid's own axes to the nearest occupied square, or to the outside."""
    rows, columns = np.nonzero(data)
    low = np.stack([columns, rows], 1) * CELL
    apart = np.maximum(np.maximum(low[None] - x[:, None], x[:, None] - low[None] - CELL), 0.0)
    out = np.hypot(apart[..., 0], apart[..., 1]).min(1)
    size = np.array(data.shape)[::-1] * CELL
    border = np.minimum(x, size - x).min(1)
    return np.minimum(out, np.maximum(border, 0.0)) if walled else np.where(border < 0, 0.0, out)


PLACED = [(0.0, (0.0, 0.0)), (0.7, (-3.0, 11.0)), (-2.5, (1e5, -2e5))]


@pytest.mark.parametrize("yaw, origin", PLACED)
@pytest.mark.parametrize("unknown", ["blocked", "free"])
def test_room_is_the_distance_to_the_nearest_square(yaw, origin, unknown):
    free, data = scene(yaw, origin, unknown=unknown)
    x = np.random.default_rng(0).uniform(-0.3, 1.1, (400, 2)) * [3.4, 2.6]
    exact = gap(x, data, walled=unknown == "blocked")
    for enough in (0.15, 0.6):
        room = free.room(turned(x, yaw, origin), enough)
        np.testing.assert_allclose(np.minimum(room, enough), np.minimum(exact, enough), atol=1e-9)
    centres = free.centres(np.ones(SHAPE, bool))
    own = (np.stack(np.meshgrid(np.arange(17), np.arange(13)), -1).reshape(-1, 2) + 0.5) * CELL
    np.testing.assert_allclose(centres, turned(own, yaw, origin), atol=1e-9)
    exact = gap(own, data, walled=unknown == "blocked").reshape(SHAPE)
    assert (free.clearance <= exact + 1e-9).all()
    known = exact > 0
    assert (free.clearance[known] >= exact[known] - 0.21 * CELL).all()
    assert (free.clearance[~known] == 0.0).all()


@pytest.mark.parametrize("yaw, origin", PLACED)
@pytest.mark.parametrize("radius", [0.0, 0.1, 0.24, 0.31])
def test_the_robot_may_be_where_it_fits(yaw, origin, radius):
    free, data = scene(yaw, origin, radius)
    own = (np.stack(np.meshgrid(np.arange(17), np.arange(13)), -1).reshape(-1, 2) + 0.5) * CELL
    fits = (gap(own, data) >= radius - 1e-9) & (data.ravel() == 0)
    np.testing.assert_array_equal(free.open.ravel(), fits)
    np.testing.assert_allclose(free.centres(), turned(own[fits], yaw, origin), atol=1e-9)
    x = np.random.default_rng(1).uniform(-0.1, 1.1, (500, 2)) * [3.4, 2.6]
    cells = np.floor(x / CELL).astype(int)
    inside = ((cells >= 0) & (cells < [17, 13])).all(1)
    at = np.where(inside, cells[:, 1] * 17 + cells[:, 0], 0)
    may = inside & fits[at] & (gap(x, data) >= radius - 1e-9)
    allowed = free.allows(torch.from_numpy(turned(x, yaw, origin))).numpy()
    np.testing.assert_array_equal(allowed, may)
    assert 20 < may.sum() < 480


@pytest.mark.parametrize("yaw, origin", PLACED[:2])
@pytest.mark.parametrize("radius", [0.0, 0.15, 0.3])
def test_a_robot_sees_what_it_can_drive_straight_to(yaw, origin, radius):
    """Every 2 mm of the line it may be; a miss of the obstacle by less than a centimetre may be refused."""
    free, data = scene(yaw, origin, radius)
    rng = np.random.default_rng(2)
    a, b = (rng.uniform(0.02, 0.98, (300, 2)) * [3.4, 2.6] for _ in range(2))
    b[:150] = a[:150] + rng.uniform(-0.5, 0.5, (150, 2))  # short ones, of which some pass
    b[:5] = a[:5]
    sees = free.sees(turned(a, yaw, origin), turned(b, yaw, origin))
    must = may = 0
    for seen, p, q in zip(sees, a, b):
        x = p + np.linspace(0.0, 1.0, max(2, int(math.dist(p, q) / 0.002)))[:, None] * (q - p)
        open_ = free.allows(torch.from_numpy(turned(x, yaw, origin))).numpy()
        least = gap(x, data).min()
        if seen:
            assert open_.all()
            may += 1
        elif radius and open_.all():
            assert least < radius + 0.0051 or near_shut(free, x)
        elif open_.all():
            must += 1
    assert 40 < may < 290 and must <= 3, "but for corners between two samples"


def near_shut(free, x) -> bool:
    """Whether a line in the grid's own axes is within a millimetre of a cell that is not open."""
    for aside in ((1e-3, 0.0), (-1e-3, 0.0), (0.0, 1e-3), (0.0, -1e-3)):
        column, row = np.floor((x + aside) / CELL).astype(int).T
        inside = (row >= 0) & (row < SHAPE[0]) & (column >= 0) & (column < SHAPE[1])
        if not inside.all() or not free.open[row, column].all():
            return True
    return False


def test_a_cell_whose_corner_is_cut_is_crossed():
    data = np.zeros(SHAPE)
    data[5, 5] = 100
    free, _ = scene(data=data)
    corner, down = np.array([5 * CELL, 5 * CELL]), np.array([-0.3, 0.3])
    for aside, seen in ((-0.004, True), (0.004, False)):
        assert free.sees([corner + down + aside], [corner - down + aside]) == [seen]
    # along the border of it, and through its corner
    assert not free.sees([[0.5, 1.0]], [[1.9, 1.0]]).any()
    assert not free.sees([corner - 0.3], [corner + 0.1]).any()
    assert not free.sees([corner + down], [corner - down]).any()
    assert free.sees([[0.5, 0.99]], [[1.9, 0.99]]).all()
    assert not free.sees([[0.5, 0.5]], [[-0.5, 0.5]]).any(), "out of the grid"
    assert free.sees(np.empty((0, 2)), np.empty((0, 2))).shape == (0,)


@pytest.mark.parametrize("back", [False, True])
def test_what_lies_beyond_the_ends_of_a_line_does_not_matter(back):
    """It ends past the border of a cell, 15 mm before a shut one: half as long again it would be in that."""
    data = np.zeros(SHAPE)
    data[5, 5] = 100
    free, _ = scene(data=data)
    start, end = np.array([[4.8 * CELL, 4.65 * CELL]]), np.array([[5.015 * CELL, 4.925 * CELL]])
    assert not free.sees(start, start + 1.465 * (end - start)).any()
    assert (free.sees(end, start) if back else free.sees(start, end)).all()


@pytest.mark.parametrize("yaw, origin", PLACED[:2])
def test_a_line_seems_open_by_its_samples(yaw, origin):
    free, _ = scene(yaw, origin, 0.15)
    rng = np.random.default_rng(3)
    a, b = (rng.uniform(-0.05, 1.05, (400, 2)) * [3.4, 2.6] for _ in range(2))
    b[:200] = a[:200] + rng.uniform(-0.4, 0.4, (200, 2))
    seems = free.seems_open(turned(a, yaw, origin), turned(b, yaw, origin))
    for open_, p, q in zip(seems, a, b):
        pieces = max(1, math.ceil(math.dist(p, q) / (0.5 * CELL)))
        x = p + np.linspace(0.0, 1.0, pieces + 1)[:, None] * (q - p)
        column, row = np.floor(x / CELL).astype(int).T
        inside = (row >= 0) & (column >= 0) & (row < SHAPE[0]) & (column < SHAPE[1])
        assert open_ == (inside.all() and free.open[row, column].all())
    assert 30 < seems.sum() < 370
    assert len(free.seems_open(np.empty((0, 2)), np.empty((0, 2)))) == 0


def test_many_lines_at_once_are_each_as_alone(monkeypatch):
    free, _ = scene(radius=0.15)
    rng = np.random.default_rng(4)
    a, b = (rng.uniform(0.0, 1.0, (200, 2)) * [3.4, 2.6] for _ in range(2))
    together = free.sees(a, b), free.seems_open(a, b)
    monkeypatch.setattr("gp_mapping.planning.free_space._AT_ONCE", 50)
    np.testing.assert_array_equal(free.sees(a, b), together[0])
    np.testing.assert_array_equal(free.seems_open(a, b), together[1])


def test_samples_are_even_and_have_both_ends():
    a, b = np.array([[0.0, 0.0], [5.0, 5.0]]), np.array([[2.0, 4.0], [5.0, 6.0]])
    x, owner = along(a, b, np.array([3, 2]))
    assert x.tolist() == [[0, 0], [1, 2], [2, 4], [5, 5], [5, 6]]
    assert owner.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("yaw, origin", PLACED[:2])
def test_a_robot_beside_a_part_of_the_space_reaches_the_nearest_one(yaw, origin):
    data = np.zeros(SHAPE)
    data[:, 6:9] = 100
    free, _ = scene(yaw, origin, data=data)

    def part(x, y, search):
        own = turned(np.array([[x, y]]), yaw, origin)[0]
        found = free.reachable_from(own, search).open
        return "left" if found[0, 0] else "right" if found[0, -1] else "none"

    # the wall is from 1.2 to 1.8 m; the nearest centres are at 1.1 and 1.9 m
    assert part(1.45, 0.5, 0.5) == "left" and part(1.55, 0.5, 0.5) == "right"
    assert part(1.45, 0.5, 0.36) == "left" and part(1.45, 0.5, 0.34) == "none"
    assert part(1.3, 2.5, 0.21) == "left" and part(1.3, 2.5, 0.19) == "none"
    assert part(-0.3, 0.1, 0.41) == "left" and part(-0.3, 0.1, 0.39) == "none"
    assert part(3.7, 2.5, 0.41) == "right" and part(3.3, 3.0, 0.51) == "right"
    assert part(3.3, -0.5, 0.61) == "right" and part(3.3, -0.5, 0.59) == "none"
    assert part(1e30, 0.0, 0.5) == "none"
    assert free.reachable_from(turned(np.array([[0.5, 0.5]]), yaw, origin)[0]).open.sum() == 6 * 13


def test_maps_are_the_same_where_all_of_them_is():
    free, data = scene(radius=0.1)
    other, _ = scene(radius=0.1)
    assert free.same_as(other) and other is not free
    for name, value in (
        ("origin", (0.1, 0.0)),
        ("yaw", 0.1),
        ("resolution", 0.3),
        ("radius", 0.2),
        ("frame", "odom"),
        ("walled", False),
        ("open", ~free.open),
        ("clearance", free.clearance + 0.1),
    ):
        assert not free.same_as(replace(free, **{name: value})), name


def test_thresholds_are_as_given():
    row = occupancy([[0, 9, 10, 49, 50, 100, -1]], 1.0)
    given = {"free_threshold": 10, "occupied_threshold": 50}
    assert FreeSpace.from_occupancy_grid(row, **given).open.tolist() == [[True] * 2 + [False] * 5]
    lenient = FreeSpace.from_occupancy_grid(row, unknown="free", **given)
    assert lenient.open.tolist() == [[True] * 4 + [False] * 2 + [True]]
    assert not lenient.walled and FreeSpace.from_occupancy_grid(row).walled
    FreeSpace.from_occupancy_grid(row, free_threshold=1, occupied_threshold=1)
    FreeSpace.from_occupancy_grid(row, free_threshold=101, occupied_threshold=101)
    for wrong in ((0, 50), (51, 50), (10, 102)):
        with pytest.raises(ValueError, match=f"thresholds {wrong[0]} and {wrong[1]}"):
            FreeSpace.from_occupancy_grid(row, free_threshold=wrong[0], occupied_threshold=wrong[1])
    wide = FreeSpace.from_occupancy_grid(occupancy(np.zeros((3, 3)), 1.0), unknown="free")
    assert np.isinf(wide.clearance).all() and np.isinf(wide.room(np.ones((1, 2)), 1.0)).all()


@pytest.mark.parametrize("closed", ["rim", "middle"])
def test_a_line_along_the_outermost_cells_is_in_these_alone(closed):
    data = np.zeros(SHAPE)
    data[1:-1, 1:-1] = 100
    free, _ = scene(data=data if closed == "middle" else 100 - data)
    low, high = 0.5 * CELL, np.array(SHAPE)[::-1] * CELL - 0.5 * CELL
    corners = np.array([(low, low), (high[0], low), tuple(high), (low, high[1])])
    for sight in (free.sees, free.seems_open):
        assert (sight(corners, np.roll(corners, -1, axis=0)) == (closed == "middle")).all()


def test_deep_in_an_obstacle_there_is_no_room():
    """Where no border of it is near; beside it there is as much as there is to its border."""
    data = np.zeros(SHAPE)
    data[2:11, 5:15] = 100
    free, _ = scene(data=data)
    x = np.random.default_rng(0).uniform(0.0, 1.0, (500, 2)) * np.array(SHAPE)[::-1] * CELL
    row, column = (x[:, ::-1] / CELL).astype(int).T
    inside, room = data[row, column] > 0, free.room(x, 0.3)
    assert inside.sum() > 100 and not room[inside].any()
    exact = np.minimum(gap(x, data), 0.3)[~inside]
    assert (np.minimum(room[~inside], 0.3) <= exact + 1e-9).all() and (room[~inside] > 0.0).all()


def test_from_a_place_outside_nothing_is_seen_not_even_the_place():
    free, _ = scene()
    outside = np.array([[-0.1, -0.1], [10.1, 0.1]])  # middles of cells, were there any
    assert not free.sees(outside, outside).any()

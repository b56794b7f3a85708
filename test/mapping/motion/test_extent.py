"""What is driven ground: positions counted by squares, however they come."""

import numpy as np
import pytest
import torch

from gp_mapping.mapping.motion import extent as extent_module
from gp_mapping.mapping.motion.extent import Area, Extent

WAY = np.cumsum(np.random.default_rng(0).normal(0.2, 1.0, (200, 2)), 0)
POINTS = [i % 3 == 0 for i in range(200)]


def counted(positions, points) -> Extent:
    extent = Extent()
    for x, point in zip(positions, points):
        extent.add(list(x), point)
    return extent


def numbers(extent: Extent) -> dict:
    return {square: list(map(float, its)) for square, its in extent.squares().items()}


@pytest.mark.parametrize("size", [1, 7, 200])
def test_at_once_as_one_by_one(size):
    """In parts that lie on one square, and that do not."""
    extent = Extent()
    for i in range(0, 200, size):
        part = WAY[i : i + size]
        extent.extend(
            part.tolist(), POINTS[i : i + size], part.min(0).tolist(), part.max(0).tolist()
        )
    assert numbers(extent) == numbers(counted(WAY, POINTS))
    still = Extent()
    still.extend([[1.0, 2.0], [3.0, 1.0], [2.0, 5.0]], [True, False, True], [1.0, 1.0], [3.0, 5.0])
    assert numbers(still) == {(0, 0): [1.0, 1.0, 3.0, 5.0, 2.0, 3.0, 2.0, 5.0]}


def test_an_area_is_what_was_counted_on_its_squares():
    """Three samples on one square, one on its neighbour, where the robot is not any more, and two far away."""
    extent = counted(
        [[11.0, 1.0], [2.0, 3.0], [4.0, 1.0], [3.0, 2.0], [95.0, 5.0], [96.0, 4.0]],
        [True, True, False, True, True, False],
    )
    near, far = extent.areas(0.1)
    assert near == Area((2.0, 1.0), (11.0, 3.0), 3, 4, near.squares, near.place)
    assert sorted(near.squares) == [(0, 0), (1, 0)]
    assert far == Area((95.0, 4.0), (96.0, 5.0), 1, 2, ((9, 0),), (96.0, 4.0))


def test_the_place_of_an_area_is_where_its_newest_sample_was():
    """On a square that was visited first and last; the robot is elsewhere by now."""
    way = [[2.0, 3.0], [11.0, 1.0], [21.0, 1.0], [4.0, 1.0], [95.0, 5.0]]
    extent = counted(way[:3], [True] * 3)
    assert extent.areas(0.1)[0].place == (21.0, 1.0)
    for x in way[3:]:
        extent.add(x, True)
    again = Extent()
    again.load_state_dict(extent.state_dict())
    for one in (extent, again):
        assert [area.place for area in one.areas(0.1)] == [(4.0, 1.0), (95.0, 5.0)]
    extent.add([12.0, 2.0], True)  # the squares are the same, and so the areas
    assert [area.place for area in extent.areas(0.1)] == [(12.0, 2.0), (95.0, 5.0)]
    extent.add([96.0, 5.0], True)
    assert extent.areas(0.1)[0].place == (12.0, 2.0)


def test_two_robots_positions_are_those_of_one_that_was_at_both():
    """On squares that one has, and that both have."""
    mine, other = counted(WAY[:120], POINTS[:120]), counted(WAY[80:], POINTS[80:])
    both = counted(np.concatenate([WAY[:120], WAY[80:]]), POINTS[:120] + POINTS[80:])
    mine.join(other)
    found, whole = numbers(mine), numbers(both)
    assert {square: its[:6] for square, its in found.items()} == {
        square: its[:6] for square, its in whole.items()
    }
    assert mine.state_dict()["total"] == 240 and torch.equal(
        mine.state_dict()["squares"][:, :2].sum(0), both.state_dict()["squares"][:, :2].sum(0)
    )


def test_ground_is_twenty_points_or_a_tenth_of_all_samples():
    """A glitch of the pose is neither; the largest area is ground in any case."""
    room = [[float(i % 9), 5.0] for i in range(150)]
    for points, samples, ground in ((1, 3, 1), (20, 20, 2), (0, 16, 1), (0, 17, 2)):
        there = [[500.0, 5.0]] * samples
        extent = counted(room + there, [True] * 150 + [i < points for i in range(samples)])
        assert len(extent.ground(0.1)) == ground, (points, samples)


def spots(*counts: tuple[float, int]) -> Extent:
    """Areas along x, each of so many points of the path; the robot is at the last."""
    way = [[at + 0.1 * (i % 7), 5.0] for at, n in counts for i in range(n)]
    return counted(way, [True] * len(way))


def names(areas) -> list[int]:
    return [round(area.low[0]) for area in areas]


def test_what_is_drawn_is_the_robots_ground_and_then_the_largest_that_fit():
    """The largest first, unless the robot's has a quarter of its points; each that a grid still holds."""

    def within(width):
        return lambda low, high: high[0] - low[0] <= width

    extent = spots((0.0, 100), (500.0, 60), (-300.0, 40), (900.0, 30))
    assert names(extent.areas(0.1)) == [0, 500, -300, 900]
    assert [names(part) for part in extent.choose_drawn(within(1e4), 0.1)] == [
        [900, 0, 500, -300],
        [],
    ]
    assert [names(part) for part in extent.choose_drawn(within(950.0), 0.1)] == [
        [900, 0, 500],
        [-300],
    ]
    assert [names(part) for part in extent.choose_drawn(within(450.0), 0.1)] == [
        [900, 500],
        [0, -300],
    ]
    assert [names(part) for part in extent.choose_drawn(within(10.0), 0.1)] == [
        [900],
        [0, 500, -300],
    ]
    # one in which the robot has hardly begun is drawn after those that are larger
    for points, first in ((24, 0), (25, 900)):
        extent = spots((0.0, 100), (500.0, 60), (900.0, points))
        assert names(extent.choose_drawn(within(1e4), 0.1)[0])[0] == first
    # a glitch is no ground, but is left out by name
    extent = spots((0.0, 300), (700.0, 3))
    assert [names(part) for part in extent.choose_drawn(within(1e4), 0.1)] == [[0], [700]]
    assert extent.bounds(0.1) == ([0.0, 5.0], [pytest.approx(0.6), 5.0])
    assert Extent().choose_drawn(within(1.0), 0.1) == ([], [])


def test_squares_are_one_area_no_farther_apart_than_the_robot_usually_moves():
    """Two and a half squares of ten metres, or eight usual moves."""
    for apart, move, count in ((20.0, 0.1, 1), (30.0, 0.1, 2), (30.0, 3.7, 2), (30.0, 3.8, 1)):
        extent = spots((5.0, 9), (5.0 + apart, 9))
        assert len(extent.areas(move)) == count, (apart, move)
    # also one after the other: the ends of a chain are far apart
    chain = spots(*((20.0 * k, 3) for k in range(9)))
    assert [len(area.squares) for area in chain.areas(0.1)] == [9]


def test_positions_on_the_squares_of_areas():
    extent = spots((0.0, 30), (500.0, 30), (-41.0, 30))
    areas = extent.areas(0.1)
    rng = np.random.default_rng(0)
    at = np.concatenate(
        [rng.uniform(-60, 60, (200, 2)), rng.uniform(480, 520, (50, 2)) * [1.0, 0.01]]
    )
    for some in (areas, areas[:1], []):
        squares = {square for area in some for square in area.squares}
        wanted = [(int(np.floor(x / 10)), int(np.floor(y / 10))) in squares for x, y in at]
        assert extent.holds(at, some).tolist() == wanted
        assert any(wanted) == bool(some)


def test_squares_are_joined_anew_where_the_robot_moves_otherwise_or_there_are_more():
    extent = counted([[5.0, 5.0], [55.0, 5.0]], [True, True])
    assert [len(extent.areas(move)) for move in (0.1, 7.0, 0.1, 7.0, 7.0)] == [2, 1, 2, 1, 1]
    extent.add([505.0, 5.0], True)
    areas = extent.areas(7.0)
    assert [area.points for area in areas] == [2, 1]
    extent.add([505.0, 6.0], True)
    extent.add([504.0, 6.0], True)
    assert [area.points for area in extent.areas(7.0)] == [3, 2], "the counts are new"


def test_of_too_many_squares_those_with_the_fewest_samples_go(monkeypatch):
    """A tenth of all at once; the robot's own numbers are counted before."""
    monkeypatch.setattr(extent_module, "_MOST", 20)
    extent = Extent()
    for k in range(20):
        for _ in range(1 if k in (3, 11) else 2):
            extent.add([10.0 * k + 5.0, 5.0], True)
    extent.extend([[195.0, 5.0], [196.0, 5.0]], [True, False], [195.0, 5.0], [196.0, 5.0])
    assert len(extent.areas(0.1)[0].squares) == 20
    extent.add([205.0, 5.0], True)
    assert set(extent.squares()) == {(k, 0) for k in range(21)} - {(3, 0), (11, 0)}
    assert sum(area.samples for area in extent.areas(0.1)) == 39

    other = counted([[10.0 * k + 5.0, 95.0] for k in range(4)], [True] * 4)
    extent.join(other)
    assert len(extent.squares()) <= 20 and extent.state_dict()["total"] == 41 + 2 + 4 - 2


def test_boxes_know_the_newest_positions():
    extent = counted([[1.0, 2.0]], [True])
    for x in ([3.0, 1.5], [4.0, 5.0]):
        extent.extend([x], [False], x, x)
    assert extent.boxes().tolist() == [[1.0, 1.5, 4.0, 5.0]]

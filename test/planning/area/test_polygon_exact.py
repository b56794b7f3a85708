"""Polygons of whole numbers, where every decision can be made exactly; hulls by their support."""

import math
import random

import numpy as np
import pytest

from gp_mapping.planning.area import sides
from gp_mapping.planning.area.places import FARTHEST
from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.planning.hull import grown_hull, inside_convex, within_hull


def turn(p, q, r):
    return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])


def upon(p, q, r):
    """Whether r lies on the side from p to q."""
    low, high = (tuple(f(u, v) for u, v in zip(p, q)) for f in (min, max))
    return turn(p, q, r) == 0 and all(a <= c <= b for a, c, b in zip(low, r, high))


def meet(p, q, c, d):
    return (turn(p, q, c) * turn(p, q, d) < 0 and turn(c, d, p) * turn(c, d, q) < 0) or any(
        (upon(p, q, c), upon(p, q, d), upon(c, d, p), upon(c, d, q))
    )


def first_fault(x):
    """The first two sides that meet elsewhere than at a corner they share; None: a good polygon."""
    n = len(x)
    for i in range(n):
        p, q = x[i], x[(i + 1) % n]
        if p == q:
            return i, i
        for j in range(i + 1, n):
            c, d = x[j], x[(j + 1) % n]
            if j == i + 1 or (i == 0 and j == n - 1):
                far = (p, q, d) if j == i + 1 else (d, p, c)
                a, b, e = far if j == i + 1 else (q, p, c)
                if (
                    turn(a, b, e) == 0
                    and (b[0] - a[0]) * (e[0] - b[0]) + (b[1] - a[1]) * (e[1] - b[1]) < 0
                ):
                    return i, j
            elif meet(p, q, c, d):
                return i, j
    return None


@pytest.mark.parametrize("corners", [3, 4, 5, 7])
def test_sides_that_cross_are_named_and_others_are_none(corners):
    chance, good, bad = random.Random(corners), 0, 0
    for _ in range(200):
        x = [(chance.randrange(5), chance.randrange(5)) for _ in range(corners)]
        if chance.random() < 0.5:  # around their middle: most of these are good
            x.sort(key=lambda at: math.atan2(at[1] - 2.1, at[0] - 2.2))
        x = [p for p, q in zip(x, x[1:] + x[:1]) if p != q]  # one that is clicked twice counts once
        if len(x) < 3:
            continue
        fault = first_fault(x)
        if fault is not None:
            with pytest.raises(ValueError) as refused:
                Polygon.from_corners(x)
            assert (
                f"the side from corner {fault[0]} crosses or touches the side from corner {fault[1]};"
                in str(refused.value)
            )
            bad += 1
            continue
        good += 1
        polygon = Polygon.from_corners(x)
        shoelace = sum(p[0] * q[1] - q[0] * p[1] for p, q in zip(x, x[1:] + x[:1]))
        assert polygon.area == pytest.approx(abs(shoelace) / 2)
        # by Pick's theorem, the whole numbers inside
        border = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if any(upon(p, q, (i, j)) for p, q in zip(x, x[1:] + x[:1]))
        ]
        inside = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if (i, j) not in border and polygon.contains([(i, j)])[0]
        ]
        assert polygon.area == len(inside) + len(border) / 2 - 1
        if border:
            np.testing.assert_allclose(polygon.distance(border), 0.0, atol=1e-12)
    assert good > 10 and bad > 10


def test_the_distance_is_to_the_nearest_side_between_its_ends():
    square = Polygon.from_corners([(0, 0), (2, 0), (2, 2), (0, 2)], frame="map")
    x = [(1, 1), (1, -3), (-3, -4), (5, 6), (2, 1.5), (0.5, 1.8)]
    np.testing.assert_allclose(square.distance(x), [1, 3, 5, 5, 0, 0.2])
    assert square.frame == "map"


def star(corners: int) -> Polygon:
    chance = np.random.default_rng(corners)
    angles, radii = np.sort(chance.uniform(0, 2 * np.pi, corners)), chance.uniform(1, 5, corners)
    return Polygon.from_corners(np.stack([radii * np.cos(angles), radii * np.sin(angles)], 1))


@pytest.mark.parametrize("corners", [5, 40, 400])
def test_many_places_are_inside_and_near_as_each_of_them_is(corners):
    """As one by one, by parity and by the distance; also on the corners and beside them."""
    polygon, chance = star(corners), np.random.default_rng(0)
    x = np.concatenate([chance.uniform(-6, 6, (3000, 2)), polygon.corners])
    a, b = polygon.corners, np.roll(polygon.corners, -1, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spans = (a[:, 1] > x[:, 1:]) != (b[:, 1] > x[:, 1:])
        right = a[:, 0] + (x[:, 1:] - a[:, 1]) / (b - a)[:, 1] * (b - a)[:, 0] > x[:, :1]
    np.testing.assert_array_equal(polygon.contains(x), (spans & right).sum(1) % 2 == 1)
    away = polygon.distance(x)
    for within in (1e-9, 0.2, 20.0):
        np.testing.assert_array_equal(polygon.is_near(x, within), away < within)
    assert polygon.contains(np.empty((0, 2))).shape == polygon.is_near([], 1.0).shape == (0,)


def test_few_of_many_sides_are_compared_with_a_place(monkeypatch):
    """100 x 100 cells and 1000 corners: a region so drawn must not hold up a map."""
    compared, blocks = [], sides.blocks

    def counted(*arguments):
        for at, of in blocks(*arguments):
            compared.append(len(at) * len(of))
            yield at, of

    monkeypatch.setattr(sides, "blocks", counted)
    circle = Polygon.from_corners(
        [(4 * np.cos(a), 4 * np.sin(a)) for a in 2 * np.pi * np.arange(1000) / 1000]
    )
    x = np.stack(np.meshgrid(*2 * [np.linspace(-5, 5, 100)]), -1).reshape(-1, 2)
    assert (circle.contains(x) == (np.hypot(*x.T) < 4)).mean() > 0.999
    assert circle.is_near(x, 0.2).any()
    assert sum(compared) < 0.15 * 2 * len(x) * 1000


def test_size_and_number_of_corners_are_bounded():
    circle = [(np.cos(a), np.sin(a)) for a in 2 * np.pi * np.arange(2000) / 2000]
    assert len(Polygon.from_corners([*circle, circle[0]]).corners) == 2000, (
        "the last one is the first"
    )
    with pytest.raises(ValueError, match="2001 corners"):
        Polygon.from_corners([(np.cos(a), np.sin(a)) for a in np.linspace(0, 6.2, 2001)])
    with pytest.raises(ValueError, match="corner 2 is .*at most"):
        Polygon.from_corners([(0, 0), (1, 0), (0, 1.01 * FARTHEST)])
    Polygon.from_corners([(0, 0), (1, 0), (0, 0.99 * FARTHEST)])
    with pytest.raises(ValueError, match="enclose no area"):
        Polygon.from_corners([(0, 0), (1e6, 0), (5e5, 1e-4)])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 30])
@pytest.mark.parametrize("origin", [(0.0, 0.0), (1e6, -2e6)])
def test_a_grown_hull_is_as_far_beyond_in_each_of_its_directions(count, origin):
    path = np.random.default_rng(count).uniform(-3, 3, (count, 2)) + origin
    corners = grown_hull(path, 0.7)
    for k in range(32):
        direction = np.array([np.cos(2 * np.pi * k / 32), np.sin(2 * np.pi * k / 32)])
        assert (corners @ direction).max() == pytest.approx(
            (path @ direction).max() + 0.7, abs=1e-6
        )
    away = np.hypot(*(corners[:, None] - path).transpose(2, 0, 1)).min(1)
    np.testing.assert_allclose(away, 0.7, atol=1e-6)
    assert sum(
        turn(corners[i - 2], corners[i - 1], corners[i]) > 0 for i in range(len(corners))
    ) == len(corners)


def test_a_path_on_a_line_has_a_hull_of_its_two_ends():
    path = np.outer(np.linspace(-1, 2, 9), [1.0, 2.0])
    np.testing.assert_allclose(
        np.sort(grown_hull(path, 0.5), 0), np.sort(grown_hull(path[[0, -1]], 0.5), 0), atol=1e-9
    )
    for wrong in ((np.empty((0, 2)), 1.0), (path, 0.0), (path, np.inf), (path * np.nan, 1.0)):
        with pytest.raises(ValueError, match="expected finite places and a distance above 0"):
            grown_hull(*wrong)


def test_centres_inside_a_convex_polygon_are_those_inside_of_it():
    corners = grown_hull(np.array([[0.0, 0.0], [2.0, 1.0], [1.0, 3.0]]), 0.4)
    x, y = np.linspace(-1, 3, 41) + 0.013, np.linspace(-1, 4, 37) + 0.017
    found = inside_convex(corners, x, y)
    at = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    np.testing.assert_array_equal(found.ravel(), Polygon(corners).contains(at))
    level = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    assert inside_convex(
        level, np.array([-0.1, 0.0, 2.0, 2.1]), np.array([0.0, 1.0, 1.1])
    ).tolist() == [
        [False, True, True, False],
        [False, True, True, False],
        [False] * 4,
    ]


def test_a_pose_that_jumped_off_the_drawing_stretches_no_hull():
    x, y = np.arange(0.0, 4.0, 0.5), np.arange(0.0, 3.0, 0.5)
    path = np.array([[1.0, 1.0], [2.0, 1.0]])
    alone = within_hull(path, x, y, 0.6)
    assert alone[2, 2] and alone[1, 2] and not alone[2, 6] and not alone[4, 2]
    for far in ((4.1, 1.0), (-0.6, 1.0), (1.0, -0.6), (1.0, 3.1)):
        np.testing.assert_array_equal(within_hull(np.vstack([path, far]), x, y, 0.6), alone)
    for near in ((3.9, 1.0), (-0.4, 1.0), (1.0, -0.4), (1.0, 2.9)):
        assert within_hull(np.vstack([path, near]), x, y, 0.6).sum() > alone.sum()
    assert not within_hull(path + 50.0, x, y, 0.6).any()
    line = within_hull(path, x, y, 0.0)
    assert line[2, 1] and line[2, 5] and line[1, 3] and not line[2, 6], "one cell at least"
    assert within_hull(np.array([[0.0, 0.0]]), np.array([0.0]), np.array([0.0]), 0.0).all()

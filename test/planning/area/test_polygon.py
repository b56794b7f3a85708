"""Polygons of people: which are refused, in which words, and what the others contain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_mapping.planning.area.polygon import Polygon

L_SHAPE = [(0, 0), (4, 0), (4, 1), (1, 1), (1, 3), (0, 3)]


def test_contains_and_distance_of_an_l():
    shape = Polygon.from_corners([*L_SHAPE, L_SHAPE[0]])  # closed by hand: the same polygon
    assert len(shape.corners) == 6 and shape.area == pytest.approx(6.0)
    x = np.array([(0.5, 0.5), (3.5, 0.5), (0.5, 2.5), (2.0, 2.0), (-0.1, 0.5), (5.0, 0.5)])
    assert shape.contains(x).tolist() == [True, True, True, False, False, False]
    np.testing.assert_allclose(shape.distance(x), [0.5, 0.5, 0.5, 1.0, 0.1, 1.0])
    assert Polygon.from_corners(L_SHAPE[::-1]).contains(x).tolist() == shape.contains(x).tolist()


@given(st.floats(-3.2, 3.2), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
@settings(max_examples=30, deadline=None)
def test_turned_and_moved_it_contains_the_same(angle, dx, dy):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    x = np.random.default_rng(0).uniform(-1, 5, (200, 2))
    plain = Polygon.from_corners(L_SHAPE)
    moved = Polygon.from_corners(np.array(L_SHAPE) @ turn.T + (dx, dy))
    clear = plain.distance(x) > 1e-6
    assert (moved.contains(x @ turn.T + (dx, dy)) == plain.contains(x))[clear].all()


@pytest.mark.parametrize(
    ("corners", "words"),
    [
        ([], "0 corners"),
        ([(0, 0)], "1 corners"),
        ([(0, 0), (1, 0)], "2 corners"),
        ([(0, 0), (1, 0), (0, 0)], "has 3 corners, 2 without repeated ones"),
        ([(0, 0), (1, 0), (2, 0)], "crosses or touches|encloses? no area"),
        (
            [(0, 0), (1, 1), (1, 0), (0, 1)],
            "side from corner 0 crosses or touches the side from corner 2",
        ),
        ([(0, 0), (2, 0), (2, 2), (1, 0), (0, 2)], "crosses or touches"),
        ([(0, 0), (2, 0), (1, 0), (1, 1)], "crosses or touches"),
        ([(0, 0), (1, 0), (1, 0), (0, 0)], "has 4 corners, 2 without repeated ones"),
        ([(0, 0), (0, 0), (0, 0)], "its 3 corners are one place"),
        ([(0, 0), (1, 0), (0, 1), (1, 0)], "crosses or touches"),
        ([(0, 0), (1, float("nan")), (0, 1)], "corner 1 is"),
        ([(0, 0), (float("inf"), 0), (0, 1)], "finite"),
        ([(0, 0), (1e200, 0), (0, 1)], "at most 1e.08 from the origin"),
        ([(0, 0, 1)], "not corners"),
        ("nonsense", "not corners"),
        ([(np.cos(a), np.sin(a)) for a in np.linspace(0, 6, 2500)], "expected 3 to 2000"),
    ],
)
def test_what_is_no_polygon_is_refused_in_words(corners, words):
    with pytest.raises(ValueError, match=words) as refused:
        Polygon.from_corners(corners, name="region")
    assert str(refused.value).startswith("region: ")


def test_a_corner_that_is_clicked_twice_counts_once():
    for corners in (
        [(0, 0), (1, 0), (1, 0), (0, 1)],
        [(0, 0), (0, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 0)],
    ):
        polygon = Polygon.from_corners(corners)
        assert len(polygon.corners) == 3 and polygon.area == 0.5


def test_many_random_stars_are_taken_and_their_shuffles_refused():
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        angles = np.sort(rng.uniform(0, 2 * np.pi, 12))
        if np.diff(np.append(angles, angles[0] + 2 * np.pi)).max() > 3.0:
            continue
        star = rng.uniform(0.5, 2.0, (12, 1)) * np.stack([np.cos(angles), np.sin(angles)], 1)
        assert Polygon.from_corners(star).area > 0
        try:
            Polygon.from_corners(rng.permutation(star))
        except ValueError:
            refused += 1
    assert refused > 50

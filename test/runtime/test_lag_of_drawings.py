"""How much driven ground a drawing does not show yet, and for how long."""

from types import SimpleNamespace as Namespace

import numpy as np
import pytest

from gp_mapping.runtime.drawing_lag import DrawingLag, undrawn_share

PATH = np.array([[1.25, 2.25], [1.75, 2.25], [2.25, 2.25], [1.25, 2.75]])


def grid(*known):
    """Two rows and three columns of half a metre, from (1, 2) m; those of `known` are drawn."""
    out = np.zeros((2, 3), bool)
    for cell in known:
        out[cell] = True
    return Namespace(shape=(2, 3), origin=(1.0, 2.0), resolution=0.5, known=out)


@pytest.mark.parametrize(
    "known, path, share",
    [
        ([(0, 0), (0, 1), (0, 2), (1, 0)], PATH, 0.0),
        ([(0, 0), (0, 1), (0, 2)], PATH, 0.25),
        ([], PATH, 1.0),
        ([(0, 0)], np.empty((0, 2)), 0.0),
        # outside of the drawing, on each side
        ([(0, 0), (1, 0), (0, 2), (1, 2)], PATH[:1] - [0.5, 0.0], 1.0),
        ([(0, 0), (1, 0), (0, 2), (1, 2)], PATH[:1] - [0.0, 0.5], 1.0),
        ([(0, 0), (1, 0), (0, 2), (1, 2)], PATH[2:3] - [-0.5, 0.0], 1.0),
        ([(0, 0), (1, 0), (0, 2), (1, 2)], PATH[3:] - [0.0, -0.5], 1.0),
        ([(0, 0)], [[1.0, 2.0], [1.5, 2.0]], 0.5),  # the corners of two cells
    ],
)
def test_the_share_of_a_path_that_is_not_drawn(known, path, share):
    assert undrawn_share(path, grid(*known)) == share


def test_a_lag_is_measured_every_second_and_ends_with_the_points_that_wait():
    lag = DrawingLag()
    session = Namespace(renderer=Namespace(points_stale=3), path=PATH)
    drawn, half, none = grid((0, 0), (0, 1), (0, 2), (1, 0)), grid((0, 0), (0, 1)), grid()
    assert lag.state(0.0) == (0.0, 0.0)
    lag.look(session, half, 10.0)
    assert lag.state(10.0) == (0.5, 0.0)
    lag.look(session, none, 10.9)  # too early to look again
    assert lag.state(11.0) == (0.5, 1.0)
    lag.look(session, none, 11.0)
    assert lag.state(12.0) == (1.0, 2.0), "since it was first seen"
    assert lag.state(16.0) == (1.0, 6.0) and lag.state(16.1) == (0.0, 0.0), "nothing is drawn"
    lag.look(session, drawn, 17.0)
    assert lag.state(17.5) == (0.0, 0.0)
    lag.look(session, half, 18.0)
    assert lag.state(19.0) == (0.5, 1.0)
    session.renderer.points_stale = 0
    lag.look(session, none, 19.1)
    assert lag.state(19.5) == (0.0, 0.0)
    session.renderer.points_stale = 1
    lag.look(session, half, 19.6)  # half a second after the last look
    assert lag.state(19.7) == (0.0, 0.0)


def test_a_gap_that_nobody_sees_is_none():
    """A fiftieth of the path."""
    lag = DrawingLag()
    path = np.repeat(PATH[:1], 100, 0)
    for outside, since in ((1, 0.0), (2, 2.0)):
        path[:outside] += 9.0
        lag.look(Namespace(renderer=Namespace(points_stale=1), path=path), grid((0, 0)), outside)
        assert lag.state(outside + 2.0) == (pytest.approx(0.01 * outside), since)

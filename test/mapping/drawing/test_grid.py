"""Windows and grids: where cells lie, and that they are as many as may be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_mapping.mapping.drawing.grid import FieldGrid, GridWindow

COORDINATE = st.floats(-1e6, 1e6)


@settings(max_examples=150, deadline=None)
@given(
    x=COORDINATE,
    y=COORDINATE,
    w=st.floats(0, 500),
    h=st.floats(0, 500),
    resolution=st.sampled_from([0.05, 0.1, 0.7]),
    margin=st.floats(0, 5),
    most=st.integers(16, 100000),
)
def test_a_window_holds_what_it_is_around_within_its_bound(x, y, w, h, resolution, margin, most):
    low, high = (x, y), (x + w, y + h)
    window = GridWindow.around(low, high, resolution, margin, most)
    assert 1 <= window.width * window.height <= most
    assert window.contains(low, high, margin * (1 - 1e-9) - 1e-6 if margin else -1e-6)
    assert window.resolution >= resolution
    xs, ys = window.axes()
    assert len(xs) == window.width and len(ys) == window.height
    assert float(xs[0]) - window.origin[0] == pytest.approx(window.resolution / 2, abs=1e-7)
    # no finer than needed: half the resolution would have been too many cells
    if window.resolution > resolution:
        half = window.resolution / 2
        assert (w + 2 * margin + 4 * half) * (h + 2 * margin + 4 * half) / half**2 > most


def test_cells_are_whole_multiples_of_the_resolution():
    """So that a window that grows keeps its old cells."""
    a, b = (GridWindow.around((0.03, 0.0), (high, 1.0), 0.1, 0.2, 10**6) for high in (1.0, 7.77))
    assert (a.left, a.bottom) == (b.left, b.bottom) == (-2, -2)
    assert torch.equal(a.axes()[0], b.axes()[0][: a.width])


def test_a_window_within_a_bound_has_its_margin_on_every_side():
    ends = (1.0, 2.0), (3.0, 4.0)
    assert GridWindow.within(*ends, (1.0, 2.0), 0.5, 0.3, 10**6) == GridWindow(1, 3, 6, 6, 0.5)
    for about in (ends[0], ends[1], (2.0, 3.0)):
        window = GridWindow.within(*ends, about, 0.5, 0.3, 9)
        assert (
            window.width * window.height <= 9
            and window.resolution == 0.5
            and window.contains(about, about, 0.0)
        )
        assert window.left >= 1 and window.bottom >= 3 and window.left + window.width <= 7


def test_contains():
    window = GridWindow(0, 0, 10, 20, 0.5)
    assert window.contains((0.0, 0.0), (5.0, 10.0), 0.0) and window.contains(
        (1.0, 1.0), (4.0, 9.0), 1.0
    )
    for low, high in (
        ((-0.1, 0.0), (5.0, 10.0)),
        ((0.0, -0.1), (5.0, 10.0)),
        ((0.0, 0.0), (5.1, 10.0)),
        ((0.0, 0.0), (5.0, 10.1)),
    ):
        assert not window.contains(low, high, 0.0)


def test_centres_are_in_the_order_of_the_arrays():
    h, w = 3, 4
    zeros = torch.zeros(h, w, dtype=torch.float64)
    grid = FieldGrid((10.0, -5.0), 0.5, zeros, zeros, zeros > 0, 1e-6, 7)
    assert grid.shape == (3, 4)
    centres = grid.centres().reshape(h, w, 2)
    assert centres[0, 0].tolist() == [10.25, -4.75] and centres[0, 1].tolist() == [10.75, -4.75]
    assert centres[2, 3].tolist() == [11.75, -3.75], "row 0 is at the smallest y"


def test_layers_of_one_number_of_three_axes_and_of_classes():
    one, three = (
        torch.zeros(2, 2, dtype=torch.float64),
        torch.arange(12, dtype=torch.float64).reshape(3, 2, 2),
    )
    parts = (0.0, 0.0), 0.5, one, one + 1.0, one > 0, 1e-6, 7
    assert list(FieldGrid(*parts).layers) == ["mean", "stddev"]
    axes = FieldGrid(*parts, axes_mean=three, axes_stddev=-three).layers
    assert list(axes) == [
        "mean",
        "stddev",
        "mean_x",
        "stddev_x",
        "mean_y",
        "stddev_y",
        "mean_z",
        "stddev_z",
    ]
    assert torch.equal(axes["mean_y"], three[1]) and torch.equal(axes["stddev_z"], -three[2])
    classes = FieldGrid(*parts, axes_mean=three, axes_stddev=three, classes=one).layers
    assert list(classes)[:4] == ["mean", "stddev", "class", "mean_0"] and torch.equal(
        classes["class"], one
    )

"""Which cells the view asks for: those near the path, on one lattice, never more than a question may hold."""

import numpy as np
import pytest

from gp_mapping.ros.clients.window_asker import MOST_POINTS, places


def road(length, step=0.1):
    x = np.arange(0.0, length, step)
    return np.column_stack([x, 0.3 * np.sin(x)])


def test_cells_are_near_the_path_and_inside():
    path = road(6.0)
    cells = places((1.0, -1.0), (4.0, 1.0), path, 0.3)
    apart = np.sqrt(((cells[:, None] - path[None]) ** 2).sum(2)).min(1)
    assert 100 < len(cells) <= MOST_POINTS and apart.max() < 0.45
    assert cells[:, 0].min() > 0.9 and cells[:, 0].max() < 4.1
    dense = np.stack(
        np.meshgrid(np.arange(1.1, 3.9, 0.05), np.arange(-0.9, 0.9, 0.05)), -1
    ).reshape(-1, 2)
    near = dense[np.sqrt(((dense[:, None] - path[None]) ** 2).sum(2)).min(1) < 0.2]
    gaps = np.abs(near[:, None] - cells[None]).max(2).min(1)
    assert gaps.max() <= 0.5 * 0.05 * 1.01, "a hole near the path"
    rows = cells[:, 1]
    assert (np.diff(rows) >= -1e-9).all(), "row by row"


@pytest.mark.parametrize("length", [50.0, 3000.0])
def test_a_large_window_has_larger_cells_and_no_more_of_them(length):
    cells = places((-1e6, -1e6), (1e6, 1e6), road(length), 0.6)
    assert 200 < len(cells) <= MOST_POINTS
    assert cells[:, 0].min() < 5.0 and cells[:, 0].max() > 0.95 * length


def test_where_nobody_drove_nothing_is_asked():
    assert len(places((100.0, 100.0), (104.0, 103.0), road(20.0), 0.5)) == 0
    assert len(places((0.0, 0.0), (1.0, 1.0), np.empty((0, 2)), 0.5)) == 0

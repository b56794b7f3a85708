"""A map drawn block by block at full resolution: where there is ground, and as it is predicted there."""

import numpy as np
import pytest
import torch

from gp_mapping import Samples, create_map
from gp_mapping.mapping.drawing.blocks import block_indices, drawn_block, drawn_blocks
from gp_mapping.settings.mapping import MapSettings

SETTINGS = MapSettings(field_scale=1.0, resolution=0.1, margin=0.5, max_grid_cells=100)
CELLS = 20  # of 2 m


def test_blocks_are_those_that_the_ground_and_its_margin_touch():
    """Row by row from the lowest; block (i, j) begins at (i, j) sides."""
    ground = np.array([[0.6, 0.6, 1.4, 1.4], [-0.2, 2.6, 0.1, 3.4]])
    assert block_indices(ground, 2.0, 0.5) == [(0, 0), (-1, 1), (0, 1)]
    assert block_indices(ground[:1], 2.0, 0.7) == [
        (-1, -1),
        (0, -1),
        (1, -1),
        (-1, 0),
        (0, 0),
        (1, 0),
        (-1, 1),
        (0, 1),
        (1, 1),
    ]
    assert block_indices(np.empty((0, 4)), 2.0, 0.5) == []


@pytest.fixture(scope="module")
def field():
    along = torch.arange(0.0, 5.0, 0.1, dtype=torch.float64)
    x = torch.stack([along, 0.5 + 0.2 * along], 1)
    out = create_map(
        "dual_svgp",
        field_scale=1.0,
        lengthscale=0.8,
        signal_stddev=3.0,
        noise_stddev=0.2,
        learn_hyperparameters=False,
        learn_time_offset=False,
        heading_stddev=0.0,
    )
    out.update(Samples(x, 40.0 + 3.0 * torch.sin(2.0 * x[:, :1])))
    return out


def test_a_block_is_what_is_predicted_at_its_cells(field):
    """Of as many cells as were asked for, whatever the largest grid of a window and its margin."""
    ground = np.array([[0.0, 0.5, 4.9, 1.5]])
    grid = drawn_block((1, 0), field, SETTINGS, ground, CELLS, 0.2, 7, None)
    assert (
        grid.shape == (CELLS, CELLS)
        and grid.origin == pytest.approx((2.0, 0.0))
        and grid.resolution == 0.1
    )
    told = field.predict(grid.centres())
    known = grid.known.reshape(-1)
    assert 50 < int(known.sum()) and bool(grid.known[6:15].all())
    away = (grid.mean.reshape(-1) - told.mean[:, 0]) / (told.variance[:, 0] + 0.04).sqrt()
    assert float(away[known].abs().max()) < 0.05


@pytest.mark.parametrize("cells", [1, 2, 3, 5])
def test_a_small_block_has_as_many_cells_as_a_large_one(field, cells):
    grid = drawn_block(
        (4, 2), field, SETTINGS, np.array([[0.0, 0.5, 4.9, 1.5]]), cells, 0.2, 7, None
    )
    assert grid.shape == (cells, cells) and grid.origin == pytest.approx((0.4 * cells, 0.2 * cells))


def test_blocks_where_nothing_is_known_are_left_out(field):
    """Of a robot that was said to have been elsewhere, too."""
    ground = np.array([[0.0, 0.5, 4.9, 1.5], [100.0, 100.0, 100.5, 100.5]])
    found = dict(drawn_blocks(field, SETTINGS, ground, CELLS, 0.2, 7, None))
    assert {(0, 0), (1, 0), (2, 0)} <= set(found) and all(
        abs(i) < 5 and abs(j) < 5 for i, j in found
    )
    for (i, j), grid in found.items():
        assert grid.origin == pytest.approx((2.0 * i, 2.0 * j)) and bool(grid.known.any())


def test_where_nothing_is_evaluated_nothing_is_known():
    """Splines swing where the prior begins, with its unknown level: cells far from all ground were known."""
    along = torch.arange(0.0, 20.0, 0.1, dtype=torch.float64)
    x = torch.stack([along, 0.5 + 0.2 * along], 1)
    field = create_map(
        "dual_svgp",
        field_scale=1.0,
        lengthscale=2.0,
        signal_stddev=1.0,
        constant_stddev=10.0,
        noise_stddev=0.1,
        learn_hyperparameters=False,
        learn_time_offset=False,
        heading_stddev=0.0,
    )
    field.update(Samples(x, torch.sin(2.0 * x[:, :1])))
    # steps, as of a path that is kept in boxes
    ground = np.array([[a, 0.5 + 0.2 * a, a + 1.0, 0.7 + 0.2 * a] for a in range(20)])
    grid = drawn_block((0, 0), field, SETTINGS, ground, 200, 0.1, 7, None)
    exact = field.predict(grid.centres()[grid.known.reshape(-1)]).variance.sqrt()
    assert 1000 < len(exact) and exact.max() < 1.02 * SETTINGS.unknown_ratio

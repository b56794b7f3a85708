"""A map of small tiles and a road through them, which tests of tiles share."""

import torch

from gp_mapping import Samples, create_map

UT = 1e-6
SETTINGS = {
    "lengthscale": 0.6,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.3 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "centre": [45 * UT],
    "tiles": True,
    "max_inducing": 60,
    "memory_size": 300,
    "map_tile_side": 5.0,
    "tiles_in_memory": 9,
}


def field_at(x):
    """(N, 1) T, of places (N, 2) m."""
    return 45 * UT + 8 * UT * torch.sin(2.0 * x[:, :1]) * torch.cos(3.0 * x[:, 1:])


def road(start, stop, y=0.0):
    """A measurement every .1 m along x, from start to stop, m."""
    along = torch.arange(start, stop, 0.1, dtype=torch.float64)
    x = torch.stack([along, torch.full_like(along, y)], 1)
    return Samples(x, field_at(x))


def long_road():
    """A road, of which only the tiles about its end are in memory."""
    field = create_map("dual_svgp", **SETTINGS)
    field.most = 1
    for start in torch.arange(0.0, 12.0, 0.8).tolist():
        field.update(road(start, start + 0.8))
        field.absorb_waiting()
    return field

"""A drawing of a map of tiles: what has changed in one of them is drawn again there and nowhere else."""

import copy
import functools
import math

import torch

from gp_mapping import MapSettings, Samples, create_map
from gp_mapping.mapping.drawing.renderer import Renderer

UT = 1e-6
SETTINGS = {
    "lengthscale": 0.6,
    "signal_stddev": 10 * UT,
    "noise_stddev": 0.3 * UT,
    "heading_stddev": 0.0,
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "max_inducing": 110,
    "memory_size": 600,
    "map_tile_side": 5.0,
}


@functools.cache
def survey():
    """12 × 2 m in tiles, which no test changes."""
    xs = torch.arange(0.0, 12.0, 0.1).double()
    x = torch.cat(
        [
            torch.stack([xs if i % 2 == 0 else 12.0 - xs, torch.full_like(xs, 0.5 * i)], 1)
            for i in range(5)
        ]
    )
    y = 45 * UT + 10 * UT * torch.sin(1.7 * x[:, :1]) * torch.cos(1.3 * x[:, 1:])
    field = create_map("dual_svgp", **SETTINGS, centre=[45 * UT], tiles=True)
    for part in torch.arange(len(x)).split(4):
        field.update(Samples(x[part], y[part]))
    return field


def surveyed():
    """A copy, which goes on by itself."""
    return copy.deepcopy(survey())


def test_a_change_in_one_tile_is_drawn_there_alone():
    field, bounds = surveyed(), ([0.0, 0.0], [12.0, 2.0])
    assert field.counters()["tiles"] >= 4 and field.changed_since(field.epoch) == []
    settings = MapSettings(**SETTINGS, resolution=0.1)
    kept = Renderer(settings)
    kept.render(field, bounds, 0.3 * UT, 1)
    every = kept.points_drawn
    before = field.epoch
    assert field.forget_near(torch.tensor([[11.0, 1.0]]).double(), 0.5, 0) > 5
    boxes = field.changed_since(before)
    assert boxes and all(low[0] > 4.0 for low, _ in boxes)

    again = kept.render(field, bounds, 0.3 * UT, 2)
    assert 0 < kept.points_drawn < 0.6 * every
    fresh = Renderer(settings).render(field, bounds, 0.3 * UT, 2)
    assert float((again.mean - fresh.mean).abs().max()) < 0.01 * UT
    assert float((again.stddev / fresh.stddev - 1.0).abs().max()) < 0.02

    field.forget(0.5)
    assert field.changed_since(before) is None
    kept.render(field, bounds, 0.3 * UT, 3)
    assert kept.points_drawn == every


def test_what_was_not_looked_at_for_long_is_drawn_as_a_whole():
    field = surveyed()
    before = field.epoch
    for _ in range(70):
        field.forget_near(torch.tensor([[11.0, 1.0]]).double(), 0.1, 0)
    assert field.changed_since(before) is None and len(field.changed_since(field.epoch - 1)) >= 1
    assert math.isfinite(float(field.predict(torch.tensor([[11.0, 1.0]]).double()).mean))

"""Tiles lie in the plane: samples of other dimensions stay one map, and what is asked has the map's."""

import copy

import numpy as np
import pytest
import torch
from core_data import SETTINGS

from gp_mapping import Samples, create_map

SMALL = {"max_inducing": 30, "memory_size": 60, "tiles": True}


def build(**settings):
    return create_map("dual_svgp", **(SETTINGS | SMALL | settings))


def driven(dimensions, n=200):
    """Samples along a way of 20 m, which takes several tiles of a plane."""
    x = torch.zeros(n, dimensions, dtype=torch.float64)
    x[:, 0] = torch.linspace(0.0, 20.0, n)
    return Samples(x, 1e-5 * torch.sin(x[:, 0]))


def fed(batch):
    field = build()
    for start in range(0, len(batch), 10):
        field.update(batch[start : start + 10])
    return field


@pytest.fixture(scope="module")
def plane():
    field = fed(driven(2))
    assert field.counters()["tiles"] > 1
    return field


@pytest.mark.parametrize("dimensions", [1, 3])
def test_a_line_or_a_space_stays_one_map(dimensions):
    """It was laid out in tiles when it was full, and had then no tile, or took no sample any more."""
    batch = driven(dimensions)
    field = fed(batch)
    assert field.samples == len(batch) and field.counters()["tiles"] == 1
    assert torch.isfinite(field.predict(batch.x).mean).all()


@pytest.mark.parametrize(
    "wrong", [torch.ones(3, 1), torch.ones(3, 3), torch.ones(2)], ids=["(3, 1)", "(3, 3)", "(2,)"]
)
def test_places_of_another_shape_are_refused(plane, wrong):
    kept = plane.snapshot()
    for ask in (
        plane.predict,
        kept.predict,
        lambda x: plane.predict_in_pass(x, 0.0),
        lambda x: plane.covariance(x, torch.zeros(1, 2)),
        lambda x: plane.covariance(torch.zeros(1, 2), x),
        lambda x: kept.covariance(x, torch.zeros(1, 2)),
        plane.fantasize,
        lambda x: plane.forget_near(x, 0.1, 0),
    ):
        with pytest.raises(ValueError, match="expected"):
            ask(wrong)


def test_arrays_and_no_places_at_all_are_places(plane):
    x = np.array([[1.0, 0.0], [2.0, 0.0]])
    there, kept = torch.from_numpy(x), plane.snapshot()
    assert torch.equal(plane.predict(x).mean, plane.predict(there).mean)
    assert torch.equal(kept.covariance(x, x), kept.covariance(there, there))
    assert torch.equal(
        plane.fantasize(x).predict(x).stddev, plane.fantasize(there).predict(there).stddev
    )
    assert copy.deepcopy(plane).forget_near(x, 0.1, 0) > 0
    for ask in (plane.predict, kept.predict, lambda x: plane.predict_in_pass(x, 0.0)):
        assert ask(x[:0]).mean.shape == ask(x[:0]).variance.shape == (0, 1)
    with pytest.raises(ValueError, match="shape"):
        plane.predict(x, np.ones((3, 2)))


def test_maps_of_other_dimensions_or_units_are_not_merged(plane):
    for other in (fed(driven(3)), build(field_scale=1e-3)):
        other.update(Samples(torch.zeros(1, 3 if other.started else 2), torch.zeros(1)))
        field = copy.deepcopy(plane)
        with pytest.raises(ValueError, match="cannot be merged"):
            field.merge(other)
        x = torch.rand(20, 2) * 20
        assert torch.equal(field.predict(x).mean, plane.predict(x).mean)
        assert field.samples == plane.samples


def test_what_is_no_state_is_refused():
    for wrong in (None, [], 3):
        with pytest.raises(ValueError, match="not a state"):
            build().load_state_dict(wrong)


def test_a_snapshot_comes_back_from_its_state(plane):
    """As it is sent to whoever plans with it: tiles in memory, of which a few are asked for."""
    near = torch.tensor([[19.0, 0.0]], dtype=torch.float64)
    kept = plane.snapshot(near, 1.0)
    again = plane.load_snapshot(kept.state_dict())
    assert set(again.tiles) == set(kept.tiles) and len(kept.tiles) >= 1
    x = near + torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)[:, None]
    one, other = kept.predict(x), again.predict(x)
    assert torch.equal(one.mean, other.mean) and torch.equal(one.variance, other.variance)
    assert bool((one.variance < 0.5 * again.prior.variance).all()), "it knows something there"

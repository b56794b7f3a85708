"""What a map does that defines nothing but what it must: the defaults of gp_mapping.core.field_map."""

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, samples
from own_model import OwnGP
from scipy.stats import norm

from gp_mapping import MapSettings, Samples
from gp_mapping.core.field_map import FieldMap

PLACES = torch.from_numpy(np.random.default_rng(0).uniform(0, 3, (7, 2)))


@pytest.fixture(scope="module")
def field() -> FieldMap:
    own = OwnGP(MapSettings(**SETTINGS))
    feed(own, samples(*drive(60)), 20)
    return own


@pytest.mark.parametrize("noise", [None, 4.0])
def test_the_density_of_new_samples_is_gaussian(field, noise):
    """With the model's noise, or each sample's own."""
    y = 48.0 + np.random.default_rng(1).normal(0, 5, (7, 1))
    own = None if noise is None else noise * UT**2 * np.arange(1, 8)
    told = FieldMap.log_predictive(field, Samples(PLACES, y * UT, noise_variance=own))
    p = field.predict(PLACES)
    variance = p.variance + (p.noise_variance if own is None else torch.from_numpy(own)[:, None])
    wanted = norm.logpdf(y * UT, p.mean.numpy(), variance.sqrt().numpy())
    assert told.shape == (7,) and np.allclose(told.numpy(), wanted.sum(1))


def test_a_field_is_observed_as_it_is_and_the_rest_is_not_known(field):
    p, y = field.predict(PLACES), torch.ones(3, 1)
    assert FieldMap.observed(field, p) is p and FieldMap.outcome(field, y) is y
    assert torch.equal(FieldMap.observable(field, PLACES).mean, p.mean)
    assert FieldMap.noise_variance(field).tolist() == pytest.approx([UT**2], rel=1e-6, abs=0.0)
    assert FieldMap.body_field(field) is None and FieldMap.calibration_data(field) is None
    for places in (FieldMap.inducing_inputs(field), FieldMap.remembered_places(field)):
        assert places.shape == (0, 2) and places.dtype == torch.float64
    assert [len(part) for part in FieldMap.remembered_motion(field)] == [0, 0]
    assert FieldMap.counters(field) == {"jitter": 0.0} and FieldMap.notes(field) == []
    with pytest.raises(RuntimeError, match="no sample yet"):
        OwnGP(MapSettings(**SETTINGS)).need_data()


def test_it_learns_nothing_agrees_on_nothing_and_has_no_parts(field):
    state = field.state_dict()
    assert FieldMap.learning_steps.fget(field) is None and FieldMap.learned(field) is None
    assert FieldMap.agree_on(field, None) is False
    assert FieldMap.slimmed(field, state) is state and FieldMap.unreadable(field) == []

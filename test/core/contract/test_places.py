"""Places, velocities and headings of a wrong shape are refused by every model, whatever they would be broadcast to."""

import math

import numpy as np
import pytest
import torch
from core_data import SETTINGS, drive, samples

from gp_mapping import Samples, create_map
from gp_mapping.core.registry import model_names

WRONG = (torch.ones(3, 1), torch.ones(3, 3), torch.ones(2), torch.tensor(1.0))
X, Y = drive(30)


def built(model, **settings):
    field = create_map(model, **(SETTINGS | settings))
    field.update(samples(X, np.repeat(Y, 3, 1) if model == "curl_free" else Y))
    return field


@pytest.mark.parametrize("model", model_names())
def test_places_of_another_shape_are_refused(model):
    """A column of x alone was taken for places on the diagonal."""
    field = built(model)
    right = torch.from_numpy(X[:2])
    kept = field.snapshot()
    for wrong in WRONG:
        for ask in (
            field.predict,
            kept.predict,
            lambda x: field.covariance(x, right),
            lambda x: field.covariance(right, x),
            field.fantasize,
            lambda x: field.forget_near(x, 0.1, 0),
        ):
            with pytest.raises(ValueError, match="expected"):
                ask(wrong)


@pytest.mark.parametrize("model", model_names())
def test_places_that_are_not_finite_are_refused_by_name(model):
    """One model answered the prior, the others NaN, and forgetting failed in a conversion."""
    field = built(model)
    right = torch.from_numpy(X[:2])
    kept = field.snapshot()
    for value in (math.nan, math.inf, -math.inf):
        wrong = torch.tensor([[0.5, 0.5], [0.25, value]], dtype=torch.float64)
        for ask in (
            field.predict,
            kept.predict,
            lambda x: field.covariance(x, right),
            lambda x: field.covariance(right, x),
            field.fantasize,
            lambda x: field.forget_near(x, 0.1, 0),
        ):
            with pytest.raises(ValueError, match=r"place 1 is \(0.25, -?(nan|inf)\)"):
                ask(wrong)
    assert field.predict(torch.full((2, 2), 1e308, dtype=torch.float64)).mean.shape[0] == 2


@pytest.mark.parametrize("model", model_names())
def test_a_radius_that_holds_no_place_is_refused(model):
    """−0.5 m and NaN forgot nothing, without a word."""
    field = built(model)
    for radius in (-0.5, math.nan):
        with pytest.raises(ValueError, match="radius is (-0.5|nan), expected 0 or more metres"):
            field.forget_near(X[:2], radius, 0)
    field.forget_near(X[:2], 0.0, 0)


@pytest.mark.parametrize("model", ["dual_svgp", "exact", "wiski"])
def test_velocities_and_headings_go_with_the_places(model):
    field, x = built(model), torch.from_numpy(X[:4])
    for velocity, heading in (
        (torch.ones(1, 2), None),
        (torch.ones(3, 2), None),
        (torch.ones(4), None),
        (torch.ones(4, 2), torch.ones(4)),
        (torch.ones(4, 2), torch.ones(1, 2)),
    ):
        with pytest.raises(ValueError, match="expected"):
            field.predict(x, velocity, heading)
    east = np.array([[1.0, 0.0]] * 4)
    arrays = field.predict(X[:4], np.ones((4, 2)), east)
    tensors = field.predict(x, torch.ones(4, 2), torch.from_numpy(east))
    assert torch.equal(arrays.mean, tensors.mean)


@pytest.mark.parametrize("model", ["dual_svgp", "exact", "wiski"])
def test_a_gradient_does_not_get_into_a_map(model):
    """Of samples that require one the map kept all that they were computed from, and could not be saved."""
    plain, field = (create_map(model, **SETTINGS) for _ in range(2))
    plain.update(samples(X, Y))
    x, y = (torch.from_numpy(v).requires_grad_() for v in (X, Y * 1e-6))
    field.update(Samples(x, y, velocity=torch.zeros_like(x) * x))
    predicted = field.predict(x)
    assert not predicted.mean.requires_grad
    assert torch.equal(predicted.mean, plain.predict(torch.from_numpy(X)).mean)
    create_map(model, **SETTINGS).load_state_dict(field.state_dict())

"""Acquisition values against refitting, and against the map after a real update."""

import numpy as np
import planning_scene as scene
import pytest
import torch

from gp_mapping import Samples
from gp_mapping.planning import integrated_variance_reduction, maximum_variance

MODELS = ["exact", "dual_svgp"]


def tight(model: str) -> dict:
    """dual_svgp with an inducing input wherever it is not quite redundant: near the exact GP."""
    return {"inducing_tolerance": 1e-5, "inducing_information": 0.0} if model == "dual_svgp" else {}


@pytest.mark.parametrize("model", MODELS)
def test_variance_is_the_numpy_gps(model):
    field = scene.measured_map(model, **tight(model))
    places = scene.grid_of(field).centres()
    expected = np.diag(scene.posterior(scene.path().numpy(), places.numpy()))
    np.testing.assert_allclose(maximum_variance(field, places).numpy(), expected, rtol=1e-3)


def test_reduction_equals_refitting_with_each_candidate():
    field = scene.measured_map("exact")
    places = scene.grid_of(field).centres()
    data, x = scene.path().numpy(), places.numpy()
    before = np.diag(scene.posterior(data, x)).sum()
    drop = [before - np.diag(scene.posterior(np.vstack([data, p]), x)).sum() for p in x]
    np.testing.assert_allclose(
        integrated_variance_reduction(field, places, places).numpy(), drop, rtol=1e-6
    )


@pytest.mark.parametrize("model", MODELS)
def test_reduction_is_the_drop_after_an_update(model):
    field = scene.measured_map(model, **tight(model))
    places = scene.grid_of(field).centres()
    before = field.predict(places)
    place = places[37:38]
    promised = float(integrated_variance_reduction(field, place, places))
    field.update(Samples(place, torch.tensor([50e-6]), noise_variance=before.noise_variance[0]))
    drop = float(before.variance.sum() - field.predict(places).variance.sum())
    # dual_svgp gains an inducing input at the new place, which also frees the variance it had lost to sparsity
    assert promised == pytest.approx(drop, rel=1e-8 if model == "exact" else 0.02)


@pytest.mark.parametrize("model", MODELS)
def test_reduction_is_the_drop_of_a_fantasy(model):
    field = scene.measured_map(model, **tight(model))
    places = scene.grid_of(field).centres()
    for index in (0, 37, 119):
        promised = float(integrated_variance_reduction(field, places[index : index + 1], places))
        fantasy = field.fantasize(places[index : index + 1])
        drop = float(field.predict(places).variance.sum() - fantasy.predict(places).variance.sum())
        assert promised == pytest.approx(drop, rel=1e-6)


def test_weights_noise_and_chunks():
    field = scene.measured_map("exact")
    fine = scene.grid_of(field, 30, 25, 0.1).centres()  # 750 candidates: two chunks
    targets = fine[::7]
    plain = integrated_variance_reduction(field, fine, targets)
    single = torch.cat(
        [integrated_variance_reduction(field, fine[i : i + 1], targets) for i in (0, 511, 512, 749)]
    )
    torch.testing.assert_close(plain[[0, 511, 512, 749]], single, rtol=1e-10, atol=0.0)
    weighted = integrated_variance_reduction(
        field, fine, targets, torch.full((len(targets),), 0.5).double()
    )
    torch.testing.assert_close(weighted, plain / 2, rtol=1e-10, atol=0.0)
    assert bool(
        (integrated_variance_reduction(field, fine, targets, noise_variance=4e-12) < plain).all()
    )


def test_errors_say_what_was_expected():
    field = scene.measured_map("exact")
    x = scene.path()
    with pytest.raises(ValueError, match="expected one per target"):
        integrated_variance_reduction(field, x, x, torch.ones(3))
    with pytest.raises(ValueError, match="expected a positive variance"):
        integrated_variance_reduction(field, x, x, noise_variance=0.0)

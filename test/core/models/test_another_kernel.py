"""A map that goes on with another kernel is the map that would have been with it."""

from dataclasses import replace

import pytest
import torch

from gp_mapping import Samples, create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels import make_kernel

PLAIN = {"field_scale": 1.0, "constant_stddev": 6.0, "heading_stddev": 0.0, "noise_stddev": 0.1}
NAMES = "lengthscale", "signal_stddev", "noise_stddev", "bias_stddev"
GENERATOR = torch.Generator().manual_seed(0)
PLACES = 3.0 * torch.rand(200, 2, dtype=torch.float64, generator=GENERATOR)
GRAM = make_kernel("matern92", 9.0, 0.8)(PLACES, PLACES) + 1e-6 * torch.eye(200).double()
VALUES = torch.linalg.cholesky(GRAM) @ torch.randn(200, 1, generator=GENERATOR).double()


def fed(model, **settings):
    """A map of all samples, which it took in several batches."""
    field = create_map(model, **(PLAIN | settings))
    for rows in torch.arange(200).split(40):
        field.update(Samples(PLACES[rows], VALUES[rows]))
    return field


@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp", "fitc", "pic"])
def test_it_is_the_map_that_had_it_from_the_first_sample(model):
    start = {"kernel": "matern32", "lengthscale": 1.0, "signal_stddev": 3.0}
    field = fed(model, **start)
    field.in_slices(True)
    search = field.kernel_search()
    search.finish()
    theta: Theta = search.clearly
    assert theta.kernel_name in ("matern72", "matern92")

    field.use_kernel(theta)
    restored = create_map(model, **(PLAIN | start))
    restored.load_state_dict(field.state_dict())
    assert restored.learner.theta.kernel_name == theta.kernel_name
    for each in (field, restored):
        each.finish_rebuild()
        assert each.kernel_name == theta.kernel_name

    numbers = {name: getattr(theta, name) for name in NAMES}
    given = {"learn_hyperparameters": False, "learn_time_offset": False, "centre": field.centre}
    fresh = fed(model, kernel=theta.kernel_name, **(numbers | given))
    for each in (field, restored, fresh):
        each.use_budget()
    there = 3.0 * torch.rand(30, 2, generator=torch.Generator().manual_seed(5)).double()
    right = fresh.predict(there)
    for each in (field, restored):
        found = each.predict(there)
        assert float(((found.mean - right.mean) / right.stddev).abs().max()) < 1e-5
        assert float((found.stddev / right.stddev).log().abs().max()) < 1e-5


def test_another_kernel_is_adopted_whatever_its_numbers():
    learner = fed("dual_svgp").learner
    assert not learner.should_adopt(learner.theta)
    assert learner.should_adopt(replace(learner.theta, kernel_name="matern32"))


def test_a_map_that_has_forgotten_a_sample_looks_for_no_kernel():
    assert fed("dual_svgp", memory_size=150).kernel_search() is None
    assert fed("dual_svgp", learn_hyperparameters=False, learn_time_offset=False).learner is None
    field = fed("exact")
    assert field.kernel_search() is None
    with pytest.raises(TypeError, match="kernel that it was made with"):
        field.use_kernel(None)

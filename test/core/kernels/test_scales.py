"""Two lengthscales in one kernel, and another one along y: what they say, their derivatives, and maps of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, correlation, drive, feed, in_ut, samples

from gp_mapping import create_map
from gp_mapping.core.hyper.evidence import evidence_score, negative_log_evidence
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.stationary import TwoScales, make_kernel

PLACES = torch.from_numpy(np.random.default_rng(5).uniform(-0.5, 3.5, (40, 2)))


def gram(theta: Theta, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """s² Σ_j w_j ρ(r/q_j), r over the lengthscale of each axis; NumPy alone."""
    axes = theta.lengthscale * np.array(
        [max(1.0, 1.0 / theta.anisotropy), max(1.0, theta.anisotropy)]
    )
    r = np.sqrt((((a[:, None] - b[None]) / axes) ** 2).sum(-1))
    return theta.signal_stddev**2 * (
        (1 - theta.long_share) * correlation(theta.kernel_name, r)
        + theta.long_share * correlation(theta.kernel_name, r / theta.long_ratio)
    )


SHAPES = [
    {"anisotropy": 3.0},
    {"anisotropy": 0.4},
    {"long_share": 0.3, "long_ratio": 6.0},
    {"anisotropy": 0.5, "long_share": 0.8, "long_ratio": 3.0},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "name", ["rbf", "matern12", "matern32", "matern52", "matern72", "matern92"]
)
def test_a_kernel_is_its_formula(name, shape):
    theta = Theta(0.7, 3.0, 1.0, 20.0, kernel_name=name, **shape)
    a, b = torch.rand(9, 2, dtype=torch.float64), torch.rand(5, 2, dtype=torch.float64)
    expected = gram(theta, a.numpy(), b.numpy())
    assert np.allclose(theta.kernel()(a, b).numpy(), expected, rtol=1e-12)
    with torch.enable_grad():  # the way with a gradient, too
        assert np.allclose(
            theta.kernel()(a.requires_grad_(), b).detach().numpy(), expected, rtol=1e-12
        )
    assert np.allclose(theta.kernel().diag(b).numpy(), 9.0)


@pytest.mark.parametrize("name", ["rbf", "matern32", "matern52", "matern72", "matern92"])
def test_the_slope_is_the_derivative(name):
    kernel = TwoScales(4.0, 0.5, make_kernel(name, 4.0, 0.5), 5.0, 0.4)
    square = torch.rand(50, dtype=torch.float64, requires_grad=True)
    expected = torch.autograd.grad(kernel.correlation(square).sum(), square)[0]
    assert torch.allclose(kernel.slope(square.detach()), expected, rtol=1e-10)
    alone = make_kernel(name, 4.0, 0.5)
    both = alone.correlation_and_slope(square.detach())
    assert torch.allclose(both[0], alone.correlation(square.detach()), rtol=1e-12)
    assert torch.allclose(both[1], alone.slope(square.detach()), rtol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_evidence_s_gradient_is_that_of_the_evidence(shape):
    theta = Theta(
        0.6,
        5.0,
        1.0,
        3.0,
        heading_stddev=0.5,
        time_offset=0.05,
        lever_arm_along=0.02,
        lever_arm_across=-0.03,
        **shape,
    )
    generator = torch.Generator().manual_seed(0)
    x, velocity, y = (
        torch.randn((60, n), dtype=torch.float64, generator=generator) for n in (2, 2, 1)
    )
    heading = velocity / velocity.norm(dim=1, keepdim=True)
    extra = torch.rand(60, dtype=torch.float64, generator=generator)
    parts = (x, velocity, heading, 5.0 * y, extra)
    vector = theta.vector().requires_grad_(True)
    expected = torch.autograd.grad(60 * negative_log_evidence(theta, vector, *parts), vector)[0]
    gradient, information = evidence_score(theta, vector.detach(), [True] * 7, *parts)
    assert torch.allclose(gradient, expected, rtol=1e-8, atol=1e-8)
    assert bool((torch.linalg.eigvalsh(information) > 0).all())


@pytest.mark.parametrize("model", ["dual_svgp", "exact", "solve_gp", "fitc", "pic"])
@pytest.mark.parametrize("shape", SHAPES[1:3])
def test_a_map_is_the_exact_gp_of_that_kernel(model, shape):
    x, y = drive(150)
    field = create_map(
        model,
        **SETTINGS,
        **shape,
        inducing_tolerance=1e-5,
        inducing_information=0.0,
        centre=[48 * UT],
    )
    feed(field, samples(x, y), 30)
    theta = Theta(0.5, 10.0, 1.0, 20.0, **shape)
    k, cross = gram(theta, x, x) + 400.0 + np.eye(150), gram(theta, x, PLACES.numpy()) + 400.0
    mean, variance = in_ut(field.predict(PLACES))
    expected = 500.0 - (cross * np.linalg.solve(k, cross)).sum(0)
    assert np.abs(mean[:, 0] - 48.0 - cross.T @ np.linalg.solve(k, y[:, 0] - 48.0)).max() < 0.05
    assert np.allclose(variance[:, 0], expected, rtol=0.02, atol=0.02)


def test_both_lengthscales_are_learned_together_and_survive_a_file():
    x, y = drive(400)
    field = create_map(
        "dual_svgp",
        **SETTINGS | {"learn_hyperparameters": True, "lengthscale_prior": 0.5},
        anisotropy=2.0,
        long_share=0.2,
        long_ratio=4.0,
    )
    for i in range(0, 400, 20):
        field.update(samples(x[i : i + 20], y[i : i + 20]))
        field.refine(math.inf)
    learned = field.theta
    assert learned.lengthscale != 0.5 and learned.shape == ("matern52", 2.0, 0.2, 4.0)
    other = create_map(
        "dual_svgp",
        **SETTINGS | {"learn_hyperparameters": True, "lengthscale_prior": 0.5},
        anisotropy=2.0,
        long_share=0.2,
        long_ratio=4.0,
    )
    other.load_state_dict(field.state_dict())
    assert other.theta == learned and torch.equal(
        other.predict(PLACES).mean, field.predict(PLACES).mean
    )
    assert replace(learned, long_share=0.0).shape != learned.shape


def test_maps_of_other_shapes_do_not_merge_and_two_models_have_one_lengthscale():
    one, other = (create_map("dual_svgp", **SETTINGS, anisotropy=a) for a in (1.0, 2.0))
    for field in (one, other):
        field.update(samples(*drive(30)))
    with pytest.raises(ValueError, match="kernel"):
        one.merge(other)
    for model in ("wiski", "curl_free"):
        for shape in SHAPES[1:3]:
            with pytest.raises(ValueError, match="one lengthscale"):
                create_map(model, **shape)

"""Samples that average the field along a stretch: their covariance, its gradient, and what it finds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping import create_map
from gp_mapping.core.hyper.evidence import (
    evidence_score,
    negative_log_evidence,
    sample_covariance,
)
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.kernels.extents import ends, matter, mean_of_ends
from gp_mapping.core.types import Samples

THETA = Theta(0.6, 3.0, 0.1, 20.0)
ALONG_X = torch.tensor([[0.3, 0.0]], dtype=torch.float64)


def averages(n, stretch, seed, noise=0.02):
    """A lane's averages (n, 1) over stretches of the field, with noise; their middles (n, 2) m."""
    fine = 8
    at = stretch * (np.arange(n * fine) + 0.5) / fine
    r = np.abs(at[:, None] - at) * 5**0.5 / THETA.lengthscale
    gram = THETA.signal_stddev**2 * (1 + r + r**2 / 3) * np.exp(-r)
    mean = np.kron(np.eye(n), np.full((1, fine), 1 / fine))
    rng = np.random.default_rng(seed)
    y = np.linalg.cholesky(mean @ gram @ mean.T + noise**2 * np.eye(n)) @ rng.normal(size=(n, 1))
    middles = np.column_stack([stretch * (np.arange(n) + 0.5), np.zeros(n)])
    return torch.from_numpy(middles), torch.from_numpy(y)


@pytest.mark.parametrize("kernel", ["matern32", "matern52", "rbf"])
@pytest.mark.parametrize("away", [0.0, 0.1, 0.5, 1.3])
def test_the_covariance_is_that_of_means_over_stretches(kernel, away):
    """Two stretches of a sixth of a lengthscale that lie askew, against their double integral."""
    length, stretch = 0.6, 0.1
    form = replace(THETA, kernel_name=kernel).kernel()
    velocity = torch.tensor([[0.3, 0.0], [0.1, 0.2]], dtype=torch.float64)
    x = torch.tensor([[0.0, 0.0], [away, 0.02]], dtype=torch.float64)
    extent = torch.full((2,), stretch / 12**0.5, dtype=torch.float64)

    places = ends(x, velocity, extent)
    found = mean_of_ends(form(places, places))

    steps = torch.linspace(-0.5, 0.5, 201, dtype=torch.float64)[:-1, None] * stretch + stretch / 400
    all_of = [x[i] + steps * velocity[i] / velocity[i].norm() for i in (0, 1)]
    for i, j in ((0, 0), (0, 1), (1, 1)):
        exact = float(form(all_of[i], all_of[j]).mean())
        plain = float(form(x[i : i + 1], x[j : j + 1]))
        correction = float(form(x[:1], x[:1])) * (stretch / length) ** 2
        assert abs(float(found[i, j]) - exact) < 0.02 * correction
        assert i != j or abs(plain - exact) > 0.05 * correction, "and a value is none"


def test_what_stands_has_no_stretch():
    x, still = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    assert ends(x, still, torch.ones(1)).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_short_stretches_are_values():
    """Nothing is computed for cells that are short beside the lengthscale."""
    assert not matter(None, 1.0)
    assert not matter(torch.tensor([0.0, 0.004]), 1.0) and matter(torch.tensor([0.0, 0.006]), 1.0)


def parts(n=14, seed=1):
    rng = np.random.default_rng(seed)
    x, v, y = (torch.from_numpy(rng.normal(0, 1, (n, 2))) for _ in range(3))
    heading = torch.nn.functional.normalize(torch.from_numpy(rng.normal(0, 1, (n, 2))), dim=1)
    extra, extent = (torch.from_numpy(rng.uniform(0, top, n)) for top in (1.0, 0.2))
    return x, v, heading, y, extra, torch.arange(n).double() // 5, extent


def test_the_score_is_the_gradient_of_the_evidence_of_averages():
    theta = replace(
        THETA, heading_stddev=0.7, time_offset=0.1, lever_arm_along=0.05, bias_stddev=0.4
    )
    vector, columns = theta.vector().requires_grad_(True), parts()
    (negative_log_evidence(theta, vector, *columns) * 14).backward()
    gradient, _ = evidence_score(theta, theta.vector(), [True] * 7, *columns)
    assert torch.allclose(gradient, vector.grad, rtol=1e-9, atol=1e-9)

    values, _ = evidence_score(theta, theta.vector(), [True] * 7, *columns[:-1])
    assert float((values - gradient).abs().max()) > 1e-3, "averages have another evidence"


def test_averages_taken_for_values_vary_too_little_at_short_distances():
    """Cells of a sixth of a lengthscale along 12 m, at the true ℓ: s² by yᵀρ⁻¹y/n, six draws."""
    n, stretch, noise = 120, 0.1, 1e-3
    velocity, still = ALONG_X.expand(n, 2), torch.zeros(n, 2, dtype=torch.float64)
    extra, theta = torch.full((n,), noise**2, dtype=torch.float64), Theta(0.6, 3.0, 1e-9, 0.0)
    found = {0.0: [], stretch / 12**0.5: []}
    for seed in range(6):
        x, y = averages(n, stretch, seed, noise)
        for e, each in found.items():
            extent = torch.full((n,), e, dtype=torch.float64)
            gram = sample_covariance(
                theta, theta.vector(), x, velocity, still, extra, extent=extent
            )
            each.append(float(y.mT @ torch.linalg.solve(gram, y)) / n)
    values, of_averages = map(np.mean, found.values())
    assert values < 0.75
    assert abs(of_averages - 1.0) < 3 * (2 / (6 * n)) ** 0.5


@pytest.mark.parametrize("model", ["dual_svgp", "exact", "wiski", "curl_free"])
def test_a_map_learns_from_what_its_samples_average(model):
    """The extent reaches the learner, and is there after a save; without one it is 0."""
    n, components = 12, 3 if model == "curl_free" else 1
    x = np.column_stack([np.arange(n) * 0.1, np.zeros(n)])
    y = 1e-5 * np.random.default_rng(0).normal(size=(n, components))
    velocity = np.tile([0.3, 0.0], (n, 1))
    field = create_map(model, learn_hyperparameters=True)
    field.update(Samples(x[:8], y[:8], velocity=velocity[:8], extent=np.full(8, 0.03)))
    field.update(Samples(x[8:], y[8:], velocity=velocity[8:]))

    again = create_map(model, learn_hyperparameters=True)
    again.load_state_dict(field.state_dict())
    for each in (field, again):
        data = (each.rows if model == "curl_free" else each).learning_data()
        assert sorted(data["extent"].tolist()) == [0.0] * 4 * components + [0.03] * 8 * components
        learner, near = each.learner, torch.arange(n * components)
        gradient = learner.score(learner.vector, data, near)[0]
        plain = learner.score(learner.vector, data | {"extent": 0 * data["extent"]}, near)[0]
        assert float((gradient - plain).abs().max()) > 1e-6


def test_a_map_of_a_version_without_extents_has_none():
    field = create_map("dual_svgp")
    field.update(Samples(np.zeros((3, 2)), np.zeros((3, 1)), extent=np.full(3, 0.03)))
    state = field.state_dict()
    del state["memory"]["extent"]
    again = create_map("dual_svgp")
    again.load_state_dict(state)
    assert again.learning_data()["extent"].tolist() == [0.0] * 3


def test_a_negative_extent_is_refused():
    with pytest.raises(ValueError, match="extent must not be negative"):
        Samples(np.zeros((1, 2)), np.zeros((1, 1)), extent=np.array([-0.1]))

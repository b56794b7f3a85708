"""WISKI as published, against a dense GP with kernel W K_uu Wᵀ: value and gradient, after thousands of updates."""

import math

import numpy as np
import pytest
import torch
from core_data import correlation

from gp_mapping.core.models.wiski.lattice.interpolation import cubic_weights, interpolation_matrix
from gp_mapping.offline.dense_wiski import DenseWiski, Projection
from gp_mapping.offline.dirichlet import DirichletWiski

RNG = np.random.default_rng(0)


def stream(n, seed=0):
    """x (n, 2) in the unit square, y (n,), a variance each."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (n, 2))
    y = np.sin(5 * x[:, 0]) * np.cos(4 * x[:, 1]) + 0.1 * rng.normal(size=n)
    return tuple(torch.from_numpy(v) for v in (x, y, rng.uniform(0.5, 2.0, n)))


def keys(s: float) -> float:
    """Keys (1981), eq. 15, as printed."""
    s = abs(s)
    if s < 1:
        return 1.5 * s**3 - 2.5 * s**2 + 1
    return -0.5 * s**3 + 2.5 * s**2 - 4 * s + 2 if s < 2 else 0.0


def evidence(model, w, y, v, vector) -> torch.Tensor:
    """log N(y | 0, W K_uu Wᵀ + σ² V), densely, in O(n³)."""
    gram = vector[1].exp() * model.kernel().correlation(
        ((model.nodes[:, None] - model.nodes[None]) / vector[0].exp()).square().sum(-1)
    )
    noise = torch.ones(()) if model.fixed_noise else vector[2].exp()
    factor = torch.linalg.cholesky(w @ gram @ w.mT + noise * torch.diag(v))
    white = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
    return (
        -0.5 * white.square().sum()
        - factor.diagonal().log().sum()
        - 0.5 * len(y) * math.log(2 * math.pi)
    )


def evidence_by_pairs(model, w, y, v, vector) -> torch.Tensor:
    """The same for many samples: the m × m system from sums over all samples at once, by LU."""
    gram = vector[1].exp() * model.kernel().correlation(
        ((model.nodes[:, None] - model.nodes[None]) / vector[0].exp()).square().sum(-1)
    )
    noise = torch.ones(()) if model.fixed_noise else vector[2].exp()
    a, c = w.mT @ (w / v[:, None]) / noise, w.mT @ (y / v) / noise
    system = torch.eye(len(a), dtype=torch.float64) + a @ gram
    fit = (y * y / v).sum() / noise - c @ gram @ torch.linalg.solve(system, c)
    return -0.5 * (
        fit
        + torch.linalg.slogdet(system)[1]
        + (noise * v).log().sum()
        + len(y) * math.log(2 * math.pi)
    )


def test_cubic_weights_are_keys():
    for f in (0.0, 0.25, 0.6, 0.999):
        expected = [keys(f + 1), keys(f), keys(1 - f), keys(2 - f)]
        assert np.allclose(
            cubic_weights(torch.tensor(f, dtype=torch.float64)).numpy(), expected, atol=1e-15
        )


def test_interpolation_reproduces_quadratics_and_refuses_the_outside():
    units = torch.from_numpy(RNG.uniform(1, 4, (50, 2)))
    w = interpolation_matrix(units, (7, 8))
    nodes = torch.cartesian_prod(torch.arange(7.0), torch.arange(8.0)).double()
    for f in (lambda u: u[:, 0] ** 2 - u[:, 0] * u[:, 1], lambda u: 1 + u[:, 1]):
        assert torch.allclose(w @ f(nodes), f(units), atol=1e-12)
    assert int((w != 0).sum(1).max()) <= 16
    with pytest.raises(ValueError, match="edge"):
        interpolation_matrix(torch.tensor([[0.5, 3.0]]).double(), (7, 8))


@pytest.mark.parametrize(("fixed_noise", "kernel"), [(False, "matern52"), (True, "rbf")])
def test_equal_to_the_dense_gp_after_thousands_of_updates(fixed_noise, kernel):
    """Value, gradient, mean and variance to 1e-8; the dense GP itself for the first 300 samples."""
    model = DenseWiski(
        [0, 0],
        [1, 1],
        (8, 9),
        lengthscale=0.3,
        signal=1.2,
        noise=0.15,
        fixed_noise=fixed_noise,
        kernel=kernel,
    )
    x, y, v = stream(3000)
    v = 0.02 * v if fixed_noise else v
    first = 300
    for part, oracle in ((slice(0, first), evidence), (slice(first, 3000), evidence_by_pairs)):
        model.condition(x[part], y[part], v[part])
        seen = slice(0, part.stop)
        w = model.weights(x[seen])
        vector = model.vector.detach().clone().requires_grad_(True)
        expected = oracle(model, w, y[seen], v[seen], vector)
        (gradient,) = torch.autograd.grad(expected, vector)
        got = model.log_evidence()
        (mine,) = torch.autograd.grad(got, model.vector)
        assert abs(float((got - expected).detach())) <= 1e-8 * abs(float(expected.detach()))
        assert torch.allclose(mine, gradient, rtol=1e-8, atol=1e-8 * float(gradient.abs().max()))
    if not fixed_noise:  # the oracle for many samples is the dense GP too
        parts = (w[:first], y[:first], v[:first], model.vector.detach())
        few, pairs = evidence(model, *parts), evidence_by_pairs(model, *parts)
        assert float(few) == pytest.approx(float(pairs), rel=1e-9)


@pytest.mark.parametrize("residual", [False, True])
def test_predictions_are_those_of_the_dense_gp(residual):
    model = DenseWiski(
        [0, 0], [1, 1], (9, 9), lengthscale=0.35, signal=1.1, noise=0.2, residual=residual
    )
    x, y, v = stream(250, 3)
    for i in range(0, 250, 10):
        model.condition(x[i : i + 10], y[i : i + 10], v[i : i + 10])
    new = torch.from_numpy(RNG.uniform(0, 1, (20, 2)))
    nodes, w, ws = model.nodes.numpy(), model.weights(x).numpy(), model.weights(new).numpy()
    gram = 1.1**2 * correlation(
        "matern52", np.linalg.norm(nodes[:, None] - nodes[None], axis=-1) / 0.35
    )
    inner = np.linalg.inv(w @ gram @ w.T + 0.04 * np.diag(v.numpy()))
    cross = ws @ gram @ w.T
    mean, variance = cross @ inner @ y.numpy(), np.diag(ws @ gram @ ws.T - cross @ inner @ cross.T)
    if residual:
        variance = variance + 1.1**2 - np.diag(ws @ gram @ ws.T)
    got = model.predict(new)
    assert (
        np.abs(got[0].numpy() - mean).max() < 1e-8
        and np.abs(got[1].numpy() - variance).max() < 1e-8
    )


def test_the_evidence_is_right_beyond_the_rank():
    """Half of the rank that is needed, samples in order of place: as the dense GP has it, and so are predictions."""
    x, y, v = stream(150)
    order = x[:, 0].argsort()
    x, y, v = x[order], y[order], v[order]
    model, whole = (
        DenseWiski([0, 0], [1, 1], (9, 9), lengthscale=0.3, noise=0.15, rank=rank)
        for rank in (40, None)
    )
    for i in range(0, 150, 50):
        model.condition(x[i : i + 50], y[i : i + 50], v[i : i + 50])
    whole.condition(x, y, v)
    assert model.root.rank > 40 and model.root.dropped == 0.0
    expected = evidence(model, model.weights(x), y, v, model.vector.detach())
    assert float(model.log_evidence().detach()) == pytest.approx(float(expected), rel=1e-6)
    for mine, its in zip(model.predict(x), whole.predict(x)):
        assert torch.allclose(mine, its, atol=1e-6)


def test_one_step_per_observation_raises_the_evidence():
    x, y, _ = stream(400, 5)
    model = DenseWiski([0, 0], [1, 1], (9, 9), lengthscale=1.5, signal=0.3, noise=0.6)
    start = model.vector.detach().clone()
    for i in range(0, 400, 4):
        model.observe(x[i : i + 4], y[i : i + 4])
    assert float(model.log_evidence()) > float(model.log_evidence(start)) + 100
    assert float(model.noise()) ** 0.5 == pytest.approx(0.1, rel=0.5)


def test_online_gradient_of_the_projection_is_that_of_the_evidence():
    """Eq. 18: with W of the past fixed, log p(y_1 … y_t) moves with the newest sample's projection alone."""
    rng = np.random.default_rng(2)
    x, y = torch.from_numpy(rng.normal(size=(60, 5))), torch.from_numpy(rng.normal(size=60))
    projection = Projection(torch.from_numpy(rng.normal(size=(5, 2))) * 0.3)
    model = DenseWiski([-1, -1], [1, 1], (8, 8), noise=0.3, projection=projection)
    model.condition(x[:59], y[:59])
    (mine,) = torch.autograd.grad(model.projection_loss(x[59:], y[59:]), projection.weights)
    w = torch.cat([model.weights(x[:59]).detach(), model.weights(x[59:])])
    whole = evidence(model, w, y, torch.ones(60).double(), model.vector.detach())
    (expected,) = torch.autograd.grad(-whole, projection.weights)
    assert torch.allclose(mine, expected, rtol=1e-8, atol=1e-10)


def test_a_projection_is_learned_online():
    """Six inputs, of which two matter: the learned projection predicts better than the one it started from."""
    rng = np.random.default_rng(4)
    x = torch.from_numpy(rng.uniform(-1, 1, (500, 6)))
    y = torch.sin(3 * x[:, 0]) + x[:, 1]
    start = torch.from_numpy(rng.normal(size=(6, 2))) * 0.4
    errors = []
    for rate in (0.0, 0.02):
        model = DenseWiski(
            [-1, -1],
            [1, 1],
            (10, 10),
            noise=0.3,
            projection=Projection(start),
            projection_rate=rate,
        )
        for i in range(0, 400, 8):
            model.observe(x[i : i + 8], y[i : i + 8] + 0.05 * torch.from_numpy(rng.normal(size=8)))
        errors.append(float((model.predict(x[400:])[0] - y[400:]).square().mean().sqrt()))
    assert errors[1] < 0.85 * errors[0]


def test_classes_are_told_apart():
    rng = np.random.default_rng(6)
    x = torch.from_numpy(rng.uniform(-1, 1, (500, 2)))
    labels = ((x[:, 0] ** 2 + x[:, 1] ** 2) > 0.5).long() + ((x[:, 0] > 0.6).long())
    labels = labels.clamp(max=2)
    model = DirichletWiski(3, [-1, -1], [1, 1], (10, 10), lengthscale=0.5, signal=3.0)
    for i in range(0, 400, 20):
        model.observe(x[i : i + 20], labels[i : i + 20], learn=False)
    p = model.probabilities(x[400:])
    assert torch.allclose(p.sum(1), torch.ones(100).double())
    assert float((p.argmax(1) == labels[400:]).double().mean()) > 0.85
    assert float(-p[torch.arange(100), labels[400:]].log().mean()) < 0.5

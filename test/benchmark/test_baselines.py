"""The baselines are what their papers say: the collapsed bound adds up, the uncollapsed one ends there."""

import math

import pytest
import torch

from benchmark.baselines import OSGPR, OSVGP, ExactGP, LocalGPs, OnlineConditioning, StoredSVGP
from benchmark.baselines.kernel import Kernel, choose, logs
from benchmark.batch import SGPR
from gp_mapping import Samples, create_map

THETA = (0.6, 60.0, 1.0)
UNIT = 1e-6


def stream(n=120, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, 2, dtype=torch.float64, generator=g)
    y = (
        45
        + 8 * torch.sin(2 * x[:, :1]) * torch.cos(x[:, 1:])
        + torch.randn(n, 1, dtype=torch.float64, generator=g)
    )
    return x, y * UNIT


def grid(side=4):
    axis = torch.linspace(0.1, 1.9, side, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)


def fed(model, x, y, size=30):
    for a, b in zip(x.split(size), y.split(size)):
        model.update(a, b)
    return model


def near(a, b, tolerance):
    torch.testing.assert_close(a.mean / UNIT, b.mean / UNIT, rtol=0, atol=tolerance)
    torch.testing.assert_close(a.variance / UNIT**2, b.variance / UNIT**2, rtol=0, atol=tolerance)


def fixed(**more):
    return OSGPR(logs(*THETA), inducing=grid(), constant=0.0, jitter=1e-9, centre=45.0, **more)


def test_osgpr_with_fixed_z_is_batch_sgpr():
    x, y = stream()
    judge = SGPR(Samples(x, y), grid(), *THETA)
    streamed = OSGPR(logs(*THETA), inducing=grid(), constant=0.0, jitter=1e-9, centre=judge.centre)
    near(fed(streamed, x, y).predict(stream(50, 1)[0]), judge.predict(stream(50, 1)[0]), 1e-8)


def test_osgpr_bounds_add_up_to_titsias():
    """With z and θ fixed the streaming bounds sum to log N(y; 0, Q + σ²I) − tr(K − Q)/2σ², by dense algebra."""
    x, y = stream(60)
    z, kernel, theta = grid(), Kernel(0.0, 1e-9), logs(*THETA)
    kz = kernel(z, x, theta)
    q = kz.mT @ torch.linalg.solve(kernel.inducing(z, z, theta), kz)
    dense = torch.distributions.MultivariateNormal(
        torch.zeros(60, dtype=torch.float64), q + THETA[2] * torch.eye(60, dtype=torch.float64)
    )
    expected = dense.log_prob(y[:, 0] / UNIT - 45) - (60 * THETA[1] - q.diagonal().sum()) / (
        2 * THETA[2]
    )
    assert fed(fixed(), x, y, 7).evidence == pytest.approx(float(expected), abs=1e-7)


def test_osgpr_that_moves_z_and_theta_is_the_papers_formula():
    """q(b) after a move against Bui et al.'s own D_a, ŷ and K_f̂f̂, from the moments of the old posterior."""
    x, y = stream(80, 3)
    old, new = fixed(), fixed()
    fed(old, x[:40], y[:40])
    fed(new, x[:40], y[:40])
    s, b, theta, k = old.state, grid(5) + 0.03, logs(0.7, 50.0, 0.8), Kernel(0.0, 1e-9)
    new.z, new.theta = b, theta
    new.update(x[40:], y[40:])
    covariance = s.L @ torch.linalg.inv(torch.eye(16, dtype=torch.float64) + s.excess) @ s.L.mT
    prior = k.inducing(s.z, s.z, s.theta)
    mean = covariance @ torch.linalg.solve(s.L.mT, s.h)
    d = torch.linalg.inv(torch.linalg.inv(covariance) - torch.linalg.inv(prior))
    pseudo = torch.cat([y[40:] / UNIT - 45, d @ torch.linalg.solve(covariance, mean)])
    there = torch.cat([x[40:], s.z])
    kb, kzz = k(there, b, theta), k.inducing(b, b, theta)
    noise = torch.block_diag(0.8 * torch.eye(40, dtype=torch.float64), d)
    gain = torch.linalg.inv(kb @ torch.linalg.solve(kzz, kb.mT) + noise)
    at = stream(30, 4)[0]
    ks = k(at, b, theta) @ torch.linalg.solve(kzz, kb.mT)
    found = new.predict(at)
    torch.testing.assert_close(found.mean / UNIT, ks @ gain @ pseudo + 45, rtol=0, atol=2e-4)
    variance = 50.0 - (ks @ gain * ks).sum(1, keepdim=True)
    torch.testing.assert_close(found.variance / UNIT**2, variance, rtol=0, atol=2e-4)


def test_osgpr_learns_theta_through_its_bound():
    x, y = stream()
    start = logs(2.0, 60.0, 30.0)
    learned = fed(OSGPR(start, inducing=grid(), steps=10, rate=0.1), x, y)
    assert 0.3 < learned.theta[2].exp() < 3 and learned.theta[0] != start[0]


def test_rule_of_z_keeps_seventy_percent():
    g = torch.Generator().manual_seed(0)
    old, x = torch.rand(100, 2, generator=g), torch.rand(80, 2, generator=g)
    z = choose(old, torch.cat([x, old[:5]]), 100, 0.3, g)
    kept = (z[:, None] == old[None]).all(-1).any(1)
    assert len(z) == 100 and int(kept.sum()) == 70 and len(torch.unique(z, dim=0)) == 100
    assert choose(old, x, 100, 0.0, g) is old


def test_osvgp_ends_where_osgpr_does():
    """Uncollapsed, θ fixed, many steps on each of two batches, z moved between them: the collapsed optimum."""
    x, y = stream(60, 5)
    common = {"inducing": grid(3), "constant": 0.0, "centre": 45.0}
    collapsed = OSGPR(logs(*THETA), **common)
    gradient = OSVGP(logs(*THETA), **common, steps=250, rate=0.03, learn=False)
    for model in (collapsed, gradient):
        model.update(x[:30], y[:30])
    gradient.z = collapsed.z = grid(3) + 0.05
    old = (
        grid(3),
        gradient.theta,
        gradient.kernel.factor(grid(3), gradient.theta),
        gradient.mean.detach(),
        gradient.root.detach().tril(),
    )
    collapsed.update(x[30:], y[30:])
    gradient._start(old)
    for rate in (0.03, 0.003):
        gradient.optimiser.param_groups[0]["lr"] = rate
        for _ in range(150):
            gradient.optimiser.zero_grad()
            loss = -gradient.bound(x[30:], y[30:] / UNIT - 45, old)
            loss.backward()
            gradient.optimiser.step()
    near(gradient.predict(grid(6)), collapsed.predict(grid(6)), 0.02)


def test_osvgp_classes():
    """A step in the plane: the probability is right on both sides."""
    x, _ = stream(200, 6)
    y = (x[:, :1] > 1.0).double()
    model = OSVGP(
        logs(0.6, 4.0, 1.0), budget=20, steps=25, rate=0.05, likelihood="bernoulli", constant=1.0
    )
    fed(model, x, y, 50)
    p = model.probability(torch.tensor([[0.4, 1.0], [1.6, 1.0]], dtype=torch.float64))
    assert p[0] < 0.2 and p[1] > 0.8


def test_one_local_gp_is_the_exact_gp_and_many_cover():
    x, y = stream()
    one = fed(LocalGPs(logs(*THETA), width=1e3, constant=0.0), x, y)
    exact = create_map(
        "exact",
        centre=y.mean(0),
        lengthscale=THETA[0],
        signal_stddev=math.sqrt(THETA[1]) * UNIT,
        noise_stddev=UNIT,
        constant_stddev=1e-12,
        heading_stddev=0.0,
        learn_hyperparameters=False,
        learn_time_offset=False,
    )
    exact.update(Samples(x, y))
    assert len(one.models) == 1
    near(one.predict(grid(6)), exact.predict(grid(6)), 1e-4)
    many = fed(LocalGPs(logs(*THETA), most=40, width=0.3), x, y)
    assert len(many.models) > 3 and max(len(m.x) for m in many.models) <= 40
    assert sum(m.seen for m in many.models) == len(x)
    z = (many.predict(x).mean - y) / many.predict(x).measurement_variance.sqrt()
    assert 0.88 < float((z.abs() < 1.96).double().mean()) <= 1.0


def test_gpytorchs_models_come_near_the_exact_one():
    x, y = stream(300, 8)
    there = stream(100, 9)[0]
    exact = fed(ExactGP(300, THETA), x, y).predict(there)
    svgp = fed(
        StoredSVGP(THETA, budget=40, epochs=30, size=100, rate=0.05, learn=False), x, y
    ).predict(there)
    online = fed(
        OnlineConditioning(
            THETA, 150, thinned=1, budget=40, epochs=30, size=50, rate=0.05, learn=False
        ),
        x,
        y,
    )
    for found, most in ((svgp, 0.5), (online.predict(there), 1.0)):
        assert (
            float(
                ((found.mean - exact.mean) / exact.measurement_variance.sqrt())
                .square()
                .mean()
                .sqrt()
            )
            < most
        )
        assert torch.isfinite(found.variance).all()
    assert len(online.model.train_inputs[0]) == 40 + 150

"""The noise that would have made earlier predictions right."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from gp_mapping.mapping.scoring.autocorrelation import autocorrelation_time
from gp_mapping.mapping.scoring.predictive_noise import PredictiveNoise


def cost(sigma, r2, v, prior, count):
    return np.sum(np.log(v + sigma) + r2 / (v + sigma)) + count * (np.log(sigma) + prior / sigma)


@pytest.mark.parametrize("seed", range(20))
def test_predictive_noise_is_the_minimum_of_its_cost(seed):
    rng = np.random.default_rng(seed)
    n, prior = int(rng.integers(1, 400)), float(rng.choice([0.01, 1.0, 30.0]))
    v = rng.choice([1e-3, 0.1, 1.0, 50.0]) * rng.random(n) ** 3
    r = rng.normal(0, np.sqrt(v + rng.choice([0.0, 0.5, 8.0])), n) * rng.choice([0.3, 1.0, 3.0])
    if seed % 3 == 0:
        r[0] *= 50
    noise = PredictiveNoise(1000)
    noise.add(torch.from_numpy(r)[:, None], torch.from_numpy(v)[:, None])
    got = noise.variance(prior)
    known = v <= 4 * prior  # as stated: where the field is guessed, noise does not show
    if known.sum() > 20:  # nor do gross errors, by what the median says
        known &= r**2 <= 25 * (v + np.median(r[known] ** 2) / 0.4549)
    r, v = r[known], v[known]
    # nor do errors that persist count more often than they are independent
    count = 20.0 * autocorrelation_time((r**2 - v - prior) / (v + prior) ** 2)
    grid = np.exp(np.linspace(np.log(1e-4 * prior), np.log(1e4 * prior), 4000))  # the stated range
    best = grid[int(np.argmin([cost(s, r**2, v, prior, count) for s in grid]))]
    bounds = np.log(np.clip([best * 0.98, best * 1.02], grid[0], grid[-1]))
    fit = minimize_scalar(
        lambda s: cost(np.exp(s), r**2, v, prior, count),
        bounds=bounds,
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert cost(got, r**2, v, prior, count) <= fit.fun + 1e-4 * abs(fit.fun)
    assert got == pytest.approx(np.exp(fit.x), rel=5e-3)


def test_of_several_minima_it_is_the_least():
    """Many small errors where much is known, some large ones where little is: noise is small, or large."""
    rng, found = np.random.default_rng(0), []
    for many in (260, 300, 340, 500):
        v = np.concatenate([np.zeros(300), np.full(many, 3.9)])
        r2 = np.concatenate([np.full(300, 0.01), np.full(many, 30.0)])
        order = rng.permutation(len(v))
        v, r2 = v[order], r2[order]
        noise = PredictiveNoise(1000)
        noise.add(torch.from_numpy(r2**0.5)[:, None], torch.from_numpy(v)[:, None])
        count = 20.0 * autocorrelation_time((r2 - v - 1.0) / (v + 1.0) ** 2)
        grid = np.exp(np.linspace(np.log(1e-4), np.log(1e4), 1500))
        costs = np.array([cost(s, r2, v, 1.0, count) for s in grid])
        inner = costs[1:-1]
        assert ((inner < costs[:-2]) & (inner < costs[2:])).sum() == 2, many
        found.append(noise.variance(1.0))
        assert found[-1] == pytest.approx(grid[costs.argmin()], rel=0.013)
    assert min(found) < 0.2 and max(found) > 5.0


def test_predictive_noise_from_nothing_and_from_much():
    noise = PredictiveNoise(5000)
    assert noise.variance(2.5) == 2.5 and len(noise) == 0
    rng = np.random.default_rng(0)
    v = rng.uniform(0, 3, 5000)
    noise.add(
        torch.from_numpy(rng.normal(0, np.sqrt(v + 1.7)))[:, None], torch.from_numpy(v)[:, None]
    )
    assert noise.variance(0.1) == pytest.approx(1.7, rel=0.1)
    few = PredictiveNoise(100)
    few.add(torch.tensor([[30.0]]).double(), torch.zeros(1, 1).double())
    assert few.variance(1.0) < 50.0, "one wild score must not decide"


def test_errors_that_persist_do_not_pass_for_noise():
    """Scores ahead of one posterior share its error: of v = 2 σ², twenty by twenty, the noise given is right."""
    rng, found, counted = np.random.default_rng(0), [], []
    for _ in range(30):
        r = np.repeat(rng.normal(0, 2.0**0.5, 20), 20) + rng.normal(size=400)
        for order, into in ((np.arange(400), found), (rng.permutation(400), counted)):
            noise = PredictiveNoise(2500)
            noise.add(
                torch.from_numpy(r[order])[:, None], torch.full((400, 1), 2.0, dtype=torch.float64)
            )
            into.append(noise.variance(1.0))
    # out of order, each counts as an error of its own
    assert np.std(found) < 0.6 * np.std(counted), (np.std(found), np.std(counted))
    assert np.mean(found) == pytest.approx(1.0, abs=0.2)


def test_the_window_is_bounded_and_forgets_the_oldest():
    noise = PredictiveNoise(300)
    for scale in (10.0, 1.0):
        for _ in range(100):
            noise.add(torch.full((7, 1), scale).double(), torch.zeros(7, 1).double())
            assert len(noise) <= 300
    assert noise.variance(1.0) == pytest.approx(1.0, rel=0.05)
    again = PredictiveNoise(300)
    again.load_state_dict(noise.state_dict())
    assert again.variance(0.3) == noise.variance(0.3)


def test_channels_are_averaged():
    noise = PredictiveNoise(5000, prior_count=1e-6)
    noise.add(torch.tensor([[3.0, 1.0]]).double().repeat(200, 1), torch.zeros(200, 2).double())
    assert noise.variance(1.0) == pytest.approx(5.0, rel=1e-2)


def test_gross_errors_among_the_scores_do_not_become_noise():
    """5 % of scores are gross, each cut at five standard deviations of the noise in use, as a session does it."""
    generator = torch.Generator().manual_seed(0)
    noise, current = PredictiveNoise(2500), 1.0
    for _ in range(200):
        residual = torch.randn(20, 1, dtype=torch.float64, generator=generator)
        residual[0] = 50.0
        limit = 5.0 * current**0.5
        noise.add(residual.clamp(-limit, limit), torch.full((20, 1), 1e-3, dtype=torch.float64))
        current = noise.variance(1.0)
    assert 0.8 < current < 1.4, current


def test_the_noise_of_each_component_is_its_own_and_of_one_the_same_as_before():
    rng = np.random.default_rng(0)
    sigma, v = np.array([0.5, 1.0, 2.0]), rng.uniform(0, 0.5, (2000, 3))
    noise = PredictiveNoise(2500, prior_count=1.0)
    noise.add(torch.from_numpy(rng.normal(0, np.sqrt(v + sigma**2))), torch.from_numpy(v))
    np.testing.assert_allclose(np.sqrt(noise.variances([1.0])), sigma, rtol=0.05)
    one = PredictiveNoise(2500)
    one.add(noise.residual_square[:, :1].sqrt(), noise.latent[:, :1])
    assert one.variances([0.7]) == [one.variance(0.7)] and PredictiveNoise(9).variances([0.7]) == [
        0.7
    ]


def test_two_windows_joined_are_one_and_keep_the_newest_of_both():
    rng = np.random.default_rng(3)
    parts, whole = [PredictiveNoise(400), PredictiveNoise(400)], PredictiveNoise(400)
    for part, scale in zip(parts, (1.0, 3.0)):
        part.add(
            torch.from_numpy(rng.normal(0, scale, (150, 1))),
            torch.from_numpy(rng.uniform(0, 0.2, (150, 1))),
        )
        whole.add(part.residual_square.sqrt(), part.latent)
    alone = [part.variance(1.0) for part in parts]
    parts[0].join(parts[1])
    assert parts[0].variance(1.0) == pytest.approx(whole.variance(1.0), rel=1e-12)
    assert alone[0] < parts[0].variance(1.0) < alone[1]

    old, full = PredictiveNoise(400), PredictiveNoise(400)
    old.add(torch.full((200, 1), 9.0).double(), torch.zeros(200, 1).double())
    for noise in (old, full):
        noise.add(torch.ones(300, 1).double(), torch.zeros(300, 1).double())
    old.join(full)  # 400 and 300 into 400: 228 and 171 of the newest, of which none is an old one
    assert len(old) <= 400 and old.variance(1.0) == pytest.approx(1.0, rel=1e-3)


def test_at_most_a_hundred_times_the_priors_standard_deviation_and_at_least_a_hundredth():
    for residual, latent, expected in ((1e4, 1e-3, 1e4), (0.0, 1e-3, 1e-4)):
        noise = PredictiveNoise(100, prior_count=1e-9)
        noise.add(
            torch.full((50, 1), residual).double() * (1 - 2 * (torch.arange(50)[:, None] % 2)),
            torch.full((50, 1), latent).double(),
        )
        assert noise.variance(1.0) == pytest.approx(expected)

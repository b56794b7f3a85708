"""Stochastic natural gradients: all blocks at ρ = 1 are the batch model, a step is unbiased, a run gets there."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from anytime_oracle import anytime, labels
from core_data import UT, close, drive, lattice, samples

from gp_mapping import create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.anytime.model import MEMBERS
from gp_mapping.offline.anytime_fit import AnytimeFit

C, SIDE = 48.0, 1.0
X, Y = drive(300)
Z = lattice(0.7, margin=0.1)
XS = np.random.default_rng(1).uniform(0.0, 3.0, (60, 2))
THETA = Theta(0.5, 10.0, 1.0, 20.0)
NAMES = tuple(MEMBERS)


def fit(name, side=SIDE, most=500, **settings):
    return AnytimeFit(
        name, THETA, samples(X, Y), Z, side=side, most=most, scale=UT, centre=[C * UT], **settings
    )


def expected(name):
    origin = X[0].round()
    return anytime(
        name, X, Y - C, np.ones(len(X)), Z, XS, labels(X - origin, SIDE), labels(XS - origin, SIDE)
    )


def mean_of(model):
    return model.predict(torch.from_numpy(XS)).mean.numpy() / UT


@pytest.mark.parametrize("name", NAMES)
def test_all_blocks_with_rho_1_are_the_batch_model(name):
    model = fit(name)
    model.step(3)  # whatever was there before
    model.batch()
    mean, joint = expected(name)
    close(mean_of(model) - C, mean, 1e-8, "mean")
    places = torch.from_numpy(XS)
    close(model.predict(places).variance.numpy()[:, 0] / UT**2, np.diag(joint), 1e-8, "variance")
    close(model.posterior.covariance(places, places).numpy() / UT**2, joint, 1e-8, "covariance")


@pytest.mark.parametrize("name", ["dtc", "fitc", "pitc"])
def test_a_step_is_unbiased(name):
    """Theorem 6 by enumeration: the mean over all P^|S| draws is the sum over all blocks."""
    model = fit(name, most=40, side=SIDE if name == "pitc" else None)
    model.blocks = model.blocks[:5]
    whole = model.target(range(5))
    draws = [model.target(list(chosen)) for chosen in product(range(5), repeat=2)]
    for k in range(2):
        close(torch.stack([draw[k] for draw in draws]).mean(0), whole[k], 1e-12)
    assert float((draws[0][0] - whole[0]).abs().max()) > 0.01 * float(whole[0].abs().max()), (
        "one draw says it all"
    )


def test_draws_are_uniform_and_seeded():
    model, chosen = fit("dtc", side=None, most=30), []
    model.absorb = lambda blocks, rho: chosen.extend(blocks)
    model.draw = 4
    model.step(1000)
    counts = np.bincount(chosen, minlength=10)
    assert len(counts) == 10 and np.abs(counts - 400).max() < 5 * np.sqrt(400 * 0.9)
    a, b = fit("fitc", seed=3), fit("fitc", seed=3)
    a.step(5)
    b.step(2)
    b.step(3)
    assert torch.equal(a.excess, b.excess) and torch.equal(a.linear, b.linear)


@pytest.mark.parametrize("name", ["fitc", "pitc", "pic"])
def test_a_shuffled_round_is_the_batch_model(name):
    """Without replacement, ρ_t = 1/(1 + t): after T steps every block has spoken once, and after 2T twice."""
    model, whole = fit(name, most=40, draw=4, shuffled=True), fit(name, most=40)
    whole.batch()
    assert len(model.blocks) % 4, "parts of one size would hide a wrong weight"
    model.step(model.steps_per_epoch - 1)
    assert float((model.excess - whole.excess).abs().max()) > 1e-3 * float(whole.excess.abs().max())
    for _ in range(2):
        model.step(model.steps_per_epoch - model.steps % model.steps_per_epoch)
        close(model.excess, whole.excess, 1e-10, "G")
        close(model.linear, whole.linear, 1e-10, "h")


def test_the_schedule():
    model, rates = fit("dtc", rate=0.5, decay=2.0, power=0.75), []
    model.absorb = lambda blocks, rho: rates.append(rho)
    model.step(4)
    assert rates == pytest.approx([0.5 / (1.0 + 2.0 * 0.5 * t) ** 0.75 for t in range(4)])
    with pytest.raises(ValueError, match="power 0.3"):
        fit("dtc", power=0.3)
    with pytest.raises(ValueError, match="give side"):
        fit("pic", side=None)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_comes_within_1_percent_of_the_batch_rmse(name):
    """Robbins and Monro's schedule with κ = 1, ρ₀ = τ = 1: the running mean of what the draws said."""
    x, y = drive(1200, seed=4)
    held, train = np.arange(1200) % 6 == 0, np.arange(1200) % 6 != 0
    side = SIDE if MEMBERS[name].residual == "block" else None
    model = AnytimeFit(
        name, THETA, samples(x[train], y[train]), Z, side=side, most=50, draw=4, scale=UT
    )
    places, truth = torch.from_numpy(x[held]), y[held] * UT

    def rmse():
        return float(np.sqrt(((model.predict(places).mean.numpy() - truth) ** 2).mean()))

    model.step(250)
    stochastic = rmse()
    model.batch()
    assert stochastic / rmse() < 1.01


def test_fits_what_a_map_learned():
    """θ and z of a live map, all samples at once: a map that remembered everything says the same."""
    settings = {
        "lengthscale": 0.5,
        "signal_stddev": 10 * UT,
        "noise_stddev": UT,
        "heading_stddev": 0.5 * UT,
        "learn_hyperparameters": False,
        "time_offset": 0.05,
        "inducing_inputs": Z,
        "tile_samples": 500,
    }
    velocity = np.gradient(X, axis=0) / 0.1
    batch = samples(X, Y, velocity=velocity)
    field = create_map("pic", centre=[C * UT], **settings)
    field.update(batch)
    model = AnytimeFit(
        "pic", field.theta, batch, Z, side=field.side, most=500, scale=UT, centre=[C * UT]
    )
    model.batch()
    ask = (torch.from_numpy(XS), torch.full((60, 2), 0.3, dtype=torch.float64))
    close(model.predict(*ask).mean, field.predict(*ask).mean, 1e-9)
    close(model.predict(*ask).variance, field.predict(*ask).variance, 1e-8)
    assert replace(field.theta, time_offset=0.0) != field.theta


def test_a_lost_pose_does_not_make_the_noise():
    """A new measurement is as noisy as a map of the same samples says: one useless sample leaves it as it was."""
    settings = {
        "lengthscale": 0.5,
        "signal_stddev": 10 * UT,
        "noise_stddev": UT,
        "centre": [C * UT],
    }
    variance = np.full(len(X), 0.5)
    variance[7] = 1e6
    batch = samples(X, Y, sensor_variance=variance)
    field = create_map("fitc", learn_hyperparameters=False, inducing_inputs=Z, **settings)
    field.update(batch)
    model = AnytimeFit("fitc", field.theta, batch, Z, most=500, scale=UT, centre=[C * UT])
    model.batch()
    place = torch.from_numpy(XS[:1])
    given, expected = model.predict(place).noise_variance, field.predict(place).noise_variance
    assert torch.allclose(given, expected, rtol=1e-12, atol=0.0)
    assert float(given) / UT**2 == pytest.approx(1.5, rel=0.01)

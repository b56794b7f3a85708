"""A full budget that leaves much of the field out: the spread of passes' constants beside the exact GP's."""

import math

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT

from gp_mapping import Samples, create_map

NOISE = 0.3  # µT
LANE = np.linspace(0.0, 4.0, 60)


def lanes(crossing: bool, bias: float):
    """Eight passes over a field of 10 µT, half of them across the others where they cross."""
    rng = np.random.default_rng(0)
    places = [np.stack([LANE, np.full(60, 0.5 * p)], 1) for p in range(8)]
    if crossing:
        places[4:] = [np.stack([np.full(60, 1.0 + 0.7 * p), LANE], 1) for p in range(4)]
    x, of = np.concatenate(places), np.repeat(np.arange(8.0), 60)
    waves, phases = rng.normal(size=(60, 2)) / 0.6, rng.uniform(0.0, 6.28, 60)
    field = 48.0 + 10.0 * math.sqrt(2.0 / 60) * np.cos(x @ waves.T + phases).sum(1, keepdims=True)
    constants = bias * rng.permutation(np.linspace(-1.5, 1.5, 8))
    y = field + constants[of.astype(int)][:, None] + rng.normal(0.0, NOISE, (len(x), 1))
    return x, y, of, field


def mapped(model: str, x, y, of, **settings):
    """A map that learns s_b alone."""
    known = {"centre": [48.0 * UT], "noise_stddev": NOISE * UT, "learn_noise": True}
    field = create_map(model, **SETTINGS | known | {"bias_stddev": 0.0} | settings)
    for i in range(0, len(x), 10):
        part = slice(i, i + 10)
        field.update(Samples(x[part], torch.as_tensor(y[part]) * UT, pass_number=of[part]))
    return field


@pytest.mark.parametrize("crossing, bias", [(False, 0.0), (True, 0.0), (True, 3.0)])
def test_a_coarse_map_learns_the_spread_of_constants_as_the_exact_gp(crossing, bias):
    """A thousand standard deviations of the noise are left out, alike all along a pass."""
    x, y, of, field = lanes(crossing, bias)
    coarse = mapped("dual_svgp", x, y, of, max_inducing=40)
    exact = mapped("exact", x, y, of)
    assert coarse.counters()["budget_full"] > 0 and coarse.likelihood_power < 0.01
    learned, expected = (m.hyperparameters()["bias_stddev"] for m in (coarse, exact))
    assert 0.6 * expected < learned < 1.6 * expected

    told = coarse.predict(torch.from_numpy(x))
    error = told.mean.numpy() / UT - field
    assert np.sqrt((error**2).mean()) < 3.0, "the field's standard deviation is 10"
    assert (np.abs(error) <= 1.96 * told.variance.numpy() ** 0.5 / UT).mean() > 0.9

    again = create_map("dual_svgp", **SETTINGS | {"max_inducing": 40})
    again.load_state_dict(coarse.state_dict())
    assert torch.equal(again.predict(torch.from_numpy(x)).mean, told.mean)


def test_a_map_whose_budget_suffices_believes_its_samples():
    x, y, of, _ = lanes(True, 3.0)
    assert mapped("dual_svgp", x, y, of, max_inducing=1000).likelihood_power == 1.0

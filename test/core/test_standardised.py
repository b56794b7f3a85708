"""Samples as maps take them in: in inner units about an origin, each with what it says of its noise.

Of gp_mapping.core.standardised.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.scaling import Scaling
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.standardised import Standardised, average_noise, excess_variance
from gp_mapping.core.types import Samples

THETA = Theta(0.5, 2.0, 0.3, 3.0)
RNG = np.random.default_rng(0)


def test_the_typical_noise_is_the_harmonic_mean():
    extra = RNG.uniform(0.0, 2.0, 9)
    extra[4] = 1e12  # says nothing
    assert average_noise(THETA, torch.from_numpy(extra)) == pytest.approx(
        9.0 / sum(1.0 / (0.09 + e) for e in extra)
    )
    assert average_noise(THETA, torch.zeros(0)) == pytest.approx(0.09)


def test_what_a_sample_has_besides_the_models_noise():
    """Its own noise instead of the model's, and never less than none."""
    noise = torch.tensor([0.0, 0.5, 0.05, 0.05, 0.0]).double()
    extra = torch.tensor([0.2, 0.1, 0.01, 0.1, 0.0]).double()
    wanted = [0.2, 0.5 - 0.09 + 0.1, 0.0, 0.05 - 0.09 + 0.1, 0.0]
    assert excess_variance(noise, extra, THETA).tolist() == pytest.approx(wanted)


def scaled():
    """In units of two, about (1, 0) m and a value of ten."""
    return Scaling(torch.tensor([1.0, 0.0]).double(), torch.tensor([10.0]).double(), 2.0)


def test_samples_say_no_more_than_they_do():
    """What a sample does not state: no noise of its own, one measurement, no pass, no extent, nobody's heading."""
    inner = Standardised.from_samples(Samples([[3.0, 4.0]] * 2, [14.0, 8.0]), scaled())
    assert inner.x.tolist() == [[2.0, 4.0]] * 2 and inner.y.tolist() == [[2.0], [-1.0]]
    for name in ("noise", "extra", "position_variance", "extent"):
        assert getattr(inner, name).tolist() == [0.0, 0.0], name
    assert inner.count.tolist() == [1.0, 1.0] and inner.pass_number.tolist() == [NO_PASS] * 2
    assert not inner.velocity.any() and not inner.heading.any()
    assert inner[:1].extents.tolist() == [0.0]


def test_samples_say_what_they_state_in_inner_units():
    """A stated noise stands for the sensor's; else that of an average is so many times smaller."""
    batch = Samples(
        [[3.0, 4.0]] * 2,
        [14.0, 8.0],
        velocity=[[0.0, 0.5], [3.0, 4.0]],
        noise_variance=[4.0, 8.0],
        sensor_variance=[12.0, 12.0],
        count=[3.0, 3.0],
        position_variance=[0.5, 0.25],
        pass_number=[1.0, 2.0],
        extent=[0.1, 0.2],
    )
    inner = Standardised.from_samples(batch, scaled())
    assert inner.noise.tolist() == [1.0, 2.0] and inner.extra.tolist() == [0.0, 0.0]
    untold = Standardised.from_samples(replace(batch, noise_variance=None), scaled())
    assert untold.noise.tolist() == [0.0, 0.0] and untold.extra.tolist() == [1.0, 1.0]
    assert inner.heading.tolist() == [[0.0, 1.0], [0.6, 0.8]]
    assert inner.position_variance.tolist() == [0.5, 0.25] and inner.count.tolist() == [3.0, 3.0]
    assert inner.pass_number.tolist() == [1.0, 2.0] and inner.extents.tolist() == [0.1, 0.2]

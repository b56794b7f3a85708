"""Samples as maps take them in: in inner units about an origin, each with what it says of its noise.

Of gp_mapping.core.standardised.
"""

import numpy as np
import pytest
import torch

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.standardised import average_noise, excess_variance

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

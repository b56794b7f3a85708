"""One θ of a team: a product of what each map has learned, whatever their order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gp_mapping.core.hyper.agreed import Learned, agreed
from gp_mapping.core.hyper.theta import Theta

RNG = np.random.default_rng(1)


def part(shift: float, weight: float, **others) -> Learned:
    root = RNG.normal(size=(7, 7))
    information = torch.from_numpy(weight * (root @ root.T + np.eye(7)))
    theta = Theta(0.5, 2.0, 0.4, 3.0, heading_stddev=0.7)
    theta = theta.with_vector(theta.vector() + shift * torch.from_numpy(RNG.random(7)))
    return Learned(replace(theta, **others), information)


def test_it_is_the_mode_of_the_product_within_what_the_maps_say():
    parts = [part(0.3, 5.0), part(-0.2, 1.0), part(0.1, 30.0)]
    vectors = np.stack([p.theta.vector().numpy() for p in parts])
    weights = [p.information.numpy() + 1e-3 * np.eye(7) for p in parts]
    mode = np.linalg.solve(sum(weights), sum(w @ v for w, v in zip(weights, vectors)))
    within = np.clip(mode, vectors.min(0), vectors.max(0))
    assert (within != mode).any() and (within == mode).any()
    for order in ((0, 1, 2), (2, 0, 1)):
        found = agreed([parts[i] for i in order]).vector().numpy()
        assert np.allclose(found, within, rtol=1e-9, atol=1e-12)


def test_what_is_not_learned_by_steps_is_the_geometric_mean_and_segments_the_least():
    parts = [
        part(0.1, 1.0, constant_stddev=2.0, bias_stddev=0.5, bias_correlation=0.9),
        part(0.2, 1.0, constant_stddev=4.0, bias_stddev=0.5, bias_correlation=0.5),
        part(0.3, 1.0, constant_stddev=1.0, bias_stddev=0.5, bias_correlation=0.7),
    ]
    found = agreed(parts)
    assert found.constant_stddev == pytest.approx(2.0)
    assert found.bias_stddev == 0.5 and found.bias_correlation == 0.5
    # one that knows of no constants makes none of all
    found = agreed([*parts, part(0.1, 1.0, bias_stddev=0.0)])
    assert found.bias_stddev == 0.0 and found.bias_correlation == 0.0


def test_one_map_keeps_its_theta_and_so_do_those_that_agree():
    one = part(0.1234567, 3.0)
    assert agreed([one]) is one.theta
    other = Learned(replace(one.theta, constant_stddev=12.0), 2.0 * one.information)
    found = agreed([one, other])
    assert torch.equal(found.vector(), one.theta.vector())
    assert found.lengthscale == one.theta.lengthscale
    assert found.constant_stddev == pytest.approx(6.0)


def test_other_kernels_have_no_theta_in_common():
    one = part(0.1, 1.0)
    for other in (part(0.1, 1.0, kernel_name="rbf"), part(0.1, 1.0, anisotropy=2.0)):
        with pytest.raises(ValueError, match="no θ in common"):
            agreed([one, one, other])

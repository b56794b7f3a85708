"""Dirichlet targets of labels are those of Milios et al., and probabilities those of the latent posterior."""

import math

import pytest
import torch

from gp_mapping.core.likelihoods.dirichlet import Dirichlet, dirichlet_targets


def test_targets_are_those_of_the_paper():
    targets, variance = Dirichlet(3, 0.01).targets(torch.tensor([[0.0], [2.0]]))
    assert float(variance[0, 0]) == pytest.approx(math.log(1 + 1 / 1.01))
    assert float(variance[0, 1]) == pytest.approx(math.log(1 + 1 / 0.01))
    assert float(targets[0, 0]) == pytest.approx(math.log(1.01) - float(variance[0, 0]) / 2)
    assert float(targets[0, 1]) == pytest.approx(math.log(0.01) - math.log(101) / 2)
    assert torch.equal(targets[1], targets[0, [1, 1, 0]])


def test_a_target_has_the_moments_of_a_gamma():
    """exp N(ỹ, σ̃²) has the mean α and the variance α of Gamma(α, 1)."""
    shares = torch.tensor([[1.0, 0.0], [0.3, 0.7]], dtype=torch.float64)
    targets, variance = dirichlet_targets(shares, 0.2)
    mean = (targets + 0.5 * variance).exp()
    assert torch.allclose(mean, shares + 0.2)
    assert torch.allclose(variance.expm1() * mean.square(), shares + 0.2)


def test_what_is_no_class_is_refused():
    for bad in (3.0, -1.0, 0.5):
        with pytest.raises(ValueError, match="class labels are whole numbers 0 … 2"):
            Dirichlet(3).targets(torch.tensor([[bad]]))


def test_probabilities_are_the_softmax_averaged_over_the_posterior():
    """Latent fields of different means and variances, as the classes' maps have them, by 100 000 draws."""
    likelihood = Dirichlet(3)
    mean = torch.tensor([[0.0, -2.0, 1.0], [-5.0, -4.0, -6.0]], dtype=torch.float64)
    variance = torch.tensor([[4.0, 0.1, 1.0], [0.3, 9.0, 2.0]], dtype=torch.float64)
    draws = torch.randn(100_000, 1, 3, generator=torch.Generator().manual_seed(0)).double()
    p = torch.softmax(mean + variance.sqrt() * draws, -1)
    told, spread = likelihood.observable(mean, variance)
    assert torch.allclose(told, p.mean(0), atol=4e-3)
    assert torch.allclose(spread, p.var(0), atol=4e-3)
    y = torch.eye(3, dtype=torch.float64)[:2]
    density = likelihood.log_predictive(y, mean, variance, torch.zeros(2))
    assert torch.allclose(density.exp(), p.mean(0)[[0, 1], [0, 1]], atol=4e-3)

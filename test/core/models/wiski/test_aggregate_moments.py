"""Moments of an aggregate: what is kept of samples in a square, and of wide ones that are split."""

import torch

from gp_mapping.core.models.wiski.lattice.moments import (
    mean_and_covariance,
    moments_in_squares,
    split_wide,
)


def uniform(*shape, seed=1):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_sums_of_moments_give_the_mean_and_covariance_of_the_samples():
    """In one square, of different precisions; places in half spacings, answers in spacings."""
    inside, mass = uniform(50, 2), 0.5 + uniform(50, 1, seed=2)
    square, moments = moments_in_squares(torch.tensor([3.0, 7.0]) + inside, mass)
    assert square.unique(dim=0).tolist() == [[3.0, 7.0]]
    mean, covariance = mean_and_covariance(moments.sum(0, keepdim=True))

    offset, w = 0.5 * (inside - 0.5), mass / mass.sum()
    want = (w * offset).sum(0)
    spread = (w * (offset - want)).mT @ (offset - want)
    torch.testing.assert_close(mean[0], want, rtol=1e-12, atol=0.0)
    want = torch.stack([spread[0, 0], spread[1, 1], spread[0, 1]])
    torch.testing.assert_close(covariance[0], want, rtol=1e-10, atol=0.0)


def test_wide_ones_are_split_along_their_axes_and_keep_mass_place_and_spread():
    """Narrow, long and round ones; the worth of the spread decides."""
    spread = torch.tensor([[1e-3, 1e-3, 0.0], [2.0, 1.0, 0.9], [2.0, 3.0, 0.4]]).double()
    x, covariates, beta = uniform(3, 2), uniform(3, 2, seed=3), torch.ones(3).double()
    places, features, mass = split_wide(x, covariates, beta, spread, 1.0)
    assert mass.tolist() == [1.0, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25]

    parts = [places[:1], places[1:3], places[3:]]
    for k, part in enumerate(parts):
        torch.testing.assert_close(part.mean(0), x[k], rtol=1e-12, atol=0.0)
    assert torch.equal(features, covariates[[0, 1, 1, 2, 2, 2, 2]])

    whole = torch.cov(parts[2].mT, correction=0)
    torch.testing.assert_close(whole, torch.tensor([[2.0, 0.4], [0.4, 3.0]]).double())
    longer = torch.linalg.eigvalsh(torch.tensor([[2.0, 0.9], [0.9, 1.0]]).double())[1]
    torch.testing.assert_close(torch.cov(parts[1].mT, correction=0).trace(), longer)

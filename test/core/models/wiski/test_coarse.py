"""The preconditioner of many samples is the dense formula on their aggregates."""

import pytest
import torch

from gp_mapping.core.kernels.stationary import Matern52
from gp_mapping.core.models.wiski.lattice import coarse
from gp_mapping.core.models.wiski.lattice.coarse import CoarseSpace
from gp_mapping.core.models.wiski.lattice.windows import Aggregates

SHAPE, FIRST, SPACING, LENGTHSCALE = (12, 9), torch.tensor([-3.0, 5.0]).double(), 0.2, 0.8
PRIOR = torch.tensor([4.0, 0.5, 0.25]).double()


def made(count=40, most=None):
    """Of aggregates within the box, of which two nodes are not held; with their kernel."""
    torch.manual_seed(0)
    inside = torch.tensor([SHAPE[0] - 4, SHAPE[1] - 4]).double()
    x = FIRST + SPACING * (1.5 + inside * torch.rand(count, 2).double())
    given = torch.randn(count, 2).double(), 0.5 + torch.rand(count).double()
    aggregates = Aggregates.from_samples(x, *given, LENGTHSCALE)
    kernel = Matern52(3.0, LENGTHSCALE)
    held = torch.arange(SHAPE[0] * SHAPE[1])[1:-1]
    out = CoarseSpace(held, SHAPE, FIRST, SPACING, kernel, aggregates, PRIOR)
    while not out.ready:
        out.step()
    return out, aggregates, kernel, held


def quadratic(x, a):
    """Interpolation on the lattice is exact for it."""
    d = x - FIRST
    return a[0] + d @ a[1:3] + a[3] * d[:, 0] * d[:, 1] + d.square() @ a[4:6]


def test_a_correction_is_the_dense_formula_on_the_aggregates():
    space, aggregates, kernel, held = made()
    x, phi = aggregates.x, torch.cat([torch.ones(40, 1).double(), aggregates.covariates], 1)
    nodes = FIRST + SPACING * torch.stack([held // SHAPE[1], held % SHAPE[1]], 1)
    A = kernel(x, x) + (phi * PRIOR) @ phi.mT + torch.diag(1.0 / aggregates.mass)
    A += 2e-3 * 2.0**3 * kernel.variance * torch.eye(40).double()  # at four nodes in a lengthscale
    a, b, r_f = (torch.randn(6).double() for _ in range(3))
    c = torch.linalg.solve(A, quadratic(x, a) + phi @ (PRIOR * r_f[:3]))

    explained, at_features = space.correction(quadratic(nodes, a), r_f[:3])
    torch.testing.assert_close(at_features, PRIOR * (phi.mT @ c))
    torch.testing.assert_close(
        explained @ quadratic(nodes, b), c @ quadratic(x, b), rtol=1e-5, atol=0
    )


def test_too_many_aggregates_are_merged_with_all_of_their_mass(monkeypatch):
    monkeypatch.setattr(coarse, "_MOST", 15)
    space, aggregates, _, _ = made()
    assert 5 < len(space.x) <= 15 and space.epsilon > 2e-3 * 2.0**3
    assert float(space.mass.sum()) == pytest.approx(float(aggregates.mass.sum()))
    torch.testing.assert_close(
        space.mass @ space.phi[:, 1:], aggregates.mass @ aggregates.covariates
    )
    again = space.more_regularised()
    assert again.epsilon == pytest.approx(10.0 * space.epsilon) and again.ready


def test_on_a_card_a_correction_is_the_same(monkeypatch):
    """By products with an inverse and with the weights of each node, of which many touch nothing."""
    here, _, _, held = made()
    monkeypatch.setattr(coarse, "is_synchronous", lambda device: False)
    card = made()[0]
    assert here.spread is None and card.spread is not None
    assert int(here.index.max()) < len(held) - 1, "the last nodes touch nothing"
    z, r_f = torch.randn(len(held)).double(), torch.randn(3).double()
    for told, expected in zip(card.correction(z, r_f), here.correction(z, r_f), strict=True):
        torch.testing.assert_close(told, expected)

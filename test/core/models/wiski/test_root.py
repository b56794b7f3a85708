"""The root of a sum of outer products: by the sum itself, which NumPy or torch adds up."""

import copy

import numpy as np
import pytest
import torch

from gp_mapping.core.models.wiski.lattice.root import RootCache


def vectors(count: int, size: int = 12, rank: int = 7, seed: int = 1) -> torch.Tensor:
    """(count, size), all in a range of `rank` dimensions."""
    rng = np.random.default_rng(seed)
    basis = torch.from_numpy(rng.normal(size=(size, rank)))
    return torch.from_numpy(rng.normal(size=(count, rank))) @ basis.mT


def fed(root: RootCache, rows: torch.Tensor) -> RootCache:
    for w in rows:
        root.add(w)
    return root


def assert_is_root_of(root: RootCache, total: torch.Tensor) -> None:
    """A = L Lᵀ, and JᵀL = I."""
    assert torch.allclose(root.L @ root.L.mT, total, rtol=1e-11, atol=1e-11 * float(total.max()))
    eye = torch.eye(root.L.shape[1], dtype=torch.float64)
    assert torch.allclose(root.J.mT @ root.L, eye, atol=1e-10)


def test_root_and_pseudo_inverse_root_follow_every_vector():
    root, total = RootCache(12), torch.zeros(12, 12, dtype=torch.float64)
    for i, w in enumerate(vectors(2500)):
        root.add(w)
        total += torch.outer(w, w)
        if i in (2, 6, 498, 499, 500, 2499):
            assert root.L.shape[1] == min(i + 1, 7) and root.dropped == 0.0
            assert_is_root_of(root, total)
            # orthogonal after each 500, in which the first seven count, too
            gram = root.L.mT @ root.L
            beside = float((gram - gram.diagonal().diag()).abs().max()) / float(gram.max())
            assert (beside < 1e-12) == (i in (499, 2499)), (i, beside)


def test_vectors_that_hardly_differ_keep_their_digits():
    """A tenth of a thousandth beside one direction, until the root is next made orthogonal."""
    rng = np.random.default_rng(0)
    most, beside = rng.normal(size=(40, 1)), rng.normal(size=(40, 20))
    rows = torch.from_numpy((most + 1e-4 * beside @ rng.normal(size=(20, 499))).T.copy())
    root, total = fed(RootCache(40), rows), rows.mT @ rows
    assert root.L.shape[1] == 21 and root.dropped == 0.0
    assert float((root.L @ root.L.mT - total).abs().max()) < 1e-13 * float(total.max())
    assert torch.allclose(root.J.mT @ root.L, torch.eye(21, dtype=torch.float64), atol=1e-6)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_what_is_a_direction_of_its_own_depends_on_no_unit(unit):
    """From a ten-millionth of a vector's length; less is rounding, and what lies in the range adds no column."""
    axes = unit * torch.eye(5, dtype=torch.float64)
    for beyond, columns in ((1e-6, 3), (1e-8, 2), (0.0, 2)):
        root = fed(RootCache(5), torch.cat([vectors(40, 5, 1) * unit, axes[:1]]))
        assert root.L.shape[1] == 2
        root.add(axes[0] + beyond * torch.linalg.svd(root.L)[0][:, 3] * unit)
        assert root.L.shape[1] == columns and root.dropped == 0.0, beyond


def test_a_rank_that_is_too_small_says_what_it_dropped():
    root = fed(RootCache(5, rank=2), torch.eye(5, dtype=torch.float64))
    assert root.L.shape == (5, 2) and root.dropped == pytest.approx(3.0)
    # of a vector that lies partly in the range, the part beyond; the other is in the root
    root.add(torch.tensor([2.0, 0.0, 0.0, 0.5, 0.0], dtype=torch.float64))
    assert root.dropped == pytest.approx(3.25)
    kept = torch.zeros(5, 5, dtype=torch.float64)
    kept[0, 0], kept[1, 1] = 5.0, 1.0
    assert_is_root_of(root, kept)


def test_the_root_of_a_matrix_is_of_its_largest_eigenvalues():
    rows = vectors(40)
    total = rows.mT @ rows
    whole = RootCache.from_matrix(total, 12)
    assert whole.L.shape == (12, 7) and whole.dropped == 0.0 and whole.rank == 12
    assert_is_root_of(whole, total)

    part = RootCache.from_matrix(total, 4)
    values, directions = np.linalg.eigh(total.numpy())
    best = (directions[:, -4:] * values[-4:]) @ directions[:, -4:].T
    assert part.L.shape == (12, 4) and part.dropped == pytest.approx(values[:-4].sum())
    assert_is_root_of(part, torch.from_numpy(best))


def test_a_factor_scales_the_sum_and_leaves_the_other_as_it_was():
    rows = vectors(20)
    root = fed(RootCache(12), rows)
    assert_is_root_of(root.scaled(0.3), 0.3 * rows.mT @ rows)
    assert_is_root_of(root, rows.mT @ rows)


def test_a_root_goes_on_from_its_state_to_the_bit():
    """Also over the moment when it is made orthogonal again; the state is never written into."""
    rows = vectors(800, rank=12)
    one = fed(RootCache(12, rank=9), rows[:300])
    assert one.dropped > 0.0
    state = one.state_dict()
    kept = copy.deepcopy(state)
    other = RootCache.from_state_dict(state, 9, "cpu")
    for root in (one, other):
        fed(root, rows[300:])
    for mine, its in ((one.L, other.L), (one.J, other.J), (state["L"], kept["L"])):
        assert torch.equal(mine, its)
    assert torch.equal(state["J"], kept["J"]) and one.dropped == other.dropped


def test_a_root_from_a_state_has_the_rank_that_it_is_given():
    one = fed(RootCache(12, rank=3), vectors(2))
    other = fed(RootCache.from_state_dict(one.state_dict(), 5, "cpu"), vectors(9, seed=2))
    assert other.L.shape == (12, 5) and one.L.shape == (12, 2)

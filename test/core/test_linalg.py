"""Factorisations: no jitter where none is needed, as little as helps where it is, and an error where nothing does."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended_card import CARD, pretended_card

from gp_mapping.core.device.sparse_product import SparseMatrix
from gp_mapping.core.device.transfers import add_rows
from gp_mapping.core.kernels.stationary import make_kernel
from gp_mapping.core.linalg import (
    InverseFactor,
    cholesky,
    chunk_size,
    column_squares,
    factor_upper,
    mirror_upper,
    solve_lower,
    upper_blocks,
)
from gp_mapping.core.linalg import pivoted_cholesky as pivoted_by_rows
from gp_mapping.core.sparse.greedy import select_pivots
from gp_mapping.errors import NumericalError


def random_psd(n, rank, seed):
    w = torch.from_numpy(np.random.default_rng(seed).normal(size=(rank, n)))
    product = w.mT @ w
    return 0.5 * (product + product.mT)  # to the last bit, as not every processor's product is


def pivoted_cholesky(a, tolerance, rank):
    """Of a matrix that is there in full."""
    return pivoted_by_rows(len(a), a.diagonal(), a.__getitem__, tolerance, rank)


def test_no_jitter_where_none_is_needed():
    a = random_psd(20, 20, 0) + torch.eye(20, dtype=torch.float64)
    factor, jitter = cholesky(a)
    assert jitter == 0.0 and torch.allclose(factor @ factor.mT, a, rtol=1e-12)
    assert cholesky(torch.zeros(0, 0, dtype=torch.float64))[1] == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_matrix_stays_as_it_is_and_gradients_pass(dtype):
    buffer = torch.zeros(25, 25, dtype=dtype)
    a = buffer[:20, :20]
    a.copy_(random_psd(20, 20, 0)).diagonal().add_(1.0)
    before = buffer.clone()
    for given_as in (a, a.mT):
        factor, jitter = cholesky(given_as)
        assert jitter == 0.0 and torch.equal(factor, torch.linalg.cholesky(a.mT))
        assert torch.equal(buffer, before) and factor.mT.is_contiguous()

    wanted = a.clone().requires_grad_()
    cholesky(wanted)[0].diagonal().log().sum().backward()  # ½ log |A|, whose gradient is ½ A⁻¹
    assert torch.allclose(wanted.grad, 0.5 * torch.linalg.inv(a), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 20, 300])
def test_the_upper_triangle_is_enough(size):
    a = random_psd(size, size, 0) + torch.eye(size, dtype=torch.float64)
    below = torch.full_like(a, math.nan).tril_(-1)
    wanted, _ = cholesky(a)

    covered = torch.zeros_like(a)
    for block in upper_blocks(a):
        covered[block] += 1.0
    assert torch.equal(covered.triu(), torch.ones_like(a).triu()), "each number once"
    assert covered.mean() < 0.8 or size < 300

    given_as = a.triu() + below
    assert torch.equal(mirror_upper(given_as.clone()), a)
    assert torch.equal(factor_upper(given_as), wanted)
    with pretended_card():
        on_card = (a.triu() + below).to(CARD)
        assert torch.equal(factor_upper(on_card).cpu(), wanted)
    if size:
        assert factor_upper(a - 1e3 * torch.eye(size, dtype=torch.float64)) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_singular_matrix_gets_the_first_rung_that_helps(dtype):
    a = random_psd(20, 4, 1).to(dtype)
    factor, jitter = cholesky(a)
    epsilon = torch.finfo(dtype).eps * float(a.diagonal().mean())
    assert 9 * epsilon < jitter < 1e6 * epsilon
    assert torch.allclose(
        factor @ factor.mT, a + jitter * torch.eye(20, dtype=dtype), rtol=1e-3, atol=20 * epsilon
    )
    smaller = a + (jitter / 10.0) * torch.eye(20, dtype=dtype)
    rung = round(np.log10(jitter / epsilon))
    assert rung == 1 or int(torch.linalg.cholesky_ex(smaller)[1]) != 0, (
        "a smaller rung would have done"
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_what_cannot_be_factored_is_an_error(bad):
    a = torch.eye(5, dtype=torch.float64)
    a[2, 2] = bad
    with pytest.raises(NumericalError, match="5 x 5"):
        cholesky(a)
    with pytest.raises(NumericalError):
        cholesky(torch.zeros(3, 3, dtype=torch.float64))


def test_solve_lower():
    factor = torch.linalg.cholesky(random_psd(8, 8, 2) + torch.eye(8, dtype=torch.float64))
    right = torch.from_numpy(np.random.default_rng(3).normal(size=(8, 3)))
    assert torch.allclose(factor @ solve_lower(factor, right), right)
    assert torch.allclose(factor.mT @ solve_lower(factor, right, transpose=True), right)


def check_pivoted(a, tolerance, rank):
    pivots, rows = pivoted_cholesky(a, tolerance, rank)
    scale = float(a.diagonal().max())
    assert len(set(pivots)) == len(pivots) <= min(rank, len(a)) and rows.shape == (
        len(pivots),
        len(a),
    )
    residual = a - rows.mT @ rows
    assert float(residual.diagonal().min()) > -1e-9 * scale
    if len(pivots) < min(rank, len(a)):
        assert float(residual.diagonal().max()) <= tolerance + 1e-9 * scale
    if pivots:
        lower = rows[:, pivots].mT
        assert torch.equal(lower, lower.tril()) and float(
            lower.diagonal().min()
        ) ** 2 > tolerance * (1 - 1e-9)
        assert torch.allclose(lower @ lower.mT, a[pivots][:, pivots], atol=1e-9 * scale)
        assert all(x >= y - 1e-9 * scale for x, y in zip(lower.diagonal(), lower.diagonal()[1:])), (
            "not greedy"
        )
    return pivots, residual


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 25),
    rank=st.integers(1, 25),
    seed=st.integers(0, 10**6),
    most=st.integers(0, 30),
    share=st.sampled_from([1e-8, 1e-3, 0.3, 2.0]),
)
def test_pivoted_cholesky_on_any_matrix(n, rank, seed, most, share):
    a = random_psd(n, rank, seed)
    check_pivoted(a, share * float(a.diagonal().max()), most)


def test_pivoted_cholesky_ends_at_the_rank_and_takes_the_largest_first():
    a = random_psd(20, 4, 5)
    pivots, residual = check_pivoted(a, 1e-9, 20)
    assert len(pivots) == 4 and pivots[0] == int(a.diagonal().argmax())
    assert float(residual.abs().max()) < 1e-9


def test_repeated_points_are_taken_once():
    x = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    a = torch.exp(-((x[:, None] - x[None]) ** 2))
    pivots, _ = check_pivoted(a, 1e-6, 5)
    assert sorted(x[pivots].tolist()) == [0.0, 1.0]


def test_nan_is_never_a_pivot():
    a = torch.full((3, 3), float("nan"), dtype=torch.float64)
    assert pivoted_cholesky(a, 1e-6, 3)[0] == []


def test_only_the_rows_of_pivots_are_asked_for():
    a, asked = random_psd(20, 20, 7), []

    def row(p):
        asked.append(p)
        return a[p]

    pivots, _ = pivoted_by_rows(20, a.diagonal(), row, 1e-9, 5)
    assert asked == pivots and len(pivots) == 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", [1, 127, 300])
def test_products_with_an_inverse_are_triangular_solves(size, dtype, device):
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(size, size, generator=generator, dtype=torch.float64)
    factor, right = torch.linalg.cholesky(a @ a.mT / size + torch.eye(size)), a[:, :50]
    inverse = InverseFactor(factor.to(device), dtype)
    right = right.to(device, dtype)
    solved = inverse.solve(right, torch.full_like(right, math.nan))
    wanted = torch.linalg.solve_triangular(factor, right.double().cpu(), upper=False)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(solved.double().cpu(), wanted, rtol=tolerance, atol=tolerance)


def test_squares_of_columns_and_sparse_products_are_those_of_the_matrix(device):
    matrix = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = matrix.square().sum(0)
    torch.testing.assert_close(column_squares(matrix.to(device)).cpu(), wanted)
    matrix[matrix < 0.0] = 0.0
    rows, columns = matrix.nonzero().mT
    ends = torch.bincount(rows + 1, minlength=8).cumsum(0)
    parts = ends, columns, matrix[rows, columns]
    sparse = SparseMatrix(*(part.to(device) for part in parts), (7, 5))
    torch.testing.assert_close((sparse @ wanted.to(device)).cpu(), matrix @ wanted)


def test_a_card_is_given_more_places_at_a_time_and_a_bounded_number():
    cpu, card = torch.device("cpu"), torch.device("meta")
    assert chunk_size(cpu, 400) == chunk_size(cpu, 4000)
    assert chunk_size(card, 4000) * 4000 <= 2**25 < chunk_size(card, 4000) * 4001 + 2**13
    assert chunk_size(card, 1) == chunk_size(card, 10)


def test_pivots_on_a_card_are_those_here(device):
    generator = torch.Generator().manual_seed(0)
    x = 6.0 * torch.rand(400, 2, generator=generator, dtype=torch.float64)
    kernel = make_kernel("matern52", 1.0, 0.5)

    def chosen(x: torch.Tensor) -> tuple[list[int], torch.Tensor]:
        pivots, rows = select_pivots(kernel.diag(x), lambda p: kernel(x[p], x)[0], 1e-3, 250)
        return pivots.tolist(), rows.cpu()

    here = chosen(x)
    assert len(here[0]) == 250
    with pretended_card():
        there = chosen(x.to(CARD))
    for pivots, rows in (there, chosen(x.to(device))):
        assert pivots == here[0]
        torch.testing.assert_close(rows, here[1], rtol=1e-9, atol=1e-11)


def test_rows_are_added_in_one_order(device):
    total, where = torch.zeros(3, 2, dtype=torch.float64), torch.tensor([0, 2, 0, 0])
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], dtype=torch.float64)
    wanted = [[13.0, 16.0], [0.0, 0.0], [3.0, 4.0]]
    assert add_rows(total.to(device), where.to(device), rows.to(device)).tolist() == wanted
    with pretended_card():
        added = add_rows(torch.zeros_like(total).to(CARD), where.to(CARD), rows.to(CARD))
        assert added.tolist() == wanted

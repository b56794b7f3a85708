"""Factorisations and triangular solves; the only place that adds jitter."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gp_mapping.core.device.transfers import is_synchronous
from gp_mapping.errors import NumericalError

__all__ = [
    "InverseFactor",
    "cholesky",
    "chunk_size",
    "column_squares",
    "factor_upper",
    "mirror_upper",
    "pivoted_cholesky",
    "solve_lower",
    "solve_within",
    "upper_blocks",
]

# Columns that are computed at a time. On a CPU a few arrays (M, chunk) stay in the cache, and out
# of malloc's slow large blocks. A card wants large products: so many numbers, 256 MiB in float64,
# in each of the four or so arrays that are alive at once.
_CHUNK, _NUMBERS_ELSEWHERE = 256, 2**25
_MOST_ELSEWHERE = 2**17

# Rows of a product with a triangular matrix that are computed at a time, as a card's products are
# made: half a block is wasted.
_BLOCK = 128

# A symmetric matrix of more rows than these is computed on and above its diagonal alone, so many
# rows at a time: of fewer, all of it costs no more than the calls.
_WHOLE, _STRIP = 256, 160


def cholesky(matrix: Tensor, rungs: int = 6) -> tuple[Tensor, float]:
    """Cholesky factor L of a matrix A, L Lᵀ = A + j I, with as little jitter j as it needs.

    Args:
        matrix: A, (M, M), symmetric.
        rungs: how many values of jitter to try.

    Returns:
        L (M, M), and j: 0 where A factors as it is, else the first of ε·tr(A)/M·10^k, k = 1, 2, …,
        with which it does.

    Raises:
        NumericalError: A does not factor with any of them.
    """
    factor, info = _factored(matrix)
    # both in one number, for which a card is waited for once: infinite, or NaN, where it failed
    if math.isfinite(float(factor.detach().diagonal().sum() / (info == 0))):
        return factor, 0.0

    scale = float(matrix.diagonal().abs().mean())
    jitter = torch.finfo(matrix.dtype).eps * scale
    for _ in range(rungs if 0.0 < jitter < float("inf") else 0):
        jitter *= 10.0
        shifted = matrix.clone()
        shifted.diagonal().add_(jitter)
        factor, info = _factored(shifted)
        if int(info) == 0:
            return factor, jitter

    raise NumericalError(
        f"a {len(matrix)} x {len(matrix)} matrix does not factor (pivot {int(info)}, "
        f"mean diagonal {scale:.3g}); the map keeps its last good state"
    )


def _factored(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """As torch.linalg.cholesky_ex, of a symmetric matrix (M, M), column by column."""
    if not matrix.is_cpu or (torch.is_grad_enabled() and matrix.requires_grad):
        return torch.linalg.cholesky_ex(matrix.mT)

    # In place, in a copy that is column-major as LAPACK wants it (its transpose is the same
    # matrix): torch's own copy takes one triangle, across the columns, as long as the factoring.
    factor = matrix.clone(memory_format=torch.contiguous_format).mT
    info = torch.empty((), dtype=torch.int32)
    torch.linalg.cholesky_ex(factor, out=(factor, info))
    return factor, info


def factor_upper(matrix: Tensor) -> Tensor | None:
    """Cholesky factor L of a symmetric matrix A of which the upper triangle is known, L Lᵀ = A.

    Args:
        matrix: A (M, M), row by row; it is overwritten where that saves a copy.

    Returns:
        L (M, M), lower; None where A does not factor as it is.
    """
    if matrix.is_cpu and matrix.is_contiguous() and not matrix.requires_grad:
        factor, info = matrix.mT, torch.empty((), dtype=torch.int32)
        torch.linalg.cholesky_ex(factor, out=(factor, info))
    else:
        factor, info = torch.linalg.cholesky_ex(matrix.mT)  # reads the lower triangle of that
    # as in `cholesky`
    is_factored = math.isfinite(float(factor.detach().diagonal().sum() / (info == 0)))
    return factor if is_factored else None


def upper_blocks(matrix: Tensor) -> list[tuple[slice, slice]]:
    """Rows and columns of blocks that cover the upper triangle of a matrix (M, M) with little else.

    A card computes all of it at once.
    """
    size = matrix.shape[0]
    if size <= _WHOLE or not is_synchronous(matrix.device):
        return [(slice(0, size), slice(0, size))]
    return [(slice(i, min(i + _STRIP, size)), slice(i, size)) for i in range(0, size, _STRIP)]


def mirror_upper(matrix: Tensor) -> Tensor:
    """A matrix (M, M), changed in place to be symmetric, with the upper triangle that it has."""
    upper = matrix.triu(1)
    return matrix.triu_().add_(upper.mT)


def chunk_size(device: torch.device, rows: int = 400) -> int:
    """Positions whose features are computed at a time on a device.

    Args:
        device: of the features.
        rows: features of a position.
    """
    if is_synchronous(device):
        return _CHUNK
    return min(_NUMBERS_ELSEWHERE // max(1, rows), _MOST_ELSEWHERE)


def solve_lower(factor: Tensor, right: Tensor, transpose: bool = False) -> Tensor:
    """Solve with a triangular factor: L⁻¹B, or L⁻ᵀB.

    Args:
        factor: L (M, M), lower.
        right: B (M, N).
        transpose: solve with Lᵀ.
    """
    if transpose:
        return torch.linalg.solve_triangular(factor.mT, right, upper=True)
    return torch.linalg.solve_triangular(factor, right, upper=False)


def column_squares(matrix: Tensor) -> Tensor:
    """Sum of the squares of each column, (N,), of a matrix (M, N)."""
    if is_synchronous(matrix.device):
        return matrix.square().sum(0)
    return torch.linalg.vector_norm(matrix, dim=0).square_()  # reads the matrix once


class InverseFactor:
    """L⁻¹ of a triangular factor, for solves with very many columns on a card.

    A card takes four times as long for a triangular solve as for a product of matrices. Once L⁻¹ is
    known, L⁻¹B is a product, row block by row block without the zeros above the diagonal.

    Args:
        factor: L (M, M), lower, which is inverted in float64.
        dtype: in which L⁻¹ is kept.
    """

    def __init__(self, factor: Tensor, dtype: torch.dtype):
        eye = torch.eye(len(factor), dtype=torch.float64, device=factor.device)
        self.inverse = solve_lower(factor.double(), eye).to(dtype)

    def solve(self, right: Tensor, solved: Tensor) -> Tensor:
        """L⁻¹B.

        Args:
            right: B (M, N).
            solved: (M, N), which is written to.

        Returns:
            `solved`.
        """
        size = len(self.inverse)
        for start in range(0, size, _BLOCK):
            end = min(start + _BLOCK, size)
            torch.mm(self.inverse[start:end, :end], right[:end], out=solved[start:end])
        return solved


def solve_within(
    matrix: Tensor, right: Tensor, free: Sequence[bool], least: Tensor, most: Tensor
) -> Tensor:
    """Solve A x = b with each x_i between two limits.

    An entry that would be beyond its limit is held there, and the others are solved again given it,
    the farthest beyond first.

    Args:
        matrix: A, (P, P), positive definite.
        right: b, (P,).
        free: whether each entry is solved for; the others are 0.
        least: lower limits (P,).
        most: upper limits (P,).

    Returns:
        x, (P,).
    """
    loose = [i for i, is_free in enumerate(free) if is_free]
    held: list[int] = []
    x = torch.zeros_like(right)
    while loose:
        rows, remainder = matrix[loose], right[loose]
        if held:
            remainder = remainder - rows[:, held] @ x[held]
        x[loose] = torch.linalg.solve(rows[:, loose], remainder)

        within = x.clamp(least, most)
        # in half widths
        beyond = (2.0 * (x - within).abs() / (most - least).clamp_min(1e-12))[loose].tolist()
        worst = max(range(len(loose)), key=beyond.__getitem__)
        if beyond[worst] <= 0.0:
            break
        at = loose.pop(worst)
        x[at] = within[at]
        held.append(at)
    return x


def pivoted_cholesky(
    size: int, diagonal: Tensor, row_of, tolerance: float, rank: int
) -> tuple[list[int], Tensor]:
    """Partial Cholesky factorisation of A with greedy pivots.

    Each pivot is where the diagonal of the residual A − WᵀW is largest, while that exceeds the
    tolerance.

    Args:
        size: N.
        diagonal: of A, (N,).
        row_of: function p → row p of A (N,), called for pivots only.
        tolerance: in A's units.
        rank: most pivots.

    Returns:
        The pivots in order, and rows W (r, N) with A ≈ WᵀW; W[:, pivots]ᵀ is the Cholesky factor of
        A at the pivots.
    """
    residual = diagonal.clone()
    rows = diagonal.new_zeros((min(rank, size), size))
    pivots: list[int] = []

    while len(pivots) < len(rows):
        value, index = residual.max(0)
        best, p = float(value), int(index)
        if not best > tolerance:
            break

        k = len(pivots)
        row = torch.addmv(row_of(p), rows[:k].mT, rows[:k, p], alpha=-1.0) / best**0.5
        row[pivots] = 0.0  # the residual there is zero but for rounding
        rows[k] = row
        residual.addcmul_(row, row, value=-1.0)
        pivots.append(p)
        residual[p] = -1.0  # never chosen again

    return pivots, rows[: len(pivots)]

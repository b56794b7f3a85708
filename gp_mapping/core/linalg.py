"""Factorisations; the only place that adds jitter."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["NumericalError", "cholesky", "pivoted_cholesky", "solve_lower"]


class NumericalError(RuntimeError):
    """A factorisation failed in spite of jitter: the matrix holds NaN or is not positive definite at all."""


def cholesky(matrix: Tensor, rungs: int = 6) -> tuple[Tensor, float]:
    """L with L Lᵀ = A + j I, and j: 0 where A factors as it is, else the first of ε·tr(A)/M·10^k that does.

    matrix: (M, M) symmetric.  Raises NumericalError where no rung of the ladder helps.
    """
    factor, info = torch.linalg.cholesky_ex(matrix.mT)  # column-major: saves LAPACK a transposing copy
    if int(info) == 0 and bool(torch.isfinite(factor.diagonal()).all()):
        return factor, 0.0
    scale = float(matrix.diagonal().abs().mean()) if len(matrix) else 0.0
    jitter = torch.finfo(matrix.dtype).eps * scale
    for _ in range(rungs if 0.0 < jitter < float("inf") else 0):
        jitter *= 10.0
        shifted = matrix.clone()
        shifted.diagonal().add_(jitter)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            return factor, jitter
    raise NumericalError(f"a {len(matrix)} x {len(matrix)} matrix does not factor (pivot {int(info)}, "
                         f"mean diagonal {scale:.3g}); the map keeps its last good state")


def solve_lower(factor: Tensor, right: Tensor, transpose: bool = False) -> Tensor:
    """L⁻¹B, or L⁻ᵀB. factor: (M, M) lower.  right: (M, N)."""
    if transpose:
        return torch.linalg.solve_triangular(factor.mT, right, upper=True)
    return torch.linalg.solve_triangular(factor, right, upper=False)


def pivoted_cholesky(matrix: Tensor, tolerance: float, rank: int) -> tuple[list[int], Tensor]:
    """Greedy pivots p_1, p_2, … of A, each where the residual diagonal is largest, while it exceeds the tolerance.

    matrix: (N, N).  tolerance: absolute, in A's units.  rank: most pivots wanted.
    Returns the pivots in order and rows W (r, N) with A ≈ WᵀW; W[:, pivots]ᵀ is the Cholesky factor of A at the pivots.
    """
    residual = matrix.diagonal().clone()
    rows = matrix.new_zeros((min(rank, len(matrix)), len(matrix)))
    pivots: list[int] = []
    while len(pivots) < len(rows):
        value, index = residual.max(0)
        best, p = float(value), int(index)
        if not best > tolerance:
            break
        k = len(pivots)
        row = (matrix[p] - rows[:k, p] @ rows[:k]) / best**0.5
        row[pivots] = 0.0  # their residual is zero; rounding would say otherwise
        rows[k] = row
        residual = residual - row * row
        pivots.append(p)
        residual[pivots] = -1.0
    return pivots, rows[: len(pivots)]

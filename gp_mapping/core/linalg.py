"""Factorisations; the only place that adds jitter."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.errors import NumericalError

__all__ = ["cholesky", "pivoted_cholesky", "solve_lower"]


def cholesky(matrix: Tensor, rungs: int = 6) -> tuple[Tensor, float]:
    """L with L Lᵀ = A + j I, and j: 0 where A factors as it is, else the first of ε·tr(A)/M·10^k that does.

    matrix: (M, M) symmetric.  Raises NumericalError where no rung of the ladder helps.
    """
    factor, info = torch.linalg.cholesky_ex(
        matrix.mT
    )  # column-major: saves LAPACK a transposing copy
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
    raise NumericalError(
        f"a {len(matrix)} x {len(matrix)} matrix does not factor (pivot {int(info)}, "
        f"mean diagonal {scale:.3g}); the map keeps its last good state"
    )


def solve_lower(factor: Tensor, right: Tensor, transpose: bool = False) -> Tensor:
    """L⁻¹B, or L⁻ᵀB. factor: (M, M) lower.  right: (M, N)."""
    if transpose:
        return torch.linalg.solve_triangular(factor.mT, right, upper=True)
    return torch.linalg.solve_triangular(factor, right, upper=False)


def pivoted_cholesky(
    size: int, diagonal: Tensor, row_of, tolerance: float, rank: int
) -> tuple[list[int], Tensor]:
    """Greedy pivots p_1, p_2, … of A, each where the residual diagonal is largest, while it exceeds the tolerance.

    size: N.  diagonal: of A (N,).  row_of: p → row p of A (N,), asked for pivots only.  tolerance: in A's units.
    Returns the pivots in order and rows W (r, N) with A ≈ WᵀW; W[:, pivots]ᵀ is the Cholesky factor of A at the pivots.
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
        row[pivots] = 0.0  # their residual is zero; rounding would say otherwise
        rows[k] = row
        residual.addcmul_(row, row, value=-1.0)
        pivots.append(p)
        residual[p] = -1.0
    return pivots, rows[: len(pivots)]

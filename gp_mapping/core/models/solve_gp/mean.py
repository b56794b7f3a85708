"""The mean of SOLVE-GP: one system over both blocks; only the two diagonal blocks are factored.

    ⎡D_u  X ⎤ ⎡w_u⎤   ⎡r_u⎤        S = D_v − Xᵀ D_u⁻¹ X
    ⎣Xᵀ  D_v⎦ ⎣w_v⎦ = ⎣r_v⎦        S w_v = r_v − Xᵀ D_u⁻¹ r_u,    w_u = D_u⁻¹ (r_u − X w_v)

Factoring S costs as much as factoring the whole matrix. Conjugate gradients on S, preconditioned
with D_v, cost O(rows²) a step. The eigenvalues of D_v⁻¹S are 1 − ρ², where ρ are the canonical
correlations of u and v given the data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.linalg import solve_lower

__all__ = ["solve_blocks"]


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    """(RRᵀ)⁻¹ right by two triangular solves.

    For one column that is several times faster than cholesky_solve.
    """
    return solve_lower(factor, solve_lower(factor, right), transpose=True)


def solve_blocks(
    precision: Tensor,
    linear: Tensor,
    first: Tensor,
    second: Tensor,
    start: Tensor,
    tolerance: float,
    steps: int,
) -> tuple[Tensor, int]:
    """Solve D w = r by conjugate gradients on the Schur complement S.

    The tolerance bounds √(ρᵀD_v⁻¹ρ) of each column's residual ρ on S. By Cauchy–Schwarz the error
    of the mean at any x is then at most that tolerance over √(1 − largest squared canonical
    correlation), in posterior standard deviations of an SVGP on both sets.

    Args:
        precision: D (R, R).
        linear: r (R, C).
        first: Cholesky factor of D_u (s, s).
        second: Cholesky factor of D_v (t, t).
        start: first guess of w (R, C).
        tolerance: bound of the residual's norm, see above.
        steps: iterations at most.

    Returns:
        w (R, C), and the number of steps taken; −1 where `steps` did not suffice.
    """
    s = len(first)
    cross, second_block = precision[:s, s:], precision[s:, s:]
    w_v = start[s:].clone()
    w_u = _solve(first, linear[:s] - cross @ w_v)
    residual = linear[s:] - second_block @ w_v - cross.mT @ w_u

    direction = block_direction = torch.zeros_like(w_v)  # block_direction: D_v p, by recurrence
    previous = w_v.new_ones(w_v.shape[1])
    for step in range(steps + 1):
        preconditioned = _solve(second, residual)
        square = (residual * preconditioned).sum(0)
        if float(square.max()) <= tolerance**2:
            return torch.cat([w_u, w_v]), step

        # a column without a residual, as of a channel that is nowhere but at its centre, stays
        ratio = torch.where(previous > 0, square / previous, 0.0) * (step > 0)
        # D_v p by recurrence, which saves a product with D_v
        direction, block_direction, previous = (
            preconditioned + ratio * direction,
            residual + ratio * block_direction,
            square,
        )

        moved = _solve(first, cross @ direction)
        image = block_direction - cross.mT @ moved  # S p
        curvature = (direction * image).sum(0)
        # a column that is solved already has no curvature left: it stays
        rate = torch.where(curvature > 0, square / curvature, 0.0)
        w_v, w_u, residual = w_v + rate * direction, w_u - rate * moved, residual - rate * image
    return torch.cat([w_u, w_v]), -1

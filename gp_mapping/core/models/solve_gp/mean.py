"""The mean of SOLVE-GP: one system over both blocks, of which only the two diagonal blocks are factored.

    ⎡D_u  X ⎤ ⎡w_u⎤   ⎡r_u⎤        S = D_v − Xᵀ D_u⁻¹ X,    S w_v = r_v − Xᵀ D_u⁻¹ r_u,    w_u = D_u⁻¹ (r_u − X w_v)
    ⎣Xᵀ  D_v⎦ ⎣w_v⎦ = ⎣r_v⎦

Factoring S costs what factoring the whole matrix costs; conjugate gradients on S, preconditioned with D_v, cost
O(rows²) a step. The eigenvalues of D_v⁻¹S are 1 − ρ², ρ the canonical correlations of u and v given the data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.linalg import solve_lower

__all__ = ["solve_blocks"]


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    """(RRᵀ)⁻¹ right by two triangular solves: several times faster than cholesky_solve for one column."""
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
    """w with D w = r, from a start; and how many steps that took, −1 where `steps` were not enough.

    precision: D (R, R).  linear: r (R, C).  first, second: Cholesky factors of D_u (s, s) and D_v (t, t).
    start: (R, C).  tolerance: bound of √(ρᵀD_v⁻¹ρ) of each column's residual ρ on S: the error of the mean at any x is
    at most that, over √(1 − largest ρ²), posterior standard deviations of an SVGP on both sets (Cauchy–Schwarz).
    """
    s = len(first)
    cross, second_block = precision[:s, s:], precision[s:, s:]
    v = start[s:].clone()
    u = _solve(first, linear[:s] - cross @ v)
    residual = linear[s:] - second_block @ v - cross.mT @ u
    p = block_p = torch.zeros_like(v)  # block_p: D_v p, by recurrence
    old = v.new_ones(v.shape[1])
    for step in range(steps + 1):
        z = _solve(second, residual)
        square = (residual * z).sum(0)
        if float(square.max()) <= tolerance**2:
            return torch.cat([u, v]), step
        ratio = square / old if step else torch.zeros_like(square)
        p, block_p, old = z + ratio * p, residual + ratio * block_p, square
        moved = _solve(first, cross @ p)
        image = block_p - cross.mT @ moved  # S p
        curvature = (p * image).sum(0)
        rate = torch.where(
            curvature > 0, square / curvature, 0.0
        )  # a column that is solved already stays
        v, u, residual = v + rate * p, u - rate * moved, residual - rate * image
    return torch.cat([u, v]), -1

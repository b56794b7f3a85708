"""What an inducing input is worth: how much the samples tell of that which the other inputs leave open.

Given all other inputs, the prior leaves the variance d_j of u_j, and the sites tell of that rest by the precision Λ_jj:

    d_j = 1 / (K⁻¹)_jj,    Λ = K⁻¹ G K⁻¹,    w_j = Λ_jj d_j,    I_j = ½ log₂(1 + w_j) bits

I_j is the information of the data about what only u_j can express: without that input it is lost, and nothing else is.
A candidate x has d = k − q and w = Σ_i β_i c(x_i, x)² / d, c the residual covariance k − q between x and the samples:
what the trace term ½ Σ β (k − q) of the variational bound would lose less with it (Titsias 2009; Burt et al. 2019).
Where w ≪ 1 the posterior of that direction is its prior, with the input or without.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.linalg import solve_lower

__all__ = ["bits_of", "dispensable", "ratio_of"]


def ratio_of(bits: float) -> float:
    """w of an input that tells so many bits."""
    return 4.0**bits - 1.0


def bits_of(ratio: float) -> float:
    """Bits that an input of that w tells."""
    return 0.5 * math.log2(1.0 + ratio)


def dispensable(factor: Tensor, excess: Tensor, least: float, keep: int = 1,
                down_to: int | None = None) -> tuple[Tensor, float]:
    """Take away inputs one by one, the least worth first; what the others are worth grows as they go.

    Taking j away puts its mean given the others in its place: with b = −(K⁻¹)_·j / (K⁻¹)_jj, b_j = 0,
    Λ ← Λ + bΛ_j·  + Λ_·j bᵀ + Λ_jj bbᵀ and K⁻¹ ← K⁻¹ − (K⁻¹)_·j (K⁻¹)_j· / (K⁻¹)_jj.

    Args:
        factor: L = chol K (M, M).
        excess: D − I of the inducing rows (M, M), whitened: L⁻¹GL⁻ᵀ.
        least: inputs below this w go.
        keep: so many stay in any case.
        down_to: go on beyond `least` until so many are left.

    Returns:
        Indices of those that stay, in order, and the largest w that went (0 where none did).
    """
    size = len(factor)
    inverse = solve_lower(factor.double(), torch.eye(size, dtype=torch.float64, device=factor.device))
    prior = inverse.mT @ inverse
    told = inverse.mT @ excess @ inverse
    alive = torch.ones(size, dtype=torch.bool, device=factor.device)
    left, worst = size, 0.0

    while left > keep:
        worth = (told.diagonal() / prior.diagonal()).masked_fill(~alive, math.inf)
        j = int(worth.argmin())
        value = float(worth[j])
        if value >= least and (down_to is None or left <= down_to):
            break

        column, row, own = prior[:, j].clone(), told[:, j].clone(), float(told[j, j])
        mean = column / -column[j]
        mean[j] = 0.0
        prior.addr_(column, column, alpha=-1.0 / float(column[j]))
        told.addr_(mean, row + own * mean).addr_(row, mean)
        for matrix in (prior, told):
            matrix[j, :] = matrix[:, j] = 0.0
        prior[j, j] = 1.0
        alive[j] = False
        left, worst = left - 1, max(worst, value)
    return alive.nonzero()[:, 0], worst

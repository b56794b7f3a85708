"""The lower bounds of SOLVE-GP on the log evidence, whitened (Shi et al. 2020, eqs. 8 and 9).

    (8)  Σ_i E_q[log p(y_i | f_i)] − KL[q(u) ‖ N(0, I)] − KL[q(v_⊥) ‖ N(0, I)]
    (9)  log N(y | Bᵀm_v, AᵀA + Σ) − ½ Σ_i (residual_i + b_iᵀS_v b_i)/σ_i² − KL[q(v_⊥) ‖ N(0, I)]

(9) is for a Gaussian likelihood, with the best q(u). a_i and b_i are the first and second block of
a(x_i), and residual_i = k_ii − |a_i|² − |b_i|². Without a second block both are the bounds of SVGP:
Hensman et al. (2015) and Titsias (2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.base import Likelihood
from gp_mapping.core.linalg import cholesky, solve_lower

__all__ = ["Blocks", "bound", "collapsed_bound", "divergence", "optimal_blocks"]


@dataclass(frozen=True)
class Blocks:
    """q(u) q(v_⊥) = N(m_u, S_u) N(m_v, S_v), with S common to all channels.

    Attributes:
        mean: m_u above m_v (R, C).
        first: lower Cholesky factor of S_u⁻¹ (s, s).
        second: lower Cholesky factor of S_v⁻¹ (R − s, R − s).
    """

    mean: Tensor
    first: Tensor
    second: Tensor

    def marginals(self, whitened: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (N, C) and variance (N,) of f.

        Args:
            whitened: a(x) (R, N).
            residual: k − q (N,).
        """
        s = len(self.first)
        solved = solve_lower(self.first, whitened[:s]), solve_lower(self.second, whitened[s:])
        return whitened.mT @ self.mean, residual + sum(part.square().sum(0) for part in solved)


def divergence(mean: Tensor, factor: Tensor) -> Tensor:
    """KL[N(mean, (RRᵀ)⁻¹) ‖ N(0, I)], summed over channels.

    Args:
        mean: (s, C).
        factor: R (s, s).
    """
    s, channels = mean.shape
    inverse = solve_lower(factor, torch.eye(s, dtype=factor.dtype, device=factor.device))
    logarithm = 2.0 * factor.diagonal().log().sum()  # −log|S|
    return 0.5 * (channels * (inverse.square().sum() - s + logarithm) + mean.square().sum())


def bound(
    q: Blocks,
    likelihood: Likelihood,
    whitened: Tensor,
    residual: Tensor,
    y: Tensor,
    noise: Tensor,
    weight: Tensor | float = 1.0,
    fraction: float = 1.0,
) -> Tensor:
    """Eq. 8, summed over channels.

    Args:
        q: of the inducing variables.
        likelihood: of the observations.
        whitened: a(x) (R, N).
        residual: k − q (N,).
        y: (N, C).
        noise: noise variance (N,).
        weight: of each sample's log likelihood (N,).
        fraction: N over the number of all samples, where these are some of them.
    """
    mean, variance = q.marginals(whitened, residual)
    fit = (weight * likelihood.expected_log_prob(y, mean, variance, noise)).sum() / fraction

    s = len(q.first)
    return fit - divergence(q.mean[:s], q.first) - divergence(q.mean[s:], q.second)


def collapsed_bound(
    mean: Tensor, factor: Tensor, whitened: Tensor, residual: Tensor, y: Tensor, noise: Tensor
) -> Tensor:
    """Eq. 9, a function of q(v_⊥) alone, summed over channels.

    Args:
        mean: m_v (t, C).
        factor: of S_v⁻¹ (t, t).
        whitened: a(x) (R, N); its last t rows are b.
        residual: k − q (N,).
        y: (N, C).
        noise: noise variance (N,).
    """
    s = len(whitened) - len(mean)
    a, b = whitened[:s], whitened[s:]

    error = y - b.mT @ mean  # (N, C)
    root, _ = cholesky(torch.eye(s, dtype=a.dtype, device=a.device) + (a / noise) @ a.mT)
    fitted = solve_lower(root, a @ (error / noise[:, None]))
    square = (error.square() / noise[:, None]).sum() - fitted.square().sum()

    logarithm = torch.log(2.0 * math.pi * noise).sum() + 2.0 * root.diagonal().log().sum()
    trace = ((residual + solve_lower(factor, b).square().sum(0)) / noise).sum()
    return -0.5 * (square + y.shape[1] * (logarithm + trace)) - divergence(mean, factor)


def optimal_blocks(whitened: Tensor, split: int, y: Tensor, noise: Tensor) -> Blocks:
    """The q that maximises (8) for a Gaussian likelihood.

    The precisions are D_u and D_v, the diagonal blocks of D; the means are from all of D.

    Args:
        whitened: a(x) (R, N).
        split: rows of u.
        y: (N, C).
        noise: noise variance (N,).
    """
    weighted = whitened / noise
    precision = (
        torch.eye(len(whitened), dtype=whitened.dtype, device=whitened.device)
        + weighted @ whitened.mT
    )

    mean = torch.cholesky_solve(weighted @ y, cholesky(precision)[0])
    return Blocks(
        mean, cholesky(precision[:split, :split])[0], cholesky(precision[split:, split:])[0]
    )

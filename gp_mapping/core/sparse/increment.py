"""What a few samples have changed of a map's answers, without asking the whole map again.

The precision of the features grew from D₀, bordered with the identity where inducing inputs came, to D₁ = R₁R₁ᵀ. A few
samples change it by a matrix of small rank, Δ = D₁ − D₀ = V S Vᵀ, V (R, r) orthonormal, S diagonal, and by Woodbury

    variance₁(x) − variance₀(x) = a(x)ᵀ (D₁⁻¹ − D₀⁻¹) a(x) = −p(x)ᵀ (S⁻¹ − Vᵀ D₁⁻¹ V)⁻¹ p(x),   p(x) = Vᵀ D₁⁻¹ a(x)
    mean₁(x) − mean₀(x) = a(x)ᵀ (w₁ − w₀)

With a(x) = L⁻¹k(z, x), p(x) = (L⁻ᵀ D₁⁻¹ V)ᵀ k(z, x): a place costs M kernel values and M r products, where the map
itself takes M² for two triangular solves. V is found by a randomised range finder (Halko, Martinsson and Tropp 2011,
algorithm 4.1), which also says how much of Δ it has missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gp_mapping.core.linalg import solve_lower

if TYPE_CHECKING:
    from gp_mapping.core.sparse.posterior import Posterior

__all__ = ["Increment", "increment_between"]

_RANKS = (
    8,
    48,
)  # directions that are looked for; of more a map has changed too much to be cheaper than asked again
_PROBES = 4  # directions beside them, by which is seen what was missed
_MISSED = (
    1e-9  # of the prior's variance: D ≥ I, so what is missed of Δ is an error of at most as much
)
_FEW = 96  # rows of a(x) up to which a map is as soon asked itself


@dataclass(frozen=True)
class Increment:
    """Mean and variance now, less those of a moment before.

    now: the posterior of now.  rows: [V, W]ᵀ for a(x) = [features; k(z, x)], (R, r + C), W = w₁ − w₀.
    middle: (S⁻¹ − VᵀD₁⁻¹V)⁻¹ (r, r).
    """

    now: Posterior
    rows: Tensor
    middle: Tensor

    def inner(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of the mean (N, C) and the variance (N,) at standardised x (N, D)."""
        theta, rank = self.now.theta, len(self.middle)
        features = theta.feature_rows(x, None)
        told = theta.kernel()(x, self.now.z) @ self.rows[len(features) :]
        told += features.mT @ self.rows[: len(features)]
        p = told[:, :rank]
        return told[:, rank:], -((p @ self.middle) * p).sum(1)


def increment_between(before: Posterior, now: Posterior) -> Increment | None:
    """What has changed from one posterior of a map to a later one; None where it is not cheaper than asking again."""
    m, size = len(before.z), len(now.R)
    grown = len(now.z) - m
    if before.theta != now.theta or grown < 0 or size <= _FEW or now.L.dtype != torch.float64:
        return None
    same = (
        (before.z, now.z[:m]),
        (before.L, now.L[:m, :m]),
        (before.scaling.origin, now.scaling.origin),
        (before.scaling.centre, now.scaling.centre),
    )
    if before.scaling.scale != now.scaling.scale or not all(torch.equal(*pair) for pair in same):
        return None

    def wider(of: Tensor) -> Tensor:
        return torch.cat([of, of.new_zeros((grown, of.shape[1]))])

    def product(right: Tensor) -> Tensor:
        """Δ times (R, n)."""
        old = size - grown
        return now.R @ (now.R.mT @ right) - torch.cat(
            [before.R @ (before.R.mT @ right[:old]), right[old:]]
        )

    largest = float(now.R.square().sum(1).max())  # of D₁: its diagonal
    rounding = 64.0 * torch.finfo(torch.float64).eps * largest
    for rank in _RANKS:
        probes = torch.randn(
            (size, rank + _PROBES), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        )
        told = product(probes.to(now.R.device))
        base = torch.linalg.qr(told[:, :rank]).Q
        missed = told[:, rank:] - base @ (base.mT @ told[:, rank:])
        if float(missed.norm()) <= max(_MISSED, rounding):
            break
    else:
        return None

    small = base.mT @ product(base)
    values, turn = torch.linalg.eigh(0.5 * (small + small.mT))
    told_apart = values.abs() > max(_MISSED * 1e-3, rounding)
    values, span = values[told_apart], base @ turn[:, told_apart]
    solved = solve_lower(now.R, solve_lower(now.R, span), transpose=True)  # D₁⁻¹V
    middle = torch.linalg.inv(torch.diag(1.0 / values) - span.mT @ solved)
    rows = torch.cat([solved, now.weights - wider(before.weights)], 1)
    features = size - len(now.z)
    rows = torch.cat([rows[:features], solve_lower(now.L, rows[features:], transpose=True)])
    return Increment(now, rows, 0.5 * (middle + middle.mT))

"""What one observation says of the field at its place, as a Gaussian site (λ, β)."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

__all__ = ["Gaussian", "Likelihood"]


class Likelihood(Protocol):
    """α = E_q[∂ log p(y|f)], β = E_q[−∂² log p(y|f)], λ = α + βf (Chang et al. 2023, eqs. 9–10, in the λ form)."""

    conjugate: bool

    def sites(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """λ (N, C) and β (N,) at q(f) = N(mean (N, C), variance (N,)); noise: (N,) the sample's own variance."""


class Gaussian:
    """p(y|f) = N(f, σ_i²) with a variance per sample: β = 1/σ², α = (y − f)/σ², so λ = y/σ² whatever f is."""

    conjugate = True

    def sites(self, y, mean, variance, noise):
        beta = 1.0 / noise
        return beta[:, None] * y, beta

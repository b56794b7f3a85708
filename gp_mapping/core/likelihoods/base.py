"""What one observation says of the field at its place, as a Gaussian site (λ, β).

    q(f) = Π_c N(m_c, v):   α_c = E_q[∂_c log p(y|f)],   β = mean_c E_q[−∂²_cc log p(y|f)],   λ = α + βm

(Chang et al. 2023, eqs. 9–10, in the λ form.) One β serves all channels of a sample: D is shared, so the family is
q(u) = Π_c N(m_c, V) with one V. Its natural-gradient step has the channels' mean for β, since ∂E/∂V sums over them:
the fixed point is the variational optimum of that family, not a bound. With one channel nothing is lost.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Gaussian", "Likelihood", "NonGaussian"]


class Likelihood(Protocol):
    """What a map needs of p(y|f); y, mean (N, C), variance, noise (N,); noise: the sample's own variance.

    name: as the setting `likelihood`.  conjugate: sites do not depend on q.  metric: y is the field itself in SI,
    scaled and centred; else y are classes or counts, and f is a number without unit.  steps: natural-gradient steps
    for each batch.  refreshed: how many remembered samples take part in them.
    """

    name: str
    conjugate: bool
    metric: bool
    steps: int
    refreshed: int

    def sites(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """λ (N, C) and β (N,), β ≥ 0, at q(f) = N(mean, variance)."""

    def start(self, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """λ (N, C) and β (N,) before the first step."""

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """E_q[log p(y|f)]: (N,), summed over channels."""

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """log ∫ p(y|f) q(f) df: (N,), summed over independent channels."""

    def observable(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance under q of what f stands for (the field, a probability, a rate): (N, C) each.

        variance: (N, C) here, of the latent channels.
        """

    def information(self, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """Expected β of a measurement not made yet: (N,)."""

    def weight(self, count: Tensor) -> Tensor:
        """What the log likelihood of an average of `count` measurements counts: (N,)."""

    @property
    def label(self) -> str:
        """Name and what was chosen of it: two maps with one label may be merged."""

    def noise_variance(self, variance: float) -> float:
        """Variance that a new measurement adds to f, given s_p² and what is beside it."""

    def encode(self, y: Tensor) -> Tensor:
        """y as `sites` takes it: (N, C). Raises ValueError where a value cannot be."""


class Gaussian:
    """p(y|f) = N(f, σ_i²) with a variance per sample: β = 1/σ², α = (y − f)/σ², so λ = y/σ² whatever f is."""

    name, conjugate, metric, steps, refreshed = "gaussian", True, True, 1, 0

    def sites(self, y, mean, variance, noise):
        beta = 1.0 / noise
        return beta[:, None] * y, beta

    def start(self, y, noise):
        return torch.zeros_like(y), torch.zeros_like(noise)

    def expected_log_prob(self, y, mean, variance, noise):
        square = (y - mean).square() + variance[:, None]
        return -0.5 * (square / noise[:, None] + torch.log(2 * math.pi * noise)[:, None]).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        total = (variance + noise)[:, None]
        return -0.5 * ((y - mean).square() / total + torch.log(2 * math.pi * total)).sum(1)

    def observable(self, mean, variance):
        return mean, variance

    def information(self, mean, variance, noise):
        return 1.0 / noise

    def weight(self, count):
        return torch.ones_like(count)

    @property
    def label(self):
        return self.name

    def noise_variance(self, variance):
        return variance

    def encode(self, y):
        return y


class NonGaussian:
    """Base of the others: λ and β from the expected derivatives, which a subclass gives per channel."""

    conjugate, metric, steps, refreshed = False, False, 4, 200

    def derivatives(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """α = E_q[∂ log p(y|f)] and −E_q[∂² log p(y|f)], both (N, C)."""
        raise TypeError(f"{type(self).__name__} does not define derivatives")

    def step(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """α (N, C), β (N,), and the rate ρ (N,) at which a step towards them is safe.

        −E[∂²] as a whole is at most twice its largest diagonal element where channels couple (Gershgorin, for a
        softmax); with one β for all, a full step would overshoot by the ratio of the two.
        """
        alpha, each = self.derivatives(y, mean, variance, noise)
        each = each.clamp_min(0.0)  # not below, but for rounding
        beta = each.mean(1)
        if each.shape[1] == 1:
            return alpha, beta, torch.ones_like(beta)
        return alpha, beta, (beta / (2.0 * each.max(1).values).clamp_min(1e-300)).clamp_max(1.0)

    def sites(self, y, mean, variance, noise):
        alpha, beta, _ = self.step(y, mean, variance, noise)
        return alpha + beta[:, None] * mean, beta

    def start(self, y, noise):
        return torch.zeros_like(y), torch.zeros_like(noise)

    def weight(self, count):
        return torch.ones_like(count)

    @property
    def label(self):
        return f"{self.name}{sorted(vars(self).items())}"

    def noise_variance(self, variance):
        """1: of no unit. For a probit it is the ε of y = 1[f + ε > 0]."""
        return 1.0

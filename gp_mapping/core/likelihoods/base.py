"""The likelihood interface: each observation becomes a Gaussian site (λ, β) at its place.

For q(f) = Π_c N(m_c, v),

    α_c = E_q[∂_c log p(y|f)],   β = mean_c E_q[−∂²_cc log p(y|f)],   λ = α + βm

(Chang et al. 2023, eqs. 9–10, in the λ form.) One β serves all channels of a sample: D is shared,
so the family is q(u) = Π_c N(m_c, V) with one V. Its natural-gradient step has the channels' mean
for β, since ∂E/∂V sums over them: the fixed point is the variational optimum of that family, not a
bound. With one channel nothing is lost.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from gp_mapping.core.scaling import Scaling

__all__ = ["Gaussian", "Likelihood", "NonGaussian"]


class Likelihood(Protocol):
    """What a map needs of p(y|f).

    Arguments of all methods have these shapes: y and mean (N, C), variance (N,) of each channel,
    noise (N,), the noise variance of each sample.

    Attributes:
        name: as the setting `likelihood`.
        conjugate: sites do not depend on q.
        metric: y is the field itself in SI, scaled and centred; else y are classes or counts, and f
            is a number without unit.
        steps: natural-gradient steps for each batch.
        refreshed: how many remembered samples take part in them.
        kept: κ, least share of a sample's β that a step keeps; 0: all of it may go at once.
    """

    name: str
    conjugate: bool
    metric: bool
    steps: int
    refreshed: int
    kept: float

    def sites(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sites at q(f) = N(mean, variance): λ = α + βm and β ≥ 0.

        Args:
            y: values as of `encode`, (N, C).
            mean: m of q at the samples, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of each sample, (N,).

        Returns:
            λ (N, C) and β (N,).
        """

    def start(self, y: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sites before the first step.

        Args:
            y: values as of `encode`, (N, C).
            noise: noise variance of each sample, (N,).

        Returns:
            λ (N, C) and β (N,).
        """

    def expected_log_prob(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """Expected log likelihood E_q[log p(y|f)], (N,), summed over channels.

        Args:
            y: values as of `encode`, (N, C).
            mean: m of q, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of each sample, (N,).
        """

    def log_predictive(self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """Log predictive density log ∫ p(y|f) q(f) df, (N,), summed over independent channels.

        Args:
            y: values as of `encode`, (N, C).
            mean: m of q, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of each sample, (N,).
        """

    def observable(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance under q of what f stands for: the field, a probability, a rate.

        Args:
            mean: of the latent channels, (N, C).
            variance: of the latent channels, here (N, C).

        Returns:
            (N, C) each.
        """

    def information(self, mean: Tensor, variance: Tensor, noise: Tensor) -> Tensor:
        """Expected β of a measurement that is not made yet, (N,).

        Args:
            mean: m of q, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of the measurement, (N,).
        """

    def weight(self, count: Tensor) -> Tensor:
        """Weight of the log likelihood of an average, (N,).

        Args:
            count: how many measurements each average is of, (N,).
        """

    @property
    def label(self) -> str:
        """Name and parameters as one string; two maps with equal labels may be merged."""

    def noise_variance(self, variance: float) -> float:
        """Variance that a new measurement adds to f.

        Args:
            variance: noise variance of a measurement, s_p² and what is added to it.
        """

    def at(self, scaling: Scaling) -> Likelihood:
        """The likelihood of a map that is scaled so; itself, unless it holds numbers in SI.

        Args:
            scaling: from SI to inner units.
        """

    def encode(self, y: Tensor) -> Tensor:
        """Values as `sites` takes them, (N, C).

        Args:
            y: values as they are measured, (N, C); labels of classes, (N, 1).

        Raises:
            ValueError: a value cannot occur.
        """


class Gaussian:
    """Gaussian noise p(y|f) = N(f, σ_i²) with a variance per sample.

    β = 1/σ² and α = (y − f)/σ², so λ = y/σ² whatever f is.
    """

    name, conjugate, metric, steps, refreshed, kept = "gaussian", True, True, 1, 0, 0.0

    def sites(self, y, mean, variance, noise):
        """As Likelihood.sites: β = 1/σ², λ = y/σ²."""
        beta = 1.0 / noise
        return beta[:, None] * y, beta

    def start(self, y, noise):
        """As Likelihood.start: 0, the prior."""
        return torch.zeros_like(y), torch.zeros_like(noise)

    def expected_log_prob(self, y, mean, variance, noise):
        """As Likelihood.expected_log_prob: −½ Σ_c (((y − m)² + v)/σ² + log 2πσ²)."""
        square = (y - mean).square() + variance[:, None]
        return -0.5 * (square / noise[:, None] + torch.log(2 * math.pi * noise)[:, None]).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        """As Likelihood.log_predictive: Σ_c log N(y | m, v + σ²)."""
        total = (variance + noise)[:, None]
        return -0.5 * ((y - mean).square() / total + torch.log(2 * math.pi * total)).sum(1)

    def observable(self, mean, variance):
        """As Likelihood.observable: the field itself."""
        return mean, variance

    def information(self, mean, variance, noise):
        """As Likelihood.information: 1/σ²."""
        return 1.0 / noise

    def weight(self, count):
        """As Likelihood.weight: 1, since an average's noise variance says how many it is of."""
        return torch.ones_like(count)

    @property
    def label(self):
        """The name; there are no parameters."""
        return self.name

    def noise_variance(self, variance):
        """As Likelihood.noise_variance: all of it."""
        return variance

    def at(self, scaling):
        """As Likelihood.at: itself."""
        return self

    def encode(self, y):
        """As Likelihood.encode: every value can occur."""
        return y


class NonGaussian:
    """Base of non-Gaussian likelihoods; a subclass defines the expected derivatives per channel."""

    conjugate, metric, steps, refreshed, kept = False, False, 4, 200, 0.25

    def derivatives(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Expected derivatives α_c = E_q[∂_c log p(y|f)] and −E_q[∂²_cc log p(y|f)].

        Args:
            y: values as of `encode`, (N, C).
            mean: m of q, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of each sample, (N,).

        Returns:
            (N, C) each.

        Raises:
            TypeError: the likelihood does not define them.
        """
        raise TypeError(f"{type(self).__name__} does not define derivatives")

    def step(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One natural-gradient step: α, β, and the rate up to which it is safe.

        Where channels couple, the matrix −E[∂²] is at most twice its largest diagonal element
        (Gershgorin, for a softmax). With one β for all channels, a full step would overshoot by the
        ratio of the two.

        Args:
            y: values as of `encode`, (N, C).
            mean: m of q, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of each sample, (N,).

        Returns:
            α (N, C), β (N,) and the rate ρ (N,), in (0, 1].
        """
        alpha, curvature = self.derivatives(y, mean, variance, noise)
        curvature = curvature.clamp_min(0.0)  # negative by rounding only
        beta = curvature.mean(1)
        if curvature.shape[1] == 1:
            return alpha, beta, torch.ones_like(beta)
        return (
            alpha,
            beta,
            (beta / (2.0 * curvature.max(1).values).clamp_min(1e-300)).clamp_max(1.0),
        )

    def sites(self, y, mean, variance, noise):
        """As Likelihood.sites, of a full step."""
        alpha, beta, _ = self.step(y, mean, variance, noise)
        return alpha + beta[:, None] * mean, beta

    def start(self, y, noise):
        """As Likelihood.start: 0, the prior."""
        return torch.zeros_like(y), torch.zeros_like(noise)

    def weight(self, count):
        """As Likelihood.weight: 1."""
        return torch.ones_like(count)

    def at(self, scaling):
        """As Likelihood.at: itself."""
        return self

    @property
    def label(self):
        """Name and all attributes, in order."""
        return f"{self.name}{sorted(vars(self).items())}"

    def noise_variance(self, variance):
        """Variance 1, without unit; for a probit it is that of ε in y = 1[f + ε > 0]."""
        return 1.0

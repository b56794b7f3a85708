"""Student-t likelihood, in which a gross error has little effect on the field."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.base import NonGaussian
from gp_mapping.core.likelihoods.quadrature import faddeeva, nodes

__all__ = ["StudentT"]

_FARTHEST = 2.0 * math.log(1e9)  # −log w of a sample that is 1e9 σ away
_ROWS = 256  # samples whose integrals are computed together: time and memory alone


class StudentT(NonGaussian):
    """Student-t noise, p(y|f) = t_ν((y − f)/σ_i)/σ_i, σ_i² being the sample's noise variance.

    With w = (ν + 1)/(νσ² + r²) and r = y − f,

        ∂ = w r,   −∂² = w − 2w² r²/(ν + 1)

    Their expectations are closed forms of the Faddeeva function (Voigt profile). −∂² is negative
    beyond r² = νσ²: β is kept at FLOOR E[w] or more, so that D stays above I. Where E[−∂²] is above
    that, the fixed point is a variational optimum (there may be several). The other samples, gross
    errors most of all, keep a little precision that the optimum would not give them. E[w] bounds
    the curvature: a step of rate β/E[w] always climbs, one of up to twice that converges.

    Attributes:
        degrees: degrees of freedom ν.
    """

    name, metric, steps, kept = "student_t", True, 5, 0.0
    FLOOR = 0.05

    def __init__(self, degrees_of_freedom: float = 4.0):
        self.degrees = degrees_of_freedom

    def encode(self, y):
        """As Likelihood.encode: every value can occur."""
        return y

    def moments(
        self, y: Tensor, mean: Tensor, variance: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Expectations E[w r], E[−∂²] and E[w], (N, C) each, for r ~ N(y − m, v).

        With a = √ν σ, s = √(2v), z = (y − m + ia)/s and the Faddeeva function w(z),

            E[r/(r² + a²)] = (√π/s) Im w(z),   E[1/(r² + a²)] = (√π/(a s)) Re w(z)

        and E[−∂²] is −d/dm of the first, times ν + 1.

        Args:
            y: (N, C).
            mean: m, (N, C).
            variance: v, (N,).
            noise: σ², (N,).
        """
        nu = self.degrees
        v = variance.clamp_min(1e-12 * noise)[:, None]
        a, s = (nu * noise).sqrt()[:, None], (2.0 * v).sqrt()
        z = torch.complex((y - mean) / s, (a / s).expand_as(mean))

        w = faddeeva(z)
        pull = (nu + 1) * math.sqrt(math.pi) / s * w.imag
        weight = (nu + 1) * math.sqrt(math.pi) / (a * s) * w.real
        slope = -2.0 * z * w + 2j / math.sqrt(math.pi)  # w'(z)
        curvature = (nu + 1) * math.sqrt(math.pi) / s.square() * slope.imag  # −dα/dm = dα/dr

        # z large: w' is a difference of near-equals; there the values at the mean are as good
        far = z.abs() > 1e3
        if bool(far.any()):
            r = y - mean
            point = (nu + 1) / (a.square() + r.square())
            pull = torch.where(far, point * r, pull)
            weight = torch.where(far, point, weight)
            curvature = torch.where(
                far, point - 2 * point.square() * r.square() / (nu + 1), curvature
            )
        return pull, curvature, weight

    def derivatives(self, y, mean, variance, noise):
        """As NonGaussian.derivatives: E[w r] and E[−∂²]."""
        return self.moments(y, mean, variance, noise)[:2]

    def step(self, y, mean, variance, noise):
        """As NonGaussian.step: β = max(E[−∂²], FLOOR E[w]), ρ = min(1.5 β/E[w], 1)."""
        alpha, beta, weight = self.moments(y, mean, variance, noise)
        weight = weight.mean(1)
        beta = torch.maximum(beta.mean(1), self.FLOOR * weight)
        # between the rates that climb always and that converge (class docstring)
        return alpha, beta, (1.5 * beta / weight).clamp_max(1.0)

    def log_density(self, residual: Tensor, noise: Tensor) -> Tensor:
        """Log density at a residual.

            log p = log Γ((ν+1)/2) − log Γ(ν/2) − ½ log(νπσ²) − ½(ν+1) log(1 + r²/(νσ²))

        Args:
            residual: r = y − f.
            noise: σ², of the shape of r.

        Returns:
            A tensor of the shape of r.
        """
        nu = self.degrees
        constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
        return (
            constant
            - 0.5 * noise.log()
            - 0.5 * (nu + 1) * torch.log1p(residual.square() / (nu * noise))
        )

    def _at_nodes(self, y, mean, variance, noise):
        """Log density at quadrature nodes of f, (N, C, n), and the nodes' weights (n,)."""
        ratio = variance / (self.degrees * noise)
        epsilon, weights = nodes(ratio, 0.6)
        f = mean[..., None] + variance.clamp_min(0.0).sqrt()[:, None, None] * epsilon
        return self.log_density(y[..., None] - f, noise[:, None, None].expand_as(f)), weights

    def expected_log_prob(self, y, mean, variance, noise):
        """As Likelihood.expected_log_prob, by quadrature over f."""
        log_p, weights = self._at_nodes(y, mean, variance, noise)
        return (log_p @ weights).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        """As Likelihood.log_predictive, however far y is.

        It is a mixture over the scale, integrated by the trapezoid rule in log w:

            ∫ N(y | m, v + σ²/w) Gamma(w | ν/2, ν/2) dw
        """
        nu = self.degrees
        width = min(1.0, math.sqrt(2.0 / nu))  # of the integrand in log w
        low, high = -(80.0 + _FARTHEST) / nu * 2.0 - _FARTHEST, 6.0 * width + 4.0 / nu
        w_log = torch.arange(low, high, 0.2 * width, dtype=mean.dtype, device=mean.device)
        gamma = 0.5 * nu * (math.log(0.5 * nu) + w_log - w_log.exp()) - math.lgamma(0.5 * nu)

        rows = []
        for square, v, own in zip(
            (y - mean).square().split(_ROWS), variance.split(_ROWS), noise.split(_ROWS)
        ):
            total = v[:, None, None] + own[:, None, None] * torch.exp(-w_log)
            log_p = -0.5 * (square[..., None] / total + total.log() + math.log(2 * math.pi))
            rows.append(torch.logsumexp(log_p + gamma, -1) + math.log(0.2 * width))
        return torch.cat(rows).sum(1) if rows else y.sum(1)

    def noise_score(self, y, mean, variance, noise):
        """Slope of the noise, −∂E[log p]/∂log σ² = ½ − ½(ν + 1) E[r²/(νσ² + r²)], (N, C).

        As `moments` for the arguments.
        """
        weight = self.moments(y, mean, variance, noise)[2]
        return 0.5 - 0.5 * ((self.degrees + 1) - self.degrees * noise[:, None] * weight)

    @property
    def noise_information(self):
        """Fisher information about log σ² of one measurement, ν/(2(ν + 3))."""
        return self.degrees / (2 * (self.degrees + 3))

    def observable(self, mean, variance):
        """As Likelihood.observable: the field itself."""
        return mean, variance

    def information(self, mean, variance, noise):
        """As Likelihood.information: (ν + 1)/((ν + 3)σ²), the Fisher information about f."""
        return (self.degrees + 1) / ((self.degrees + 3) * noise)

    def noise_variance(self, variance):
        """Variance νσ²/(ν − 2) of a new measurement."""
        return variance * self.degrees / (self.degrees - 2)

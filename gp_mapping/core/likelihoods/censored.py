"""Gaussian noise of a sensor with a range: beyond its limits it tells the limit (Tobit model).

y = f + ε, held within [a, b],   ε ~ N(0, σ²)

p(y | f) = N(y | f, σ²)          a < y < b
         = Φ((a − f)/σ)          y = a: the field and its noise are at or below it
         = Φ((f − b)/σ)          y = b
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.base import NonGaussian
from gp_mapping.core.likelihoods.quadrature import nodes
from gp_mapping.core.scaling import Scaling

__all__ = ["Censored"]

_LOG_2PI = math.log(2 * math.pi)
_HALF = 0.5  # of a natural-gradient step
_FAR = -100.0  # t from which on down the first terms of a series are better than differences
_ROUNDING = 1e-9  # of a limit: numbers that reach it up to rounding are at it


def _inverse_mills(t: Tensor) -> tuple[Tensor, Tensor]:
    """n(t) = φ(t)/Φ(t) and n (t + n), of any shape.

    Where t is far below 0 both are small differences of large numbers. There they are

        −t − 1/t + 2/t³,   1 − 1/t² + 6/t⁴
    """
    n = torch.exp(-0.5 * t.square() - 0.5 * _LOG_2PI - torch.special.log_ndtr(t))
    bent, far = n * (t + n), t < _FAR
    inverse = 1.0 / torch.where(far, t, _FAR)
    square = inverse.square()
    n = torch.where(far, -t - inverse * (1.0 - 2.0 * square), n)
    return n, torch.where(far, 1.0 - square * (1.0 - 6.0 * square), bent)


class Censored(NonGaussian):
    """Gaussian noise within limits, outside of which the sensor tells the limit.

    With s = 1 at the lower limit L and −1 at the upper one, t = s(L − f)/σ and n(t) = φ(t)/Φ(t):

        ∂ = −s n/σ,   −∂² = n (t + n)/σ²,   ∂ log p/∂ log σ² = −t n/2

    Several measurements at a limit say more than one: their row is of one measurement, and weighs
    as many.

    Attributes:
        low: lower limit, SI; −∞: none.
        high: upper limit, SI; ∞: none.
        inner: both, as `at` has them.

    Args:
        low: lower limit, SI; −∞: none.
        high: upper limit, SI; ∞: none.

    Reference:
        J. Tobin, Estimation of relationships for limited dependent variables, Econometrica 26,
        1958.
    """

    name, metric, kept = "censored", True, 0.25

    def __init__(self, low: float, high: float):
        self.low, self.high = low, high
        self.inner = (low, high)

    @property
    def label(self):
        """Name and limits, SI."""
        return f"{self.name}({self.low!r}, {self.high!r})"

    def at(self, scaling: Scaling) -> Censored:
        """As Likelihood.at: limits in inner units."""
        centre = float(scaling.here.centre[0])
        new = copy.copy(self)
        new.inner = ((self.low - centre) / scaling.scale, (self.high - centre) / scaling.scale)
        return new

    def encode(self, y):
        """As Likelihood.encode: every value can occur."""
        return y

    def sides(self, y: Tensor) -> Tensor:
        """1 at the lower limit, −1 at the upper one, 0 between them: of the shape of y."""
        low, high = self.inner
        below = y <= low + _ROUNDING * abs(low) if math.isfinite(low) else torch.zeros_like(y) > 0
        above = (
            y >= high - _ROUNDING * abs(high) if math.isfinite(high) else torch.zeros_like(y) > 0
        )
        return below.to(y) - above.to(y)

    def _tails(self, y, mean, variance, noise, side):
        """E[n(t)], E[n (t + n)] and E[t n] at a limit, (N, C) each; 0 between the limits."""
        sd = noise.sqrt()[:, None]
        ratio = variance.clamp_min(0.0) / noise
        epsilon, weights = nodes(ratio, 1.0)
        t = side[..., None] * (((y - mean) / sd)[..., None] - ratio.sqrt()[:, None, None] * epsilon)
        n, bent = _inverse_mills(t)
        return n @ weights, bent @ weights, (t * n) @ weights

    def derivatives(self, y, mean, variance, noise):
        """As NonGaussian.derivatives, by quadrature at the limits."""
        side = self.sides(y)
        pull, bent, _ = self._tails(y, mean, variance, noise, side)
        precision = (1.0 / noise)[:, None]
        free = side == 0.0
        alpha = torch.where(free, (y - mean) * precision, -side * pull * precision.sqrt())
        return alpha, torch.where(free, precision.expand_as(y), bent * precision)

    def step(self, y, mean, variance, noise):
        """As NonGaussian.step; half a step at a limit.

        The curvature there leaps from 1/σ² to 0, and full steps may go to and fro between both.
        """
        alpha, curvature = self.derivatives(y, mean, variance, noise)
        rate = torch.where(self.sides(y) == 0.0, 1.0, _HALF).to(alpha)
        return alpha, curvature.clamp_min(0.0).mean(1), rate.amin(1)

    def expected_log_prob(self, y, mean, variance, noise):
        """As Likelihood.expected_log_prob, by quadrature at the limits."""
        side = self.sides(y)
        ratio = variance.clamp_min(0.0) / noise
        epsilon, weights = nodes(ratio, 1.0)
        t = side[..., None] * (
            ((y - mean) / noise.sqrt()[:, None])[..., None] - ratio.sqrt()[:, None, None] * epsilon
        )
        tail = torch.special.log_ndtr(t) @ weights
        square = (y - mean).square() + variance[:, None]
        inside = -0.5 * (square / noise[:, None] + torch.log(2 * math.pi * noise)[:, None])
        return torch.where(side == 0.0, inside, tail).sum(1)

    def log_predictive(self, y, mean, variance, noise):
        """As Likelihood.log_predictive: at a limit log Φ(s(L − m)/√(v + σ²)), exact."""
        side, total = self.sides(y), (variance + noise)[:, None]
        inside = -0.5 * ((y - mean).square() / total + torch.log(2 * math.pi * total))
        tail = torch.special.log_ndtr(side * (y - mean) / total.sqrt())
        return torch.where(side == 0.0, inside, tail).sum(1)

    def noise_score(self, y, mean, variance, noise):
        """Slope of the noise, ∂E[log p]/∂log σ², (N, C), with its sign turned.

        ½ − ½ E[r²]/σ² between the limits, ½ E[t n] at one. As `derivatives` for the arguments.

        Args:
            y: values, (N, C).
            mean: m of q, (N, C).
            variance: v of q, of each channel, (N,).
            noise: noise variance of each sample, (N,).
        """
        side = self.sides(y)
        _, _, slope = self._tails(y, mean, variance, noise, side)
        square = (y - mean).square() + variance[:, None]
        return torch.where(side == 0.0, 0.5 - 0.5 * square / noise[:, None], 0.5 * slope)

    @property
    def noise_information(self) -> float:
        """Fisher information about log σ² of a measurement between the limits."""
        return 0.5

    def observable(self, mean, variance):
        """As Likelihood.observable: the field itself, also beyond the limits."""
        return mean, variance

    def information(self, mean, variance, noise):
        """As Likelihood.information: 1/σ² between the limits, and what a limit is likely to say."""
        total = (variance + noise).sqrt()[:, None]
        out, inside = torch.zeros_like(mean), torch.ones_like(mean)
        for side, limit in zip((1.0, -1.0), self.inner):
            if math.isfinite(limit):
                at = torch.full_like(mean, limit)
                share = torch.special.ndtr(side * (at - mean) / total)
                bent = self._tails(at, mean, variance, noise, torch.full_like(mean, side))[1]
                out, inside = out + share * bent, inside - share
        return ((inside.clamp_min(0.0) + out) / noise[:, None]).mean(1)

    def noise_variance(self, variance):
        """As Likelihood.noise_variance: all of it."""
        return variance

"""The spread s_b of the passes' constants, from the evidence of all passes.

With the constants' likelihood exp(vᵀb − ½ bᵀNb), the field integrated out, and b ~ N(0, s_b² I),

    log p(y | s_b) = −½ Σ_k log(1 + s_b² λ_k) + ½ Σ_k s_b² v_k²/(1 + s_b² λ_k)
    N = Σ λ_k q_k q_kᵀ,   v_k = q_kᵀv

It is a function of one number, so it is evaluated on a grid over the whole range, and no start can
be so far off that the slope is lost. From a posterior whose constants are integrated out
(passes.py), G D⁻¹Gᵀ and G D⁻¹r give N and v without another factor.

The constants of a pass that drifts are those of its segments, one after the other: an
autoregressive process, cov(b_i, b_j) = s_b² ρ^|i − j|. Of ρ there are a few values, and the one of
the greatest evidence is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SEGMENT", "BiasEvidence", "BiasSpread", "bias_correlation", "student_t_95"]

SEGMENT = 2.0**-10  # between the numbers of two segments of a pass; a pass's own number is whole
# ρ of neighbouring segments; 0: each has a constant of its own
_CORRELATIONS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

_SCALE, _DEGREES = 3.0, 4.0  # of the Student-t prior of log s_b², as those of the other logarithms
_REACH = 6.0  # half the width of the grid about the prior's median, in scales
_POINTS = 400  # of the grid
_LEVEL, _NORMAL = 0.95, 1.959964  # probability of an interval, and the normal's quantile for it
_ANGLES = 4000  # points of the integral in `student_t_95`


@dataclass(frozen=True)
class BiasSpread:
    """What is known of s_b.

    Attributes:
        stddev: s_b.
        determined: Σ s_b²λ_k/(1 + s_b²λ_k), the number of differences between constants that the
            data determine.
        correlation: ρ of neighbouring segments of a pass.
    """

    stddev: float
    determined: float
    correlation: float = 0.0

    @property
    def future_pass_variance(self) -> float:
        """Variance that gives the constant of a future pass its 95 % interval.

            s_b² (t/1.96)²

        s_b is known from few passes, so t is that of Student's distribution with as many degrees of
        freedom as differences are determined. Where none is, s_b is the prior's and is taken as
        exact.
        """
        widened = (student_t_95(max(self.determined, 1.0)) / _NORMAL) ** 2
        return self.stddev**2 * (1.0 + min(self.determined, 1.0) * (widened - 1.0))


def student_t_95(degrees: float) -> float:
    """t that holds 95 % of Student's distribution between ±t.

    The integral is over θ in t = √ν tan θ, whose density is cos^(ν − 1) θ.
    """
    angle = torch.linspace(0.0, 0.5 * math.pi, _ANGLES, dtype=torch.float64)
    # the angle below which 95 % of the density lies, by summation
    cumulative = angle.cos().clamp_min(0.0).pow(degrees - 1.0).cumsum(0)
    index = int((cumulative < _LEVEL * cumulative[-1]).sum())
    return math.sqrt(degrees) * math.tan(float(angle[index]))


def bias_correlation(one: Tensor, other: Tensor, correlation: float) -> Tensor:
    """Correlation ρ^|i − j| of the constants of segments of one pass, 0 between passes: (N, K).

    Args:
        one: numbers (N,) of passes or segments.
        other: numbers (K,).
        correlation: ρ of neighbouring segments.
    """
    apart = ((one[:, None] - other).abs() / SEGMENT).round()
    together = one[:, None].floor() == other.floor()
    return torch.where(together, correlation**apart, 0.0)


@dataclass(frozen=True)
class BiasEvidence:
    """Likelihood of the passes' constants, with the field integrated out.

    Attributes:
        precision: N (P, P).
        linear: v (P, C).
        numbers: of the passes or segments (P,); None: each is a pass.
    """

    precision: Tensor
    linear: Tensor
    numbers: Tensor | None = None

    @staticmethod
    def from_pass_sums(
        counts: Tensor,
        targets: Tensor,
        constants: tuple[Tensor, Tensor],
        shared: Tensor,
        solved_linear: Tensor,
    ) -> BiasEvidence:
        """From sums over passes, and a posterior from which their constants are integrated out.

        Args:
            counts: n of PassSums (P,).
            targets: l of PassSums (P, C).
            constants: W (P, P) and m (P, C) of PassSums.constants.
            shared: GᵀD⁻¹G (P, P), with D after the constants are integrated out.
            solved_linear: GᵀD⁻¹r (P, C), of the same D.
        """
        # (D + Gᵀ W G)⁻¹ by Woodbury's identity: as if there were no constants
        left, mean = constants
        correction = torch.eye(len(left), dtype=shared.dtype, device=shared.device) + shared @ left
        field_precision = torch.linalg.solve(correction, shared)
        field_linear = torch.linalg.solve(
            correction, solved_linear + shared @ (left @ targets + mean)
        )

        precision = torch.diag(counts) - 0.5 * (field_precision + field_precision.mT)
        return BiasEvidence(precision, targets - field_linear)

    def log_likelihood(self, variance: Tensor, correlation: float = 0.0) -> Tensor:
        """log p(y | s_b) minus its value at s_b = 0, mean over channels: (K,).

        Args:
            variance: s_b² (K,).
            correlation: ρ.
        """
        values, pulls = self._spectrum(correlation)
        variance = variance[:, None]
        shrunk = variance / (1.0 + variance * values)
        return 0.5 * (shrunk * pulls - (variance * values).log1p()).sum(1)

    def _spectrum(self, correlation: float = 0.0) -> tuple[Tensor, Tensor]:
        """λ_k (P,), and v_k² as a mean over channels (P,), of LᵀNL and Lᵀv, LLᵀ the correlation."""
        precision, linear = self.precision, self.linear
        if correlation > 0 and self.numbers is not None:
            root = torch.linalg.cholesky(bias_correlation(self.numbers, self.numbers, correlation))
            precision, linear = root.mT @ precision @ root, root.mT @ linear
        values, vectors = torch.linalg.eigh(precision)
        return values.clamp_min(0.0), (vectors.mT @ linear).square().mean(1)

    @property
    def has_segments(self) -> bool:
        """Whether a pass has several constants."""
        return self.numbers is not None and len(self.numbers.floor().unique()) < len(self.numbers)

    def spread(self, prior: float, segments: bool = False) -> BiasSpread:
        """s_b at the median of its posterior.

        Args:
            prior: median of its prior.
            segments: whether to look for a ρ, too, where a pass has segments.
        """
        tried = _CORRELATIONS if segments and self.has_segments else (0.0,)
        return max((self._spread(prior, rho) for rho in tried), key=lambda found: found[0])[1]

    def _spread(self, prior: float, correlation: float) -> tuple[float, BiasSpread]:
        """Log evidence of ρ, s_b integrated out, and the spread at it."""
        values, pulls = self._spectrum(correlation)

        # the grid reaches beyond the largest constant that the data show
        fixed = values > 1e-9 * values.max()
        largest = (
            (pulls[fixed] / values[fixed].square()).max()
            if bool(fixed.any())
            else pulls.new_zeros(())
        )
        centre = 2.0 * math.log(prior)
        top = max(centre + _REACH * _SCALE, math.log(max(float(largest), 1e-300)) + 4.0)

        logs = torch.linspace(
            centre - _REACH * _SCALE, top, _POINTS, dtype=torch.float64, device=values.device
        )

        # log posterior on the grid, with the Student-t prior of log s_b²
        density = self.log_likelihood(logs.exp(), correlation)
        density = (
            density
            - 0.5 * (_DEGREES + 1.0) * (((logs - centre) / _SCALE).square() / _DEGREES).log1p()
        )

        # its median
        cumulative = torch.softmax(density, 0).cumsum(0)
        variance = float(logs[int((cumulative < 0.5).sum().clamp(max=_POINTS - 1))].exp())
        determined = float((variance * values / (1.0 + variance * values)).sum())
        evidence = float(density.logsumexp(0)) + math.log(float(logs[1] - logs[0]))
        return evidence, BiasSpread(math.sqrt(variance), determined, correlation)

"""The spread s_b of the passes' constants, and how alike those of one pass are.

The constants of a pass that drifts are those of its segments, one after the other: an
autoregressive process, cov(b_i, b_j) = s_b² ρ^|i − j|. What data say of s_b and ρ is the evidence
of all passes (core/sparse/pass_evidence.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SEGMENT", "BiasSpread", "bias_correlation", "student_t_95"]

SEGMENT = 2.0**-10  # between the numbers of two segments of a pass; a pass's own number is whole
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
        beginning: variance as of future_pass_variance, of the first segments of passes alone; 0:
            they are as the others.
    """

    stddev: float
    determined: float
    correlation: float = 0.0
    beginning: float = 0.0

    @property
    def future_pass_variance(self) -> float:
        """Variance that gives the constant of a future pass its 95 % interval.

            s_b² (t/1.96)²

        Of a sensor that warms up it is that of the beginning of a pass.

        s_b is known from few passes, so t is that of Student's distribution with as many degrees of
        freedom as differences are determined. Where none is, s_b is the prior's and is taken as
        exact.
        """
        widened = (student_t_95(max(self.determined, 1.0)) / _NORMAL) ** 2
        own = self.stddev**2 * (1.0 + min(self.determined, 1.0) * (widened - 1.0))
        return max(own, self.beginning)


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

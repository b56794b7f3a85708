"""How much the constants of passes differ, s_b, from the evidence of all that the passes said.

With the constants' likelihood exp(vᵀb − ½ bᵀNb), the field integrated out, and b ~ N(0, s_b² I),

    log p(y | s_b) = −½ Σ_k log(1 + s_b² λ_k) + ½ Σ_k s_b² v_k²/(1 + s_b² λ_k),     N = Σ λ_k q_k q_kᵀ, v_k = q_kᵀv

of one number: it is looked at everywhere, and no start can be so far that its slope is lost. Against the posterior with
constants of variance w (passes.py), K = GᵀD⁻¹G and m = GᵀD⁻¹r give N and v back without another factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["BiasEvidence", "BiasSpread", "student"]

_SCALE, _DEGREES = 3.0, 4.0  # of the Student-t prior of log s_b², as those of the other logarithms
_REACH = 6.0  # scales about the prior's median that are looked at
_POINTS = 400
_LEVEL, _NORMAL = 0.95, 1.959964  # and the normal's quantile
_ANGLES = 4000


@dataclass(frozen=True)
class BiasSpread:
    """stddev: s_b.  determined: Σ s_b²λ_k/(1 + s_b²λ_k), how many constants' differences the data fix."""

    stddev: float
    determined: float

    @property
    def variance_to_come(self) -> float:
        """Variance that gives the constant of a pass to come its 95 % interval, s_b being known of few passes.

        s_b² (t/1.96)², t of Student's distribution with as many degrees of freedom as differences are fixed; where
        none is, s_b is the prior's, and is believed.
        """
        widened = (student(max(self.determined, 1.0)) / _NORMAL) ** 2
        return self.stddev**2 * (1.0 + min(self.determined, 1.0) * (widened - 1.0))


def student(degrees: float) -> float:
    """t that holds 95 % of Student's distribution between ±t: t = √ν tan θ, with density cos^(ν − 1) θ of θ."""
    angle = torch.linspace(0.0, 0.5 * math.pi, _ANGLES, dtype=torch.float64)
    share = angle.cos().clamp_min(0.0).pow(degrees - 1.0).cumsum(0)
    at = int((share < _LEVEL * share[-1]).sum())
    return math.sqrt(degrees) * math.tan(float(angle[at]))


@dataclass(frozen=True)
class BiasEvidence:
    """precision: N (P, P).  linear: v (P, C). Both of the constants, with the field integrated out."""

    precision: Tensor
    linear: Tensor

    @staticmethod
    def given(
        counts: Tensor, targets: Tensor, left: Tensor, shared: Tensor, told: Tensor
    ) -> BiasEvidence:
        """From sums over passes and a posterior with constants of variance `left`.

        Args:
            counts, targets: n (P,), l (P, C) of PassSums.
            left: w (P,).
            shared: GᵀD⁻¹G (P, P), D without the constants.
            told: GᵀD⁻¹r (P, C).
        """
        # (D + G w Gᵀ)⁻¹ by Woodbury: as if there were no constants
        turned = torch.eye(len(left), dtype=shared.dtype, device=shared.device) + shared * left
        known = torch.linalg.solve(turned, shared)
        mean = torch.linalg.solve(turned, told + shared @ (left[:, None] * targets))
        precision = torch.diag(counts) - 0.5 * (known + known.mT)
        return BiasEvidence(precision, targets - mean)

    def log_likelihood(self, variance: Tensor) -> Tensor:
        """log p(y | s_b) less that at s_b = 0, mean over channels, for s_b² in `variance` (K,): (K,)."""
        values, pulls = self._spectrum()
        variance = variance[:, None]
        shrunk = variance / (1.0 + variance * values)
        return 0.5 * (shrunk * pulls - (variance * values).log1p()).sum(1)

    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """λ_k and v_k², mean over channels: (P,) each."""
        values, vectors = torch.linalg.eigh(self.precision)
        return values.clamp_min(0.0), (vectors.mT @ self.linear).square().mean(1)

    def spread(self, prior: float) -> BiasSpread:
        """s_b at the median of its posterior; prior: median of its prior."""
        values, pulls = self._spectrum()
        fixed = values > 1e-9 * values.max()
        seen = (
            (pulls[fixed] / values[fixed].square()).max()
            if bool(fixed.any())
            else pulls.new_zeros(())
        )
        centre = 2.0 * math.log(prior)
        top = max(centre + _REACH * _SCALE, math.log(max(float(seen), 1e-300)) + 4.0)

        logs = torch.linspace(
            centre - _REACH * _SCALE, top, _POINTS, dtype=torch.float64, device=values.device
        )
        density = self.log_likelihood(logs.exp())
        density = (
            density
            - 0.5 * (_DEGREES + 1.0) * (((logs - centre) / _SCALE).square() / _DEGREES).log1p()
        )
        share = torch.softmax(density, 0).cumsum(0)
        found = float(logs[int((share < 0.5).sum().clamp(max=_POINTS - 1))].exp())
        return BiasSpread(math.sqrt(found), float((found * values / (1.0 + found * values)).sum()))

"""Whether stamps are as configured, or late: what samples say of the time offset δ.

On a path that never comes back in another direction, a shift along the path changes nothing, and
the best offset δ̂ is determined by noise. So there are two hypotheses, equally likely beforehand:
the stamps are late by δ₀, as configured, or by any δ of its prior. The samples weigh them by

    B = p(y | δ₀) / ∫ p(y | δ) p(δ) dδ,     p(late) = 1/(1 + B)
    E[δ] = δ₀ + p (δ̂ − δ₀),     Var[δ] = p C_δδ + p (1 − p) (δ̂ − δ₀)²

E[δ] is δ̂ once lanes in two directions lie next to each other. The integral is Laplace's
approximation about δ̂, C_δδ the variance there. p(y | δ₀) is computed as it is: by the curvature at
δ̂ alone (Savage and Dickey's ratio of densities), which chance has chosen with δ̂, it may be off by
many nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gp_mapping.core.hyper.blocks import OFFSET, Blocks
from gp_mapping.core.hyper.evidence import negative_log_evidence
from gp_mapping.core.hyper.theta import Theta

__all__ = ["Stamps"]

# nats against the stamps, by the curvature at δ̂, beyond which they are not computed exactly: the
# curvature of few lanes may be several times too large, and still leave no doubt
_DECIDED = 50.0


@dataclass(frozen=True)
class Stamps:
    """The two hypotheses about δ.

    Attributes:
        offset: δ₀, s.
        median: of δ where stamps are late, s.
        prior_sd: of δ where stamps are late, s.
    """

    offset: float
    median: float
    prior_sd: float

    def belief(
        self, vector: Tensor, variance: float, precision: float, blocks: Blocks | None
    ) -> tuple[float, float]:
        """E[δ] in s, and Var[δ] in s².

        Args:
            vector: v (P,), with δ̂.
            variance: C_δδ, s².
            precision: of δ where all other entries are known, 1/s².
            blocks: what they say of the stamps; None: it is that of a posterior N(δ̂, C_δδ).
        """
        found, variance = float(vector[OFFSET]), min(variance, self.prior_sd**2)
        change, beyond = found - self.offset, (found - self.median) / self.prior_sd

        # log p(y | δ̂) − log p(y | δ₀)
        if blocks is None:
            before = (self.offset - self.median) / self.prior_sd
            lost = 0.5 * (change**2 / variance - before**2 + beyond**2)
        else:
            # with the other entries at their best for δ₀, as far as the quadratic knows
            fitted = precision - 1.0 / variance
            lost = blocks.loss_of_stamps(vector) - 0.5 * fitted * change**2

        odds = self.prior_sd / math.sqrt(variance) * math.exp(min(0.5 * beyond**2 - lost, 50.0))
        late = 1.0 / (1.0 + odds)
        return self.offset + late * change, late * (variance + (1.0 - late) * change**2)

    def lost(
        self,
        theta: Theta,
        vector: Tensor,
        said: tuple[Tensor, Tensor],
        variance: float,
        little: float,
        columns: list[list[Tensor | None]],
    ) -> float:
        """By how many nats the evidence of a block is less at v with δ₀.

        By its quadratic where that leaves no doubt, and where the offsets are as good as equal;
        elsewhere by the evidence itself.

        Args:
            theta: as of `negative_log_evidence`.
            vector: v (P,).
            said: gradient (P,) and information (P, P) of the block at v.
            variance: C_δδ, s².
            little: Theta.distance below which two offsets are as good as equal.
            columns: of `negative_log_evidence`, of the block with the samples that it is given, and
                of these alone.
        """
        stamps, change = vector.clone(), self.offset - float(vector[OFFSET])
        stamps[OFFSET] = self.offset
        slope, bend = float(said[0][OFFSET]), float(said[1][OFFSET, OFFSET])
        quadratic = (slope + 0.5 * bend * change) * change

        apart = theta.with_vector(stamps).distance(theta.with_vector(vector))
        if apart <= little or 0.5 * change**2 > _DECIDED * variance:
            return quadratic

        total = 0.0
        for some, sign in zip(columns, (1.0, -1.0)):
            if not len(some[0]):
                continue
            try:
                here, there = (
                    float(negative_log_evidence(theta, v.to(some[0].device), *some))
                    for v in (vector, stamps)
                )
            except torch.linalg.LinAlgError:
                return quadratic
            total += sign * len(some[0]) * (there - here)
        return total if math.isfinite(total) else quadratic

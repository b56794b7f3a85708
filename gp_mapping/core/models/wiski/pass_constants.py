"""Constants of passes in the snapshots of WISKI: weights of features (lattice/features.py).

    b = f_p,   cov b = Σ_pp,   N = Σ_pp⁻¹ − s_b⁻² I,   v = Σ_pp⁻¹ f_p

with f and Σ the weights' mean and covariance given all data, and N, v the likelihood of the
constants with everything else integrated out (core/sparse/pass_evidence.py).
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.field_map import PassBias
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.inner_snapshot import InnerSnapshot
from gp_mapping.core.models.wiski.lattice.features import FEATURES
from gp_mapping.core.sparse.pass_evidence import PassEvidence
from gp_mapping.core.types import Prediction

__all__ = ["PassConstants", "bias_evidence_of"]


def bias_evidence_of(theta: Theta, f: Tensor, covariance: Tensor) -> PassEvidence | None:
    """Evidence for s_b from the features' weights; None of fewer than two passes.

    Args:
        theta: hyper-parameters, with the s_b that f and Σ are of.
        f: (3 + P, C) weights.
        covariance: (3 + P, 3 + P) Σ.
    """
    passes = len(f) - FEATURES
    if passes < 2 or theta.bias_stddev <= 0:
        return None

    precision = torch.linalg.inv(covariance[FEATURES:, FEATURES:])
    prior = torch.eye(passes, dtype=f.dtype, device=f.device) / theta.bias_stddev**2
    # the features' prior knows no segments: each constant is that of a pass
    numbers = tuple(float(number) for number in range(passes))
    return PassEvidence(numbers, precision - prior, precision @ f[FEATURES:])


class PassConstants(InnerSnapshot):
    """A snapshot whose features' weights include the constants of passes.

    Attributes:
        numbers: of the P passes.
    """

    numbers: tuple[float, ...]

    @abstractmethod
    def feature_moments(self) -> tuple[Tensor, Tensor]:
        """Mean f (3 + P, C) and covariance Σ (3 + P, 3 + P) of the features' weights."""

    @abstractmethod
    def predict_inner(
        self, x: Tensor, heading: Tensor | None = None, number: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean (N, C) and latent variance (N,) at standardised x, with the constant of a pass.

        Args:
            x: (N, 2), standardised.
            heading: ĥ (N, 2); with it the body-fixed field is included.
            number: of the pass whose constant is included; None: of none.
        """

    def predict_in_pass(
        self,
        x: Tensor,
        number: float,
        velocity: Tensor | None = None,
        heading: Tensor | None = None,
    ) -> Prediction:
        """Predict f(x) + b, where b is the unknown constant of one pass.

        Args:
            x: (N, 2) m.
            number: of the pass; one that is not known has the prior's constant.
            velocity: (N, 2) m/s of the robot.
            heading: (N, 2) ĥ; the direction of travel if None.
        """
        x, heading = self.theta.prediction_inputs(self.scaling.inner_x(x), velocity, heading)
        mean, variance = self.predict_inner(x, heading, number)
        if number not in self.numbers:
            variance = variance + self.theta.bias_stddev**2
        return self.scaling.outer(mean, variance, self.noise_variance)

    def biases(self) -> list[PassBias]:
        """Constants of the passes that are kept apart, oldest first, SI."""
        if not self.numbers:
            return []
        (f, covariance), scale = self.feature_moments(), self.scaling.scale
        return PassBias.of(
            self.numbers, f[FEATURES:] * scale, covariance[FEATURES:, FEATURES:] * scale**2
        )

    def bias_evidence(self) -> PassEvidence | None:
        """As InnerSnapshot.bias_evidence."""
        return bias_evidence_of(self.theta, *self.feature_moments())

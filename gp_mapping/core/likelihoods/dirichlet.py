"""Classes as regression with fixed noise (Milios et al. 2018): Gaussian targets for each class.

There is one latent field for each class. A label gives each class α = α_ε, and its own class one
more. The class probabilities of one measurement are Dirichlet(α): gammas, divided by their sum. A
Gamma(α) is matched by a log-normal,

    σ̃² = log(1 + 1/α),   ỹ = log α − ½ σ̃²

so that log Gamma(α) ≈ N(ỹ, σ̃²) is a Gaussian measurement of the class's latent field. Class
probabilities are the softmax of the latent fields, averaged over their posterior.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.likelihoods.discrete import Softmax

__all__ = ["Dirichlet", "dirichlet_targets"]


def dirichlet_targets(shares: Tensor, epsilon: float = 0.01) -> tuple[Tensor, Tensor]:
    """Targets ỹ and noise variances σ̃², each (N, C).

    Args:
        shares: (N, C) one-hot rows, or shares of the classes in a measurement.
        epsilon: α_ε.
    """
    alpha = shares.to(torch.float64) + epsilon
    variance = torch.log1p(1.0 / alpha)
    return alpha.log() - 0.5 * variance, variance


class Dirichlet(Softmax):
    """Softmax of latent fields that labels measure as `dirichlet_targets`.

    Args:
        classes: C.
        epsilon: α_ε; the less, the more one label says.

    Reference:
        Milios et al. 2018; Stanton et al. 2021, section 5.
    """

    name, conjugate, steps = "dirichlet", True, 1

    def __init__(self, classes: int, epsilon: float = 0.01):
        super().__init__(classes)
        self.epsilon = epsilon

    @property
    def centre(self) -> float:
        """Prior mean of each latent field: of its targets, under labels of all classes alike."""
        targets, _ = dirichlet_targets(torch.eye(self.classes, dtype=torch.float64), self.epsilon)
        return float(targets[0].mean())

    @property
    def least_noise(self) -> float:
        """Noise variance of a label for its own class, the least of all."""
        return math.log1p(1.0 / (1.0 + self.epsilon))

    def targets(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Targets ỹ and noise variances σ̃², each (N, C), of measurements (N, 1) or (N, C).

        Raises:
            ValueError: a value is no class.
        """
        return dirichlet_targets(self.encode(y), self.epsilon)

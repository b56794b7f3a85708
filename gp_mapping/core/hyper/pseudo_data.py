"""Hyper-parameters under a likelihood that is not Gaussian: from pseudo-data, as Chang et al. 2023, eq. 26.

The sites are held, so that the map is a GP regression on targets ŷ = λ/β with variances 1/β. Where the sites have
converged, the gradient of its evidence is that of the ELBO: what E_q[log p − log site] adds is stationary in q.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.evidence import evidence_score
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Likelihood

__all__ = ["PseudoLearner"]

_LEAST = 1e-8  # of the largest β: sites below say nothing


class PseudoLearner(HyperLearner):
    """HyperLearner on ŷ = λ/β ~ N(0, C + 1/β); the scale of a Student-t from E_q[log p] itself."""

    BLOCKS = False  # pseudo-data are other ones at each θ

    def __init__(self, theta: Theta, prior: Theta, likelihood: Likelihood, **others):
        super().__init__(theta, prior, **others)
        self.likelihood = likelihood

    def score(self, vector: Tensor, data: dict, near: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient (7,) of −log evidence of the pseudo-data `near`, and their Fisher information (7, 7)."""
        beta, lam = data["beta"][near], data["lam"][near]
        telling = beta > _LEAST * beta.max()
        places, free, noiseless = near[telling], list(self.free), vector.clone()
        free[2], noiseless[2] = False, -math.inf
        beta = beta[telling]
        parts = (data[name][places] for name in ("x", "velocity", "heading"))
        gradient, information = evidence_score(
            self.theta, noiseless, free, *parts, lam[telling] / beta[:, None], 1.0 / beta
        )
        if self.free[2]:
            own = torch.exp(vector[2])
            total = own + data["extra"][near]
            share = own / total * data["weight"][near]
            mean, variance = data["marginals"](near)
            each = self.likelihood.noise_score(data["y"][near], mean, variance, total).mean(1)
            gradient[2] = (share * each).sum()
            nu = self.likelihood.degrees
            information[2] = information[:, 2] = 0.0
            information[2, 2] = nu / (2 * (nu + 3)) * (share * own / total).sum()
        return gradient, information

"""Hyper-parameters under a likelihood that is not Gaussian, from pseudo-data.

The method is that of Chang et al. 2023, eq. 26.

The sites are held, so the map is a GP regression on targets ŷ = λ/β with variances 1/β. Where the
sites have converged, the gradient of its evidence is that of the ELBO: the additional terms
E_q[log p − log site] are stationary in q.
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

_LEAST = 1e-8  # fraction of the largest β: sites below say nothing


class PseudoLearner(HyperLearner):
    """HyperLearner on pseudo-data ŷ = λ/β ~ N(0, C + 1/β).

    The noise of a metric likelihood is learned from E_q[log p] itself.

    Args:
        theta: as of HyperLearner.
        prior: as of HyperLearner.
        likelihood: of the samples.
        others: as of HyperLearner.
    """

    BLOCKS = False  # pseudo-data change with θ

    def __init__(self, theta: Theta, prior: Theta, likelihood: Likelihood, **others):
        super().__init__(theta, prior, **others)
        self.likelihood = likelihood

    def score(self, vector: Tensor, data: dict, near: Tensor) -> tuple[Tensor, Tensor]:
        """As HyperLearner.score, of pseudo-data λ/β with variance 1/β.

        Of s_p² it is the slope of the samples' own noise, which is in no pseudo-data.
        """
        beta, lam = data["beta"][near], data["lam"][near]
        informative = beta > _LEAST * beta.max()

        # no noise besides 1/β: log s_p² = −∞, and its derivative is left out
        chosen, free, noiseless = near[informative], list(self.free), vector.clone()
        free[2], noiseless[2] = False, -math.inf
        beta = beta[informative]
        parts = (data[name][chosen] for name in ("x", "velocity", "heading"))

        gradient, information = evidence_score(
            self.theta, noiseless, free, *parts, lam[informative] / beta[:, None], 1.0 / beta
        )

        if self.free[2]:
            scale_variance = torch.exp(vector[2])
            total = scale_variance + data["extra"][near]
            weight = scale_variance / total * data["weight"][near]
            mean, variance = data["marginals"](near)
            likelihood = data["likelihood"]
            each = likelihood.noise_score(data["y"][near], mean, variance, total).mean(1)
            gradient[2] = (weight * each).sum()

            known = likelihood.noise_information
            information[2, 2] = known * (weight * scale_variance / total).sum()
        return gradient, information

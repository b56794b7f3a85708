"""Hyper-parameters: their values, their evidence, and how they are learned online."""

from __future__ import annotations

from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.pseudo_data import PseudoLearner
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.likelihoods.base import Likelihood

__all__ = ["make_learner"]


def make_learner(
    likelihood: Likelihood, theta: Theta, prior: Theta, free: tuple[bool, ...]
) -> HyperLearner | None:
    """A learner of θ: by the evidence for a Gaussian likelihood, by pseudo-data for another.

    Args:
        likelihood: of the map.
        theta: where to start.
        prior: medians of the priors.
        free: which entries of Theta.vector() are learned.

    Returns:
        None where nothing is learned.
    """
    if not any(free):
        return None
    if likelihood.conjugate:
        return HyperLearner(theta, prior, free=free)
    return PseudoLearner(theta, prior, likelihood=likelihood, free=free)

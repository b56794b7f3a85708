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
    """Of the evidence where the likelihood is Gaussian, else of the pseudo-data's; None where nothing is learned."""
    if not any(free):
        return None
    if likelihood.conjugate:
        return HyperLearner(theta, prior, free=free)
    return PseudoLearner(theta, prior, likelihood=likelihood, free=free)

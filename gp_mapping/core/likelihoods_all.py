"""Setting -> likelihood, and the learner that goes with it; the only place that knows them all."""

from __future__ import annotations

from gp_mapping.core.hyper import HyperLearner, Theta
from gp_mapping.core.likelihoods import Gaussian, Likelihood
from gp_mapping.core.likelihoods_discrete import Bernoulli, Poisson, Softmax
from gp_mapping.core.likelihoods_hyper import PseudoLearner
from gp_mapping.core.likelihoods_robust import StudentT
from gp_mapping.settings.mapping import MapSettings

__all__ = ["make_learner", "make_likelihood"]


def make_likelihood(settings: MapSettings) -> Likelihood:
    """That of the settings `likelihood`, `threshold`, `degrees_of_freedom`, `count_duration`, `classes`."""
    return {"gaussian": Gaussian, "student_t": lambda: StudentT(settings.degrees_of_freedom),
            "bernoulli": lambda: Bernoulli(settings.threshold), "softmax": lambda: Softmax(settings.classes),
            "poisson": lambda: Poisson(settings.count_duration),
            }[settings.likelihood]()


def make_learner(settings: MapSettings, theta: Theta, prior: Theta, free: tuple) -> HyperLearner | None:
    """Of the evidence, or of the pseudo-data's; None where nothing is to be learned."""
    if not any(free):
        return None
    if settings.likelihood == "gaussian":
        return HyperLearner(theta, prior, free=free)
    return PseudoLearner(theta, prior, likelihood=make_likelihood(settings), free=free)

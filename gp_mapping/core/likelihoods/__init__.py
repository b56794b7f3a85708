"""Likelihoods p(y | f) of measurements; `make_likelihood` makes the one that the settings name."""

from __future__ import annotations

from gp_mapping.core.likelihoods.base import Gaussian, Likelihood
from gp_mapping.core.likelihoods.censored import Censored
from gp_mapping.core.likelihoods.dirichlet import Dirichlet
from gp_mapping.core.likelihoods.discrete import Bernoulli, Poisson, Softmax
from gp_mapping.core.likelihoods.student_t import StudentT
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.parts import LIKELIHOODS

__all__ = ["make_likelihood"]


def make_likelihood(settings: MapSettings) -> Likelihood:
    """Make the likelihood that settings.likelihood names, with the other settings that it takes."""
    return LIKELIHOODS[settings.likelihood](settings)


def make_gaussian(settings: MapSettings) -> Gaussian:
    """Gaussian noise; it takes no setting."""
    return Gaussian()


def make_student_t(settings: MapSettings) -> StudentT:
    """Student-t noise of settings.degrees_of_freedom."""
    return StudentT(settings.degrees_of_freedom)


def make_censored(settings: MapSettings) -> Censored:
    """Gaussian noise of a sensor that tells its limit outside of settings.limits."""
    return Censored(*settings.limits)


def make_bernoulli(settings: MapSettings) -> Bernoulli:
    """Probit likelihood of values above settings.threshold."""
    return Bernoulli(settings.threshold)


def make_poisson(settings: MapSettings) -> Poisson:
    """Poisson counts in settings.count_duration."""
    return Poisson(settings.count_duration)


def make_softmax(settings: MapSettings) -> Softmax:
    """Softmax of settings.classes latent channels."""
    return Softmax(settings.classes)


def make_dirichlet(settings: MapSettings) -> Dirichlet:
    """Regression on labels of settings.classes classes, with settings.alpha_epsilon."""
    return Dirichlet(settings.classes, settings.alpha_epsilon)

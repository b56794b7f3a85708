"""Likelihoods p(y | f) of measurements; `make_likelihood` makes the one that the settings name."""

from __future__ import annotations

from gp_mapping.core.likelihoods.base import Gaussian, Likelihood
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
    return Gaussian()


def make_student_t(settings: MapSettings) -> StudentT:
    return StudentT(settings.degrees_of_freedom)


def make_bernoulli(settings: MapSettings) -> Bernoulli:
    return Bernoulli(settings.threshold)


def make_poisson(settings: MapSettings) -> Poisson:
    return Poisson(settings.count_duration)


def make_softmax(settings: MapSettings) -> Softmax:
    return Softmax(settings.classes)


def make_dirichlet(settings: MapSettings) -> Dirichlet:
    return Dirichlet(settings.classes, settings.alpha_epsilon)

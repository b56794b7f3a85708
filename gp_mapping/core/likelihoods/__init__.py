"""What a measurement says of the field; `make_likelihood` is the only place that knows them all."""

from __future__ import annotations

from gp_mapping.core.likelihoods.base import Gaussian, Likelihood
from gp_mapping.core.likelihoods.discrete import Bernoulli, Poisson, Softmax
from gp_mapping.core.likelihoods.student_t import StudentT
from gp_mapping.settings.mapping import MapSettings

__all__ = ["make_likelihood"]


def make_likelihood(settings: MapSettings) -> Likelihood:
    """That of the settings `likelihood`, `threshold`, `degrees_of_freedom`, `count_duration`, `classes`."""
    return {"gaussian": Gaussian, "student_t": lambda: StudentT(settings.degrees_of_freedom),
            "bernoulli": lambda: Bernoulli(settings.threshold), "softmax": lambda: Softmax(settings.classes),
            "poisson": lambda: Poisson(settings.count_duration),
            }[settings.likelihood]()

"""What errors of predictions are distributed like: Student's t, by one-step-ahead scores.

Where the field is rougher in some places than in others, one lengthscale states too little variance
there and too much elsewhere, also between the lanes, where nobody has measured by how much. Errors
in stated standard deviations are then a mixture: most are small, a few are large. Two hypotheses
are equally likely beforehand, of an unknown scale s:

    z = r/√(v + σ²) is normal,   or Student's t with ν degrees of freedom, log ν uniform

between 2, since errors have a variance, and 200, where t is as good as normal. The scores z of the
window are n/τ independent ones (autocorrelation.py, of z²/(1 + z²), which no error dominates). ν is
1/E[1/ν], the normal's being 0.

s is no guide to the errors elsewhere: scores are of places ahead of the lane, and between lanes
errors have another scale. So the stated standard deviation keeps its meaning, of a 95 % interval of
1.96 of them, and ν says what other intervals are.

Such a mixture has a normal error with a variance that is drawn for each place, from a scaled
inverse χ² with ν degrees of freedom. Where n scores lie around a place, they have told that
variance (local_scale.py): there are ν + n/τ degrees of freedom.

Reference: Lange, Little and Taylor 1989, Robust statistical modeling using the t distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, ndtri, stdtr, stdtrit

from gp_mapping.core.types import Prediction
from gp_mapping.mapping.scoring.autocorrelation import autocorrelation_time

__all__ = [
    "ErrorShape",
    "degrees_of",
    "half_width",
    "log_density",
    "probability_below",
    "shape_of_errors",
]

_INVERSE = np.geomspace(0.005, 0.5, 14)  # of 1/ν, where errors are not normal
_SCALES = np.geomspace(0.1, 10.0, 20)  # of s², in that of the median
_MEDIAN_OF_SQUARE = 0.4549  # of a standard normal
_STEP = 0.2  # of log z²: scores nearer to each other are counted together
_MOST = 1e6  # degrees of freedom beyond which Student's t is the normal distribution
_NORMAL = float(ndtri(0.975))


def _terms_of_t(degrees):
    """Constant and slope of Student's log density: constant − slope log(1 + z²/ν), for each ν."""
    slope = 0.5 * (degrees + 1.0)
    constant = gammaln(slope) - gammaln(0.5 * degrees) - 0.5 * np.log(degrees * math.pi)
    return constant, slope


# of each 1/ν, (ν, 1)
_CONSTANTS, _SLOPES = _terms_of_t(1.0 / _INVERSE[:, None])


class ErrorShape(NamedTuple):
    """What errors are distributed like.

    Attributes:
        degrees: ν, where no score is near.
        together: τ, scores that tell as much as one that is independent.
    """

    degrees: float = math.inf
    together: float = 1.0

    def degrees_near(self, count: np.ndarray) -> np.ndarray:
        """Degrees of freedom at places around which there are so many scores, (N,)."""
        return self.degrees + count / self.together


def shape_of_errors(square: np.ndarray) -> ErrorShape:
    """The distribution of which scores are drawn; normal without scores.

    Args:
        square: z² (N,) in the order of the drive.
    """
    square = square[square > 0.0]
    if not len(square):
        return ErrorShape()
    together = autocorrelation_time(square / (1.0 + square))
    logs, counts = np.unique(np.round(np.log(square) / _STEP), return_counts=True)
    weights = counts / together

    # scores by scale by hypothesis
    scale = _SCALES * float(np.median(square)) / _MEDIAN_OF_SQUARE
    z2 = np.exp(_STEP * logs)[:, None] / scale
    normal = weights @ (-0.5 * z2 - 0.5 * np.log(2.0 * math.pi * scale))
    # the constant and the slope of Student's log density come out of the sum over scores
    tails = weights @ np.log1p(z2 * _INVERSE[:, None, None])  # (ν, scale)
    student = weights.sum() * (_CONSTANTS - 0.5 * np.log(scale)) - _SLOPES * tails

    evidence = np.logaddexp.reduce(np.vstack([normal, student]), axis=1)
    prior = np.r_[1.0, np.full(len(_INVERSE), 1.0 / len(_INVERSE))]
    likely = prior * np.exp(evidence - evidence.max())
    inverse = float(likely[1:] @ _INVERSE / likely.sum())
    return ErrorShape(1.0 / inverse if inverse > 1.0 / _MOST else math.inf, together)


def degrees_of(prediction: Prediction) -> np.ndarray:
    """Degrees of freedom of the errors of a prediction at N places: (N,); infinite: normal."""
    if prediction.degrees is None:
        return np.full(len(prediction.mean), math.inf)
    return prediction.degrees[:, 0].cpu().numpy()


def _log_t(square: np.ndarray, degrees: float | np.ndarray) -> np.ndarray:
    """Log density of Student's t at numbers of which the squares are given."""
    constant, slope = _terms_of_t(degrees)
    return constant - slope * np.log1p(square / degrees)


def half_width(level: float, degrees: float | np.ndarray = math.inf) -> np.ndarray:
    """Half of the interval of a level, in stated standard deviations: 1.96 of 95 % for each ν.

        1.96 t_ν(½ + level/2) / t_ν(.975)

    Args:
        level: probability of the central interval, between 0 and 1.
        degrees: ν, one or of any shape.
    """
    nu = np.minimum(degrees, _MOST)
    return _NORMAL * stdtrit(nu, 0.5 + 0.5 * level) / stdtrit(nu, 0.975)


def log_density(error, variance, degrees: float | np.ndarray = math.inf) -> np.ndarray:
    """Log density of errors whose 95 % intervals are ± 1.96 stated standard deviations.

    Args:
        error: of any shape.
        variance: stated, the unit of the errors squared.
        degrees: ν.
    """
    degrees = np.asarray(degrees, dtype=float)
    normal = -0.5 * np.log(2.0 * np.pi * variance) - 0.5 * error**2 / variance
    if not (degrees < _MOST).any():
        return normal
    nu = np.minimum(degrees, _MOST)
    scale = variance * (_NORMAL / stdtrit(nu, 0.975)) ** 2
    student = _log_t(error**2 / scale, nu) - 0.5 * np.log(scale)
    return np.where(degrees < _MOST, student, normal)


def probability_below(error, variance, degrees: float | np.ndarray = math.inf) -> np.ndarray:
    """Probability of a smaller error than each: uniform where the distribution is right.

    Args:
        error: of any shape.
        variance: stated, the unit of the errors squared.
        degrees: ν.
    """
    nu = np.minimum(degrees, _MOST)
    return stdtr(nu, error / np.sqrt(variance) * stdtrit(nu, 0.975) / _NORMAL)

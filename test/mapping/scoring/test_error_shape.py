"""What errors are distributed like: normal where they are, Student's t where they have its tails."""

import math

import numpy as np
import pytest
from scipy import stats

from gp_mapping.mapping.scoring.error_shape import (
    ErrorShape,
    half_width,
    log_density,
    probability_below,
    shape_of_errors,
)

LEVELS = (0.5, 0.8, 0.95, 0.99)


@pytest.mark.parametrize("degrees", [2.5, 4.0, math.inf])
@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0])
def test_finds_the_degrees_of_freedom_of_which_scores_are_drawn_whatever_their_scale(
    degrees, scale
):
    rng = np.random.default_rng(3)
    z = rng.normal(size=2500) if degrees == math.inf else rng.standard_t(degrees, 2500)
    found = shape_of_errors((scale * z) ** 2).degrees
    assert found > 30.0 if degrees == math.inf else 0.7 * degrees < found < 1.4 * degrees


def test_scores_that_err_together_tell_less():
    """Two tell nothing: ν is the prior's 19. Forty that are repeated thirty times are forty."""
    few = np.random.default_rng(6).standard_t(4.0, 40) ** 2
    assert 15.0 < shape_of_errors(few[:2]).degrees < 23.0
    alone, repeated = (1.0 / shape_of_errors(each).degrees for each in (few, np.repeat(few, 30)))
    assert repeated == pytest.approx(alone, abs=0.02)  # .07 if each counted
    assert shape_of_errors(np.zeros(5)) == shape_of_errors(np.empty(0)) == ErrorShape()
    assert shape_of_errors(np.r_[0.0, few, 0.0]) == shape_of_errors(few)
    assert ErrorShape(4.0, 3.0).degrees_near(np.array([0.0, 6.0])).tolist() == [4.0, 6.0]


def test_intervals_and_densities_are_those_of_student_with_the_stated_95():
    error, variance = np.array([-3.0, 0.2, 1.0]), np.array([4.0, 0.5, 1.0])
    assert half_width(0.95, np.array([2.1, 7.0, math.inf])) == pytest.approx(1.959964, rel=1e-5)
    for nu in (2.5, 9.0, math.inf):
        unit = np.sqrt(variance) * 1.959964 / stats.t.ppf(0.975, nu)
        told = stats.t(nu, scale=unit) if nu < math.inf else stats.norm(scale=np.sqrt(variance))
        np.testing.assert_allclose(log_density(error, variance, nu), told.logpdf(error), rtol=1e-6)
        np.testing.assert_allclose(
            probability_below(error, variance, nu), told.cdf(error), rtol=1e-5
        )
        for level in LEVELS:
            width = half_width(level, nu) * np.sqrt(variance)
            np.testing.assert_allclose(told.cdf(width) - told.cdf(-width), level, rtol=1e-5)

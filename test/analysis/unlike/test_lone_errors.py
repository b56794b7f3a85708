"""Gross errors of a test are neither a field that has changed nor poses that lie off the map."""

import numpy as np
import pytest

from gp_mapping.analysis.unlike.lone import lone_errors

N, STEP, NOISE = 120, 0.1, 0.2  # measurements a step (m) apart, along x


def errors(seed=0):
    return NOISE * np.random.default_rng(seed).standard_normal((N, 1))


def told(error, lengthscale=0.8):
    x = np.stack([STEP * np.arange(len(error)), np.zeros(len(error))], 1)
    covariance = NOISE**2 * np.eye(len(error))
    return np.flatnonzero(lone_errors(error, covariance, x, lengthscale)).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_lone_errors_are_found_and_nothing_else_is(seed):
    error = errors(seed)
    assert told(error) == []
    places = [7, 30, 31, 60, 90, 119]
    error[places, 0] += [20.0, -30.0, 25.0, 3.0, -20.0, 40.0]
    assert told(error) == places


@pytest.mark.parametrize("width", [0.2, 0.4, 2.0])
def test_a_field_that_is_another_is_no_gross_error(width):
    """Of a quarter of a lengthscale and more, at five measurements in a lengthscale and more."""
    along = STEP * np.arange(N)[:, None]
    assert told(errors() + 20.0 * np.exp(-0.5 * np.square((along - 6.0) / width))) == []
    assert told(errors() + 20.0) == []


def test_what_goes_on_for_three_measurements_was_driven_through():
    error = errors()
    error[50:53] += 20.0
    assert told(error) == []


def test_where_much_is_lone_errors_are_not_normal():
    error = errors()
    error[::4] += 20.0 * np.random.default_rng(1).standard_normal((N // 4, 1))
    assert told(error) == []

"""What explains the errors of a piece: poses, a changed field, or neither."""

import numpy as np
import pytest

from gp_mapping.analysis.unlike.piece_evidence import Errors, explain

ALONG = np.linspace(0.0, 6.0, 60)
PLACES = np.stack([ALONG, np.zeros(60)], 1)


def errors_of(error, covariance):
    gradient = np.stack([3.0 * np.cos(2.0 * ALONG), 2.0 * np.sin(3.0 * ALONG)], 1)[:, None]
    return Errors(error, covariance, gradient)


@pytest.mark.parametrize("elsewhere", [1.0, -1.0])
def test_poses_explain_errors_that_go_with_the_gradient(elsewhere):
    """Also where rounding leaves a covariance at other places without a factor."""
    noise = 0.1 * np.random.default_rng(0).standard_normal((60, 1))
    error = noise - 0.4 * 3.0 * np.cos(2.0 * ALONG)[:, None]

    def at(x):
        sign = 1.0 if np.array_equal(x, PLACES) else elsewhere
        return errors_of(error, sign * 0.01 * np.eye(60))

    found = explain(at, lambda x: error, np.ones((60, 1, 1)), PLACES, 1.0)
    assert found.displaced and not found.changed


def test_noise_explains_itself():
    noise = 0.1 * np.random.default_rng(0).standard_normal((60, 1))
    found = explain(
        lambda x: errors_of(noise, 0.01 * np.eye(60)),
        lambda x: noise,
        np.ones((60, 1, 1)),
        PLACES,
        1.0,
    )
    assert not found.displaced and not found.changed

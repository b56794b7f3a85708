"""When a map goes over to what was learned, and when it tries again what has failed."""

import math
from dataclasses import replace

from gp_mapping.core.hyper.adopting import Adopting
from gp_mapping.core.hyper.learner import HyperLearner
from gp_mapping.core.hyper.theta import Theta

THETA = Theta(0.5, 2.0, 0.4, 3.0)


class Map(Adopting):
    def __init__(self, learner=None):
        self.theta, self.samples, self.learner = THETA, 1000, learner


def near(share: float) -> Theta:
    """As THETA, but for so much of a lengthscale's logarithm."""
    return replace(THETA, lengthscale=THETA.lengthscale * math.exp(share))


def test_a_transfer_that_failed_is_tried_again_elsewhere_or_a_hundred_samples_later():
    field = Map(HyperLearner(THETA, THETA))
    assert field.promises(THETA) and field.saved_failure() == {}
    assert field.not_adopted(THETA) is False
    assert field.failed == (THETA, 1000) and field.learner.rejected == 1
    for share, again in ((0.0, False), (0.049, False), (-0.049, False), (0.051, True)):
        assert field.promises(near(share)) == again, share
    field.samples = 1099
    assert not field.promises(THETA)
    field.samples = 1100
    assert field.promises(THETA)


def test_it_is_noted_without_a_learner_too_and_in_files():
    field, other = Map(), Map()
    assert other.restored_failure(field.saved_failure()) is None
    assert not field.not_adopted(near(0.2))
    assert other.restored_failure(field.saved_failure()) == (near(0.2), 1000)

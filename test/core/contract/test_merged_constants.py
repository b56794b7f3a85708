"""When maps are merged, how much the constants of passes differ is found at once, of two robots and of one alone.

Of gp_mapping.core.scaled_map.
"""

import numpy as np
import pytest
from core_data import SETTINGS, UT, drive, feed, samples

from gp_mapping import create_map
from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.exact import ExactGP


def robots(model):
    """Two, which have been in the same places: 2 µT too much tells the one, 2 µT too little the other."""
    given = SETTINGS | {"learn_hyperparameters": True, "bias_stddev": 0.1 * UT}
    (x, y), out = drive(120), []
    for number, constant in ((0, 2.0), (1, -2.0)):
        field, mine = create_map(model, **given), np.arange(120) // 12 % 2 == number
        feed(field, samples(x[mine], y[mine] + constant).of_pass(0.0), 30)
        out.append(field)
    return out


@pytest.mark.parametrize("model", ["dual_svgp", "exact"])
def test_two_robots_constants_differ(model):
    one, two = robots(model)
    before = one.hyperparameters()["bias_stddev"]
    one.merge(two)
    assert one.hyperparameters()["bias_stddev"] > 3.0 * before
    assert one.newest_pass == 1.0 and len(one.biases()) == 2


def test_a_pass_of_the_same_robot_is_the_same_in_both():
    one, two = robots("dual_svgp")
    before = one.hyperparameters()["bias_stddev"]
    one.merge_same_robot(two)
    assert one.hyperparameters()["bias_stddev"] == before
    assert one.newest_pass == 0.0 and len(one.biases()) == 1


def small(constant_stddev: float):
    """A map of three samples with such a constant, in units of the field."""
    field = ExactGP(Theta(0.5, 10.0, 1.0, constant_stddev), scale=UT)
    feed(field, samples(*drive(3)), 3)
    return field


@pytest.mark.parametrize("mine, its", [(0.0, 0.3), (0.3, 0.0), (0.0, 3.0)])
def test_a_map_with_a_constant_and_one_without_are_not_merged(mine, its):
    """Also where the constant is smaller than the unit; two with constants are, whatever their size."""
    with pytest.raises(ValueError, match="differ in constant"):
        small(mine).merge(small(its))
    for constant in (mine, its):
        one = small(constant)
        one.merge(small(9.0 * constant))
        assert one.samples == 6

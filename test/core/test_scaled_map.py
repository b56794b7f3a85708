"""What a map tells of its numbers, in SI, whatever its inner units are.

Of gp_mapping.core.scaled_map.
"""

import pytest
from core_data import SETTINGS, UT, drive, samples

from gp_mapping import create_map
from gp_mapping.core.field_map import LEARNS

MODELS = ("dual_svgp", "exact", "wiski")


def mapped(model, **settings):
    field = create_map(model, **SETTINGS | settings)
    field.update(samples(*drive(40)))
    return field


@pytest.mark.parametrize("model", MODELS)
def test_its_centre_is_there_with_the_first_samples_and_nobody_elses(model):
    field = create_map(model, **SETTINGS)
    assert field.centre is None
    field.update(samples(*drive(40)))
    centre, y = field.centre, drive(40)[1]
    assert y.min() * UT <= float(centre[0]) <= y.max() * UT
    centre += 1.0
    assert float(field.centre[0]) < 1.0


@pytest.mark.parametrize("model", MODELS)
def test_variances_are_those_of_the_settings(model):
    """Of the noise, and of a future pass's constant while none has told more of it."""
    for spread in (0.0, 0.3, 3.0):
        field = mapped(model, bias_stddev=spread * UT, learn_bias=False)
        assert field.bias_variance().tolist() == pytest.approx(
            [(spread * UT) ** 2], rel=1e-9, abs=0.0
        )
        assert field.noise_variance().tolist() == pytest.approx([UT**2], rel=1e-9, abs=0.0)
    with pytest.raises(RuntimeError):
        create_map(model, **SETTINGS).bias_variance()


def test_what_a_model_learns_and_the_steps_of_it():
    learning, given = (
        mapped("dual_svgp", learn_hyperparameters=learns) for learns in (True, False)
    )
    assert given.learning_steps is None and learning.learning_steps == 0
    assert learning.capabilities - given.capabilities == {LEARNS}

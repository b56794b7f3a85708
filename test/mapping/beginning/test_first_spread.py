"""What first values are compared with: how much the field varies, where that is given, and a step of the sensor."""

import math

import pytest

from gp_mapping.core.types import Samples
from gp_mapping.mapping.beginning.first_values import FirstValues
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for


@pytest.mark.parametrize("signal", [0.02, 0.5])
def test_no_value_within_twelve_standard_deviations_of_the_field_waits(signal):
    """Where it is given how much the field varies; of values that hardly differ that is the spread."""
    settings = map_settings_for("scalar", MapSettings(signal_stddev=signal))
    for away, kept in ((11.9, True), (12.1, False)):
        first = FirstValues(settings)
        for k in range(30):
            noise = 1e-3 * signal * math.sin(37.0 * k)
            cell = Samples([[0.1 * k, 0.0]], [[20.0 + noise]], stamp=[0.1 * k])
            if first.is_open:
                first.add_first(cell)
            else:
                assert first.admit(cell, False) == [cell]
        beyond = Samples([[3.0, 0.0]], [[20.0 + away * signal]], stamp=[3.0])
        assert bool(first.admit(beyond, False)) == kept and first.gross == 0
        first.drop_held()
        assert first.gross == (0 if kept else 1)


def test_a_step_of_the_sensor_is_no_error_however_little_the_field_varies():
    settings = map_settings_for("scalar", MapSettings(signal_stddev=0.02))
    first, values = FirstValues(settings), [20.0] * 8 + [21.0] + [20.0] * 20 + [21.0] + [20.0] * 9
    for k, value in enumerate(values):
        cell = Samples([[0.1 * k, 0.0]], [[value]], stamp=[0.1 * k])
        first.check_warm_up(cell)
        if first.is_open:
            first.add_first(cell)
        else:
            assert first.admit(cell, False) == [cell], k

"""Drawn maps: rounded limits and the levels 1…98 between them."""

import types

import numpy as np
import pytest
import torch

from gp_mapping.mapping.drawing.levels import (
    HIGHEST,
    LOWEST,
    UNKNOWN,
    Limits,
    field_limits,
    levels,
    nice_limits,
)


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0.0, 20.0, (0.0, 20.0)),
        (0.0, 100.0, (0.0, 100.0)),
        (0.3, 19.6, (0.0, 20.0)),
        (-4.3, 4.3, (-4.5, 4.5)),
        (41.2e-6, 47.7e-6, (41e-6, 48e-6)),
        (1013.0, 1013.2, (1013.0, 1013.2)),
        (-90.0, 0.0, (-90.0, 0.0)),
        (0.0, 21.0, (0.0, 22.0)),
        (-7.0, 35.0, (-10.0, 35.0)),
        (1.0, 21.0, (1.0, 21.0)),
        (1.3, 19.2, (1.0, 20.0)),
        (3.1, 33.1, (2.0, 34.0)),
        (6.1, 66.1, (5.0, 70.0)),
        (13.0, 133.0, (10.0, 140.0)),
    ],
)
def test_limits_are_rounded_outwards_to_steps_of_one_two_or_five(low, high, expected):
    assert nice_limits(low, high) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("value, wide", [(0.0, 0.05), (5.0, 5e-7), (-48e-6, 5e-12), (1e6, 0.05)])
def test_a_flat_field_has_one_step_of_a_millionth_of_its_value(value, wide):
    """Divided by twenty and rounded like any other; of one where it is nothing."""
    low, high = nice_limits(value, value)
    assert low == pytest.approx(value, abs=1e-3 * wide) and high - low == pytest.approx(
        wide, rel=1e-3, abs=0.0
    )


def test_levels_are_the_formula_in_every_row():
    """1 + round(97 (v − low)/(high − low)) from 1 to 98, and −1 where nothing is known."""
    rng = np.random.default_rng(0)
    values, known = rng.uniform(-30.0, 130.0, (75, 9)), rng.random((75, 9)) < 0.7
    values[0, 0], values[74, 8], known[0, 0], known[74, 8] = 1e9, -1e9, True, True
    expected = np.clip(np.rint(1 + 97 * (values + 20.0) / 100.0), LOWEST, HIGHEST)
    assert np.array_equal(
        levels(values, known, -20.0, 80.0), np.where(known, expected, UNKNOWN).astype(np.int8)
    )
    assert levels(np.array([[0.0, 50.0, 100.0]]), np.ones((1, 3), bool), 0.0, 100.0).tolist() == [
        [1, 50, 98]
    ]


def test_limits_of_a_map_are_those_of_what_is_known():
    grid = types.SimpleNamespace(
        mean=torch.tensor([[3.0, 17.0, 900.0]]),
        stddev=torch.tensor([[1.0, 1.9, 50.0]]),
        known=torch.tensor([[True, True, False]]),
    )
    assert field_limits(grid) == pytest.approx(Limits(3.0, 17.0, 0.0, 1.9))
    grid.known[:] = False
    assert field_limits(grid) is None

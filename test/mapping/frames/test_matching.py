"""Where a drive lies on another one's field: the log likelihood of every shift, one by one."""

import itertools
import math

import numpy as np
import pytest
import torch

from gp_mapping.mapping.frames.matching import Surface, candidates

STEP, LENGTH, NOISE = 0.5, 2.0, 0.1
ABOUT = np.array([4.0, -1.0])


def told(field, cells, values, shift):
    """−½ (S₂ − S₁²/S₀ + Σ log((v + σ²)/(1 + σ²))); beyond the lattice m = 0 and v = 1."""
    noise = NOISE + 5.0 / 18.0 * (STEP / LENGTH) ** 2
    mean, variance = np.zeros(len(cells)), np.ones(len(cells))
    for k, (i, j) in enumerate(cells + shift):
        if 0 <= i < field.mean.shape[0] and 0 <= j < field.mean.shape[1]:
            mean[k], variance[k] = field.mean[i, j], field.variance[i, j]
    weight, errors = 1.0 / (variance + noise), values - mean
    least = weight @ errors**2 - (weight @ errors) ** 2 / weight.sum()
    return -0.5 * (least + np.log((variance + noise) / (1.0 + noise)).sum())


def test_the_two_best_shifts_of_a_direction_are_those_of_the_formula():
    """The second one is no neighbour of the first; a shift to before the lattice is none to its end."""
    chance = np.random.default_rng(2)
    field = Surface(
        np.array([1.0, 2.0]),
        STEP,
        chance.normal(size=(11, 9)),
        chance.uniform(0.05, 1.0, (11, 9)),
    )
    cells = np.array([(-2, -1), (-1, 2), (0, 0), (1, -2), (2, 1)])
    values = np.array([0.5, -1.0, 2.0, -2.0, 0.5])
    x, y = torch.from_numpy(ABOUT + STEP * cells), torch.from_numpy(values + 7.0)[:, None]
    found = list(itertools.islice(candidates(field, x, y, NOISE, LENGTH), 2))

    reach = math.ceil(math.sqrt(5.0))
    shifts = list(itertools.product(range(-reach, 11 + reach + 1), range(-reach, 9 + reach + 1)))
    by_shift = {shift: told(field, cells, values, np.array(shift)) for shift in shifts}
    best = max(by_shift, key=by_shift.__getitem__)
    others = [s for s in shifts if max(abs(s[0] - best[0]), abs(s[1] - best[1])) > 3]
    for (value, moved), shift in zip(found, (best, max(others, key=by_shift.__getitem__))):
        assert value == pytest.approx(by_shift[shift]) and moved.yaw == 0.0
        middle = field.low + STEP * np.array(shift)
        assert np.allclose([moved.x, moved.y], middle - ABOUT)

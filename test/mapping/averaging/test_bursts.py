"""Gross errors are rare: where too many samples lie far from others they are what there is."""

import math

import numpy as np
import pytest

from gp_mapping.mapping.averaging.bursts import Bursts
from gp_mapping.mapping.cells import CellAverager
from gp_mapping.mapping.notes.gross import bursts_note


def told(values, cell=2) -> Bursts:
    """Of a sensor whose cells have so many samples."""
    bursts = Bursts()
    for i in range(0, len(values), cell):
        bursts.add(list(values[i : i + cell]), float(i), 1e-9)
    return bursts


def of(kind: str, seed: int, n=600) -> np.ndarray:
    """A slow field with white noise of one, and what comes beside it."""
    rng = np.random.default_rng(seed)
    y = 30.0 * np.sin(np.arange(n) / 25.0) + rng.standard_normal(n)
    if kind.startswith("errs"):  # so often in a hundred, up and down
        y += np.where(rng.random(n) < float(kind[4:]) / 100, 100.0 * rng.standard_normal(n), 0.0)
    elif kind.startswith("gusts"):  # up, by amounts that differ
        y += np.where(rng.random(n) < float(kind[5:]) / 100, 40.0 * rng.exponential(size=n), 0.0)
    elif kind == "in a row":  # errors come six at a time, one sample in twenty
        for i in np.flatnonzero(rng.random(n) < 0.05 / 6):
            y[i : i + 6] += 100.0 * rng.standard_normal(len(y[i : i + 6]))
    elif kind == "edges":
        y += 50.0 * (np.arange(n) // 20 % 2)
    elif kind == "exact":
        y = 30.0 * np.sin(np.arange(n) / 4.0)
    elif kind == "tails":
        y += 2.0 * rng.standard_t(3, n)
    return y


@pytest.mark.parametrize("kind", ["gusts35", "gusts45", "errs40"])
def test_many_samples_far_from_others_are_no_errors(kind):
    for seed in range(4):
        bursts = told(of(kind, seed))
        assert bursts.count > 300


@pytest.mark.parametrize(
    "kind", ["white", "errs5", "errs10", "gusts10", "in a row", "edges", "exact", "tails"]
)
def test_errors_edges_and_smooth_values_are_no_bursts(kind):
    for seed in range(4):
        bursts = told(of(kind, seed))
        assert not bursts.now and not bursts.count


def test_a_few_are_not_spoken_of():
    assert bursts_note(99, 1.0) == []
    (text,) = bursts_note(100, 1.0)
    assert text.startswith("100 measurements (the newest at stamp 1.0)")


def test_what_comes_in_gusts_stays_in_its_cells_with_the_noise_that_it_has():
    """A sensor that tells of no gas for a while, and then comes into a plume: 30 samples in a hundred."""
    rng = np.random.default_rng(0)
    n = 800
    y = 0.3 * np.abs(rng.standard_normal(n))
    y[400:] += np.where(rng.random(400) < 0.3, 20.0 * rng.exponential(size=400), 0.0)
    cells, total = CellAverager(0.1, 1.0), 0.0
    for i, value in enumerate(y):
        closed = cells.add([0.06 * i, 0.0], [float(value)], 0.5 * i)
        total += 0.0 if closed is None else float(closed.count.sum())
    assert cells.bursts.count > 300
    # those that came before it was known
    assert cells.gross <= 15 and total + cells.gross >= n - 3, "each is in a cell, or counted"
    assert math.sqrt(cells.white_variance) > 4.0

    again = CellAverager(0.1, 1.0)
    again.load_state_dict(cells.state_dict())
    assert again.bursts.state_dict() == cells.bursts.state_dict()
    cells.begin_pass()
    assert cells.bursts.now, "it is the same sensor, after a break"

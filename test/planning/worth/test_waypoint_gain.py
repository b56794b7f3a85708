"""The gain of a line is that of its measurements, and its gradient is what moving waypoints changes."""

import numpy as np
import pytest
import torch
from test_plan import problem_in

from gp_mapping.planning.worth.path_value import Visits
from gp_mapping.planning.worth.waypoint_gain import WaypointGain

COUNTS = np.array([4, 2, 7, 1])  # measurements of the pieces of the line below, by the step


@pytest.fixture
def scene():
    """A problem, a step (m), and a line of four pieces none of which is a whole number of steps."""
    problem = problem_in(4, 60, 200)
    step = 0.6 * problem.travel.step
    headings = np.array([0.3, 1.4, 2.9, 4.4])
    pieces = ((COUNTS - 0.5) * step)[:, None] * np.stack([np.cos(headings), np.sin(headings)], 1)
    x = problem.position + np.concatenate([np.zeros((1, 2)), np.cumsum(pieces, 0)])
    return problem, step, x


def test_a_line_gains_what_its_measurements_gain(scene):
    """In the middle of equal parts; each as noisy as it stands for less of the way than travel.step."""
    problem, step, x = scene
    places, weights, scale = [], [], []
    for a, b, count in zip(x, x[1:], COUNTS):
        at = a + (b - a) * ((np.arange(count) + 0.5) / count)[:, None]
        found = problem.travel.interpolation_at(at)
        places.append(found[0])
        weights.append(found[1])
        scale.append(np.full(count, problem.travel.step * count / np.hypot(*(b - a))))
    visits = Visits(*(torch.from_numpy(np.concatenate(part)) for part in (places, weights, scale)))
    expected = float(problem.value.gains([visits])[0].sum())
    gain = WaypointGain(problem.value, problem.travel, step)(x).gain
    assert gain == pytest.approx(expected, rel=1e-8)


def test_the_gradient_is_what_small_moves_change(scene):
    problem, step, x = scene
    gain_of, small = WaypointGain(problem.value, problem.travel, step), 1e-6
    found = gain_of(x).gradient
    for i in np.ndindex(x.shape):
        by = np.zeros_like(x)
        by[i] = small
        change = (gain_of(x + by).gain - gain_of(x - by).gain) / (2.0 * small)
        assert found[i] == pytest.approx(change, rel=1e-4, abs=1e-5 * np.abs(found).max())


def test_a_piece_without_length_changes_nothing(scene):
    problem, step, x = scene
    gain_of = WaypointGain(problem.value, problem.travel, step)
    twice = gain_of(np.insert(x, 2, x[2], axis=0))
    assert twice.gain == pytest.approx(gain_of(x).gain, rel=2e-3)
    assert np.isfinite(twice.gradient).all()

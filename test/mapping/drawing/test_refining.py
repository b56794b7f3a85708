"""A change is evaluated where it has to be; what interpolation misses elsewhere is told."""

import numpy as np
import pytest

from gp_mapping.mapping.drawing.refining import refine

ROWS, COLUMNS = np.meshgrid(np.arange(90), np.arange(110), indexing="ij")
TOLERANCE = 0.00125
NOWHERE = np.zeros(ROWS.shape, dtype=bool)
VARIANCE = np.full((1, *ROWS.shape), 1.0)


def bump(row: float, column: float, width: float) -> np.ndarray:
    """A change of mean with its middle at a point, as far as one sample reaches."""
    return np.exp(-((ROWS - row) ** 2 + (COLUMNS - column) ** 2) / (2 * width**2))


def refined(change, most=10**9, near=NOWHERE, close=NOWHERE, variance=VARIANCE):
    """The change of the mean (that of the variance is a tenth less), and where it was evaluated."""
    asked = []

    def evaluate(rows, columns):
        asked.extend(zip(rows.tolist(), columns.tolist()))
        return change[rows, columns, None], -0.1 * change[rows, columns, None]

    found = refine(evaluate, variance, 0.04, near, close, 12.0, TOLERANCE, most)
    assert len(asked) == len(set(asked)), "no point is evaluated twice"
    return found, len(asked)


def errors(found, change) -> np.ndarray:
    """Errors of mean and stddev at all points, the larger one."""
    after = 1.0 + found.variance[0]
    mean = np.abs(found.mean[0] - change) / np.sqrt(after + 0.04)
    return np.maximum(mean, 0.5 * np.abs(found.variance[0] + 0.1 * change) / after)


@pytest.mark.parametrize("edge", [False, True])
def test_a_smooth_change_is_found_from_few_points(edge):
    change = 0.5 * bump(*((2, 108) if edge else (40, 55)), 12.0)
    found, asked = refined(change)
    assert asked == found.evaluations < 0.15 * change.size
    assert errors(found, change).max() < 0.003 and found.error.max() <= TOLERANCE


@pytest.mark.parametrize("most", [0, 10**9])
def test_where_it_was_evaluated_it_is_what_was_told_and_a_cubic_is_so_everywhere(most):
    """Of a cubic each interpolation is exact, at the edges as within; of noise none is."""
    row, column = (ROWS - 40.0) / 50.0, (COLUMNS - 50.0) / 60.0
    cubic = 0.02 * (row**3 - 2.0 * row * column**2 + column**3 + row - 1.0)
    assert errors(refined(cubic, most=most)[0], cubic).max() < 1e-12

    noise, asked = np.random.default_rng(0).normal(0.0, 0.1, ROWS.shape), []

    def evaluate(rows, columns):
        asked.append((rows, columns))
        return noise[rows, columns, None], 0.0 * noise[rows, columns, None]

    found = refine(evaluate, VARIANCE, 0.04, NOWHERE, NOWHERE, 12.0, TOLERANCE, most)
    rows, columns = (np.concatenate(part) for part in zip(*asked))
    np.testing.assert_allclose(found.mean[0, rows, columns], noise[rows, columns], atol=1e-12)
    assert not found.error[rows, columns].any() and len(rows) == found.evaluations


def test_where_it_is_not_smooth_it_is_evaluated_on_finer_grids():
    """A strip along which another tile takes over: the change has kinks there."""
    ramp = 0.05 * np.clip((COLUMNS - 47) / 12.0, 0.0, 1.0)
    found, asked = refined(ramp)
    error = errors(found, ramp)
    assert error.max() < 0.003 and (error - found.error).max() < 2.0 * TOLERANCE
    assert asked < 0.3 * ramp.size


def test_without_the_work_the_estimate_says_what_is_left():
    """The largest errors come first."""
    change = 0.5 * bump(40, 55, 3.0) + 0.05 * bump(70, 20, 3.0)
    whole, asked = refined(change, near=bump(40, 55, 9.0) > 0.1)
    part, fewer = refined(change, most=asked // 3, near=bump(40, 55, 9.0) > 0.1)
    base = 15 * 12 - 15  # nodes of the two coarsest grids, which are evaluated in any case
    assert fewer <= asked // 3 + 200 and base < fewer < asked
    assert whole.error.max() <= TOLERANCE < part.error.max()
    worst = np.unravel_index(errors(part, change).argmax(), change.shape)
    assert part.error[worst] > 0.5 * errors(part, change).max() > TOLERANCE
    assert errors(part, change).max() < errors(refined(change, most=0)[0], change).max()


def test_close_to_a_sample_every_point_is_evaluated():
    """A valley between all nodes would be missed."""
    narrow = bump(41, 57, 0.4)
    close = bump(41, 57, 3.0) > 0.5
    assert errors(refined(narrow)[0], narrow).max() > 0.5
    found, _ = refined(narrow, close=close)
    assert errors(found, narrow)[close].max() == 0.0 and not found.error[close].any()


def test_errors_are_those_of_the_variance_that_is_left():
    """Where the data have left little of the variance, a small error is a large part of it."""
    fall = 0.999 * bump(41, 55, 10.0)

    def evaluate(rows, columns):
        return 0.0 * fall[rows, columns, None], -fall[rows, columns, None]

    found = refine(evaluate, VARIANCE, 0.04, NOWHERE, NOWHERE, 12.0, TOLERANCE, 10**9)
    left = (1.0 + found.variance[0]) / (1.0 - fall)
    assert fall.max() == 0.999 and np.abs(np.sqrt(left) - 1.0).max() < 0.01


def test_the_largest_errors_come_first():
    large, small = bump(40, 53, 3.0), bump(69, 21, 3.0)
    near = (large > 0.01) | (small > 0.01)
    _, whole = refined(0.5 * large + 0.1 * small, near=near)
    part, _ = refined(0.5 * large + 0.1 * small, near=near, most=6 * (whole - 165) // 10)
    assert part.error[large > 0.5].max() <= TOLERANCE < part.error[small > 0.5].max()


def test_a_lattice_of_few_points_is_not_refined():
    few = np.zeros((12, 40), dtype=bool)
    told = refine(
        lambda rows, columns: None, np.ones((1, 12, 40)), 0.04, few, few, 1.5, TOLERANCE, 10**9
    )
    assert told is None

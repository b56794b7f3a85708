"""What is remembered of errors and of differences between samples, step by step by its formula."""

import math

import numpy as np
import pytest
from patches import sums

from gp_mapping.mapping.scoring.change import ChangeDetector
from gp_mapping.mapping.scoring.neighbours import Spread, noise_squares

SIZE = 0.5  # m


def nats(square: float) -> float:
    """What a cell adds to the sum: nine times the variance against what is predicted."""
    return 0.5 * min(square, 25.0) * (1.0 - 1.0 / 9.0) - 0.5 * math.log(9.0)


def visit(detector, errors, start, x=0.2, variance=4.0):
    """Cells a metre of the path apart; the sum that is left there, in its threshold's fractions."""
    for k, error in enumerate(errors):
        found = detector.add([x, x], error, variance, 7.0, start + 0.1 * k)
    left = [part for at, _, part in sums(detector) if at == 0.25]
    return found, (left[0] if left else 0.0)


def test_a_patch_sums_what_its_errors_say_and_names_their_mean():
    """Also of several visits; a sum that falls below 0 begins anew, with its mean."""
    detector = ChangeDetector(SIZE)
    assert visit(detector, [1.0, -0.5], 0.0) == (None, 0.0)
    _, left = visit(detector, [6.0, 8.0], 1.0)
    assert left == pytest.approx((nats(9.0) + nats(16.0)) / 30.0)
    _, left = visit(detector, [2.0], 1.3)
    assert left == pytest.approx((nats(9.0) + nats(16.0) + nats(1.0)) / 30.0)
    found, left = visit(detector, [12.0, 14.0], 1.5)
    assert found is None and left > 0.8, "one cell counts for no more than 25"
    found, left = visit(detector, [12.0], 1.8)
    assert found.error == pytest.approx((6.0 + 8.0 + 2.0 + 12.0 + 14.0 + 12.0) / 6) and left == 0.0
    assert (found.x, found.y, found.stamp) == (0.2, 0.2, 7.0)


def test_what_earlier_visits_have_shown_is_usual():
    """(5 + Σ q) / (5 + n) of n visits, q being 25 at most; of more than twenty the oldest fade."""
    for visits, errors in ((1, [6.0, 2.0]), (6, [6.0, 2.0]), (25, [6.0, 2.0]), (2, [60.0, 60.0])):
        detector = ChangeDetector(SIZE)
        expected_sum, count = 0.0, 0.0
        for k in range(30):
            told = [2.0, 2.0] if k < 30 - visits else errors
            visit(detector, told, 100.0 * k)
            detector.load_state_dict(detector.state_dict())
            q = min(sum(each**2 / 4.0 for each in told) / 2.0, 25.0)
            keep = min(1.0, 20.0 / (count + 1.0))
            expected_sum, count = keep * (expected_sum + q), keep * (count + 1.0)
        table = detector.state_dict()
        table["tiles"][0, 2] = 0.0  # the sum so far
        detector.load_state_dict(table)
        assert count == pytest.approx(20.0)
        usual = max(1.0, (5.0 + expected_sum) / 25.0)
        _, left = visit(detector, [math.sqrt(4.0 * 10.0 * usual)], 1e6)
        assert left == pytest.approx(nats(10.0) / 30.0)


def test_a_visit_ends_after_four_sides_elsewhere_and_one_cell_is_counted_where_it_stands():
    for away, visits in ((1.9, 0.0), (2.1, 1.0)):
        detector = ChangeDetector(SIZE)
        visit(detector, [1.0], 0.0)
        visit(detector, [1.0], away)
        row = detector.state_dict()["tiles"][0].tolist()
        assert row[2 + 3] == visits and row[2 + 5] == 2.0 - visits
    for step, cells in ((0.009, 1.0), (0.011, 2.0)):
        detector = ChangeDetector(SIZE)
        visit(detector, [9.0], 1.0)
        visit(detector, [9.0], 1.0 + step)
        assert detector.state_dict()["tiles"][0].tolist()[2 + 5] == cells
    detector = ChangeDetector(SIZE)
    visit(detector, [1.0], 5.0)
    visit(detector, [1.0], 0.0)  # the path begins anew
    assert detector.state_dict()["tiles"][0].tolist()[2 + 3] == 1.0


def test_the_patch_that_was_left_longest_ago_is_dropped(monkeypatch):
    monkeypatch.setattr("gp_mapping.mapping.scoring.change._PATCHES", 3)
    detector = ChangeDetector(SIZE)
    for k, x in enumerate((0.2, 0.7, 1.2, 0.2, 1.7)):
        detector.add([x, 0.2], 9.0, 1.0, 0.0, float(k))
    assert {round(x, 2) for x, *_ in sums(detector)} == {0.25, 1.25, 1.75}


# --- differences of samples -----------------------------------------------------------------------
def test_squares_fade_by_a_thousandth():
    """The mean of all, the newest of full weight; half of it is the variance, from ten on."""
    spread = Spread(robust=False)
    for k in range(9):
        spread.add([float(k)], False, math.inf)
    assert spread.variance == 0.0
    for k in range(9, 14):
        spread.add([float(k), 1.0], False, math.inf)
    squares = [*map(float, range(9)), *(v for k in range(9, 14) for v in (float(k), 1.0))]
    weights = [0.999 ** (len(squares) - 1 - k) for k in range(len(squares))]
    mean = sum(w * v for w, v in zip(weights, squares)) / sum(weights)
    assert spread.variance == pytest.approx(0.5 * mean)
    assert spread.count == pytest.approx(sum(weights))


def test_of_the_first_nine_cells_wild_ones_do_not_count():
    """More than 25 times the lower quartile of their means."""
    spread = Spread()
    for squares in ([1.0, 1.0], [24.0, 24.0], [2.0, 2.0], [60.0, 60.0], [1.0, 1.0]):
        spread.add(squares, False, math.inf)
    assert spread.sum / spread.count == pytest.approx((1 + 24 + 2 + 1) / 4, rel=0.02)
    for _ in range(4):
        spread.add([1.0, 1.0], False, math.inf)
    assert spread.count == pytest.approx(2 * 8, rel=0.02)
    usual = spread.variance
    spread.add([1e3 * usual, 0.0], False, math.inf)  # counts as 25 times what is usual
    assert spread.sum == pytest.approx(2 * usual * 16 + 2 * 50.0 * usual, rel=0.05)


def test_where_a_cell_cannot_tell_a_wild_square_the_newest_ones_do():
    """Beyond 25 times the typical one it counts as that; the resolution is no spike."""
    spread = Spread()
    for _ in range(9):
        spread.add([1.0], False, math.inf)
    spread.add([1e9], True, math.inf)
    assert spread.count == pytest.approx(9, rel=0.02), "nothing is typical yet"
    spread.note([0.4549] * 12)
    assert spread.typical(math.inf) == pytest.approx(0.5) and spread.typical(2.0) == 2.0
    before = spread.sum
    spread.add([1e9], True, math.inf)
    assert spread.sum == pytest.approx(0.999 * before + 25.0)
    spread.note([3.0] * 52)
    assert spread.typical(math.inf) == pytest.approx(1.5 / 0.4549)


def test_the_reweighted_scale_holds_the_tails_of_the_noise_but_no_gross_errors():
    """Of readings interpolated to a higher rate, say, most squares are small."""
    for unit in (1e-12, 1.0, 400.0):
        spread, errors = Spread(), np.zeros(51, bool)
        squares = unit * np.where(np.arange(51) % 17 < 12, 0.1, 2.0)
        spread.note(squares.tolist())
        assert spread.reweighted(math.inf) == pytest.approx(0.5 * squares.mean())
        assert spread.typical(math.inf) == pytest.approx(0.05 * unit / 0.4549)
        errors[::5] = True
        spread.note(np.where(errors, 9.0 * unit, squares).tolist())
        assert spread.reweighted(math.inf) == pytest.approx(0.5 * squares[~errors].mean())
        assert spread.reweighted(20.0 * unit) >= spread.typical(20.0 * unit)
    assert Spread().reweighted(1.0) is None


@pytest.mark.parametrize("count", [3, 2000])
def test_neighbours_tell_the_noise_and_nothing_of_a_slope(count):
    """Samples at uneven times on a steep line: what one differs from between its two neighbours."""
    rng = np.random.default_rng(0)
    stamp = np.cumsum(rng.uniform(0.1, 1.0, count))
    line = np.stack([1e3 * stamp, -7e3 * stamp], 1)
    assert max(noise_squares(line, stamp)) < 1e-12
    if count > 3:
        told = noise_squares(line + rng.normal(0.0, 3.0, line.shape), stamp)
        assert np.mean(told) == pytest.approx(2.0 * 9.0, rel=0.1)

"""What a change is compared with: how wrong the map has been on earlier visits of a tile, by the formula."""

import math

import pytest
from patches import sums

from gp_mapping.mapping.scoring.change import ChangeDetector

CELL, TILE = 0.1, 0.5  # m
AWAY = 4.0 * TILE  # m of way elsewhere: the next cell is another visit


def visits(errors: list[list[float]]) -> float:
    """The sum of log likelihood ratios in a tile after visits with these errors, nats; predicted is a variance of 2."""
    detector, length = ChangeDetector(TILE), 0.0
    for visit in errors:
        for i, error in enumerate(visit):
            assert detector.add([0.2, 0.2], error, 2.0, 0.0, length + i * CELL) is None
        length += 10.0 * AWAY
    return sums(detector)[0][2] * 30.0


def ratio(square: float, usual: float) -> float:
    """Of nine times the variance against the predicted one, for a squared error in predicted variances."""
    return 0.5 * square / usual * (1.0 - 1.0 / 9.0) - 0.5 * math.log(9.0)


def test_a_tile_is_as_wrong_as_its_earlier_visits_were_and_as_five_that_fit():
    # mean squared errors of 8 (of two cells) and of 5: the visit that goes on is not among them
    earlier = [[4.0, 4.0], [3.0, 3.0, 0.0, 0.0, 4.0, 4.0, 0.0]]
    first = 2.0 * ratio(8.0, 1.0)
    usual = (5.0 + 8.0) / 6.0
    second = first
    for error in earlier[1]:
        second = max(0.0, second + ratio(error * error / 2.0, usual))
    usual = (5.0 + 8.0 + 50.0 / 2.0 / 7.0) / 7.0
    third = max(0.0, second + ratio(12.5, usual)) + ratio(18.0, usual)
    assert visits([*earlier, [5.0, 6.0]]) == pytest.approx(third)


def test_a_visit_counts_as_wrong_as_a_change_too_small_for_an_alarm_and_no_more():
    # 50 predicted variances in one cell: 25 of them count for an alarm, and as usual
    usual = (5.0 + 25.0) / 6.0
    assert visits([[10.0], [6.0]]) == pytest.approx(ratio(25.0, 1.0) + ratio(18.0, usual))

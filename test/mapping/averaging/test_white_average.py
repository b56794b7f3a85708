"""The white variance over recent cells: what few absurd cells may do to it, and how it fades."""

from statistics import median_low

import numpy as np
import pytest

from gp_mapping.mapping.averaging.rounding import Rounding
from gp_mapping.mapping.averaging.white_average import WhiteAverage


def test_it_is_a_fading_mean_of_both():
    average = WhiteAverage(robust=False)
    assert average.single == average.averaged == 0.0
    average.add(2.0, 4, stated=False)
    average.add(3.0, 1, stated=False)
    assert average.single == pytest.approx((0.99 * 2.0 + 3.0) / 1.99)
    assert average.averaged == pytest.approx((0.99 * 0.5 + 3.0) / 1.99)
    assert not average.is_stated


def test_of_what_is_stated_first_the_median_counts_and_later_none_for_much_more():
    average, told = WhiteAverage(robust=True), [1e6, 1.0, 2.0, 3.0, 1.0, 2.0, 1e9, 2.0, 2.0]
    for white in told:
        average.add(white, 2, stated=True)
    assert average.is_stated
    assert average.single == median_low(told) == 2.0 and average.averaged == 1.0
    average.add(1e9, 2, stated=True)
    assert average.single == pytest.approx((0.99 * 18.0 + 25.0 * 2.0) / (0.99 * 9.0 + 1.0))


def test_measured_first_cells_are_bounded_by_the_newest_of_them():
    average = WhiteAverage(robust=True)
    average.add(1e6, 1, stated=False)
    assert average.single == 1e6
    average.add(1.0, 1, stated=False)
    for of in (average.single, average.averaged):
        assert of == pytest.approx((0.99 * 25.0 + 1.0) / 1.99)
    for _ in range(7):
        average.add(1.0, 1, stated=False)
    nine = average.single
    average.add(1e6, 1, stated=False)  # the first nine are over
    assert nine < 25.0 and average.single > 1e4


def test_it_is_forgotten_but_for_what_was_stated():
    average = WhiteAverage(robust=True)
    average.add(5.0, 1, stated=False)
    average.forget()
    assert average.single == 0.0
    average.add(2.0, 1, stated=False)
    assert average.single == 2.0, "the forgotten cell is none of the first"


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("before", [3, 12])
def test_it_goes_on_where_it_was_saved(stated, before):
    one = WhiteAverage(robust=True)
    for k in range(before):
        one.add(1.0 + k, k + 1, stated)
    other = WhiteAverage(robust=True)
    other.load_state_dict(one.state_dict())
    for k in range(9):
        one.add(2.0 + k, 3, stated)
        other.add(2.0 + k, 3, stated)
    assert (one.single, one.averaged) == (other.single, other.averaged)
    assert one.state_dict() == other.state_dict()

    other.load_state_dict({})  # of an older map: its first cells are over
    other.add(1.0, 1, False)
    other.add(100.0, 1, False)
    assert other.single == pytest.approx((0.99 + 100.0) / 1.99)


def said(y: np.ndarray) -> tuple[list[float], bool, int]:
    """A cell's first sample, whether all are as it is, and how many they are."""
    return y[0].tolist(), bool((y == y[0]).all()), len(y)


def test_what_is_known_of_rounding_goes_on_where_it_was_saved():
    one, other = Rounding(), Rounding()
    cells = [np.full((3, 1), value) for value in (20.0, 20.0, 20.5, 20.5, 20.5, 20.0)]
    for y in cells[:5]:
        one.note_steps(y)
        one.variance(*said(y))
    other.load_state_dict(one.state_dict())
    assert one.variance(*said(cells[5])) == other.variance(*said(cells[5])) > 0.0
    assert one.variance(*said(cells[5])) == other.variance(*said(cells[5])) == 2.0 * 0.5**2 / 12.0
    assert one.state_dict() == other.state_dict()
    other.load_state_dict({})
    assert other.state_dict() == Rounding().state_dict()

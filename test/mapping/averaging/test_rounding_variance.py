"""What a sensor that rounds adds to the variance of cells that tell one number: m q²/12, by the formula."""

import pytest

from gp_mapping.mapping.cells import CellAverager

STATED = 0.01
ROWS = 3


def added(levels: list[list[float]]) -> list[float]:
    """By which cells with these rows exceed the stated variance, of one row."""
    averager, out, k = CellAverager(0.1, 1.0), [], 0
    for rows in levels:
        for value in rows:
            averager.add([0.01 * k, 0.0], [value], 0.1 * k, STATED)
            k += 1
        cell = averager.flush()
        out.append((float(cell.sensor_variance) - STATED) / float(cell.count))
    return out


def test_the_longer_a_number_stays_the_more_its_cells_err_together_until_there_is_another():
    told = [20.0] * 2 + [20.5] * 3 + [20.0] * 2 + [21.0]
    # a number stays for one cell to begin with; each that ends counts a tenth in the usual stay
    first = 1.0 + 0.1 * (2.0 - 1.0)
    second = first + 0.1 * (3.0 - first)
    third = second + 0.1 * (2.0 - second)
    stays = [first, 2.0, 3.0, second, 2.0, third]
    wanted = [0.0, 0.0, *(m * 0.5**2 / 12.0 for m in stays)]  # no step is known before the first
    assert added([[value] * ROWS for value in told]) == pytest.approx(wanted)


def test_a_cell_of_several_numbers_has_none_of_it_and_the_next_one_begins_anew():
    cells = [[20.0] * ROWS, [20.5] * ROWS, [20.5] * ROWS, [20.5, 21.0, 20.5], [20.5] * ROWS]
    *_, second, mixed, after = added(cells)
    assert second == pytest.approx(2.0 * 0.5**2 / 12.0) and mixed == 0.0
    assert 0.5**2 / 12.0 <= after < 1.5 * 0.5**2 / 12.0


def test_single_samples_show_rounding_where_a_number_comes_again():
    """One and a half in a row on average; numbers that all differ are those of a fine sensor."""
    twice = added([[20.0 + 0.5 * (k // 2 % 3)] for k in range(60)])
    usual = 2.0 - 0.9 ** (29 - 1)  # of 29 numbers that have ended, from 1 on
    assert twice[-1] == pytest.approx(2.0 * 0.5**2 / 12.0)
    assert twice[-2] == pytest.approx(usual * 0.5**2 / 12.0, rel=0.1) and twice[3] == 2 * 0.25 / 12
    fine = added([[20.0 + 0.5 * (k % 3)] for k in range(60)])
    assert not any(fine)

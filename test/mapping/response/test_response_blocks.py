"""Cells of a slow sensor as rows, blocks of them, and what two blocks say of the field."""

import math

import pytest
import torch

from gp_mapping.mapping.response import blocks


def test_cells_come_back_from_a_table_as_they_went_and_one_by_one_as_samples():
    rows = [
        blocks.Row((1.0, 2.0), 3.0, 4.0, 5.0, 6.0, 7, 8.0, 9.0),
        blocks.Row((1.5, 1.0), 3.5, 4.5, 5.5, -1.0, 7, 8.5, 9.5),
    ]
    assert blocks.rows_of_table(blocks.table_of(rows)) == rows
    assert blocks.rows_of_table(blocks.table_of([])) == []
    cell = blocks.as_samples(rows[0], rows[1])
    for name, told in (
        ("x", [[1.5, 1.0]]),
        ("y", [[3.5]]),
        ("stamp", [4.5]),
        ("count", [1.0]),
        ("sensor_variance", [5.5]),
        ("velocity", [[1.0, -2.0]]),
    ):
        assert getattr(cell, name).tolist() == told, name
    assert cell.position_variance is None
    other = blocks.as_samples(rows[1]._replace(passes=6), rows[0])
    assert other.position_variance.tolist() == [6.0]
    assert other.velocity.tolist() == [[0.0, 0.0]], "it begins a pass"


def test_a_block_lasts_from_half_a_cell_before_its_first_to_half_a_cell_after_its_last():
    first = blocks.Row((1.0, 2.0), 3.0, 4.0, 5.0, 6.0, 7, 1.0, 9.0)
    row = [first._replace(stamp=4.0 + 0.5 * k) for k in range(4)]
    assert blocks.track_of([row, row[:1]]).span.tolist() == [2.0, 0.0]


def test_a_settled_value_says_how_it_changes_with_the_logarithm_of_the_time_constant():
    before = blocks.Row((1.0, 2.0), 3.0, 4.0, 0.1, -1.0, 7, 1.0, 0.0)
    block = before._replace(x=(1.5, 2.0), y=3.7, stamp=5.2)

    def settled(tau, unsure=False):
        return blocks.settled(before, block, tau, 0.0, unsure)

    for tau in (0.5, 2.0, 30.0):
        more, less = (float(settled(tau * math.exp(step)).y) for step in (1e-4, -1e-4))
        assert float(settled(tau, True).response_slope) == pytest.approx((more - less) / 2e-4)
    assert settled(2.0).response_slope is None
    assert float(settled(0.01, True).response_slope) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("tau", [0.4, 2.0, 30.0])
def test_a_settled_value_is_as_blurred_as_the_way_that_it_is_an_average_of(tau):
    """Its weights over that way, by their sum: a fading response since the block before, over a block's length."""
    elapsed, apart, blur, n = 1.2, 0.9, 3.0, 2000
    before = blocks.Row((0.0, 0.0), 3.0, 0.0, 0.1, -1.0, 7, 1.0, 0.0)
    block = before._replace(x=(apart, 0.0), y=3.7, stamp=elapsed)
    sharp, blurred = (
        float(blocks.settled(before, block, tau, each, False).sensor_variance)
        for each in (0.0, blur)
    )
    at = (torch.arange(n, dtype=torch.float64) + 0.5) / n * apart
    weight = torch.exp((at - apart) * elapsed / apart / tau)
    weight /= weight.sum()
    spread = (weight * at.square()).sum() - (weight * at).sum() ** 2 + apart**2 / 12
    assert blurred - sharp == pytest.approx(blur * float(spread) ** 2, rel=1e-4)


def test_a_settled_value_has_the_white_noise_of_both_blocks():
    """(y₂ − a y₁)/(1 − a), a = exp(−Δ/τ), of independent errors."""
    before = blocks.Row((0.0, 0.0), 3.0, 0.0, 0.1, -1.0, 7, 1.0, 0.0)
    block = before._replace(x=(0.5, 0.0), y=3.7, stamp=1.2, variance=0.3)
    told = blocks.settled(before, block, 2.0, 0.0, False)
    a = math.exp(-1.2 / 2.0)
    expected = (block.variance + a**2 * before.variance) / (1.0 - a) ** 2
    assert float(told.sensor_variance) == pytest.approx(expected)
    assert float(told.y) == pytest.approx((3.7 - a * 3.0) / (1.0 - a))


def test_a_block_ends_with_its_step_its_pass_and_its_time():
    """Of cells a tenth of a metre and a second apart: three to a block of .3 m."""
    cells = [blocks.Row((0.1 * k, 0.0), 0.0, float(k), 0.1, -1.0, 1, 1.0, 0.0) for k in range(12)]

    def sizes(rows, step=0.3, most=100):
        return [len(part) for part in blocks.blocks_of(rows, step, most)]

    assert sizes(cells) == [3, 3, 3, 3] and sizes(cells[:10]) == [3, 3, 3, 1]
    assert blocks.blocks_of(cells, 0.3, 100)[1] == cells[3:6]
    assert sizes(cells, most=2) == [3, 3] and sizes([]) == []
    assert blocks.blocks_of(cells, 0.3, 1) == [cells[9:]], "the newest"
    other = [row._replace(passes=2) if k >= 4 else row for k, row in enumerate(cells)]
    assert sizes(other) == [3, 1, 3, 3, 2]
    for back in (0.0, 1.0):  # a stamp that comes again, or goes back
        again = [row._replace(stamp=row.stamp - 1.0 - back) for row in cells[4:]]
        assert sizes([*cells[:4], *again]) == [3, 1, 3, 3, 2]

"""Nodes of a large area: of each connected part of a block the cell that was asked for, however it is found."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage
from scipy.sparse.csgraph import connected_components

from gp_mapping.planning import FreeSpace, PathValue, Problem, Travel
from gp_mapping.planning.area import graph


def random_floor(seed: int) -> FreeSpace:
    """One connected room full of boxes, turned and moved."""
    rng = np.random.default_rng(seed)
    inside = np.ones((47, 61), dtype=bool)
    for _ in range(60):
        i, j = rng.integers(0, 47), rng.integers(0, 61)
        inside[i : i + rng.integers(1, 7), j : j + rng.integers(1, 7)] = False
    inside &= rng.random(inside.shape) > 0.1
    label, _ = ndimage.label(inside)
    largest = label == np.bincount(label[label > 0]).argmax()
    clearance = 0.1 * ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    return FreeSpace((1.0, -2.0), 0.3 * seed, 0.1, 0.0, clearance, largest)


def parts_of(free: FreeSpace, side: int) -> list[list[tuple[int, int]]]:
    """Cells of each part, cell by cell."""
    cells = list(zip(*np.nonzero(free.open)))
    seen, parts = set(), []
    for first in cells:
        if first in seen:
            continue
        pending, part = [first], []
        seen.add(first)
        while pending:
            i, j = pending.pop()
            part.append((i, j))
            for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                to = i + di, j + dj
                if to in seen or not (0 <= to[0] < 47 and 0 <= to[1] < 61 and free.open[to]):
                    continue
                if (to[0] // side, to[1] // side) != (i // side, j // side):
                    continue
                seen.add(to)
                pending.append(to)
        parts.append(part)
    return parts


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_part_of_a_block_has_its_roomiest_cell_and_all_are_joined(seed, monkeypatch):
    monkeypatch.setattr(graph, "_AT_ONCE", 400)  # cells: some rows of blocks at a time
    free = random_floor(seed)
    nodes, side = graph.nodes_of(free, 300)
    assert side > 2

    def merit(cell):
        middle = (side - 1) / 2
        off = np.hypot(cell[0] % side - middle, cell[1] % side - middle) * 0.1
        return min(free.clearance[cell], side * 0.1) - off

    parts = parts_of(free, side)
    expected = [max(sorted(part), key=merit) for part in parts]
    there = free.centres_at(*np.array(expected).T)
    missing = [x for x in there if np.hypot(*(nodes - x).T).min() > 1e-9]
    assert not missing and len(parts) <= 300 and len(nodes) >= len(parts)

    monkeypatch.undo()
    assert np.array_equal(graph.nodes_of(free, 300)[0], nodes), "all rows at once"

    moves = graph.moves_between(free, nodes, side)
    assert connected_components(moves, directed=False)[0] == 1, "a passage was lost"


def test_a_way_up_and_down_an_area_narrower_than_a_block_is_not_lost():
    """The last cell of a row and the first of the next one have successive numbers, and a wall between them."""
    inside = np.ones((61, 5), dtype=bool)
    inside[1::2] = False
    inside[1::4, -1] = inside[3::4, 0] = True
    clearance = 0.1 * ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    free = FreeSpace((0.0, 0.0), 0.0, 0.1, 0.0, clearance, inside)

    nodes, side = graph.nodes_of(free, 24)
    assert side > 5
    moves = graph.moves_between(free, nodes, side)
    assert connected_components(moves, directed=False)[0] == 1


def test_a_robot_that_sees_none_of_few_points_is_told_so_and_not_that_it_has_no_room():
    free = random_floor(0)
    travel, here = Travel(free, 0.3, 40, 2), free.centres()[0]
    value = PathValue(
        *(torch.eye(len(travel)).double() for _ in range(2)), torch.ones(len(travel)).double(), 1.0
    )
    reason = Problem(value, travel, here).obstacle()
    assert re.search(r"sees none of the 1 points .* smaller$", reason), reason
    # the sides of the squares that have a point each, in metres
    side = float(re.search(r"one for each ([0-9.]+) m:", reason)[1])
    assert side == pytest.approx(travel.block * free.resolution, rel=0.05) and side > 1.0
    outside = Problem(value, travel, np.array([900.0, 0.0])).obstacle()
    assert outside.endswith("leaves it no room")


def test_no_way_leads_over_a_corner_that_alone_joins_two_cells():
    """That is why cells are neighbours over their sides only."""
    for seed in range(4):
        free = random_floor(seed)
        rising = free.open[:-1, :-1] & free.open[1:, 1:] & ~free.open[:-1, 1:] & ~free.open[1:, :-1]
        i, j = np.nonzero(rising)
        assert len(i) > 3
        assert not free.sees(free.centres_at(i, j), free.centres_at(i + 1, j + 1)).any()


def test_the_first_part_has_its_passages_too():
    """A room of the first block whose only door leads round a corner into the next one."""
    inside = np.ones((20, 20), dtype=bool)
    inside[:10, 9] = inside[9, :10] = False  # walls about the first block
    inside[0, 9] = True  # and the door, at its far end
    inside[1:10, 10:12] = False
    clearance = 0.1 * ndimage.distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
    free = FreeSpace((0.0, 0.0), 0.0, 0.1, 0.0, clearance, inside)
    nodes, side = graph.nodes_of(free, 8)
    assert side > 2
    moves = graph.moves_between(free, nodes, side)
    assert connected_components(moves, directed=False)[0] == 1, "a passage was lost"


@pytest.mark.parametrize("obstacles", [True, False])
def test_a_move_needs_every_cell_that_it_crosses_and_no_other(obstacles):
    """Steps to the side, over a corner and as a knight in chess, where every second cell is closed.

    It may be closed by an obstacle, or though it has room: where it is no part of the area.
    """
    passable = np.random.default_rng(0).random((30, 30)) < 0.6
    free = FreeSpace.from_passable(passable, (0.0, 0.0), 0.0, 1.0, 0.0, walled=False)
    free = free if obstacles else replace(free, clearance=np.full(passable.shape, 5.0))
    cells = np.argwhere(free.open)
    number = {tuple(cell): i for i, cell in enumerate(cells.tolist())}
    moves = graph.moves_between(free, free.centres(), 1)
    moves = moves + moves.T

    t = np.linspace(0.0, 1.0, 61)[:, None]
    for move in ((0, 1), (1, 0), (1, 1), (1, -1), (1, 2), (1, -2), (2, 1), (2, -1)):
        # the cells that a line touches which is a little wider than none
        aside = 1e-3 * np.array([-move[1], move[0]])
        line = np.concatenate([t * move + aside, t * move - aside])
        crossed = np.unique(np.round(line).astype(int), axis=0)
        for a in cells[::3]:
            b = tuple(a + move)
            if b in number:
                leads = all(tuple(cell) in number for cell in (a + crossed).tolist())
                assert (moves[number[tuple(a)], number[b]] > 0) == leads, (a, move)

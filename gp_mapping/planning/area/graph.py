"""The graph that ways through the survey area lead over: free cells, of a large area one for each block, and moves."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.spatial import cKDTree

from gp_mapping.planning.free_space import FreeSpace

__all__ = ["moves_between", "nodes_of"]

_LONGEST = 2.3  # a knight's move, in cells
_LONGEST_OF_BLOCKS = 2.9  # between cells that stand for blocks


def nodes_of(free: FreeSpace, most: int) -> tuple[np.ndarray, int]:
    """Cells (n, 2) m that the ways lead over, and the side of the blocks that they stand for, in cells.

    Of each block each connected part has one, the roomiest, nearest to its middle: a narrow passage is thinned, never
    lost. Where those of neighbours do not see each other, the corners of the way between them are nodes, too, of which
    there are at most as many again.
    """
    rows, columns = np.nonzero(free.open)
    if len(rows) <= most:
        return free.centres(free.open), 1
    side, links = max(2, int(math.sqrt(len(rows) / most))), _neighbours(free, rows, columns)
    while True:
        chosen, part = _of_blocks(free, rows, columns, links, side)
        count = len(chosen)
        if count <= most:
            chosen = _joined(free, rows, columns, chosen, part, links)
            if len(chosen) <= 2 * most:
                break
        side = max(side + 1, int(side * math.sqrt(count / most)))
    mask = np.zeros_like(free.open)
    mask[rows[chosen], columns[chosen]] = True
    return free.centres(mask), side


def _of_blocks(
    free: FreeSpace, rows: np.ndarray, columns: np.ndarray, links: np.ndarray, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """One of the cells (n,) of each connected part of a block; of each cell its part."""
    block = np.stack([rows, columns]) // side
    same = (block[:, links[0]] == block[:, links[1]]).all(0)
    _, part = connected_components(_linked(links[:, same], len(rows)), directed=False)
    middle = (side - 1) / 2
    off = np.hypot(rows % side - middle, columns % side - middle) * free.resolution
    merit = np.minimum(free.clearance[rows, columns], free.radius + side * free.resolution) - off
    order = np.lexsort((-merit, part))
    first = np.concatenate([[True], np.diff(part[order]) > 0])
    return order[first], part


def _neighbours(free: FreeSpace, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Pairs (2, K) of the open cells that share a side, or a corner that alone joins them and is passable."""
    number = np.full(free.open.shape, -1)
    number[rows, columns] = np.arange(len(rows))
    straight = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
    corners = [(a, d, (b < 0) & (c < 0)), (b, c, (a < 0) & (d < 0))]
    pairs = [
        np.stack([one[both], other[both]])
        for one, other in straight
        for both in [(one >= 0) & (other >= 0)]
    ]
    over = np.concatenate(
        [
            np.stack([one[both], other[both]])
            for one, other, alone in corners
            for both in [(one >= 0) & (other >= 0) & alone]
        ],
        1,
    )
    x = free.centres(free.open)  # row by row, as the cells
    return np.concatenate([*pairs, over[:, free.sees(*x[over])]], 1)


def _joined(
    free: FreeSpace,
    rows: np.ndarray,
    columns: np.ndarray,
    chosen: np.ndarray,
    part: np.ndarray,
    links: np.ndarray,
) -> np.ndarray:
    """The cells `chosen`, one of each part, and between neighbouring parts whose cells do not see each other the way.

    The way goes cell by cell inside one part, over to the other, and inside it; where it turns is a node.
    """
    across = links[:, part[links[0]] != part[links[1]]]
    at = np.stack([rows, columns], 1)
    pair = np.sort(part[across], 0)
    metres = sum(np.hypot(*(at[end] - at[chosen[part[end]]]).T) for end in across)
    order = np.lexsort(
        (metres, pair[1], pair[0])
    )  # of each two parts where the way over is shortest
    first = np.concatenate([[True], (np.diff(pair[:, order], axis=1) != 0).any(0)])[: len(order)]
    ends = across[:, order[first]]
    x = free.centres(free.open)  # row by row, as the cells
    unseen = ends[:, ~free.sees(*x[chosen[part[ends]]])]
    if not unseen.size:
        return np.sort(chosen)

    # from everywhere to the chosen cell of the part, all at once: from one more cell, which leads to all of them
    inside, count = links[:, part[links[0]] == part[links[1]]], len(rows)
    ways = np.concatenate([inside, np.stack([np.full(len(chosen), count), chosen])], 1)
    _, before = breadth_first_order(_linked(ways, count + 1), count, directed=False)
    kept, reached = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    step, new = at[np.minimum(before[:count], count - 1)] - at, np.unique(unseen)
    kept[chosen] = kept[new] = True
    while len(new):
        new = new[~reached[new] & (before[new] < count)]
        reached[new], ahead = True, before[new]
        kept[ahead[(step[new] != step[ahead]).any(1)]] = (
            True  # of a straight part of the way its ends will do
        )
        new = np.unique(ahead)
    return np.flatnonzero(kept)


def _linked(pairs: np.ndarray, count: int) -> csr_matrix:
    """Of pairs (2, K) among so many, as a graph."""
    return csr_matrix((np.ones(pairs.shape[1], dtype=np.int8), tuple(pairs)), (count, count))


def moves_between(free: FreeSpace, nodes: np.ndarray, side: int) -> csr_matrix:
    """Lengths of the moves between nodes that see each other."""
    if len(nodes) < 2:
        return csr_matrix((len(nodes), len(nodes)))
    reach = (_LONGEST if side == 1 else _LONGEST_OF_BLOCKS * side) * free.resolution
    pairs = cKDTree(nodes).query_pairs(reach, output_type="ndarray")
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    length = np.hypot(*(nodes[pairs[:, 0]] - nodes[pairs[:, 1]]).T)
    if side == 1:  # two cells straight on are two moves of one
        step = length / free.resolution
        keep = np.abs(step - 2.0) > 1e-3
        pairs, length = pairs[keep], length[keep]
    seen = free.sees(nodes[pairs[:, 0]], nodes[pairs[:, 1]])
    pairs, length = pairs[seen], length[seen]
    i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
    return csr_matrix((np.concatenate([length, length]), (i, j)), (len(nodes), len(nodes)))

"""The graph of the ways through the survey area: nodes and the moves between them.

Nodes are the free cells, or of a large area one cell for each block.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.spatial import cKDTree

from gp_mapping.planning.free_space import FreeSpace

__all__ = ["moves_between", "nodes_of"]

_LONGEST = 2.3  # cells; a knight's move is √5
_LONGEST_OF_BLOCKS = 2.9  # blocks; between cells that stand for blocks


def nodes_of(free: FreeSpace, most: int) -> tuple[np.ndarray, int]:
    """Choose the cells that the ways lead over.

    Of each block each connected part has one, the roomiest, nearest to the block's middle: a narrow
    passage is thinned, never lost. Where the cells of neighbouring parts do not see each other, the
    corners of the way between them are nodes, too, of which there are at most as many again.

    Args:
        free: the free space.
        most: bound of the nodes, corners not included.

    Returns:
        Nodes (n, 2) m, and the side of the blocks that they stand for, in cells.
    """
    rows, columns = np.nonzero(free.open)
    if len(rows) <= most:
        return free.centres(free.open), 1

    # Blocks grow until both the parts and the corners between them are few enough.
    side, links = max(2, int(math.sqrt(len(rows) / most))), _neighbours(free, rows, columns)
    while True:
        chosen, part = _of_blocks(free, rows, columns, links, side)
        count = len(chosen)
        if count <= most:
            chosen = _joined(free, rows, columns, chosen, part, links)
            if len(chosen) <= 2 * most:
                break
        # The number of parts falls about with the square of the side.
        side = max(side + 1, int(side * math.sqrt(count / most)))

    mask = np.zeros_like(free.open)
    mask[rows[chosen], columns[chosen]] = True
    return free.centres(mask), side


def _of_blocks(
    free: FreeSpace, rows: np.ndarray, columns: np.ndarray, links: np.ndarray, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose one cell of each connected part of a block.

    Returns:
        Indices (n,) of the chosen cells, and of each cell the number of its part.
    """
    block = np.stack([rows, columns]) // side
    same = (block[:, links[0]] == block[:, links[1]]).all(0)
    _, part = connected_components(_linked(links[:, same], len(rows)), directed=False)

    middle = (side - 1) / 2
    off_middle = np.hypot(rows % side - middle, columns % side - middle) * free.resolution
    # Clearance beyond a block's side adds nothing: from there on the middle decides.
    merit = (
        np.minimum(free.clearance[rows, columns], free.radius + side * free.resolution) - off_middle
    )

    order = np.lexsort((-merit, part))
    first = np.concatenate([[True], np.diff(part[order]) > 0])
    return order[first], part


def _neighbours(free: FreeSpace, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return pairs (2, K) of neighbouring open cells.

    They share a side, or a corner that alone joins them and through which the robot can pass.
    """
    number = np.full(free.open.shape, -1)
    number[rows, columns] = np.arange(len(rows))
    straight = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]

    lower_left, lower_right, upper_left, upper_right = (
        number[:-1, :-1],
        number[:-1, 1:],
        number[1:, :-1],
        number[1:, 1:],
    )
    corners = [
        (lower_left, upper_right, (lower_right < 0) & (upper_left < 0)),
        (lower_right, upper_left, (lower_left < 0) & (upper_right < 0)),
    ]

    pairs = [
        np.stack([first[both], second[both]])
        for first, second in straight
        for both in [(first >= 0) & (second >= 0)]
    ]
    diagonal = np.concatenate(
        [
            np.stack([first[both], second[both]])
            for first, second, alone in corners
            for both in [(first >= 0) & (second >= 0) & alone]
        ],
        1,
    )

    x = free.centres(free.open)  # row by row, as the cells
    return np.concatenate([*pairs, diagonal[:, free.sees(*x[diagonal])]], 1)


def _joined(
    free: FreeSpace,
    rows: np.ndarray,
    columns: np.ndarray,
    chosen: np.ndarray,
    part: np.ndarray,
    links: np.ndarray,
) -> np.ndarray:
    """Add nodes between neighbouring parts whose chosen cells do not see each other.

    The way goes cell by cell inside one part, over to the other, and inside it; where it turns is a
    node.

    Args:
        free: the free space.
        rows: (N,) row of each open cell.
        columns: (N,) column of each open cell.
        chosen: (n,) one cell of each part.
        part: (N,) the part of each cell.
        links: (2, K) pairs of neighbouring cells.

    Returns:
        Sorted indices of the cells that are nodes.
    """
    across = links[:, part[links[0]] != part[links[1]]]
    at = np.stack([rows, columns], 1)
    # Of each two parts that touch, the crossing with the shortest way over.
    pair = np.sort(part[across], 0)
    metres = sum(np.hypot(*(at[end] - at[chosen[part[end]]]).T) for end in across)
    order = np.lexsort((metres, pair[1], pair[0]))

    first = np.concatenate([[True], (np.diff(pair[:, order], axis=1) != 0).any(0)])[: len(order)]
    ends = across[:, order[first]]

    x = free.centres(free.open)  # row by row, as the cells
    hidden = ends[:, ~free.sees(*x[chosen[part[ends]]])]
    if not hidden.size:
        return np.sort(chosen)

    # Ways from every cell to the chosen cell of its part, in one search: an extra cell,
    # number `count`, is linked to all chosen ones and is the root.
    inside, count = links[:, part[links[0]] == part[links[1]]], len(rows)
    ways = np.concatenate([inside, np.stack([np.full(len(chosen), count), chosen])], 1)
    _, predecessor = breadth_first_order(_linked(ways, count + 1), count, directed=False)

    kept, reached = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    step, frontier = at[np.minimum(predecessor[:count], count - 1)] - at, np.unique(hidden)
    kept[chosen] = kept[frontier] = True

    # Follow all ways at once; a straight run is kept by its two ends.
    while len(frontier):
        frontier = frontier[~reached[frontier] & (predecessor[frontier] < count)]
        reached[frontier], ahead = True, predecessor[frontier]
        kept[ahead[(step[frontier] != step[ahead]).any(1)]] = True
        frontier = np.unique(ahead)
    return np.flatnonzero(kept)


def _linked(pairs: np.ndarray, count: int) -> csr_matrix:
    """Return the adjacency matrix (count, count) of pairs (2, K)."""
    return csr_matrix((np.ones(pairs.shape[1], dtype=np.int8), tuple(pairs)), (count, count))


def moves_between(free: FreeSpace, nodes: np.ndarray, side: int) -> csr_matrix:
    """Return the lengths of the moves between nodes that see each other.

    Args:
        free: the free space.
        nodes: (n, 2) m.
        side: of the blocks that the nodes stand for, in cells.

    Returns:
        (n, n) symmetric, m.
    """
    if len(nodes) < 2:
        return csr_matrix((len(nodes), len(nodes)))

    reach = (_LONGEST if side == 1 else _LONGEST_OF_BLOCKS * side) * free.resolution
    pairs = cKDTree(nodes).query_pairs(reach, output_type="ndarray")
    # A fixed order of the moves makes equally short ways the same on every machine.
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    length = np.hypot(*(nodes[pairs[:, 0]] - nodes[pairs[:, 1]]).T)

    if side == 1:  # two cells straight on are two moves of one cell
        cells = length / free.resolution
        keep = np.abs(cells - 2.0) > 1e-3
        pairs, length = pairs[keep], length[keep]

    visible = free.sees(nodes[pairs[:, 0]], nodes[pairs[:, 1]])
    pairs, length = pairs[visible], length[visible]
    i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
    return csr_matrix((np.concatenate([length, length]), (i, j)), (len(nodes), len(nodes)))

"""The graph of the ways through the survey area: nodes and the moves between them.

Nodes are the free cells, or of a large area one cell for each block.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import ndimage
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order
from scipy.spatial import cKDTree

from gp_mapping.planning.free_space import FreeSpace

__all__ = ["moves_between", "nodes_of"]

_AT_ONCE = 1_000_000  # cells whose parts are found together: time and memory alone
# A king's and a knight's moves in rows and columns, one for both ways, and the cells that they cut.
_MOVES = {
    (0, 1): (),
    (1, 0): (),
    (1, 1): ((0, 1), (1, 0)),
    (1, -1): ((0, -1), (1, 0)),
    (1, 2): ((0, 1), (1, 1)),
    (1, -2): ((0, -1), (1, -1)),
    (2, 1): ((1, 0), (1, 1)),
    (2, -1): ((1, 0), (1, -1)),
}
_LONGEST = math.sqrt(5.0)  # cells, of these moves
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
    count = int(np.count_nonzero(free.open))
    if count <= most:
        return free.centres(free.open), 1

    # Blocks grow until both the parts and the corners between them are few enough.
    side = max(2, int(math.sqrt(count / most)))
    while True:
        chosen, part = _of_blocks(free, side)
        count = len(chosen)
        if count <= most:
            chosen = _joined(free, chosen, part, side)
            if len(chosen) <= 2 * most:
                break
        # The number of parts falls about with the square of the side.
        side = max(side + 1, int(side * math.sqrt(count / most)))

    return free.centres_at(*np.divmod(chosen, free.open.shape[1])), side


# Cells are numbered row by row, closed ones included: (row, column) is row · width + column.
# Those that share a side are neighbours: no way leads over a corner that alone joins two.


def _of_blocks(free: FreeSpace, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose one cell of each connected part of a block.

    Returns:
        The cells (n,) that are chosen, and of each cell (H, W) the number of its part, −1 where it
        is not open.
    """
    height, width = free.open.shape
    part = np.full((height, width), -1, dtype=np.int32)
    chosen, count = [], 0
    # Blocks lie in rows, and a few rows of them at once fit into the memory.
    rows = side * max(1, _AT_ONCE // (side * width))

    for low in range(0, height, rows):
        strip = slice(low, min(low + rows, height))
        numbers = _labelled(free.open[strip], side)
        cells = np.flatnonzero(numbers.ravel() >= 0)
        if not len(cells):
            continue

        row, column = np.divmod(cells, width)
        middle = (side - 1) / 2
        off_middle = np.hypot(row % side - middle, column % side - middle) * free.resolution
        # Clearance beyond a block's side adds nothing: from there on the middle decides.
        clearance = free.clearance[strip].ravel()[cells]
        merit = np.minimum(clearance, free.radius + side * free.resolution) - off_middle

        own = numbers.ravel()[cells]
        best = np.full(int(own.max()) + 1, -np.inf)
        np.maximum.at(best, own, merit)
        foremost = np.flatnonzero(merit == best[own])
        _, first = np.unique(own[foremost], return_index=True)
        chosen.append(cells[foremost[first]] + low * width)

        part[strip] = np.where(numbers >= 0, numbers + count, -1)
        count += len(best)
    return np.concatenate(chosen), part


def _labelled(opened: np.ndarray, side: int) -> np.ndarray:
    """Return the number (H, W) of each cell's connected part within its block, −1 where closed.

    Args:
        opened: (H, W) bool.
        side: of the blocks, in cells.
    """
    # A closed line between every two blocks separates their cells.
    where = np.ix_(*(np.arange(size) + np.arange(size) // side for size in opened.shape))
    apart = np.zeros([size + size // side + 1 for size in opened.shape], dtype=bool)
    apart[where] = opened
    return ndimage.label(apart)[0][where].astype(np.int32) - 1


def _joined(free: FreeSpace, chosen: np.ndarray, part: np.ndarray, side: int) -> np.ndarray:
    """Add nodes between neighbouring parts whose chosen cells do not see each other.

    The way goes cell by cell inside one part, over to the other, and inside it; where it turns is a
    node.

    Args:
        free: the free space.
        chosen: (n,) one cell of each part.
        part: (H, W) the part of each cell.
        side: of the blocks, in cells.

    Returns:
        Sorted cells that are nodes.
    """
    width, part = part.shape[1], part.ravel()
    across = np.concatenate(_over_borders(part.reshape(-1, width), side), 1)

    # Of each two parts that touch, the crossing with the shortest way over.
    pair = np.sort(part[across], 0)
    metres = sum(np.hypot(*_steps(end, chosen[part[end]], width)) for end in across)
    order = np.lexsort((metres, pair[1], pair[0]))

    first = np.concatenate([[True], (np.diff(pair[:, order], axis=1) != 0).any(0)])[: len(order)]
    ends = across[:, order[first]]

    x = (free.centres_at(*np.divmod(chosen[part[end]], width)) for end in ends)
    hidden = ends[:, ~free.sees(*x)]
    if not hidden.size:
        return np.sort(chosen)

    # Ways to the chosen cell of its part, of the cells of these parts alone, in one search: an
    # extra cell, number `count`, is linked to all chosen ones and is the root.
    wanted = np.zeros(len(chosen) + 1, dtype=bool)  # the last one stands for part −1
    wanted[part[hidden]] = True
    cells = np.flatnonzero(wanted[part])
    count, goals = len(cells), np.searchsorted(cells, chosen[wanted[:-1]])

    ways = np.concatenate(
        [_inside(cells, part, width), np.stack([np.full(len(goals), count), goals])], 1
    )
    _, predecessor = breadth_first_order(_linked(ways, count + 1), count, directed=False)

    kept, reached = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    ahead = cells[np.minimum(predecessor[:count], count - 1)]
    step = np.stack(_steps(ahead, cells, width), 1)
    frontier = np.unique(np.searchsorted(cells, hidden))
    kept[goals] = kept[frontier] = True

    # Follow all ways at once; a straight run is kept by its two ends.
    while len(frontier):
        frontier = frontier[~reached[frontier] & (predecessor[frontier] < count)]
        reached[frontier], ahead = True, predecessor[frontier]
        kept[ahead[(step[frontier] != step[ahead]).any(1)]] = True
        frontier = np.unique(ahead)
    return np.union1d(chosen, cells[kept])


def _over_borders(part: np.ndarray, side: int) -> list[np.ndarray]:
    """Return pairs (2, K) of open cells that share a side and lie in different blocks.

    Args:
        part: (H, W), −1 where a cell is not open.
        side: of the blocks, in cells.
    """
    height, width = part.shape
    cell = np.arange(height * width).reshape(height, width)
    pairs = [
        (slice(None), slice(side - 1, width - 1, side), slice(None), slice(side, None, side)),
        (slice(side - 1, height - 1, side), slice(None), slice(side, None, side), slice(None)),
    ]
    found = []
    for row, column, next_row, next_column in pairs:
        both = (part[row, column] >= 0) & (part[next_row, next_column] >= 0)
        found.append(np.stack([cell[row, column][both], cell[next_row, next_column][both]]))
    return found


def _inside(cells: np.ndarray, part: np.ndarray, width: int) -> np.ndarray:
    """Return pairs (2, K) of neighbours of one part, as indices of cells (N,), which are sorted."""
    found = []
    for away in (1, width):
        other = np.minimum(np.searchsorted(cells, cells + away), len(cells) - 1)
        linked = (cells[other] == cells + away) & (part[cells[other]] == part[cells])
        # The last cell of a row and the first of the next one are no neighbours.
        linked &= (away != 1) | (cells % width < width - 1)
        found.append(np.stack([np.flatnonzero(linked), other[linked]]))
    return np.concatenate(found, 1)


def _steps(to: np.ndarray, cell: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (N,) and columns (N,) from each cell to another one."""
    return to // width - cell // width, to % width - cell % width


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

    pairs = _moves_of_cells(free) if side == 1 else _moves_of_blocks(free, nodes, side)
    length = np.hypot(*(nodes[pairs[0]] - nodes[pairs[1]]).T)
    i, j = np.concatenate([pairs, pairs[::-1]], 1)
    return csr_matrix((np.concatenate([length, length]), (i, j)), (len(nodes), len(nodes)))


def _moves_of_blocks(free: FreeSpace, nodes: np.ndarray, side: int) -> np.ndarray:
    """Return the pairs (2, K) of nodes near to each other that see each other."""
    reach = _LONGEST_OF_BLOCKS * side * free.resolution
    pairs = cKDTree(nodes).query_pairs(reach, output_type="ndarray")
    return pairs[free.sees(nodes[pairs[:, 0]], nodes[pairs[:, 1]])].T


def _moves_of_cells(free: FreeSpace) -> np.ndarray:
    """Return the pairs (2, K) of open cells, numbered row by row, between which a move leads.

    As free.sees: the cells that the move cuts are open, and no obstacle is as near to it as the
    robot is wide. Which obstacles those are is the same for a move from any cell.
    """
    stops = _stopping(free.radius, free.resolution)
    margin = max(2, *(abs(part) for found in stops for cell in found for part in cell))
    opened, occupied = _with_margin(free, margin)
    shape = tuple(np.array(opened.shape) - 2 * margin)

    def at(cells: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
        """Return of each cell inside the margin what is said of the one so far from it."""
        row, column = margin + cell[0], margin + cell[1]
        return cells[row : row + shape[0], column : column + shape[1]]

    inside = at(opened, (0, 0))
    number = np.cumsum(inside).reshape(shape) - 1
    pairs = []
    for (move, between), found in zip(_MOVES.items(), stops):
        leads = inside & at(opened, move)
        for cell in between:
            leads &= at(opened, cell)
        for cell in found:
            leads &= ~at(occupied, cell)
        row, column = np.nonzero(leads)
        pairs.append(np.stack([number[row, column], number[row + move[0], column + move[1]]]))
    return np.concatenate(pairs, 1)


def _with_margin(free: FreeSpace, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which cells are open and which occupied around all open ones.

    Args:
        free: the free space, with one open cell at least.
        margin: cells beyond the open ones, on each side.

    Returns:
        Two arrays of the same shape; outside the grid nothing is open.
    """
    opened = np.pad(free.open, margin)
    occupied = np.pad(free.clearance <= 0.0, margin, constant_values=free.walled)
    rows, columns = (np.flatnonzero(free.open.any(axis)) for axis in (1, 0))
    where = tuple(slice(part[0], part[-1] + 2 * margin + 1) for part in (rows, columns))
    return opened[where], occupied[where]


@lru_cache(maxsize=16)
def _stopping(radius: float, resolution: float) -> list[list[tuple[int, int]]]:
    """Return of each of _MOVES which obstacles stop it although both its ends have room.

    Args:
        radius: of the robot, m.
        resolution: m.

    Returns:
        Of each move cells, as rows and columns from its beginning.
    """
    # One obstacle, and all moves around it.
    reach = math.ceil(radius / resolution) + 4
    passable = np.ones((2 * reach + 1, 2 * reach + 1), dtype=bool)
    passable[reach, reach] = False
    free = FreeSpace.from_passable(passable, (0.0, 0.0), 0.0, resolution, radius, walled=False)

    found = []
    for move in _MOVES:
        begin = np.argwhere(free.open & (free.clearance < radius + _LONGEST * resolution))
        end = begin + move
        inside = ((end >= 0) & (end <= 2 * reach)).all(1)
        begin, end = begin[inside], end[inside]
        both = free.open[tuple(end.T)]
        begin, end = begin[both], end[both]
        hidden = ~free.sees(free.centres_at(*begin.T), free.centres_at(*end.T))
        found.append([(reach - int(row), reach - int(column)) for row, column in begin[hidden]])
    return found

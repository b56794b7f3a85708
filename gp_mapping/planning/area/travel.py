"""Ways through the survey area: their lengths, their lines and the places that they pass."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from gp_mapping.planning.area.graph import moves_between, nodes_of
from gp_mapping.planning.area.leg import Leg, angles_between, measurements
from gp_mapping.planning.area.string_pulling import pull
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.worth.path_value import Visits

__all__ = ["Travel"]

_ROWS = 600  # source nodes whose distances to all nodes are cached
_LEGS = 40_000  # ways in the cache
_DEPARTURES = 2000  # ways in the cache that begin in the middle of a node
_APART = 1.5  # spacings of a way for each measurement
_KEPT = 200  # results of planners in the cache
_NEAR = 16  # nearest nodes that are tried for one in plain view
_LOOKS = 4  # points of a way for each spacing
_ABOUT = 4  # places that a point is interpolated from
_DETOUR = 1.5  # straight lines: length of a way up to which it is looked for first
_SMOOTH = 3.0  # spacings: correlation length of the field that is interpolated


class Travel:
    """Shortest ways over the free cells (knight's moves), straightened, never through a wall.

    Nodes are free cells, or of a large area one of each small block and connected part of it.
    Places are nodes about `spacing` apart, where measurements are valued.

    Args:
        free: reachable free space; its open cells are the area.
        spacing: metres between places, about a third of a lengthscale; more where max_places would
            be exceeded.
        max_places: bound P of the places: a plan costs P².
        max_nodes: bound n of the nodes; corners that join them come in addition, no more than as
            many. A shortest way costs n log n.

    Attributes:
        nodes: (n, 2) m.
        places: (P,) node of each place.
        xy: (P, 2) m, the places.
    """

    def __init__(
        self, free: FreeSpace, spacing: float, max_places: int = 450, max_nodes: int = 8000
    ):
        if not spacing > 0 or max_places < 2 or max_nodes < 2:
            raise ValueError(
                f"spacing={spacing} m, max_places={max_places}, max_nodes={max_nodes}: expected a spacing "
                "above 0 and 2 places and nodes or more"
            )

        self.free = free
        self.nodes, self.block = nodes_of(free, max_nodes)

        self.graph = moves_between(free, self.nodes, self.block)
        self._tree = cKDTree(self.nodes) if len(self.nodes) else None

        self.choose_places(spacing, max_places)

        self._rows: OrderedDict[int, tuple[np.ndarray, np.ndarray]] = OrderedDict()
        self._legs: OrderedDict[tuple[int, int], Leg] = OrderedDict()
        self._departures: OrderedDict[tuple[int, int], Leg | None] = OrderedDict()

    def choose_places(self, spacing: float, max_places: int) -> None:
        """Choose places among the nodes, and drop what was kept of others; ways stay.

        Args:
            spacing: m between them.
            max_places: bound of them, as for the class.
        """
        least = max(spacing, self.block * self.free.resolution)
        self.places, self.spacing = _spread(self.nodes, least, max_places)
        self.xy = self.nodes[self.places]
        self._places_tree = cKDTree(self.xy) if len(self.places) else None
        self._kept: OrderedDict[tuple, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self.places)

    def with_fewer_places(self, max_places: int) -> Travel:
        """Return the same ways, nodes included, between fewer places; itself where it has no more.

        Args:
            max_places: bound of the places.
        """
        if len(self) <= max_places:
            return self
        return self.cached(("fewer places", max_places), partial(_coarser, self, max_places))

    @property
    def step(self) -> float:
        """Metres of a way per measurement: half a lengthscale, denser ones would add little."""
        return _APART * self.spacing

    @property
    def neighbours(self) -> int:
        """Number of places that one measurement is interpolated from."""
        return min(_ABOUT, len(self.xy))

    def locate(self, xy, search: float = 0.5) -> int | None:
        """Return the node nearest to xy that is in plain view; None without a node within reach.

        A position that the robot may not be at (a map that is a little off) gets the nearest node.
        Where nodes stand for blocks, a position in free space may be farther from one than
        `search`: there a node in plain view at most a block's diagonal away counts, too.

        Args:
            xy: (2,) m.
            search: metres to the farthest node that counts.
        """
        node = int(self.locate_all(np.asarray(xy, dtype=np.float64).reshape(1, 2), search)[0])
        return None if node < 0 else node

    def locate_all(self, xy: np.ndarray, search: float = 0.5) -> np.ndarray:
        """Return the node of each of many positions, as `locate`: (N,), −1 where there is none.

        Args:
            xy: (N, 2) m.
            search: metres to the farthest node that counts.
        """
        found, visible = self._nodes_near(xy, search)

        # Most have a node that near; only where none is, and the robot may be there, a block's
        # size decides.
        diagonal = math.sqrt(2.0) * self.block * self.free.resolution
        far = np.flatnonzero(found < 0) if diagonal > search else np.empty(0, dtype=int)
        far = far[self.free.allows(torch.from_numpy(xy[far])).numpy()]
        if len(far):
            nodes, seen = self._nodes_near(xy[far], diagonal)
            found[far] = np.where(seen, nodes, -1)
        return found

    def _nodes_near(self, xy: np.ndarray, search: float) -> tuple[np.ndarray, np.ndarray]:
        """Return of each position its nearest node in plain view, or else its nearest one.

        Args:
            xy: (N, 2) m.
            search: metres to the farthest node that counts.

        Returns:
            Nodes (N,), −1 where none is that near, and whether each is in plain view (N,) bool.
        """
        if self._tree is None or not len(xy):
            return np.full(len(xy), -1), np.zeros(len(xy), dtype=bool)
        count = min(_NEAR, len(self.nodes))
        distance, found = self._tree.query(
            xy, k=np.arange(1, count + 1), distance_upper_bound=search
        )
        near = np.isfinite(distance)

        row, column = np.nonzero(near)

        visible = np.zeros_like(near)
        # Most see the nearest node: the others are looked at only where it is hidden.
        for asked in (column == 0, column > 0):
            asked &= ~visible[row, 0]
            visible[row[asked], column[asked]] = self.free.sees(
                xy[row[asked]], self.nodes[found[row[asked], column[asked]]]
            )

        # argmax gives the nearest one where none is visible.
        chosen = found[np.arange(len(xy)), visible.argmax(1)]
        return np.where(near[:, 0], chosen, -1), visible.any(1)

    def nearest(self, xy) -> np.ndarray:
        """Return the place nearest to each of xy (N, 2) m: (N,)."""
        return self._places_tree.query(np.asarray(xy, dtype=np.float64).reshape(-1, 2))[1]

    def nearest_nodes(self, xy: np.ndarray) -> np.ndarray:
        """Return the node nearest to each of xy (N, 2) m, in plain view or not: (N,)."""
        return self._tree.query(xy)[1]

    def distances(self, node: int, within: float = math.inf) -> np.ndarray:
        """Return the lengths of the shortest ways over the grid from a node to all nodes.

        Args:
            node: where the ways begin.
            within: metres beyond which lengths may be infinite, too: a search of what is near is
                faster.

        Returns:
            (n,) m, infinite where no way leads.
        """
        if node in self._rows or math.isinf(within):
            return self._row(node)[0]
        # A search that is cut off is not cached: its row is incomplete.
        return dijkstra(self.graph, indices=node, limit=within)

    def _row(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        """Return lengths (n,) m of the ways from a node to all nodes, and each predecessor."""
        if node in self._rows:
            self._rows.move_to_end(node)
            return self._rows[node]

        distance, predecessor = dijkstra(self.graph, indices=node, return_predecessors=True)
        self._rows[node] = (distance, predecessor)
        if len(self._rows) > _ROWS:
            self._rows.popitem(last=False)
        return distance, predecessor

    def reachable(self, node: int) -> np.ndarray:
        """Return which nodes a way leads to: (n,) bool."""
        return np.isfinite(self.distances(node))

    def cached(self, key: tuple, make: Callable[[], Any]):
        """Return make(), computed once for each key: planners ask for the same at every decision.

        Args:
            key: what the result is of; a different key for a different result.
            make: computes it of this travel.
        """
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self._kept[key] = make()
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def leg(self, a: int, b: int) -> Leg | None:
        """Return the way between two nodes; it is kept.

        Args:
            a: the node where it begins.
            b: the node where it ends.

        Returns:
            None where there is none.
        """
        if (a, b) not in self._legs:
            self.prepare([(a, b)])
        return self._legs.get((a, b))

    def prepare(self, pairs) -> None:
        """Compute and cache the ways of many pairs of nodes (a, b): a search asks for hundreds.

        Together they cost far less than one by one.
        """
        deque(self.prepare_steps(pairs), maxlen=0)

    def prepare_steps(self, pairs) -> Iterator[None]:
        """As `prepare`, in steps of milliseconds."""
        pairs = [pair for pair in dict.fromkeys(pairs) if pair not in self._legs]
        if not pairs:
            return

        a, b = self.nodes[[p for p, _ in pairs]], self.nodes[[q for _, q in pairs]]
        visible = self.free.sees(a, b)
        chains: dict[tuple[int, int], np.ndarray] = {}
        for i, pair in enumerate(pairs):
            chain = np.stack([a[i], b[i]]) if visible[i] else self._chain(*pair, min(pair))
            if chain is not None:
                chains[pair] = chain
            if not visible[i]:
                yield None

        lines = yield from self._pulled_steps(list(chains.values()))
        self._legs.update(zip(chains, map(self.leg_along, lines)))
        while len(self._legs) > _LEGS:
            self._legs.popitem(last=False)

    def leg_from(self, xy, node: int, to: int) -> Leg | None:
        """Return the way from any position to a node; None where there is none.

        Args:
            xy: (2,) m.
            node: what locate gave for it.
            to: the node where the way ends.
        """
        return self.legs_from(xy, node, [to])[0]

    def legs_from(self, xy, node: int, to: Sequence[int]) -> list[Leg | None]:
        """Return the ways from any position to several nodes, as `leg_from`.

        Those from the node itself are kept: the suggestions after the first begin where the one
        before ends, and those of two seconds ago began at the same places.

        Args:
            xy: (2,) m.
            node: what locate gave for it.
            to: the nodes where the ways end.

        Returns:
            One for each of them, None where there is none.
        """
        if not np.array_equal(xy, self.nodes[node]):
            return self._departing(xy, node, to)

        missing = [end for end in dict.fromkeys(to) if (node, end) not in self._departures]
        self._departures.update(
            zip(((node, end) for end in missing), self._departing(xy, node, missing))
        )
        legs = [self._departures[node, end] for end in to]
        while len(self._departures) > _DEPARTURES:
            self._departures.popitem(last=False)
        return legs

    def _departing(self, xy, node: int, to: Sequence[int]) -> list[Leg | None]:
        """Compute the ways from any position to several nodes, as `leg_from`."""
        chains = [self._chain(node, end, node) for end in to]
        first = np.asarray(xy, dtype=np.float64)[None]
        legs = map(
            self.leg_along, self._pulled([np.vstack([first, c]) for c in chains if c is not None])
        )
        return [None if chain is None else next(legs) for chain in chains]

    def _chain(self, a: int, b: int, source: int) -> np.ndarray | None:
        """Return the nodes (K, 2) m of the shortest way from a to b; None where there is none.

        Args:
            a: first node.
            b: last node.
            source: a or b, where the search begins; it decides between ways of equal length.
        """
        if a == b:
            return self.nodes[[a, b]]
        target = b if source == a else a
        predecessor = self._predecessors_to(target, source)
        if predecessor is None:
            return None

        chain = [target]
        while chain[-1] != source:
            chain.append(int(predecessor[chain[-1]]))

        return self.nodes[chain if source == b else chain[::-1]]

    def _predecessors_to(self, target: int, source: int) -> np.ndarray | None:
        """Return the predecessor (n,) of each node on the way from source, valid up to a target.

        None where no way leads there.
        """
        if source not in self._rows:
            # Most ways are hardly longer than the straight line: they are found among what is near.
            within = _DETOUR * (
                math.dist(self.nodes[source], self.nodes[target]) + self.free.resolution
            )
            distance, predecessor = dijkstra(
                self.graph, indices=source, limit=within, return_predecessors=True
            )
            if np.isfinite(distance[target]):
                return predecessor

        distance, predecessor = self._row(source)
        return predecessor if np.isfinite(distance[target]) else None

    def over_the_grid(self, a: int, b: int) -> np.ndarray | None:
        """Return the shortest way over the grid between two nodes, not straightened.

        Args:
            a: the node where it begins.
            b: the node where it ends.

        Returns:
            (K, 2) m; None where there is none.
        """
        return self._chain(a, b, min(a, b))

    def straightened(self, chain: np.ndarray) -> np.ndarray:
        """Return the way with few corners (string pulling): (K, 2) m."""
        return self._pulled([chain])[0]

    def _pulled(self, chains: list[np.ndarray]) -> list[np.ndarray]:
        """Straighten several ways at once."""
        steps = self._pulled_steps(chains)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value

    def _pulled_steps(self, chains: list[np.ndarray]) -> Generator[None, None, list[np.ndarray]]:
        """Straighten several ways at once: one call tests all lines of sight of a step."""
        kept: list[list[int]] = [[0] for _ in chains]

        # Each puller yields (point, points to look at) and is sent which of those are visible.
        pullers = [pull(len(chain), points) for chain, points in zip(chains, kept)]
        requests = {
            i: request
            for i, steps in enumerate(pullers)
            if (request := next(steps, None)) is not None
        }

        while requests:
            yield None
            a = np.concatenate(
                [np.broadcast_to(chains[i][at], (len(to), 2)) for i, (at, to) in requests.items()]
            )
            b = np.concatenate([chains[i][to] for i, (_, to) in requests.items()])

            ends = np.cumsum([len(to) for _, to in requests.values()])[:-1]
            for i, visible in zip(list(requests), np.split(self.free.sees(a, b), ends)):
                try:
                    requests[i] = pullers[i].send(visible)
                except StopIteration:
                    del requests[i]
        return [chain[points] for chain, points in zip(chains, kept)]

    def leg_along(self, line: np.ndarray) -> Leg:
        """Return a line (K, 2) m as a Leg."""
        pieces = np.diff(line, axis=0)
        length = np.hypot(*pieces.T)
        total = float(np.cumsum(length)[-1]) if len(length) else 0.0
        # Pieces without length have no heading.
        pieces = pieces[length > 0]

        headings = np.arctan2(pieces[:, 1], pieces[:, 0])
        turned = (
            float(angles_between(headings[:-1], headings[1:]).sum()) if len(headings) > 1 else 0.0
        )
        first, last = (
            (float(headings[0]), float(headings[-1])) if len(headings) else (math.nan, math.nan)
        )
        count = max(2, math.ceil(_LOOKS * total / self.spacing) + 1)
        return Leg(line, total, turned, first, last, count)

    def interpolation_at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places around points, and weights that interpolate a smooth field there.

            w = (G + 10⁻⁶ I)⁻¹ g,   G, g squared exponentials among the places and to the point

        Args:
            x: (N, 2) m.

        Returns:
            Places (N, k) and weights (N, k).
        """
        index, solved = self._interpolated(x, slopes=False)
        return index, solved[..., 0]

    def interpolation_slopes_at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return places and weights, as `interpolation_at`, and how the weights change with x.

        Args:
            x: (N, 2) m.

        Returns:
            Places (N, k), weights (N, k) and their derivatives by x (N, k, 2) 1/m.
        """
        index, solved = self._interpolated(x, slopes=True)
        return index, solved[..., 0], solved[..., 1:]

    def _interpolated(self, x: np.ndarray, slopes: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return places (N, k) around points (N, 2) m and their weights (N, k, 1), or (N, k, 3)."""
        count = self.neighbours
        away, index = self._places_tree.query(x, k=np.arange(1, count + 1))

        near = self.xy[index]
        gram = np.square(near[:, :, None] - near[:, None]).sum(-1)

        width = 2.0 * (_SMOOTH * self.spacing) ** 2
        to_point = np.exp(-(away**2) / width)[..., None]
        if slopes:
            towards = (2.0 / width) * (near - x[:, None]) * to_point
            to_point = np.concatenate([to_point, towards], 2)
        # The jitter keeps nearly collinear places solvable.
        return index, np.linalg.solve(np.exp(-gram / width) + 1e-6 * np.eye(count), to_point)

    def visits(self, legs) -> tuple[Visits, np.ndarray, np.ndarray]:
        """Return what driving legs one after the other measures.

        Each leg has a measurement for every half lengthscale (1.5 `spacing`), one at least, each in
        the middle of its part of the leg: the worth of a leg does not depend on where the legs
        before it end. The noise variance of each is divided by the number of steps of way that it
        stands for.

        Args:
            legs: Legs, in order.

        Returns:
            Visits of m measurements, their positions (m, 2) m, and metres (m,) from the start.
        """
        legs = [leg for leg in legs if leg.metres > 0.0]
        if not legs:
            return Visits.from_path([]), np.empty((0, 2)), np.empty(0)

        step = self.step
        lengths = np.array([leg.metres for leg in legs])
        counts = np.array([measurements(metres, step) for metres in lengths])

        # Of each measurement its leg, how far along that leg it lies, and how far from the start.
        leg_of = np.repeat(np.arange(len(legs)), counts)
        fraction = (np.arange(len(leg_of)) - (np.cumsum(counts) - counts)[leg_of] + 0.5) / counts[
            leg_of
        ]
        marks = (np.cumsum(lengths) - lengths)[leg_of] + fraction * lengths[leg_of]

        x = _positions([leg.line for leg in legs], leg_of, fraction * lengths[leg_of])
        places, weights = self.interpolation_at(x)

        # A measurement for a longer piece of way is worth more: its noise is smaller.
        scale = torch.from_numpy((step * counts / lengths)[leg_of])
        return Visits(torch.from_numpy(places), torch.from_numpy(weights), scale), x, marks


def _positions(lines: list[np.ndarray], line_of: np.ndarray, metres: np.ndarray) -> np.ndarray:
    """Return points along lines: (m, 2) m.

    Args:
        lines: (K, 2) m each.
        line_of: (m,) index of each point's line.
        metres: (m,) from where that line begins.
    """
    x = np.concatenate(lines)
    first = np.cumsum([0, *(len(line) for line in lines[:-1])])
    step = np.hypot(*np.diff(x, axis=0, prepend=x[:1]).T)
    # All lines are measured as one, with a metre between two of them.
    step[first] = 1.0
    ends = np.cumsum(step)
    marks = ends[first][line_of] + metres
    return np.stack([np.interp(marks, ends, x[:, i]) for i in (0, 1)], 1)


def _coarser(travel: Travel, max_places: int) -> Travel:
    """Return a Travel with fewer places, which has nodes and ways in common with that one."""
    coarse = copy.copy(travel)
    coarse.choose_places(travel.spacing, max_places)
    return coarse


def _spread(nodes: np.ndarray, spacing: float, most: int) -> tuple[np.ndarray, float]:
    """Select nodes about spacing apart, one for each square of that side, nearest to its middle.

    Returns:
        Indices of the nodes, and the spacing: larger than asked for where more than `most` would
        result.
    """
    if not len(nodes):
        return np.empty(0, dtype=int), spacing

    corner = nodes.min(0)
    while True:
        square = np.floor((nodes - corner) / spacing).astype(np.int64)
        # Rounded, so that ties are broken by the node's number on every machine.
        off_middle = np.hypot(*((nodes - corner) / spacing - square - 0.5).T).round(9)

        order = np.lexsort((np.arange(len(nodes)), off_middle, square[:, 0], square[:, 1]))
        first_of_square = np.concatenate([[True], (np.diff(square[order], axis=0) != 0).any(1)])

        if first_of_square.sum() <= most:
            return order[first_of_square], spacing
        spacing *= max(1.02, math.sqrt(first_of_square.sum() / most))

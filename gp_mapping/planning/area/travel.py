"""Ways through the survey area: how far from one place to another, along which line, and past which places."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from gp_mapping.planning.area.graph import moves_between, nodes_of
from gp_mapping.planning.free_space import FreeSpace
from gp_mapping.planning.worth.path_value import Visits

__all__ = ["Leg", "Travel", "measurements", "turn", "turning"]

_ROWS = 600  # sources whose distances to everywhere are kept
_LEGS = 40_000  # ways that are kept
_APART = 1.5  # spacings of a way for each measurement
_KEPT = 200  # findings of planners that are kept
_NEAR = 16  # nodes of which one should be in plain view
_LOOKS = 4  # points of a way for each spacing
_ABOUT = 4  # places between which a point is interpolated
_SMOOTH = 3.0  # spacings: correlation length of the field that is interpolated
_AHEAD = np.round(1.6 ** np.arange(1, 40)).astype(
    int
)  # points of a way on that are looked at from a corner
_BETWEEN = 8  # parts into which the points between one that is seen and one that is not are cut


@dataclass(frozen=True)
class Leg:
    """One way, straightened.

    line: (K, 2) m, start and end included.  metres: its length.  turned: radians turned at its inner corners.
    first, last: heading in radians of its first and last piece; NaN where start and end are one place.
    points: (n, 2) m, evenly along it, both ends included.  places, weights: (n, k), between which places they lie.
    """

    line: np.ndarray
    metres: float
    turned: float
    first: float
    last: float
    points: np.ndarray
    places: np.ndarray
    weights: np.ndarray


def turning(a, b):
    """Radians between headings a and b; 0 where one of them is NaN."""
    return np.nan_to_num(
        np.abs(np.remainder(np.asarray(b) - np.asarray(a) + np.pi, 2 * np.pi) - np.pi)
    )


def turn(a: float, b: float) -> float:
    """The same of two numbers."""
    return 0.0 if math.isnan(a) or math.isnan(b) else abs(math.remainder(b - a, math.tau))


class Travel:
    """Shortest ways over the free cells (knight's moves), straightened, never through a wall.

    Nodes are free cells, or of a large area one of each small block and connected part of it. Places are nodes about
    `spacing` apart, where measurements are valued.

    Args:
        free: reachable free space; its open cells are the area.
        spacing: metres between places, about a third of a lengthscale; more where max_places would not do.
        max_places: bound P of the places: a plan costs P².
        max_nodes: bound of the nodes, besides corners that join them, of which there are no more: a shortest way costs
            n log n.
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
        chosen, self.spacing = _spread(
            self.nodes, max(spacing, self.block * free.resolution), max_places
        )
        self.places = chosen  # (P,) nodes
        self.xy = self.nodes[chosen]  # (P, 2) m
        self._places_tree = cKDTree(self.xy) if len(chosen) else None
        self._rows: OrderedDict[int, tuple[np.ndarray, np.ndarray]] = OrderedDict()
        self._legs: OrderedDict[tuple[int, int], Leg] = OrderedDict()
        self._kept: OrderedDict[tuple, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self.places)

    @property
    def step(self) -> float:
        """Metres of a way that one measurement stands for: half a lengthscale, over which they say little new."""
        return _APART * self.spacing

    @property
    def about(self) -> int:
        """Places between which one measurement lies."""
        return min(_ABOUT, len(self.xy))

    def locate(self, xy, search: float = 0.5) -> int | None:
        """The node nearest to xy (2,) m that is in plain view of it, at most search away; None where there is none.

        A place that the robot may not be at (a map that is a little off) gets the nearest node.
        """
        found = int(self.locate_all(np.asarray(xy, dtype=np.float64).reshape(1, 2), search)[0])
        return None if found < 0 else found

    def locate_all(self, xy: np.ndarray, search: float = 0.5) -> np.ndarray:
        """The same of many places (N, 2) m: (N,), −1 where there is none."""
        if self._tree is None or not len(xy):
            return np.full(len(xy), -1)
        count = min(_NEAR, len(self.nodes))
        away, found = self._tree.query(xy, k=np.arange(1, count + 1), distance_upper_bound=search)
        near = np.isfinite(away)
        row, column = np.nonzero(near)
        seen = np.zeros_like(near)
        for some in (column == 0, column > 0):  # most see the nearest one
            some &= ~seen[row, 0]
            seen[row[some], column[some]] = self.free.sees(
                xy[row[some]], self.nodes[found[row[some], column[some]]]
            )
        chosen = found[np.arange(len(xy)), seen.argmax(1)]  # the nearest one where none is seen
        return np.where(near[:, 0], chosen, -1)

    def nearest(self, xy) -> np.ndarray:
        """The place nearest to each of xy (N, 2): (N,)."""
        return self._places_tree.query(np.asarray(xy, dtype=np.float64).reshape(-1, 2))[1]

    def distances(self, node: int, within: float = math.inf) -> np.ndarray:
        """Length (n,) m of the shortest way over the grid from a node to every node; infinite where there is none.

        within: metres beyond which they may be infinite, too: who asks for what is near need not wait for the rest.
        """
        if node in self._rows or math.isinf(within):
            return self._row(node)[0]
        return dijkstra(self.graph, indices=node, limit=within)

    def _row(self, node: int) -> tuple[np.ndarray, np.ndarray]:
        if node in self._rows:
            self._rows.move_to_end(node)
            return self._rows[node]
        distance, before = dijkstra(self.graph, indices=node, return_predecessors=True)
        self._rows[node] = (distance, before)
        if len(self._rows) > _ROWS:
            self._rows.popitem(last=False)
        return distance, before

    def reachable(self, node: int) -> np.ndarray:
        """(n,) bool: nodes to which a way leads."""
        return np.isfinite(self.distances(node))

    def keep(self, key: tuple, make: Callable[[], Any]):
        """What make() finds of this ground, once: planners ask for the same of it at every decision."""
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            self._kept[key] = make()
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]

    def leg(self, a: int, b: int) -> Leg | None:
        """The way from node a to node b; None where there is none."""
        if (a, b) not in self._legs:
            self.prepare([(a, b)])
        return self._legs.get((a, b))

    def prepare(self, pairs) -> None:
        """Have legs (a, b) ready, all of them together: a search asks for hundreds."""
        pairs = [pair for pair in dict.fromkeys(pairs) if pair not in self._legs]
        if not pairs:
            return
        a, b = self.nodes[[p for p, _ in pairs]], self.nodes[[q for _, q in pairs]]
        seen = self.free.sees(a, b)
        chains = {
            pair: np.stack([a[i], b[i]]) if seen[i] else self._chain(*pair, min(pair))
            for i, pair in enumerate(pairs)
        }
        ways = {pair: chain for pair, chain in chains.items() if chain is not None}
        self._legs.update(zip(ways, self._legs_along(self._pulled(list(ways.values())))))
        while len(self._legs) > _LEGS:
            self._legs.popitem(last=False)

    def leg_from(self, xy, node: int, to: int) -> Leg | None:
        """The way from anywhere, xy (2,) m, by the node that locate gave for it, to a node."""
        return self.legs_from(xy, node, [to])[0]

    def legs_from(self, xy, node: int, to: Sequence[int]) -> list[Leg | None]:
        """The same to several nodes."""
        chains = [self._chain(node, end, node) for end in to]
        first = np.asarray(xy, dtype=np.float64)[None]
        legs = iter(
            self._legs_along(self._pulled([np.vstack([first, c]) for c in chains if c is not None]))
        )
        return [None if chain is None else next(legs) for chain in chains]

    def _chain(self, a: int, b: int, source: int) -> np.ndarray | None:
        """Nodes of the shortest way (K, 2) m; of equally short ones that which is found from source, a or b."""
        if a == b:
            return self.nodes[[a, b]]
        target = b if source == a else a
        distance, before = self._row(source)
        if not np.isfinite(distance[target]):
            return None
        chain = [target]
        while chain[-1] != source:
            chain.append(int(before[chain[-1]]))
        return self.nodes[chain if source == b else chain[::-1]]

    def over_the_grid(self, a: int, b: int) -> np.ndarray | None:
        """The shortest way (K, 2) m over the grid between two nodes, not straightened; None where there is none."""
        return self._chain(a, b, min(a, b))

    def straightened(self, chain: np.ndarray) -> np.ndarray:
        """The same way with few corners (string pulling): (K, 2) m."""
        return self._pulled([chain])[0]

    def _pulled(self, chains: list[np.ndarray]) -> list[np.ndarray]:
        """Ways straightened side by side: what they ask of the free space is asked together."""
        kept: list[list[int]] = [[0] for _ in chains]
        asking = [_pull(len(chain), points) for chain, points in zip(chains, kept)]
        wants = {
            i: want for i, steps in enumerate(asking) if (want := next(steps, None)) is not None
        }
        while wants:
            a = np.concatenate(
                [np.broadcast_to(chains[i][at], (len(to), 2)) for i, (at, to) in wants.items()]
            )
            b = np.concatenate([chains[i][to] for i, (_, to) in wants.items()])
            ends = np.cumsum([len(to) for _, to in wants.values()])[:-1]
            for i, seen in zip(list(wants), np.split(self.free.sees(a, b), ends)):
                try:
                    wants[i] = asking[i].send(seen)
                except StopIteration:
                    del wants[i]
        return [chain[points] for chain, points in zip(chains, kept)]

    def along(self, line: np.ndarray) -> Leg:
        """What driving a line (K, 2) m means."""
        return self._legs_along([line])[0]

    def _legs_along(self, lines: list[np.ndarray]) -> list[Leg]:
        """The same of several lines: what lies about all of their points is looked for together."""
        if not lines:
            return []
        known, xs = [], []
        for line in lines:
            pieces = np.diff(line, axis=0)
            length = np.hypot(*pieces.T)
            ends = np.concatenate([[0.0], np.cumsum(length)])
            pieces = pieces[length > 0]
            total = float(ends[-1])
            headings = np.arctan2(pieces[:, 1], pieces[:, 0])
            turned = float(turning(headings[:-1], headings[1:]).sum())
            first, last = (
                (float(headings[0]), float(headings[-1])) if len(headings) else (math.nan, math.nan)
            )
            known.append((line, total, turned, first, last))

            count = max(2, math.ceil(_LOOKS * total / self.spacing) + 1)
            marks = np.linspace(0.0, total, count)
            xs.append(np.stack([np.interp(marks, ends, line[:, i]) for i in (0, 1)], 1))
        ends = np.cumsum([len(x) for x in xs])[:-1]
        about = (np.split(part, ends) for part in self.between(np.concatenate(xs)))
        return [Leg(*parts, x, *near) for parts, x, near in zip(known, xs, zip(*about))]

    def between(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places (N, k) about each of x (N, 2) m and weights (N, k) that interpolate a smooth field there."""
        count = self.about
        away, index = self._places_tree.query(x, k=np.arange(1, count + 1))
        gram = self.xy[index]
        gram = np.square(gram[:, :, None] - gram[:, None]).sum(-1)
        width = 2.0 * (_SMOOTH * self.spacing) ** 2
        weights = np.linalg.solve(
            np.exp(-gram / width) + 1e-6 * np.eye(count), np.exp(-(away**2) / width)[..., None]
        )
        return index, weights[..., 0]

    def visits(self, legs) -> tuple[Visits, np.ndarray, np.ndarray]:
        """What driving legs one after the other measures: Visits of m, where (m, 2) m, and metres (m,) from the start.

        Of each leg as many as it has half lengthscales (1.5 `spacing`), one at least, each in the middle of its part
        of the leg: what a leg is worth does not depend on where the legs before it end. The noise of each is scaled by
        how much of the way it stands for.
        """
        legs = [leg for leg in legs if leg.metres > 0.0]
        if not legs:
            return Visits.at([]), np.empty((0, 2)), np.empty(0)
        step = self.step
        lengths = np.array([leg.metres for leg in legs])
        counts = np.array([measurements(metres, step) for metres in lengths])
        which = np.repeat(np.arange(len(legs)), counts)
        share = (np.arange(len(which)) - (np.cumsum(counts) - counts)[which] + 0.5) / counts[which]
        marks = (np.cumsum(lengths) - lengths)[which] + share * lengths[which]

        points = np.array([len(leg.points) for leg in legs])
        take = (np.cumsum(points) - points)[which] + np.rint(share * (points[which] - 1)).astype(
            int
        )
        x, places, weights = (
            np.concatenate([getattr(leg, name) for leg in legs])[take]
            for name in ("points", "places", "weights")
        )
        scale = torch.from_numpy((step * counts / lengths)[which])
        return Visits(torch.from_numpy(places), torch.from_numpy(weights), scale), x, marks


def measurements(metres: float, step: float) -> int:
    """How many measurements stand for so many metres of a way, step metres each."""
    return max(1, round(metres / step))


def _pull(count: int, kept: list[int]) -> Generator[tuple[int, np.ndarray], np.ndarray, None]:
    """Which of a way's points 0 … count − 1 to keep, into kept; asks (from, to (n,)) and is sent which are in view.

    From each corner the farthest point in plain view is looked for among ever more distant ones, and then between
    the last that is seen and the first that is not: a few lines of sight instead of one to every point ahead. The next
    point is taken where none is seen.
    """
    at, last = 0, count - 1
    while at < last:
        near, unseen = at + 1, last + 1
        ahead = at + _AHEAD
        ahead = np.append(ahead[ahead < last], last)
        while len(ahead):
            seen = yield at, ahead
            if seen.any():
                near = max(near, int(ahead[seen][-1]))
            if (beyond := ahead[ahead > near]).size:
                unseen = int(beyond[0])
            if near >= last or unseen - near <= 1:
                break
            if unseen - near <= _BETWEEN:
                ahead = np.arange(near + 1, unseen)
            else:
                ahead = np.linspace(near, unseen, _BETWEEN + 1)[1:-1].round().astype(int)
        at = near
        kept.append(at)


def _spread(nodes: np.ndarray, spacing: float, most: int) -> tuple[np.ndarray, float]:
    """Nodes about spacing apart, one for each square of that side, nearest to its middle; more apart beyond most."""
    if not len(nodes):
        return np.empty(0, dtype=int), spacing
    corner = nodes.min(0)
    while True:
        square = np.floor((nodes - corner) / spacing).astype(np.int64)
        off = np.hypot(*((nodes - corner) / spacing - square - 0.5).T).round(9)
        order = np.lexsort((np.arange(len(nodes)), off, square[:, 0], square[:, 1]))
        new = np.concatenate([[True], (np.diff(square[order], axis=0) != 0).any(1)])
        if new.sum() <= most:
            return order[new], spacing
        spacing *= max(1.02, math.sqrt(new.sum() / most))

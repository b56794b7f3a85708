"""Lanes up and down the area, their number and direction chosen by predicted variance.

n lanes lie at (i + ½)·span/n, so that each has as much unknown on either side. A lane is cut where
it meets an obstacle, and the pieces are driven one after the other, the nearest end first. Where it
counts how soon the area is known (mix), every other lane may be left to a second pass: among walls,
where no spiral leads around all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import torch

from gp_mapping.planning.area.travel import Travel
from gp_mapping.planning.problem import Problem

__all__ = ["fitted", "fitted_in_groups", "fitted_together", "lane_routes", "lanes"]

# Pieces shorter than this fraction of the distance between lanes are left out.
_LEAST = 0.3
_TRIED = 3  # bounds the numbers of lanes tried for each direction
# Times the distance of the nearest piece: how far the way to it is looked for at first.
_DETOUR = 1.5
_FAR = 10.0  # times that distance, beyond which all of the ground is looked at
_STARTS = 20  # distances from so many places are kept beside those from the pieces' ends
# Distances between lanes by which they end before the walls: nothing is to be known beyond.
_INSET = 0.35
_PASSES = 2  # over the area: all of it is known a little before any of it is known well


def lanes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the first of the lanes, once it is there, and the best of them at the end."""
    routes = []
    for group in fitted_in_groups(problem, lane_routes(problem)):
        routes += group
        yield routes[0] if routes else ()

    routes = [stops for stops in dict.fromkeys(routes) if stops]
    best: tuple[int, ...] = ()
    highest = -math.inf
    for stops in routes:
        (rating,) = problem.rate([stops])
        if rating > highest:
            best, highest = stops, rating
        yield best or routes[0]
    yield best or next(iter(routes), ())


def fitted(problem: Problem, stops: tuple[int, ...]) -> tuple[int, ...]:
    """Return as many of the first stops as the limit allows, closed ones left out.

    Args:
        problem: the question.
        stops: nodes, in order.
    """
    return fitted_together(problem, [stops])[0]


def fitted_in_groups(
    problem: Problem, routes: Iterable[tuple[int, ...]]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the routes (stops), each as `fitted`, a few at a time, and [] between slices."""
    near = []
    for stops in routes:
        near.append(_near(problem, stops))
        yield []
    for _ in problem.prepare_steps(near):
        yield []
    for stops in near:
        yield [stops[: problem.fitting(stops)]]


def fitted_together(problem: Problem, routes: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the routes (stops), each as `fitted`: their ways are found at once."""
    return [stops for group in fitted_in_groups(problem, routes) for stops in group]


def _near(problem: Problem, stops: tuple[int, ...]) -> tuple[int, ...]:
    """Return the stops that are not closed, as far as the limit leads as the crow flies."""
    limit = problem.limit
    longest = min(limit.metres, limit.seconds * limit.speed)
    if problem.closed is not None:
        stops = tuple(stop for stop in stops if not problem.closed[stop])
    # No way is looked for to stops that are too far already.
    x = np.vstack([problem.position[None], problem.travel.nodes[list(stops)]])
    ends = np.cumsum(np.hypot(*np.diff(x, axis=0).T))
    return stops[: int(np.searchsorted(ends, longest, side="right"))]


def lane_routes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the stops of lanes in two directions, of several numbers about what the limit allows.

    Those of the number that the limit allows come first, one for each direction. Lanes end at the
    walls or some way off them. One route at a time: each takes milliseconds, and all of them
    together longer than a map may wait.
    """
    travel = problem.travel
    free = travel.free
    reached = travel.reachable(problem.start)
    area = free.open.sum() * free.resolution**2
    metres = min(problem.limit.metres, problem.limit.seconds * problem.limit.speed)

    tried = []
    for angle in (free.yaw, free.yaw + 0.5 * math.pi):
        across = travel.nodes[reached] @ np.array([-math.sin(angle), math.cos(angle)])
        span = float(across.max() - across.min()) + free.resolution
        low = float(across.min()) - 0.5 * free.resolution
        # A lane is as long as the area is wide there. Lanes nearer than two places measure the same
        # ones.
        affordable = round(min(metres / max(area / span, 1e-9), span / travel.spacing))
        counts = {max(1, affordable + k) for k in range(-_TRIED + 1, _TRIED - 1)}
        tried += [
            (abs(count - affordable), angle, low, span / count, count, _INSET * span / count)
            for count in sorted(counts)
        ]
    tried.sort(key=lambda key: key[0])

    of_number: list[tuple[_Pieces, int]] = []
    for _, *key in tried:
        pieces: _Pieces = travel.cached(("lanes", *key), partial(_pieces, travel, *key))
        if len(pieces.ends):
            of_number.append((pieces, key[3]))
            yield pieces.joined(problem.start, reached)
    for pieces, count in of_number:
        if problem.mix > 0.0 and count > 1:
            yield pieces.joined(problem.start, reached, _PASSES)


class _Pieces:
    """The free pieces of lanes, and what is known of the ways between them.

    Args:
        travel: of the nodes.
        ends: (K, 2) nodes, both ends of each piece.
        lanes: (K,) the lane of each piece.
    """

    def __init__(self, travel: Travel, ends: np.ndarray, lanes: np.ndarray):
        self.ends, self.lanes, self._travel = ends, lanes, travel
        self._away: dict[
            int, tuple[np.ndarray, float]
        ] = {}  # (K, 2) m from an end to those that are so near

    def joined(self, start: int, reached: np.ndarray, passes: int = 1) -> tuple[int, ...]:
        """Return stops: the pieces one after the other, the nearest end first.

        With several passes, pass p takes the lanes whose number is p modulo passes.

        Args:
            start: node where the robot is.
            reached: (n,) bool; pieces with an end elsewhere are left out.
            passes: over the area.
        """
        remaining = reached[self.ends].all(1)
        at, stops = start, []

        for number in range(passes):
            pending = remaining & (self.lanes % passes == number)
            while pending.any():
                away = np.where(pending[:, None], self._distances(at, pending), np.inf)
                piece, end = np.unravel_index(int(away.argmin()), away.shape)
                pending[piece] = False

                a, b = self.ends[piece] if end == 0 else self.ends[piece][::-1]
                stops += [int(a), int(b)]
                at = int(b)

        return tuple(s for i, s in enumerate(stops) if i == 0 or s != stops[i - 1])

    def _distances(self, node: int, pending: np.ndarray) -> np.ndarray:
        """Return lengths (K, 2) m from a node to the ends, at least to the nearest pending piece.

        Lengths to others may be infinite. A way must lead to all pending pieces (K,) bool.
        """
        away, within = self._away.get(
            node, (np.full(self.ends.shape, np.inf), self._travel.spacing)
        )

        # The radius grows until it holds a pending piece; what was found is cached for the node.
        while not np.isfinite(away[pending]).any() and within < math.inf:
            x = self._travel.nodes
            near = float(np.hypot(*(x[self.ends[pending]] - x[node]).reshape(-1, 2).T).min())
            within = (
                _DETOUR * max(near, within)
                if within < _FAR * max(near, self._travel.spacing)
                else math.inf
            )
            away = self._travel.distances(node, within)[self.ends]
            self._away[node] = away, within
        # The robot begins elsewhere each time, and the pieces stay as long as the ground does.
        if len(self._away) > self.ends.size + _STARTS:
            del self._away[next(iter(self._away))]
        return away


def _pieces(
    travel: Travel, angle: float, low: float, spacing: float, count: int, inset: float
) -> _Pieces:
    """Return the free pieces of parallel lanes.

    Args:
        travel: of the nodes.
        angle: direction of the lanes, radians.
        low: m across the lanes, where the area begins.
        spacing: m between lanes.
        count: number of lanes.
        inset: m by which pieces are cut at both ends.
    """
    free = travel.free
    along = np.array([math.cos(angle), math.sin(angle)])
    across = np.array([-along[1], along[0]])
    extent = travel.nodes @ along
    first, last = float(extent.min()), float(extent.max())
    # Samples along the lanes, half a cell apart.
    marks = np.linspace(
        first, last, max(2, math.ceil((last - first) / (0.5 * free.resolution)) + 1)
    )

    lanes = low + (np.arange(count) + 0.5) * spacing
    x = marks[:, None] * along + lanes[:, None, None] * across  # (lanes, marks, 2)
    clear = free.allows(torch.from_numpy(x.reshape(-1, 2))).numpy().reshape(count, -1)

    # A piece begins where a lane becomes clear and ends where it is blocked again.
    edges = np.diff(np.pad(clear, ((0, 0), (1, 1))).astype(int), axis=1)
    lane, start = np.nonzero(edges > 0)
    end = np.nonzero(edges < 0)[1] - 1

    length = marks[end] - marks[start]
    # Short pieces are not worth the turns.
    lane, start, end, length = (
        v[length >= max(_LEAST * spacing, free.resolution)] for v in (lane, start, end, length)
    )

    # A piece shorter than both insets shrinks to its middle.
    off = np.minimum(inset, 0.5 * length)[:, None] * along
    ends = np.stack(
        [travel.locate_all(x[lane, start] + off), travel.locate_all(x[lane, end] - off)], 1
    )
    found = (ends >= 0).all(1)
    return _Pieces(travel, ends[found], lane[found])

"""Lanes up and down the area: inset, over obstacles, their number and direction chosen by predicted variance.

n lanes lie at (i + ½)·span/n, so that each has as much unknown on either side; a lane is cut where it meets an
obstacle, and the pieces are driven one after the other, the nearest end first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from gp_mapping.planning.problem import Problem

__all__ = ["best_lanes", "lane_routes", "lanes"]

_LEAST = 0.3  # share of the span's lanes; pieces shorter than that share of their distance are left out
_TRIED = 3  # numbers of lanes for each direction


def lanes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """The best of the lanes."""
    routes = []
    for stops in lane_routes(problem):
        routes.append(fitted(problem, stops))
        yield routes[0]
    yield _best(problem, routes)[0]


def best_lanes(problem: Problem) -> tuple[tuple[int, ...], float]:
    """Stops and rating of the best lanes; nowhere to go, and −∞, where none fits."""
    return _best(problem, [fitted(problem, stops) for stops in lane_routes(problem)])


def _best(problem: Problem, routes: list[tuple[int, ...]]) -> tuple[tuple[int, ...], float]:
    routes = [stops for stops in dict.fromkeys(routes) if stops]
    ratings = problem.rate(routes)
    best = max(range(len(routes)), key=ratings.__getitem__, default=None)
    return ((), -math.inf) if best is None else (routes[best], ratings[best])


def fitted(problem: Problem, stops: tuple[int, ...]) -> tuple[int, ...]:
    """As many of the first stops as the limit allows, those that are left out for now excepted."""
    if problem.closed is not None:
        stops = tuple(stop for stop in stops if not problem.closed[stop])
    problem.prepare([stops])
    low, high = 0, len(stops)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if problem.feasible(problem.drive(stops[:middle])) else (low, middle - 1)
    return stops[:low]


def lane_routes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Stops of lanes in two directions, of several numbers about what the limit pays for, ends at or off the walls.

    One route at a time: each takes milliseconds, and all of them together longer than a map may wait.
    """
    travel = problem.travel
    free = travel.free
    reached = travel.reachable(problem.start)
    nodes = travel.nodes[reached]
    area = free.open.sum() * free.resolution**2
    metres = min(problem.limit.metres, problem.limit.seconds * problem.limit.speed)
    for angle in (free.yaw, free.yaw + 0.5 * math.pi):
        along = np.array([math.cos(angle), math.sin(angle)])
        across = np.array([-along[1], along[0]])
        low, high = (nodes @ across).min(), (nodes @ across).max()
        span = float(high - low) + free.resolution
        # a lane is as long as the area is wide there, and lanes nearer than two places measure the same ones
        paid = min(metres / max(area / span, 1e-9), span / travel.spacing)
        for count in sorted({max(1, round(paid) + k) for k in range(-_TRIED + 1, _TRIED - 1)}):
            spacing = span / count
            for inset in (0.0, 0.35 * spacing):
                pieces = _pieces(problem, along, across, float(low) - 0.5 * free.resolution, spacing, count, inset)
                if pieces:
                    yield _joined(problem, pieces)


def _pieces(problem: Problem, along, across, low: float, spacing: float, count: int,
            inset: float) -> list[tuple[int, int]]:
    """Both ends (nodes) of each free piece of each lane."""
    travel = problem.travel
    free = travel.free
    reached = travel.reachable(problem.start)
    extent = travel.nodes @ along
    first, last = float(extent.min()), float(extent.max())
    count_along = max(2, math.ceil((last - first) / (0.5 * free.resolution)) + 1)
    marks = np.linspace(first, last, count_along)
    least = max(_LEAST * spacing, free.resolution)
    out = []
    for i in range(count):
        x = marks[:, None] * along + (low + (i + 0.5) * spacing) * across
        clear = free.allows(torch.from_numpy(x)).numpy()
        edges = np.flatnonzero(np.diff(np.concatenate([[False], clear, [False]]).astype(int)))
        for start, end in zip(edges[::2], edges[1::2] - 1):
            length = marks[end] - marks[start]
            if length < least:
                continue
            off = min(inset, 0.5 * length)
            ends = [travel.locate(x[start] + off * along), travel.locate(x[end] - off * along)]
            if None not in ends and reached[ends].all():
                out.append((ends[0], ends[1]))
    return out


def _joined(problem: Problem, pieces: list[tuple[int, int]]) -> tuple[int, ...]:
    """The pieces one after the other, the nearest end first, from the robot on."""
    travel = problem.travel
    left, stops, at = list(pieces), [], problem.start
    while left:
        away = travel.distances(at)[np.array(left)]  # (pieces, 2)
        piece, end = np.unravel_index(int(away.argmin()), away.shape)
        a, b = left.pop(piece)
        if end:
            a, b = b, a
        stops += [a, b] if a != b else [a]
        at = b
    return tuple(s for i, s in enumerate(stops) if i == 0 or s != stops[i - 1])

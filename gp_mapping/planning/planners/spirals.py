"""Two passes over the area for the metres of one: in along a spiral, and out again between its turns.

Both together are as long as lanes so far apart as their turns are (the area / that distance) and end as densely, but at
half of the way all of the area has been passed at that distance. Lanes in two passes cross the area once more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gp_mapping.planning.problem import Problem

__all__ = ["in_and_out", "spiral_routes"]

_FIRST = (
    0.35,
    0.42,
    0.5,
)  # distances of turns off the walls: beyond them nothing is measured, and nothing is wanted
_CORE = 0.6  # distances of turns: what is farther from the innermost one gets a way of its own
_STEP = 1.005  # of one distance that is tried to the next
_AGAIN = (
    2  # ways looked for: of the length of the limit, and shorter by as much as that one is too long
)


def spiral_routes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Stops of spirals as long as the limit, in and out from the corner nearest to the robot, either way round.

    Corners that are not free are left out.
    """
    travel, limit = problem.travel, problem.limit
    free = travel.free
    reached = travel.reachable(problem.start)
    axes = np.array(
        [[math.cos(free.yaw), math.sin(free.yaw)], [-math.sin(free.yaw), math.cos(free.yaw)]]
    )
    extent = travel.nodes[reached] @ axes.T
    low, high = extent.min(0), extent.max(0)
    far = problem.position @ axes.T > 0.5 * (low + high)
    grain = free.resolution * travel.block  # of the nodes

    paid = min(limit.metres, limit.seconds * limit.speed)
    for turned in (False, True) if paid > 0.0 else ():
        sides = (high - low)[::-1] if turned else high - low
        for first in _FIRST:
            metres = paid
            for _ in range(_AGAIN):
                x = _as_long_as(*sides, first, metres, travel.spacing, grain)
                if x is None:
                    break
                length = _length(x)
                x = x[:, ::-1] if turned else x
                nodes = travel.locate_all(np.where(far, high - x, low + x) @ axes)
                nodes = nodes[nodes >= 0]
                nodes = nodes[reached[nodes]]
                stops = tuple(int(n) for i, n in enumerate(nodes) if i == 0 or n != nodes[i - 1])
                yield stops
                drive = problem.drive(stops)
                if drive is None or problem.feasible(drive):
                    break
                metres = (
                    length / max(drive.metres / limit.metres, drive.seconds / limit.seconds) - grain
                )


def _as_long_as(
    width: float, height: float, first: float, metres: float, least: float, grain: float
) -> np.ndarray | None:
    """Corners (n, 2) m, on nodes so far apart, of the densest spirals no longer than that; None: not once around."""
    # what is so long is near the area / its metres, on either side of it as the nodes and the core have it
    apart = max(least, 0.9 * (width + grain) * (height + grain) / max(metres, grain))
    while apart < 0.5 * min(width, height):
        x = np.round(in_and_out(width, height, apart, first) / grain) * grain
        if _length(x) <= metres:
            return x
        apart *= _STEP
    return None


def _length(x: np.ndarray) -> float:
    return float(np.hypot(*np.diff(x, axis=0).T).sum())


def in_and_out(width: float, height: float, apart: float, first: float = 0.5) -> np.ndarray:
    """Corners (n, 2) m of both spirals in a rectangle, from near its corner (0, 0).

    Args:
        width, height: m.  apart: m between turns.  first: distance of the first one off the walls, in those between.
    """
    half = 0.5 * min(width, height)
    turns = max(1, math.ceil(half / apart - first))
    core = np.array([[half, half], [width - half, height - half]])
    ways = [_inward(width, height, (first + k) * apart, 2.0 * apart) for k in (0, 1)]
    bare = half - (first + turns - 1) * apart > _CORE * apart
    return np.vstack([ways[0], *([core] if bare else []), ways[1][::-1]])


def _inward(width: float, height: float, first: float, pitch: float) -> np.ndarray:
    """Corners (n, 2) of one spiral from (first, first), each turn so much farther in than the one before it."""
    x, off = [(first, first)], first
    while off < 0.5 * min(width, height):
        x += [(width - off, off), (width - off, height - off), (off, height - off)]
        if height - off <= off + pitch:
            break
        off += pitch
        x.append((off - pitch, off))
    return np.array(x) if len(x) > 1 else np.empty((0, 2))

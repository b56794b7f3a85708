"""Two passes over the area for the metres of one: in along a spiral, out between its turns.

Both together are as long as lanes whose distance is that of their turns (the area / that distance)
and end as densely, but at half of the way all of the area has been passed within that distance.
Lanes in two passes cross the area once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from gp_mapping.planning.problem import Problem

__all__ = ["in_and_out", "spiral_routes"]

# Distance of the first turn off the walls, in distances between turns: beyond the walls nothing is
# measured, and nothing needs to be known. The middle one tells whether the others are looked at.
_FIRST = (0.42, 0.35, 0.5)
_CORE = 0.6  # distances of turns: what is farther from the innermost one gets a way of its own
_STEP = 1.005  # ratio of one distance tried to the one before
# Ways tried: of the length of the limit, and shorter by as much as that one is too long.
_AGAIN = 2


def spiral_routes(
    problem: Problem, promising: Callable[[tuple[int, ...]], bool] = lambda stops: True
) -> Iterator[tuple[int, ...]]:
    """Yield the stops of spirals as long as the limit, in and out, either way round.

    They begin at the corner nearest to the robot. Corners that are not free are left out.

    Args:
        problem: the question.
        promising: whether a spiral is worth trying the same way round at other distances off the
            walls: among walls hardly one is.
    """
    travel, limit = problem.travel, problem.limit
    free = travel.free
    reached = travel.reachable(problem.start)

    # Coordinates along and across the grid.
    axes = np.array(
        [[math.cos(free.yaw), math.sin(free.yaw)], [-math.sin(free.yaw), math.cos(free.yaw)]]
    )
    extent = travel.nodes[reached] @ axes.T
    low, high = extent.min(0), extent.max(0)

    far = problem.position @ axes.T > 0.5 * (low + high)
    grain = free.resolution * travel.block  # m between nodes

    affordable = min(limit.metres, limit.seconds * limit.speed)
    for transposed in (False, True) if affordable > 0.0 else ():
        sides = (high - low)[::-1] if transposed else high - low
        for first in _FIRST:
            metres, stops = affordable, None
            for _ in range(_AGAIN):
                x = _densest_spirals(*sides, first, metres, travel.spacing, grain)
                if x is None:
                    break
                length = _length(x)
                x = x[:, ::-1] if transposed else x

                nodes = travel.locate_all(np.where(far, high - x, low + x) @ axes)
                nodes = nodes[nodes >= 0]
                nodes = nodes[reached[nodes]]
                stops = tuple(int(n) for i, n in enumerate(nodes) if i == 0 or n != nodes[i - 1])

                yield stops
                drive = problem.drive(stops)
                if drive is None or problem.feasible(drive):
                    break

                # Ways around obstacles made it too long: try a spiral that is shorter by that
                # factor.
                metres = (
                    length / max(drive.metres / limit.metres, drive.seconds / limit.seconds) - grain
                )

            if stops is None or not promising(stops):
                break


def _densest_spirals(
    width: float, height: float, first: float, metres: float, least: float, grain: float
) -> np.ndarray | None:
    """Return the corners (n, 2) m of the densest spirals in a rectangle that are short enough.

    Args:
        width: m.
        height: m.
        first: distance of the first turn off the walls, in distances between turns.
        metres: longest length.
        least: m, smallest distance between turns.
        grain: m, to whose multiples corners are rounded.

    Returns:
        Corners; None where the way does not lead once around.
    """
    # The distance is near area / metres, more or less by the rounding and the core.
    apart = max(least, 0.9 * (width + grain) * (height + grain) / max(metres, grain))
    while apart < 0.5 * min(width, height):
        x = np.round(in_and_out(width, height, apart, first) / grain) * grain
        # Lengths fall with the distance: the first that fits is the densest.
        if _length(x) <= metres:
            return x
        apart *= _STEP
    return None


def _length(x: np.ndarray) -> float:
    """Return the length of a line (n, 2) m."""
    return float(np.hypot(*np.diff(x, axis=0).T).sum())


def in_and_out(width: float, height: float, apart: float, first: float = 0.5) -> np.ndarray:
    """Return the corners (n, 2) m of both spirals in a rectangle, from near its corner (0, 0).

    Args:
        width: m.
        height: m.
        apart: m between turns of both together.
        first: distance of the first turn off the walls, in distances between turns.
    """
    half_width = 0.5 * min(width, height)
    turns = max(1, math.ceil(half_width / apart - first))

    core = np.array([[half_width, half_width], [width - half_width, height - half_width]])
    ways = [_inward(width, height, (first + k) * apart, 2.0 * apart) for k in (0, 1)]

    # Whether the innermost turn leaves a core that is not measured.
    bare = half_width - (first + turns - 1) * apart > _CORE * apart
    return np.vstack([ways[0], *([core] if bare else []), ways[1][::-1]])


def _inward(width: float, height: float, first: float, pitch: float) -> np.ndarray:
    """Return corners (n, 2) of one spiral from (first, first), each turn farther in by pitch."""
    x, inset = [(first, first)], first

    while inset < 0.5 * min(width, height):
        x += [(width - inset, inset), (width - inset, height - inset), (inset, height - inset)]
        if height - inset <= inset + pitch:
            break
        inset += pitch
        x.append((inset - pitch, inset))
    return np.array(x) if len(x) > 1 else np.empty((0, 2))

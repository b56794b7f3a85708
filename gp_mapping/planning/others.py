"""What other robots will measure, in the order in which all robots of a team choose.

    robot 1's first place, robot 2's first, …, robot 1's second, robot 2's second, …

Each choice is made as if all choices before it had been measured (sequential allocation). The order
is the same for everybody and no choice depends on a later one, so the team settles: where a choice
changes, only those after it may change.

Reference:
    Singh et al., Efficient informative sensing using multiple robots, 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gp_mapping.planning.free_space import along

__all__ = ["NOBODY", "Others", "Transform", "moved", "points_along", "take_turns"]

Transform = tuple[float, float, float]
"""Where the origin of another robot's frame lies in this map's: x, y (m) and yaw (rad)."""


@dataclass(frozen=True)
class Others:
    """What other robots will measure, whatever this one chooses, or before each of its choices.

    Attributes:
        lines: (K, 2) m each, that they drive by their plans.
        turns: for each choice of this robot those that others make right before it: (m, 2) m each,
            where a robot measures on its way to a place, that place last.
    """

    lines: tuple[np.ndarray, ...] = ()
    turns: tuple[tuple[np.ndarray, ...], ...] = ()

    def before(self, choice: int) -> tuple[np.ndarray, ...]:
        """Choices (m, 2) m of others that come right before one of this robot, counted from 0."""
        return self.turns[choice] if choice < len(self.turns) else ()


NOBODY = Others()


def take_turns(
    earlier: Sequence[Sequence[np.ndarray]], later: Sequence[Sequence[np.ndarray]], count: int
) -> tuple[tuple[np.ndarray, ...], ...]:
    """Return `Others.turns` for the first choices of a robot.

    Args:
        earlier: choices of each robot that comes before this one, in order.
        later: choices of each robot that comes after it.
        count: how many choices this robot makes.
    """
    return tuple(
        (
            *(claims[i - 1] for claims in later if 0 < i <= len(claims)),
            *(claims[i] for claims in earlier if i < len(claims)),
        )
        for i in range(count)
    )


def points_along(lines: Sequence[np.ndarray], spacing: float, most: int) -> np.ndarray:
    """Return points (N, 2) m along lines, at most `spacing` m apart, or `most` of them evenly.

    Args:
        lines: (K, 2) m each.
        spacing: m.
        most: how many points, at most.
    """
    points = [np.empty((0, 2))]
    for line in lines:
        if len(line) < 2:
            points.append(line)
            continue
        pieces = np.hypot(*np.diff(line, axis=0).T)
        count = np.minimum(np.ceil(pieces / spacing), most).astype(int) + 1
        points.append(along(line[:-1], line[1:], np.maximum(2, count))[0])
    x = np.unique(np.concatenate(points), axis=0)
    return x if len(x) <= most else x[np.linspace(0, len(x) - 1, most).round().astype(int)]


def moved(xy: np.ndarray, transform: Transform) -> np.ndarray:
    """Return places (N, 2) m of another robot's frame in this map's."""
    x, y, yaw = transform
    # rows are points: R p + t is p Rᵀ + t
    return xy @ np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]]) + (x, y)

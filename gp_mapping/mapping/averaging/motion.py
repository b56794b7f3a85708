"""How a robot moved while the samples of a cell were taken."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["extent_along", "slower_velocity"]


def slower_velocity(before, here, after) -> np.ndarray:
    """The slower of the velocities before → here → after: (D,), m/s; 0 where there is neither.

    Args:
        before: place (D) and stamp (s), or None.
        here: place and stamp.
        after: place and stamp, or None.
    """
    ways = [
        (np.subtract(b[0], a[0]), b[1] - a[1])
        for a, b in ((before, here), (here, after))
        if a and b
    ]
    velocities = [way / seconds for way, seconds in ways if seconds > 0]
    return min(
        velocities, key=lambda velocity: float(velocity @ velocity), default=np.zeros_like(here[0])
    )


def extent_along(x: np.ndarray, velocity: np.ndarray) -> float:
    """Standard deviation of places along a velocity, m.

    Args:
        x: places (n, D), m.
        velocity: (D,), m/s.
    """
    speed = math.hypot(*velocity)
    if len(x) < 2 or not speed > 0.0:
        return 0.0
    along = (x - x[0]) @ (velocity / speed)
    # as np.std, which takes four times as long for so few numbers
    along -= np.add.reduce(along) / len(along)
    return math.sqrt(np.add.reduce(along * along) / len(along))

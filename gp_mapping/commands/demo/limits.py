"""The limits by which the demo is judged, and its speed; --help states them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAST", "FULL", "LANES_SPEED", "NEAR", "PLANNED", "PLAN_SPEED", "Limits"]

LANES_SPEED, PLAN_SPEED = 8.0, 5.0  # simulated seconds per second
NEAR = 0.3  # m: the map is judged where the robot has been


class Limits(NamedTuple):
    """What a map must keep to.

    They are wide, because dipoles are rougher than any stationary prior, errors are correlated, and
    one drive is one sample.

    Attributes:
        error: largest RMSE near the path, as a fraction of the field's own stddev there.
        coverage: smallest fraction of the truth inside the 95 % interval.
    """

    error: float
    coverage: float


# FULL: lanes 0.4 m apart and crossed. FAST: lanes that pass each place once.
FULL, FAST = (
    Limits(0.35, 0.8),
    Limits(0.5, 0.7),
)
PLANNED = Limits(0.75, 0.6)  # a planned route, far shorter than such lanes, driven once

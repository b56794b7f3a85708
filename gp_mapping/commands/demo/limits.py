"""By what the demo is judged, and how fast it goes; --help says it, too."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAST", "FULL", "LANES_SPEED", "NEAR", "PLANNED", "PLAN_SPEED", "Limits"]

LANES_SPEED, PLAN_SPEED = 8.0, 5.0  # simulated seconds per second
NEAR = 0.3  # m: the map is judged where the robot has been


class Limits(NamedTuple):
    """error: largest RMSE near the path as a share of the field's own standard deviation there.

    coverage: smallest share of the truth inside the 95 % interval. Wide, because dipoles are rougher than any
    stationary prior, errors are correlated, and one drive is one sample.
    """

    error: float
    coverage: float


FULL, FAST = (
    Limits(0.35, 0.8),
    Limits(0.5, 0.7),
)  # lanes 0.4 m apart and crossed; lanes that come by once
PLANNED = Limits(0.75, 0.6)  # a few of the metres that such lanes take, once

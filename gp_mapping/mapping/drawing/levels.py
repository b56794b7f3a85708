"""What the values 1 and 98 of the OccupancyGrids stand for. No ROS: the worker finds them with each drawing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

__all__ = ["Limits", "field_limits", "nice_limits"]


class Limits(NamedTuple):
    """What the values 1 and 98 of the two OccupancyGrids stand for, SI."""

    mean_low: float
    mean_high: float
    stddev_low: float
    stddev_high: float


def nice_limits(low: float, high: float) -> tuple[float, float]:
    """The range rounded outwards to steps of 1, 2 or 5 · 10ᵏ, about 20 in it, so that colours do not flicker."""
    span = high - low
    smallest = 1e-6 * max(abs(low), abs(high)) or 1.0  # a flat field: a range that int8 can still show
    span = max(span, smallest)
    raw = span / 20.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, max(last, first + 1) * step


def field_limits(grid) -> Limits | None:
    """Limits of mean and stddev (from 0) over the known cells of a FieldGrid; None where nothing is known."""
    mean, stddev, known = (values.detach().cpu().numpy() for values in (grid.mean, grid.stddev, grid.known))
    if not known.any():
        return None
    shown = mean[known]
    highest = float(stddev.max(where=known, initial=-np.inf))
    return Limits(*nice_limits(float(shown.min()), float(shown.max())), *nice_limits(0.0, highest))

"""The scale 1…98 of drawn maps and the values of its ends.

It is the same in RViz, map_server and the browser.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

__all__ = ["HIGHEST", "LOWEST", "UNKNOWN", "Limits", "field_limits", "levels", "nice_limits"]

# RViz: 0 is transparent, 99 and 100 are special, -1 is unknown
LOWEST, HIGHEST, UNKNOWN = 1, 98, -1
_ROWS = 32  # of a grid at a time, which stay in a processor's cache: time and memory alone


class Limits(NamedTuple):
    """What the values 1 and 98 of the two OccupancyGrids stand for.

    Attributes:
        mean_low: 1 in the grid of the mean, SI.
        mean_high: 98 in it, SI.
        stddev_low: 1 in the grid of the standard deviation, SI.
        stddev_high: 98 in it, SI.
    """

    mean_low: float
    mean_high: float
    stddev_low: float
    stddev_high: float


def nice_limits(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards to steps of 1, 2 or 5 · 10ᵏ, so that colours do not flicker.

    There are about 20 steps in it. A flat field gets one step.

    Args:
        low: smallest value.
        high: largest value, in the same unit.

    Returns:
        The rounded ends; the second one is larger than the first.
    """
    span = high - low
    # of a flat field: a range that int8 can still show
    smallest = 1e-6 * max(abs(low), abs(high)) or 1.0
    span = max(span, smallest)

    raw = span / 20.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(
        factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9)
    )

    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return first * step, max(last, first + 1) * step


def field_limits(grid) -> Limits | None:
    """Limits of mean and stddev (from 0) over the known cells of a grid; None without any.

    Args:
        grid: a FieldGrid.
    """
    mean, stddev, known = (
        values.detach().cpu().numpy() for values in (grid.mean, grid.stddev, grid.known)
    )
    if not known.any():
        return None

    shown = mean[known]
    highest = float(stddev.max(where=known, initial=-np.inf))
    return Limits(*nice_limits(float(shown.min()), float(shown.max())), *nice_limits(0.0, highest))


def levels(values: np.ndarray, known: np.ndarray, low: float, high: float) -> np.ndarray:
    """Levels of values on the scale; −1 where unknown.

        1 + round(97 (v − low) / (high − low)),   at least 1 and at most 98

    Args:
        values: (H, W).
        known: (H, W) bool.
        low: value of level 1.
        high: value of level 98.

    Returns:
        (H, W) int8.
    """
    out = np.empty(values.shape, np.int8)
    scratch = np.empty((min(_ROWS, len(values)), values.shape[1]))

    scale = (HIGHEST - LOWEST) / (high - low)
    # a few rows at a time, in one scratch array
    for i in range(0, len(values), _ROWS):
        part = scratch[: len(values[i : i + _ROWS])]
        np.subtract(values[i : i + _ROWS], low, out=part)
        part *= scale
        part += LOWEST
        np.rint(part, out=part)
        np.clip(part, LOWEST, HIGHEST, out=part)
        np.copyto(out[i : i + _ROWS], part, casting="unsafe")

    out |= np.negative((~known).view(np.int8))  # all bits set is −1
    return out

"""One way between two places: its line, its turns, and how many measurements stand for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Leg", "angle_between", "angles_between", "measurements", "signed_angles_between"]


@dataclass(frozen=True)
class Leg:
    """One way, straightened.

    Attributes:
        line: (K, 2) m, corners in order, start and end included.
        metres: its length.
        turned: radians turned at its inner corners.
        first: radians, heading of its first piece; NaN where start and end are one place.
        last: radians, heading of its last piece; NaN likewise.
        count: n, number of points evenly along it.
    """

    line: np.ndarray
    metres: float
    turned: float
    first: float
    last: float
    count: int

    @cached_property
    def points(self) -> np.ndarray:
        """(n, 2) m, evenly along it, both ends included: of most legs nobody asks for them."""
        ends = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self.line, axis=0).T))])
        marks = np.linspace(0.0, self.metres, self.count)
        return np.stack([np.interp(marks, ends, self.line[:, i]) for i in (0, 1)], 1)


def angles_between(a, b):
    """Return the angles between headings, 0 … π.

    Args:
        a: rad, a number or an array.
        b: rad, of a shape that goes with a's.

    Returns:
        rad; 0 where one of the two is NaN.
    """
    return np.abs(signed_angles_between(a, b))


def signed_angles_between(a, b):
    """Return the turns from headings a to b, −π … π, as `angles_between` does without the sign."""
    return np.nan_to_num(np.remainder(np.asarray(b) - np.asarray(a) + np.pi, 2 * np.pi) - np.pi)


def angle_between(a: float, b: float) -> float:
    """Return the angle between two headings, as `angles_between` does for arrays.

    Args:
        a: rad.
        b: rad.
    """
    return 0.0 if math.isnan(a) or math.isnan(b) else abs(math.remainder(b - a, math.tau))


def measurements(metres: float, step: float) -> int:
    """Return how many measurements stand for a way, at least one.

    Args:
        metres: length of the way, m.
        step: distance between two measurements, m.
    """
    return max(1, round(metres / step))

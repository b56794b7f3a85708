"""Which places can be meant: finite, and no farther than where a float still has its millimetres."""

from __future__ import annotations

import numpy as np

from gp_mapping.core.types import FARTHEST

__all__ = ["FARTHEST", "on_earth"]


def on_earth(x) -> np.ndarray:
    """Whether places are any that a map can have: (N,) bool; finite, and no coordinate beyond FARTHEST.

    Args:
        x: (N, 2) m.
    """
    return (np.abs(np.asarray(x, dtype=np.float64)) <= FARTHEST).all(1)  # NaN is not

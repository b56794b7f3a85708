"""Valid coordinates: finite, and no farther out than where a float still resolves millimetres."""

from __future__ import annotations

import numpy as np

from gp_mapping.core.types import FARTHEST

__all__ = ["FARTHEST", "are_valid_places"]


def are_valid_places(x) -> np.ndarray:
    """Return which places a map can have: finite, and no coordinate beyond FARTHEST.

    Args:
        x: (N, 2) m.

    Returns:
        (N,) bool.
    """
    return (np.abs(np.asarray(x, dtype=np.float64)) <= FARTHEST).all(1)  # NaN compares false

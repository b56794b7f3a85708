"""Several channels are the components of one vector: its norm, which is what one map can show of them."""

from __future__ import annotations

import numpy as np

__all__ = ["AXES", "axis_names", "norm"]

AXES = ("x", "y", "z")


def axis_names(channels: int) -> tuple[str, ...]:
    """Names of the components: x y z, or numbers where there are more; () for a map of one channel."""
    if channels == 1:
        return ()
    return AXES[:channels] if channels <= len(AXES) else tuple(map(str, range(channels)))


def norm(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the norm |b|, to first order (the delta method).

    |m| and √(Σ_c b̂_c² v_c) with b̂ = m / |m|. A map is not asked for the covariances between its components, so they
    count as zero: right to first order where the components are independent. What that leaves out of the mean is at
    most Σ v / (2 |m|). Where |m| = 0 there is no direction: √(mean v).

    mean, variance: (C, …), the unit and its square.  Returns two arrays of the rest of the shape.
    """
    if len(mean) == 1:
        return mean[0], np.sqrt(np.maximum(variance[0], 0.0))
    length = np.sqrt(np.square(mean).sum(0))
    there = length > 0.0
    weight = np.where(there, np.square(mean) / np.where(there, np.square(length), 1.0), 1.0 / len(mean))
    return length, np.sqrt(np.maximum((weight * variance).sum(0), 0.0))

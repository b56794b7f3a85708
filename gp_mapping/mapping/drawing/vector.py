"""Several channels are the components of one vector: its norm, which is what one map can show of them."""

from __future__ import annotations

import numpy as np

from gp_mapping.core.types import Prediction

__all__ = ["AXES", "axis_names", "excess", "norm"]

AXES = ("x", "y", "z")


def axis_names(channels: int) -> tuple[str, ...]:
    """Names of the components: x y z, or numbers where there are more; () for a map of one channel."""
    if channels == 1:
        return ()
    return AXES[:channels] if channels <= len(AXES) else tuple(map(str, range(channels)))


def norm(mean: np.ndarray, variance: np.ndarray, excess=0.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the norm |b|, to first order (the delta method).

    |m| and √(b̂ᵀΣb̂) = √(Σ_c b̂_c² v_c + excess), b̂ = m / |m|. What that leaves out of the mean is at most Σ v / (2 |m|).
    Where |m| = 0 there is no direction: √(mean v).

    mean, variance: (C, …), the unit and its square.  excess: (…), of `excess`; 0 where the components are independent.
    Returns two arrays of the rest of the shape.
    """
    if len(mean) == 1:
        return mean[0], np.sqrt(np.maximum(variance[0], 0.0))
    length = np.sqrt(np.square(mean).sum(0))
    there = length > 0.0
    weight = np.where(
        there, np.square(mean) / np.where(there, np.square(length), 1.0), 1.0 / len(mean)
    )
    return length, np.sqrt(np.maximum((weight * variance).sum(0) + excess, 0.0))


def excess(prediction: Prediction) -> np.ndarray:
    """What the covariances between the components add to the norm's variance: b̂ᵀ(Σ − diag Σ)b̂, (N,). 0 without them."""
    if prediction.covariance is None:
        return np.zeros(len(prediction.mean))
    mean = prediction.mean.cpu().numpy()
    unit = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
    whole = np.einsum("nc,ncd,nd->n", unit, prediction.covariance.cpu().numpy(), unit)
    return whole - (unit**2 * prediction.variance.cpu().numpy()).sum(1)

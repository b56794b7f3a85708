"""Several channels as the components of one vector, of which one map can show the norm."""

from __future__ import annotations

import numpy as np

from gp_mapping.core.types import Prediction

__all__ = ["AXES", "axis_names", "excess", "excess_of", "norm"]

AXES = ("x", "y", "z")


def axis_names(channels: int) -> tuple[str, ...]:
    """Names of the components: x y z, or numbers of more than three; () for one channel."""
    if channels == 1:
        return ()
    return AXES[:channels] if channels <= len(AXES) else tuple(map(str, range(channels)))


def norm(mean: np.ndarray, variance: np.ndarray, excess=0.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the norm |b|, to first order (the delta method).

        |m| and √(b̂ᵀΣb̂) = √(Σ_c b̂_c² v_c + excess),   b̂ = m / |m|

    What that leaves out of the mean is at most Σ v / (2 |m|). Where |m| = 0 there is no direction:
    √(mean v).

    Args:
        mean: (C, …), in the unit.
        variance: (C, …), its square.
        excess: (…), of `excess`; 0 where the components are independent.

    Returns:
        Two arrays of shape (…).
    """
    if len(mean) == 1:
        return mean[0], np.sqrt(np.maximum(variance[0], 0.0))

    length = np.sqrt(np.square(mean).sum(0))
    nonzero = length > 0.0
    weight = np.where(
        nonzero, np.square(mean) / np.where(nonzero, np.square(length), 1.0), 1.0 / len(mean)
    )

    return length, np.sqrt(np.maximum((weight * variance).sum(0) + excess, 0.0))


def excess(prediction: Prediction) -> np.ndarray:
    """What covariances between components add to the norm's variance: (N,); 0 without them.

    b̂ᵀ(Σ − diag Σ)b̂
    """
    if prediction.covariance is None:
        return np.zeros(len(prediction.mean))

    mean = prediction.mean.cpu().numpy()
    unit = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
    full_variance = np.einsum("nc,ncd,nd->n", unit, prediction.covariance.cpu().numpy(), unit)

    return full_variance - (unit**2 * prediction.variance.cpu().numpy()).sum(1)


def excess_of(mean: np.ndarray, common: np.ndarray) -> np.ndarray:
    """`excess` of errors of all components that are one number times `common`: (…).

        (b̂·c)² − Σ_k b̂_k² c_k²

    Args:
        mean: (C, …).
        common: c (C, …), a standard deviation with its sign.
    """
    unit = mean / np.maximum(np.linalg.norm(mean, axis=0), 1e-300)
    each = unit * common
    return np.square(each.sum(0)) - np.square(each).sum(0)

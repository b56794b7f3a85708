"""Several channels as the components of one vector, of which one map can show the norm."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.types import Prediction

__all__ = ["AXES", "axis_names", "excess", "excess_of", "norm"]

AXES = ("x", "y", "z")


def axis_names(channels: int) -> tuple[str, ...]:
    """Names of the components: x y z, or numbers of more than three; () for one channel."""
    if channels == 1:
        return ()
    return AXES[:channels] if channels <= len(AXES) else tuple(map(str, range(channels)))


def norm(mean: Tensor, variance: Tensor, excess: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the norm |b|, to first order (the delta method).

        |m| and √(b̂ᵀΣb̂) = √(Σ_c b̂_c² v_c + excess),   b̂ = m / |m|

    What that leaves out of the mean is at most Σ v / (2 |m|). Where |m| = 0 there is no direction:
    √(mean v).

    Args:
        mean: (C, …), in the unit.
        variance: (C, …), its square.
        excess: (…), of `excess`; 0 where the components are independent.

    Returns:
        Two tensors of shape (…).
    """
    if len(mean) == 1:
        return mean[0], variance[0].clamp_min(0.0).sqrt()

    square = mean.square()
    of_length = square.sum(0)
    nonzero = of_length > 0.0
    weight = torch.where(nonzero, square / torch.where(nonzero, of_length, 1.0), 1.0 / len(mean))
    return of_length.sqrt(), ((weight * variance).sum(0) + excess).clamp_min(0.0).sqrt()


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


def excess_of(mean: Tensor, common: Tensor) -> Tensor:
    """`excess` of errors of all components that are one number times `common`: (…).

        (b̂·c)² − Σ_k b̂_k² c_k²

    Args:
        mean: (C, …).
        common: c (C, …), a standard deviation with its sign.
    """
    unit = mean / torch.linalg.vector_norm(mean, dim=0).clamp_min(1e-300)
    each = unit * common
    return each.sum(0).square() - each.square().sum(0)

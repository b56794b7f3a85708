"""The features φ = [1, ĥ] next to the lattice: a constant, and the body-fixed field."""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta

__all__ = ["FEATURES", "feature_prior", "feature_rows", "features_at", "unresolved"]

FEATURES = 3  # 1, heading along x, heading along y


def feature_rows(heading: Tensor) -> Tensor:
    """φ of samples with heading ĥ (N, 2): (N, 3)."""
    return torch.cat([torch.ones_like(heading[:, :1]), heading], 1)


def features_at(theta: Theta, x: Tensor, heading: Tensor | None) -> Tensor:
    """φ at places, with ĥ = 0 where the robot has no field of its own or is to be left out.

    Args:
        theta: hyper-parameters.
        x: (N, 2) places.
        heading: (N, 2) ĥ; None leaves the robot out.

    Returns:
        (N, 3).
    """
    if heading is None or theta.heading_stddev <= 0:
        heading = torch.zeros((len(x), 2), dtype=torch.float64, device=x.device)
    return feature_rows(heading)


def feature_prior(theta: Theta, device) -> Tensor:
    """Prior variances of the features' weights: (3,)."""
    stddevs = (theta.constant_stddev, theta.heading_stddev, theta.heading_stddev)
    return torch.tensor(stddevs, dtype=torch.float64, device=device).square()


def unresolved(sums: Tensor, phi: Tensor, mass: Tensor) -> Tensor:
    """The headings' spread within aggregates, which they do not resolve: Σ β φφᵀ − Σ m φ̄φ̄ᵀ.

    A constant does not vary within an aggregate.

    Args:
        sums: (3, 3) Σ β φφᵀ of the samples.
        phi: (K, 3) mean features φ̄ of the aggregates.
        mass: (K,) their masses m.

    Returns:
        (3, 3), positive semidefinite.
    """
    spread = sums - (phi.mT * mass) @ phi
    spread[0], spread[:, 0] = 0.0, 0.0

    # negative eigenvalues are rounding
    values, vectors = torch.linalg.eigh(spread)
    return (vectors * values.clamp_min(0.0)) @ vectors.mT

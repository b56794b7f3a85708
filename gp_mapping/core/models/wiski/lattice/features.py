"""The features beside the lattice, φ = [1, ĥ]: a constant, and what turns with the robot."""

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
    """φ at x (N, 2): (N, 3), ĥ = 0 where the robot is to be left out, or has no field of its own."""
    if heading is None or theta.heading_stddev <= 0:
        heading = torch.zeros((len(x), 2), dtype=torch.float64, device=x.device)
    return feature_rows(heading)


def feature_prior(theta: Theta, device) -> Tensor:
    """Prior variances of φ's weights: (3,)."""
    stddevs = (theta.constant_stddev, theta.heading_stddev, theta.heading_stddev)
    return torch.tensor(stddevs, dtype=torch.float64, device=device).square()


def unresolved(sums: Tensor, phi: Tensor, mass: Tensor) -> Tensor:
    """What aggregated samples φ (K, 3) of mass (K,) leave of Σ β φφᵀ (3, 3): the headings' spread within each of them.

    Its negative eigenvalues are rounding; a constant does not vary within an aggregate.
    """
    left = sums - (phi.mT * mass) @ phi
    left[0], left[:, 0] = 0.0, 0.0
    values, vectors = torch.linalg.eigh(left)
    return (vectors * values.clamp_min(0.0)) @ vectors.mT

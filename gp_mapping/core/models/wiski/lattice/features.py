"""The features φ = [1, ĥ, e_p] next to the lattice: a constant, the robot's field, and passes.

e_p is 1 for the samples of pass p: its weight is the constant of that pass, with prior variance
s_b². An aggregate has the mean features of its samples. All but the 1 are called covariates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta

__all__ = [
    "COVARIATES",
    "FEATURES",
    "feature_prior",
    "feature_rows",
    "features_at",
    "longer",
    "unresolved",
]

FEATURES = 3  # 1, heading along x, heading along y; after them one of each pass
COVARIATES = FEATURES - 1  # before the passes


def feature_rows(covariates: Tensor) -> Tensor:
    """φ of samples with covariates [ĥ, e_p] (N, 2 + P): (N, 3 + P)."""
    return torch.cat([torch.ones_like(covariates[:, :1]), covariates], 1)


def features_at(
    theta: Theta,
    x: Tensor,
    heading: Tensor | None,
    numbers: tuple[float, ...] = (),
    number: float | None = None,
) -> Tensor:
    """φ at places, with ĥ = 0 where the robot has no field of its own or is to be left out.

    Args:
        theta: hyper-parameters.
        x: (N, 2) places.
        heading: (N, 2) ĥ; None leaves the robot out.
        numbers: of the P passes that have a feature.
        number: of the pass whose constant is wanted, too; None, or one without a feature: of none.

    Returns:
        (N, 3 + P).
    """
    covariates = torch.zeros(
        (len(x), COVARIATES + len(numbers)), dtype=torch.float64, device=x.device
    )
    if heading is not None and theta.heading_stddev > 0:
        covariates[:, :COVARIATES] = heading
    if number in numbers:
        covariates[:, COVARIATES + numbers.index(number)] = 1.0
    return feature_rows(covariates)


def feature_prior(theta: Theta, passes: int, device) -> Tensor:
    """Prior variances of the features' weights, [s_c², s_h², s_h², s_b² …]: (3 + P,).

    Args:
        theta: gives the standard deviations.
        passes: P.
        device: of the result.
    """
    stddevs = (
        theta.constant_stddev,
        theta.heading_stddev,
        theta.heading_stddev,
        *passes * (theta.bias_stddev,),
    )
    return torch.tensor(stddevs, dtype=torch.float64, device=device).square()


def longer(rows: Tensor, count: int) -> Tensor:
    """Rows (n, C) with zeros below them, so that there are `count`."""
    return torch.nn.functional.pad(rows, (0, 0, 0, count - len(rows)))


def unresolved(sums: Tensor, phi: Tensor, mass: Tensor) -> Tensor:
    """The features' spread within aggregates, which they do not resolve: Σ β φφᵀ − Σ m φ̄φ̄ᵀ.

    It is what the aggregates' samples tell of the features by differing from each other: headings,
    and passes that cross there. A constant does not vary within an aggregate.

    Args:
        sums: (F, F) Σ β φφᵀ of the samples.
        phi: (K, F) mean features φ̄ of the aggregates.
        mass: (K,) their masses m.

    Returns:
        (F, F), positive semidefinite.
    """
    spread = sums - (phi.mT * mass) @ phi
    spread[0], spread[:, 0] = 0.0, 0.0

    # negative eigenvalues are rounding
    values, vectors = torch.linalg.eigh(spread)
    return (vectors * values.clamp_min(0.0)) @ vectors.mT

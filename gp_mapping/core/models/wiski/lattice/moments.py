"""Moments of an aggregate: the samples in a square of half a spacing as one weighted sample.

    β = Σ β_i    Σ β_i d_i    Σ β_i d_i d_iᵀ    (xx, yy, xy)

where d_i, in spacings, leads from the centre of the square to a sample. They are sums, so they add
and subtract.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MOMENTS", "mean_and_covariance", "moments_in_squares", "split_wide"]

# columns of the moments: mass (1), first moment (2) and second moments (3)
MOMENTS = 6


def moments_in_squares(doubled: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """Moments of single samples about the centres of the squares that hold them.

    Args:
        doubled: (N, 2) places in half spacings from the box's first node.
        mass: (N, 1) precisions β.

    Returns:
        Row and column of each sample's square (N, 2), and its moments (N, 6).
    """
    square = doubled.floor()
    offset = 0.5 * (doubled - square - 0.5)
    moment = offset * mass
    second = torch.cat([moment * offset, moment[:, :1] * offset[:, 1:]], 1)
    return square, torch.cat([mass, moment, second], 1)


def mean_and_covariance(moments: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the samples of aggregates.

    Args:
        moments: (K, 6 or more), K with a mass that is not 0.

    Returns:
        Mean from the square's centre (K, 2), in spacings, and covariance (K, 3: xx, yy, xy).
    """
    beta = moments[:, 0]
    # a subtraction leaves rounding: the mean stays within its square
    offset = (moments[:, 1:3] / beta[:, None]).clamp(-0.25, 0.25)
    squares = torch.cat([offset.square(), offset[:, :1] * offset[:, 1:]], 1)
    return offset, moments[:, 3:MOMENTS] / beta[:, None] - squares


def split_wide(
    x: Tensor, covariates: Tensor, beta: Tensor, second: Tensor, worth: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Split weighted samples that stand for wide ones, so that these keep their spread.

    One whose β times variance along its longer axis exceeds `worth` becomes two samples, four where
    that along its shorter axis does, too: what its samples say of the field's slope is kept.

    Args:
        x: (K, 2) m.
        covariates: (K, 2 + P).
        beta: (K,) precisions.
        second: (K, 3: xx, yy, xy) covariance of the samples about x, m².
        worth: bound of β·(spread, m²).

    Returns:
        x (K', 2), covariates (K', 2 + P), beta (K',).
    """
    # eigenvalues middle ± gap of the 2 × 2 covariance, and the directions of its axes
    a, b, c = second[:, 0], second[:, 1], second[:, 2]
    gap = (0.25 * (a - b).square() + c.square()).sqrt()
    middle, angle = 0.5 * (a + b), 0.5 * torch.atan2(2 * c, a - b)
    axis = torch.stack([angle.cos(), angle.sin()], 1)
    across = torch.stack([-axis[:, 1], axis[:, 0]], 1)

    # places that keep the second moment: ±√λ of half the mass each, ±√(2λ) of a quarter
    long = axis * (middle + gap).clamp_min(0.0).sqrt()[:, None]
    short = across * (middle - gap).clamp_min(0.0).sqrt()[:, None]
    two, four = beta * (middle + gap) > worth, beta * (middle - gap) > worth
    unsplit, two = ~two, two & ~four
    steps = torch.cat([long[four], -long[four], short[four], -short[four]]) * 2**0.5

    places = [x[unsplit], x[two] + long[two], x[two] - long[two], x[four].repeat(4, 1) + steps]
    features = [covariates[unsplit], covariates[two].repeat(2, 1), covariates[four].repeat(4, 1)]
    masses = [beta[unsplit], 0.5 * beta[two].repeat(2), 0.25 * beta[four].repeat(4)]
    return torch.cat(places), torch.cat(features), torch.cat(masses)

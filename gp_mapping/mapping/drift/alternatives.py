"""Covariances of what looks like a drift: wandering poses, late stamps, a slow sensor, a change."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gp_mapping.mapping.response.track import velocity_along

__all__ = ["DriftTrack", "change_window", "follow", "roughness"]


class DriftTrack(NamedTuple):
    """Averages over short stretches of the path, in order of time.

    Attributes:
        x: places (N, 2), m.
        y: values (N,).
        stamp: (N,), s.
        passes: number of the pass of each (N,).
        heading: forward axis of the robot (N, 2) where the map lets the sensor turn with it; else
            None.
        forward: the same where it does not, but the sensor may do so all the same; else None.
        motion: velocity (N, 2), m/s; None: as places and stamps tell.
    """

    x: Tensor
    y: Tensor
    stamp: Tensor
    passes: Tensor
    heading: Tensor | None = None
    forward: Tensor | None = None
    motion: Tensor | None = None

    @property
    def begins(self) -> Tensor:
        """Whether a pass begins at each, (N,) bool."""
        return torch.cat([torch.ones(1, dtype=torch.bool), self.passes.diff() != 0])

    def velocity(self) -> Tensor:
        """(N, 2) m/s."""
        return (
            self.motion
            if self.motion is not None
            else velocity_along(self.x, self.stamp, self.begins)
        )


def roughness(apart: Tensor, length: float) -> Tensor:
    """−∇²k ℓ² of Matérn-5/2 at distances (N, N): what a wandering pose adds, per ℓ² of it."""
    s = math.sqrt(5.0) * apart / length
    return (5.0 / 3.0) * (1.0 + s - 0.5 * s.square()) * (-s).exp()


def follow(track: DriftTrack, tau: float, values: Tensor) -> Tensor:
    """H F, what a sensor of the time constant `tau` makes of each column of F, (N, M).

    y_i = a y_{i−1} + (1 − a) f_i with a = exp(−(t_i − t_{i−1})/τ), and y_i = f_i where a pass
    begins. So H K Hᵀ costs some N² operations, not N³.

    Args:
        track: stamps and passes of the N rows.
        tau: s.
        values: F (N, M).
    """
    keep = torch.exp(-track.stamp.diff().clamp_min(0.0) / tau)
    keep[track.begins[1:]] = 0.0
    told = values.clone(memory_format=torch.contiguous_format)
    told[1:] *= (1.0 - keep)[:, None]
    # the same memory: of rows this short a call of torch takes three times as long
    rows = told.numpy()
    for i, share in enumerate(keep.tolist(), 1):
        rows[i] += share * rows[i - 1]
    return told


def change_window(
    covariance: Tensor, y: Tensor, change: Tensor, apart: Tensor, width: float
) -> Tensor:
    """How much each place (N,) lies where a change of the field about one place explains most.

    With the window g about each place in turn, the one of the steepest evidence

        ½ (αᵀ(ggᵀ∘C)α/s² − tr K⁻¹(ggᵀ∘C)),   α = K⁻¹y,   s² = yᵀα/N

    Args:
        covariance: K of the values without a change (N, N).
        y: values (N, 1).
        change: C, of the change itself, (N, N).
        apart: distances (N, N), m.
        width: of the window, m.
    """
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    weights = inverse @ y
    steep = (weights @ weights.mT * (len(y) / (y * weights).sum()) - inverse) * change
    windows = (-0.5 * (apart / width).square()).exp()
    return windows[int(((windows @ steep) * windows).sum(1).argmax())]

"""Covariances of what looks like a drift: wandering poses, late stamps, a slow sensor, a change."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["DriftTrack", "change_window", "response", "roughness", "velocity"]


class DriftTrack(NamedTuple):
    """Averages over short stretches of the path, in order of time.

    Attributes:
        x: places (N, 2), m.
        y: values (N,).
        stamp: (N,), s.
        passes: number of the pass of each (N,).
        heading: forward axis of the robot (N, 2) where the sensor may turn with it; else None.
    """

    x: Tensor
    y: Tensor
    stamp: Tensor
    passes: Tensor
    heading: Tensor | None = None


def roughness(apart: Tensor, length: float) -> Tensor:
    """−∇²k ℓ² of Matérn-5/2 at distances (N, N): what a wandering pose adds, per ℓ² of it."""
    s = math.sqrt(5.0) * apart / length
    return (5.0 / 3.0) * (1.0 + s - 0.5 * s.square()) * (-s).exp()


def velocity(track: DriftTrack) -> Tensor:
    """(N, 2) m/s, from the block before to the one after, of one pass."""
    own = torch.arange(len(track.y))
    other = torch.ones(1, dtype=torch.bool)
    begins = torch.cat([other, track.passes.diff() != 0])
    ends = torch.cat([begins[1:], other])
    before, after = torch.where(begins, own, own - 1), torch.where(ends, own, own + 1)
    elapsed = (track.stamp[after] - track.stamp[before])[:, None]
    return torch.where(
        elapsed > 0, (track.x[after] - track.x[before]) / elapsed.clamp_min(1e-9), 0.0
    )


def response(track: DriftTrack, tau: float) -> Tensor:
    """H (N, N) of a sensor of the time constant `tau`, s; settled where a pass begins."""
    begins = torch.cat([torch.ones(1, dtype=torch.bool), track.passes.diff() != 0]).tolist()
    keep = torch.exp(-track.stamp.diff().clamp_min(0.0) / tau).tolist()
    out = torch.eye(len(track.y), dtype=torch.float64)
    for i, begin in enumerate(begins):
        if not begin:
            out[i] = keep[i - 1] * out[i - 1]
            out[i, i] += 1.0 - keep[i - 1]
    return out


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

"""Raw samples as batches for a map without cells."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gp_mapping.core.types import Samples

__all__ = ["RAW_BATCH", "join_raw", "single_batch"]

RAW_BATCH = 25  # raw samples in one update

_STEP = 0.25  # s over which a velocity is looked for, where samples come that fast


def single_batch(sample: Samples, y: list[float], heading: list[float] | None) -> Samples:
    """One raw sample as a batch, with what the session has found for it.

    Args:
        sample: a single one, (1, …).
        y: value (C,), SI, as the map is to take it.
        heading: unit vector (2,), for a sample that came without one; None: not known.
    """
    # a heading that came with the sample stays; one that the session found fills a gap
    keeps_heading = heading is None or sample.heading is not None
    return replace(sample, y=[y], heading=sample.heading if keeps_heading else [heading])


def join_raw(raw: list[Samples]) -> Samples:
    """Join raw samples to one batch, each with its velocity."""
    batch = Samples.concatenate(raw, common=True)
    still = torch.zeros_like(batch.x)
    return replace(
        batch, velocity=still if batch.stamp is None else _velocity(batch.x, batch.stamp)
    )


def _velocity(x: Tensor, stamp: Tensor) -> Tensor:
    """The slower of two velocities of each sample: from _STEP before it, and to _STEP after it.

    Each reaches at least from the sample before, or to the next one. A glitch of the pose makes one
    of the two fast, and a slow sensor's samples lie on more than one lane.

    Args:
        x: places (N, D), m.
        stamp: (N,), s, in order.

    Returns:
        Velocities (N, D), m/s; 0 of a sample that is alone.
    """
    own = torch.arange(len(x))
    first = torch.minimum(torch.searchsorted(stamp, stamp - _STEP), own - 1).clamp(min=0)
    last = torch.maximum(torch.searchsorted(stamp, stamp + _STEP, right=True) - 1, own + 1).clamp(
        max=len(x) - 1
    )

    ways = []
    for a, b in ((first, own), (own, last)):
        seconds = (stamp[b] - stamp[a])[:, None]
        # a way without an end, or two samples of one moment, say nothing: never the slower one
        ways.append(torch.where(seconds > 0, (x[b] - x[a]) / seconds.clamp(min=1e-9), torch.inf))

    back, ahead = ways
    velocity = torch.where(
        back.norm(dim=1, keepdim=True) <= ahead.norm(dim=1, keepdim=True), back, ahead
    )
    return torch.where(torch.isfinite(velocity), velocity, torch.zeros_like(x))

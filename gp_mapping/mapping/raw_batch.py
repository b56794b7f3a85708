"""Raw samples as batches for a map without cells."""

from __future__ import annotations

from dataclasses import fields, replace

import torch

from gp_mapping.core.types import Samples

__all__ = ["joined", "one_of"]


def one_of(sample: Samples, y: list[float], heading: list[float] | None) -> Samples:
    """One raw sample (1, …) with the value (C,) and heading (2,) that the session has found for it."""
    same = heading is None or sample.heading is not None
    return replace(sample, y=[y], heading=sample.heading if same else [heading])


def joined(raw: list[Samples]) -> Samples:
    """Raw samples as one batch, with one velocity from the first to the last of them."""
    # a column that not all of them have is left out
    drop = {f.name: None for f in fields(Samples) if any(getattr(s, f.name) is None for s in raw)}
    batch = Samples.concatenate([replace(s, **drop) for s in raw])
    velocity = torch.zeros_like(batch.x)
    if batch.stamp is not None and float(batch.stamp[-1]) > float(batch.stamp[0]):
        velocity += (batch.x[-1] - batch.x[0]) / (batch.stamp[-1] - batch.stamp[0])
    return replace(batch, velocity=velocity)

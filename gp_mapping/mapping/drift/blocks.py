"""What a sensor told, averaged along the way to blocks of a length."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.types import Samples
from gp_mapping.mapping.drift.alternatives import DriftTrack

__all__ = ["blocks_of", "forward"]


def blocks_of(rows: DriftTrack, step: float) -> DriftTrack:
    """Rows averaged to blocks of that length.

    Args:
        rows: in order of time, pass by pass.
        step: m.
    """
    # the block of each row
    blocks, first, last, of, number = [], (0.0, 0.0), 0.0, -1, -1
    for place, its, at in zip(rows.x.tolist(), rows.passes.tolist(), rows.stamp.tolist()):
        if its != of or at <= last or math.dist(place, first) >= step * (1 - 1e-6):
            first, of, number = place, its, number + 1
        last = at
        blocks.append(number)

    where, n = torch.tensor(blocks), number + 1
    count = torch.bincount(where, minlength=n).double()

    def mean(values: Tensor) -> Tensor:
        """Of each block, from rows (N, …); about the first one, since coordinates may be 1e6 m."""
        about = values - values[:1]
        sums = about.new_zeros((n, *values.shape[1:])).index_add(0, where, about)
        return sums / count.reshape(n, *(1 for _ in values.shape[1:])) + values[:1]

    passes = torch.zeros(n, dtype=rows.passes.dtype).index_put((where,), rows.passes)
    axes = (None if axis is None else mean(axis) for axis in rows[4:])
    return DriftTrack(mean(rows.x), mean(rows.y), mean(rows.stamp), passes, *axes)


def forward(cells: Samples) -> Tensor:
    """Forward axis of the robot (N, 2); the direction of travel where it is not known."""
    if cells.heading is not None:
        return cells.heading
    if cells.velocity is None:
        return torch.zeros((len(cells), 2), dtype=torch.float64)
    return cells.velocity / cells.velocity.norm(dim=1, keepdim=True).clamp_min(1e-9)

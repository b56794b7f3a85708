"""How much new samples contradict what was learned: nats, without the cost of a block's evidence.

Given the samples before them, and θ, the whitened values z of m new samples are N(0, 1). Had all of
the n samples so far a variance c times as large, the log evidence of both would be

    −½ [(n + m) log c + (n + Q)/c],   Q = Σ z²

for the n were learned from, and have Σ z² = n. Its maximum over c is higher than its value at c = 1
by

    G = ½ [Q − m − (n + m) log((n + Q)/(n + m))]

This much, at least, there is to be gained by another θ: one parameter of θ is as good as c. Where
the model holds, G is about m/(2(n + m)), next to nothing; where the field becomes rougher than any
that was met, a few samples are worth tens of nats.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_mapping.core.hyper.blocks import Blocks
from gp_mapping.core.hyper.evidence import sample_covariance
from gp_mapping.core.hyper.theta import Theta

__all__ = ["attainable_gain", "surprise", "whitened"]

_NEWEST = 10  # more samples than come between two steps


def attainable_gain(square: float, new: int, before: int) -> float:
    """G, the log evidence that another θ would gain at least, nats.

    Args:
        square: Q, of the new samples.
        new: m.
        before: n, samples that were learned from.
    """
    ratio = (square - new) / (before + new)
    return 0.5 * (before + new) * (ratio - math.log1p(ratio))


@torch.no_grad()
def whitened(
    theta: Theta,
    vector: Tensor,
    columns: list[Tensor | None],
    new: Tensor,
    before: Tensor,
    most: int,
) -> Tensor:
    """z of the new samples, given the nearest of those before: (m, C).

    Any samples before leave z at N(0, 1), if the model holds; the nearest tell most.

    Args:
        theta: the kernel's form.
        vector: as of Theta.vector (7,).
        columns: of all samples, x, velocity, heading, y, extra, and pass and extent or None.
        new: indices (m,).
        before: indices.
        most: how many of `before` count.

    Raises:
        LinAlgError: their covariance does not factor.
    """
    x = columns[0]
    if len(before) > most:
        away = torch.cdist(x[before], x[new]).amin(1)
        before = before[away.topk(most, largest=False).indices]

    both = torch.cat([before, new])
    x, velocity, heading, y, *others = (None if c is None else c[both] for c in columns)
    factor = torch.linalg.cholesky(sample_covariance(theta, vector, x, velocity, heading, *others))
    return torch.linalg.solve_triangular(factor, y, upper=False)[len(before) :]


def surprise(
    theta: Theta,
    vector: Tensor,
    columns: list[Tensor | None],
    blocks: Blocks,
    order: Tensor,
    most: int,
) -> Tensor:
    """G of the samples that came after their block was evaluated: (K,).

    Of blocks in which one of the newest samples lies, 0 for others: what these have not been asked
    about was new before, and was looked at then.

    Args:
        theta: as of `whitened`, and so are the next two.
        vector: (7,).
        columns: of all samples.
        blocks: what they have said so far.
        order: arrival numbers (N,), on the CPU.
        most: as of `whitened`.
    """
    x, device = columns[0].cpu(), columns[0].device
    found = torch.zeros(len(blocks.low), dtype=torch.float64)
    waiting, box = blocks.waiting(x, order), blocks.box_of(x)
    newest = order.topk(min(_NEWEST, len(order))).indices
    before = (~waiting).nonzero()[:, 0].to(device)
    for which in box[newest][waiting[newest]].unique().tolist():
        new = (waiting & (box == which)).nonzero()[:, 0].to(device)
        try:
            z = whitened(theta, vector.to(device), columns, new, before, most)
        except torch.linalg.LinAlgError:
            continue  # their number alone counts

        square = float(z.square().sum()) / z.shape[1]
        if math.isfinite(square):
            found[which] = attainable_gain(square, len(new), int(blocks.count.sum()))
    return found

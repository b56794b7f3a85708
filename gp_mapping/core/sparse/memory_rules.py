"""Rules by which a full memory drops samples: each gives keys, and the least keys leave.

What stays when 5 % of a stream may stay (the ablation of Chang et al. 2023, Fig. 2) is measured by
`python -m benchmark memory`; by its result "uniform" is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["RULES", "Candidates"]

_NOWHERE = 1e6  # m: distance of the first sample, which has no earlier one


class Candidates(NamedTuple):
    """The m samples that need keys, among all K that are remembered.

    Attributes:
        which: their indices, (m,).
        draw: log(u), u uniform, (m,).
        leverage: function that computes β v, (m,); called only by a rule that needs it.
        x: where all were measured, (K, D).
        order: arrival numbers of all, (K,).
    """

    which: Tensor
    draw: Tensor
    leverage: Callable[[], Tensor]
    x: Tensor
    order: Tensor


def uniform(offered: Candidates) -> Tensor:
    """Keys log(u): every sample stays with the same probability."""
    return offered.draw


def leverage(offered: Candidates) -> Tensor:
    """Keys log(u)/(β v), weighted by the Bayesian leverage score (Chang et al. 2023, eq. 31)."""
    return offered.draw / offered.leverage().clamp_min(1e-12)


def newest(offered: Candidates) -> Tensor:
    """Keys that grow with the arrival number: the oldest samples leave."""
    return -1.0 / (1.0 + offered.order[offered.which])


def farthest(offered: Candidates) -> Tensor:
    """Greedy farthest points: the sample that is nearest to an earlier one leaves first."""
    earlier = offered.order[None] < offered.order[offered.which][:, None]
    distance = torch.cdist(offered.x[offered.which], offered.x)
    return -1.0 / (1e-9 + distance.masked_fill(~earlier, _NOWHERE).min(1).values)


RULES: dict[str, Callable[[Candidates], Tensor]] = {
    "uniform": uniform,
    "leverage": leverage,
    "newest": newest,
    "farthest": farthest,
}

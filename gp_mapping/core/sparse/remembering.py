"""Which samples a full memory lets go: keys, of which the least leave.

What stays when 5 % of a stream may stay (the ablation of Chang et al. 2023, Fig. 2) is measured by
`python -m benchmark memory`; by its result "uniform" is the default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["RULES", "Offered"]

_NOWHERE = 1e6  # m: the first sample has no other one near it


class Offered(NamedTuple):
    """Samples whose keys are wanted (m,), among all that are remembered (K,).

    which: their indices (m,).  draw (m,): log(u), u uniform.  leverage: () → β v (m,), asked only by who needs it.
    x (K, D): where all were measured.  order (K,): their arrival numbers.
    """

    which: Tensor
    draw: Tensor
    leverage: Callable[[], Tensor]
    x: Tensor
    order: Tensor


def uniform(offered: Offered) -> Tensor:
    """Every sample as likely as another: key log(u)."""
    return offered.draw


def leverage(offered: Offered) -> Tensor:
    """In proportion to the Bayesian leverage score β v (Chang et al. 2023, eq. 31): key log(u)/(β v)."""
    return offered.draw / offered.leverage().clamp_min(1e-12)


def newest(offered: Offered) -> Tensor:
    """A window: the oldest go."""
    return -1.0 / (1.0 + offered.order[offered.which])


def farthest(offered: Offered) -> Tensor:
    """Greedy farthest points: who came nearest to an earlier one goes first."""
    earlier = offered.order[None] < offered.order[offered.which][:, None]
    distance = torch.cdist(offered.x[offered.which], offered.x)
    return -1.0 / (1e-9 + distance.masked_fill(~earlier, _NOWHERE).min(1).values)


RULES: dict[str, Callable[[Offered], Tensor]] = {
    "uniform": uniform,
    "leverage": leverage,
    "newest": newest,
    "farthest": farthest,
}

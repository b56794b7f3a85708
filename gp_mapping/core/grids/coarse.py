"""A coarse space for the conjugate gradients: what a few hundred nodes see of the data is solved at once.

In whitened coordinates the system is I + T, T = K^½ G K^½. With V the span of k(·, z), V'V = I, and B = V'TV, the
preconditioner is (I + VBV')⁻¹ = I − V (I − (I + B)⁻¹) V'. B is taken from thinned lumps: near enough to precondition.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.grids.sites import GridSites
from gp_mapping.core.grids.windows import Lumps, thinned
from gp_mapping.core.kernels import Stationary
from gp_mapping.core.linalg import cholesky, solve_lower

__all__ = ["CoarseSpace"]

_MOST = 1200  # nodes


class CoarseSpace:
    """z: one of the held nodes in each square of 4 × 4 nodes (or larger ones, where that were more than 1200).

    numbers (M,): z among the held.  inner (M + 3, M + 3): what [(K r)(z); r_f] is taken to, coefficients on z and f.
    """

    def __init__(self, grid: GridSites, kernel: Stationary, held: Tensor, prior: Tensor):
        row, column = held // grid.shape[1], held % grid.shape[1]
        stride = 4
        while True:
            square = (row // stride) * grid.nodes + column // stride
            away = (row % stride - stride // 2).abs() + (column % stride - stride // 2).abs()
            order = (square * 64 * stride + away).argsort()  # the node nearest to each square's middle comes first
            squares, counts = square[order].unique_consecutive(return_counts=True)
            if len(squares) <= _MOST:
                break
            stride *= 2
        self.numbers = order[counts.cumsum(0) - counts]
        low = torch.tensor(grid.low, device=held.device)
        z = grid.places(torch.stack([row, column], 1)[self.numbers] + low)
        x, heading, mass, _ = grid.samples()
        lumps = Lumps(x, heading, mass, mass, 1.0)
        lumps = thinned(lumps, 0.5 * stride * grid.spacing)
        self.factor, _ = cholesky(kernel(z, z))
        root = prior.sqrt()
        phi = torch.cat([torch.ones_like(lumps.mass)[:, None], lumps.heading], 1)
        seen = torch.cat([solve_lower(self.factor, kernel(z, lumps.x)), (phi * root).mT])
        whole = (seen * lumps.mass) @ seen.mT
        whole.diagonal().add_(1.0)
        inverse = torch.cholesky_inverse(cholesky(whole)[0])
        inverse.neg_().diagonal().add_(1.0)
        m = len(z)
        left = torch.cat([solve_lower(self.factor, inverse[:m], transpose=True), root[:, None] * inverse[m:]])
        self.inner = torch.cat([solve_lower(self.factor, left[:, :m].mT, transpose=True).mT, left[:, m:] * root], 1)

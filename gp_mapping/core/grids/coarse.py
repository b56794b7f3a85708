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
_STRIDES = (3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)


class CoarseSpace:
    """z: one of the held nodes in each square of 3 × 3 nodes, or of larger ones, where that were more than 1200.

    numbers (M,): z among the held nodes.
    """

    def __init__(self, grid: GridSites, kernel: Stationary, held: Tensor, prior: Tensor):
        row, column = held // grid.shape[1], held % grid.shape[1]
        for stride in _STRIDES:
            square = (row // stride) * grid.nodes + column // stride
            away = (row % stride - stride // 2).abs() + (column % stride - stride // 2).abs()
            order = (square * 64 * stride + away).argsort()  # the node nearest to each square's middle comes first
            squares, counts = square[order].unique_consecutive(return_counts=True)
            if len(squares) <= _MOST:
                break
        self.numbers = order[counts.cumsum(0) - counts]
        low = torch.tensor(grid.low, device=held.device)
        z = grid.places(torch.stack([row, column], 1)[self.numbers] + low)
        x, heading, mass, _ = grid.samples()
        lumps = thinned(Lumps(x, heading, mass, mass, 1.0), 0.5 * stride * grid.spacing)
        self.factor, _ = cholesky(kernel(z, z))
        self.root = prior.sqrt()
        phi = torch.cat([torch.ones_like(lumps.mass)[:, None], lumps.heading], 1) * self.root
        seen = torch.cat([solve_lower(self.factor, kernel(z, lumps.x)), phi.mT]) * lumps.mass.sqrt()
        seen = seen.float()  # a preconditioner needs no more digits
        whole = (seen @ seen.mT).double()
        whole.diagonal().add_(1.0)
        self.whole, _ = cholesky(whole)

    def correction(self, z: Tensor, r_f: Tensor) -> tuple[Tensor, Tensor]:
        """What to take from r at z, and from S r_f, of a residual with K r = z (M,) there and r_f (3,)."""
        seen = torch.cat([solve_lower(self.factor, z[:, None]), (self.root * r_f)[:, None]])
        part = seen - torch.cholesky_solve(seen, self.whole)
        return solve_lower(self.factor, part[:-3], transpose=True)[:, 0], self.root * part[-3:, 0]

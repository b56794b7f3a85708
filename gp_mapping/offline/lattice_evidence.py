"""The evidence of WISKI: that of a GP whose kernel is interpolated between nodes of a lattice (Stanton et al. 2021).

    log N(y | 0, W K_uu Wᵀ + Φ Φᵀ + Σ)          what eq. 13, corrected, is equal to while the root has all of its rank

K_uu is stationary, so an entry of W K_uu Wᵀ is a sum over node distances, seven an axis:

    K̃_ij = Σ_d ω_ij(d) k(Δ_ij + d),   ω_ij(d) = Π_axes Σ_a w_i,a w_j,a−d
"""

from __future__ import annotations

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.models.wiski.lattice.interpolation import cubic_weights
from gp_mapping.offline.objectives import Objective, log_normal
from gp_mapping.offline.stored_cells import StoredCells

__all__ = ["LatticeEvidence", "interpolated_gram"]

_MOST = 500  # cells in a block: 49 products for each pair
_ROWS = 64  # of the matrix, made together
_REACH = (
    3  # spacings by which the nodes of two places of one cell of the lattice differ at the most
)


def interpolated_gram(theta: Theta, places: Tensor, spacing: float) -> Tensor:
    """W K_uu Wᵀ (N, N) of places (N, 2) on a lattice with that spacing (m) and a node at the origin."""
    units = places / spacing
    base = units.floor()
    weights = cubic_weights(units - base)  # (N, 2, 4)
    extent = int((base.amax(0) - base.amin(0)).max()) + _REACH
    steps = torch.arange(-extent, extent + 1, dtype=places.dtype, device=places.device) * spacing
    grid, width = torch.cartesian_prod(steps, steps), len(steps)
    table = theta.kernel()(torch.zeros_like(grid[:1]), grid)[
        0
    ]  # k of whole numbers of spacings, row by row

    gram = places.new_empty((len(places), len(places)))
    shifts = range(-_REACH, _REACH + 1)
    for start in range(0, len(places), _ROWS):
        rows = slice(start, start + _ROWS)
        # ω of each axis and shift: Σ_a w_i,a w_j,a−d
        share = [
            [
                weights[rows, axis, max(0, d) : 4 + min(0, d)]
                @ weights[:, axis, max(0, -d) : 4 - max(0, d)].mT
                for d in shifts
            ]
            for axis in (0, 1)
        ]
        apart = (base[rows, None] - base[None]).long() + extent
        flat = apart[..., 0] * width + apart[..., 1]
        total = gram[rows].zero_()
        for i, d in enumerate(shifts):
            along = torch.zeros_like(total)
            for k, e in enumerate(shifts):
                along.addcmul_(share[1][k], table.take(flat + (d * width + e)))
            total.addcmul_(share[0][i], along)
    return gram


class LatticeEvidence(Objective):
    """The log evidence of WISKI on blocks of cells; the lattice follows θ when it is renewed, as the map's does.

    density: nodes in a lengthscale.
    """

    name = "log evidence of WISKI, eq. 13"

    def __init__(self, cells: StoredCells, density: float, most: int = _MOST):
        self.blocks, self.density, self.spacing = cells.blocks(most), density, 1.0

    def renew(self, theta: Theta) -> None:
        self.spacing = theta.lengthscale / self.density

    def of_block(self, number: int, theta: Theta) -> Tensor:
        cells = self.blocks[number]
        features = theta.feature_rows(cells.x, cells.heading)
        covariance = (
            interpolated_gram(theta, cells.places(theta), self.spacing) + features.mT @ features
        )
        covariance.diagonal().add_(cells.variance(theta))
        return log_normal(covariance, cells.y)

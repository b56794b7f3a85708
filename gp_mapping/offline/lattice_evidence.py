"""The evidence of WISKI: that of a GP whose kernel is interpolated between nodes of a lattice.

    log N(y | 0, W K_uu Wᵀ + Φ Φᵀ + Σ)

It is equal to eq. 13 of Stanton et al. 2021, corrected, while the root has its full rank. K_uu is
stationary, so an entry of W K_uu Wᵀ is a sum over node distances, seven along each axis:

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
_ROWS = 64  # of the matrix, computed together
# spacings by which the nodes of two places in one cell of the lattice differ at most
_REACH = 3


def interpolated_gram(theta: Theta, places: Tensor, spacing: float) -> Tensor:
    """W K_uu Wᵀ (N, N) on a lattice with a node at the origin.

    Args:
        theta: gives the kernel.
        places: (N, 2), m.
        spacing: of the lattice, m.
    """
    units = places / spacing
    base = units.floor()
    weights = cubic_weights(units - base)  # (N, 2, 4)

    extent = int((base.amax(0) - base.amin(0)).max()) + _REACH
    steps = torch.arange(-extent, extent + 1, dtype=places.dtype, device=places.device) * spacing
    grid, width = torch.cartesian_prod(steps, steps), len(steps)
    # k at whole numbers of spacings, row by row
    table = theta.kernel()(torch.zeros_like(grid[:1]), grid)[0]

    gram = places.new_empty((len(places), len(places)))
    shifts = range(-_REACH, _REACH + 1)
    for start in range(0, len(places), _ROWS):
        rows = slice(start, start + _ROWS)
        # ω of each axis and shift: Σ_a w_i,a w_j,a−d
        overlaps = [
            [
                weights[rows, axis, max(0, d) : 4 + min(0, d)]
                @ weights[:, axis, max(0, -d) : 4 - max(0, d)].mT
                for d in shifts
            ]
            for axis in (0, 1)
        ]

        # where k of a pair's node distance stands in the table
        differences = (base[rows, None] - base[None]).long() + extent
        flat = differences[..., 0] * width + differences[..., 1]

        # the sum over shifts, first along one axis
        total = gram[rows].zero_()
        for i, d in enumerate(shifts):
            along = torch.zeros_like(total)
            for k, e in enumerate(shifts):
                along.addcmul_(overlaps[1][k], table.take(flat + (d * width + e)))
            total.addcmul_(overlaps[0][i], along)
    return gram


class LatticeEvidence(Objective):
    """The log evidence of WISKI on blocks of cells.

    The lattice follows θ when it is renewed, as the map's does.

    Args:
        cells: all of them.
        density: nodes in a lengthscale.
        most: cells in a block.
    """

    name = "log evidence of WISKI, eq. 13"

    def __init__(self, cells: StoredCells, density: float, most: int = _MOST):
        self.blocks, self.density, self.spacing = cells.blocks(most), density, 1.0

    def renew(self, theta: Theta) -> None:
        """Set the lattice's spacing from θ's lengthscale."""
        self.spacing = theta.lengthscale / self.density

    def of_block(self, number: int, theta: Theta) -> Tensor:
        """As Objective.of_block, with the spacing of the last `renew`."""
        cells = self.blocks[number]
        features = torch.cat([theta.feature_rows(cells.x, cells.heading), cells.constants(theta)])
        covariance = (
            interpolated_gram(theta, cells.places(theta), self.spacing) + features.mT @ features
        )
        covariance.diagonal().add_(cells.variance(theta))
        return log_normal(covariance, cells.y)

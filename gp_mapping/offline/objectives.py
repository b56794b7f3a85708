"""Objectives of an offline fit, in nats: the log evidence of all cells at θ, or a bound on it.

    exact        log N(y | 0, K + Σ)
    collapsed    (9) of SOLVE-GP at its best q(v_⊥); without a second set the bound of Titsias
                 (2009), that of SVGP, SoR and DTC

Each block of cells that lie together counts for itself, Σ_b log p(y_b), so that time grows with the
number of cells and not with its cube. Each block has a budget of inducing inputs of its own, as the
tiles of a map have. A value needs θ alone, with whatever features and kernel a Theta has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gp_mapping.core.hyper.theta import Theta
from gp_mapping.core.linalg import cholesky, solve_lower
from gp_mapping.core.sparse.basis import Basis, greedy_inputs
from gp_mapping.offline.solve_gp_bounds import collapsed_bound, optimal_blocks
from gp_mapping.offline.stored_cells import StoredCells

__all__ = ["CollapsedBound", "ExactEvidence", "Objective", "log_normal", "tolerance_at"]

_EXACT = 1000  # cells in a block: a factor costs their cube
_SPARSE = 2000  # cells in a block of the collapsed bound
# fraction of the noise variance that inducing inputs leave open; least fraction of s²
_OPEN, _NEAREST = 0.01, 1e-9


class Objective(ABC):
    """A function of θ that a fit raises.

    Attributes:
        name: of the objective, for a person.
        blocks: of cells, each of which counts for itself.
    """

    name: str
    blocks: list[StoredCells]

    def renew(self, theta: Theta) -> None:
        """Choose anew at θ what many values share (inputs, a lattice); by default nothing."""
        return

    @abstractmethod
    def of_block(self, number: int, theta: Theta) -> Tensor:
        """The contribution of one block at θ.

        Args:
            number: of the block in `blocks`.
            theta: hyper-parameters.

        Returns:
            A scalar, nats.

        Raises:
            NumericalError: it cannot be computed at θ.
        """

    @torch.no_grad()
    def value(self, theta: Theta) -> float:
        """The sum over all blocks, nats; it may be −∞.

        Raises:
            NumericalError: it cannot be computed at θ.
        """
        return sum(float(self.of_block(number, theta)) for number in range(len(self.blocks)))


def log_normal(covariance: Tensor, y: Tensor) -> Tensor:
    """Log density of a Gaussian with mean 0, Σ_c log N(y_c | 0, C).

    Args:
        covariance: C (N, N).
        y: (N, channels).
    """
    factor, _ = cholesky(covariance)
    n, channels = y.shape
    logarithm = factor.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi)
    return -0.5 * solve_lower(factor, y).square().sum() - channels * logarithm


def tolerance_at(theta: Theta, cells: StoredCells) -> float:
    """Fraction of s² that inducing inputs may leave open: little in each cell's noise.

    Args:
        theta: gives s².
        cells: whose median noise variance counts.
    """
    return max(_OPEN * float(cells.variance(theta).median()) / theta.signal_stddev**2, _NEAREST)


class ExactEvidence(Objective):
    """The log evidence of the exact GP, of blocks of cells.

    Args:
        cells: all of them.
        most: cells in a block.
    """

    name = "log evidence"

    def __init__(self, cells: StoredCells, most: int = _EXACT):
        self.blocks = cells.blocks(most)

    def of_block(self, number: int, theta: Theta) -> Tensor:
        """As Objective.of_block: Σ_c log N(y_c | 0, K + ΦᵀΦ + Σ), Φ features and constants."""
        cells = self.blocks[number]
        places = cells.places(theta)

        features = torch.cat([theta.feature_rows(cells.x, cells.heading), cells.constants(theta)])
        covariance = theta.kernel()(places, places) + features.mT @ features
        covariance.diagonal().add_(cells.variance(theta))

        return log_normal(covariance, cells.y)


class CollapsedBound(Objective):
    """Bound (9) at the best q: Titsias' with one set of inducing inputs, SOLVE-GP's with two.

    Args:
        cells: all of them.
        first: M of a block, at most.
        second: M₂ of a block, at most; 0: Titsias.
        most: cells in a block.

    Reference:
        Shi, Titsias and Mnih 2020, eq. 9; Titsias 2009, eq. 9.
    """

    def __init__(self, cells: StoredCells, first: int, second: int = 0, most: int = _SPARSE):
        self.blocks, self.first, self.second = cells.blocks(most), first, second
        self.name = (
            "bound (9) of SOLVE-GP on the log evidence"
            if second
            else "bound of Titsias on the log evidence"
        )
        self.inputs: list[Tensor] = []

    @torch.no_grad()
    def renew(self, theta: Theta) -> None:
        """Choose the inducing inputs of each block by pivoted Cholesky at θ.

        The first M pivots are z, the others o.
        """
        self.inputs = []
        for cells in self.blocks:
            places, most = cells.places(theta), self.first + self.second
            tolerance = tolerance_at(theta, cells) * theta.signal_stddev**2
            self.inputs.append(places[greedy_inputs(theta.kernel(), places, tolerance, most)])

    def of_block(self, number: int, theta: Theta) -> Tensor:
        """As Objective.of_block; `renew` must have chosen the inducing inputs."""
        cells, z = self.blocks[number], self.inputs[number]
        places, noise = cells.places(theta), cells.variance(theta)

        basis = Basis.at(z, Basis(theta, z.shape[1], len(z), torch.float64, z.device))
        whitened = basis.whitened(places, cells.heading)
        residual, constants = basis.residual(places, whitened), cells.constants(theta)

        split = len(constants) + basis.features + min(len(z), self.first)

        # the passes' constants are features of the first set, in front of the others
        whitened = torch.cat([constants, whitened])

        if split == len(whitened):
            nothing = whitened.new_zeros((0, 0))
            return collapsed_bound(
                cells.y.new_zeros((0, cells.y.shape[1])),
                nothing,
                whitened,
                residual,
                cells.y,
                noise,
            )

        q = optimal_blocks(whitened, split, cells.y, noise)
        return collapsed_bound(q.mean[split:], q.second, whitened, residual, cells.y, noise)

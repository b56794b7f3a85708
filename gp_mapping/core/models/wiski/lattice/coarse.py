"""A preconditioner for the conjugate gradients: the dense GP on at most a thousand aggregates.

With z the aggregates, M their masses, w_z their weights on the lattice, Φ their features and S the
features' prior, the preconditioner is

    [K 0; 0 S] − [K w_zᵀ; S Φᵀ] (k(z, z) + ΦSΦᵀ + M⁻¹ + ε s² I)⁻¹ [w_z K, Φ S]

which is the wanted inverse but for ε: what interpolating the kernel drops, and, where aggregates
were merged on squares of side h, how much the field varies in one, (h/ℓ)². Without ε it would not
be positive.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gp_mapping.core.device.sparse_product import SparseMatrix
from gp_mapping.core.device.transfers import add_rows, is_synchronous
from gp_mapping.core.kernels.stationary import Stationary
from gp_mapping.core.linalg import cholesky
from gp_mapping.core.models.wiski.lattice.features import feature_rows
from gp_mapping.core.models.wiski.lattice.interpolation import stencil_nodes
from gp_mapping.core.models.wiski.lattice.windows import Aggregates

__all__ = ["CoarseSpace"]

_MOST = 1000  # aggregates
_DROPPED = 2e-3  # ε of interpolation at eight nodes in a lengthscale
_WITHIN = 0.1  # ε of merging, of (h/ℓ)²


class CoarseSpace:
    """The dense GP on the aggregates, as a correction of the prior preconditioner.

    It is made by calling `step` until `ready`; nothing is changed in place.

    Args:
        held: (n,) flat numbers of the touched nodes in a box of `shape`.
        shape: (H, W) nodes of the box.
        first: (2,) place of the box's first node, m.
        spacing: of the lattice, m.
        kernel: the stationary kernel k.
        aggregates: the data as weighted samples.
        prior: (F,) variances S of the features' weights.
    """

    def __init__(
        self,
        held: Tensor,
        shape: tuple[int, int],
        first: Tensor,
        spacing: float,
        kernel: Stationary,
        aggregates: Aggregates,
        prior: Tensor,
    ):
        merged, side, step = (
            (aggregates.x, aggregates.covariates, aggregates.mass),
            0.5 * spacing,
            spacing / float(kernel.lengthscale),
        )

        # merge on growing squares until there are few enough
        while len(merged[2]) > _MOST:
            side *= 2**0.125
            merged = _thinned(aggregates, side)

        self.epsilon = _DROPPED * max(1.0, 8.0 * step) ** 3
        if len(merged[2]) < len(aggregates):
            self.epsilon += _WITHIN * (side / float(kernel.lengthscale)) ** 2

        (self.x, covariates, self.mass), self.kernel, self.prior, self.n = (
            merged,
            kernel,
            prior,
            len(held),
        )

        number = torch.full((shape[0] * shape[1],), self.n, dtype=torch.long, device=held.device)
        number[held] = torch.arange(self.n, device=held.device)
        # interpolation of each aggregate from its sixteen nodes
        corner, self.weights = stencil_nodes((self.x - first) / spacing)
        steps = torch.arange(16, device=held.device)
        nodes = (
            (corner[:, 0] * shape[1] + corner[:, 1])[:, None] + steps // 4 * shape[1] + steps % 4
        )
        self.index = number[nodes]  # n where a node is not held
        self.phi = feature_rows(covariates)
        self.gram: Tensor | None = None
        self.factor: Tensor | None = None
        # of the factored matrix, and the weights of each node (n, m), on a card
        self.inverse: Tensor | None = None
        self.spread: SparseMatrix | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be applied."""
        return self.factor is not None

    @property
    def step_cost(self) -> float:
        """Cost of the next step, in units of one iteration's time per point of the torus."""
        m = len(self.x)
        return 0.2 * m**2 if self.gram is None else 3e-4 * m**3

    def step(self) -> None:
        """Compute the Gram matrix, or, in the second call, its factor."""
        if self.gram is None:
            self.gram = self.kernel(self.x, self.x) + (self.phi * self.prior) @ self.phi.mT
            self.gram.diagonal().add_(1.0 / self.mass)
        else:
            whole = self.gram.clone()
            whole.diagonal().add_(self.epsilon * self.kernel.variance)
            self.factor, _ = cholesky(whole)
            # a card takes far longer for a triangular solve than for a product
            if not is_synchronous(whole.device):
                self.inverse = torch.cholesky_inverse(self.factor)
                self.spread = self._weights_of_nodes()

    def fork(self) -> "CoarseSpace":
        """An independent preconditioner that goes on from here."""
        return copy.copy(self)

    def more_regularised(self) -> "CoarseSpace":
        """A preconditioner with ten times the ε."""
        new = self.fork()
        new.epsilon *= 10.0
        new.step()
        return new

    def correction(self, z: Tensor, r_f: Tensor) -> tuple[Tensor, Tensor]:
        """What the aggregates explain of a residual r (n,), r_f (F,).

        Args:
            z: (n,) K r.
            r_f: (F,) the features' part of the residual.

        Returns:
            What to take from r (n,), and what to take from S r_f (F,).
        """
        at_aggregates = (torch.cat([z, z.new_zeros(1)])[self.index] * self.weights).sum(
            1
        ) + self.phi @ (self.prior * r_f)

        if self.inverse is None or self.spread is None:
            c = torch.cholesky_solve(at_aggregates[:, None], self.factor)
            explained = z.new_zeros(self.n + 1)
            add_rows(explained, self.index.view(-1), (self.weights * c).view(-1))
            return explained[:-1], self.prior * (self.phi.mT @ c[:, 0])

        c = self.inverse @ at_aggregates
        return self.spread @ c, self.prior * (self.phi.mT @ c)

    def _weights_of_nodes(self) -> SparseMatrix:
        """The weights by node, as a sparse matrix (n, m)."""
        nodes, order = self.index.view(-1).sort(stable=True)
        ends = torch.bincount(nodes, minlength=self.n + 1)[: self.n].cumsum(0)
        ends, held = torch.cat([ends.new_zeros(1), ends]), int(ends[-1])
        which = order[:held]
        return SparseMatrix(
            ends,
            which // self.weights.shape[1],
            self.weights.reshape(-1)[which],
            (self.n, len(self.weights)),
        )


def _thinned(aggregates: Aggregates, side: float) -> tuple[Tensor, Tensor, Tensor]:
    """Merge aggregates on squares of `side` metres: place of the first, mean covariates, all mass.

    The place is that of one aggregate, so that samples touch all of its nodes.
    """
    square = (aggregates.x / side).floor().long()
    _, owner = (square[:, 0] * (1 << 31) + square[:, 1]).unique(return_inverse=True)
    count, number = int(owner.max()) + 1, torch.arange(len(owner), device=owner.device)

    chosen = torch.zeros(count, dtype=torch.long, device=owner.device).scatter_reduce(
        0, owner, number, "amin", include_self=False
    )

    mass = add_rows(aggregates.mass.new_zeros(count), owner, aggregates.mass)
    covariates = aggregates.covariates.new_zeros((count, aggregates.covariates.shape[1]))
    add_rows(covariates, owner, aggregates.covariates * aggregates.mass[:, None])
    return aggregates.x[chosen], covariates / mass[:, None], mass

"""The sums of a lattice at one moment, on the nodes that samples touch, and their linear system."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gp_mapping.core.device.sparse_product import SparseMatrix
from gp_mapping.core.models.wiski.lattice.sites import OFFSETS, GridSites
from gp_mapping.core.models.wiski.lattice.toeplitz import KernelGrid

__all__ = ["FrozenSums", "System"]


@dataclass(frozen=True)
class FrozenSums:
    """Copies of the sums, so that a solve of them may go on while the grid changes.

    Attributes:
        low: first node of the box.
        shape: (H, W) nodes of the box.
        held: (n,) flat numbers of the nodes that samples touch, sorted.
        stencil: (n, 25) rows of G.
        border: (n, F) rows of B.
        rhs: (n, C) rows of b.
        features: (F, F) F.
        linear: (F, C) right-hand side of the features.
        start: (n, C) p of an earlier solution.
        start_f: (F, C) f of an earlier solution.
    """

    low: tuple[int, int]
    shape: tuple[int, int]
    held: Tensor
    stencil: Tensor
    border: Tensor
    rhs: Tensor
    features: Tensor
    linear: Tensor
    start: Tensor
    start_f: Tensor

    @staticmethod
    def from_grid(grid: GridSites, start_f: Tensor) -> "FrozenSums":
        """The sums of the grid as they are now.

        Args:
            grid: the sums of all nodes.
            start_f: (F, C) f of an earlier solution.
        """
        diagonal = grid.stencil[:, 0]
        # a node counts even where its largest weight w is next to nothing, since β w² is compared
        held = (diagonal > 1e-18 * diagonal.max().clamp_min(1e-300)).nonzero()[:, 0]
        return FrozenSums(
            grid.low,
            grid.shape,
            held,
            grid.stencil[held],
            grid.border[held],
            grid.rhs[held],
            grid.features.clone(),
            grid.linear.clone(),
            grid.start[held],
            start_f.clone(),
        )

    @property
    def nodes(self) -> int:
        """Number of nodes in the box."""
        return self.shape[0] * self.shape[1]

    def numbers_in(self, grid: GridSites) -> Tensor:
        """Flat numbers (n,) of the held nodes in the grid's box, which may have grown since."""
        row, column = self.held // self.shape[1], self.held % self.shape[1]
        return (
            (row + (self.low[0] - grid.low[0])) * grid.shape[1]
            + column
            + (self.low[1] - grid.low[1])
        )

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {
            f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v.clone()
            for f in fields(self)
        }

    @staticmethod
    def from_state_dict(state: dict, device) -> "FrozenSums":
        """The sums of a state, in tensors of their own."""
        return FrozenSums(
            **{
                k: v.to(device, copy=True) if torch.is_tensor(v) else tuple(v)
                for k, v in state.items()
            }
        )


class _Stencil:
    """G among the held nodes, as a sparse matrix: at most 49 numbers in each of its rows."""

    def __init__(self, sums: FrozenSums):
        held, n, width = sums.held, len(sums.held), sums.shape[1]
        # place of each node of the box among the held ones
        number = torch.full((sums.nodes,), n, dtype=torch.long, device=held.device)
        number[held] = torch.arange(n, device=held.device)

        # a row's neighbours in the order of their numbers, which is that of the held nodes
        steps = [(i, j) for i in range(-3, 4) for j in range(-3, 4)]
        away = torch.tensor([i * width + j for i, j in steps], device=held.device)
        # a node near the box's edge holds no sample (see _MARGIN in sites.py): nothing there wraps
        column = number[(held[:, None] + away).clamp_(min=0, max=sums.nodes - 1)]

        # G is symmetric: what lies behind a node is stored with the other one; row n is all zeros
        rows = torch.cat([sums.stencil, sums.stencil.new_zeros((1, len(OFFSETS)))])
        ahead = [OFFSETS.index(max(step, (-step[0], -step[1]))) for step in steps]
        which = torch.tensor(ahead, device=held.device)
        values = rows[:, which[len(steps) // 2 :]][:-1]
        behind = rows[column[:, : len(steps) // 2], which[: len(steps) // 2]]
        values = torch.cat([behind, values], 1)

        is_held = column < n
        ends = is_held.sum(1).cumsum(0)
        ends = torch.cat([ends.new_zeros(1), ends])
        column, values = column[is_held], values[is_held]
        self.matrix = SparseMatrix(ends, column, values, (n, n))

    def times(self, u: Tensor) -> Tensor:
        """G times a vector: G u (n,) for u (n,)."""
        return self.matrix @ u


class System:
    """G, B and F among the held nodes, and K through the whole box; see lattice/solver.py.

    Args:
        sums: of the held nodes.
        kernel: K_uu on the box.
        prior: (F,) variances S of the features' weights; 0 leaves one out.
    """

    def __init__(self, sums: FrozenSums, kernel: KernelGrid, prior: Tensor):
        self.held, self.shape, self.kernel, self.prior, self.use = (
            sums.held,
            sums.shape,
            kernel,
            prior,
            prior > 0,
        )

        self.stencil = _Stencil(sums)
        self.border, self.features = sums.border * self.use, sums.features * self.use
        # a feature with prior variance 0 is left out: its row and column are zero
        self.inverse = torch.where(self.use, 1.0 / prior.clamp_min(1e-300), 0.0)
        self.wide = torch.zeros(sums.nodes, dtype=torch.float64, device=prior.device)

    def spread(self, p: Tensor) -> Tensor:
        """K p on all nodes (H, W), for p (n,) on the held ones."""
        self.wide[self.held] = p  # other entries stay 0
        return self.kernel.apply(self.wide.view(1, *self.shape))[0]

    def prior_times(self, r: Tensor, r_f: Tensor) -> tuple[Tensor, Tensor]:
        """The prior covariance times a vector: K r (n,) and S r_f (F,).

        Args:
            r: of the held nodes (n,).
            r_f: of the features (F,).
        """
        return self.spread(r).reshape(-1)[self.held], self.prior * r_f

    def times(self, p: Tensor, u: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The system times (u, f): p + G u + B f (n,), and Bᵀu + (S⁻¹ + F) f (F,).

        Args:
            p: K⁻¹u (n,).
            u: of the held nodes (n,).
            f: of the features (F,).
        """
        return (
            p + self.stencil.times(u) + self.border @ f,
            (self.border.mT @ u + self.inverse * f + self.features @ f) * self.use,
        )

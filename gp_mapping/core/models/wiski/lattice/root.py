"""A root of a sum of outer products, and its pseudo-inverse, updated by one vector at a time.

    A = L Lᵀ,   J = L (LᵀL)⁻¹,   so that Jᵀw are w's coordinates in the range of L
    A + w wᵀ = L (I + p pᵀ) Lᵀ,   p = Jᵀw

where w lies in the range; else L grows by a column, up to the rank allowed.

Reference:
    Stanton et al. 2021.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

__all__ = ["RootCache"]

_TOLERANCE = 1e-7  # fraction of |w| beyond the range from which there is a new column
_RECONDITION = 500  # updates after which L and J are made orthogonal again


class RootCache:
    """L and J of A; an update takes O(m r), whatever the number of updates.

    Args:
        size: m.
        rank: the most columns, None for m.
        device: of all tensors.

    Attributes:
        L: (m, r) the root.
        J: (m, r) its pseudo-inverse, transposed.
        dropped: sum of |w beyond the range|² that was lost at the full rank; 0 means exact.
    """

    def __init__(self, size: int, rank: int | None = None, device="cpu"):
        self.rank, self.dropped, self._since = min(rank or size, size), 0.0, 0
        self.L = torch.zeros((size, 0), dtype=torch.float64, device=device)
        self.J = self.L.clone()

    @staticmethod
    def from_matrix(total: Tensor, rank: int) -> RootCache:
        """The root of a matrix by its eigenvectors; what is beyond the rank is dropped.

        Args:
            total: A (m, m), symmetric, ≥ 0.
            rank: columns at most.
        """
        # the largest eigenvalues come last; those of rounding are left out
        values, vectors = torch.linalg.eigh(total)
        keep = values > 1e-13 * values[-1:]
        values, vectors, dropped = values[keep], vectors[:, keep], 0.0

        if len(values) > rank:
            dropped, values, vectors = (
                float(values[:-rank].sum()),
                values[-rank:],
                vectors[:, -rank:],
            )

        new = RootCache(len(total), rank, total.device)
        new.L, new.J, new.dropped = vectors * values.sqrt(), vectors / values.sqrt(), dropped
        return new

    def add(self, w: Tensor) -> None:
        """Add an outer product: A += w wᵀ, w (m,)."""
        p = self.J.mT @ w
        beyond = w - self.L @ p
        p = p + self.J.mT @ beyond  # a second time, so that rounding in J does not add up
        beyond = w - self.L @ p

        length, whole = float(beyond @ beyond), float(w @ w)
        if length > _TOLERANCE**2 * whole:
            if self.L.shape[1] < self.rank:
                # Greville: the range grows, [L w]⁺ = [Jᵀ − p cᵀ; cᵀ], c = beyond/|beyond|²
                c = beyond / length
                self.J = torch.cat([self.J - torch.outer(c, p), c[:, None]], 1)
                self.L = torch.cat([self.L, w[:, None]], 1)
                self._count()
                return
            self.dropped += length

        square = float(p @ p)
        if square > 0.0:
            # (I + p pᵀ)^½ and its inverse
            stretch = (1.0 + square) ** 0.5
            self.L = self.L + torch.outer(self.L @ p, p * ((stretch - 1.0) / square))
            self.J = self.J + torch.outer(self.J @ p, p * ((1.0 / stretch - 1.0) / square))
        self._count()

    def scaled(self, factor: float) -> RootCache:
        """The root of A times the factor."""
        new = copy.copy(self)
        new.L, new.J = self.L * factor**0.5, self.J / factor**0.5
        return new

    def state_dict(self) -> dict:
        """State for `from_state_dict`."""
        return {
            "L": self.L.clone(),
            "J": self.J.clone(),
            "dropped": self.dropped,
            "since": self._since,
        }

    @staticmethod
    def from_state_dict(state: dict, rank: int, device) -> RootCache:
        """The root of a state.

        Args:
            state: of `state_dict`.
            rank: columns that it may have from now on.
            device: of all tensors.
        """
        new = RootCache(len(state["L"]), rank, device)
        new.L, new.J = (state[name].to(device, copy=True) for name in "LJ")
        new.rank, new.dropped, new._since = rank, state["dropped"], state["since"]
        return new

    def _count(self) -> None:
        """Count an update, and recondition where it is time."""
        self._since += 1
        if self._since >= _RECONDITION:
            self.recondition()

    def recondition(self) -> None:
        """Make L and J orthogonal from the singular values of L: L → U S, J → U S⁻¹.

        A stays the same; the rounding that has gathered in J goes.
        """
        u, s, _ = torch.linalg.svd(self.L, full_matrices=False)
        keep = s > _TOLERANCE * s[:1]
        self.L, self.J, self._since = u[:, keep] * s[keep], u[:, keep] / s[keep], 0
